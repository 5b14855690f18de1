//! Putting the server together and running it.

use crate::{
    args::{Args, Switch},
    callers::{Caller, Revoked, authenticate},
    crash,
    journal::Journal,
    operator, orders,
    reconciler::Witness,
    routes,
};
use actix_web::{
    App, HttpServer,
    middleware::{Compress, Condition, from_fn},
    web,
};
use idem_runtime::Idempotency;
use idem_tests::stores::{self, Opened};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::{io::Write, time::Duration};

/// How long handlers in flight may take after SIGTERM.
const DRAIN_LIMIT: Duration = Duration::from_millis(9_500);
/// Largest body that an extractor takes; routes with a key have lower limits of their own.
const MOST_BODY: usize = 8 << 20;

/// Serves until SIGTERM. What prevents it is said in a sentence.
pub(crate) async fn serve(args: Args) -> Result<(), String> {
    let metrics = PrometheusBuilder::new()
        .install_recorder()
        .map_err(|error| format!("metrics: {error}"))?;
    let journal = Journal::open(args.journal.as_deref())
        .map_err(|error| format!("the journal cannot be opened: {error}"))?;
    let opened = stores::open(&stores::Request {
        url: args.store.clone(),
        connections: args.pool,
        memory_records: args.memory_records,
        slow_complete: args.slow_complete,
        failing: args.fail.clone(),
        key_prefix: args.key_prefix.clone(),
    })
    .await?;
    orders::create_table(&opened.database).await?;
    let journal = web::Data::new(journal);
    let idempotency = configure(&args, &opened, &journal)?;
    run(&args, idempotency, opened, journal, metrics).await
}

fn configure(
    args: &Args,
    opened: &Opened,
    journal: &web::Data<Journal>,
) -> Result<Idempotency, String> {
    let mut builder = Idempotency::builder_on(opened.store.clone());
    for handler in routes::not_served(&opened.database) {
        builder = builder.not_served(handler);
    }
    if !args.orphans.is_zero() {
        builder = builder.report_orphans_every(Some(args.orphans));
    }
    builder
        .scope("user", |caller: Caller| caller.user)
        .scope("tenant", |caller: Caller| caller.tenant)
        .lease(args.lease)
        .renew_leases(args.heartbeat == Switch::On)
        .store_timeout(args.store_timeout)
        .on_store_error(args.on_store_error.into())
        .sweep_every((!args.sweep.is_zero()).then_some(args.sweep))
        .drain_limit(DRAIN_LIMIT)
        .reconcile_every(args.reconcile_every)
        .reconcile_patience(args.reconcile_patience)
        .reconcile_with(Witness {
            journal: journal.clone(),
            file: args.journal.clone(),
            undecided: args.undecided,
        })
        .build()
        .map_err(|error| error.to_string())
}

async fn run(
    args: &Args,
    idempotency: Idempotency,
    opened: Opened,
    journal: web::Data<Journal>,
    metrics: PrometheusHandle,
) -> Result<(), String> {
    let revoked = web::Data::new(Revoked::default());
    let metrics = web::Data::new(metrics);
    let entries = web::Data::new(opened.entries);
    let database = web::Data::new(opened.database);
    let compress = args.compress;
    let app = {
        let idempotency = idempotency.clone();
        move || {
            App::new()
                .app_data(web::Data::new(idempotency.clone()))
                .app_data(journal.clone())
                .app_data(revoked.clone())
                .app_data(metrics.clone())
                .app_data(entries.clone())
                .app_data(web::PayloadConfig::new(MOST_BODY))
                .configure(|config| routes::configure(config, &database))
                .app_data(database.clone())
                .configure(operator::configure)
                .wrap(from_fn(authenticate))
                .wrap(from_fn(crash::before_the_answer_leaves))
                .wrap(from_fn(crash::arm_what_is_asked_for))
                .wrap(Condition::new(compress, Compress::default()))
        }
    };
    let server = HttpServer::new(app)
        .workers(args.workers.into())
        // On a machine that is busy with many labs, a request's head may be long in coming.
        .client_request_timeout(Duration::from_secs(60))
        .shutdown_timeout(DRAIN_LIMIT.as_secs())
        .disable_signals();
    let bound = if args.h2c {
        server.bind_auto_h2c(args.bind)
    } else {
        server.bind(args.bind)
    };
    let server = bound.map_err(|error| format!("cannot listen on {}: {error}", args.bind))?;
    let address = server
        .addrs()
        .first()
        .copied()
        .ok_or_else(|| "no address to listen on".to_owned())?;
    let (served, ()) = tokio::join!(
        // Polled first: whoever has read the line may send a signal.
        idempotency.serve(server.run()),
        async { ready(address) }
    );
    served.map_err(|error| format!("the server failed: {error}"))
}

fn ready(address: std::net::SocketAddr) {
    let mut stdout = std::io::stdout().lock();
    let line = format!("lab listening on http://{address}\n");
    // Nobody may be reading: the server serves all the same.
    let _ = stdout
        .write_all(line.as_bytes())
        .and_then(|()| stdout.flush());
}
