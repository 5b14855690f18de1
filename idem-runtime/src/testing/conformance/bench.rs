//! What the cases are written with.

use super::Factory;
use crate::{
    record::{Answer, Record, RecordId, State, StoreTime, StoredResponse},
    store::{Claim, Claimed, Renewal, Renewed, Store, StoreError, Takeover},
};
use bytes::Bytes;
use std::{fmt, sync::Arc, time::Duration};
use tokio::{sync::Barrier, task::JoinError};
use uuid::Uuid;

/// A TTL or lease that a case waits out.
pub(super) const SHORT: Duration = Duration::from_millis(100);
/// A TTL or lease that no case outlives.
pub(super) const LONG: Duration = Duration::from_secs(3600);

/// Waits until everything [`SHORT`] is over.
pub(super) async fn wait_out() {
    tokio::time::sleep(SHORT * 4).await;
}

/// A departure from the contract, as a sentence.
pub(super) struct Failure(String);

impl Failure {
    pub(super) fn new(sentence: impl Into<String>) -> Self {
        Failure(sentence.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        use std::error::Error;
        let mut sentence = format!("a call failed: {error}");
        let mut source = error.source();
        while let Some(cause) = source {
            sentence.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        Failure(sentence)
    }
}

impl From<JoinError> for Failure {
    fn from(error: JoinError) -> Self {
        Failure(match error.try_into_panic() {
            Ok(panic) => {
                let message = panic
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or_else(|| panic.downcast_ref::<&str>().copied());
                format!("it panicked: {}", message.unwrap_or("no message"))
            }
            Err(error) => format!("its task was lost: {error}"),
        })
    }
}

/// Fails the case with a sentence unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($sentence:tt)+) => {
        if !$condition {
            return Err(Failure::new(format!($($sentence)+)));
        }
    };
}
pub(super) use ensure;

/// The store under trial, fresh for each case.
pub(super) struct Bench {
    pub(super) store: Arc<dyn Store>,
    factory: Arc<dyn Factory>,
}

impl Bench {
    pub(super) async fn new(factory: Arc<dyn Factory>) -> Self {
        Bench {
            store: factory.fresh().await,
            factory,
        }
    }

    /// Another handle on the same data.
    pub(super) async fn another(&self) -> Arc<dyn Store> {
        self.factory.reopen(&self.store).await
    }

    /// Claims, and must win.
    pub(super) async fn win(&self, claim: &Claim) -> Result<Won, Failure> {
        won(self.store.claim(claim).await?)
    }

    /// Claims, and must find a record standing.
    pub(super) async fn find(&self, claim: &Claim) -> Result<Record, Failure> {
        standing(self.store.claim(claim).await?)
    }

    /// The record that a stranger's claim finds, as it is read. What the claim tells of its times may
    /// be a little early.
    pub(super) async fn standing(&self, id: &RecordId) -> Result<Record, Failure> {
        let met = self
            .find(&Claim {
                id: id.clone(),
                ..claim("")
            })
            .await?;
        let read = self.store.get(id).await?;
        let read = read.ok_or_else(|| Failure::new("a claim finds a record, a read does not"))?;
        let times = [
            (met.created_at, read.created_at),
            (met.expires_at, read.expires_at),
        ];
        let early = |(told, exact): (StoreTime, StoreTime)| {
            told <= exact && exact.since(told) <= Duration::from_secs(1)
        };
        ensure!(
            met.owner == read.owner && times.into_iter().all(early),
            "a claim finds another record than a read: {met:?}, {read:?}"
        );
        Ok(read)
    }

    /// Wins the claim, finishes it with the answer, and returns it.
    pub(super) async fn finish(&self, claim: &Claim, answer: &Answer) -> Result<(), Failure> {
        self.win(claim).await?;
        Ok(self.store.complete(&claim.id, claim.owner, answer).await?)
    }

    /// Renews one lease.
    pub(super) async fn renew(
        &self,
        id: &RecordId,
        owner: Uuid,
        lease: Duration,
    ) -> Result<Renewed, Failure> {
        let renewal = Renewal {
            id: id.clone(),
            owner,
            lease,
        };
        match self.store.renew(&[renewal]).await?[..] {
            [renewed] => Ok(renewed),
            ref answers => Err(Failure::new(format!(
                "one renewal was answered {} times",
                answers.len()
            ))),
        }
    }
}

/// [`Claimed::Won`] with its parts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Won {
    pub(super) attempt: u32,
    pub(super) steps: Option<Bytes>,
}

/// What every first claim is answered.
pub(super) const FIRST: Won = Won {
    attempt: 1,
    steps: None,
};

