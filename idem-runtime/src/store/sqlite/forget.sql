-- Removes a record whatever its state, and says whether it was live.
DELETE FROM idempotency_records
WHERE scope = ?1 AND idempotency_key = ?2 AND request_path = ?3
RETURNING
    expires_at > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
    OR (status = 'PROCESSING' AND locked_until > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AS live
