//! The command line.

use clap::{Parser, ValueEnum, error::ErrorKind, value_parser};
use idem_runtime::{policy::OnStoreError, testing::Method};
use std::{net::SocketAddr, path::PathBuf, time::Duration};

/// A server on which every promise of the toolkit can be checked over HTTP.
#[derive(Debug, Clone, Parser)]
// The last one wins, so that a script can add to a list of flags.
#[command(name = "lab", args_override_self = true)]
pub(crate) struct Args {
    /// memory: · sqlite:PATH · postgres://… · mysql://… · redis://… · redis-cluster://HOST:PORT,…
    #[arg(long, value_name = "URL", default_value = "memory:")]
    pub(crate) store: String,
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) bind: SocketAddr,
    /// Where handlers write down what they do; several processes may share it.
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
    /// Worker threads.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u16).range(1..=512))]
    pub(crate) workers: u16,
    /// Connections to the store.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u32).range(1..))]
    pub(crate) pool: u32,
    /// Lease of every route.
    #[arg(long, value_name = "DUR", default_value = "2s", value_parser = duration)]
    pub(crate) lease: Duration,
    /// Renewal of leases.
    #[arg(long, value_name = "on|off", default_value = "on")]
    pub(crate) heartbeat: Switch,
    /// Budget of one call to the store.
    #[arg(long, value_name = "DUR", default_value = "2s", value_parser = duration)]
    pub(crate) store_timeout: Duration,
    /// Whether requests with a key are refused or run while the store is unreachable.
    #[arg(long, value_name = "refuse|run", default_value = "refuse")]
    pub(crate) on_store_error: StoreErrors,
    /// Capacity of the memory store.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = at_least_one)]
    pub(crate) memory_records: usize,
    /// Compresses answers as clients accept it.
    #[arg(long)]
    pub(crate) compress: bool,
    /// Serves HTTP/2 too, without TLS, to clients that know it. A connection that has sent nothing
    /// yet then holds up a shutdown: actix waits for what it will speak.
    #[arg(long)]
    pub(crate) h2c: bool,
    /// Period of the sweeper; 0: off.
    #[arg(long, value_name = "DUR", default_value = "0", value_parser = duration)]
    pub(crate) sweep: Duration,
    /// Time between two looks for records of handlers that are gone; 0: as the toolkit has it.
    #[arg(long, value_name = "DUR", default_value = "0", value_parser = duration)]
    pub(crate) orphans: Duration,
    /// What every key in Redis begins with, on a server that is shared.
    #[arg(long, value_name = "TEXT")]
    pub(crate) key_prefix: Option<String>,
    /// Delays every saving of an answer in the store, which then opens no transactions; 0: off.
    #[arg(long, value_name = "DUR", default_value = "0", value_parser = duration)]
    pub(crate) slow_complete: Duration,
    /// Lets the first N calls of a method fail, which are then not carried out, on a store that
    /// opens no transactions; may be repeated. Methods: claim, renew, complete, release, save-steps.
    #[arg(long, value_name = "METHOD=N", value_parser = failing)]
    pub(crate) fail: Vec<(Method, u64)>,
    /// The reconciling function never knows what became of a request.
    #[arg(long)]
    pub(crate) undecided: bool,
    /// Pause between two rounds of asking what became of abandoned requests.
    #[arg(long, value_name = "DUR", default_value = "1s", value_parser = duration)]
    pub(crate) reconcile_every: Duration,
    /// How long the reconciling function may take.
    #[arg(long, value_name = "DUR", default_value = "30s", value_parser = duration)]
    pub(crate) reconcile_patience: Duration,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// What becomes of requests while the store is unreachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreErrors {
    /// They are answered with 503.
    Refuse,
    /// They run unprotected.
    Run,
}

impl From<StoreErrors> for OnStoreError {
    fn from(choice: StoreErrors) -> Self {
        match choice {
            StoreErrors::Refuse => OnStoreError::Refuse,
            StoreErrors::Run => OnStoreError::Run,
        }
    }
}

impl Args {
    /// Reads the command line; nothing if it asked for help only. What is wrong is said in one line.
    pub(crate) fn read() -> Result<Option<Args>, String> {
        match Args::try_parse() {
            Ok(args) => Ok(Some(args)),
            Err(error) if error.kind() == ErrorKind::DisplayHelp => {
                print!("{error}");
                Ok(None)
            }
            Err(error) => {
                let text = error.to_string();
                let first = text.lines().next().unwrap_or("the flags are wrong");
                Err(first.trim_start_matches("error: ").to_owned())
            }
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write it like 500ms, 2s or 1h"))
}

fn failing(text: &str) -> Result<(Method, u64), String> {
    let (method, count) = text.split_once('=').ok_or("write it like complete=1")?;
    let method = match method {
        "claim" => Method::Claim,
        "renew" => Method::Renew,
        "complete" => Method::Complete,
        "release" => Method::Release,
        "save-steps" => Method::SaveSteps,
        _ => return Err(format!("there is no method {method:?}")),
    };
    let count = count.parse().map_err(|_| "it is not a number")?;
    Ok((method, count))
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("it must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(_) => Err("it is not a number".to_owned()),
    }
}
