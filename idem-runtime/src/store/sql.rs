//! What the stores on a database server have in common: the table's name, the connection a call
//! runs on, and how often a call is tried again.

mod pool;
mod session;

pub(super) use pool::{Checkout, Connections, OwnPool, own_pool_methods, reach};
#[cfg(feature = "postgres")]
pub(super) use pool::{REACHED_WITHIN, silent};
pub(super) use session::Session;

use super::{Claim, StoreError};
use crate::record::{
    MAX_REQUEST_PATH, MAX_SCOPE, Record, RecordId, Row, State, StoreTime, Unreadable,
};
use bytes::Bytes;
use std::time::Duration;
use uuid::Uuid;

/// The table as the `.sql` files name it.
pub(super) const DEFAULT_TABLE: &str = "idempotency_records";

/// The newest version of the schema that this release knows, and the one it creates.
pub(super) const SCHEMA_VERSION: u32 = 1;

/// Longest identifier taken, so that the names of indexes derived from it fit into the 63 bytes of
/// PostgreSQL's identifiers.
const MAX_IDENTIFIER: usize = 40;

/// Longest key, in bytes.
const MAX_KEY: usize = 255;

/// How often one call is tried: what makes it try again (a deadlock, a serialization failure, two
/// claims in the same instant, a connection left in a bad state) is over in milliseconds.
pub(super) const TRIES: u32 = 12;

/// A checked table name with an optional schema in front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableName {
    schema: Option<String>,
    table: String,
}

impl Default for TableName {
    fn default() -> Self {
        Self {
            schema: None,
            table: DEFAULT_TABLE.to_owned(),
        }
    }
}

