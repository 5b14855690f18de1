//! A key whose claim is a lease: two processes, and the store that decides between them.
//!
//! There is no clock. A lease that runs may run out at any moment, a message that is on its way may
//! arrive at any later one or never, and a process may do nothing for as long as it likes: that is
//! what a pause is, after which it goes on as if nothing had been. So whatever the lengths of leases,
//! pauses and time budgets are, the order of events that they lead to is among those that are checked.
//!
//! What is bounded: the handlers that are started, the calls that are on their way at once, and each
//! process begins nothing new before its background repair is done.
//!
//! The transitions are named as in the code: the calls as in `store::Store`, what the processes do as
//! in `engine`, `repair`, `lease` and `reconcile`.

use stateright::{Model, Property};
use std::collections::BTreeSet;

/// How many times a handler is started at most: once and two more times.
const ATTEMPTS: u8 = 3;

/// How many calls are on their way at once at most, those included that arrive late.
const CALLS: usize = 2;

/// How often `ReleaseUncertain` may find no record before it gives up.
const ABSENCES: u8 = 2;

pub(crate) const AT_MOST_ONE_EFFECT: &str = "at most one effect on a holding route";
pub(crate) const ONE_ANSWER: &str = "one answer of a saved record";
pub(crate) const NOT_STUCK: &str = "nothing is stuck";

/// One claim and everything that is done under it: which request it belongs to, and its fencing token.
type Owner = u8;

/// What a route does with work whose owner has died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Hold,
    Rerun,
    Reconcile,
}

/// What is taken out of the protocol to see that it is missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Nothing.
    None,
    /// The store compares no fencing tokens at all.
    NoFencing,
    /// `complete` does not look whose record it finishes.
    UncheckedComplete,
    /// `release` does not look whose record it frees.
    UncheckedRelease,
    /// A claim takes abandoned work over although the route says to hold it.
    TakeoverInSpiteOfHold,
    /// Leases do not run out.
    LeaseForEver,
}

/// What stands in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Record {
    Absent,
    Running {
        owner: Owner,
        lease_runs: bool,
    },
    /// The answer is that of one owner.
    Finished {
        owner: Owner,
        answer: Owner,
    },
}

/// A call on its way to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Call {
    Claim {
        owner: Owner,
        repeated: bool,
    },
    Complete(Owner),
    Release(Owner),
    /// A claim for an answer whose own claim is gone.
    ClaimAnew(Owner),
    CompleteAnew {
        owner: Owner,
        answer: Owner,
    },
}

/// What the store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Won,
    Standing,
    Done,
    LeaseLost,
}

/// What a process is doing for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    Idle,
    Claiming {
        owner: Owner,
        repeated: bool,
    },
    Handling {
        owner: Owner,
        done: bool,
    },
    Completing(Owner),
    Releasing(Owner),
    /// The reconciler has taken the record and is about to ask.
    Asking(Owner),
    /// It has asked, and resolves the record.
    Resolving(Owner),
}

/// What a process goes on trying in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Repair {
    Complete(Owner),
    /// The claim is gone: the answer is saved under another, if nobody has the key.
    Anew {
        answer: Owner,
        claim: Option<Owner>,
    },
    Release(Owner),
    /// How often the record may still be found absent: the claim may arrive yet.
    ReleaseUncertain {
        owner: Owner,
        absences_left: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) phase: Phase,
    pub(crate) repair: Option<Repair>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct State {
    pub(crate) record: Record,
    pub(crate) processes: [Process; 2],
    pub(crate) network: BTreeSet<Call>,
    /// Handlers that were started.
    pub(crate) started: u8,
    /// What handlers have done to the world.
    pub(crate) effects: u8,
    /// Answers that clients were given of a saved record.
    pub(crate) given: BTreeSet<Owner>,
    /// Answers that they were given although saving had failed so far.
    pub(crate) unsaved: BTreeSet<Owner>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A request arrives, and its key is claimed.
    Claim(usize),
    /// The handler does to the world what it is there for.
    Effect(usize),
    /// The handler has answered.
    Complete(usize),
    /// The handler has said that nothing happened.
    Release(usize),
    /// The lease keeper renews the lease of what the process holds.
    Renew(usize),
    /// The time budget of a store call is over.
    TimeOut(usize),
    /// The background repair sends its call once more.
    Repair(usize),
    /// The reconciler takes an abandoned record; whether it hears of it.
    TakeAbandoned(usize, bool),
    /// It asks what became of the work.
    Ask(usize),
    /// It is told that this is not known yet.
    Pending(usize),
    /// The process dies.
    Crash(usize),
    /// A call arrives at the store; whether its answer arrives, too.
    Deliver(Call, bool),
    /// A call does not arrive.
    Lose(Call),
    LeaseRunsOut,
}

