use idem_runtime::idempotent;

struct Orders;

#[idempotent(scope = "user", ttl = "24h")]
impl Orders {}

fn main() {
    let _ = Orders;
}
