-- Reads a page of live records in the order of the primary key. Headers and body of an answer are
-- left on the server: an empty list of headers still tells an answer from a tombstone.
--
-- scope, scope, scope, key, scope, key, path to start after (empty: from the beginning), limit
SELECT r.scope, r.idempotency_key, r.request_path, {record}
FROM (
    SELECT p.scope, p.idempotency_key, p.request_path, p.request_hash, p.status, p.response_code,
        CASE WHEN p.response_headers IS NOT NULL THEN '' END AS response_headers,
        NULL AS response_body,
        p.created_at, p.locked_until, p.completed_at, p.expires_at,
        p.owner, p.attempt, p.route, p.format, p.steps
    FROM `idempotency_records` AS p
    WHERE p.scope >= ?
      AND (
          p.scope > ?
          OR (p.scope = ? AND p.idempotency_key > ?)
          OR (p.scope = ? AND p.idempotency_key = ? AND p.request_path > ?)
      ) {which}
      AND (
          COALESCE(p.expires_at > UTC_TIMESTAMP(6), 1)
          OR COALESCE(p.status = 'PROCESSING' AND p.locked_until > UTC_TIMESTAMP(6), 0)
      )
    ORDER BY p.scope, p.idempotency_key, p.request_path
    LIMIT ?
) AS r
ORDER BY r.scope, r.idempotency_key, r.request_path
