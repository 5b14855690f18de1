//! Records in MySQL or MariaDB: any number of instances share one truth.

mod connect;
mod statement;
mod transaction;

pub use connect::MySqlStoreBuilder;

use super::{
    AbandonedQuery, Claim, Claimed, ListQuery, Renewal, Renewed, Store, StoreError, Takeover,
    Which,
    sql::{self, Checkout, Connections, RawRow, TRIES, TableName, check, pause, refused},
};
use crate::record::{Answer, FORMAT, Record, RecordId, Status, Unreadable, millis};
use async_trait::async_trait;
use bytes::Bytes;
use connect::Guard;
use sqlx::{
    MySql, MySqlConnection, MySqlPool, Row as _,
    mysql::{MySqlDatabaseError, MySqlRow},
};
use statement::{Answered, IDENTITY, Sendable, Statement, Template, Value, identity};
use std::{collections::HashSet, sync::Arc, time::Duration};
use uuid::Uuid;

/// Records that one statement names, so that neither its text nor its plan gets out of hand.
const BATCH: usize = 200;

/// How often a call waits for a row lock until the server gives up (50 s by default).
const LOCK_WAITS: u32 = 2;

/// A store in a database of MySQL (8.0 and later) or MariaDB (10.6 and later).
///
/// ```no_run
/// # async fn example(pool: sqlx::MySqlPool) -> Result<(), idem_runtime::store::StoreError> {
/// use idem_runtime::store::MySqlStore;
///
/// // Its own pool:
/// let store = MySqlStore::connect("mysql://app@localhost/app").await?;
/// // Or the pool that the application already has, and a prefixed table:
/// let store = MySqlStore::builder().table("app_idempotency").from_pool(pool).await?;
/// # Ok(())
/// # }
/// ```
///
/// Both create the table where it is missing, see [`MySqlStoreBuilder::migrate`].
///
/// **Statements.** Every write outside of a transactional route is one statement that commits by
/// itself; no session setting and no session lock is used there, and it works at any isolation
/// level of the pool. MySQL cannot report what stands in the way of an insert, so everything but a
/// first request takes one more read. On MySQL (not on MariaDB) and a pool of the application's, one
/// more statement before each write makes sure that no transaction was left open on the connection.
/// What InnoDB rolls back to resolve a deadlock is tried again.
///
/// **Login.** MySQL's default way of logging in, `caching_sha2_password`, needs TLS, a local socket,
/// or sqlx's feature `mysql-rsa`, which an application adds to its own dependency on sqlx.
///
/// **Dropped calls.** A connection whose call was dropped half-way is closed, not reused.
///
/// **Transactions.** A route with `transaction` on a `&mut MySqlConnection` claims inside its
/// transaction, at the isolation level of the pool. For as long as it runs, `autocommit` is off on
/// its connection, and the server ends it when its owner leaves it idle for longer than the route's
/// lease, in whole seconds (`idle_transaction_timeout` on MariaDB, `wait_timeout` on MySQL): the
/// request is answered with 503 `store-unavailable`, nothing of it is kept, and the key is free. A
/// handler that waits for something else for long needs a longer `lease`. The settings are what they
/// were when the connection goes back to the pool.
///
/// **Time.** All times are the server's, in UTC (`UTC_TIMESTAMP(6)`, `DATETIME(6)`): time zones and
/// the clocks of the instances have no say. A server that is promoted in a failover should be
/// synchronised to the one it replaces; whatever it lags behind prolongs leases by as much.
///
/// **Size.** An answer has to fit into the server's `max_allowed_packet` (16 MiB on MariaDB, 64 MiB
/// on MySQL, by default) together with the rest of its statement.
#[derive(Debug)]
pub struct MySqlStore {
    connections: Connections<MySql>,
    table: TableName,
    statements: Arc<Statements>,
    guard: Guard,
}

/// Of the records that are listed, those whose owner has died.
const ABANDONED: &str = "AND p.status = 'PROCESSING' AND p.locked_until <= UTC_TIMESTAMP(6)";

#[derive(Debug)]
struct Statements {
    claim: Statement,
    replace: Statement,
    take_over: Statement,
    renew: Template,
    held: Template,
    complete: Statement,
    completed_by: Statement,
    release: Statement,
    save_steps: Statement,
    abandoned: Template,
    take: Template,
    taken: Template,
    expired: Statement,
    purge: Template,
    get: Statement,
    list: Statement,
    list_abandoned: Statement,
    forget: Statement,
    table: Statement,
    inside: Inside,
}

