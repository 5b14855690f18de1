//! Transactions that the application writes in, with a claim among its writes.

use super::{
    PostgresStore, Remedy, Statements, flag, identity,
    listener::token,
    read_progress, record,
    statement::{Sending, Statement, Value},
};
use crate::{
    fail_points::point,
    record::{Answer, FORMAT, RecordId, Status, millis},
    store::{
        Begun, Claim, Connection, OpenTransaction, Store, StoreError, TransactionalStore, conflict,
        sql::{self, Session, TRIES, check, pause, refused, stands, unreadable},
    },
};
use async_trait::async_trait;
use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, Postgres, SqlSafeStr as _, SqlStr,
    postgres::PgRow,
};
use std::{any::Any, sync::Arc, sync::atomic::Ordering, time::Duration};

/// Where the handler's own writes begin.
const MARK: &str = "SAVEPOINT idem_claimed";
const BACK_TO_MARK: &str = "ROLLBACK TO SAVEPOINT idem_claimed";
const RELEASE_MARK: &str = "RELEASE SAVEPOINT idem_claimed";

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

/// What one try to open a transaction with a claim came to.
enum Tried {
    Won(u32),
    Running,
    Standing(Box<crate::record::Record>),
    /// It changed hands meanwhile: ask again.
    Again,
}

fn opening(lease: Option<Duration>) -> SqlStr {
    match lease {
        None => "BEGIN".into_sql_str(),
        Some(lease) => {
            // Milliseconds; zero would mean no limit.
            let limit = millis(lease).clamp(1, i32::MAX.into());
            AssertSqlSafe(format!(
                "BEGIN; SET LOCAL idle_in_transaction_session_timeout = {limit}"
            ))
            .into_sql_str()
        }
    }
}

impl PostgresStore {
    /// A number for the advisory lock of an identity: the same in every instance, another for every
    /// table. Two identities with one number would be told 409 for as long as the other one runs.
    fn lock(&self, id: &RecordId) -> i64 {
        let hash = id.hash(&format!("transaction in {}", self.table.quoted('"')));
        let (first, _) = hash.split_at(8);
        first
            .iter()
            .fold(0, |number: i64, byte| (number << 8) | i64::from(*byte))
    }

    async fn open(&self, lease: Option<Duration>) -> Result<Open, sqlx::Error> {
        let mut session = Session::acquire(&self.connections).await?;
        // A transaction that somebody has left open on the connection is gone on with: what was
        // written in it was meant to be committed.
        session.begin(opening(lease)).await?;
        Ok(Open {
            session,
            sending: self.sending(),
            statements: Arc::clone(&self.statements),
            claim: None,
        })
    }

    async fn try_claimed(&self, claim: &Claim) -> Result<Option<Begun<PgConnection>>, Trouble> {
        // What is left standing is found without a transaction.
        let found = point!("postgres.look", self.get(&claim.id))
            .await
            .map_err(Trouble::Own)?;
        if let Some(record) = found.filter(|record| stands(claim, record)) {
            return Ok(Some(Begun::Standing(Box::new(record))));
        }
        let mut open = self
            .open(Some(claim.lease))
            .await
            .map_err(Trouble::at(BEGINNING))?;
        let begun = match open.take(claim, self.lock(&claim.id)).await {
            Ok(Tried::Won(attempt)) => {
                open.run(MARK).await.map_err(Trouble::at(BEGINNING))?;
                open.claim = Some(Box::new(claim.clone()));
                return Ok(Some(Begun::Won {
                    transaction: Box::new(open),
                    attempt,
                }));
            }
            Ok(Tried::Running) => Some(Begun::Running),
            Ok(Tried::Standing(record)) => Some(Begun::Standing(record)),
            Ok(Tried::Again) => None,
            Err(Trouble::Statement(doing, error)) if !sql::is_answer(&error) => {
                return Err(Trouble::Statement(doing, error));
            }
            Err(trouble) => {
                open.abandon().await;
                return Err(trouble);
            }
        };
        open.abandon().await;
        Ok(begun)
    }
}

/// An open transaction. Dropped, it is rolled back with its connection.
struct Open {
    session: Session<Postgres>,
    sending: Sending,
    statements: Arc<Statements>,
    claim: Option<Box<Claim>>,
}

impl Open {
    async fn run(&mut self, statement: &'static str) -> Result<(), sqlx::Error> {
        let run = sqlx::raw_sql(statement).execute(self.session.connection());
        point!("postgres.savepoint", run).await.map(drop)
    }

