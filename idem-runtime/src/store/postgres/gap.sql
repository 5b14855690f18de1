-- How long the transaction has been running when this statement begins, in microseconds: next to
-- nothing, if the statement is a transaction of its own.
    floor(extract(epoch FROM statement_timestamp() - now()) * 1000000)::bigint AS gap
