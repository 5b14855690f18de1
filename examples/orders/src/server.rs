//! The service put together: store, scope, application, graceful shutdown.

use crate::{
    auth::AuthUser,
    cashier::{Cashier, collect_before_answering},
    error,
    gateway::{Gateway, Simulator},
    handlers, leased, records,
    store::OrderStore,
};
use actix_web::{App, HttpServer, dev::Server, middleware::from_fn, web};
use idem_runtime::{BuildError, Idempotency, store::StoreError};
use std::{
    error::Error,
    io,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};

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
    /// SQLite file for orders and, without --store, idempotency records; created if it is missing
    #[arg(
        long,
        env = "ORDERS_DATABASE",
        value_name = "FILE",
        default_value = "orders.db"
    )]
    pub database: PathBuf,
    /// Where idempotency records stand instead: postgres://…, mysql://…, redis://… or
    /// redis-cluster://HOST:PORT,… (build with the feature `postgres`, `mysql` or `redis`)
    #[arg(long, env = "ORDERS_STORE", value_name = "URL", hide_env_values = true)]
    pub store: Option<String>,
    /// Payment gateway to charge at; without it a simulator is started on a free port
    #[arg(long, env = "ORDERS_GATEWAY", value_name = "URL")]
    pub gateway: Option<String>,
    /// How long the simulated gateway takes for a charge
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = humantime::parse_duration)]
    pub gateway_delay: Duration,
    /// How long the claim of a killed process stands before the payment gateway is asked what became of it
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
    /// No payment gateway can be at the address that was given.
    #[error(
        "--gateway or ORDERS_GATEWAY takes a URL that begins with http:// and names a host, such as http://127.0.0.1:9000 (leave it out for a simulator)"
    )]
    GatewayUrl,
    /// The HTTP client for the payment gateway cannot be built.
    #[error("cannot prepare the client of the payment gateway: {0}")]
    Gateway(#[from] reqwest::Error),
    /// The database is named by a URL.
    #[error(
        "--database or ORDERS_DATABASE takes the path of a file: write {} without \"sqlite:\"", .0.display()
    )]
    DatabaseUrl(PathBuf),
    /// The database is to be in a folder that does not exist.
    #[error(
        "cannot open the database {}: there is no folder {}; create it, or name another file with --database or ORDERS_DATABASE",
        .file.display(), .folder.display()
    )]
    NoFolder {
        /// The file.
        file: PathBuf,
        /// The folder.
        folder: PathBuf,
    },
    /// The database cannot be opened for orders.
    #[error("cannot open the database {}: {source} (--database or ORDERS_DATABASE names the file)", .file.display())]
    Database {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: sqlx::Error,
    },
    /// The database cannot be opened for idempotency records.
    #[error(
        "cannot open the database {}: {} (--database or ORDERS_DATABASE names the file)",
        .file.display(), reasons(.source)
    )]
    Records {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: StoreError,
    },
    /// The store that was asked for cannot be used.
    #[error("cannot use the {name} store: {}", reasons(.source))]
    Store {
        /// Name of its kind.
        name: &'static str,
        /// What is wrong with it.
        source: StoreError,
    },
    /// The store that was asked for is not part of this build.
    #[error(
        "this build has no {0} store: run it with `cargo run -p orders --features {0} -- --store …`"
    )]
    StoreNotBuilt(&'static str),
    /// The URL's scheme names no store.
    #[error(
        "--store or ORDERS_STORE takes a URL that begins with postgres://, mysql://, redis:// or redis-cluster://"
    )]
    UnknownStore,
    /// A route and the idempotency configuration do not fit.
    #[error(transparent)]
    Idempotency(#[from] BuildError),
}

impl Service {
    /// Binds the address, opens the database and, unless the configuration names a payment
    /// gateway, starts a simulated one. Nothing is served before [`Service::run`].
    ///
    /// # Errors
    ///
    /// [`StartError`] says what is in the way and what to do about it.
    pub async fn start(config: Config) -> Result<Service, StartError> {
        // Before anything is opened: a file should not be left by a command that is refused.
        if config
            .gateway
            .as_deref()
            .is_some_and(|url| !Gateway::can_be_at(url))
        {
            return Err(StartError::GatewayUrl);
        }
        let database = &config.database;
        check_place(database)?;
        let listener = TcpListener::bind(config.bind).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => StartError::AddressTaken(config.bind),
            _ => StartError::Bind(config.bind, error),
        })?;
        let cannot_listen = |error| StartError::Bind(config.bind, error);
        let address = listener.local_addr().map_err(cannot_listen)?;
        let records = records::connect(&config).await?;
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

        let idempotency = Idempotency::builder_on(records.store)
            .scope("user", |user: AuthUser| user.id)
            .lease(config.lease)
            // What the functions that reconcile need.
            .reconcile_with(gateway.clone())
            .reconcile_with(orders.clone())
            // Orders have two handlers, and where the records stand decides which is served.
            .not_served(if records.with_orders {
                "orders::leased"
            } else {
                "orders::handlers::create_order"
            })
            .build()?;

        let cashier = Cashier::start(orders.clone(), gateway.clone());
        let app = {
            let idempotency = idempotency.clone();
            move || {
                let app = App::new()
                    .app_data(idempotency.clone())
                    .app_data(web::Data::new(orders.clone()))
                    .app_data(web::Data::new(gateway.clone()))
                    .app_data(cashier.clone())
                    .wrap(from_fn(collect_before_answering))
                    .configure(error::answer_in_problem_json)
                    .configure(handlers::routes);
                if records.with_orders {
                    app.service(handlers::create_order)
                } else {
                    app.service(leased::create_order)
                }
            }
        };
        let server = HttpServer::new(app)
            .listen(listener)
            .map_err(cannot_listen)?;
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

    /// Serves until SIGTERM or Ctrl-C, then finishes and saves every request under way, also those
    /// whose client has left. Orders not charged by then are left to the next process.
    ///
    /// # Errors
    ///
    /// Those of the server.
    pub async fn run(self) -> io::Result<()> {
        self.idempotency.serve(self.server).await
    }
}

/// What the driver would only call "unable to open database file".
fn check_place(database: &Path) -> Result<(), StartError> {
    if let Some(path) = database
        .to_str()
        .and_then(|url| url.strip_prefix("sqlite:"))
    {
        return Err(StartError::DatabaseUrl(path.into()));
    }
    match database.parent() {
        // The current folder has no name.
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            Err(StartError::NoFolder {
                file: database.to_owned(),
                folder: folder.to_owned(),
            })
        }
        _ => Ok(()),
    }
}

/// An error and its causes, in one line.
fn reasons(error: &StoreError) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let reason = error.to_string();
        // Some wrap an error and say no more than it does.
        if !line.ends_with(&reason) {
            line = format!("{line}: {reason}");
        }
        cause = error.source();
    }
    line
}