    async fn send(
        &mut self,
        statement: impl Fn(&Statements) -> &Statement,
        values: &[Value<'_>],
    ) -> Result<Vec<PgRow>, Trouble> {
        let statement = statement(&self.statements);
        let run = statement.run(self.session.connection(), self.sending, values);
        point!("postgres.statement", run)
            .await
            .map_err(Trouble::at(statement.doing))
    }

    /// Takes the key, whatever stands there.
    async fn take(&mut self, claim: &Claim, lock: i64) -> Result<Tried, Trouble> {
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
            Value::Int(lock),
        ];
        let rows = self.send(|s| &s.claim_in_transaction, &begin).await?;
        let said = |name| rows.first().is_some_and(|row| flag(row, name));
        if said("won") {
            return Ok(Tried::Won(1));
        }
        let rows = self.send(|s| &s.get, &begin[..3]).await?;
        let standing = match rows.first() {
            Some(row) if flag(row, "live") => {
                let record = record(claim.id.clone(), row)
                    .map_err(|error| Trouble::Own(StoreError::Unreadable(error)))?;
                if stands(claim, &record) {
                    return Ok(Tried::Standing(Box::new(record)));
                }
                true
            }
            Some(_) => false,
            None if said("taken") => return Ok(Tried::Again),
            None => return Ok(Tried::Running),
        };
        if !said("taken") {
            return Ok(Tried::Running);
        }
        if !standing {
            let replaced = self.send(|s| &s.replace, &begin[..9]).await?;
            return Ok(match replaced.is_empty() {
                true => Tried::Again,
                false => Tried::Won(1),
            });
        }
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
        let taken = self.send(|s| &s.take_over, &take_over).await?;
        match taken.first().map(read_progress) {
            None => Ok(Tried::Again),
            Some(Ok((attempt, _))) => Ok(Tried::Won(attempt)),
            Some(Err(error)) => {
                let unreadable = unreadable(claim.id.digest(), &error.to_string());
                Err(Trouble::Own(StoreError::Unreadable(unreadable)))
            }
        }
    }

    /// Finishes the record. Without one: asks whether the transaction can be committed, for the
    /// server answers the COMMIT of one that has failed with a silent rollback.
    async fn complete(&mut self, answer: &Answer) -> Result<(), StoreError> {
        self.session
            .end_inner()
            .await
            .map_err(|error| refusal(FINISHING, error))?;
        let Some(claim) = self.claim.take() else {
            return self
                .run(RELEASE_MARK)
                .await
                .map_err(|error| refusal(FINISHING, error));
        };
        let owner = claim.owner.to_string();
        let token = token(&claim.id);
        let headers = answer.headers_column();
        let [scope, key, path] = identity(&claim.id);
        let values = [
            scope,
            key,
            path,
            Value::Text(&owner),
            Value::Text(Status::of_response(answer.code()).as_str()),
            Value::Int(answer.code().into()),
            Value::Bytes(headers.as_deref()),
            Value::Bytes(answer.body_column()),
            Value::Text(&claim.fingerprint),
            Value::Text(&claim.route),
            Value::Int(FORMAT.into()),
            Value::Text(&token),
        ];
        match self.send(|s| &s.complete_in_transaction, &values).await {
            Ok(rows) if rows.iter().any(|row| flag(row, "finished")) => Ok(()),
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
        match self.session.commit().await {
            Ok(()) => {
                self.session.give_back();
                Ok(())
            }
            // Refused or lost: closing the connection leaves no doubt about its state.
            Err(error) => Err(refusal(COMMITTING, error)),
        }
    }

    async fn abandon(mut self) {
        match self.session.rollback().await {
            Ok(()) => self.session.give_back(),
            // Without a commit nothing has happened, and the connection is closed.
            Err(error) => {
                tracing::debug!(store = "postgres", %error, "a transaction went with its connection");
            }
        }
    }
}

/// The error for a transaction that the database does not commit.
fn refusal(doing: &'static str, error: sqlx::Error) -> StoreError {
    let code = match &error {
        sqlx::Error::Database(error) => error.code(),
        _ => None,
    };
    match code.as_deref() {
        Some(code) if conflict::postgres(code) => StoreError::Conflict {
            context: doing.to_owned(),
            source: Some(error.into()),
        },
        // in_failed_sql_transaction
        Some("25P02") => StoreError::unavailable(
            "the handler went on after a statement of its transaction had failed",
            error,
        ),
        _ => StoreError::unavailable(doing, error),
    }
}

#[async_trait]
impl OpenTransaction<PgConnection> for Open {
    fn connection(&mut self) -> &mut PgConnection {
        self.session.connection()
    }

    /// Which statement was refused, only its error tells. But a connection that is gone took the
    /// transaction along: its owner was silent for longer than the server waits.
    async fn is_refused(&mut self) -> bool {
        self.session.connection().ping().await.is_err()
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
            Ok(()) => self.run(BACK_TO_MARK).await,
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
impl TransactionalStore<PgConnection> for PostgresStore {
    async fn begin(&self) -> Result<Box<dyn OpenTransaction<PgConnection>>, StoreError> {
        let failed = |error| StoreError::unavailable(BEGINNING, error);
        let mut open = self.open(None).await.map_err(failed)?;
        open.run(MARK).await.map_err(failed)?;
        Ok(Box::new(open))
    }

    async fn begin_claimed(&self, claim: &Claim) -> Result<Begun<PgConnection>, StoreError> {
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
            match Remedy::of(&error) {
                Remedy::Fail => return Err(StoreError::unavailable(doing, error)),
                Remedy::Inline => self.inline.store(true, Ordering::Relaxed),
                // Nothing was committed, whatever was sent.
                Remedy::Again | Remedy::Elsewhere | Remedy::Lost => {}
            }
            last = Some((doing, error));
        }
        Err(match last {
            Some((doing, error)) => refusal(doing, error),
            None => refused("claiming a key: it changes hands too fast to tell"),
        })
    }
}

impl Connection for PgConnection {
    const DATABASE: &'static str = "PostgreSQL";

    fn store(store: &dyn Store) -> Option<&dyn TransactionalStore<PgConnection>> {
        let store = (store as &dyn Any).downcast_ref::<PostgresStore>()?;
        Some(store)
    }
}
