-- Which leases of a batch are held: asked only if fewer were renewed than were to be.
--
-- {wanted}: for each renewal scope, key, path, owner, lease in µs
SELECT r.scope, r.idempotency_key, r.request_path, r.owner
FROM (
    {wanted}
) AS w
STRAIGHT_JOIN `idempotency_records` AS r
    ON r.scope = w.scope AND r.idempotency_key = w.idempotency_key
    AND r.request_path = w.request_path
WHERE r.owner = w.owner AND r.status = 'PROCESSING'
