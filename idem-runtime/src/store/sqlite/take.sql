-- Gives one abandoned record, found in the same transaction, to a new owner.
UPDATE idempotency_records
SET owner        = ?2,
    locked_until = CAST(round(unixepoch('subsec') * 1000) AS INTEGER) + ?3
WHERE rowid = ?1
RETURNING locked_until, locked_until - ?3 AS now
