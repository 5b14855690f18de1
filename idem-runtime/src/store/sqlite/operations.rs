//! What each call does on a connection.

use super::{
    job::{Operation, Trouble},
    row,
};
use crate::{
    record::{Answer, FORMAT, Record, RecordId, State, Status, StoreTime, millis},
    store::{
        AbandonedQuery, Claim, Claimed, ListQuery, Renewal, Renewed, StoreError, Takeover, Which,
    },
};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::TryStreamExt;
use sqlx::{
    AssertSqlSafe, Row, SqlSafeStr, Sqlite, SqliteConnection,
    query::Query,
    sqlite::{SqliteArguments, SqliteRow},
};
use uuid::Uuid;

type Statement<'q> = Query<'q, Sqlite, SqliteArguments>;

/// A statement whose first three parameters are the identity.
fn on<'q>(sql: impl SqlSafeStr, id: &RecordId) -> Statement<'q> {
    sqlx::query(sql)
        .bind(id.scope().to_owned())
        .bind(id.key().to_owned())
        .bind(id.request_path().to_owned())
}

/// The same with the owner as the fourth.
fn owned<'q>(sql: &'static str, id: &RecordId, owner: Uuid) -> Statement<'q> {
    on(sql, id).bind(owner.as_bytes().to_vec())
}

/// The result of a statement that changes the one record it names, or none.
async fn if_owned(
    statement: Statement<'_>,
    connection: &mut SqliteConnection,
) -> Result<(), Trouble> {
    if statement.execute(connection).await?.rows_affected() == 0 {
        return Err(StoreError::LeaseLost.into());
    }
    Ok(())
}

/// Applies the schema.
pub(super) struct Migrate;

#[async_trait]
impl Operation for Migrate {
    type Output = ();
    const CONTEXT: &'static str = "applying the schema";

    async fn carry_out(&self, connection: &mut SqliteConnection) -> Result<(), Trouble> {
        sqlx::raw_sql(super::SqliteStore::SCHEMA)
            .execute(connection)
            .await?;
        Ok(())
    }
}

const READ: &str = include_str!("read.sql");

/// What a claim has to be answered because of what stands there, if anything does that bars it.
fn verdict(claim: &Claim, row: &SqliteRow) -> Result<Option<Claimed>, Trouble> {
    if !row.try_get::<bool, _>("live")? {
        return Ok(None);
    }
    let record = row::record(claim.id.clone(), row)?;
    if let State::Running { locked_until } = record.state {
        if record.owner == claim.owner {
            return Ok(Some(Claimed::Won {
                attempt: record.attempt,
                steps: record.steps,
            }));
        }
        if claim.takeover == Takeover::Abandoned
            && locked_until <= record.now
            && record.expires_at > record.now
            && claim.accepts(&record.fingerprint)
        {
            return Ok(None);
        }
    }
    Ok(Some(Claimed::Standing(Box::new(record))))
}

/// Looks whether a claim is barred by what stands there.
pub(super) struct Look(pub(super) Claim);

#[async_trait]
impl Operation for Look {
    type Output = Option<Claimed>;
    const CONTEXT: &'static str = "claiming a key";
    const FOR_THE_CALLER_ALONE: bool = true;

    async fn carry_out(
        &self,
        connection: &mut SqliteConnection,
    ) -> Result<Option<Claimed>, Trouble> {
        match on(READ, &self.0.id).fetch_optional(connection).await? {
            Some(row) => verdict(&self.0, &row),
            None => Ok(None),
        }
    }
}

/// Takes a key, in a transaction that has the write lock.
pub(super) struct Take(pub(super) Claim);

#[async_trait]
impl Operation for Take {
    type Output = Claimed;
    const CONTEXT: &'static str = "claiming a key";
    const FOR_THE_CALLER_ALONE: bool = true;

