//! Records as they stand in the table.

use crate::record::{Record, RecordId, Row, StoreTime, Unreadable};
use bytes::Bytes;
use sqlx::{Decode, Row as _, Sqlite, Type, sqlite::SqliteRow};
use uuid::Uuid;

/// The identity that a row shows.
pub(super) fn id(row: &SqliteRow) -> Result<RecordId, sqlx::Error> {
    Ok(RecordId::new(
        row.try_get::<String, _>("scope")?,
        row.try_get::<String, _>("idempotency_key")?,
        row.try_get::<String, _>("request_path")?,
    ))
}

/// Understands a row of all columns, with the clock as `now`.
///
/// A column of a type that is never written there makes the record unreadable, as any other
/// nonsense in it does, and is no trouble of the connection's.
pub(super) fn record(id: RecordId, row: &SqliteRow) -> Result<Record, Unreadable> {
    let columns = Columns { id: &id, row };
    let owner: Vec<u8> = columns.get("owner")?;
    let owner = Uuid::from_slice(&owner)
        .map_err(|_| columns.unreadable("its owner is not 16 bytes".to_owned()))?;
    let row = Row {
        request_hash: columns.get("request_hash")?,
        status: columns.get("status")?,
        response_code: columns.get("response_code")?,
        response_headers: columns.get("response_headers")?,
        response_body: columns.bytes("response_body")?,
        created_at: columns.time("created_at")?,
        locked_until: columns.time("locked_until")?,
        completed_at: columns.get::<Option<i64>>("completed_at")?.map(StoreTime),
        expires_at: columns.time("expires_at")?,
        owner,
        attempt: columns.get("attempt")?,
        route: columns.get("route")?,
        // A number that does not even fit is as unknown as any other format.
        format: i16::try_from(columns.get::<i64>("format")?).unwrap_or(i16::MAX),
        steps: columns.bytes("steps")?,
        now: columns.time("now")?,
    };
    Record::decode(id, row)
}

struct Columns<'r> {
    id: &'r RecordId,
    row: &'r SqliteRow,
}

impl<'r> Columns<'r> {
    fn get<T: Decode<'r, Sqlite> + Type<Sqlite>>(&self, name: &str) -> Result<T, Unreadable> {
        self.row
            .try_get(name)
            .map_err(|error| self.unreadable(format!("its {name} has the wrong type: {error}")))
    }

    fn bytes(&self, name: &str) -> Result<Option<Bytes>, Unreadable> {
        Ok(self.get::<Option<Vec<u8>>>(name)?.map(Bytes::from))
    }

    fn time(&self, name: &str) -> Result<StoreTime, Unreadable> {
        Ok(StoreTime(self.get(name)?))
    }

    fn unreadable(&self, reason: String) -> Unreadable {
        Unreadable {
            record: self.id.digest(),
            reason,
        }
    }
}
