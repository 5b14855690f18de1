-- Keeps the results of durable steps with a running record. FORCE INDEX: by the
-- index of running records others' rows would be locked as well, up to a deadlock.
--
-- steps, scope, key, path, owner
UPDATE `idempotency_records` AS r FORCE INDEX (PRIMARY)
SET r.steps = ?
WHERE r.scope = ? AND r.idempotency_key = ? AND r.request_path = ?
  AND r.owner = ?
  AND r.status = 'PROCESSING' {alone}
