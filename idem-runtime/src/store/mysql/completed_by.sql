-- Whether this owner has finished the record already: asked only after complete.sql changed nothing.
--
-- scope, key, path, owner
SELECT 1
FROM `idempotency_records` AS r
WHERE r.scope = ? AND r.idempotency_key = ? AND r.request_path = ?
  AND r.owner = ?
  AND r.status IN ('COMPLETED', 'FAILED')
