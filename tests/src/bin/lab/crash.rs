//! Ending the process at a chosen moment, as a crash would: no destructor, no flush, no answer.

use actix_web::{
    Error, HttpMessage, HttpRequest,
    body::MessageBody,
    dev::{ServiceRequest, ServiceResponse},
    middleware::Next,
};

/// In the extensions of a request whose handler has run and whose process is to end before the
/// answer leaves.
struct Due;

/// Marks the request: the process ends when its answer comes by [`before_the_answer_leaves`].
pub(crate) fn when_the_answer_leaves(request: &HttpRequest) {
    request.extensions_mut().insert(Due);
}

/// Ends the process now.
pub(crate) fn now() -> ! {
    std::process::abort()
}

/// The outermost middleware but for compression: what comes by here is saved and not yet sent.
pub(crate) async fn before_the_answer_leaves<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    let answer = next.call(request).await?;
    if answer.request().extensions().get::<Due>().is_some() {
        now();
    }
    Ok(answer)
}
