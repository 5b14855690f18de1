-- Finds abandoned records, the oldest lease first: a read that locks nothing, so that it neither
-- waits nor stands in the way of claims. What could not be read afterwards is not found.
--
-- format, {handlers}, limit
SELECT a.scope, a.idempotency_key, a.request_path
FROM `idempotency_records` AS a
WHERE a.status = 'PROCESSING'
  AND a.locked_until <= UTC_TIMESTAMP(6)
  AND a.expires_at > UTC_TIMESTAMP(6)
  AND a.format = ?
  AND a.attempt > 0
  AND a.owner IS NOT NULL
  AND a.created_at IS NOT NULL
  AND a.request_hash REGEXP '^[0-9a-fA-F]{64}$'
  AND SUBSTRING_INDEX(a.route, ' ', -1) IN ({handlers})
ORDER BY a.locked_until
LIMIT ?
