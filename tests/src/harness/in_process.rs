//! An application of a test's own, for what the lab has no route for.

use crate::{
    services::{self, Fresh, Store},
    stores,
};
use actix_web::{
    App, Error, HttpRequest, HttpServer,
    body::MessageBody,
    dev::{ServerHandle, ServiceFactory, ServiceRequest, ServiceResponse},
};
use idem_runtime::{Idempotency, IdempotencyBuilder, testing::CountingStore};
use std::{net::SocketAddr, sync::Arc, time::Duration};

/// A server in the test's own process; stopped when dropped.
#[derive(Debug)]
pub struct InProcess {
    /// Where it listens.
    pub address: SocketAddr,
    server: ServerHandle,
    // Held for its Drop.
    _place: Fresh,
}

impl InProcess {
    /// A configuration on a clean place in a store, with the scope `user`: whatever stands in the
    /// `Authorization` header.
    ///
    /// # Panics
    ///
    /// If the store cannot be opened.
    pub async fn configuration(store: Store) -> (IdempotencyBuilder, Fresh) {
        Self::configuration_in(services::fresh(store).await).await
    }

    /// The same in this place.
    ///
    /// # Panics
    ///
    /// If the store cannot be opened.
    pub async fn configuration_in(place: Fresh) -> (IdempotencyBuilder, Fresh) {
        let store = store_at(&place).await;
        (builder_on(store), place)
    }

    /// The same with a counter of its store's calls, which opens no transactions.
    ///
    /// # Panics
    ///
    /// As [`configuration`](Self::configuration).
    pub async fn counted(store: Store) -> (IdempotencyBuilder, CountingStore, Fresh) {
        let place = services::fresh(store).await;
        let counting = CountingStore::over(store_at(&place).await);
        let builder = builder_on(Arc::new(counting.clone()));
        (builder, counting, place)
    }

    /// Serves an application.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub fn serve<T, B>(place: Fresh, app: impl Fn() -> App<T> + Send + Clone + 'static) -> InProcess
    where
        T: ServiceFactory<
                ServiceRequest,
                Config = (),
                Response = ServiceResponse<B>,
                Error = Error,
                InitError = (),
            > + 'static,
        B: MessageBody + 'static,
    {
        let server = HttpServer::new(app)
            .workers(2)
            // On a busy machine, a request's head may be long in coming.
            .client_request_timeout(Duration::from_secs(60))
            // Whoever compares bytes should not wait for acknowledgements of them.
            .tcp_nodelay(true)
            .disable_signals()
            .bind("127.0.0.1:0")
            .expect("a free port");
        let address = *server.addrs().first().expect("an address");
        let server = server.run();
        let handle = server.handle();
        tokio::spawn(server);
        InProcess {
            address,
            server: handle,
            _place: place,
        }
    }
}

async fn store_at(place: &Fresh) -> Arc<dyn idem_runtime::store::Store> {
    let request = stores::Request {
        key_prefix: Some(format!("{}:", place.name())),
        ..stores::Request::of(place.url())
    };
    let opened = stores::open(&request).await;
    opened.expect("the store can be opened").store
}

fn builder_on(store: Arc<dyn idem_runtime::store::Store>) -> IdempotencyBuilder {
    Idempotency::builder_on(store).scope("user", |request: HttpRequest| {
        let line = request.headers().get("authorization")?;
        line.to_str().ok().map(str::to_owned)
    })
}

impl Drop for InProcess {
    fn drop(&mut self) {
        // Sent when called; waiting for the end is what the future is for.
        drop(self.server.stop(false));
    }
}
