-- Keeps the results of durable steps with a running record of this owner's.
UPDATE idempotency_records
SET steps = ?5
WHERE scope = ?1 AND idempotency_key = ?2 AND request_path = ?3
  AND owner = ?4
  AND status = 'PROCESSING'
