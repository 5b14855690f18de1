//! Records in PostgreSQL: any number of instances share one truth.

mod connect;
mod listener;
mod statement;
mod transaction;

pub use connect::PostgresStoreBuilder;

use super::{
    AbandonedQuery, Claim, Claimed, ListQuery, Renewal, Renewed, Store, StoreError, Takeover,
    Which,
    sql::{self, Checkout, Connections, RawRow, TRIES, TableName, check, pause, refused},
};
use crate::record::{Answer, FORMAT, Record, RecordId, Status, Unreadable, millis};
use async_trait::async_trait;
use bytes::Bytes;
use listener::{Listener, token};
use sqlx::{PgConnection, PgPool, Postgres, Row as _, postgres::PgRow};
use statement::{Sending, Statement, Value};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use uuid::Uuid;

/// Less than a round trip between a client and a server takes, the two at least of which a transaction
/// that was left open is older than the next statement on its connection. In microseconds.
const ROUND_TRIP_MICROS: i64 = 25;

/// A store in a PostgreSQL database (12 and later).
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), idem_runtime::store::StoreError> {
/// use idem_runtime::store::PostgresStore;
///
/// // Its own pool:
/// let store = PostgresStore::connect("postgres://app@localhost/app").await?;
/// // Or the pool that the application already has, and a table in a schema:
/// let store = PostgresStore::builder().table("idem.records").from_pool(pool).await?;
/// # Ok(())
/// # }
/// ```
///
/// Both create the table where it is missing, see [`PostgresStoreBuilder::migrate`].
///
/// **Statements.** Every call is one statement that commits by itself: no transaction stays open
/// between two awaits, no session setting and no session lock is used, so it works at any isolation
/// level of the pool and behind a pooler in transaction mode (PgBouncer, also releases before 1.21
/// that know nothing of prepared statements). Such a pooler is recognised when the store connects;
/// statements then travel whole, with their values in them, instead of being prepared. Values can
/// then be seen in the statement logs of the server and, for a pool of the application's own, of
/// sqlx: keep `log_statements` and `log_slow_statements` off there.
///
/// **Waiting.** A duplicate that waits for a request of another process is told when that is settled
/// (`LISTEN`/`NOTIFY`). One connection of each process listens, beside the pool and from the first
/// time that somebody waits; it is opened again when it is lost. A notification is sent only for a
/// record that somebody waits for, because each costs the server a lock. Whoever waits also looks from
/// time to time, so that nothing depends on any of this. Two kinds of duplicate do nothing but look:
/// those of a transactional route, whose record nobody else sees before it is committed, and those
/// behind a pooler, unless [`PostgresStoreBuilder::listen_on`] says how to get past it.
///
/// **Dropped calls.** A connection whose call was dropped half-way is closed, not reused.
///
/// **Transactions.** A route with `transaction` on a `&mut PgConnection` claims inside its
/// transaction, at the isolation level of the pool, under an advisory lock that goes with the
/// transaction. The server ends it when its owner leaves it idle for longer than the route's lease
/// (`idle_in_transaction_session_timeout`, set for this transaction alone): the request is answered
/// with 503 `store-unavailable`, nothing of it is kept, and the key is free. A handler that waits for
/// something else for long needs a longer `lease`.
///
/// **Time.** All times are the server's (`statement_timestamp()`, `timestamptz`): time zones and
/// the clocks of the instances have no say. A server that is promoted in a failover should be
/// synchronised to the one it replaces; whatever it lags behind prolongs leases by as much.
#[derive(Debug)]
pub struct PostgresStore {
    connections: Connections<Postgres>,
    table: TableName,
    statements: Arc<Statements>,
    /// Whether to send statements whole, see [`Sending`].
    inline: AtomicBool,
    /// Whether to make sure that nobody else has left a transaction open on a connection.
    suspicious: AtomicBool,
    /// Whether the server tells a statement that commits by itself from one inside a transaction.
    finds_open_transactions: bool,
    /// None where there is no connection to be had that could listen.
    listener: Option<Listener>,
}

/// Of the records that are listed, those whose owner has died.
const ABANDONED: &str = "AND p.status = 'PROCESSING' AND p.locked_until <= statement_timestamp()";

#[derive(Debug)]
struct Statements {
    claim: Statement,
    replace: Statement,
    take_over: Statement,
    renew: Statement,
    complete: Statement,
    completed_by: Statement,
    release: Statement,
    save_steps: Statement,
    take_abandoned: Statement,
    purge: Statement,
    get: Statement,
    list: Statement,
    list_abandoned: Statement,
    forget: Statement,
    wait: Statement,
    table: Statement,
    claim_in_transaction: Statement,
    complete_in_transaction: Statement,
}

impl Statements {
    fn for_table(table: &TableName) -> Self {
        let statement = |doing, sql| Statement::new(doing, sql, table);
        let list = |which| {
            let sql = include_str!("list.sql").replace("{which}", which);
            Statement::new("listing records", &sql, table)
        };
        Self {
            claim: statement("claiming a key", include_str!("claim.sql")),
            replace: statement("replacing an expired record", include_str!("replace.sql")),
            take_over: statement("taking over a record", include_str!("take_over.sql")),
            renew: statement("renewing leases", include_str!("renew.sql")),
            complete: statement("finishing a record", include_str!("complete.sql")),
            completed_by: statement("finishing a record", include_str!("completed_by.sql")),
            release: statement("releasing a key", include_str!("release.sql")),
            save_steps: statement("keeping steps", include_str!("save_steps.sql")),
            take_abandoned: statement(
                "taking abandoned records",
                include_str!("take_abandoned.sql"),
            ),
            purge: statement("removing expired records", include_str!("purge.sql")),
            get: statement("reading a record", include_str!("get.sql")),
            list: list(""),
            list_abandoned: list(ABANDONED),
            forget: statement("forgetting a record", include_str!("forget.sql")),
            wait: statement("waiting for a record", include_str!("await.sql")),
            table: statement("looking for the table", include_str!("table.sql")),
            claim_in_transaction: statement(
                "claiming a key",
                include_str!("claim_in_transaction.sql"),
            ),
            complete_in_transaction: statement(
                "finishing a record",
                include_str!("complete_in_transaction.sql"),
            ),
        }
    }
}

/// What a statement has brought.
struct Outcome {
    rows: Vec<PgRow>,
    /// Whether an earlier try of the same call may have been carried out: its connection was lost.
    repeated: bool,
}

/// What an error asks for.
enum Remedy {
    /// Another try: the statement was rolled back by the server to resolve a conflict.
    Again,
    /// Another try on another connection, because this one is in a bad state.
    Elsewhere,
    /// Another try on another connection, because this one is lost; what was sent on it may have
    /// been carried out.
    Lost,
    /// Another try without prepared statements: the one that was prepared is not where the message
    /// went.
    Inline,
    /// None.
    Fail,
}

impl Remedy {
    fn of(error: &sqlx::Error) -> Self {
        let code = match error {
            sqlx::Error::Io(_) => return Remedy::Lost,
            sqlx::Error::Database(error) => error.code(),
            _ => return Remedy::Fail,
        };
        match code.as_deref() {
            // serialization_failure, deadlock_detected
            Some("40001" | "40P01") => Remedy::Again,
            // in_failed_sql_transaction: somebody left a transaction open. feature_not_supported:
            // "cached plan must not change result type", the table was altered.
            Some("25P02" | "0A000") => Remedy::Elsewhere,
            // admin_shutdown, crash_shutdown
            Some("57P01" | "57P02") => Remedy::Lost,
            // invalid_sql_statement_name, duplicate_prepared_statement
            Some("26000" | "42P05") => Remedy::Inline,
            _ => Remedy::Fail,
        }
    }
}

impl PostgresStore {
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
    /// As [`PostgresStore::connect`].
    pub async fn from_pool(pool: PgPool) -> Result<Self, StoreError> {
        Self::builder().from_pool(pool).await
    }

    /// Another table, migrations elsewhere, a pool of another size.
    pub fn builder() -> PostgresStoreBuilder {
        PostgresStoreBuilder::default()
    }

    /// The pool that the store uses.
    ///
    /// From then on, and on a pool of the application's from the beginning, writes make sure that
    /// nobody has left a transaction open on their connection (as a `begin()` does whose future is
    /// dropped), in which they would be lost. On a busy server that takes another look now and then.
    pub fn pool(&self) -> &PgPool {
        self.suspicious.store(true, Ordering::Relaxed);
        self.connections.pool()
    }

    fn sending(&self) -> Sending {
        if self.inline.load(Ordering::Relaxed) {
            Sending::Inline
        } else {
            Sending::Prepared
        }
    }

    /// Runs one statement, again where that helps.
    async fn run(
        &self,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<Outcome, StoreError> {
        let failed = |error: sqlx::Error| StoreError::unavailable(statement.doing, error);
        let mut repeated = false;
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
            let sending = self.sending();
            let error = match statement.run(connection, sending, values).await {
                Ok(rows) if self.is_uncommitted(connection, sending, &rows).await? => {
                    // Closing the connection rolls it all back.
                    tracing::warn!(
                        store = "postgres",
                        "closed a pooled connection on which a transaction had been left open"
                    );
                    continue;
                }
                Ok(rows) => {
                    checkout.give_back();
                    return Ok(Outcome { rows, repeated });
                }
                Err(error) => error,
            };
            match Remedy::of(&error) {
                Remedy::Again => checkout.give_back(),
                Remedy::Elsewhere => drop(checkout),
                Remedy::Lost => {
                    drop(checkout);
                    repeated = true;
                }
                Remedy::Inline => {
                    drop(checkout);
                    if !self.inline.swap(true, Ordering::Relaxed) {
                        tracing::warn!(
                            store = "postgres",
                            "prepared statements do not work here (a pooler in transaction mode?): \
                             doing without them"
                        );
                    }
                }
                Remedy::Fail => {
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

    /// Whether what a statement has written is not committed, because somebody has left a transaction
    /// open on this connection. (A `begin()` whose future is dropped does that: the driver does not
    /// know that its BEGIN was carried out, and the connection goes back to the pool.)
    ///
    /// A statement sent whole begins with its own transaction in the same instant. A prepared one is
    /// bound and then executed, which the server dates apart, by some microseconds unless it was
    /// busy: a gap too short for an earlier transaction's round trip settles the matter, and after
    /// a longer one the server is asked.
    async fn is_uncommitted(
        &self,
        connection: &mut PgConnection,
        sending: Sending,
        rows: &[PgRow],
    ) -> Result<bool, StoreError> {
        if !self.finds_open_transactions || !self.suspicious.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let gap = rows.iter().find_map(|row| match row.try_get("won") {
            // Read, not written.
            Ok(false) => None,
            _ => row.try_get::<i64, _>("gap").ok(),
        });
        let limit = match sending {
            Sending::Prepared => ROUND_TRIP_MICROS,
            Sending::Inline => 1,
        };
        if gap.is_none_or(|gap| gap < limit) {
            return Ok(false);
        }
        if sending == Sending::Inline {
            return Ok(true);
        }
        let failed = |error| StoreError::unavailable("looking for an open transaction", error);
        let row = sqlx::raw_sql("SELECT now() = statement_timestamp() AS alone")
            .fetch_one(connection)
            .await
            .map_err(failed)?;
        Ok(!row.try_get::<bool, _>("alone").map_err(failed)?)
    }

    /// Runs a write that is conditional on the owner, and says whether the condition held.
    async fn write(
        &self,
        statement: &Statement,
        id: &RecordId,
        owner: Uuid,
        more: &[Value<'_>],
    ) -> Result<bool, StoreError> {
        let owner = owner.to_string();
        let mut values = identity(id).to_vec();
        values.push(Value::Text(&owner));
        values.extend_from_slice(more);
        Ok(!self.run(statement, &values).await?.rows.is_empty())
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        check(&claim.id)?;
        let owner = claim.owner.to_string();
        let [scope, key, path] = identity(&claim.id);
        let begin = [
            scope.clone(),
            key.clone(),
            path.clone(),
            Value::Text(&claim.fingerprint),
            Value::Text(&owner),
            Value::Int(millis(claim.ttl)),
            Value::Int(millis(claim.lease)),
            Value::Text(&claim.route),
            Value::Int(FORMAT.into()),
        ];
        let accepted = claim.also_accepted.as_ref().unwrap_or(&claim.fingerprint);
        let take_over = [
            scope,
            key,
            path,
            Value::Text(&claim.fingerprint),
            Value::Text(accepted),
            Value::Text(&owner),
            Value::Int(millis(claim.lease)),
            Value::Int(FORMAT.into()),
        ];
        for attempt in 0..TRIES {
            pause(attempt).await;
            let rows = self.run(&self.statements.claim, &begin).await?.rows;
            if rows.iter().any(|row| flag(row, "won")) {
                return Ok(won(1, None));
            }
            // Nothing: another claim was being made in the same instant. Ask again.
            let Some(row) = rows.first() else { continue };
            if !flag(row, "live") {
                let replaced = self.run(&self.statements.replace, &begin).await?;
                // Nothing replaced: another caller was faster. Ask again what stands there now.
                if replaced.rows.is_empty() {
                    continue;
                }
                return Ok(won(1, None));
            }
            let record = record(claim.id.clone(), row)?;
            if !record.is_running() {
                return Ok(Claimed::Standing(Box::new(record)));
            }
            if record.owner == claim.owner {
                return Ok(won(record.attempt, record.steps));
            }
            let same = record.fingerprint == claim.fingerprint || record.fingerprint == *accepted;
            if claim.takeover != Takeover::Abandoned || !same || !flag(row, "lapsed") {
                return Ok(Claimed::Standing(Box::new(record)));
            }
            let taken = self.run(&self.statements.take_over, &take_over).await?;
            if let Some(row) = taken.rows.first() {
                return taken_over(&claim.id, row);
            }
        }
        Err(refused("claiming a key: it changes hands too fast to tell"))
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, StoreError> {
        if renewals.is_empty() {
            return Ok(Vec::new());
        }
        let owners: Vec<String> = renewals.iter().map(|r| r.owner.to_string()).collect();
        let ids = || renewals.iter().map(|renewal| &renewal.id);
        let values = [
            Value::Texts(ids().map(RecordId::scope).collect()),
            Value::Texts(ids().map(RecordId::key).collect()),
            Value::Texts(ids().map(RecordId::request_path).collect()),
            Value::Texts(owners.iter().map(String::as_str).collect()),
            Value::Ints(renewals.iter().map(|r| millis(r.lease)).collect()),
        ];
        let rows = self.run(&self.statements.renew, &values).await?.rows;
        // A record that is named twice is updated, and reported, once.
        let held: Vec<&Renewal> = rows
            .iter()
            .filter_map(|row| row.try_get::<i64, _>("n").ok())
            .filter_map(|n| renewals.get(usize::try_from(n - 1).ok()?))
            .collect();
        let is_held: std::collections::HashSet<(&RecordId, Uuid)> =
            held.iter().map(|r| (&r.id, r.owner)).collect();
        Ok(renewals
            .iter()
            .map(
                |renewal| match is_held.contains(&(&renewal.id, renewal.owner)) {
                    true => Renewed::Held,
                    false => Renewed::Lost,
                },
            )
            .collect())
    }

    async fn complete(
        &self,
        id: &RecordId,
        owner: Uuid,
        answer: &Answer,
    ) -> Result<(), StoreError> {
        let headers = answer.headers_column();
        let token = token(id);
        let answer = [
            Value::Text(&token),
            Value::Text(Status::of_response(answer.code()).as_str()),
            Value::Int(answer.code().into()),
            Value::Bytes(headers.as_deref()),
            Value::Bytes(answer.body_column()),
        ];
        if self
            .write(&self.statements.complete, id, owner, &answer)
            .await?
            || self
                .write(&self.statements.completed_by, id, owner, &[])
                .await?
        {
            return Ok(());
        }
        Err(StoreError::LeaseLost)
    }

    async fn release(&self, id: &RecordId, owner: Uuid) -> Result<(), StoreError> {
        let owner_text = owner.to_string();
        let [scope, key, path] = identity(id);
        let token = token(id);
        let owner = Value::Text(&owner_text);
        let values = [scope, key, path, owner, Value::Text(&token)];
        let outcome = self.run(&self.statements.release, &values).await?;
        if !outcome.rows.is_empty() {
            return Ok(());
        }
        // The try whose connection was lost may have freed it: then nothing stands there.
        if outcome.repeated {
            let left = self.run(&self.statements.get, &identity(id)).await?;
            if left.rows.is_empty() {
                return Ok(());
            }
        }
        Err(StoreError::LeaseLost)
    }

    async fn save_steps(
        &self,
        id: &RecordId,
        owner: Uuid,
        steps: &Bytes,
    ) -> Result<(), StoreError> {
        let steps = [Value::Bytes(Some(steps))];
        match self
            .write(&self.statements.save_steps, id, owner, &steps)
            .await?
        {
            true => Ok(()),
            false => Err(StoreError::LeaseLost),
        }
    }

    async fn take_abandoned(&self, query: &AbandonedQuery) -> Result<Vec<Record>, StoreError> {
        let owner = query.owner.to_string();
        let values = [
            Value::Texts(query.handlers.iter().map(String::as_str).collect()),
            Value::Text(&owner),
            Value::Int(millis(query.lease)),
            Value::Int(query.limit.into()),
            Value::Int(FORMAT.into()),
        ];
        let rows = self.run(&self.statements.take_abandoned, &values).await?;
        Ok(readable(&rows.rows))
    }

    async fn purge_expired(&self, limit: u32) -> Result<u64, StoreError> {
        let values = [Value::Int(limit.into())];
        let rows = self.run(&self.statements.purge, &values).await?.rows;
        let gone = rows
            .first()
            .and_then(|row| row.try_get::<i64, _>("gone").ok());
        Ok(gone.and_then(|gone| u64::try_from(gone).ok()).unwrap_or(0))
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        let rows = self.run(&self.statements.get, &identity(id)).await?.rows;
        match rows.first().filter(|row| flag(row, "live")) {
            Some(row) => Ok(Some(record(id.clone(), row)?)),
            None => Ok(None),
        }
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<Record>, StoreError> {
        let statement = match query.which {
            Which::All => &self.statements.list,
            Which::Abandoned => &self.statements.list_abandoned,
        };
        let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
        let mut after = query.after.clone();
        let mut records = Vec::new();
        // Unreadable records are passed over, and do not make a page look like the last one.
        while records.len() < limit {
            let wanted = limit - records.len();
            let start = RecordId::new("", "", "");
            let [scope, key, path] = identity(after.as_ref().unwrap_or(&start));
            let wanted_value = Value::Int(i64::try_from(wanted).unwrap_or(i64::MAX));
            let values = [scope, key, path, wanted_value];
            let rows = self.run(statement, &values).await?.rows;
            records.extend(readable(&rows));
            let last = rows.last().and_then(|row| identity_of(row).ok());
            if rows.len() < wanted || last.is_none() {
                break;
            }
            after = last;
        }
        Ok(records)
    }

    async fn forget(&self, id: &RecordId) -> Result<bool, StoreError> {
        let token = token(id);
        let [scope, key, path] = identity(id);
        let values = [scope, key, path, Value::Text(&token)];
        let outcome = self.run(&self.statements.forget, &values).await?;
        Ok(!outcome.rows.is_empty())
    }

    async fn changed(&self, id: &RecordId) {
        match &self.listener {
            Some(listener) => listener.changed(id).await,
            None => std::future::pending().await,
        }
    }

    fn name(&self) -> &'static str {
        "postgres"
    }
}

fn won(attempt: u32, steps: Option<Bytes>) -> Claimed {
    Claimed::Won { attempt, steps }
}

fn taken_over(id: &RecordId, row: &PgRow) -> Result<Claimed, StoreError> {
    let (attempt, steps) = read_progress(row).map_err(|error| {
        StoreError::Unreadable(sql::unreadable(id.digest(), &error.to_string()))
    })?;
    Ok(won(attempt, steps))
}

fn read_progress(row: &PgRow) -> Result<(u32, Option<Bytes>), sqlx::Error> {
    let attempt: i32 = row.try_get("attempt")?;
    let steps: Option<Vec<u8>> = row.try_get("steps")?;
    Ok((attempt.unsigned_abs(), steps.map(Bytes::from)))
}

fn identity(id: &RecordId) -> [Value<'_>; 3] {
    [
        Value::Text(id.scope()),
        Value::Text(id.key()),
        Value::Text(id.request_path()),
    ]
}

fn flag(row: &PgRow, name: &str) -> bool {
    row.try_get(name).unwrap_or(false)
}

fn identity_of(row: &PgRow) -> Result<RecordId, sqlx::Error> {
    Ok(RecordId::new(
        row.try_get::<String, _>("scope")?,
        row.try_get::<String, _>("idempotency_key")?,
        row.try_get::<String, _>("request_path")?,
    ))
}

/// The records of rows that carry their identity, unreadable ones passed over.
fn readable(rows: &[PgRow]) -> Vec<Record> {
    rows.iter()
        .filter_map(|row| record(identity_of(row).ok()?, row).ok())
        .collect()
}

fn record(id: RecordId, row: &PgRow) -> Result<Record, Unreadable> {
    match read(row) {
        Ok(raw) => raw.decode(id),
        Err(error) => Err(sql::unreadable(id.digest(), &error.to_string())),
    }
}

fn read(row: &PgRow) -> Result<RawRow, sqlx::Error> {
    let owner: Option<String> = row.try_get("owner")?;
    Ok(RawRow {
        request_hash: row.try_get("request_hash")?,
        status: row.try_get("status")?,
        response_code: row.try_get("response_code")?,
        response_headers: row.try_get("response_headers")?,
        response_body: row.try_get("response_body")?,
        created_at: row.try_get("created_at")?,
        locked_until: row.try_get("locked_until")?,
        completed_at: row.try_get("completed_at")?,
        expires_at: row.try_get("expires_at")?,
        owner: owner.and_then(|owner| Uuid::parse_str(&owner).ok()),
        attempt: row.try_get("attempt")?,
        route: row.try_get("route")?,
        format: row.try_get("format")?,
        steps: row.try_get("steps")?,
        now: row.try_get("now")?,
    })
}
