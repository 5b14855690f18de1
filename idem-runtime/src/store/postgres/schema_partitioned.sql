-- The table of schema.sql, partitioned by hash of the scope: for PostgreSQL 13 and later. Schema version 1.
--
-- Apply it instead of schema.sql before the store connects for the first time; the store finds the
-- table and leaves it as it is. Choose the number of partitions before: each has indexes and a vacuum
-- of its own, and all records of a scope are in one. Columns and their meaning are those of schema.sql.
--
-- On Citus apply schema.sql and then
--     SELECT create_distributed_table('idempotency_records', 'scope');

CREATE TABLE IF NOT EXISTS "idempotency_records" (
    scope            varchar(128) COLLATE "C" NOT NULL,
    idempotency_key  varchar(255) COLLATE "C" NOT NULL,
    request_path     varchar(255) COLLATE "C" NOT NULL,
    request_hash     char(64)     COLLATE "C" NOT NULL,
    status           varchar(32)  COLLATE "C" NOT NULL,
    response_code    integer,
    response_headers bytea,
    response_body    bytea,
    created_at       timestamptz  NOT NULL,
    locked_until     timestamptz  NOT NULL,
    completed_at     timestamptz,
    expires_at       timestamptz  NOT NULL,
    owner            uuid         NOT NULL,
    attempt          integer      NOT NULL,
    route            varchar(255) COLLATE "C" NOT NULL,
    format           smallint     NOT NULL,
    steps            bytea,
    awaited          boolean      NOT NULL DEFAULT false,
    PRIMARY KEY (scope, idempotency_key, request_path)
) PARTITION BY HASH (scope);

CREATE TABLE IF NOT EXISTS "idempotency_records_p0" PARTITION OF "idempotency_records"
    FOR VALUES WITH (MODULUS 8, REMAINDER 0);
CREATE TABLE IF NOT EXISTS "idempotency_records_p1" PARTITION OF "idempotency_records"
    FOR VALUES WITH (MODULUS 8, REMAINDER 1);
CREATE TABLE IF NOT EXISTS "idempotency_records_p2" PARTITION OF "idempotency_records"
    FOR VALUES WITH (MODULUS 8, REMAINDER 2);
CREATE TABLE IF NOT EXISTS "idempotency_records_p3" PARTITION OF "idempotency_records"
    FOR VALUES WITH (MODULUS 8, REMAINDER 3);
CREATE TABLE IF NOT EXISTS "idempotency_records_p4" PARTITION OF "idempotency_records"
    FOR VALUES WITH (MODULUS 8, REMAINDER 4);
CREATE TABLE IF NOT EXISTS "idempotency_records_p5" PARTITION OF "idempotency_records"
    FOR VALUES WITH (MODULUS 8, REMAINDER 5);
CREATE TABLE IF NOT EXISTS "idempotency_records_p6" PARTITION OF "idempotency_records"
    FOR VALUES WITH (MODULUS 8, REMAINDER 6);
CREATE TABLE IF NOT EXISTS "idempotency_records_p7" PARTITION OF "idempotency_records"
    FOR VALUES WITH (MODULUS 8, REMAINDER 7);

-- For the reconciler: running records by the end of their lease. Finished ones are not in it.
CREATE INDEX IF NOT EXISTS "idempotency_records_running"
    ON "idempotency_records" (locked_until) WHERE status = 'PROCESSING';

-- For removing expired records batch by batch.
CREATE INDEX IF NOT EXISTS "idempotency_records_expires_at"
    ON "idempotency_records" (expires_at);

-- The store reads the schema's version here.
COMMENT ON TABLE "idempotency_records" IS 'Idempotency records of idem-runtime, schema 1';