#[derive(Clone, Debug)]
pub(crate) struct Leased {
    pub(crate) policy: Policy,
    pub(crate) flaw: Flaw,
}

impl Call {
    fn owner(self) -> Owner {
        match self {
            Call::Claim { owner, .. }
            | Call::Complete(owner)
            | Call::Release(owner)
            | Call::ClaimAnew(owner)
            | Call::CompleteAnew { owner, .. } => owner,
        }
    }

    fn owners_mut(&mut self) -> impl Iterator<Item = &mut Owner> {
        let (owner, answer) = match self {
            Call::Claim { owner, .. }
            | Call::Complete(owner)
            | Call::Release(owner)
            | Call::ClaimAnew(owner) => (owner, None),
            Call::CompleteAnew { owner, answer } => (owner, Some(answer)),
        };
        std::iter::once(owner).chain(answer)
    }
}

impl Record {
    fn taken_by(owner: Owner) -> Record {
        Record::Running {
            owner,
            lease_runs: true,
        }
    }

    fn lease_runs_out(&mut self) {
        if let Record::Running { lease_runs, .. } = self {
            *lease_runs = false;
        }
    }

    fn owners_mut(&mut self) -> impl Iterator<Item = &mut Owner> {
        let (owner, answer) = match self {
            Record::Absent => (None, None),
            Record::Running { owner, .. } => (Some(owner), None),
            Record::Finished { owner, answer } => (Some(owner), Some(answer)),
        };
        owner.into_iter().chain(answer)
    }
}

impl Process {
    const NEW: Process = Process {
        phase: Phase::Idle,
        repair: None,
    };

    /// The claims that it holds or believes to hold.
    fn owners_mut(&mut self) -> impl Iterator<Item = &mut Owner> {
        let phase = match &mut self.phase {
            Phase::Idle => None,
            Phase::Claiming { owner, .. }
            | Phase::Handling { owner, .. }
            | Phase::Completing(owner)
            | Phase::Releasing(owner)
            | Phase::Asking(owner)
            | Phase::Resolving(owner) => Some(owner),
        };
        let (repair, anew) = match &mut self.repair {
            None => (None, None),
            Some(
                Repair::Complete(owner)
                | Repair::Release(owner)
                | Repair::ReleaseUncertain { owner, .. },
            ) => (Some(owner), None),
            Some(Repair::Anew { answer, claim }) => (Some(answer), claim.as_mut()),
        };
        phase.into_iter().chain(repair).chain(anew)
    }

    /// The claim that its lease keeper keeps alive.
    fn held(self) -> Option<Owner> {
        match (self.phase, self.repair) {
            (
                Phase::Handling { owner, .. } | Phase::Completing(owner) | Phase::Releasing(owner),
                _,
            )
            | (_, Some(Repair::Complete(owner) | Repair::Release(owner))) => Some(owner),
            _ => None,
        }
    }
}

impl State {
    /// Whether an answer whose claim is gone can be saved only when another frees the key.
    fn waits_for_another(&self, index: usize) -> bool {
        match (self.processes[index].repair, self.record) {
            (Some(Repair::Anew { claim, .. }), Record::Running { owner, .. }) => {
                claim != Some(owner)
            }
            _ => false,
        }
    }

    /// The owner of the next claim: owners are numbered as in [`State::renamed`].
    fn new_owner(&self) -> Owner {
        self.clone().rename()
    }

    /// Which of the processes is the first, and what owners are called, makes no difference: of all
    /// states that differ in nothing else, one is looked at.
    fn normal(self) -> State {
        let mut swapped = self.clone();
        swapped.processes.swap(0, 1);
        let [mut one, mut other] = [self, swapped];
        one.rename();
        other.rename();
        one.min(other)
    }

