-- Notes that somebody waits for the outcome of these running records: settling one then sends a
-- notification. Written once by those who begin to wait, and never by a replay. SKIP LOCKED: a record
-- that is being settled, or that an open transaction has written, is not waited for here.
--
-- $1 scopes  $2 keys  $3 paths
WITH running AS (
    SELECT r.scope, r.idempotency_key, r.request_path
    FROM unnest($1, $2, $3) AS w (scope, idempotency_key, request_path)
    JOIN "idempotency_records" AS r
      ON r.scope = w.scope
      AND r.idempotency_key = w.idempotency_key
      AND r.request_path = w.request_path
    WHERE r.status = 'PROCESSING'
      AND NOT r.awaited
    FOR NO KEY UPDATE OF r SKIP LOCKED
)
UPDATE "idempotency_records" AS r
SET awaited = true
FROM running AS w
WHERE r.scope = w.scope
  AND r.idempotency_key = w.idempotency_key
  AND r.request_path = w.request_path
RETURNING {gap}
