-- Removes a live record whatever its state. An expired one is as if it were not there.
--
-- scope, key, path
DELETE FROM `idempotency_records`
WHERE scope = ? AND idempotency_key = ? AND request_path = ?
  AND (
      COALESCE(expires_at > UTC_TIMESTAMP(6), 1)
      OR COALESCE(status = 'PROCESSING' AND locked_until > UTC_TIMESTAMP(6), 0)
  ) {alone}
