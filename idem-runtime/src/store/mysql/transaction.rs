//! Transactions that the application writes in, with a claim among its writes.

use super::{
    MySqlStore, Remedy, Statements,
    connect::Guard,
    flag, identity, micros, owner_of, record,
    statement::{Answered, Statement, Value},
};
use crate::{
    fail_points::point,
    record::{Answer, FORMAT, Record, RecordId, Status},
    store::{
        Begun, Claim, Connection, OpenTransaction, Store, StoreError, TransactionalStore, conflict,
        sql::{self, Session, TRIES, check, pause, refused, stands},
    },
};
use async_trait::async_trait;
use sqlx::{
    AssertSqlSafe, MySql, MySqlConnection, Row as _, SqlSafeStr as _, SqlStr,
    mysql::{MySqlDatabaseError, MySqlRow},
};
use std::{any::Any, sync::Arc, time::Duration};
use uuid::Uuid;

/// Where the handler's own writes begin.
const MARK: &str = "SAVEPOINT idem_claimed";
const BACK_TO_MARK: &str = "ROLLBACK TO SAVEPOINT idem_claimed";
const RELEASE_MARK: &str = "RELEASE SAVEPOINT idem_claimed";

/// ER_SP_DOES_NOT_EXIST: a savepoint of the transaction went when a deadlock was resolved, with which
/// the server has rolled back all of it.
const NO_SAVEPOINT: u16 = 1305;

const BEGINNING: &str = "beginning a transaction";
const FINISHING: &str = "finishing a transaction";
const COMMITTING: &str = "committing";

/// What went wrong while a transaction was opened.
enum Trouble {
    Own(StoreError),
    Statement(&'static str, sqlx::Error),
}

impl Trouble {
    fn at(doing: &'static str) -> impl FnOnce(sqlx::Error) -> Trouble {
        move |error| Trouble::Statement(doing, error)
    }
}

/// What one try to take the key in a transaction came to.
enum Tried {
    Won(u32),
    /// Somebody has locked what stands there, or its place.
    Locked,
    /// It changed hands meanwhile: ask again.
    Again,
}

/// What stood there before the transaction began.
enum Found {
    Nothing,
    Expired(Option<Uuid>),
    Abandoned(Box<Record>),
}

impl Found {
    fn owner(&self) -> Option<Uuid> {
        match self {
            Found::Nothing => None,
            Found::Expired(owner) => *owner,
            Found::Abandoned(record) => Some(record.owner),
        }
    }
}

/// What a transaction changes of its connection's session, for as long as it runs.
///
/// - With `autocommit` off, what a handler goes on to write after a deadlock (with which the server
///   has rolled the transaction back) is not committed statement by statement.
/// - The idle time after which the server closes the connection, and with it ends a transaction
///   whose owner has fallen silent.
/// - How long a claim waits for a lock. It is set back before the handler begins.
#[derive(Debug, Clone, Copy)]
struct Settings {
    is_mariadb: bool,
}

impl Settings {
    fn idle(self) -> &'static [&'static str] {
        match self.is_mariadb {
            // The first would be overruled by the second, where the server has one.
            true => &["idle_transaction_timeout", "idle_write_transaction_timeout"],
            false => &["wait_timeout"],
        }
    }

    /// Keeps what is there, changes it, and begins.
    fn begin(self, lease: Option<Duration>) -> SqlStr {
        let mut keep = "SET @idem_autocommit = @@SESSION.autocommit, \
                        @idem_lock = @@SESSION.innodb_lock_wait_timeout"
            .to_owned();
        // Zero is no waiting at all; MySQL has it not.
        let wait = if self.is_mariadb { 0 } else { 1 };
        let mut change = "SET @@SESSION.autocommit = 0".to_owned();
        for name in self.idle() {
            keep.push_str(&format!(", @idem_{name} = @@SESSION.{name}"));
        }
        if let Some(lease) = lease {
            change.push_str(&format!(", @@SESSION.innodb_lock_wait_timeout = {wait}"));
            // Whole seconds, rounded up: at least one, for zero would mean no limit; at most what
            // every platform takes.
            let seconds = lease.as_millis().div_ceil(1000).clamp(1, 2_000_000);
            for name in self.idle() {
                change.push_str(&format!(", @@SESSION.{name} = {seconds}"));
            }
        }
        AssertSqlSafe(format!("{keep}; {change}; BEGIN")).into_sql_str()
    }

    /// The key is taken: the handler's part begins.
    fn mark() -> SqlStr {
        AssertSqlSafe(format!(
            "SET @@SESSION.innodb_lock_wait_timeout = @idem_lock; {MARK}"
        ))
        .into_sql_str()
    }

