-- Reads what stands under a key, live or not.
SELECT
    scope, idempotency_key, request_path, request_hash, status, response_code, response_headers, response_body,
    created_at, locked_until, completed_at, expires_at,
    owner, attempt, route, format, steps,
    clock.now AS now,
    (expires_at > clock.now OR (status = 'PROCESSING' AND locked_until > clock.now)) AS live
FROM idempotency_records, (SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER) AS now) AS clock
WHERE scope = ?1 AND idempotency_key = ?2 AND request_path = ?3
