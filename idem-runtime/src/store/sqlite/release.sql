-- Frees the key of a running record of this owner's.
DELETE FROM idempotency_records
WHERE scope = ?1 AND idempotency_key = ?2 AND request_path = ?3
  AND owner = ?4
  AND status = 'PROCESSING'
