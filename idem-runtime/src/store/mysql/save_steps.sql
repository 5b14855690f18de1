-- Keeps the results of durable steps with a running record.
--
-- steps, scope, key, path, owner
UPDATE `idempotency_records` AS r
SET r.steps = ?
WHERE r.scope = ? AND r.idempotency_key = ? AND r.request_path = ?
  AND r.owner = ?
  AND r.status = 'PROCESSING' {alone}
