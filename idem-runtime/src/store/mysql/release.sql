-- Frees the key, on condition that the caller still owns the running record.
--
-- scope, key, path, owner
DELETE FROM `idempotency_records`
WHERE scope = ? AND idempotency_key = ? AND request_path = ?
  AND owner = ?
  AND status = 'PROCESSING' {alone}
