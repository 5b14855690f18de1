//! What the demonstration asserts, shown as it goes.

use std::fmt::Display;

/// Counts what differs from the contract.
#[derive(Debug, Default)]
pub(super) struct Checks {
    failed: usize,
}

impl Checks {
    /// Compares, and shows the outcome.
    pub(super) fn equal<T: PartialEq + Display>(&mut self, what: &str, expected: T, actual: T) {
        if expected == actual {
            say!("    ✔ {what}: {actual}");
        } else {
            self.failed += 1;
            say!("    ✘ {what}: {actual}, but it should be {expected}");
        }
    }

    /// Shows whether a sentence is true.
    pub(super) fn holds(&mut self, sentence: &str, truth: bool) {
        if truth {
            say!("    ✔ {sentence}");
        } else {
            self.failed += 1;
            say!("    ✘ not true: {sentence}");
        }
    }

    /// How many checks have failed.
    pub(super) fn failed(&self) -> usize {
        self.failed
    }
}
