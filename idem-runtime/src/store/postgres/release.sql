-- Frees the key, on condition that the caller still owns the running record.
--
-- $1 scope  $2 key  $3 path  $4 owner  $5 token
DELETE FROM "idempotency_records" AS r
WHERE r.scope = $1 AND r.idempotency_key = $2 AND r.request_path = $3
  AND r.owner = $4::uuid
  AND r.status = 'PROCESSING'
RETURNING {gap},
    CASE WHEN r.awaited THEN pg_notify({channel}, $5) IS NULL END AS told
