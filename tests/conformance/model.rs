//! Any sequence of calls, compared with a model of the claim protocol that fits on a screen.
//!
//! Time is an input like any other: a TTL or lease is either over as soon as it is written or not
//! over before the test ends, so that the model needs no clock.

use crate::support::{HOUR, answer, answer_of};
use bytes::Bytes;
use idem_runtime::{
    record::{Answer, RecordId, State},
    store::{AbandonedQuery, Claim, Claimed, Renewal, Renewed, Store, StoreError, Takeover},
    testing::conformance::Factory,
};
use proptest::{
    prelude::*,
    test_runner::{Config, TestCaseResult, TestRunner},
};
use std::{collections::BTreeMap, time::Duration};
use uuid::Uuid;

/// `tests!(name, factory, cases)`: a `#[test]` that plays so many sequences.
macro_rules! tests {
    ($name:ident, $factory:expr, $cases:expr) => {
        #[test]
        fn $name() {
            $crate::model::check($factory, $cases);
        }
    };
}
pub(crate) use tests;

const KEYS: usize = 2;
const OWNERS: usize = 4;

#[derive(Debug, Clone)]
enum Call {
    Claim {
        key: usize,
        owner: usize,
        fingerprint: char,
        also_accepted: Option<char>,
        ttl: Span,
        lease: Span,
        takeover: bool,
    },
    Complete {
        key: usize,
        owner: usize,
        body: u8,
    },
    Release {
        key: usize,
        owner: usize,
    },
    SaveSteps {
        key: usize,
        owner: usize,
        steps: u8,
    },
    Renew {
        renewals: Vec<(usize, usize, Span)>,
    },
    TakeAbandoned {
        owner: usize,
        lease: Span,
        limit: u32,
    },
    Purge,
    Forget {
        key: usize,
    },
    Get {
        key: usize,
    },
}

/// How long a TTL or lease is, to a model without a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Span {
    Over,
    Lasting,
}

impl Span {
    fn duration(self) -> Duration {
        match self {
            Span::Over => Duration::ZERO,
            Span::Lasting => HOUR,
        }
    }
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let key = 0..KEYS;
    let owner = 0..OWNERS;
    let span = prop_oneof![Just(Span::Over), Just(Span::Lasting)];
    let ttl = prop_oneof![1 => Just(Span::Over), 4 => Just(Span::Lasting)];
    let fingerprint = prop_oneof![3 => Just('a'), 1 => Just('b')];
    let claim = (
        key.clone(),
        owner.clone(),
        fingerprint.clone(),
        proptest::option::of(fingerprint),
        ttl,
        span.clone(),
        any::<bool>(),
    )
        .prop_map(
            |(key, owner, fingerprint, also_accepted, ttl, lease, takeover)| Call::Claim {
                key,
                owner,
                fingerprint,
                also_accepted,
                ttl,
                lease,
                takeover,
            },
        );
    let one = (key.clone(), owner.clone());
    let renewal = (key.clone(), owner.clone(), span.clone());
    let call = prop_oneof![
        8 => claim,
        3 => (one.clone(), any::<u8>())
            .prop_map(|((key, owner), body)| Call::Complete { key, owner, body }),
        2 => one.clone().prop_map(|(key, owner)| Call::Release { key, owner }),
        2 => (one, any::<u8>())
            .prop_map(|((key, owner), steps)| Call::SaveSteps { key, owner, steps }),
        2 => proptest::collection::vec(renewal, 0..4).prop_map(|renewals| Call::Renew { renewals }),
        2 => (owner, span, 0..3_u32)
            .prop_map(|(owner, lease, limit)| Call::TakeAbandoned { owner, lease, limit }),
        1 => Just(Call::Purge),
        1 => key.clone().prop_map(|key| Call::Forget { key }),
        2 => key.prop_map(|key| Call::Get { key }),
    ];
    proptest::collection::vec(call, 1..30)
}

/// What the model knows of a record.
#[derive(Debug, Clone, PartialEq)]
struct Modelled {
    owner: usize,
    fingerprint: char,
    attempt: u32,
    ttl: Span,
    lease: Span,
    steps: Option<u8>,
    answer: Option<u8>,
}

impl Modelled {
    fn is_running(&self) -> bool {
        self.answer.is_none()
    }

    fn is_live(&self) -> bool {
        self.ttl == Span::Lasting || (self.is_running() && self.lease == Span::Lasting)
    }

    fn is_abandoned(&self) -> bool {
        self.is_running() && self.lease == Span::Over && self.ttl == Span::Lasting
    }
}

