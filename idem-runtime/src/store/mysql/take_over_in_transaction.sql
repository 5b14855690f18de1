-- Takes over, inside a transaction, the abandoned record that was read before it: the next attempt at
-- the same operation, if it is still the attempt that was read. What it has kept of its steps stays,
-- and so does the end of its life.
--
-- owner, lease in µs, scope, key, path, format, hash, older spelling of the hash or the same,
-- the owner who has abandoned it
UPDATE `idempotency_records` AS r
SET r.owner = ?,
    r.locked_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND,
    r.attempt = r.attempt + 1
WHERE r.scope = ? AND r.idempotency_key = ? AND r.request_path = ?
  AND r.status = 'PROCESSING'
  AND r.locked_until <= UTC_TIMESTAMP(6)
  AND r.expires_at > UTC_TIMESTAMP(6)
  AND r.format = ?
  AND r.request_hash IN (?, ?)
  AND r.owner = ?