    async fn carry_out(&self, connection: &mut SqliteConnection) -> Result<Claimed, Trouble> {
        let claim = &self.0;
        let owner = claim.owner.as_bytes().to_vec();
        // Nobody comes in between, but the clock goes on: a record may end after the first
        // statement has found it live and before the last one reads it. Then once more.
        loop {
            let won = on(include_str!("claim.sql"), &claim.id)
                .bind(claim.fingerprint.clone())
                .bind(claim.route.clone())
                .bind(owner.clone())
                .bind(FORMAT)
                .bind(millis(claim.lease))
                .bind(millis(claim.ttl))
                .fetch_optional(&mut *connection)
                .await?;
            if won.is_some() {
                return Ok(Claimed::Won {
                    attempt: 1,
                    steps: None,
                });
            }
            if claim.takeover == Takeover::Abandoned {
                let taken = on(include_str!("take_over.sql"), &claim.id)
                    .bind(claim.fingerprint.clone())
                    .bind(owner.clone())
                    .bind(millis(claim.lease))
                    .bind(FORMAT)
                    .bind(claim.also_accepted.clone())
                    .fetch_optional(&mut *connection)
                    .await?;
                if let Some(row) = taken {
                    return Ok(Claimed::Won {
                        attempt: row.try_get("attempt")?,
                        steps: row.try_get::<Option<Vec<u8>>, _>("steps")?.map(Bytes::from),
                    });
                }
            }
            let standing = on(READ, &claim.id).fetch_optional(&mut *connection).await?;
            if let Some(row) = standing
                && let Some(claimed) = verdict(claim, &row)?
            {
                return Ok(claimed);
            }
        }
    }
}

/// Renews leases.
pub(super) struct Renew(pub(super) Vec<Renewal>);

#[async_trait]
impl Operation for Renew {
    type Output = Vec<Renewed>;
    const CONTEXT: &'static str = "renewing leases";

    async fn carry_out(&self, connection: &mut SqliteConnection) -> Result<Vec<Renewed>, Trouble> {
        let mut answers = Vec::with_capacity(self.0.len());
        for renewal in &self.0 {
            let renewed = owned(include_str!("renew.sql"), &renewal.id, renewal.owner)
                .bind(millis(renewal.lease))
                .execute(&mut *connection)
                .await?;
            answers.push(if renewed.rows_affected() == 0 {
                Renewed::Lost
            } else {
                Renewed::Held
            });
        }
        Ok(answers)
    }
}

/// Finishes a record.
pub(super) struct Complete {
    pub(super) id: RecordId,
    pub(super) owner: Uuid,
    pub(super) answer: Answer,
}

#[async_trait]
impl Operation for Complete {
    type Output = ();
    const CONTEXT: &'static str = "completing a record";

    fn size(&self) -> usize {
        1024 + self.answer.body_column().map_or(0, <[u8]>::len)
    }

    async fn carry_out(&self, connection: &mut SqliteConnection) -> Result<(), Trouble> {
        let code = self.answer.code();
        let completed = owned(include_str!("complete.sql"), &self.id, self.owner)
            .bind(Status::of_response(code).as_str())
            .bind(i32::from(code))
            .bind(self.answer.headers_column())
            .bind(self.answer.body_column().map(<[u8]>::to_vec))
            .execute(&mut *connection)
            .await?;
        if completed.rows_affected() > 0 {
            return Ok(());
        }
        let before = owned(include_str!("is_completed.sql"), &self.id, self.owner)
            .fetch_optional(connection)
            .await?;
        if before.is_none() {
            return Err(StoreError::LeaseLost.into());
        }
        Ok(())
    }
}

/// Frees a key.
pub(super) struct Release {
    pub(super) id: RecordId,
    pub(super) owner: Uuid,
}

#[async_trait]
impl Operation for Release {
    type Output = ();
    const CONTEXT: &'static str = "releasing a key";

    async fn carry_out(&self, connection: &mut SqliteConnection) -> Result<(), Trouble> {
        let release = owned(include_str!("release.sql"), &self.id, self.owner);
        if_owned(release, connection).await
    }
}

/// Keeps the results of durable steps.
pub(super) struct SaveSteps {
    pub(super) id: RecordId,
    pub(super) owner: Uuid,
    pub(super) steps: Bytes,
}

#[async_trait]
impl Operation for SaveSteps {
    type Output = ();
    const CONTEXT: &'static str = "keeping the results of steps";

    fn size(&self) -> usize {
        1024 + self.steps.len()
    }

    async fn carry_out(&self, connection: &mut SqliteConnection) -> Result<(), Trouble> {
        let save = owned(include_str!("save_steps.sql"), &self.id, self.owner);
        if_owned(save.bind(self.steps.to_vec()), connection).await
    }
}

/// Takes abandoned records, in a transaction that has the write lock.
pub(super) struct TakeAbandoned(pub(super) AbandonedQuery);

#[async_trait]
impl Operation for TakeAbandoned {
    type Output = Vec<Record>;
    const CONTEXT: &'static str = "taking abandoned records";
    const FOR_THE_CALLER_ALONE: bool = true;