/// Statements that are meant to run inside a transaction, and so do not guard against one.
#[derive(Debug)]
struct Inside {
    claim: Statement,
    replace: Statement,
    take_over: Statement,
    complete: Statement,
}

impl Inside {
    fn new(table: &TableName) -> Self {
        let statement = |doing, sql| Statement::new(doing, sql, table, Guard::Needless);
        let take_over = include_str!("take_over_in_transaction.sql");
        Self {
            claim: statement("claiming a key", include_str!("claim.sql")),
            replace: statement("replacing an expired record", include_str!("replace.sql")),
            take_over: statement("taking over a record", take_over),
            complete: statement("finishing a record", include_str!("complete.sql")),
        }
    }
}

impl Statements {
    fn new(table: &TableName, guard: Guard) -> Self {
        let statement = |doing, sql| Statement::new(doing, sql, table, guard);
        let template = |doing, sql| Template::new(doing, sql, table, guard);
        let list = |which| {
            let sql = include_str!("list.sql").replace("{which}", which);
            Statement::new("listing records", &sql, table, guard)
        };
        let abandoned = "taking abandoned records";
        let expired = "removing expired records";
        Self {
            claim: statement("claiming a key", include_str!("claim.sql")),
            replace: statement("replacing an expired record", include_str!("replace.sql")),
            take_over: statement("taking over a record", include_str!("take_over.sql")),
            renew: template("renewing leases", include_str!("renew.sql")),
            held: template("renewing leases", include_str!("held.sql")),
            complete: statement("finishing a record", include_str!("complete.sql")),
            completed_by: statement("finishing a record", include_str!("completed_by.sql")),
            release: statement("releasing a key", include_str!("release.sql")),
            save_steps: statement("keeping steps", include_str!("save_steps.sql")),
            abandoned: template(abandoned, include_str!("abandoned.sql")),
            take: template(abandoned, include_str!("take.sql")),
            taken: template(abandoned, include_str!("taken.sql")),
            expired: statement(expired, include_str!("expired.sql")),
            purge: template(expired, include_str!("purge.sql")),
            get: statement("reading a record", include_str!("get.sql")),
            list: list(""),
            list_abandoned: list(ABANDONED),
            forget: statement("forgetting a record", include_str!("forget.sql")),
            table: statement("looking for the table", include_str!("table.sql")),
            inside: Inside::new(table),
        }
    }
}

/// What has become of a statement.
enum Outcome {
    /// It was carried out.
    Done {
        answered: Answered,
        /// Whether an earlier try of the same call may have been carried out too: its connection
        /// was lost.
        repeated: bool,
    },
    /// A record with its primary key is there already; nothing was written.
    Duplicate,
}

/// What an error asks for.
enum Remedy {
    /// None: it is the answer to an insert.
    Duplicate,
    /// Another try: the server has rolled the statement back to resolve a conflict.
    Again,
    /// Another try, but not many: the server waited long for a row lock before it gave up.
    Waited,
    /// Another try on another connection, because this one is inside a transaction that somebody
    /// else has left open.
    InTransaction,
    /// Another try on another connection, because this one has lost its prepared statements.
    Elsewhere,
    /// Another try on another connection, because this one is lost; what was sent on it may have
    /// been carried out.
    Lost,
    /// None.
    Fail,
}

impl Remedy {
    fn of(error: &sqlx::Error, guard: Guard) -> Self {
        let number = match error {
            sqlx::Error::Io(_) => return Remedy::Lost,
            sqlx::Error::Database(error) => error
                .try_downcast_ref::<MySqlDatabaseError>()
                .map(MySqlDatabaseError::number),
            _ => None,
        };
        match number {
            // ER_DUP_ENTRY
            Some(1062) => Remedy::Duplicate,
            // ER_LOCK_DEADLOCK (also a lost certification in a cluster), ER_CHECKREAD ("record has
            // changed since last read"), ER_NEED_REPREPARE
            Some(1213 | 1020 | 1615) => Remedy::Again,
            // ER_LOCK_WAIT_TIMEOUT
            Some(1205) => Remedy::Waited,
            // ER_UNKNOWN_STMT_HANDLER: a proxy has changed servers.
            Some(1243) => Remedy::Elsewhere,
            Some(number) if guard.found_open_transaction(number) => Remedy::InTransaction,
            // ER_SERVER_SHUTDOWN, ER_CONNECTION_KILLED, ER_CLIENT_INTERACTION_TIMEOUT
            Some(1053 | 1927 | 4031) => Remedy::Lost,
            _ => Remedy::Fail,
        }
    }
}

