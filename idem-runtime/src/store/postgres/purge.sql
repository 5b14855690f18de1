-- Removes a batch of expired records. SKIP LOCKED: neither a running request nor another instance's
-- batch is waited for.
--
-- $1 limit
WITH expired AS (
    SELECT e.scope, e.idempotency_key, e.request_path
    FROM "idempotency_records" AS e
    WHERE e.expires_at <= statement_timestamp()
      AND (e.status <> 'PROCESSING' OR e.locked_until <= statement_timestamp()) IS NOT FALSE
    ORDER BY e.expires_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM "idempotency_records" AS r
    USING expired AS e
    WHERE r.scope = e.scope
      AND r.idempotency_key = e.idempotency_key
      AND r.request_path = e.request_path
    RETURNING 1
)
SELECT count(*) AS gone, {gap}
FROM gone
