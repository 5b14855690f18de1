//! The HTTP API: one model for effects in the same database, one for effects elsewhere. One
//! attribute each makes a retry safe; nothing else here knows of it.

use crate::{
    auth::AuthUser,
    error::ApiError,
    gateway::{ChargeError, Found, Gateway},
    model::{Charge, NewOrder, NewPayment, Order, OrderCreated, OrderList, PaymentMade},
    store::{self, OrderStore},
};
use actix_web::{HttpResponse, ResponseError, get, http::header::LOCATION, post, web};
use idem_runtime::{Abandoned, Context, Resolution, idempotent, outcome, record::StoredResponse};
use sqlx::SqliteConnection;
use uuid::Uuid;

/// Registers the API's routes, apart from `POST /api/v1/orders`: which handler that is depends on
/// where the records stand.
pub fn routes(config: &mut web::ServiceConfig) {
    config
        .service(create_payment)
        .service(list_orders)
        .service(show_order);
}

/// Everything that happens here happens in one database, so it happens exactly once: stock, order
/// and this answer are one commit. Killed before it, nothing has happened and the retry runs;
/// killed after it, the retry gets the answer.
///
/// The card is charged outside of this transaction, which could not take a charge back: an order
/// that is committed as `pending` is the cashier's to collect (`cashier.rs`). Its charge key can be
/// random: committed with the order, it is the same for every attempt to collect, and an attempt to
/// order that was rolled back has left none.
#[idempotent(scope = "user", ttl = "24h", transaction = tx)]
#[post("/api/v1/orders")]
pub(crate) async fn create_order(
    user: AuthUser,
    order: web::Json<NewOrder>,
    tx: &mut SqliteConnection,
) -> Result<HttpResponse, ApiError> {
    let order_id = store::place(tx, &user, &order, Uuid::new_v4()).await?;
    Ok(order_created(order_id))
}

/// A further payment on an order, such as a tip. Here the effect is in another system. It happens
/// at most once because the gateway recognises a repeat by its key; and where a process is killed
/// between the charge and the answer, the gateway is asked what became of it, so that a retry gets
/// an answer, and not the advice to look it up.
#[idempotent(scope = "user", ttl = "24h", reconcile = ask_gateway)]
#[post("/api/v1/payments")]
async fn create_payment(
    user: AuthUser,
    payment: web::Json<NewPayment>,
    orders: web::Data<OrderStore>,
    gateway: web::Data<Gateway>,
    context: Context,
) -> Result<HttpResponse, ApiError> {
    let order = orders.find(&user, payment.order_id()).await?;
    let order = order.ok_or(ApiError::OrderNotFound)?;
    let charge = Charge::further(order.order_id, &payment);

    // The same for every attempt at this payment.
    let charge_key = context.downstream_key("charge");
    let mut charged = gateway.charge(charge_key, &charge).await;
    if let Err(ChargeError::Unknown) = charged {
        // The money may have moved. Who asks what became of it moves nothing.
        charged = match gateway.find(charge_key).await {
            Ok(Found::Charged(found, _)) if found != charge => return Err(ApiError::KeyUsedBefore),
            Ok(Found::Charged(_, receipt)) => Ok(receipt),
            Ok(Found::Declined) => Err(ChargeError::Declined),
            // Should a request still be on its way, then the retry's has the same key.
            Ok(Found::Nothing) => Err(ChargeError::Unreachable),
            Ok(Found::UnderWay) | Err(_) => Err(ChargeError::Unknown),
        };
    }
    match charged {
        // Killed here: the money has moved and nothing is written down. `ask_gateway` repairs it.
        Ok(receipt) => {
            let made = orders.enter_payment(charge_key, &charge, &receipt).await?;
            Ok(HttpResponse::Created().json(made))
        }
        // An answer like any other: kept, and replayed to retries of this key.
        Err(ChargeError::Declined) => Err(ApiError::PaymentDeclined),
        // Nothing has happened, so a retry may run.
        Err(ChargeError::Unreachable) => Ok(outcome::release(
            ApiError::PaymentUnavailable.error_response(),
        )),
        // Kept, although it is a 502: where the money may have moved, nobody runs again.
        Err(ChargeError::Unknown) => Ok(outcome::keep(ApiError::PaymentUnknown.error_response())),
    }
}

/// What became of a payment whose process was killed: the gateway knows, by the key of the charge.
async fn ask_gateway(payment: Abandoned) -> Resolution {
    let (Some(gateway), Some(orders)) = (payment.value::<Gateway>(), payment.value::<OrderStore>())
    else {
        return Resolution::Pending;
    };
    let charge_key = payment.downstream_key("charge");
    match gateway.find(charge_key).await {
        Ok(Found::Charged(charge, receipt)) => {
            match orders.enter_payment(charge_key, &charge, &receipt).await {
                Ok(made) => payment_made(&made),
                Err(_) => Resolution::Pending,
            }
        }
        Ok(Found::Declined) => Resolution::Complete(ApiError::PaymentDeclined.stored()),
        // Should the killed process's charge still be on its way, then the retry's has the same key.
        Ok(Found::Nothing) => Resolution::Release,
        Ok(Found::UnderWay) | Err(_) => Resolution::Pending,
    }
}

/// The caller's orders, newest first.
#[get("/api/v1/orders")]
async fn list_orders(
    user: AuthUser,
    orders: web::Data<OrderStore>,
) -> Result<web::Json<OrderList>, ApiError> {
    let orders = orders.list(&user).await?;
    Ok(web::Json(OrderList { orders }))
}

/// One of the caller's orders; those of others do not exist for them.
#[get("/api/v1/orders/{id}")]
async fn show_order(
    user: AuthUser,
    id: web::Path<i64>,
    orders: web::Data<OrderStore>,
) -> Result<web::Json<Order>, ApiError> {
    let order = orders.find(&user, *id).await?;
    order.map(web::Json).ok_or(ApiError::OrderNotFound)
}

pub(crate) fn order_created(order_id: i64) -> HttpResponse {
    HttpResponse::Created()
        .insert_header((LOCATION, format!("/api/v1/orders/{order_id}")))
        .json(OrderCreated { order_id })
}

/// The answer that `create_payment` would have given.
fn payment_made(made: &PaymentMade) -> Resolution {
    match StoredResponse::new(201).json(made) {
        Ok(answer) => Resolution::Complete(answer),
        Err(_) => Resolution::Pending,
    }
}