    /// Numbers the owners in the order in which they are met, so that one that nothing reminds of any
    /// more leaves its number to the next. Says how many there are.
    fn rename(&mut self) -> Owner {
        let mut names: Vec<Owner> = Vec::new();
        let mut name = |owner: &mut Owner| {
            let known = names.iter().position(|known| known == owner);
            let index = known.unwrap_or_else(|| {
                names.push(*owner);
                names.len() - 1
            });
            *owner = Owner::try_from(index).unwrap_or(Owner::MAX);
        };
        self.record.owners_mut().for_each(&mut name);
        for process in &mut self.processes {
            process.owners_mut().for_each(&mut name);
        }
        for set in [&mut self.given, &mut self.unsaved] {
            *set = std::mem::take(set)
                .into_iter()
                .map(|mut owner| {
                    name(&mut owner);
                    owner
                })
                .collect();
        }
        let calls = std::mem::take(&mut self.network).into_iter();
        self.network = calls
            .map(|mut call| {
                call.owners_mut().for_each(&mut name);
                call
            })
            .collect();
        Owner::try_from(names.len()).unwrap_or(Owner::MAX)
    }

    /// Every answer that a client was given.
    pub(crate) fn answers(&self) -> BTreeSet<Owner> {
        self.given.union(&self.unsaved).copied().collect()
    }

    fn send(&mut self, call: Call) {
        self.network.insert(call);
    }

    fn is_abandoned(&self) -> bool {
        matches!(
            self.record,
            Record::Running {
                lease_runs: false,
                ..
            }
        )
    }
}

/// The store: the conditions that its statements state.
impl Leased {
    fn is_owner(&self, state_owner: Owner, caller: Owner, checked_but_for: Flaw) -> bool {
        state_owner == caller || self.flaw == Flaw::NoFencing || self.flaw == checked_but_for
    }

    fn may_take_over(&self) -> bool {
        self.policy == Policy::Rerun || self.flaw == Flaw::TakeoverInSpiteOfHold
    }

    fn claim(&self, record: &mut Record, caller: Owner, may_take_over: bool) -> Reply {
        match *record {
            Record::Running { owner, .. } if owner == caller => return Reply::Won,
            Record::Absent => {}
            Record::Running {
                lease_runs: false, ..
            } if may_take_over => {}
            Record::Running { .. } | Record::Finished { .. } => return Reply::Standing,
        }
        *record = Record::taken_by(caller);
        Reply::Won
    }

    fn complete(&self, record: &mut Record, caller: Owner, answer: Owner) -> Reply {
        match *record {
            Record::Running { owner, .. }
                if self.is_owner(owner, caller, Flaw::UncheckedComplete) =>
            {
                *record = Record::Finished {
                    owner: caller,
                    answer,
                };
                Reply::Done
            }
            Record::Finished { owner, .. }
                if self.is_owner(owner, caller, Flaw::UncheckedComplete) =>
            {
                Reply::Done
            }
            _ => Reply::LeaseLost,
        }
    }

    fn release(&self, record: &mut Record, caller: Owner) -> Reply {
        match *record {
            Record::Running { owner, .. }
                if self.is_owner(owner, caller, Flaw::UncheckedRelease) =>
            {
                *record = Record::Absent;
                Reply::Done
            }
            _ => Reply::LeaseLost,
        }
    }

    fn renew(&self, record: &mut Record, caller: Owner) {
        if let Record::Running { owner, lease_runs } = record
            && self.is_owner(*owner, caller, Flaw::NoFencing)
        {
            *lease_runs = true;
        }
    }

    fn carry_out(&self, record: &mut Record, call: Call) -> Reply {
        match call {
            Call::Claim { owner, .. } => self.claim(record, owner, self.may_take_over()),
            Call::ClaimAnew(owner) => self.claim(record, owner, false),
            Call::Complete(owner) => self.complete(record, owner, owner),
            Call::CompleteAnew { owner, answer } => self.complete(record, owner, answer),
            Call::Release(owner) => self.release(record, owner),
        }
    }
}

/// The processes: what they make of the store's answers, and of none.
impl Leased {
    /// The answer reaches the process that waits for it, if one does.
    fn hear(&self, state: &mut State, call: Call, reply: Reply) {
        for index in 0..state.processes.len() {
            let process = state.processes[index];
            match (process.phase, call) {
                (
                    Phase::Claiming { owner, repeated },
                    Call::Claim {
                        owner: caller,
                        repeated: sent,
                    },
                ) if (owner, repeated) == (caller, sent) => {
                    state.processes[index].phase = match reply {
                        Reply::Won => {
                            state.started += 1;
                            Phase::Handling { owner, done: false }
                        }
                        _ => Phase::Idle,
                    };
                    if let (Reply::Standing, Record::Finished { answer, .. }) =
                        (reply, state.record)
                    {
                        state.given.insert(answer);
                    }
                }
                (Phase::Completing(owner), Call::Complete(caller)) if owner == caller => {
                    state.processes[index].phase = Phase::Idle;
                    self.answer(state, owner, reply);
                }
                (Phase::Releasing(owner), Call::Release(caller)) if owner == caller => {
                    state.processes[index].phase = Phase::Idle;
                }
                (Phase::Resolving(owner), _) if owner == call.owner() => {
                    state.processes[index].phase = Phase::Idle;
                }
                _ => self.hear_of_repair(state, index, call, reply),
            }
        }
    }

