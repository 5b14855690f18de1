-- Renews one lease, run out or not, as long as the record is still its owner's.
UPDATE idempotency_records
SET locked_until = CAST(round(unixepoch('subsec') * 1000) AS INTEGER) + ?5
WHERE scope = ?1 AND idempotency_key = ?2 AND request_path = ?3
  AND owner = ?4
  AND status = 'PROCESSING'
