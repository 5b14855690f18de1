//! What [`Store`] means, as a suite that every store passes.
//!
//! A store is a [`Factory`]; the suite is a list of [`cases`], each a sentence about the contract
//! and a function that tries it. Run all at once with [`run`], or let [`tests!`] make a `#[test]`
//! of each:
//!
//! ```
//! use idem_runtime::{store::Store, testing::conformance::{self, Factory}};
//! use std::sync::Arc;
//!
//! struct MyStores;
//!
//! #[async_trait::async_trait]
//! impl Factory for MyStores {
//!     async fn fresh(&self) -> Arc<dyn Store> {
//!         // a database, schema or key prefix of its own
//! #       unimplemented!()
//!     }
//!
//!     async fn reopen(&self, store: &Arc<dyn Store>) -> Arc<dyn Store> {
//!         // another connection to what `store` is connected to
//! #       unimplemented!()
//!     }
//! }
//!
//! conformance::tests!(my_store, MyStores);
//! # fn main() {}
//! ```
//!
//! No case depends on the local clock: moments are compared with moments by the store's own clock.
//! Cases that wait sleep for several times the lease or TTL they wait out, and what must still
//! stand is given an hour, so that a slow machine makes the suite slow, not wrong. Races start at a
//! barrier.

mod abandoned;
mod answers;
mod bench;
mod claims;
mod expiry;
mod fencing;
mod identity;
mod operator;
mod takeover;

use crate::store::Store;
use async_trait::async_trait;
use bench::{Bench, Failure};
use std::{fmt, pin::Pin, sync::Arc, time::Duration};

#[doc(inline)]
pub use crate::conformance_tests as tests;

/// Longest time one case may take. A store that hangs fails its case, not the whole suite.
const PATIENCE: Duration = Duration::from_secs(120);

/// Makes the stores that the suite tries.
///
/// It may panic if it cannot: the case then fails with the panic's message.
#[async_trait]
pub trait Factory: Send + Sync + 'static {
    /// A store that holds no record and shares none with any other that was made.
    async fn fresh(&self) -> Arc<dyn Store>;

    /// Another handle on the data of `store`, as another instance of the application has it: a
    /// connection of its own. A store that cannot have one gives the same store again, as this
    /// default does.
    ///
    /// [`Store`] is [`Any`](std::any::Any): `(&**store as &dyn Any).downcast_ref()` tells which
    /// of the factory's stores it is.
    async fn reopen(&self, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::clone(store)
    }
}

type Body = fn(Arc<dyn Factory>) -> Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// One case: a sentence about the contract, and a way to try it.
#[derive(Clone, Copy)]
pub struct Case {
    name: &'static str,
    sentence: &'static str,
    body: Body,
}

impl Case {
    /// Its name, unique in the suite.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What it states.
    pub fn sentence(&self) -> &'static str {
        self.sentence
    }

    /// Tries it on stores of this factory, on the current tokio runtime.
    ///
    /// # Errors
    ///
    /// A sentence that says how the store departs from the contract.
    pub async fn check(&self, factory: Arc<dyn Factory>) -> Result<(), String> {
        // A task of its own, so that a panic of the store or the factory is a failure of this case.
        let mut task = tokio::spawn((self.body)(factory));
        match tokio::time::timeout(PATIENCE, &mut task).await {
            Ok(Ok(outcome)) => outcome.map_err(|failure| failure.to_string()),
            Ok(Err(error)) => Err(bench::Failure::from(error).to_string()),
            Err(_) => {
                task.abort();
                Err(format!("it did not finish within {PATIENCE:?}"))
            }
        }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.sentence)
    }
}

/// Every case of the suite.
pub fn cases() -> &'static [Case] {
    CASES
}

/// Tries every case, and reports all that failed.
///
/// Needs a tokio runtime, with more than one thread to let races be races.
///
/// # Panics
///
/// If a case fails: with the name, the sentence and the finding of every one that failed.
#[allow(clippy::panic)]
pub async fn run(factory: impl Factory) {
    let factory: Arc<dyn Factory> = Arc::new(factory);
    let mut failures = Vec::new();
    for case in cases() {
        if let Err(finding) = case.check(Arc::clone(&factory)).await {
            failures.push(format!("- {case:?}\n  {finding}"));
        }
    }
    if !failures.is_empty() {
        panic!(
            "{} of {} cases failed:\n{}",
            failures.len(),
            cases().len(),
            failures.join("\n")
        );
    }
}