    /// The outcome of an attempt is saved, or refused: then the winner's answer is the answer.
    fn answer(&self, state: &mut State, owner: Owner, reply: Reply) {
        match (reply, state.record) {
            (Reply::Done, _) => {
                state.given.insert(owner);
            }
            (_, Record::Finished { answer, .. }) => {
                state.given.insert(answer);
            }
            // "in progress"
            (_, Record::Running { .. }) => {}
            // Nobody else's answer is to be had.
            (_, Record::Absent) => {
                state.unsaved.insert(owner);
            }
        }
    }

    fn hear_of_repair(&self, state: &mut State, index: usize, call: Call, reply: Reply) {
        let process = &mut state.processes[index];
        match (process.repair, call) {
            (Some(Repair::Complete(owner)), Call::Complete(caller)) if owner == caller => {
                process.repair = (reply == Reply::LeaseLost).then_some(Repair::Anew {
                    answer: owner,
                    claim: None,
                });
            }
            (
                Some(Repair::Anew {
                    answer,
                    claim: Some(owner),
                }),
                Call::ClaimAnew(caller),
            ) if owner == caller => {
                let is_its_own =
                    matches!(state.record, Record::Finished { owner, .. } if owner == caller);
                if reply == Reply::Won || is_its_own {
                    state.send(Call::CompleteAnew { owner, answer });
                } else if matches!(state.record, Record::Finished { .. }) {
                    process.repair = None;
                }
                // Who holds the key may yet free it.
            }
            (
                Some(Repair::Anew {
                    claim: Some(owner), ..
                }),
                Call::CompleteAnew { owner: caller, .. },
            ) if owner == caller => process.repair = None,
            (Some(Repair::Release(owner)), Call::Release(caller)) if owner == caller => {
                process.repair = None;
            }
            (
                Some(Repair::ReleaseUncertain {
                    owner,
                    absences_left,
                }),
                Call::Release(caller),
            ) if owner == caller => {
                process.repair = match (reply, absences_left) {
                    (Reply::LeaseLost, 1..) => Some(Repair::ReleaseUncertain {
                        owner,
                        absences_left: absences_left - 1,
                    }),
                    _ => None,
                };
            }
            _ => {}
        }
    }

    fn time_out(&self, state: &mut State, index: usize) {
        let process = &mut state.processes[index];
        let phase = std::mem::replace(&mut process.phase, Phase::Idle);
        match phase {
            // The same claim once more.
            Phase::Claiming {
                owner,
                repeated: false,
            } => {
                process.phase = Phase::Claiming {
                    owner,
                    repeated: true,
                };
                state.send(Call::Claim {
                    owner,
                    repeated: true,
                });
            }
            // 503. It may have been won all the same.
            Phase::Claiming {
                owner,
                repeated: true,
            } => {
                process.repair = Some(Repair::ReleaseUncertain {
                    owner,
                    absences_left: ABSENCES,
                });
            }
            // The client gets the answer, and the store later.
            Phase::Completing(owner) => {
                // Where others may answer too, one that is not saved is nothing to rely on.
                if self.policy == Policy::Hold {
                    state.unsaved.insert(owner);
                }
                process.repair = Some(Repair::Complete(owner));
            }
            Phase::Releasing(owner) => process.repair = Some(Repair::Release(owner)),
            Phase::Resolving(_) => {}
            Phase::Idle | Phase::Handling { .. } | Phase::Asking(_) => process.phase = phase,
        }
    }

    fn repair(&self, state: &mut State, index: usize) {
        let new_owner = state.new_owner();
        if let Some(repair) = &mut state.processes[index].repair {
            let call = match repair {
                Repair::Complete(owner) => Call::Complete(*owner),
                Repair::Anew { claim, .. } => Call::ClaimAnew(*claim.get_or_insert(new_owner)),
                Repair::Release(owner) | Repair::ReleaseUncertain { owner, .. } => {
                    Call::Release(*owner)
                }
            };
            state.send(call);
        }
    }

