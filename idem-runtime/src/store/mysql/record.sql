-- What is read of a record `r`: its columns, times in milliseconds since the epoch, and what the
-- server's clock says of it.
    r.request_hash,
    r.status,
    r.response_code,
    r.response_headers,
    r.response_body,
    TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', r.created_at) DIV 1000 AS created_at,
    TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', r.locked_until) DIV 1000 AS locked_until,
    TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', r.completed_at) DIV 1000 AS completed_at,
    TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', r.expires_at) DIV 1000 AS expires_at,
    r.owner,
    r.attempt,
    r.route,
    r.format,
    r.steps,
    TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)) DIV 1000 AS now,
    CAST(COALESCE(r.expires_at > UTC_TIMESTAMP(6), 1)
        OR COALESCE(r.status = 'PROCESSING' AND r.locked_until > UTC_TIMESTAMP(6), 0) AS SIGNED) AS live,
    CAST(COALESCE(r.locked_until <= UTC_TIMESTAMP(6), 0) AS SIGNED) AS lapsed
