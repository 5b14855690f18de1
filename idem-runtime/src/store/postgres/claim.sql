-- Takes the key if nothing stands there, and reads what stands there otherwise: one statement that
-- writes nothing for a replay (DO UPDATE … RETURNING would write a row version for each).
--
-- Of two truly simultaneous claims the loser waits for the winner's commit, inserts nothing, and
-- does not see the winner's row in its own, older snapshot: no row comes back, and the store asks
-- again. A row that was deleted meanwhile may come back beside the one that is inserted: the
-- inserted one counts.
--
-- $1 scope  $2 key  $3 path  $4 hash  $5 owner  $6 ttl in ms  $7 lease in ms  $8 route  $9 format
WITH won AS (
    INSERT INTO "idempotency_records" AS r (
        scope, idempotency_key, request_path, request_hash, status,
        created_at, locked_until, expires_at, owner, attempt, route, format
    )
    VALUES (
        $1, $2, $3, $4, 'PROCESSING',
        statement_timestamp(),
        statement_timestamp() + $7 * interval '1 millisecond',
        statement_timestamp() + $6 * interval '1 millisecond',
        $5::uuid, 1, $8, $9
    )
    ON CONFLICT (scope, idempotency_key, request_path) DO NOTHING
    RETURNING 1
)
SELECT false AS won, {gap}, {record}
FROM "idempotency_records" AS r
WHERE r.scope = $1 AND r.idempotency_key = $2 AND r.request_path = $3
UNION ALL
SELECT true, {gap},
    -- One for each column of record.sql: the winner knows what it has written.
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM won
