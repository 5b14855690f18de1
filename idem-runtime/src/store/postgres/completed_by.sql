-- Whether this owner has finished the record already: asked only after complete.sql changed nothing.
--
-- $1 scope  $2 key  $3 path  $4 owner
SELECT 1
FROM "idempotency_records" AS r
WHERE r.scope = $1 AND r.idempotency_key = $2 AND r.request_path = $3
  AND r.owner = $4::uuid
  AND r.status IN ('COMPLETED', 'FAILED')