impl MySqlStore {
    /// Connects to the database of a URL with a pool of the store's own, and migrates.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] if the URL cannot be understood, the server cannot be reached,
    /// or the table cannot be created or is of a later release.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::builder().connect(url).await
    }

    /// Uses the application's pool, and migrates.
    ///
    /// No call holds a connection for longer than its statement, so a pool of one is enough. A
    /// transactional route holds one for as long as its handler runs.
    ///
    /// # Errors
    ///
    /// As [`MySqlStore::connect`].
    pub async fn from_pool(pool: MySqlPool) -> Result<Self, StoreError> {
        Self::builder().from_pool(pool).await
    }

    /// Another table, migrations elsewhere, a pool of another size.
    pub fn builder() -> MySqlStoreBuilder {
        MySqlStoreBuilder::default()
    }

    /// The pool that the store uses.
    pub fn pool(&self) -> &MySqlPool {
        self.connections.pool()
    }

    /// Runs one statement, again where that helps.
    async fn run(
        &self,
        statement: Sendable<'_>,
        writes: bool,
        values: &[Value<'_>],
    ) -> Result<Outcome, StoreError> {
        let failed = |error: sqlx::Error| StoreError::unavailable(statement.doing, error);
        let mut repeated = false;
        let mut waits = 0;
        let mut last = None;
        for attempt in 0..TRIES {
            pause(attempt).await;
            let mut checkout = match Checkout::from(&self.connections).await {
                Ok(checkout) => checkout,
                // Lost while it was being opened: nothing was sent on it.
                Err(error @ sqlx::Error::Io(_)) => {
                    last = Some(error);
                    continue;
                }
                Err(error) => return Err(failed(error)),
            };
            let connection = checkout.connection().map_err(failed)?;
            let sent = self.send(connection, &statement, writes, values).await;
            let error = match sent {
                Ok(Some(answered)) => {
                    checkout.give_back();
                    return Ok(Outcome::Done { answered, repeated });
                }
                Ok(None) => {
                    warn_of_open_transaction();
                    continue;
                }
                Err(error) => error,
            };
            match Remedy::of(&error, self.guard) {
                Remedy::Duplicate => {
                    checkout.give_back();
                    return Ok(Outcome::Duplicate);
                }
                Remedy::Again => checkout.give_back(),
                Remedy::Waited if waits + 1 < LOCK_WAITS => {
                    waits += 1;
                    checkout.give_back();
                }
                Remedy::InTransaction => {
                    warn_of_open_transaction();
                    drop(checkout);
                }
                Remedy::Elsewhere => drop(checkout),
                Remedy::Lost => {
                    drop(checkout);
                    repeated = true;
                }
                Remedy::Waited | Remedy::Fail => {
                    if sql::is_answer(&error) {
                        checkout.give_back();
                    }
                    return Err(failed(error));
                }
            }
            last = Some(error);
        }
        Err(match last {
            Some(error) => failed(error),
            None => refused(statement.doing),
        })
    }

    /// Sends a statement; nothing comes back if a transaction that somebody else has left open on
    /// this connection was in the way.
    async fn send(
        &self,
        connection: &mut MySqlConnection,
        statement: &Sendable<'_>,
        writes: bool,
        values: &[Value<'_>],
    ) -> Result<Option<Answered>, sqlx::Error> {
        if writes {
            self.guard.before(connection).await?;
        }
        let answered = statement.send(connection, values).await?;
        if writes && answered.written == 0 && self.guard.is_inside(connection).await? {
            return Ok(None);
        }
        Ok(Some(answered))
    }

    async fn read(
        &self,
        statement: Sendable<'_>,
        values: &[Value<'_>],
    ) -> Result<Vec<MySqlRow>, StoreError> {
        match self.run(statement, false, values).await? {
            Outcome::Done { answered, .. } => Ok(answered.rows),
            Outcome::Duplicate => Ok(Vec::new()),
        }
    }

    /// Runs a write and says how many rows it has found.
    async fn write(
        &self,
        statement: Sendable<'_>,
        values: &[Value<'_>],
    ) -> Result<u64, StoreError> {
        match self.run(statement, true, values).await? {
            Outcome::Done { answered, .. } => Ok(answered.written),
            Outcome::Duplicate => Ok(0),
        }
    }

    /// What stands under an identity, live or not.
    async fn find(&self, id: &RecordId) -> Result<Option<MySqlRow>, StoreError> {
        let mut rows = self
            .read(self.statements.get.sendable(), &identity(id))
            .await?;
        Ok(rows.pop())
    }

    async fn list_page(
        &self,
        which: Which,
        after: &RecordId,
        limit: usize,
    ) -> Result<Vec<MySqlRow>, StoreError> {
        let statement = match which {
            Which::All => &self.statements.list,
            Which::Abandoned => &self.statements.list_abandoned,
        };
        let [scope, key, path] = identity(after);
        let limit = Value::Int(i64::try_from(limit).unwrap_or(i64::MAX));
        let values = [scope, scope, scope, key, scope, key, path, limit];
        self.read(statement.sendable(), &values).await
    }
}

#[async_trait]
impl Store for MySqlStore {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        check(&claim.id)?;
        let [scope, key, path] = identity(&claim.id);
        let hash = Value::text(&claim.fingerprint);
        let accepted = claim.also_accepted.as_ref().unwrap_or(&claim.fingerprint);
        let owner = Value::Bytes(Some(claim.owner.as_bytes()));
        let (lease, ttl) = (micros(claim.lease), micros(claim.ttl));
        let route = Value::text(&claim.route);
        let format = Value::Int(FORMAT.into());

        let mut insert = true;
        for attempt in 0..TRIES {
            pause(attempt).await;
            if insert {
                let values = [scope, key, path, hash, lease, ttl, owner, route, format];
                let statement = self.statements.claim.sendable();
                if let Outcome::Done { .. } = self.run(statement, true, &values).await? {
                    return Ok(won(1, None));
                }
            }
            // Nothing there any more: released or removed in between.
            insert = true;
            let Some(row) = self.find(&claim.id).await? else {
                continue;
            };
            if !flag(&row, "live") {
                let values = [hash, lease, ttl, owner, route, format, scope, key, path];
                let statement = self.statements.replace.sendable();
                if self.write(statement, &values).await? > 0 {
                    return Ok(won(1, None));
                }
                // Another caller was faster: look what stands there now.
                insert = false;
                continue;
            }
            let record = record(claim.id.clone(), &row)?;
            if !record.is_running() {
                return Ok(Claimed::Standing(Box::new(record)));
            }
            if record.owner == claim.owner {
                return Ok(won(record.attempt, record.steps));
            }
            let same = record.fingerprint == claim.fingerprint || record.fingerprint == *accepted;
            if claim.takeover != Takeover::Abandoned || !same || !flag(&row, "lapsed") {
                return Ok(Claimed::Standing(Box::new(record)));
            }
            let accepted = Value::text(accepted);
            let values = [owner, lease, scope, key, path, format, hash, accepted];
            self.write(self.statements.take_over.sendable(), &values)
                .await?;
            // Taken over by this claim or another: the read tells, and brings attempt and steps.
            insert = false;
        }
        Err(refused("claiming a key: it changes hands too fast to tell"))
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, StoreError> {
        const COLUMNS: [(&str, &str); 5] = [
            IDENTITY[0],
            IDENTITY[1],
            IDENTITY[2],
            ("owner", "BINARY"),
            ("lease", "SIGNED"),
        ];
        let mut answers = Vec::with_capacity(renewals.len());
        for batch in renewals.chunks(BATCH) {
            let values: Vec<Value<'_>> = batch
                .iter()
                .flat_map(|renewal| {
                    let [scope, key, path] = identity(&renewal.id);
                    let owner = Value::Bytes(Some(renewal.owner.as_bytes()));
                    [scope, key, path, owner, micros(renewal.lease)]
                })
                .collect();
            let statement = self.statements.renew.wanting(&COLUMNS, batch.len());
            let written = self.write(statement, &values).await?;
            if usize::try_from(written) == Ok(batch.len()) {
                answers.extend(batch.iter().map(|_| Renewed::Held));
                continue;
            }
            let statement = self.statements.held.wanting(&COLUMNS, batch.len());
            let rows = self.read(statement, &values).await?;
            let held: HashSet<(RecordId, Uuid)> = rows
                .iter()
                .filter_map(|row| Some((identity_of(row)?, owner_of(row)?)))
                .collect();
            answers.extend(batch.iter().map(|renewal| {
                match held.contains(&(renewal.id.clone(), renewal.owner)) {
                    true => Renewed::Held,
                    false => Renewed::Lost,
                }
            }));
        }
        Ok(answers)
    }

    async fn complete(
        &self,
        id: &RecordId,
        owner: Uuid,
        answer: &Answer,
    ) -> Result<(), StoreError> {
        let headers = answer.headers_column();
        let [scope, key, path] = identity(id);
        let owner = Value::Bytes(Some(owner.as_bytes()));
        let values = [
            Value::Int(answer.code().into()),
            Value::Bytes(headers.as_deref()),
            Value::Bytes(answer.body_column()),
            Value::text(Status::of_response(answer.code()).as_str()),
            scope,
            key,
            path,
            owner,
        ];
        let statement = self.statements.complete.sendable();
        if self.write(statement, &values).await? > 0 {
            return Ok(());
        }
        let statement = self.statements.completed_by.sendable();
        let finished = self.read(statement, &[scope, key, path, owner]).await?;
        match finished.is_empty() {
            true => Err(StoreError::LeaseLost),
            false => Ok(()),
        }
    }

    async fn release(&self, id: &RecordId, owner: Uuid) -> Result<(), StoreError> {
        let [scope, key, path] = identity(id);
        let values = [scope, key, path, Value::Bytes(Some(owner.as_bytes()))];
        let statement = self.statements.release.sendable();
        let Outcome::Done { answered, repeated } = self.run(statement, true, &values).await? else {
            return Err(StoreError::LeaseLost);
        };
        // The try whose connection was lost may have freed it: then nothing stands there.
        if answered.written > 0 || (repeated && self.find(id).await?.is_none()) {
            return Ok(());
        }
        Err(StoreError::LeaseLost)
    }

    async fn save_steps(
        &self,
        id: &RecordId,
        owner: Uuid,
        steps: &Bytes,
    ) -> Result<(), StoreError> {
        let [scope, key, path] = identity(id);
        let owner = Value::Bytes(Some(owner.as_bytes()));
        let values = [Value::Bytes(Some(steps)), scope, key, path, owner];
        let statement = self.statements.save_steps.sendable();
        match self.write(statement, &values).await? {
            0 => Err(StoreError::LeaseLost),
            _ => Ok(()),
        }
    }

    async fn take_abandoned(&self, query: &AbandonedQuery) -> Result<Vec<Record>, StoreError> {
        if query.handlers.is_empty() {
            return Ok(Vec::new());
        }
        let mut values = vec![Value::Int(FORMAT.into())];
        values.extend(query.handlers.iter().map(|handler| Value::text(handler)));
        values.push(Value::Int(query.limit.into()));
        let statement = self.statements.abandoned.listing(query.handlers.len());
        let rows = self.read(statement, &values).await?;
        let found: Vec<RecordId> = rows.iter().filter_map(identity_of).collect();

        let owner = Value::Bytes(Some(query.owner.as_bytes()));
        let mut taken = Vec::new();
        for batch in found.chunks(BATCH) {
            let mut values: Vec<Value<'_>> = batch.iter().flat_map(identity).collect();
            values.extend([owner, micros(query.lease)]);
            let statement = self.statements.take.wanting(&IDENTITY, batch.len());
            if self.write(statement, &values).await? == 0 {
                continue;
            }
            values.pop();
            let statement = self.statements.taken.wanting(&IDENTITY, batch.len());
            taken.extend(readable(&self.read(statement, &values).await?));
        }
        // In the order in which they were found: the oldest lease first.
        taken.sort_by_key(|record| found.iter().position(|id| *id == record.id));
        Ok(taken)
    }

    async fn purge_expired(&self, limit: u32) -> Result<u64, StoreError> {
        let mut removed = 0;
        // Another instance may remove what this one has found: look for more, so that fewer than
        // the limit means that nothing is left.
        while removed < u64::from(limit) {
            let wanted = u64::from(limit) - removed;
            let values = [Value::Int(i64::try_from(wanted).unwrap_or(i64::MAX))];
            let rows = self
                .read(self.statements.expired.sendable(), &values)
                .await?;
            let found: Vec<RecordId> = rows.iter().filter_map(identity_of).collect();
            for batch in found.chunks(BATCH) {
                let values: Vec<Value<'_>> = batch.iter().flat_map(identity).collect();
                let statement = self.statements.purge.wanting(&IDENTITY, batch.len());
                removed += self.write(statement, &values).await?;
            }
            if found.len() < usize::try_from(wanted).unwrap_or(usize::MAX) {
                break;
            }
        }
        Ok(removed)
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        match self.find(id).await?.filter(|row| flag(row, "live")) {
            Some(row) => Ok(Some(record(id.clone(), &row)?)),
            None => Ok(None),
        }
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<Record>, StoreError> {
        let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
        let start = RecordId::new("", "", "");
        let mut after = query.after.clone();
        let mut records = Vec::new();
        // Unreadable records are passed over, and do not make a page look like the last one.
        while records.len() < limit {
            let wanted = limit - records.len();
            let rows = self
                .list_page(query.which, after.as_ref().unwrap_or(&start), wanted)
                .await?;
            records.extend(readable(&rows));
            let last = rows.last().and_then(identity_of);
            if rows.len() < wanted || last.is_none() {
                break;
            }
            after = last;
        }
        Ok(records)
    }

    async fn forget(&self, id: &RecordId) -> Result<bool, StoreError> {
        let statement = self.statements.forget.sendable();
        Ok(self.write(statement, &identity(id)).await? > 0)
    }

    fn name(&self) -> &'static str {
        "mysql"
    }
}

fn warn_of_open_transaction() {
    tracing::warn!(
        store = "mysql",
        "closed a pooled connection on which a transaction had been left open"
    );
}

fn won(attempt: u32, steps: Option<Bytes>) -> Claimed {
    Claimed::Won { attempt, steps }
}

/// Whole milliseconds, rounded up, as microseconds: the unit of intervals with a fraction of a second.
fn micros(duration: Duration) -> Value<'static> {
    Value::Int(millis(duration).saturating_mul(1000))
}

fn flag(row: &MySqlRow, name: &str) -> bool {
    row.try_get::<i64, _>(name).unwrap_or(0) != 0
}

fn text(row: &MySqlRow, name: &str) -> Result<Option<String>, sqlx::Error> {
    let bytes: Option<Vec<u8>> = row.try_get(name)?;
    bytes
        .map(String::from_utf8)
        .transpose()
        .map_err(|error| sqlx::Error::Decode(error.into()))
}

fn identity_of(row: &MySqlRow) -> Option<RecordId> {
    Some(RecordId::new(
        text(row, "scope").ok()??,
        text(row, "idempotency_key").ok()??,
        text(row, "request_path").ok()??,
    ))
}

fn owner_of(row: &MySqlRow) -> Option<Uuid> {
    Uuid::from_slice(&row.try_get::<Vec<u8>, _>("owner").ok()?).ok()
}

/// The records of rows that carry their identity, unreadable ones passed over.
fn readable(rows: &[MySqlRow]) -> Vec<Record> {
    rows.iter()
        .filter_map(|row| record(identity_of(row)?, row).ok())
        .collect()
}

fn record(id: RecordId, row: &MySqlRow) -> Result<Record, Unreadable> {
    match read(row) {
        Ok(raw) => raw.decode(id),
        Err(error) => Err(sql::unreadable(id.digest(), &error.to_string())),
    }
}

fn read(row: &MySqlRow) -> Result<RawRow, sqlx::Error> {
    Ok(RawRow {
        request_hash: text(row, "request_hash")?,
        status: text(row, "status")?,
        response_code: row.try_get("response_code")?,
        response_headers: row.try_get("response_headers")?,
        response_body: row.try_get("response_body")?,
        created_at: row.try_get("created_at")?,
        locked_until: row.try_get("locked_until")?,
        completed_at: row.try_get("completed_at")?,
        expires_at: row.try_get("expires_at")?,
        owner: owner_of(row),
        attempt: row.try_get("attempt")?,
        route: text(row, "route")?,
        format: row.try_get("format")?,
        steps: row.try_get("steps")?,
        now: row.try_get("now")?,
    })
}
