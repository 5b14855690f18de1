//! Ending the process at a chosen moment, as a crash would: no destructor, no flush, no answer.

use actix_web::{
    Error, HttpMessage, HttpRequest,
    body::MessageBody,
    dev::{ServiceRequest, ServiceResponse},
    error::ErrorBadRequest,
    middleware::Next,
};
use idem_runtime::fail_points::{self, Moment};

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

/// `X-Lab-Fail-Point: NAME before|during|after N` on any request: from now on the process ends at
/// this point of the toolkit's flow when it comes there for the Nth time.
pub(crate) async fn arm_what_is_asked_for<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    if let Some(line) = request.headers().get("x-lab-fail-point") {
        let spec = line.to_str().unwrap_or_default();
        if !arm(spec) {
            return Err(ErrorBadRequest(format!("X-Lab-Fail-Point: no {spec:?}")));
        }
    }
    next.call(request).await
}

fn arm(spec: &str) -> bool {
    let mut words = spec.split(' ');
    let (Some(name), Some(moment), Some(nth), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return false;
    };
    let moment = match moment {
        "before" => Moment::Before,
        "during" => Moment::During,
        "after" => Moment::After,
        _ => return false,
    };
    nth.parse()
        .is_ok_and(|nth| fail_points::arm(name, moment, nth))
}
