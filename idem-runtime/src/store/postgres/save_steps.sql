-- Keeps the results of durable steps with a running record.
--
-- $1 scope  $2 key  $3 path  $4 owner  $5 steps
UPDATE "idempotency_records" AS r
SET steps = $5
WHERE r.scope = $1 AND r.idempotency_key = $2 AND r.request_path = $3
  AND r.owner = $4::uuid
  AND r.status = 'PROCESSING'
RETURNING {gap}
