-- Records of idempotency keys. Copy this into your own migrations, or let the store apply it.
--
-- All moments are integers: milliseconds since the Unix epoch by this machine's clock, read inside
-- SQLite with CAST(round(unixepoch('subsec') * 1000) AS INTEGER).
--
-- Text is compared as bytes: SQLite's default collation, BINARY, does so.
--
-- The table has a rowid because answers can be large: a table without one keeps whole rows in the
-- tree of the primary key, where every comparison would have to pass over them.
--
-- The checks bound what is written. They do not list the known values of status and format,
-- because SQLite cannot change a check: a release that adds one must not need a new table.
CREATE TABLE IF NOT EXISTS idempotency_records (
    -- Who owns the key, such as tenant:user.
    scope            TEXT    NOT NULL CHECK (length(CAST(scope AS BLOB)) <= 128),
    -- The Idempotency-Key.
    idempotency_key  TEXT    NOT NULL CHECK (length(CAST(idempotency_key AS BLOB)) <= 255),
    -- Method and normalised path, such as POST /api/v1/orders.
    request_path     TEXT    NOT NULL CHECK (length(CAST(request_path AS BLOB)) <= 255),
    -- Fingerprint of the request: 64 hexadecimal digits.
    request_hash     TEXT    NOT NULL CHECK (length(CAST(request_hash AS BLOB)) <= 64),
    -- PROCESSING, COMPLETED (answered below 400) or FAILED (400 and above).
    status           TEXT    NOT NULL CHECK (length(CAST(status AS BLOB)) <= 32),
    -- HTTP status of the answer; null while the request runs.
    response_code    INTEGER,
    -- Header fields of the answer: for each the length and bytes of name and value, lengths as
    -- 32-bit big-endian numbers. Null in a finished record: the answer was not retained.
    response_headers BLOB,
    -- Body of the answer, byte for byte. Null: the answer has no body at all.
    response_body    BLOB,
    -- The first claim.
    created_at       INTEGER NOT NULL,
    -- End of the lease: until then the owner is believed to be alive.
    locked_until     INTEGER NOT NULL,
    -- When the answer was kept; null while the request runs.
    completed_at     INTEGER,
    -- End of the TTL, which counts from the first claim. After it the record is as if it were not
    -- there, unless its lease still runs.
    expires_at       INTEGER NOT NULL,
    -- Fencing token: the 16 bytes of a UUID, new for every claim. Read it with hex(owner).
    owner            BLOB    NOT NULL CHECK (length(owner) = 16),
    -- How many times the operation was started.
    attempt          INTEGER NOT NULL,
    -- Route pattern and handler, such as POST /api/v1/orders shop::create_order.
    route            TEXT    NOT NULL CHECK (length(CAST(route AS BLOB)) <= 255),
    -- Version of the fingerprint and of the encoding of the answer.
    format           INTEGER NOT NULL,
    -- Results of durable steps of a running request.
    steps            BLOB,
    -- What decides every race.
    PRIMARY KEY (scope, idempotency_key, request_path)
) STRICT;

-- For removing what has expired.
CREATE INDEX IF NOT EXISTS idempotency_records_expires_at
    ON idempotency_records (expires_at);

-- For finding what was abandoned; few records run at a time, so it is small.
CREATE INDEX IF NOT EXISTS idempotency_records_abandoned
    ON idempotency_records (locked_until)
    WHERE status = 'PROCESSING';
