-- Takes the key inside an open transaction, if nobody else's transaction has it and nothing stands
-- there; says which of the two is in the way otherwise.
--
-- The lock decides between transactions without waiting and goes with the transaction, whichever way
-- that ends: a session lock would be lost behind a pooler in transaction mode. Nothing is read of the
-- table: under SERIALIZABLE, reading it would set claims of different keys at odds.
--
-- $1 scope  $2 key  $3 path  $4 hash  $5 owner  $6 ttl in ms  $7 lease in ms  $8 route  $9 format
-- $10 lock
WITH lock AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock($10) AS taken
), won AS (
    INSERT INTO "idempotency_records" (
        scope, idempotency_key, request_path, request_hash, status,
        created_at, locked_until, expires_at, owner, attempt, route, format
    )
    SELECT
        $1, $2, $3, $4, 'PROCESSING',
        statement_timestamp(),
        statement_timestamp() + $7 * interval '1 millisecond',
        statement_timestamp() + $6 * interval '1 millisecond',
        $5::uuid, 1, $8, $9
    FROM lock
    WHERE lock.taken
    ON CONFLICT (scope, idempotency_key, request_path) DO NOTHING
    RETURNING 1
)
SELECT lock.taken, EXISTS (SELECT 1 FROM won) AS won
FROM lock
