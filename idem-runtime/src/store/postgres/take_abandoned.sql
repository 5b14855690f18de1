-- Takes abandoned records for reconciliation, the oldest lease first. SKIP LOCKED: several instances
-- share the work, none waits for another, and no record is given to two. What could not be read
-- afterwards is not taken.
--
-- $1 handlers  $2 owner  $3 lease in ms  $4 limit  $5 format
WITH abandoned AS (
    SELECT a.scope, a.idempotency_key, a.request_path, a.locked_until
    FROM "idempotency_records" AS a
    WHERE a.status = 'PROCESSING'
      AND a.locked_until <= statement_timestamp()
      AND a.expires_at > statement_timestamp()
      AND a.format = $5
      AND a.attempt > 0
      AND a.owner IS NOT NULL
      AND a.request_hash ~ '^[0-9a-fA-F]{64}$'
      AND isfinite(a.created_at) AND isfinite(a.expires_at) AND isfinite(a.locked_until)
      AND substring(a.route FROM '[^ ]*$') = ANY ($1)
    ORDER BY a.locked_until
    LIMIT $4
    FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE "idempotency_records" AS r
    SET owner = $2::uuid,
        locked_until = statement_timestamp() + $3 * interval '1 millisecond'
    FROM abandoned AS a
    WHERE r.scope = a.scope
      AND r.idempotency_key = a.idempotency_key
      AND r.request_path = a.request_path
    RETURNING r.*, a.locked_until AS abandoned_at
)
SELECT r.scope::text AS scope, r.idempotency_key::text AS idempotency_key,
    r.request_path::text AS request_path, {gap}, {record}
FROM taken AS r
ORDER BY r.abandoned_at
