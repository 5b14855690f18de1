-- Takes over an abandoned record: the next attempt at the same operation. What it has kept of its
-- steps stays, and so does the end of its life.
--
-- $1 scope  $2 key  $3 path  $4 hash  $5 older spelling of the hash, or the same  $6 owner
-- $7 lease in ms  $8 format
UPDATE "idempotency_records" AS r
SET owner = $6::uuid,
    locked_until = statement_timestamp() + $7 * interval '1 millisecond',
    attempt = r.attempt + 1
WHERE r.scope = $1 AND r.idempotency_key = $2 AND r.request_path = $3
  AND r.status = 'PROCESSING'
  AND r.locked_until <= statement_timestamp()
  AND r.expires_at > statement_timestamp()
  AND r.format = $8
  AND r.request_hash::text IN ($4, $5)
RETURNING r.attempt, r.steps, {gap}
