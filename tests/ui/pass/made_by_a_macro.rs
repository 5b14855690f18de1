use actix_web::{App, HttpResponse, post, web};
use idem_runtime::idempotent;

macro_rules! handler {
    ($name:ident, $path:literal, $scope:literal, $ttl:expr, $body:ty, $size:expr) => {
        #[idempotent(scope = $scope, ttl = $ttl, max_body = $size)]
        #[post($path)]
        async fn $name(order: web::Json<$body>) -> HttpResponse {
            HttpResponse::Created().json(order.0)
        }
    };
}

handler!(create_order, "/orders", "user", "24h", u32, 1000);
handler!(
    create_other,
    "/others",
    "tenant:user",
    "1h",
    Vec<String>,
    "1MiB"
);

fn main() {
    let _ = App::new().service(create_order).service(create_other);
}
