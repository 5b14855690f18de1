//! The service as a process of its own, which can be killed.

use super::DemoError;
use std::{
    env, io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

/// How long a service may take to start.
const PATIENCE: Duration = Duration::from_secs(30);
/// Short, so that the retry after the kill need not wait long.
const LEASE: &str = "2s";

/// This program, serving. It ends with this value.
pub(super) struct Shop {
    database: PathBuf,
    gateway: String,
    process: Child,
    url: String,
    /// The pipe must stay open, or the process could not print to it.
    _output: Lines<BufReader<ChildStdout>>,
}

impl Shop {
    pub(super) async fn open(database: &Path, gateway: &str) -> Result<Shop, DemoError> {
        let mut process = Command::new(env::current_exe()?)
            .args([
                "--bind",
                "127.0.0.1:0",
                "--lease",
                LEASE,
                "--gateway",
                gateway,
            ])
            .arg("--database")
            .arg(database)
            .env_remove("ORDERS_STORE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = process.stdout.take().ok_or(DemoError::Stopped)?;
        let mut output = BufReader::new(output).lines();
        let line = tokio::time::timeout(PATIENCE, output.next_line()).await;
        let line = line.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let url = line
            .as_deref()
            .and_then(|line| line.strip_prefix(super::LISTENING));
        Ok(Shop {
            database: database.to_owned(),
            gateway: gateway.to_owned(),
            url: url.ok_or(DemoError::Stopped)?.to_owned(),
            process,
            _output: output,
        })
    }

    pub(super) fn url(&self) -> String {
        self.url.clone()
    }

    /// `kill -9`, and the process is gone.
    pub(super) async fn kill(&mut self) -> io::Result<()> {
        self.process.kill().await
    }

    /// Another process on the same database.
    pub(super) async fn open_again(&mut self) -> Result<(), DemoError> {
        *self = Shop::open(&self.database, &self.gateway).await?;
        Ok(())
    }
}