    /// Sets everything back, after the transaction's end: switching autocommit on commits.
    fn restore(self) -> SqlStr {
        let mut restore = "SET @@SESSION.autocommit = @idem_autocommit, \
                           @@SESSION.innodb_lock_wait_timeout = @idem_lock"
            .to_owned();
        for name in self.idle() {
            restore.push_str(&format!(", @@SESSION.{name} = @idem_{name}"));
        }
        AssertSqlSafe(restore).into_sql_str()
    }
}

impl MySqlStore {
    fn settings(&self) -> Settings {
        Settings {
            is_mariadb: self.guard == Guard::Variable,
        }
    }

    async fn open(&self) -> Result<Open, sqlx::Error> {
        Ok(Open {
            session: Session::acquire(&self.connections).await?,
            settings: self.settings(),
            statements: Arc::clone(&self.statements),
            claim: None,
        })
    }

    async fn try_claimed(&self, claim: &Claim) -> Result<Option<Begun<MySqlConnection>>, Trouble> {
        // What is left standing is found without a transaction.
        let found = point!("mysql.look", self.find(&claim.id))
            .await
            .map_err(Trouble::Own)?;
        let found = match found {
            None => Found::Nothing,
            Some(row) if !flag(&row, "live") => Found::Expired(owner_of(&row)),
            Some(row) => {
                let record = record(claim.id.clone(), &row)
                    .map_err(|error| Trouble::Own(StoreError::Unreadable(error)))?;
                if stands(claim, &record) {
                    return Ok(Some(Begun::Standing(Box::new(record))));
                }
                Found::Abandoned(Box::new(record))
            }
        };
        let mut open = self.open().await.map_err(Trouble::at(BEGINNING))?;
        // Where the server cannot be told not to wait at all, look first.
        if !open.settings.is_mariadb
            && open
                .is_taken(claim, found.owner())
                .await
                .map_err(Trouble::at(BEGINNING))?
        {
            open.session.give_back();
            return Ok(Some(Begun::Running));
        }
        open.begin(Some(claim.lease))
            .await
            .map_err(Trouble::at(BEGINNING))?;
        match open.take(claim, &found).await {
            Ok(Tried::Won(attempt)) => {
                open.run(Settings::mark())
                    .await
                    .map_err(Trouble::at(BEGINNING))?;
                open.claim = Some((claim.id.clone(), claim.owner));
                Ok(Some(Begun::Won {
                    transaction: Box::new(open),
                    attempt,
                }))
            }
            Ok(Tried::Again) => {
                open.abandon().await;
                Ok(None)
            }
            Ok(Tried::Locked) => {
                open.end().await.map_err(Trouble::at(BEGINNING))?;
                let taken = open
                    .is_taken(claim, found.owner())
                    .await
                    .map_err(Trouble::at(BEGINNING))?;
                open.session.give_back();
                Ok(taken.then_some(Begun::Running))
            }
            Err(Trouble::Statement(doing, error)) if !sql::is_answer(&error) => {
                Err(Trouble::Statement(doing, error))
            }
            Err(trouble) => {
                open.abandon().await;
                Err(trouble)
            }
        }
    }
}

/// An open transaction. Dropped, it is rolled back with its connection.
struct Open {
    session: Session<MySql>,
    settings: Settings,
    statements: Arc<Statements>,
    claim: Option<(RecordId, Uuid)>,
}

impl Open {
    async fn run(&mut self, statement: SqlStr) -> Result<(), sqlx::Error> {
        let run = sqlx::raw_sql(statement).execute(self.session.connection());
        point!("mysql.run", run).await.map(drop)
    }

