-- Reads a page of live records, in the order of the primary key. Headers and body of the answers
-- stay where they are; an empty value in place of the headers tells an answer from a tombstone.
-- Abandoned ones are few, and found by the index on the leases of those that run.
SELECT
    scope, idempotency_key, request_path, request_hash, status, response_code,
    CASE WHEN response_headers IS NULL THEN NULL ELSE x'' END AS response_headers,
    NULL AS response_body,
    created_at, locked_until, completed_at, expires_at, owner, attempt, route, format, steps,
    clock.now AS now
FROM idempotency_records, (SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER) AS now) AS clock
WHERE (scope, idempotency_key, request_path) > (?1, ?2, ?3) {which}
  AND (expires_at > clock.now OR (status = 'PROCESSING' AND locked_until > clock.now))
ORDER BY scope, idempotency_key, request_path
LIMIT ?4
