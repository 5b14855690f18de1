-- Reads one record.
--
-- $1 scope  $2 key  $3 path
SELECT {record}
FROM "idempotency_records" AS r
WHERE r.scope = $1 AND r.idempotency_key = $2 AND r.request_path = $3