    async fn send(
        &mut self,
        statement: impl Fn(&Statements) -> &Statement,
        values: &[Value<'_>],
    ) -> Result<Answered, Trouble> {
        let statement = statement(&self.statements).sendable();
        let sent = statement.send(self.session.connection(), values);
        point!("mysql.statement", sent)
            .await
            .map_err(Trouble::at(statement.doing))
    }

    async fn begin(&mut self, lease: Option<Duration>) -> Result<(), sqlx::Error> {
        let statement = self.settings.begin(lease);
        self.session.begin(statement).await
    }

    /// Rolls back and makes the session what it was.
    async fn end(&mut self) -> Result<(), sqlx::Error> {
        self.session.rollback().await?;
        self.run(self.settings.restore()).await
    }

    /// Whether a transaction that has not ended has put another record where `owner`'s stood. It is
    /// read without a lock and before it is committed, so it is good for this question only: the
    /// wait for a lock may have been for something else, such as a gap that another key's claim
    /// holds for an instant.
    async fn is_taken(&mut self, claim: &Claim, owner: Option<Uuid>) -> Result<bool, sqlx::Error> {
        // Concerns the next transaction only, which is the next statement.
        self.run("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED".into_sql_str())
            .await?;
        let statement = self.statements.get.sendable();
        let answered = statement
            .send(self.session.connection(), &identity(&claim.id))
            .await?;
        let other = |row: &MySqlRow| flag(row, "live") && owner_of(row) != owner;
        Ok(answered.rows.first().is_some_and(other))
    }

    /// Takes the key, given what stood there a moment ago.
    async fn take(&mut self, claim: &Claim, found: &Found) -> Result<Tried, Trouble> {
        let taken = match found {
            Found::Nothing => self.insert(claim).await.map(|()| Some(1)),
            Found::Expired(_) => self.replace(claim).await,
            Found::Abandoned(record) => self.take_over(claim, record).await,
        };
        match taken {
            Ok(Some(attempt)) => Ok(Tried::Won(attempt)),
            Ok(None) => Ok(Tried::Again),
            Err(Trouble::Statement(_, error)) if number(&error) == Some(1062) => Ok(Tried::Again),
            Err(Trouble::Statement(_, error)) if is_lock_timeout(&error) => Ok(Tried::Locked),
            Err(trouble) => Err(trouble),
        }
    }

    async fn insert(&mut self, claim: &Claim) -> Result<(), Trouble> {
        let [scope, key, path] = identity(&claim.id);
        let values = [
            scope,
            key,
            path,
            Value::text(&claim.fingerprint),
            micros(claim.lease),
            micros(claim.ttl),
            Value::Bytes(Some(claim.owner.as_bytes())),
            Value::text(&claim.route),
            Value::Int(FORMAT.into()),
        ];
        self.send(|s| &s.inside.claim, &values).await.map(drop)
    }

    async fn replace(&mut self, claim: &Claim) -> Result<Option<u32>, Trouble> {
        let [scope, key, path] = identity(&claim.id);
        let values = [
            Value::text(&claim.fingerprint),
            micros(claim.lease),
            micros(claim.ttl),
            Value::Bytes(Some(claim.owner.as_bytes())),
            Value::text(&claim.route),
            Value::Int(FORMAT.into()),
            scope,
            key,
            path,
        ];
        let answered = self.send(|s| &s.inside.replace, &values).await?;
        Ok((answered.written > 0).then_some(1))
    }

    async fn take_over(&mut self, claim: &Claim, record: &Record) -> Result<Option<u32>, Trouble> {
        let [scope, key, path] = identity(&claim.id);
        let accepted = claim.also_accepted.as_ref().unwrap_or(&claim.fingerprint);
        let values = [
            Value::Bytes(Some(claim.owner.as_bytes())),
            micros(claim.lease),
            scope,
            key,
            path,
            Value::Int(FORMAT.into()),
            Value::text(&claim.fingerprint),
            Value::text(accepted),
            Value::Bytes(Some(record.owner.as_bytes())),
        ];
        let answered = self.send(|s| &s.inside.take_over, &values).await?;
        Ok((answered.written > 0).then_some(record.attempt.saturating_add(1)))
    }

    /// Finishes the record. Without one: asks whether the transaction is still the one that was
    /// begun, for the server rolls it back with a deadlock and lets the handler go on in another.
    async fn complete(&mut self, answer: &Answer) -> Result<(), StoreError> {
        self.session
            .end_inner()
            .await
            .map_err(|error| refusal(FINISHING, error))?;
        let Some((id, owner)) = self.claim.take() else {
            return self
                .run(RELEASE_MARK.into_sql_str())
                .await
                .map_err(|error| refusal(FINISHING, error));
        };
        let headers = answer.headers_column();
        let [scope, key, path] = identity(&id);
        let values = [
            Value::Int(answer.code().into()),
            Value::Bytes(headers.as_deref()),
            Value::Bytes(answer.body_column()),
            Value::text(Status::of_response(answer.code()).as_str()),
            scope,
            key,
            path,
            Value::Bytes(Some(owner.as_bytes())),
        ];
        match self.send(|s| &s.inside.complete, &values).await {
            Ok(answered) if answered.written > 0 => Ok(()),
            Ok(_) => Err(StoreError::LeaseLost),
            Err(Trouble::Own(error)) => Err(error),
            Err(Trouble::Statement(doing, error)) => Err(refusal(doing, error)),
        }
    }

    async fn finish(mut self, answer: &Answer) -> Result<(), StoreError> {
        if let Err(error) = self.complete(answer).await {
            self.abandon().await;
            return Err(error);
        }
        // Refused or lost: closing the connection leaves no doubt about its state.
        self.session
            .commit()
            .await
            .map_err(|error| refusal(COMMITTING, error))?;
        match self.run(self.settings.restore()).await {
            Ok(()) => self.session.give_back(),
            Err(error) => closed(&error),
        }
        Ok(())
    }

    async fn abandon(mut self) {
        match self.end().await {
            Ok(()) => self.session.give_back(),
            // Without a commit nothing has happened, and the connection is closed.
            Err(error) => closed(&error),
        }
    }
}

fn closed(error: &sqlx::Error) {
    tracing::debug!(store = "mysql", %error, "a connection was closed after its transaction");
}

fn number(error: &sqlx::Error) -> Option<u16> {
    let sqlx::Error::Database(error) = error else {
        return None;
    };
    error
        .try_downcast_ref::<MySqlDatabaseError>()
        .map(MySqlDatabaseError::number)
}

fn is_lock_timeout(error: &sqlx::Error) -> bool {
    // ER_LOCK_WAIT_TIMEOUT
    number(error) == Some(1205)
}

/// The error for a transaction that the database does not commit.
fn refusal(doing: &'static str, error: sqlx::Error) -> StoreError {
    match number(&error) {
        Some(number) if conflict::mysql(number) || number == NO_SAVEPOINT => StoreError::Conflict {
            context: doing.to_owned(),
            source: Some(error.into()),
        },
        _ => StoreError::unavailable(doing, error),
    }
}

#[async_trait]
impl OpenTransaction<MySqlConnection> for Open {
    fn connection(&mut self) -> &mut MySqlConnection {
        self.session.connection()
    }

