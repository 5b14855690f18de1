//! A key whose claim, effect and answer are one commit: two processes, and the database.
//!
//! As in [`leased`](crate::leased) there is no clock: the database may end any open transaction at any
//! moment, because its owner is gone or has been silent for too long, and a process may do nothing
//! for as long as it likes.

use stateright::{Model, Property};
use std::collections::{BTreeMap, BTreeSet};

/// How many handlers are started at most.
const ATTEMPTS: u8 = 3;

pub(crate) const ROWS_ARE_ANSWERS: &str = "rows and answers are one";
pub(crate) const ONE_ANSWER: &str = "one answer, and it is the one that stands";
pub(crate) const NOT_STUCK: &str = "nothing is stuck";

/// One request's transaction.
type Owner = u8;

/// What is taken out of the protocol to see that it is missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Nothing.
    None,
    /// The handler's writes are committed apart from the answer.
    TwoCommits,
    /// The answer is sent before it is committed.
    AnswerBeforeCommit,
    /// A claim does not see that another transaction has taken the key.
    NoUniqueKey,
    /// The database does not end a transaction whose owner is silent or gone.
    TransactionForEver,
}

/// The call that ends a transaction, on its way to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Call {
    /// With what the handler has written, and its answer.
    Commit(Owner),
    /// With the answer alone.
    KeepAnswerOnly(Owner),
}

impl Call {
    fn owner(self) -> Owner {
        match self {
            Call::Commit(owner) | Call::KeepAnswerOnly(owner) => owner,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    Handling { owner: Owner, written: bool },
    Ending(Owner),
}

/// A committed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Committed {
    answer: Owner,
    with_row: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// Open transactions with a claim, and whether a row was written in them.
    open: BTreeMap<Owner, bool>,
    record: Option<Committed>,
    /// Rows that handlers wrote, as they are committed.
    rows: u8,
    processes: [Phase; 2],
    network: BTreeSet<Call>,
    started: Owner,
    /// Answers that clients were given.
    given: BTreeSet<Owner>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A request arrives, and a transaction with its claim is opened; whether the process hears of it.
    BeginClaimed(usize, bool),
    /// The handler writes its row.
    Write(usize),
    Commit(usize),
    KeepAnswerOnly(usize),
    Rollback(usize),
    /// The time budget of the call is over: the connection is closed.
    TimeOut(usize),
    Crash(usize),
    /// A call arrives; whether its answer arrives, too.
    Deliver(Call, bool),
    Lose(Call),
    /// The database ends a transaction and rolls it back.
    EndTransaction(Owner),
}

#[derive(Clone, Debug)]
pub(crate) struct Transactional {
    pub(crate) flaw: Flaw,
}

impl Transactional {
    fn begin_claimed(&self, state: &mut State, index: usize, heard: bool) -> Option<()> {
        if let Some(record) = state.record {
            return heard.then(|| {
                state.given.insert(record.answer);
            });
        }
        if !state.open.is_empty() && self.flaw != Flaw::NoUniqueKey {
            // 409
            return None;
        }
        let owner = state.started;
        state.started += 1;
        state.open.insert(owner, false);
        if heard {
            state.processes[index] = Phase::Handling {
                owner,
                written: false,
            };
        }
        Some(())
    }

    fn write(&self, state: &mut State, index: usize) -> Option<()> {
        let Phase::Handling { owner, .. } = state.processes[index] else {
            return None;
        };
        let Some(written) = state.open.get_mut(&owner) else {
            // The transaction has been ended: the handler fails, 503.
            state.processes[index] = Phase::Idle;
            return Some(());
        };
        if self.flaw == Flaw::TwoCommits {
            state.rows += 1;
        } else {
            *written = true;
        }
        state.processes[index] = Phase::Handling {
            owner,
            written: true,
        };
        Some(())
    }

    fn end(&self, state: &mut State, index: usize, call: fn(Owner) -> Call) -> Option<()> {
        let Phase::Handling { owner, .. } = state.processes[index] else {
            return None;
        };
        state.processes[index] = Phase::Ending(owner);
        state.network.insert(call(owner));
        if self.flaw == Flaw::AnswerBeforeCommit {
            state.given.insert(owner);
        }
        Some(())
    }

