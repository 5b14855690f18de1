//! The seed corpus, and what a fuzzer makes of it: the same entry functions over every seed and
//! over mutations of it that are the same in every run.

use std::fs;
use std::path::{Path, PathBuf};

use crate::entries;
use crate::random::Random;

const MUTATIONS: usize = 300;

fn seeds(folder: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(folder);
    let mut seeds: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    seeds.sort();
    assert!(seeds.len() >= 10, "{} holds the seeds", folder.display());
    seeds
}

fn with_mutations(folder: &str, entry: fn(&[u8])) {
    for (path, seed) in seeds(folder) {
        let run = |bytes: &[u8]| {
            let outcome = std::panic::catch_unwind(|| entry(bytes));
            assert!(
                outcome.is_ok(),
                "{}: {}",
                path.display(),
                bytes.escape_ascii()
            );
        };
        run(&seed);
        let mut random = Random::new(seed.len() as u64);
        for _ in 0..MUTATIONS {
            let mut bytes = seed.clone();
            random.mutate(&mut bytes);
            run(&bytes);
        }
    }
}

#[test]
fn key_corpus() {
    with_mutations("key", entries::key);
}

#[test]
fn json_corpus() {
    with_mutations("json", entries::json);
}

#[test]
fn body_corpus() {
    with_mutations("body", entries::body);
}

#[test]
fn record_corpus() {
    with_mutations("record", entries::record);
}
