//! For tests: the suite that states what a store must do, and stores that count, or fail on cue
//! (feature `testing`).

pub mod conformance;
