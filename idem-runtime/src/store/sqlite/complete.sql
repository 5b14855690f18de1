-- Finishes a running record of this owner's. The TTL stays what it was.
UPDATE idempotency_records
SET status           = ?5,
    response_code    = ?6,
    response_headers = ?7,
    response_body    = ?8,
    completed_at     = CAST(round(unixepoch('subsec') * 1000) AS INTEGER),
    steps            = NULL
WHERE scope = ?1 AND idempotency_key = ?2 AND request_path = ?3
  AND owner = ?4
  AND status = 'PROCESSING'
