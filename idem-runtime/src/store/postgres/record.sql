-- What is read of a record `r`: its columns, times in milliseconds since the epoch, and what the
-- server's clock says of it. A time that no release writes (infinity) reads as NULL.
    r.request_hash::text AS request_hash,
    r.status::text AS status,
    r.response_code,
    r.response_headers,
    r.response_body,
    CASE WHEN isfinite(r.created_at) THEN floor(extract(epoch FROM r.created_at) * 1000)::bigint END AS created_at,
    CASE WHEN isfinite(r.locked_until) THEN floor(extract(epoch FROM r.locked_until) * 1000)::bigint END AS locked_until,
    CASE WHEN isfinite(r.completed_at) THEN floor(extract(epoch FROM r.completed_at) * 1000)::bigint END AS completed_at,
    CASE WHEN isfinite(r.expires_at) THEN floor(extract(epoch FROM r.expires_at) * 1000)::bigint END AS expires_at,
    r.owner::text AS owner,
    r.attempt,
    r.route::text AS route,
    r.format,
    r.steps,
    floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint AS now,
    coalesce(r.expires_at > statement_timestamp(), true)
        OR coalesce(r.status = 'PROCESSING' AND r.locked_until > statement_timestamp(), false) AS live,
    coalesce(r.locked_until <= statement_timestamp(), false) AS lapsed
