-- Removes those of the records that are still expired, looked up by their primary keys: a range of
-- the index on expires_at would lock the gaps in it, and deadlock with a claim that replaces one of
-- the records.
--
-- {wanted}: for each record scope, key, path
DELETE r
FROM (
    {wanted}
) AS w
STRAIGHT_JOIN `idempotency_records` AS r
    ON r.scope = w.scope AND r.idempotency_key = w.idempotency_key
    AND r.request_path = w.request_path
WHERE r.expires_at <= UTC_TIMESTAMP(6)
  AND COALESCE(r.status <> 'PROCESSING' OR r.locked_until <= UTC_TIMESTAMP(6), 1) {alone}
