//! The HTTP API. One attribute makes a retry of `create_order` safe; nothing else here knows of it.

use crate::{
    auth::AuthUser,
    error::ApiError,
    gateway::{ChargeError, Gateway},
    model::{Charge, NewOrder, Order, OrderCreated, OrderList, Status},
    store::OrderStore,
};
use actix_web::{HttpResponse, ResponseError, get, http::header::LOCATION, post, web};
use idem_runtime::{Context, idempotent, outcome};

/// Registers the API's routes.
pub fn routes(config: &mut web::ServiceConfig) {
    config
        .service(create_order)
        .service(list_orders)
        .service(show_order);
}

/// Reserve, charge, confirm. The effects lie in two systems, so there is no one transaction around
/// them. A process killed between two steps leaves the order `pending`, with or without a charge;
/// its claim then runs out, and on the default policy (`abandoned = "hold"`) every retry is
/// answered 409 `outcome-unknown`: the operation may be unfinished, but it never happens twice. The
/// order keeps the charge's key, by which the gateway can say what became of the money.
#[idempotent(scope = "user", ttl = "24h")]
#[post("/api/v1/orders")]
async fn create_order(
    user: AuthUser,
    order: web::Json<NewOrder>,
    orders: web::Data<OrderStore>,
    gateway: web::Data<Gateway>,
    context: Context,
) -> Result<HttpResponse, ApiError> {
    // The same for every attempt at this order: the gateway, too, recognises a repeat.
    let charge_key = context.downstream_key("charge");

    // Stock and order in one transaction: killed before its end, neither exists.
    let order_id = orders.place(&user, &order, charge_key).await?;

    // Killed from here on: stock is reserved, and the money may have moved or not.
    let charge = Charge::of(order_id, &order);
    match gateway.charge(charge_key, &charge).await {
        Ok(receipt) => orders.mark_paid(order_id, &receipt).await?,
        // An answer like any other: kept, and replayed to retries of this key.
        Err(ChargeError::Declined) => {
            orders.cancel(order_id, Status::Declined).await?;
            return Err(ApiError::PaymentDeclined);
        }
        // No charge was made and the order is taken back: nothing happened, so a retry may run.
        Err(ChargeError::Unreachable) => {
            orders.cancel(order_id, Status::Cancelled).await?;
            return Ok(outcome::release(
                ApiError::PaymentUnavailable.error_response(),
            ));
        }
        // The money may have moved: the order stays `pending` and this answer is kept, because a
        // second run could charge twice.
        Err(ChargeError::Unknown) => return Err(ApiError::PaymentUnknown { order_id }),
    }
    // Killed from here on: everything is done and only the answer is missing.
    Ok(HttpResponse::Created()
        .insert_header((LOCATION, format!("/api/v1/orders/{order_id}")))
        .json(OrderCreated { order_id }))
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
