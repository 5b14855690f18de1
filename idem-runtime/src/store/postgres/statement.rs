//! A statement, and the two ways to send it.

use crate::store::sql::TableName;
use sqlx::{AssertSqlSafe, PgConnection, postgres::PgRow};
use std::{fmt::Write, sync::Arc};

/// One statement, composed once for the store's table.
#[derive(Debug, Clone)]
pub(super) struct Statement {
    /// What an error says was being done.
    pub(super) doing: &'static str,
    text: Arc<str>,
    /// The text cut at its parameters: what stands before each, and the parameter's number.
    parts: Vec<(String, usize)>,
    tail: String,
}

/// How statements are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    /// As named prepared statements that the server keeps for the connection: one round trip, no
    /// planning. They belong to one server connection.
    Prepared,
    /// Whole, values included, in one message of the simple protocol: nothing is kept on the server
    /// connection, and nothing is assumed of the one that the next message goes to. What a pooler in
    /// transaction mode needs: there, even an unnamed prepared statement may be parsed on one server
    /// connection and executed on another, where something else stands under its name.
    Inline,
}

/// A value of a statement.
#[derive(Debug, Clone)]
pub(super) enum Value<'a> {
    Text(&'a str),
    Bytes(Option<&'a [u8]>),
    Int(i64),
    Texts(Vec<&'a str>),
    Ints(Vec<i64>),
}

impl Statement {
    pub(super) fn new(doing: &'static str, sql: &str, table: &TableName) -> Self {
        let part = |sql| TableName::default().compose(sql, '"');
        let text = table
            .compose(sql, '"')
            .replace("{record}", &part(include_str!("record.sql")))
            .replace("{gap}", &part(include_str!("gap.sql")))
            .replace("{channel}", &format!("'{}'", channel(table)));
        let (parts, tail) = cut(&text);
        Self {
            doing,
            text: text.into(),
            parts,
            tail,
        }
    }

    pub(super) async fn run(
        &self,
        connection: &mut PgConnection,
        sending: Sending,
        values: &[Value<'_>],
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        // The text is composed of this crate's own files and a checked table name; values are bound
        // or, below, written as literals that cannot be left.
        match sending {
            Sending::Prepared => {
                let mut query = sqlx::query(AssertSqlSafe(self.text.clone()));
                for value in values {
                    query = match value {
                        Value::Text(text) => query.bind(*text),
                        Value::Bytes(bytes) => query.bind(*bytes),
                        Value::Int(int) => query.bind(*int),
                        Value::Texts(texts) => query.bind(texts),
                        Value::Ints(ints) => query.bind(ints),
                    };
                }
                query.fetch_all(connection).await
            }
            Sending::Inline => {
                sqlx::raw_sql(AssertSqlSafe(self.inline(values)))
                    .fetch_all(connection)
                    .await
            }
        }
    }

    fn inline(&self, values: &[Value<'_>]) -> String {
        let mut sql = String::with_capacity(self.text.len() + 512);
        for (before, parameter) in &self.parts {
            sql.push_str(before);
            match values.get(*parameter) {
                Some(value) => value.write(&mut sql),
                None => sql.push_str("NULL"),
            }
        }
        sql.push_str(&self.tail);
        sql
    }
}

/// The channel on which the settling of a table's records is told. An identifier of at most 63 bytes.
pub(super) fn channel(table: &TableName) -> String {
    format!("{}_settled", table.table())
}

/// Cuts a text at `$1`, `$2`, …
fn cut(text: &str) -> (Vec<(String, usize)>, String) {
    let mut parts = Vec::new();
    let mut before = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (head, tail) = rest.split_at(at);
        let digits = tail[1..]
            .bytes()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        before.push_str(head);
        match tail[1..1 + digits].parse::<usize>() {
            Ok(number) if number > 0 => parts.push((std::mem::take(&mut before), number - 1)),
            _ => before.push_str(&tail[..1 + digits]),
        }
        rest = &tail[1 + digits..];
    }
    before.push_str(rest);
    (parts, before)
}

impl Value<'_> {
    /// Writes the value as a literal. Anything but plain characters goes as hexadecimal digits,
    /// which mean the same under every setting of the server and cannot end the literal.
    fn write(&self, sql: &mut String) {
        match self {
            Value::Text(text) => write_text(sql, text),
            Value::Bytes(None) => sql.push_str("(NULL::bytea)"),
            Value::Bytes(Some(bytes)) => write_bytes(sql, bytes),
            Value::Int(int) => write_int(sql, *int),
            Value::Texts(texts) => write_array(sql, "text[]", texts, |sql, text| {
                write_text(sql, text);
            }),
            Value::Ints(ints) => write_array(sql, "bigint[]", ints, |sql, int| {
                write_int(sql, *int);
            }),
        }
    }
}

fn write_text(sql: &mut String, text: &str) {
    let plain =
        |byte: u8| (byte.is_ascii_graphic() || byte == b' ') && !matches!(byte, b'\'' | b'\\');
    if text.bytes().all(plain) {
        sql.push('\'');
        sql.push_str(text);
        sql.push_str("'::text");
    } else {
        sql.push_str("convert_from(");
        write_bytes(sql, text.as_bytes());
        sql.push_str(", 'UTF8')");
    }
}

fn write_bytes(sql: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    sql.reserve(bytes.len() * 2 + 16);
    sql.push_str("decode('");
    for byte in bytes {
        sql.push(char::from(DIGITS[usize::from(byte >> 4)]));
        sql.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    sql.push_str("', 'hex')");
}

fn write_int(sql: &mut String, int: i64) {
    // Writing to a string cannot fail.
    let _ = write!(sql, "({int}::bigint)");
}

fn write_array<T>(sql: &mut String, kind: &str, items: &[T], write: impl Fn(&mut String, &T)) {
    sql.push_str("(ARRAY[");
    for (n, item) in items.iter().enumerate() {
        if n > 0 {
            sql.push_str(", ");
        }
        write(sql, item);
    }
    sql.push_str("]::");
    sql.push_str(kind);
    sql.push(')');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_cannot_be_left() {
        let written = |text: &str| {
            let mut sql = String::new();
            Value::Text(text).write(&mut sql);
            sql
        };
        assert_eq!(written("user:7 $1"), "'user:7 $1'::text");
        for nasty in ["a'b", "a\\", "\n", "é", "\u{0}", "$1'; DROP TABLE x; --'"] {
            let sql = written(nasty);
            assert!(sql.starts_with("convert_from(decode('"), "{sql}");
            let hex = &sql["convert_from(decode('".len()..sql.len() - "', 'hex'), 'UTF8')".len()];
            assert!(hex.bytes().all(|byte| byte.is_ascii_hexdigit()), "{sql}");
        }
    }

    #[test]
    fn values_take_the_place_of_their_parameters_and_no_other() {
        let statement = Statement::new(
            "testing",
            "SELECT $2, '[^ ]*$', $1, $10, $2 FROM \"idempotency_records\"",
            &TableName::default(),
        );
        let mut values = vec![Value::Text("$2"), Value::Int(-5)];
        values.extend((0..8).map(Value::Int));
        assert_eq!(
            statement.inline(&values),
            "SELECT (-5::bigint), '[^ ]*$', '$2'::text, (7::bigint), (-5::bigint) \
             FROM \"idempotency_records\""
        );
    }
}
