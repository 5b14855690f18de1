//! What happens in one history, all of it following from a seed.

use idem_tests::services::Store;
use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};

/// How long new keys keep coming, in milliseconds.
const REQUESTS_UNTIL: u64 = 2500;
/// How long clients keep asking for a key, in milliseconds.
const PERSISTENCE: u64 = 1500;
/// When the last faults begin, in milliseconds.
const FAULTS_UNTIL: u64 = 2800;
/// Longest handler, in milliseconds.
pub(crate) const LONGEST_HANDLER: u64 = 1200;

/// A history: times are milliseconds from its beginning.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// What happens to each process but the first, which nothing happens to.
    pub(crate) labs: Vec<Vec<Timed<LabFault>>>,
    /// What happens to the store.
    pub(crate) store: Vec<Timed<StoreFault>>,
    pub(crate) requests: Vec<Timed<Request>>,
}

/// Something, and when it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Timed<T> {
    pub(crate) at: u64,
    pub(crate) what: T,
}

/// What happens to a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LabFault {
    /// `kill -9`; it is started again after so long.
    Kill { away: u64 },
    /// SIGSTOP, and SIGCONT after so long.
    Stop { away: u64 },
    /// SIGTERM, and started again.
    Terminate,
}

/// What happens to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreFault {
    /// The link is cut for so long.
    Cut { away: u64 },
    /// Nothing is answered for so long.
    Freeze { away: u64 },
    /// One server dies without a chance to tidy up, and is started again.
    Restart { server: String },
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// To which process; the first is 0.
    pub(crate) lab: usize,
    pub(crate) path: &'static str,
    pub(crate) key: String,
    /// How long its handler takes.
    pub(crate) delay: u64,
    /// After how long the client resets its connection, if it does.
    pub(crate) leaves: Option<u64>,
}

impl Plan {
    pub(crate) fn of(seed: u64, store: Store) -> Plan {
        let mut dice = StdRng::seed_from_u64(seed);
        let faulty: usize = dice.random_range(1..=2);
        let labs = (0..faulty).map(|_| lab_faults(&mut dice)).collect();
        let store = store_faults(&mut dice, store);
        // Many keys, of which some are new at any time: only a key's first request runs its handler.
        let requests = (0..dice.random_range(8..=16_usize))
            .flat_map(|index| {
                let path = *pick(&mut dice, &["/default", "/default", "/rerun", "/hold"]);
                let born = dice.random_range(0..REQUESTS_UNTIL);
                (0..dice.random_range(2..=6))
                    .map(|_| Timed {
                        at: born + dice.random_range(0..PERSISTENCE),
                        what: Request {
                            lab: dice.random_range(0..=faulty),
                            path,
                            key: format!("{}-{index}", &path[1..]),
                            delay: dice.random_range(0..=LONGEST_HANDLER),
                            leaves: dice
                                .random_bool(0.2)
                                .then(|| dice.random_range(0..LONGEST_HANDLER)),
                        },
                    })
                    .collect::<Vec<_>>()
            })
            .collect();
        Plan {
            labs,
            store,
            requests,
        }
    }
}

fn pick<'a, T>(dice: &mut impl Rng, choices: &'a [T]) -> &'a T {
    &choices[dice.random_range(0..choices.len())]
}

fn lab_faults(dice: &mut impl Rng) -> Vec<Timed<LabFault>> {
    let mut faults = Vec::new();
    let mut at = dice.random_range(100..1500);
    while at < FAULTS_UNTIL {
        let what = match dice.random_range(0..3) {
            0 => LabFault::Kill {
                away: dice.random_range(0..800),
            },
            // The lease is one second.
            1 => LabFault::Stop {
                away: dice.random_range(1100..2200),
            },
            _ => LabFault::Terminate,
        };
        let lasts = match &what {
            LabFault::Kill { away } | LabFault::Stop { away } => *away,
            LabFault::Terminate => LONGEST_HANDLER,
        };
        faults.push(Timed { at, what });
        at += lasts + dice.random_range(300..1500);
    }
    faults
}

fn store_faults(dice: &mut impl Rng, store: Store) -> Vec<Timed<StoreFault>> {
    (0..dice.random_range(0..=2))
        .map(|turn| {
            let what = match (dice.random_range(0..3), store) {
                (0, _) | (2, Store::Sqlite) => StoreFault::Cut {
                    away: dice.random_range(50..1500),
                },
                (1, _) => StoreFault::Freeze {
                    away: dice.random_range(50..1500),
                },
                (_, Store::RedisCluster) => StoreFault::Restart {
                    server: format!("redis-cluster-{}", dice.random_range(1..=3)),
                },
                (_, store) => StoreFault::Restart {
                    server: store.name().to_owned(),
                },
            };
            Timed {
                at: turn * 1800 + dice.random_range(100..1000),
                what,
            }
        })
        .collect()
}

#[test]
fn a_seed_says_everything_and_every_fault_comes_up() {
    let plans: Vec<_> = (0..200).map(|seed| Plan::of(seed, Store::Redis)).collect();
    for (seed, plan) in (0..).zip(&plans) {
        assert_eq!(&Plan::of(seed, Store::Redis), plan);
    }
    let faults = || plans.iter().flat_map(|plan| plan.labs.iter().flatten());
    let store = || plans.iter().flat_map(|plan| &plan.store);
    assert!(faults().any(|fault| matches!(fault.what, LabFault::Kill { .. })));
    assert!(faults().any(|fault| matches!(fault.what, LabFault::Stop { .. })));
    assert!(faults().any(|fault| fault.what == LabFault::Terminate));
    assert!(store().any(|fault| matches!(fault.what, StoreFault::Cut { .. })));
    assert!(store().any(|fault| matches!(fault.what, StoreFault::Freeze { .. })));
    assert!(store().any(|fault| matches!(fault.what, StoreFault::Restart { .. })));
    let mut requests = plans.iter().flat_map(|plan| &plan.requests);
    assert!(requests.any(|request| request.what.leaves.is_some()));
}
