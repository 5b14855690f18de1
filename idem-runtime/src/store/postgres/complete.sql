-- Finishes a running record, on condition that the caller still owns it.
--
-- $1 scope  $2 key  $3 path  $4 owner  $5 status  $6 code  $7 headers  $8 body
UPDATE "idempotency_records" AS r
SET status = $5,
    response_code = $6,
    response_headers = $7,
    response_body = $8,
    completed_at = statement_timestamp(),
    steps = NULL
WHERE r.scope = $1 AND r.idempotency_key = $2 AND r.request_path = $3
  AND r.owner = $4::uuid
  AND r.status = 'PROCESSING'
RETURNING {gap}
