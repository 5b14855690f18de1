-- Reads the records that take.sql took.
--
-- {wanted}: for each record scope, key, path; then owner
SELECT r.scope, r.idempotency_key, r.request_path, {record}
FROM (
    {wanted}
) AS w
STRAIGHT_JOIN `idempotency_records` AS r
    ON r.scope = w.scope AND r.idempotency_key = w.idempotency_key
    AND r.request_path = w.request_path
WHERE r.status = 'PROCESSING' AND r.owner = ?