    /// A gateway that recognises repeats by a downstream key acts once for all attempts; any other
    /// part of the world does as it is told.
    fn effect(&self, state: &mut State) {
        match self.policy {
            Policy::Reconcile | Policy::Rerun => state.effects = 1,
            Policy::Hold => state.effects = 2.min(state.effects + 1),
        }
    }

    /// What a process may do that stands still neither for a moment nor for ever.
    fn steps_of(&self, state: &State, index: usize, steps: &mut Vec<Step>) {
        let process = state.processes[index];
        let is_free = process.phase == Phase::Idle && process.repair.is_none();
        if is_free && state.started < ATTEMPTS {
            steps.push(Step::Claim(index));
        }
        if is_free && self.policy == Policy::Reconcile && state.is_abandoned() {
            steps.extend([
                Step::TakeAbandoned(index, true),
                Step::TakeAbandoned(index, false),
            ]);
        }
        match process.phase {
            Phase::Handling { done: false, .. } => {
                steps.extend([Step::Effect(index), Step::Release(index)]);
            }
            Phase::Handling { done: true, .. } => steps.push(Step::Complete(index)),
            Phase::Asking(_) => steps.extend([Step::Ask(index), Step::Pending(index)]),
            Phase::Claiming { .. }
            | Phase::Completing(_)
            | Phase::Releasing(_)
            | Phase::Resolving(_) => steps.push(Step::TimeOut(index)),
            Phase::Idle => {}
        }
        if process.repair.is_some() {
            steps.push(Step::Repair(index));
        }
        if process.held().is_some() && state.is_abandoned() {
            steps.push(Step::Renew(index));
        }
    }

    /// Whether whoever asks for the key gets another answer than that somebody is working on it, sooner
    /// or later, if from here on no message is lost, no process dies, and every process goes on with
    /// what it has begun, or none does any more.
    fn settles(&self, state: &State) -> bool {
        let mut dead = state.clone();
        dead.processes = [Process::NEW; 2];
        self.comes_to_rest(state.clone()) && self.comes_to_rest(dead)
    }

    fn comes_to_rest(&self, mut state: State) -> bool {
        // Far more than it takes.
        for _ in 0..100 {
            let mut steps: Vec<Step> = state
                .network
                .iter()
                .map(|call| Step::Deliver(*call, true))
                .collect();
            for index in 0..state.processes.len() {
                self.steps_of(&state, index, &mut steps);
            }
            let goes_on = steps.into_iter().find(|step| match step {
                Step::Deliver(..)
                | Step::Effect(_)
                | Step::Complete(_)
                | Step::Ask(_)
                | Step::TimeOut(_) => true,
                // It would only be told again that another holds the key.
                Step::Repair(index) => !state.waits_for_another(*index),
                _ => false,
            });
            match goes_on {
                None => return self.is_answered(state),
                Some(step) => match self.next_state(&state, step) {
                    Some(next) => state = next,
                    None => return false,
                },
            }
        }
        false
    }

    /// Nobody does anything any more: what the next request, or the reconciler, makes of the record.
    fn is_answered(&self, mut state: State) -> bool {
        if matches!(state.record, Record::Absent | Record::Finished { .. }) {
            return true;
        }
        if self.flaw == Flaw::LeaseForEver {
            return false;
        }
        state.record.lease_runs_out();
        let caller = state.new_owner();
        match self.policy {
            // "outcome unknown"
            Policy::Hold => true,
            Policy::Rerun => {
                self.claim(&mut state.record, caller, self.may_take_over()) == Reply::Won
            }
            Policy::Reconcile => {
                state.record = Record::taken_by(caller);
                let mut other = state.record;
                self.complete(&mut state.record, caller, caller) == Reply::Done
                    && self.release(&mut other, caller) == Reply::Done
            }
        }
    }
}

