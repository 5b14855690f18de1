use actix_web::HttpResponse;
use idem_runtime::idempotent;

trait Orders {
    #[idempotent(scope = "user", ttl = "24h")]
    async fn create() -> HttpResponse;
}

fn main() {}
