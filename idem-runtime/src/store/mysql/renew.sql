-- Renews leases, a batch in one statement. STRAIGHT_JOIN: the rows are looked up by their primary
-- keys, whatever the statistics say, and no other row is locked.
--
-- {wanted}: for each renewal scope, key, path, owner, lease in µs
UPDATE (
    {wanted}
) AS w
STRAIGHT_JOIN `idempotency_records` AS r
    ON r.scope = w.scope AND r.idempotency_key = w.idempotency_key
    AND r.request_path = w.request_path
SET r.locked_until = UTC_TIMESTAMP(6) + INTERVAL w.lease MICROSECOND
WHERE r.owner = w.owner AND r.status = 'PROCESSING' {alone}