/// One sequence: names of its own, so that all sequences can share a store.
struct Play<'s> {
    store: &'s dyn Store,
    name: String,
    owners: [Uuid; OWNERS],
    model: BTreeMap<usize, Modelled>,
}

fn fingerprint(digit: char) -> String {
    digit.to_string().repeat(64)
}

fn lost(result: Result<(), StoreError>) -> bool {
    match result {
        Ok(()) => false,
        Err(StoreError::LeaseLost) => true,
        Err(error) => panic!("{error}"),
    }
}

impl Play<'_> {
    fn id(&self, key: usize) -> RecordId {
        RecordId::new(&self.name, format!("key-{key}"), "POST /orders")
    }

    fn live(&self, key: usize) -> Option<&Modelled> {
        self.model.get(&key).filter(|record| record.is_live())
    }

    /// Whether this owner may do something to the running record. `None`: the record is expired
    /// but may not have been removed yet, and both answers are right.
    fn may(&self, key: usize, owner: usize) -> Option<bool> {
        match self.model.get(&key) {
            Some(record) if record.owner == owner && record.is_running() => {
                record.is_live().then_some(true)
            }
            _ => Some(false),
        }
    }

    /// Checks the outcome of an owner's call and says whether the model has to follow it.
    fn followed(&self, key: usize, owner: usize, was_lost: bool) -> Result<bool, TestCaseError> {
        if let Some(allowed) = self.may(key, owner) {
            prop_assert_eq!(was_lost, !allowed);
        }
        Ok(!was_lost)
    }

    fn same(&self, record: &idem_runtime::record::Record, modelled: &Modelled) -> TestCaseResult {
        prop_assert_eq!(record.owner, self.owners[modelled.owner]);
        prop_assert_eq!(&record.fingerprint, &fingerprint(modelled.fingerprint));
        prop_assert_eq!(record.attempt, modelled.attempt);
        let steps = modelled.steps.map(|steps| Bytes::from(vec![steps]));
        prop_assert_eq!(&record.steps, &steps);
        if let State::Running { locked_until } = record.state {
            prop_assert_eq!(locked_until > record.now, modelled.lease == Span::Lasting);
        }
        prop_assert_eq!(
            record.expires_at > record.now,
            modelled.ttl == Span::Lasting
        );
        prop_assert_eq!(answer_of(record.clone()), modelled.answer.map(body));
        Ok(())
    }

    async fn call(&mut self, call: &Call) -> TestCaseResult {
        match call {
            Call::Claim {
                key,
                owner,
                fingerprint: digit,
                also_accepted,
                ttl,
                lease,
                takeover,
            } => {
                let claimed = self
                    .store
                    .claim(&Claim {
                        id: self.id(*key),
                        fingerprint: fingerprint(*digit),
                        also_accepted: also_accepted.map(fingerprint),
                        route: format!("POST /orders {}", self.name),
                        owner: self.owners[*owner],
                        ttl: ttl.duration(),
                        lease: lease.duration(),
                        takeover: if *takeover {
                            Takeover::Abandoned
                        } else {
                            Takeover::Never
                        },
                    })
                    .await
                    .unwrap();
                let expected = match self.live(*key).cloned() {
                    None => Some(Modelled {
                        owner: *owner,
                        fingerprint: *digit,
                        attempt: 1,
                        ttl: *ttl,
                        lease: *lease,
                        steps: None,
                        answer: None,
                    }),
                    Some(standing) if standing.is_running() && standing.owner == *owner => {
                        Some(standing)
                    }
                    Some(standing)
                        if *takeover
                            && standing.is_abandoned()
                            && (standing.fingerprint == *digit
                                || Some(standing.fingerprint) == *also_accepted) =>
                    {
                        Some(Modelled {
                            owner: *owner,
                            attempt: standing.attempt + 1,
                            lease: *lease,
                            ..standing
                        })
                    }
                    Some(_) => None,
                };
                match (claimed, expected) {
                    (Claimed::Won { attempt, steps }, Some(record)) => {
                        prop_assert_eq!(attempt, record.attempt);
                        prop_assert_eq!(steps, record.steps.map(|steps| Bytes::from(vec![steps])));
                        self.model.insert(*key, record);
                    }
                    (Claimed::Standing(record), None) => {
                        self.same(&record, &self.model[key])?;
                    }
                    (claimed, expected) => {
                        prop_assert!(false, "{:?}, the model says {:?}", claimed, expected);
                    }
                }
            }
            Call::Complete {
                key,
                owner,
                body: number,
            } => {
                let (id, token) = (self.id(*key), self.owners[*owner]);
                let completed = self.store.complete(&id, token, &body(*number)).await;
                let was_lost = lost(completed);
                let repeated = self
                    .model
                    .get(key)
                    .filter(|record| record.owner == *owner && !record.is_running());
                match repeated {
                    Some(record) => prop_assert!(!(was_lost && record.is_live())),
                    None => {
                        if self.followed(*key, *owner, was_lost)? {
                            let record = self.model.get_mut(key).unwrap();
                            record.answer = Some(*number);
                            record.steps = None;
                        }
                    }
                }
            }
            Call::Release { key, owner } => {
                let released = self
                    .store
                    .release(&self.id(*key), self.owners[*owner])
                    .await;
                if self.followed(*key, *owner, lost(released))? {
                    self.model.remove(key);
                }
            }
            Call::SaveSteps { key, owner, steps } => {
                let kept = Bytes::from(vec![*steps]);
                let (id, token) = (self.id(*key), self.owners[*owner]);
                let saved = self.store.save_steps(&id, token, &kept).await;
                if self.followed(*key, *owner, lost(saved))? {
                    self.model.get_mut(key).unwrap().steps = Some(*steps);
                }
            }
            Call::Renew { renewals } => {
                // Two renewals of one record in one batch have no order that a store promises.
                let mut keys: Vec<_> = renewals.iter().map(|(key, ..)| *key).collect();
                keys.sort_unstable();
                keys.dedup();
                let renewals: Vec<_> = keys
                    .into_iter()
                    .filter_map(|key| renewals.iter().find(|(other, ..)| *other == key))
                    .collect();
                let batch: Vec<_> = renewals
                    .iter()
                    .map(|(key, owner, lease)| Renewal {
                        id: self.id(*key),
                        owner: self.owners[*owner],
                        lease: lease.duration(),
                    })
                    .collect();
                let answers = self.store.renew(&batch).await.unwrap();
                prop_assert_eq!(answers.len(), batch.len());
                for ((key, owner, lease), renewed) in renewals.into_iter().zip(answers) {
                    if self.followed(*key, *owner, renewed == Renewed::Lost)? {
                        self.model.get_mut(key).unwrap().lease = *lease;
                    }
                }
            }
            Call::TakeAbandoned {
                owner,
                lease,
                limit,
            } => {
                let taken = self
                    .store
                    .take_abandoned(&AbandonedQuery {
                        handlers: vec![self.name.clone()],
                        owner: self.owners[*owner],
                        lease: lease.duration(),
                        limit: *limit,
                    })
                    .await
                    .unwrap();
                let abandoned = self.model.values().filter(|r| r.is_abandoned()).count();
                prop_assert_eq!(taken.len(), abandoned.min(*limit as usize));
                for record in taken {
                    let key = (0..KEYS).find(|key| self.id(*key) == record.id).unwrap();
                    let modelled = self.model.get_mut(&key).unwrap();
                    prop_assert!(modelled.is_abandoned());
                    modelled.owner = *owner;
                    modelled.lease = *lease;
                    let modelled = self.model[&key].clone();
                    self.same(&record, &modelled)?;
                }
            }
            Call::Purge => {
                self.store.purge_expired(10_000).await.unwrap();
                self.model.retain(|_, record| record.is_live());
            }
            Call::Forget { key } => {
                let was_there = self.store.forget(&self.id(*key)).await.unwrap();
                match self.model.remove(key) {
                    Some(record) if !record.is_live() => {}
                    record => prop_assert_eq!(was_there, record.is_some()),
                }
            }
            Call::Get { key } => {
                let read = self.store.get(&self.id(*key)).await.unwrap();
                match (read, self.live(*key)) {
                    (Some(record), Some(modelled)) => self.same(&record, modelled)?,
                    (None, None) => {}
                    (read, modelled) => {
                        prop_assert!(false, "{:?}, the model says {:?}", read, modelled);
                    }
                }
            }
        }
        Ok(())
    }
}

fn body(number: u8) -> Answer {
    answer(&number.to_string())
}

/// Plays `cases` sequences of calls on one store of the factory.
pub(crate) fn check(factory: impl Factory, cases: u32) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(factory.fresh());
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(&calls(), |calls| {
        runtime.block_on(async {
            let mut play = Play {
                store: &*store,
                name: Uuid::new_v4().to_string(),
                owners: std::array::from_fn(|_| Uuid::new_v4()),
                model: BTreeMap::new(),
            };
            for call in &calls {
                play.call(call).await?;
                // What is over as soon as it is written is over now, on a clock of milliseconds.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Ok(())
        })
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}
