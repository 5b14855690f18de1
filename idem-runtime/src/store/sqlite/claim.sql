-- Takes a key that is free: no record stands there, or one that has expired and whose lease does
-- not run. The whole of an expired record is replaced. Returns nothing, and writes nothing, where
-- a live record stands.
INSERT INTO idempotency_records (
    scope, idempotency_key, request_path, request_hash, route, owner, format,
    status, attempt, created_at, locked_until, expires_at
)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, 'PROCESSING', 1, clock.now, clock.now + ?8, clock.now + ?9
FROM (SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER) AS now) AS clock
WHERE true -- Or the parser would take ON CONFLICT for a join.
ON CONFLICT (scope, idempotency_key, request_path) DO UPDATE SET
    request_hash     = excluded.request_hash,
    route            = excluded.route,
    owner            = excluded.owner,
    format           = excluded.format,
    status           = excluded.status,
    attempt          = excluded.attempt,
    created_at       = excluded.created_at,
    locked_until     = excluded.locked_until,
    expires_at       = excluded.expires_at,
    response_code    = NULL,
    response_headers = NULL,
    response_body    = NULL,
    completed_at     = NULL,
    steps            = NULL
WHERE idempotency_records.expires_at <= excluded.created_at
  AND NOT (
      idempotency_records.status = 'PROCESSING'
      AND idempotency_records.locked_until > excluded.created_at
  )
RETURNING attempt
