-- Begins a new record in the place of an expired one. The condition is checked again under the
-- row's lock: of several that saw it expired, one replaces it.
--
-- hash, lease in µs, ttl in µs, owner, route, format, scope, key, path
UPDATE `idempotency_records` AS r
SET r.request_hash = ?,
    r.response_code = NULL,
    r.response_headers = NULL,
    r.response_body = NULL,
    r.created_at = UTC_TIMESTAMP(6),
    r.completed_at = NULL,
    r.locked_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND,
    r.expires_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND,
    r.status = 'PROCESSING',
    r.owner = ?,
    r.attempt = 1,
    r.route = ?,
    r.format = ?,
    r.steps = NULL
WHERE r.scope = ? AND r.idempotency_key = ? AND r.request_path = ?
  AND NOT (
      COALESCE(r.expires_at > UTC_TIMESTAMP(6), 1)
      OR COALESCE(r.status = 'PROCESSING' AND r.locked_until > UTC_TIMESTAMP(6), 0)
  ) {alone}
