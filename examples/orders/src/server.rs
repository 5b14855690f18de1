//! The service put together: store, scope, application, graceful shutdown.

use crate::{
    auth::AuthUser,
    error,
    gateway::{Gateway, Simulator},
    handlers,
    store::OrderStore,
};
use actix_web::{App, HttpServer, dev::Server, web};
use idem_runtime::{
    BuildError, Idempotency,
    store::{SqliteStore, StoreError},
};
use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

/// How the service runs.
#[derive(Debug, Clone, clap::Args)]
pub struct Config {
    /// Address to listen on; port 0 takes a free one
    #[arg(
        long,
        env = "ORDERS_BIND",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8080"
    )]
    pub bind: SocketAddr,
    /// SQLite file for orders and idempotency records; created if it is missing
    #[arg(
        long,
        env = "ORDERS_DATABASE",
        value_name = "FILE",
        default_value = "orders.db"
    )]
    pub database: PathBuf,
    /// Payment gateway to charge at; without it a simulator is started on a free port
    #[arg(long, env = "ORDERS_GATEWAY", value_name = "URL")]
    pub gateway: Option<String>,
    /// How long the simulated gateway takes for a charge
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = humantime::parse_duration)]
    pub gateway_delay: Duration,
    /// How long the claim of a killed process stands before its retries are told that the outcome is unknown
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = humantime::parse_duration)]
    pub lease: Duration,
}

/// The service, bound and ready to run.
pub struct Service {
    address: SocketAddr,
    gateway_url: String,
    idempotency: Idempotency,
    server: Server,
}

/// Why the service could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Somebody else listens on the address.
    #[error(
        "{0} is taken by another program: stop it, or choose another address with --bind or ORDERS_BIND (port 0 takes a free one)"
    )]
    AddressTaken(SocketAddr),
    /// The address cannot be listened on for another reason.
    #[error("cannot listen on {0}: {1}")]
    Bind(SocketAddr, #[source] io::Error),
    /// The payment gateway simulator cannot start.
    #[error("cannot start the payment gateway simulator: {0}")]
    Simulator(#[source] io::Error),
    /// The HTTP client for the payment gateway cannot be built.
    #[error("cannot prepare the client of the payment gateway: {0}")]
    Gateway(#[from] reqwest::Error),
    /// The database cannot be opened for orders.
    #[error("cannot open the database {}: {source} (--database or ORDERS_DATABASE names the file)", .file.display())]
    Database {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: sqlx::Error,
    },
    /// The database cannot be opened for idempotency records.
    #[error("cannot open the database {}: {source} (--database or ORDERS_DATABASE names the file)", .file.display())]
    Records {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: StoreError,
    },
    /// A route and the idempotency configuration do not fit.
    #[error(transparent)]
    Idempotency(#[from] BuildError),
}

impl Service {
    /// Opens the database, binds the address and, unless the configuration names a payment
    /// gateway, starts a simulated one. Nothing is served before [`Service::run`].
    ///
    /// # Errors
    ///
    /// [`StartError`] says what is in the way and what to do about it.
    pub async fn start(config: Config) -> Result<Service, StartError> {
        let database = &config.database;
        let records = SqliteStore::connect(&database.to_string_lossy())
            .await
            .map_err(|source| StartError::Records {
                file: database.clone(),
                source,
            })?;
        let idempotency = Idempotency::builder(records)
            .scope("user", |user: AuthUser| user.id)
            .lease(config.lease)
            .build()?;

        let orders = OrderStore::open(database)
            .await
            .map_err(|source| StartError::Database {
                file: database.clone(),
                source,
            })?;
        let gateway_url = match config.gateway {
            Some(url) => url,
            None => Simulator::start(config.gateway_delay)
                .await
                .map_err(StartError::Simulator)?
                .url(),
        };
        let gateway = Gateway::new(&gateway_url)?;

        let app = {
            let idempotency = idempotency.clone();
            move || {
                App::new()
                    .app_data(idempotency.clone())
                    .app_data(web::Data::new(orders.clone()))
                    .app_data(web::Data::new(gateway.clone()))
                    .configure(error::answer_in_problem_json)
                    .configure(handlers::routes)
            }
        };
        let server =
            HttpServer::new(app)
                .bind(config.bind)
                .map_err(|error| match error.kind() {
                    io::ErrorKind::AddrInUse => StartError::AddressTaken(config.bind),
                    _ => StartError::Bind(config.bind, error),
                })?;
        let address = server.addrs().first().copied().unwrap_or(config.bind);
        Ok(Service {
            address,
            gateway_url,
            idempotency,
            server: server.disable_signals().run(),
        })
    }

    /// Where the service listens.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where charges are made.
    pub fn gateway_url(&self) -> &str {
        &self.gateway_url
    }

    /// Serves until SIGTERM or Ctrl-C, then finishes and saves every order under way, also those
    /// whose client has left.
    ///
    /// # Errors
    ///
    /// Those of the server.
    pub async fn run(self) -> io::Result<()> {
        self.idempotency.serve(self.server).await
    }
}
