//! Reading what handlers wrote down.

use super::eventually;
use serde::Deserialize;
use std::{
    collections::HashMap,
    fs::File,
    io::{ErrorKind, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The journal of one or several labs.
#[derive(Debug, Clone)]
pub struct Journal {
    path: PathBuf,
    read: Arc<Mutex<Known>>,
}

/// What has been read so far: a long run asks a large file again and again.
#[derive(Debug, Default)]
struct Known {
    /// How many bytes of the file that was.
    bytes: u64,
    lines: Vec<Line>,
    /// Where the lines of each key are.
    of_key: HashMap<String, Vec<usize>>,
}

/// A line of it, see the lab's documentation.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs)] // the lab's own names
pub struct Line {
    pub run: String,
    pub phase: String,
    pub route: String,
    pub user: String,
    pub tenant: Option<String>,
    pub key: Option<String>,
    pub attempt: u32,
    pub pid: u32,
    pub at_ms: u64,
    pub body_sha256: String,
    pub downstream_key: String,
}

impl Journal {
    /// The journal in this file, which need not exist yet.
    #[must_use]
    pub fn at(path: PathBuf) -> Journal {
        Journal {
            path,
            read: Arc::default(),
        }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All lines so far, without one that is being written: who reads a file meanwhile may see a part.
    ///
    /// # Panics
    ///
    /// If a line that has ended is not whole.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        self.up_to_date().lines.clone()
    }

    /// The lines of one phase for one key.
    #[must_use]
    pub fn of(&self, phase: &str, key: &str) -> Vec<Line> {
        let known = self.up_to_date();
        let places = known.of_key.get(key).into_iter().flatten();
        let lines = places.map(|&place| &known.lines[place]);
        lines.filter(|line| line.phase == phase).cloned().collect()
    }

    fn up_to_date(&self) -> MutexGuard<'_, Known> {
        // A test that fails at a line that is not whole fails at it again.
        let mut known = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return known,
            Err(error) => panic!("the journal cannot be opened: {error}"),
        };
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(known.bytes))
            .and_then(|_| file.read_to_end(&mut text))
            .expect("the journal can be read");
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            if line.ends_with(b"\n") {
                known.take(serde_json::from_slice(line).expect("a whole line"));
                known.bytes += line.len() as u64;
            }
        }
        known
    }

    /// How many effects there were under this key.
    #[must_use]
    pub fn effects(&self, key: &str) -> usize {
        self.of("effect", key).len()
    }

    /// How many effects there were in all, without a key included.
    #[must_use]
    pub fn all_effects(&self) -> usize {
        let known = self.up_to_date();
        let effects = known.lines.iter().filter(|line| line.phase == "effect");
        effects.count()
    }

    /// Waits for a phase under a key.
    pub async fn wait_for(&self, phase: &str, key: &str) -> Line {
        eventually((phase, key), async || {
            self.of(phase, key).into_iter().next()
        })
        .await
    }
}

impl Known {
    fn take(&mut self, line: Line) {
        if let Some(key) = &line.key {
            let places = self.of_key.entry(key.clone()).or_default();
            places.push(self.lines.len());
        }
        self.lines.push(line);
    }
}
