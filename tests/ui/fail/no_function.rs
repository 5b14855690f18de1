use idem_runtime::idempotent;

#[idempotent(scope = "user", ttl = "24h")]
pub struct Orders;

fn main() {
    let _ = Orders;
}
