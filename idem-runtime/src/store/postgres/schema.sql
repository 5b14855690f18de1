-- The table of idempotency records, for PostgreSQL 13 and later. Schema version 1.
--
-- PostgresStore::migrate applies this file. To keep it among your own migrations, copy it and switch
-- the store's migration off; a larger table may be partitioned, see schema_partitioned.sql.
--
-- Text that identifies a record is compared as bytes (COLLATE "C"): whatever the database's own
-- collation holds for equal, `Alice` and `alice` are two users and `AbC1` and `aBc1` two keys.
-- All times are timestamptz, written and compared by the server's clock: no session time zone and
-- no client's clock has a say.

CREATE TABLE IF NOT EXISTS "idempotency_records" (
    -- Who owns the key: a registered scope with its resolved components, escaped.
    scope            varchar(128) COLLATE "C" NOT NULL,
    -- The client's key: a secret of its owner.
    idempotency_key  varchar(255) COLLATE "C" NOT NULL,
    -- Method and normalised path, such as `POST /api/v1/orders`.
    request_path     varchar(255) COLLATE "C" NOT NULL,
    -- Fingerprint of the request: SHA-256 in hexadecimal digits.
    request_hash     char(64)     COLLATE "C" NOT NULL,
    -- PROCESSING, COMPLETED (answered below 400) or FAILED (400 and above).
    status           varchar(32)  COLLATE "C" NOT NULL,
    -- HTTP status of the answer.
    response_code    integer,
    -- Header fields in order, encoded. NULL in a finished record: a tombstone, the answer was sent
    -- but is not kept.
    response_headers bytea,
    -- The answer's bytes as they were sent; a replay is the same byte for byte.
    response_body    bytea,
    -- The first claim.
    created_at       timestamptz  NOT NULL,
    -- End of the lease of a running record.
    locked_until     timestamptz  NOT NULL,
    completed_at     timestamptz,
    -- End of the record's life: from here on it is as if it were not there, removed or not.
    expires_at       timestamptz  NOT NULL,
    -- Fencing token of the latest owner, new at every claim.
    owner            uuid         NOT NULL,
    -- How many times the operation has been started.
    attempt          integer      NOT NULL,
    -- Route pattern and handler, for the reconciler and the operator.
    route            varchar(255) COLLATE "C" NOT NULL,
    -- Version of the fingerprint and of the encoding of the answer.
    format           smallint     NOT NULL,
    -- Results of durable steps of a running operation.
    steps            bytea,
    -- Whether another request waits for the outcome: settling the record then sends a notification.
    awaited          boolean      NOT NULL DEFAULT false,
    -- What decides the race of two requests. No other constraint: the table can be partitioned or
    -- distributed by its first column.
    PRIMARY KEY (scope, idempotency_key, request_path)
);

-- For the reconciler: running records by the end of their lease. Finished ones are not in it.
CREATE INDEX IF NOT EXISTS "idempotency_records_running"
    ON "idempotency_records" (locked_until) WHERE status = 'PROCESSING';

-- For removing expired records batch by batch.
CREATE INDEX IF NOT EXISTS "idempotency_records_expires_at"
    ON "idempotency_records" (expires_at);

-- The store reads the schema's version here.
COMMENT ON TABLE "idempotency_records" IS 'Idempotency records of idem-runtime, schema 1';
