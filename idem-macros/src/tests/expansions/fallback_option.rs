::core::compile_error! {
    "`ttl` has a number without a unit: write `24s`, `24m` or `24h`"
}
#[post("/orders")]
#[tracing::instrument]
async fn create_order(user: AuthUser) -> HttpResponse {
    body()
}
