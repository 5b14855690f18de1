//! The order's handler for records that stand in another database than the orders (`--store`).
//!
//! Two databases cannot commit as one, so the answer follows the order and a process can be killed
//! between them. Here the orders themselves can be asked what became of it, by a key that can be
//! made again. It outlives the record: the same key and order then get the order that stands, and
//! another order under that key is refused.

use crate::{
    auth::AuthUser,
    error::ApiError,
    handlers::order_created,
    model::{NewOrder, OrderCreated},
    store::OrderStore,
};
use actix_web::{HttpResponse, post, web};
use idem_runtime::{Abandoned, Context, Resolution, idempotent, record::StoredResponse};

#[idempotent(scope = "user", ttl = "24h", reconcile = look_for_order)]
#[post("/api/v1/orders")]
pub(crate) async fn create_order(
    user: AuthUser,
    order: web::Json<NewOrder>,
    orders: web::Data<OrderStore>,
    context: Context,
) -> Result<HttpResponse, ApiError> {
    let charge_key = context.downstream_key("charge");
    let order_id = orders.place(&user, &order, charge_key).await?;
    Ok(order_created(order_id))
}

/// An order can be found by the key of its charge, of which there is one for all attempts.
async fn look_for_order(order: Abandoned) -> Resolution {
    let Some(orders) = order.value::<OrderStore>() else {
        return Resolution::Pending;
    };
    let charge_key = order.downstream_key("charge");
    match orders.placed_under(charge_key).await {
        Ok(Some(order_id)) => answer(order_id).map_or(Resolution::Pending, Resolution::Complete),
        // Should the first process only have stood still, then it and the retry find one another's order.
        Ok(None) => Resolution::Release,
        Err(_) => Resolution::Pending,
    }
}

/// The answer that [`create_order`] would have given.
fn answer(order_id: i64) -> Option<StoredResponse> {
    StoredResponse::new(201)
        .header("location", format!("/api/v1/orders/{order_id}"))
        .json(&OrderCreated { order_id })
        .ok()
}
