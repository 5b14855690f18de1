-- Reads a page of live records in the order of the primary key. Headers and body of an answer are
-- left on the server: an empty list of headers still tells an answer from a tombstone. Abandoned ones
-- are few, and found by the index on the leases of those that run.
--
-- $1 scope  $2 key  $3 path to start after (empty: from the beginning)  $4 limit
SELECT r.scope::text AS scope, r.idempotency_key::text AS idempotency_key,
    r.request_path::text AS request_path, {record}
FROM (
    SELECT p.scope, p.idempotency_key, p.request_path, p.request_hash, p.status, p.response_code,
        CASE WHEN p.response_headers IS NOT NULL THEN ''::bytea END AS response_headers,
        NULL::bytea AS response_body,
        p.created_at, p.locked_until, p.completed_at, p.expires_at,
        p.owner, p.attempt, p.route, p.format, p.steps
    FROM "idempotency_records" AS p
    WHERE (p.scope, p.idempotency_key, p.request_path) > ($1, $2, $3) {which}
      AND (
          coalesce(p.expires_at > statement_timestamp(), true)
          OR coalesce(p.status = 'PROCESSING' AND p.locked_until > statement_timestamp(), false)
      )
    ORDER BY p.scope, p.idempotency_key, p.request_path
    LIMIT $4
) AS r
ORDER BY r.scope, r.idempotency_key, r.request_path
