-- Whether this owner has finished the record before: a completion whose answer got lost.
SELECT 1
FROM idempotency_records
WHERE scope = ?1 AND idempotency_key = ?2 AND request_path = ?3
  AND owner = ?4
  AND status <> 'PROCESSING'