    async fn carry_out(&self, connection: &mut SqliteConnection) -> Result<Vec<Record>, Trouble> {
        let query = &self.0;
        let handlers = serde_json::Value::from(query.handlers.clone()).to_string();
        let mut found: Vec<(i64, Record)> = Vec::new();
        {
            let mut rows = sqlx::query(include_str!("abandoned.sql"))
                .bind(FORMAT)
                .bind(handlers)
                .fetch(&mut *connection);
            while found.len() < query.limit as usize {
                let Some(row) = rows.try_next().await? else {
                    break;
                };
                // Those that cannot be understood must not stand in the way of the others.
                if let Ok(record) = row::record(row::id(&row)?, &row) {
                    found.push((row.try_get("rowid")?, record));
                }
            }
        }
        let mut taken = Vec::with_capacity(found.len());
        for (rowid, mut record) in found {
            let row = sqlx::query(include_str!("take.sql"))
                .bind(rowid)
                .bind(query.owner.as_bytes().to_vec())
                .bind(millis(query.lease))
                .fetch_one(&mut *connection)
                .await?;
            record.owner = query.owner;
            record.state = State::Running {
                locked_until: StoreTime(row.try_get("locked_until")?),
            };
            // The clock went on since the record was read.
            record.now = StoreTime(row.try_get("now")?);
            taken.push(record);
        }
        Ok(taken)
    }
}

/// Removes expired records.
pub(super) struct Purge(pub(super) u32);

#[async_trait]
impl Operation for Purge {
    type Output = u64;
    const CONTEXT: &'static str = "purging expired records";

    async fn carry_out(&self, connection: &mut SqliteConnection) -> Result<u64, Trouble> {
        let purged = sqlx::query(include_str!("purge.sql"))
            .bind(self.0)
            .execute(connection)
            .await?;
        Ok(purged.rows_affected())
    }
}

/// Reads one record.
pub(super) struct Get(pub(super) RecordId);

#[async_trait]
impl Operation for Get {
    type Output = Option<Record>;
    const CONTEXT: &'static str = "reading a record";

    async fn carry_out(
        &self,
        connection: &mut SqliteConnection,
    ) -> Result<Option<Record>, Trouble> {
        let Some(row) = on(READ, &self.0).fetch_optional(connection).await? else {
            return Ok(None);
        };
        if !row.try_get::<bool, _>("live")? {
            return Ok(None);
        }
        Ok(Some(row::record(self.0.clone(), &row)?))
    }
}

/// Lists records.
pub(super) struct List(pub(super) ListQuery);

#[async_trait]
impl Operation for List {
    type Output = Vec<Record>;
    const CONTEXT: &'static str = "listing records";

    async fn carry_out(&self, connection: &mut SqliteConnection) -> Result<Vec<Record>, Trouble> {
        let limit = self.0.limit as usize;
        let which = match self.0.which {
            Which::All => "",
            Which::Abandoned => "AND status = 'PROCESSING' AND locked_until <= clock.now",
        };
        // Composed of nothing but this file's and the other's text.
        let statement = include_str!("list.sql").replace("{which}", which);
        let statement = AssertSqlSafe(statement).into_sql_str();
        let mut listed = Vec::new();
        let mut after = self.0.after.clone().unwrap_or(RecordId::new("", "", ""));
        // Those that cannot be understood are passed over, and the page is filled up: one that is
        // not full says that it is the last.
        while listed.len() < limit {
            let wanted = i64::from(self.0.limit) - listed.len() as i64;
            let rows = on(statement.clone(), &after)
                .bind(wanted)
                .fetch_all(&mut *connection)
                .await?;
            let is_last = (rows.len() as i64) < wanted;
            for row in &rows {
                after = row::id(row)?;
                listed.extend(row::record(after.clone(), row));
            }
            if is_last {
                break;
            }
        }
        Ok(listed)
    }
}

/// Removes one record.
pub(super) struct Forget(pub(super) RecordId);

#[async_trait]
impl Operation for Forget {
    type Output = bool;
    const CONTEXT: &'static str = "forgetting a record";

    async fn carry_out(&self, connection: &mut SqliteConnection) -> Result<bool, Trouble> {
        let removed = on(include_str!("forget.sql"), &self.0)
            .fetch_optional(connection)
            .await?;
        match removed {
            Some(row) => Ok(row.try_get("live")?),
            None => Ok(false),
        }
    }
}