impl Model for Leased {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            record: Record::Absent,
            processes: [Process::NEW; 2],
            network: BTreeSet::new(),
            started: 0,
            effects: 0,
            given: BTreeSet::new(),
            unsaved: BTreeSet::new(),
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for call in &state.network {
            steps.extend([
                Step::Deliver(*call, true),
                Step::Deliver(*call, false),
                Step::Lose(*call),
            ]);
        }
        for (index, process) in state.processes.iter().enumerate() {
            self.steps_of(state, index, steps);
            if *process != Process::NEW {
                steps.push(Step::Crash(index));
            }
        }
        let runs = matches!(
            state.record,
            Record::Running {
                lease_runs: true,
                ..
            }
        );
        if runs && self.flaw != Flaw::LeaseForEver {
            steps.push(Step::LeaseRunsOut);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Claim(index) => {
                let owner = state.new_owner();
                let claim = Call::Claim {
                    owner,
                    repeated: false,
                };
                state.processes[index].phase = Phase::Claiming {
                    owner,
                    repeated: false,
                };
                state.send(claim);
            }
            Step::Effect(index) => {
                let Phase::Handling { done, .. } = &mut state.processes[index].phase else {
                    return None;
                };
                *done = true;
                self.effect(&mut state);
            }
            Step::Complete(index) => {
                let owner = state.processes[index].held()?;
                state.processes[index].phase = Phase::Completing(owner);
                state.send(Call::Complete(owner));
            }
            Step::Release(index) => {
                let owner = state.processes[index].held()?;
                state.processes[index].phase = Phase::Releasing(owner);
                state.send(Call::Release(owner));
            }
            Step::Renew(index) => {
                let owner = state.processes[index].held()?;
                self.renew(&mut state.record, owner);
            }
            Step::TimeOut(index) => self.time_out(&mut state, index),
            Step::Repair(index) => self.repair(&mut state, index),
            Step::TakeAbandoned(index, heard) => {
                let owner = state.new_owner();
                state.record = Record::taken_by(owner);
                if heard {
                    state.processes[index].phase = Phase::Asking(owner);
                }
            }
            Step::Ask(index) => {
                let Phase::Asking(owner) = state.processes[index].phase else {
                    return None;
                };
                state.processes[index].phase = Phase::Resolving(owner);
                state.send(match state.effects {
                    0 => Call::Release(owner),
                    _ => Call::Complete(owner),
                });
            }
            // It is left to its lease.
            Step::Pending(index) => state.processes[index].phase = Phase::Idle,
            Step::Crash(index) => state.processes[index] = Process::NEW,
            Step::Deliver(call, heard) => {
                state.network.remove(&call);
                let reply = self.carry_out(&mut state.record, call);
                if heard {
                    self.hear(&mut state, call, reply);
                }
            }
            Step::Lose(call) => {
                state.network.remove(&call);
            }
            Step::LeaseRunsOut => state.record.lease_runs_out(),
        }
        let state = state.normal();
        (state != *last && state.network.len() <= CALLS).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(AT_MOST_ONE_EFFECT, |model: &Leased, state: &State| {
                model.policy != Policy::Hold || state.effects <= 1
            }),
            Property::always(ONE_ANSWER, |_, state: &State| state.given.len() <= 1),
            Property::always(
                "no other answer on a holding route, saved or not",
                |model: &Leased, state: &State| {
                    model.policy != Policy::Hold || state.answers().len() <= 1
                },
            ),
            Property::always(
                "the answer that was given is the one that stands",
                |_, state: &State| match state.record {
                    Record::Finished { answer, .. } => {
                        state.given.iter().all(|given| *given == answer)
                    }
                    Record::Absent | Record::Running { .. } => state.given.is_empty(),
                },
            ),
            Property::always("no answer without an effect", |_, state: &State| {
                state.effects > 0
                    || (state.answers().is_empty()
                        && !matches!(state.record, Record::Finished { .. }))
            }),
            Property::always(NOT_STUCK, |model: &Leased, state: &State| {
                model.settles(state)
            }),
            Property::sometimes("an answer is saved", |_, state: &State| {
                !state.given.is_empty()
            }),
            Property::sometimes(
                "an answer is saved under another claim",
                |model: &Leased, state: &State| {
                    // Of a key that is held, nobody but its owner frees it.
                    model.policy == Policy::Hold
                        || matches!(state.record, Record::Finished { owner, answer } if owner != answer)
                },
            ),
            Property::sometimes("all attempts are started", |_, state: &State| {
                state.started == ATTEMPTS
            }),
            Property::sometimes(
                "an owner goes on after another has taken its key",
                |_, state: &State| {
                    let holds = |owner| {
                        move |process: Process| process.held().is_some_and(|held| held != owner)
                    };
                    match state.record {
                        Record::Running {
                            owner,
                            lease_runs: true,
                        } => state.processes.into_iter().any(holds(owner)),
                        _ => false,
                    }
                },
            ),
            Property::sometimes("work is abandoned for good", |_, state: &State| {
                state.is_abandoned()
                    && state.network.is_empty()
                    && state.processes == [Process::NEW; 2]
            }),
        ]
    }
}
