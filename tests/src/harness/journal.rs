//! Reading what handlers wrote down.

use super::eventually;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The journal of one or several labs.
#[derive(Debug, Clone)]
pub struct Journal(PathBuf);

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
        Journal(path)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// All lines so far, without one that is being written: who reads a file meanwhile may see a part.
    ///
    /// # Panics
    ///
    /// If a line that has ended is not whole.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        self.lines_with("")
    }

    /// The lines of one phase for one key.
    #[must_use]
    pub fn of(&self, phase: &str, key: &str) -> Vec<Line> {
        // Looked for in the text first: a long run asks a large file again and again.
        let written = serde_json::to_string(key).expect("a string");
        let mut lines = self.lines_with(&written);
        lines.retain(|line| line.phase == phase && line.key.as_deref() == Some(key));
        lines
    }

    fn lines_with(&self, part: &str) -> Vec<Line> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        text.split_inclusive('\n')
            .filter(|line| line.ends_with('\n') && line.contains(part))
            .map(|line| serde_json::from_str(line).expect("a whole line"))
            .collect()
    }

    /// How many effects there were under this key.
    #[must_use]
    pub fn effects(&self, key: &str) -> usize {
        self.of("effect", key).len()
    }

    /// How many effects there were in all, without a key included.
    #[must_use]
    pub fn all_effects(&self) -> usize {
        let lines = self.lines();
        lines.iter().filter(|line| line.phase == "effect").count()
    }

    /// Waits for a phase under a key.
    pub async fn wait_for(&self, phase: &str, key: &str) -> Line {
        eventually((phase, key), async || {
            self.of(phase, key).into_iter().next()
        })
        .await
    }
}
