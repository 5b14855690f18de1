//! The command line of the order service.

use clap::{Parser, Subcommand};
use orders::{
    demo,
    server::{Config, Service},
};
use std::{error::Error, process::ExitCode};
use tracing_subscriber::EnvFilter;

/// An order service whose retries are safe.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    config: Config,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Plays what can go wrong between a client and the service, and checks every answer
    Demo,
}

#[actix_web::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let ended = match cli.command {
        Some(Command::Demo) => demo::play().await.map_err(Into::into),
        None => serve(cli.config).await,
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(config: Config) -> Result<(), Box<dyn Error>> {
    let service = Service::start(config).await?;
    println!("{}{}", demo::LISTENING, service.url());
    println!("payment gateway at {}", service.gateway_url());
    println!(
        "try it, twice:\n  \
         curl -i {}/api/v1/orders -H 'Authorization: Bearer sec_token_xyz' \\\n    \
         -H 'Idempotency-Key: 9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d' -H 'Content-Type: application/json' \\\n    \
         -d '{{\"items\":[{{\"id\":42,\"quantity\":1}}],\"currency\":\"RUB\",\"amount\":1500}}'",
        service.url()
    );
    Ok(service.run().await?)
}
