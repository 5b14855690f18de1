//! What handlers did, in a file that survives them.

use serde::Serialize;
use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

/// A file of JSON lines, or nothing.
#[derive(Debug)]
pub(crate) struct Journal(Option<File>);

/// One line.
#[derive(Debug, Serialize)]
pub(crate) struct Line<'a> {
    pub(crate) run: &'a str,
    pub(crate) phase: &'a str,
    pub(crate) route: &'a str,
    pub(crate) user: &'a str,
    pub(crate) tenant: Option<&'a str>,
    pub(crate) key: Option<&'a str>,
    pub(crate) attempt: u32,
    pub(crate) pid: u32,
    pub(crate) at_ms: u128,
    pub(crate) body_sha256: &'a str,
    pub(crate) downstream_key: &'a str,
}

impl Journal {
    pub(crate) fn open(path: Option<&Path>) -> io::Result<Journal> {
        let open = |path| OpenOptions::new().append(true).create(true).open(path);
        Ok(Journal(path.map(open).transpose()?))
    }

    /// Appends a line with a single write, so that lines of several processes never mix and a
    /// killed process leaves whole lines.
    pub(crate) fn write(&self, line: &Line<'_>) -> io::Result<()> {
        let Some(mut file) = self.0.as_ref() else {
            return Ok(());
        };
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        match file.write(&text)? {
            written if written == text.len() => Ok(()),
            _ => Err(io::Error::other("only a part of the line was written")),
        }
    }
}

/// Milliseconds since the Unix epoch by this machine's clock.
pub(crate) fn now_ms() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis())
}
