//! The protocol as a model, whose every state is looked at: two processes, one key, three attempts,
//! with crashes, pauses, lost and late messages, and leases that run out at any moment.
//!
//! What holds in all of them is said in the models' properties. The protocol with a part taken out is
//! checked too, to see that it would be missed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod leased;
mod transactional;

use leased::{Leased, Policy};
use stateright::{Checker, HasDiscoveries, Model};
use std::{fmt::Debug, hash::Hash};
use transactional::Transactional;

/// A model whose states can be walked by several threads, and the way to each be told.
trait Walked:
    Model<
        State: Clone + Debug + Hash + PartialEq + Send + Sync,
        Action: Clone + Debug + PartialEq + Send + Sync,
    > + Debug
    + Send
    + Sync
    + 'static
{
}

impl Walked for Leased {}
impl Walked for Transactional {}

/// Looks at every state, and fails with the way to one in which a property does not hold.
fn expect_to_hold(model: impl Walked, name: &str) {
    let checked = model.checker().threads(2).spawn_bfs().join();
    println!(
        "{name}: {} states, {} steps deep",
        checked.unique_state_count(),
        checked.max_depth()
    );
    checked.assert_properties();
    assert!(checked.is_done());
}

/// Finds a way to a state in which this property does not hold.
fn expect_a_counterexample(model: impl Walked, property: &'static str) {
    let what = format!("{model:?}");
    let checked = model
        .checker()
        .finish_when(HasDiscoveries::AllOf([property].into()))
        .threads(2)
        .spawn_bfs()
        .join();
    let way = checked.discovery(property);
    let way = way.unwrap_or_else(|| panic!("{what}: nothing against `{property}` was found"));
    println!("{what}: {:?}", way.into_actions());
}

#[test]
fn a_held_key_has_one_effect_and_one_answer_and_is_never_stuck() {
    let (policy, flaw) = (Policy::Hold, leased::Flaw::None);
    expect_to_hold(Leased { policy, flaw }, "hold");
}

#[test]
fn a_key_that_runs_again_has_one_saved_answer_and_is_never_stuck() {
    let (policy, flaw) = (Policy::Rerun, leased::Flaw::None);
    expect_to_hold(Leased { policy, flaw }, "rerun");
}

#[test]
fn a_reconciled_key_has_one_saved_answer_and_is_never_stuck() {
    let (policy, flaw) = (Policy::Reconcile, leased::Flaw::None);
    expect_to_hold(Leased { policy, flaw }, "reconcile");
}

#[test]
fn a_transactional_key_has_as_many_rows_as_answers_and_is_never_stuck() {
    let flaw = transactional::Flaw::None;
    expect_to_hold(Transactional { flaw }, "transactional");
}

#[test]
fn every_part_of_a_lease_s_protocol_would_be_missed() {
    use leased::Flaw;
    for (policy, flaw, property) in [
        (Policy::Rerun, Flaw::NoFencing, leased::ONE_ANSWER),
        (Policy::Rerun, Flaw::UncheckedComplete, leased::ONE_ANSWER),
        (Policy::Hold, Flaw::NoFencing, leased::AT_MOST_ONE_EFFECT),
        (
            Policy::Hold,
            Flaw::UncheckedRelease,
            leased::AT_MOST_ONE_EFFECT,
        ),
        (
            Policy::Hold,
            Flaw::TakeoverInSpiteOfHold,
            leased::AT_MOST_ONE_EFFECT,
        ),
        (Policy::Hold, Flaw::LeaseForEver, leased::NOT_STUCK),
        (Policy::Rerun, Flaw::LeaseForEver, leased::NOT_STUCK),
    ] {
        expect_a_counterexample(Leased { policy, flaw }, property);
    }
}

#[test]
fn every_part_of_a_transaction_s_protocol_would_be_missed() {
    use transactional::Flaw;
    for (flaw, property) in [
        (Flaw::TwoCommits, transactional::ROWS_ARE_ANSWERS),
        (Flaw::NoUniqueKey, transactional::ROWS_ARE_ANSWERS),
        (Flaw::AnswerBeforeCommit, transactional::ONE_ANSWER),
        (Flaw::TransactionForEver, transactional::NOT_STUCK),
    ] {
        expect_a_counterexample(Transactional { flaw }, property);
    }
}
