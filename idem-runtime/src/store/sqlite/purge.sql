-- Removes some of the records that have expired, the oldest first, whatever else they hold.
DELETE FROM idempotency_records
WHERE rowid IN (
    SELECT record.rowid
    FROM idempotency_records AS record, (SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER) AS now) AS clock
    WHERE record.expires_at <= clock.now
      AND NOT (record.status = 'PROCESSING' AND record.locked_until > clock.now)
    ORDER BY record.expires_at
    LIMIT ?1
)
