//! A statement, and what comes of sending it.

use super::connect::Guard;
use crate::{record::RecordId, store::sql::TableName};
use futures_util::TryStreamExt as _;
use sqlx::{AssertSqlSafe, Either, Executor as _, MySqlConnection, mysql::MySqlRow, query::Query};
use std::{borrow::Cow, pin::pin, sync::Arc};

/// One statement, composed once for the store's table.
#[derive(Debug, Clone)]
pub(super) struct Statement {
    /// What an error says was being done.
    pub(super) doing: &'static str,
    text: Arc<str>,
}

/// A statement of which one part is as long as the call's list.
#[derive(Debug, Clone)]
pub(super) struct Template(Statement);

/// A value of a statement. Text goes as bytes, like the columns it is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Bytes(Option<&'a [u8]>),
    Int(i64),
}

impl<'a> Value<'a> {
    pub(super) fn text(text: &'a str) -> Self {
        Value::Bytes(Some(text.as_bytes()))
    }
}

/// What the server answered.
#[derive(Debug, Default)]
pub(super) struct Answered {
    pub(super) rows: Vec<MySqlRow>,
    /// Rows that a write found and changed.
    pub(super) written: u64,
}

/// A statement on its way: a text and whether the connection keeps it prepared.
#[derive(Debug, Clone)]
pub(super) struct Sendable<'a> {
    pub(super) doing: &'static str,
    text: Cow<'a, Arc<str>>,
    persistent: bool,
}

impl Statement {
    pub(super) fn new(doing: &'static str, sql: &str, table: &TableName, guard: Guard) -> Self {
        let record = TableName::default().compose(include_str!("record.sql"), '`');
        let text = table
            .compose(sql, '`')
            .replace("{record}", &record)
            .replace("{alone}", guard.condition())
            .replace("{processing}", guard.processing());
        Self {
            doing,
            text: text.into(),
        }
    }

    pub(super) fn sendable(&self) -> Sendable<'_> {
        Sendable {
            doing: self.doing,
            text: Cow::Borrowed(&self.text),
            persistent: true,
        }
    }
}

impl Template {
    pub(super) fn new(doing: &'static str, sql: &str, table: &TableName, guard: Guard) -> Self {
        Self(Statement::new(doing, sql, table, guard))
    }

    /// The statement with a table of `rows` rows of these columns (name and type) for `{wanted}`.
    pub(super) fn wanting(&self, columns: &[(&str, &str)], rows: usize) -> Sendable<'static> {
        let first: Vec<_> = columns
            .iter()
            .map(|(name, kind)| format!("CAST(? AS {kind}) AS {name}"))
            .collect();
        let other: Vec<_> = columns
            .iter()
            .map(|(_, kind)| format!("CAST(? AS {kind})"))
            .collect();
        let other = format!(" UNION ALL SELECT {}", other.join(", "));
        let table = format!(
            "SELECT {}{}",
            first.join(", "),
            other.repeat(rows.saturating_sub(1))
        );
        self.fill("{wanted}", &table)
    }

    /// The statement with a list of `items` parameters for `{handlers}`.
    pub(super) fn listing(&self, items: usize) -> Sendable<'static> {
        self.fill("{handlers}", &vec!["?"; items].join(", "))
    }

    fn fill(&self, place: &str, sql: &str) -> Sendable<'static> {
        Sendable {
            doing: self.0.doing,
            text: Cow::Owned(self.0.text.replace(place, sql).into()),
            // Each length is another text: not worth a place among the connection's statements.
            persistent: false,
        }
    }
}

/// The columns of a record's identity, for [`Template::wanting`].
pub(super) const IDENTITY: [(&str, &str); 3] = [
    ("scope", "BINARY"),
    ("idempotency_key", "BINARY"),
    ("request_path", "BINARY"),
];

pub(super) fn identity(id: &RecordId) -> [Value<'_>; 3] {
    [
        Value::text(id.scope()),
        Value::text(id.key()),
        Value::text(id.request_path()),
    ]
}

impl Sendable<'_> {
    pub(super) async fn send(
        &self,
        connection: &mut MySqlConnection,
        values: &[Value<'_>],
    ) -> Result<Answered, sqlx::Error> {
        // The text is composed of this crate's own files, a checked table name and question marks;
        // all values are bound.
        let text = AssertSqlSafe(Arc::clone(&self.text));
        let query = sqlx::query(text).persistent(self.persistent);
        let query = values.iter().fold(query, bind);
        let mut answered = Answered::default();
        let mut answers = pin!(connection.fetch_many(query));
        while let Some(answer) = answers.try_next().await? {
            match answer {
                Either::Left(done) => answered.written += done.rows_affected(),
                Either::Right(row) => answered.rows.push(row),
            }
        }
        Ok(answered)
    }
}

type MySqlQuery<'q> = Query<'q, sqlx::MySql, sqlx::mysql::MySqlArguments>;

fn bind<'q>(query: MySqlQuery<'q>, value: &Value<'q>) -> MySqlQuery<'q> {
    match *value {
        Value::Bytes(bytes) => query.bind(bytes),
        Value::Int(int) => query.bind(int),
    }
}
