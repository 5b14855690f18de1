-- Reads a page of abandoned records, in the order of the primary key. They are few, and found by the
-- index on the leases of those that run.
SELECT
    scope, idempotency_key, request_path, request_hash, status, response_code,
    NULL AS response_headers, NULL AS response_body,
    created_at, locked_until, completed_at, expires_at, owner, attempt, route, format, steps,
    clock.now AS now
FROM idempotency_records, (SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER) AS now) AS clock
WHERE (scope, idempotency_key, request_path) > (?1, ?2, ?3)
  AND status = 'PROCESSING'
  AND locked_until <= clock.now
  AND expires_at > clock.now
ORDER BY scope, idempotency_key, request_path
LIMIT ?4