    fn deliver(&self, state: &mut State, call: Call, heard: bool) {
        state.network.remove(&call);
        let owner = call.owner();
        let open = state.open.remove(&owner);
        if let Some(written) = open {
            let with_row = match call {
                Call::Commit(_) => {
                    state.rows += u8::from(written);
                    true
                }
                Call::KeepAnswerOnly(_) => false,
            };
            state.record = Some(Committed {
                answer: owner,
                with_row,
            });
        }
        if heard
            && let Some(index) = state
                .processes
                .iter()
                .position(|p| *p == Phase::Ending(owner))
        {
            state.processes[index] = Phase::Idle;
            // Else 503.
            if open.is_some() {
                state.given.insert(owner);
            }
        }
    }

    /// Whether whoever asks for the key gets another answer than 409 once all that is on its way has
    /// arrived, even if no process does anything any more.
    fn settles(&self, state: &State) -> bool {
        let mut state = state.clone();
        for call in state.network.clone() {
            self.deliver(&mut state, call, true);
        }
        if self.flaw != Flaw::TransactionForEver {
            state.open.clear();
        }
        state.record.is_some() || state.open.is_empty()
    }
}

impl Model for Transactional {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            open: BTreeMap::new(),
            record: None,
            rows: 0,
            processes: [Phase::Idle; 2],
            network: BTreeSet::new(),
            started: 0,
            given: BTreeSet::new(),
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for (index, phase) in state.processes.iter().enumerate() {
            match phase {
                Phase::Idle if state.started < ATTEMPTS => {
                    steps.extend([
                        Step::BeginClaimed(index, true),
                        Step::BeginClaimed(index, false),
                    ]);
                }
                Phase::Idle => {}
                Phase::Handling { written, .. } => {
                    steps.extend([Step::KeepAnswerOnly(index), Step::Rollback(index)]);
                    steps.push(match written {
                        true => Step::Commit(index),
                        false => Step::Write(index),
                    });
                }
                Phase::Ending(_) => steps.push(Step::TimeOut(index)),
            }
            if *phase != Phase::Idle {
                steps.push(Step::Crash(index));
            }
        }
        for call in &state.network {
            steps.extend([
                Step::Deliver(*call, true),
                Step::Deliver(*call, false),
                Step::Lose(*call),
            ]);
        }
        if self.flaw != Flaw::TransactionForEver {
            steps.extend(state.open.keys().map(|owner| Step::EndTransaction(*owner)));
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::BeginClaimed(index, heard) => self.begin_claimed(&mut state, index, heard)?,
            Step::Write(index) => self.write(&mut state, index)?,
            Step::Commit(index) => self.end(&mut state, index, Call::Commit)?,
            Step::KeepAnswerOnly(index) => self.end(&mut state, index, Call::KeepAnswerOnly)?,
            Step::Rollback(index) => {
                if let Phase::Handling { owner, .. } = state.processes[index] {
                    state.open.remove(&owner);
                }
                state.processes[index] = Phase::Idle;
            }
            // What is left open, the database ends.
            Step::TimeOut(index) | Step::Crash(index) => state.processes[index] = Phase::Idle,
            Step::Deliver(call, heard) => self.deliver(&mut state, call, heard),
            Step::Lose(call) => {
                state.network.remove(&call);
            }
            Step::EndTransaction(owner) => {
                state.open.remove(&owner);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ROWS_ARE_ANSWERS, |_, state: &State| {
                state.rows == u8::from(state.record.is_some_and(|record| record.with_row))
            }),
            Property::always(ONE_ANSWER, |_, state: &State| {
                let standing = state.record.map(|record| record.answer);
                state.given.iter().all(|given| Some(*given) == standing)
            }),
            Property::always(NOT_STUCK, |model: &Self, state: &State| {
                model.settles(state)
            }),
            Property::sometimes("an answer is given with its row", |_, state: &State| {
                state.rows == 1 && !state.given.is_empty()
            }),
            Property::sometimes("all attempts are started", |_, state: &State| {
                state.started == ATTEMPTS
            }),
            Property::sometimes(
                "an owner goes on without its transaction",
                |_, state: &State| {
                    state.processes.iter().any(|phase| match phase {
                        Phase::Handling { owner, .. } => !state.open.contains_key(owner),
                        Phase::Idle | Phase::Ending(_) => false,
                    })
                },
            ),
        ]
    }
}
