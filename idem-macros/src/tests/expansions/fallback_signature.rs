::core::compile_error! {
    "a handler is asynchronous: write `async fn create_order`"
}
::core::compile_error! {
    "a handler cannot be generic, since each route keeps its own records: write a handler with concrete types that calls the generic function"
}
::core::compile_error! {
    "`create_order` returns nothing to answer with: give it a result that implements `Responder`, such as `-> HttpResponse`"
}
#[post("/orders")]
pub async fn create_order() -> &'static ::core::primitive::str {
    #[allow(dead_code)]
    #[tracing::instrument]
    fn create_order<T: Handler>(user: T) {
        body()
    }
    ""
}
