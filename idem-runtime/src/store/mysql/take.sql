-- Takes those of the records that are still abandoned: of two instances that found the same one, the
-- second finds its lease running.
--
-- {wanted}: for each record scope, key, path; then owner, lease in µs
UPDATE (
    {wanted}
) AS w
STRAIGHT_JOIN `idempotency_records` AS r
    ON r.scope = w.scope AND r.idempotency_key = w.idempotency_key
    AND r.request_path = w.request_path
SET r.owner = ?,
    r.locked_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
WHERE r.status = 'PROCESSING'
  AND r.locked_until <= UTC_TIMESTAMP(6)
  AND r.expires_at > UTC_TIMESTAMP(6) {alone}
