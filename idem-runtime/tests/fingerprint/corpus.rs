//! The seed corpus, and what a fuzzer makes of it: the same entry functions over every seed and
//! over mutations of it that are the same in every run.

use std::fs;
use std::path::{Path, PathBuf};

use idem_runtime::key::{IdempotencyKey, MAX_KEY_BYTES};

use crate::model;
use crate::of_json;
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

/// A key that was read, written quoted, is read again as the same key.
fn key(bytes: &[u8]) {
    if let Ok(Some(key)) = IdempotencyKey::parse([bytes]) {
        assert!((1..=MAX_KEY_BYTES).contains(&key.as_str().len()));
        let quoted = format!(
            "\"{}\"",
            key.as_str().replace('\\', "\\\\").replace('"', "\\\"")
        );
        assert_eq!(IdempotencyKey::parse([quoted.as_bytes()]), Ok(Some(key)));
    }
}

/// A document is insensitive to white space exactly if the model can read it.
fn json(bytes: &[u8]) {
    let spaced = [bytes, b"\n"].concat();
    let canonical = of_json(bytes) == of_json(spaced);
    assert_eq!(canonical, model::parse(bytes).is_some());
}

#[test]
fn key_corpus() {
    with_mutations("key", key);
}

#[test]
fn json_corpus() {
    with_mutations("json", json);
}