/// Tries one case on a runtime of its own: the body of each `#[test]` that [`tests!`] makes.
///
/// # Panics
///
/// If the case fails, or there is none of this name.
#[allow(clippy::panic, clippy::expect_used)]
pub fn check(factory: impl Factory, name: &str) {
    let Some(case) = cases().iter().find(|case| case.name == name) else {
        panic!("the suite has no case named {name}")
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a tokio runtime can be built");
    let outcome = runtime.block_on(case.check(Arc::new(factory)));
    if let Err(finding) = outcome {
        panic!("{case:?}\n{finding}");
    }
}

/// A module of `#[test]` functions, one for each case: `tests!(module_name, factory)`.
///
/// The factory is an expression; each test evaluates it anew, in the scope of the invocation.
#[macro_export]
macro_rules! conformance_tests {
    ($store:ident, $factory:expr) => {
        $crate::__conformance_cases! { [$crate::__conformance_tests] ($store, $factory) }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    (($store:ident, $factory:expr) $($module:ident::$name:ident $sentence:literal)*) => {
        mod $store {
            #[allow(unused_imports)]
            use super::*;
            $(
                #[test]
                fn $name() {
                    $crate::testing::conformance::check($factory, stringify!($name));
                }
            )*
        }
    };
}

macro_rules! table {
    (() $($module:ident::$name:ident $sentence:literal)*) => {
        const CASES: &[Case] = &[$(
            Case {
                name: stringify!($name),
                sentence: $sentence,
                body: |factory| Box::pin(async move {
                    $module::$name(&Bench::new(factory).await).await
                }),
            },
        )*];
    };
}
__conformance_cases! { [table] () }

/// The one list of the cases, handed to the macro that is named first.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_cases {
    ([$($callback:tt)*] $arguments:tt) => {
        $($callback)*! {
            $arguments

            claims::an_absent_key_is_won
                "a claim of a key that nobody holds is won as attempt 1, with nothing kept before it"
            claims::a_running_record_stands
                "a claim of a running record reports the record as its owner claimed it"
            claims::a_finished_record_stands
                "a claim of a finished record reports it with its answer"
            claims::a_standing_record_is_not_changed
                "claims that do not win change nothing in what stands there"
            claims::a_claim_repeated_by_its_owner_is_won_unchanged
                "a claim whose answer got lost is repeated and won again, as the same attempt"
            claims::an_owner_s_claim_after_completion_stands
                "a repeated claim does not win a record that its owner has finished"
            claims::another_handle_sees_the_claim
                "a claim made through one handle stands for another at once"
            claims::simultaneous_claims_have_one_winner
                "of twenty simultaneous claims exactly one wins, and all others see it"
            claims::simultaneous_repeats_of_one_claim_all_win
                "the same claim sent many times at once is one claim"
            claims::many_keys_at_once
                "claims and completions of many keys at once do not disturb each other"
            claims::dropped_calls_leave_the_store_usable
                "a call that is dropped was carried out or not, and the store goes on"
            claims::a_lease_and_ttl_of_nothing_still_end
                "a claim with a lease and TTL of zero or a millisecond ends, instead of standing for ever"
            claims::a_lease_and_ttl_beyond_measure_stand
                "a lease and TTL of any length are taken without overflow"

            takeover::a_running_lease_is_not_taken_over
                "a record whose lease runs is not taken over"
            takeover::an_abandoned_record_is_taken_over
                "a lapsed lease is taken over as the next attempt; creation, expiry and steps stay"
            takeover::a_lease_renewed_for_no_time_has_ended
                "a lease that is renewed for no time has ended: the record is taken over, its steps stay"
            takeover::never_means_never
                "an abandoned record is reported, not taken, when the claim says never"
            takeover::another_fingerprint_takes_nothing_over
                "a claim with another fingerprint does not take an abandoned record over"
            takeover::the_older_fingerprint_takes_over
                "a claim whose older fingerprint is the record's takes it over"
            takeover::a_finished_record_is_not_taken_over
                "a finished record is not taken over, however old its lease"
            takeover::a_repeated_takeover_counts_once
                "a takeover whose answer got lost is repeated without counting another attempt"
            takeover::simultaneous_takeovers_have_one_winner
                "of twenty simultaneous takeovers exactly one wins"
            takeover::completion_and_takeover_exclude_each_other
                "of a late completion and a takeover at the same moment exactly one succeeds"
            takeover::renewal_and_takeover_exclude_each_other
                "of a late renewal and a takeover at the same moment exactly one succeeds"
            takeover::release_and_takeover_exclude_each_other
                "after a release and a claim at the same moment one owner at most is left"

            fencing::an_old_owner_can_do_nothing
                "after a takeover the old owner can neither complete, release, renew nor keep steps"
            fencing::a_stranger_can_do_nothing
                "a token that never owned the record can do nothing to it"
            fencing::nothing_can_be_done_to_an_absent_record
                "completing, releasing, renewing and keeping steps of a record that is not there is a lost lease"
            fencing::a_late_owner_completes
                "an owner whose lease has run out completes as long as nobody took over"
            fencing::a_late_owner_releases_and_keeps_steps
                "an owner whose lease has run out may keep steps and release as long as nobody took over"
            fencing::a_completion_is_repeated_in_vain
                "repeating a completion succeeds and changes nothing, not even with another answer"
            fencing::a_released_key_is_free
                "a released key is won anew as attempt 1"
            fencing::a_finished_record_is_not_released
                "a finished record cannot be released, renewed or given steps"
            fencing::leases_are_renewed_in_order
                "a batch of renewals is answered in its order"
            fencing::a_renewal_counts_from_now
                "a renewed lease runs for its new length from now, longer or shorter"
            fencing::a_lapsed_lease_is_renewed
                "a lease that ran out but was not taken over is renewed like any other"
            fencing::a_big_batch_is_renewed
                "a thousand leases are renewed in one call"
            fencing::steps_are_kept_and_replaced
                "steps are kept with the running record, replaced by the next, and dropped by completion"

            expiry::a_finished_record_expires
                "a finished record whose TTL is over is as if it were not there, purged or not"
            expiry::an_abandoned_record_expires
                "a running record whose TTL and lease are over is won as new, whatever the claim says of takeovers"
            expiry::a_running_lease_outlives_the_ttl
                "a record whose lease runs is live after its TTL and never claimed a second time"
            expiry::simultaneous_claims_of_an_expired_record_have_one_winner
                "of twenty simultaneous claims of an expired record exactly one wins"
            expiry::simultaneous_claims_without_a_ttl_have_one_winner
                "of twenty simultaneous claims with a TTL of nothing one wins, because its lease runs"
            expiry::completion_and_replay_do_not_extend_the_ttl
                "the TTL counts from the first claim, whatever comes after"
            expiry::a_released_key_s_next_record_has_its_full_ttl
                "the record after a release, or after an expired one, lives for its own whole TTL"
            expiry::purging_removes_expired_records_in_batches
                "purging removes at most as many expired records as it is told"
            expiry::purging_spares_what_is_live
                "purging spares live records, and running ones whose lease runs"

            identity::every_part_counts
                "records that differ in scope, key or path alone are different records"
            identity::text_is_compared_as_bytes
                "case, accents, trailing spaces and pattern characters distinguish records"
            identity::the_longest_parts_fit
                "parts of the greatest length are kept whole and distinguished by their last byte"

            answers::every_byte_is_kept
                "a body of all 256 byte values comes back as it was"
            answers::no_body_is_not_an_empty_body
                "a response without a body and one with an empty body stay different"
            answers::a_megabyte_of_wide_characters_is_kept
                "a body of 1 MiB of three- and four-byte characters comes back whole"
            answers::headers_keep_order_duplicates_and_bytes
                "header fields come back in order, with duplicates, as bytes"
            answers::a_tombstone_is_kept
                "a tombstone comes back as one, and a response without headers does not"
            answers::every_status_is_kept
                "responses of any HTTP status come back with it"

            abandoned::only_lapsed_running_live_records_are_taken
                "only running records whose lease ran out, and that are not expired, are taken"
            abandoned::only_the_named_handlers_records_are_taken
                "a record is taken by the exact name of its handler, the part after the last space"
            abandoned::the_oldest_lease_is_taken_first
                "no more than the limit are taken, the oldest lease first"
            abandoned::a_taken_record_has_a_new_owner
                "a taken record has the new owner and lease and the same attempt; the old owner is fenced off"
            abandoned::no_record_is_given_to_two
                "simultaneous callers never get the same record, and together get all"

            operator::a_live_record_is_read
                "a live record is read whole, and nothing is read where none is"
            operator::the_list_is_paged
                "pages of the list show every live record once"
            operator::the_abandoned_are_listed_alone
                "the list of the abandoned shows every running record whose lease has run out, and no other"
            operator::a_forgotten_record_is_gone
                "a forgotten record, running or finished, is gone and its key free"
        }
    };
}
use __conformance_cases;
