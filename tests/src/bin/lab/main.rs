//! The lab: a server with one route for every policy and a fault for every moment.
//!
//! It is built from what users of the toolkit have and from nothing else, so that every promise can
//! be checked over HTTP, from outside, on every store. It is no example of a service.

mod answers;
mod args;
mod callers;
mod crash;
mod handler;
mod journal;
mod knobs;
mod operator;
mod orders;
mod reconciler;
mod routes;
mod server;

use args::Args;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// What the command line or the world around does not allow.
const REFUSED: u8 = 2;

#[actix_web::main]
async fn main() -> ExitCode {
    let args = match Args::read() {
        Ok(Some(args)) => args,
        Ok(None) => return ExitCode::SUCCESS,
        Err(sentence) => return refuse(&sentence),
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_env_filter(
            // What the driver of a cluster warns of, the store reports in its own words.
            EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| EnvFilter::new("info,redis::cluster_handling=error")),
        )
        .init();
    match server::serve(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => refuse(&sentence),
    }
}

fn refuse(sentence: &str) -> ExitCode {
    eprintln!("lab: {}", sentence.replace('\n', "; "));
    ExitCode::from(REFUSED)
}
