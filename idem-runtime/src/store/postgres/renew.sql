-- Renews leases, all in one statement, and says which of them are still held.
--
-- $1 scopes  $2 keys  $3 paths  $4 owners  $5 leases in ms
UPDATE "idempotency_records" AS r
SET locked_until = statement_timestamp() + w.lease * interval '1 millisecond'
FROM unnest($1, $2, $3, $4, $5)
    WITH ORDINALITY AS w (scope, idempotency_key, request_path, owner, lease, n)
WHERE r.scope = w.scope
  AND r.idempotency_key = w.idempotency_key
  AND r.request_path = w.request_path
  AND r.owner = w.owner::uuid
  AND r.status = 'PROCESSING'
RETURNING w.n, {gap}
