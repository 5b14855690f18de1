-- Finds expired records, by a read that locks nothing.
--
-- limit
SELECT e.scope, e.idempotency_key, e.request_path
FROM `idempotency_records` AS e
WHERE e.expires_at <= UTC_TIMESTAMP(6)
  AND COALESCE(e.status <> 'PROCESSING' OR e.locked_until <= UTC_TIMESTAMP(6), 1)
ORDER BY e.expires_at
LIMIT ?
