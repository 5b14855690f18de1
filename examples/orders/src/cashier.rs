//! Collects the money for orders that have been committed.
//!
//! An order and the intention to charge its card are one row of one commit (`pending`), so there is
//! never one without the other. From then on the charge is repeated until the gateway has settled
//! it, by this process or by the next one on the same file. The gateway recognises a repeat by the
//! order's charge key: at least once on this side, once on that side.

use crate::{
    gateway::{ChargeError, Gateway},
    model::Charge,
    store::OrderStore,
};
use actix_web::{
    Error,
    body::MessageBody,
    dev::{ServiceRequest, ServiceResponse},
    http::{
        Method,
        header::{HeaderMap, LOCATION},
    },
    middleware::Next,
    web,
};
use sqlx::Error as DatabaseError;
use std::{collections::HashSet, time::Duration};
use tokio::{
    sync::{Notify, broadcast},
    task::JoinSet,
};
use uuid::Uuid;

/// Charges under way at once.
const AT_ONCE: usize = 64;
/// Time until the next look for orders that nobody has pointed out: those of a killed process.
const PERIOD: Duration = Duration::from_secs(1);
/// Pause after a charge that the gateway did not settle.
const PAUSE: Duration = Duration::from_secs(1);
/// How long an answer waits for the charge of its order.
const PATIENCE: Duration = Duration::from_secs(5);
/// Where orders are placed.
const ORDERS: &str = "/api/v1/orders";

/// A committed order whose charge is not settled.
#[derive(Debug)]
pub struct Due {
    /// The key of its charge at the gateway.
    pub charge_key: Uuid,
    /// What is charged.
    pub charge: Charge,
}

/// The task that collects, as others see it.
#[derive(Debug)]
pub struct Cashier {
    orders: OrderStore,
    gateway: Gateway,
    wake: Notify,
    /// Orders whose charge has been tried just now.
    tried: broadcast::Sender<i64>,
}

impl Cashier {
    /// Starts collecting, beginning with what an earlier process has left.
    pub fn start(orders: OrderStore, gateway: Gateway) -> web::Data<Cashier> {
        let cashier = web::Data::new(Cashier {
            orders,
            gateway,
            wake: Notify::new(),
            tried: broadcast::Sender::new(1024),
        });
        actix_web::rt::spawn(cashier.clone().into_inner().run());
        cashier
    }

    async fn run(self: std::sync::Arc<Self>) {
        let mut charging = JoinSet::new();
        let mut under_way = HashSet::new();
        loop {
            // Of twice as many as may be under way, as many as may be are not, if there are any.
            let due = self.orders.due(2 * AT_ONCE).await.unwrap_or_else(|error| {
                tracing::error!("cannot look for orders to charge: {error}");
                Vec::new()
            });
            for due in due {
                if under_way.len() < AT_ONCE && under_way.insert(due.charge.order_id) {
                    let cashier = self.clone();
                    charging.spawn(async move { cashier.collect(due).await });
                }
            }
            tokio::select! {
                Some(done) = charging.join_next() => match done {
                    Ok(order_id) => {
                        under_way.remove(&order_id);
                    }
                    Err(error) => tracing::error!("a charge was broken off: {error}"),
                },
                () = self.wake.notified() => {}
                () = tokio::time::sleep(PERIOD) => {}
            }
        }
    }

    async fn collect(&self, due: Due) -> i64 {
        let order_id = due.charge.order_id;
        let settled = self.settle(&due).await;
        // Nobody may be waiting for it.
        let _ = self.tried.send(order_id);
        match settled {
            Ok(true) => {}
            Ok(false) => tokio::time::sleep(PAUSE).await,
            Err(error) => {
                tracing::error!(order_id, "the outcome of a charge was not entered: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
        order_id
    }

    /// Says whether the gateway has settled the charge.
    async fn settle(&self, due: &Due) -> Result<bool, DatabaseError> {
        let order_id = due.charge.order_id;
        match self.gateway.charge(due.charge_key, &due.charge).await {
            Ok(receipt) => self.orders.mark_paid(order_id, &receipt).await?,
            Err(ChargeError::Declined) => self.orders.decline(order_id).await?,
            Err(ChargeError::Unreachable | ChargeError::Unknown) => return Ok(false),
        }
        Ok(true)
    }

    /// Waits until the charge of an order has been tried.
    async fn tried(&self, order_id: i64) -> Result<(), DatabaseError> {
        let mut tried = self.tried.subscribe();
        if self.orders.is_pending(order_id).await? {
            self.wake.notify_one();
            // Too many at once to be followed: no reason to wait on.
            while tried.recv().await.is_ok_and(|other| other != order_id) {}
        }
        Ok(())
    }
}

/// Middleware that holds an order's answer back for a moment, so that a client who then looks the
/// order up finds it paid, or declined. The order stands, and its answer is saved, whatever comes of it.
///
/// # Errors
///
/// Those of the application.
pub async fn collect_before_answering(
    cashier: web::Data<Cashier>,
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let is_order = request.method() == Method::POST && request.path() == ORDERS;
    let response = next.call(request).await?;
    if is_order && let Some(order_id) = placed(response.headers()) {
        match tokio::time::timeout(PATIENCE, cashier.tried(order_id)).await {
            Ok(Ok(())) | Err(_) => {}
            Ok(Err(error)) => tracing::error!(order_id, "cannot look up an order: {error}"),
        }
    }
    Ok(response)
}

/// The number of the order that an answer speaks of.
fn placed(headers: &HeaderMap) -> Option<i64> {
    let location = headers.get(LOCATION)?.to_str().ok()?;
    location
        .strip_prefix(ORDERS)?
        .strip_prefix('/')?
        .parse()
        .ok()
}