    /// The server keeps what went wrong with the last statement until the next one. Only text that
    /// is not prepared leaves it there.
    async fn is_refused(&mut self) -> bool {
        let errors = sqlx::raw_sql("SHOW ERRORS")
            .fetch_all(self.session.connection())
            .await;
        match errors {
            Ok(rows) => rows
                .iter()
                .filter_map(|row| row.try_get::<u32, _>("Code").ok())
                .any(|code| u16::try_from(code).is_ok_and(conflict::mysql)),
            // Sent before it: the rollback of an inner transaction that the handler has dropped.
            Err(error) => {
                number(&error) == Some(NO_SAVEPOINT) || matches!(error, sqlx::Error::Io(_))
            }
        }
    }

    async fn commit(self: Box<Self>, answer: &Answer) -> Result<(), StoreError> {
        self.finish(answer).await
    }

    async fn keep_answer_only(mut self: Box<Self>, answer: &Answer) -> Result<(), StoreError> {
        if self.claim.is_none() {
            self.abandon().await;
            return Ok(());
        }
        let back = match self.session.end_inner().await {
            Ok(()) => self.run(BACK_TO_MARK.into_sql_str()).await,
            Err(error) => Err(error),
        };
        match back {
            Ok(()) => self.finish(answer).await,
            Err(error) => Err(refusal(FINISHING, error)),
        }
    }

    async fn rollback(self: Box<Self>) {
        self.abandon().await;
    }
}

#[async_trait]
impl TransactionalStore<MySqlConnection> for MySqlStore {
    async fn begin(&self) -> Result<Box<dyn OpenTransaction<MySqlConnection>>, StoreError> {
        let failed = |error| StoreError::unavailable(BEGINNING, error);
        let mut open = self.open().await.map_err(failed)?;
        open.begin(None).await.map_err(failed)?;
        open.run(MARK.into_sql_str()).await.map_err(failed)?;
        Ok(Box::new(open))
    }

    async fn begin_claimed(&self, claim: &Claim) -> Result<Begun<MySqlConnection>, StoreError> {
        check(&claim.id)?;
        let mut last = None;
        for attempt in 0..TRIES {
            pause(attempt).await;
            let (doing, error) = match self.try_claimed(claim).await {
                Ok(Some(begun)) => return Ok(begun),
                Ok(None) => continue,
                Err(Trouble::Own(error)) => return Err(error),
                Err(Trouble::Statement(doing, error)) => (doing, error),
            };
            match Remedy::of(&error, self.guard) {
                Remedy::Fail | Remedy::Duplicate => {
                    return Err(StoreError::unavailable(doing, error));
                }
                // Nothing was committed, whatever was sent.
                Remedy::Again
                | Remedy::Waited
                | Remedy::Elsewhere
                | Remedy::InTransaction
                | Remedy::Lost => {}
            }
            last = Some((doing, error));
        }
        Err(match last {
            Some((doing, error)) => refusal(doing, error),
            None => refused("claiming a key: it changes hands too fast to tell"),
        })
    }
}

impl Connection for MySqlConnection {
    const DATABASE: &'static str = "MySQL";

    fn store(store: &dyn Store) -> Option<&dyn TransactionalStore<MySqlConnection>> {
        let store = (store as &dyn Any).downcast_ref::<MySqlStore>()?;
        Some(store)
    }
}
