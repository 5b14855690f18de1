-- Finds abandoned records of the named handlers (a JSON array), the oldest lease first. The
-- handler is the part of route after the last space.
SELECT
    rowid, scope, idempotency_key, request_path, request_hash, status, response_code, response_headers, response_body,
    created_at, locked_until, completed_at, expires_at,
    owner, attempt, route, format, steps,
    clock.now AS now
FROM idempotency_records, (SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER) AS now) AS clock
WHERE status = 'PROCESSING'
  AND locked_until <= clock.now
  AND expires_at > clock.now
  AND format = ?1
  AND EXISTS (
      SELECT 1
      FROM json_each(?2) AS handler
      WHERE handler.value <> ''
        AND instr(handler.value, ' ') = 0
        AND substr(' ' || route, -length(handler.value) - 1) = ' ' || handler.value
  )
ORDER BY locked_until
