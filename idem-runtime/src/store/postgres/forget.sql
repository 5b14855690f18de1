-- Removes a live record whatever its state. An expired one is as if it were not there.
--
-- $1 scope  $2 key  $3 path  $4 token
DELETE FROM "idempotency_records" AS r
WHERE r.scope = $1 AND r.idempotency_key = $2 AND r.request_path = $3
  AND (
      coalesce(r.expires_at > statement_timestamp(), true)
      OR coalesce(r.status = 'PROCESSING' AND r.locked_until > statement_timestamp(), false)
  )
RETURNING {gap},
    CASE WHEN r.awaited THEN pg_notify({channel}, $4) IS NULL END AS told