pub(super) fn won(claimed: Claimed) -> Result<Won, Failure> {
    match claimed {
        Claimed::Won { attempt, steps } => Ok(Won { attempt, steps }),
        Claimed::Standing(record) => Err(Failure::new(format!(
            "the claim should be won, but a record stands there: {:?}",
            record.state
        ))),
    }
}

pub(super) fn standing(claimed: Claimed) -> Result<Record, Failure> {
    match claimed {
        Claimed::Standing(record) => Ok(*record),
        Claimed::Won { attempt, .. } => Err(Failure::new(format!(
            "the claim was won as attempt {attempt}, but a live record should stand there"
        ))),
    }
}

/// The end of a running record's lease.
pub(super) fn lease_end(record: &Record) -> Result<StoreTime, Failure> {
    match record.state {
        State::Running { locked_until } => Ok(locked_until),
        State::Finished { .. } => Err(Failure::new("the record should be running, it is finished")),
    }
}

/// The answer of a finished record.
pub(super) fn answer_of(record: Record) -> Result<Answer, Failure> {
    match record.state {
        State::Finished { answer, .. } => Ok(answer),
        State::Running { .. } => Err(Failure::new("the record should be finished, it is running")),
    }
}

/// Whether two moments are so near to each other that only the length of a call is between them.
pub(super) fn near(one: StoreTime, other: StoreTime) -> bool {
    one.since(other).max(other.since(one)) < Duration::from_secs(30)
}

pub(super) fn is_lost<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::LeaseLost))
}

pub(super) fn id(key: &str) -> RecordId {
    RecordId::new("alice", key, "POST /orders")
}

/// A fingerprint made of one hexadecimal digit.
pub(super) fn fingerprint(digit: char) -> String {
    digit.to_string().repeat(64)
}

/// A claim by a new owner: an hour's TTL, an hour's lease, no takeover.
pub(super) fn claim(key: &str) -> Claim {
    Claim {
        id: id(key),
        fingerprint: fingerprint('a'),
        also_accepted: None,
        route: "POST /orders shop::create_order".to_owned(),
        owner: Uuid::new_v4(),
        ttl: LONG,
        lease: LONG,
        takeover: Takeover::Never,
    }
}

/// The same by another owner, who takes over what is abandoned.
pub(super) fn taker(key: &str) -> Claim {
    Claim {
        takeover: Takeover::Abandoned,
        ..claim(key)
    }
}

/// A small answer.
pub(super) fn answer(body: &str) -> Answer {
    Answer::Kept(StoredResponse {
        code: 201,
        headers: vec![("content-type".to_owned(), b"text/plain".to_vec())],
        body: Some(Bytes::copy_from_slice(body.as_bytes())),
    })
}

/// Starts all calls at one barrier and gives their results in order.
pub(super) async fn race<T, F>(calls: Vec<F>) -> Result<Vec<T>, Failure>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let barrier = Arc::new(Barrier::new(calls.len()));
    let tasks: Vec<_> = calls
        .into_iter()
        .map(|call| {
            let barrier = Arc::clone(&barrier);
            tokio::spawn(async move {
                barrier.wait().await;
                call.await
            })
        })
        .collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await?);
    }
    Ok(results)
}

/// Twenty claims at once, over two handles: how they ended, each with its claim.
pub(super) async fn race_claims(
    stores: &[Arc<dyn Store>],
    claims: impl IntoIterator<Item = Claim>,
) -> Result<Vec<(Claim, Claimed)>, Failure> {
    let calls = claims
        .into_iter()
        .zip(stores.iter().cycle().cloned())
        .map(|(claim, store)| async move {
            let claimed = store.claim(&claim).await;
            (claim, claimed)
        })
        .collect();
    let mut ended = Vec::new();
    for (claim, claimed) in race(calls).await? {
        ended.push((claim, claimed?));
    }
    Ok(ended)
}

/// The one winner of a race, checked against what the others saw.
pub(super) fn one_winner(ended: Vec<(Claim, Claimed)>) -> Result<(Claim, Won), Failure> {
    let mut winner = None;
    let mut losers = Vec::new();
    for (claim, claimed) in ended {
        match claimed {
            Claimed::Won { attempt, steps } => {
                ensure!(
                    winner.replace((claim, Won { attempt, steps })).is_none(),
                    "two simultaneous claims were won"
                );
            }
            Claimed::Standing(record) => losers.push(record),
        }
    }
    let Some((claim, won)) = winner else {
        return Err(Failure::new("none of the simultaneous claims was won"));
    };
    for record in losers {
        ensure!(
            record.owner == claim.owner && record.attempt == won.attempt,
            "a claim that lost saw another record than the winner's"
        );
        lease_end(&record)?;
    }
    Ok((claim, won))
}
