-- Takes the key if nothing stands there. If something does, this fails with a duplicate key and
-- writes nothing; the store then reads what stands there.
--
-- Neither INSERT IGNORE (it hides every other error too) nor ON DUPLICATE KEY UPDATE (the driver
-- counts found rows, not changed ones, so both outcomes would count 1).
--
-- {processing}: see `Server` in connect.rs.
--
-- scope, key, path, hash, lease in µs, ttl in µs, owner, route, format
INSERT INTO `idempotency_records` (
    scope, idempotency_key, request_path, request_hash, status,
    created_at, locked_until, expires_at, owner, attempt, route, format
)
VALUES (
    ?, ?, ?, ?, {processing},
    UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND,
    ?, 1, ?, ?
)
