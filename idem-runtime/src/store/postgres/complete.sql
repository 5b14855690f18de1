-- Finishes a running record, on condition that the caller still owns it.
--
-- Those who wait for it are told, if there are any. Not always: a commit with a notification holds a
-- lock for which all such commits of the server queue.
--
-- $1 scope  $2 key  $3 path  $4 owner  $5 token  $6 status  $7 code  $8 headers  $9 body
UPDATE "idempotency_records" AS r
SET status = $6,
    response_code = $7,
    response_headers = $8,
    response_body = $9,
    completed_at = statement_timestamp(),
    steps = NULL
WHERE r.scope = $1 AND r.idempotency_key = $2 AND r.request_path = $3
  AND r.owner = $4::uuid
  AND r.status = 'PROCESSING'
RETURNING {gap},
    CASE WHEN r.awaited THEN pg_notify({channel}, $5) IS NULL END AS told