impl TableName {
    /// Takes `table` or `schema.table`: ASCII letters, digits and underscores, not beginning with a
    /// digit. Nothing that would need escaping gets into a statement.
    pub(super) fn parse(name: &str) -> Result<Self, StoreError> {
        let valid = |part: &str| {
            !part.is_empty()
                && part.len() <= MAX_IDENTIFIER
                && !part.starts_with(|first: char| first.is_ascii_digit())
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let (schema, table) = match name.split_once('.') {
            Some((schema, table)) => (Some(schema), table),
            None => (None, name),
        };
        if !valid(table) || !schema.is_none_or(valid) {
            return Err(refused(format!(
                "`{name}` is not a table name that can be used: write `table` or `schema.table`, \
                 each of ASCII letters, digits and underscores, not beginning with a digit, at most \
                 {MAX_IDENTIFIER} bytes long"
            )));
        }
        Ok(Self {
            schema: schema.map(str::to_owned),
            table: table.to_owned(),
        })
    }

    pub(super) fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    pub(super) fn table(&self) -> &str {
        &self.table
    }

    /// The name as it is written in a statement.
    pub(super) fn quoted(&self, quote: char) -> String {
        match &self.schema {
            Some(schema) => format!("{quote}{schema}{quote}.{quote}{}{quote}", self.table),
            None => format!("{quote}{}{quote}", self.table),
        }
    }

    /// Puts the name into the text of an `.sql` file, in place of the default one, also where an
    /// index or a partition is named after it. Comment lines are left out.
    pub(super) fn compose(&self, sql: &str, quote: char) -> String {
        sql.lines()
            .filter(|line| !line.trim_start().starts_with("--") && !line.trim().is_empty())
            .collect::<Vec<_>>()
            .join("\n")
            .replace(
                &format!("{quote}{DEFAULT_TABLE}{quote}"),
                &self.quoted(quote),
            )
            .replace(
                &format!("{quote}{DEFAULT_TABLE}_"),
                &format!("{quote}{}_", self.table),
            )
    }
}

/// What a schema's version marker says: the number after the word `schema`. A table without one was
/// made by hand from the first version of the schema.
pub(super) fn schema_version(marker: Option<&str>) -> u32 {
    marker
        .and_then(|marker| marker.rsplit_once("schema "))
        .and_then(|(_, version)| version.trim().parse().ok())
        .unwrap_or(1)
}

/// The error for a table of a later release.
pub(super) fn newer_schema(table: &TableName, version: u32) -> StoreError {
    refused(format!(
        "the table {} has schema {version}, and this release of idem-runtime knows only up to \
         {SCHEMA_VERSION}: upgrade this program, or give it another table",
        table.quoted('`')
    ))
}

/// The error for a missing table that is not to be created.
pub(super) fn no_table(table: &TableName) -> StoreError {
    refused(format!(
        "the table {} does not exist: let the store migrate, or apply its schema.sql",
        table.quoted('`')
    ))
}

/// An error of the store's own, without a driver's behind it.
pub(super) fn refused(context: impl Into<String>) -> StoreError {
    StoreError::Unavailable {
        context: context.into(),
        source: None,
    }
}

/// Refuses an identity that the columns cannot hold. The engine has bounded it; a server that is
/// not in strict mode would cut it short silently, and make two keys one.
pub(super) fn check(id: &RecordId) -> Result<(), StoreError> {
    let fits = id.scope().len() <= MAX_SCOPE
        && id.key().len() <= MAX_KEY
        && id.request_path().len() <= MAX_REQUEST_PATH;
    if fits {
        Ok(())
    } else {
        Err(refused(format!(
            "the identity of record {} is longer than its columns",
            id.digest()
        )))
    }
}

/// Waits before the next try: a little longer each time and never twice the same, so that two
/// callers that got into each other's way do not do so again.
pub(super) async fn pause(attempt: u32) {
    if attempt > 0 {
        let jitter = u64::from(Uuid::new_v4().as_bytes()[0]) % 8;
        let millis = (1_u64 << attempt.min(6)) + jitter;
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
}

/// Whether the server itself has answered: the connection is then at the end of a statement.
pub(super) fn is_answer(error: &sqlx::Error) -> bool {
    matches!(
        error,
        sqlx::Error::Database(_)
            | sqlx::Error::RowNotFound
            | sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::Decode(_)
    )
}

/// A record as it was read, columns that no release leaves empty included: a table can be altered
/// by hand.
#[derive(Debug, Default)]
pub(super) struct RawRow {
    pub(super) request_hash: Option<String>,
    pub(super) status: Option<String>,
    pub(super) response_code: Option<i32>,
    pub(super) response_headers: Option<Vec<u8>>,
    pub(super) response_body: Option<Vec<u8>>,
    pub(super) created_at: Option<i64>,
    pub(super) locked_until: Option<i64>,
    pub(super) completed_at: Option<i64>,
    pub(super) expires_at: Option<i64>,
    pub(super) owner: Option<Uuid>,
    pub(super) attempt: Option<i32>,
    pub(super) route: Option<String>,
    pub(super) format: Option<i16>,
    pub(super) steps: Option<Vec<u8>>,
    pub(super) now: Option<i64>,
}

impl RawRow {
    pub(super) fn decode(self, id: RecordId) -> Result<Record, Unreadable> {
        let digest = id.digest();
        let row = self
            .fill()
            .map_err(|column| unreadable(digest, &format!("its {column} is empty")))?;
        Record::decode(id, row)
    }

    fn fill(self) -> Result<Row, &'static str> {
        Ok(Row {
            format: self.format.ok_or("format")?,
            status: self.status.ok_or("status")?,
            request_hash: self.request_hash.ok_or("request_hash")?,
            response_code: self.response_code,
            response_headers: self.response_headers,
            response_body: self.response_body.map(Bytes::from),
            created_at: self.created_at.map(StoreTime).ok_or("created_at")?,
            locked_until: self.locked_until.map(StoreTime).ok_or("locked_until")?,
            completed_at: self.completed_at.map(StoreTime),
            expires_at: self.expires_at.map(StoreTime).ok_or("expires_at")?,
            owner: self.owner.ok_or("owner")?,
            attempt: self.attempt.ok_or("attempt")?,
            route: self.route.ok_or("route")?,
            steps: self.steps.map(Bytes::from),
            now: self.now.map(StoreTime).ok_or("clock")?,
        })
    }
}

/// The record that a transactional claim finds, if it is to be left standing: all but one that was
/// abandoned. What a transactional route has left behind is running only if it was claimed without a
/// transaction, such as by an earlier release of the program; then the rule of
/// [`Takeover::Abandoned`](super::Takeover::Abandoned) holds.
pub(super) fn stands(claim: &Claim, record: &Record) -> bool {
    match record.state {
        State::Running { locked_until } => {
            locked_until > record.now || !claim.accepts(&record.fingerprint)
        }
        State::Finished { .. } => true,
    }
}

pub(super) fn unreadable(record: String, reason: &str) -> Unreadable {
    Unreadable {
        record,
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_table_name_holds_nothing_that_needs_escaping() {
        for name in ["idem", "app.idem", "_x1", "App.Records"] {
            TableName::parse(name).unwrap();
        }
        for name in [
            "",
            ".",
            "a.",
            ".a",
            "a.b.c",
            "1a",
            "a b",
            "a\"b",
            "a`b",
            "a;drop",
            "é",
            &"a".repeat(41),
        ] {
            TableName::parse(name).unwrap_err();
        }
    }

    #[test]
    fn the_name_goes_into_the_statements_and_the_names_of_indexes() {
        let table = TableName::parse("app.idem").unwrap();
        let sql = "-- comment\nCREATE INDEX \"idempotency_records_expires_at\"\n  -- why\n\nON \"idempotency_records\" (x)";
        assert_eq!(
            table.compose(sql, '"'),
            "CREATE INDEX \"idem_expires_at\"\nON \"app\".\"idem\" (x)"
        );
    }

    #[test]
    fn the_marker_tells_the_version() {
        assert_eq!(
            schema_version(Some("Idempotency records of idem-runtime, schema 7")),
            7
        );
        assert_eq!(schema_version(Some("somebody's note")), 1);
        assert_eq!(schema_version(None), 1);
    }

    #[test]
    fn an_identity_that_would_be_cut_short_is_refused() {
        check(&RecordId::new(
            "s".repeat(128),
            "k".repeat(255),
            "p".repeat(255),
        ))
        .unwrap();
        check(&RecordId::new("s".repeat(129), "k", "p")).unwrap_err();
        check(&RecordId::new("s", "k".repeat(256), "p")).unwrap_err();
        check(&RecordId::new("s", "k", "é".repeat(128))).unwrap_err();
    }
}
