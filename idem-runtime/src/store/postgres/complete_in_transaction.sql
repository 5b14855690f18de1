-- Finishes the record that was claimed in this transaction.
--
-- It is an insert that finds the record in its way because that reads nothing of the table: under
-- SERIALIZABLE, the scan of an update would set transactions with different keys at odds. If the
-- record is not there any more (the handler has ended the transaction itself), the row that is
-- inserted says so, and the caller rolls back.
--
-- $1 scope  $2 key  $3 path  $4 owner  $5 status  $6 code  $7 headers  $8 body
-- $9 hash  $10 route  $11 format  $12 token
INSERT INTO "idempotency_records" AS r (
    scope, idempotency_key, request_path, request_hash, status,
    response_code, response_headers, response_body,
    created_at, locked_until, completed_at, expires_at, owner, attempt, route, format
)
VALUES (
    $1, $2, $3, $9, $5, $6, $7, $8,
    statement_timestamp(), statement_timestamp(), statement_timestamp(), statement_timestamp(),
    $4::uuid, 1, $10, $11
)
ON CONFLICT (scope, idempotency_key, request_path) DO UPDATE
SET status = excluded.status,
    response_code = excluded.response_code,
    response_headers = excluded.response_headers,
    response_body = excluded.response_body,
    completed_at = excluded.completed_at,
    steps = NULL
WHERE r.owner = excluded.owner
  AND r.status = 'PROCESSING'
RETURNING r.created_at < r.completed_at AS finished,
    CASE WHEN r.awaited THEN pg_notify({channel}, $12) IS NULL END AS told
