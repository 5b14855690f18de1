-- Begins a new record in the place of an expired one. The condition is checked again under the
-- row's lock: of several that saw it expired, one replaces it.
--
-- $1 scope  $2 key  $3 path  $4 hash  $5 owner  $6 ttl in ms  $7 lease in ms  $8 route  $9 format
UPDATE "idempotency_records" AS r
SET request_hash = $4,
    status = 'PROCESSING',
    response_code = NULL,
    response_headers = NULL,
    response_body = NULL,
    created_at = statement_timestamp(),
    locked_until = statement_timestamp() + $7 * interval '1 millisecond',
    completed_at = NULL,
    expires_at = statement_timestamp() + $6 * interval '1 millisecond',
    owner = $5::uuid,
    attempt = 1,
    route = $8,
    format = $9,
    steps = NULL,
    awaited = false
WHERE r.scope = $1 AND r.idempotency_key = $2 AND r.request_path = $3
  AND NOT (
      coalesce(r.expires_at > statement_timestamp(), true)
      OR coalesce(r.status = 'PROCESSING' AND r.locked_until > statement_timestamp(), false)
  )
RETURNING {gap}
