-- The table of idempotency records, for MySQL 8 and MariaDB 10.6 and later. Schema version 1.
--
-- MySqlStore::migrate applies this file. To keep it among your own migrations, copy it and switch
-- the store's migration off.
--
-- Text that identifies a record is VARBINARY: compared as bytes and without padding, so that `Alice`
-- and `alice` are two users and `k` and `k ` two keys, whatever the server's collation holds for equal.
-- All times are UTC by the server's clock in DATETIME(6), which no session's time zone touches (a
-- TIMESTAMP would pass through it on the way in and out).
--
-- One statement, which is atomic: no instance finds half a schema.

CREATE TABLE IF NOT EXISTS `idempotency_records` (
    -- Who owns the key: a registered scope with its resolved components, escaped.
    scope            VARBINARY(128) NOT NULL,
    -- The client's key: a secret of its owner.
    idempotency_key  VARBINARY(255) NOT NULL,
    -- Method and normalised path, such as `POST /api/v1/orders`.
    request_path     VARBINARY(255) NOT NULL,
    -- Fingerprint of the request: SHA-256 in hexadecimal digits.
    request_hash     CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    -- PROCESSING, COMPLETED (answered below 400) or FAILED (400 and above).
    status           VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    -- HTTP status of the answer.
    response_code    INT,
    -- Header fields in order, encoded. NULL in a finished record: a tombstone, the answer was sent
    -- but is not kept.
    response_headers LONGBLOB,
    -- The answer's bytes as they were sent; a replay is the same byte for byte. One answer has to
    -- fit into the server's max_allowed_packet.
    response_body    LONGBLOB,
    -- The first claim.
    created_at       DATETIME(6) NOT NULL,
    -- End of the lease of a running record.
    locked_until     DATETIME(6) NOT NULL,
    completed_at     DATETIME(6),
    -- End of the record's life: from here on it is as if it were not there, removed or not.
    expires_at       DATETIME(6) NOT NULL,
    -- Fencing token of the latest owner, new at every claim: a UUID, see BIN_TO_UUID (MySQL).
    owner            BINARY(16) NOT NULL,
    -- How many times the operation has been started.
    attempt          INT NOT NULL,
    -- Route pattern and handler, for the reconciler and the operator.
    route            VARBINARY(255) NOT NULL,
    -- Version of the fingerprint and of the encoding of the answer.
    format           SMALLINT NOT NULL,
    -- Results of durable steps of a running operation.
    steps            LONGBLOB,
    -- What decides the race of two requests.
    PRIMARY KEY (scope, idempotency_key, request_path),
    -- For the reconciler: running records by the end of their lease.
    KEY `idempotency_records_running` (status, locked_until),
    -- For removing expired records batch by batch.
    KEY `idempotency_records_expires_at` (expires_at)
) ENGINE = InnoDB
-- The store reads the schema's version here.
COMMENT = 'Idempotency records of idem-runtime, schema 1';
