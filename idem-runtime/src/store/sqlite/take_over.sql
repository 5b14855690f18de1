-- Takes an abandoned record over: live, running, its lease run out, the same request. Only the
-- owner, the attempt and the lease change.
UPDATE idempotency_records
SET owner        = ?5,
    attempt      = attempt + 1,
    locked_until = clock.now + ?6
FROM (SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER) AS now) AS clock
WHERE scope = ?1 AND idempotency_key = ?2 AND request_path = ?3
  AND status = 'PROCESSING'
  AND locked_until <= clock.now
  AND expires_at > clock.now
  AND format = ?7
  AND request_hash IN (?4, ?8)
  AND attempt > 0
RETURNING attempt, steps
