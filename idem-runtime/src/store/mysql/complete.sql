-- Finishes a running record, on condition that the caller still owns it. FORCE INDEX: by the
-- index of running records others' rows would be locked as well, up to a deadlock.
--
-- code, headers, body, status, scope, key, path, owner
UPDATE `idempotency_records` AS r FORCE INDEX (PRIMARY)
SET r.response_code = ?,
    r.response_headers = ?,
    r.response_body = ?,
    r.completed_at = UTC_TIMESTAMP(6),
    r.steps = NULL,
    r.status = ?
WHERE r.scope = ? AND r.idempotency_key = ? AND r.request_path = ?
  AND r.owner = ?
  AND r.status = 'PROCESSING' {alone}
