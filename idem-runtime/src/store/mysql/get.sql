-- Reads one record.
--
-- scope, key, path
SELECT {record}
FROM `idempotency_records` AS r
WHERE r.scope = ? AND r.idempotency_key = ? AND r.request_path = ?
