//! One route for every policy.

mod bodies;
mod policies;
mod transactional;

use actix_web::{FromRequest, Handler, Resource, Responder, http::Method, web};
use idem_tests::stores::Database;

/// All routes that run the shared body.
pub(crate) fn configure(config: &mut web::ServiceConfig, database: &Database) {
    policies::configure(config);
    bodies::configure(config);
    transactional::configure(config, database);
}

/// Handlers of the program that a lab on this database does not serve.
pub(crate) fn not_served(database: &Database) -> Vec<&'static str> {
    transactional::not_served(database)
}

/// A resource for POST; safe methods reach the same handler, to show that they are never protected.
fn posted<F, Args>(path: &str, handler: F) -> Resource
where
    F: Handler<Args> + Clone,
    Args: FromRequest + 'static,
    F::Output: Responder + 'static,
{
    safe(path, handler.clone()).route(web::post().to(handler))
}

/// A resource for the safe methods alone.
fn safe<F, Args>(path: &str, handler: F) -> Resource
where
    F: Handler<Args> + Clone,
    Args: FromRequest + 'static,
    F::Output: Responder + 'static,
{
    web::resource(path)
        .route(web::head().to(handler.clone()))
        .route(web::method(Method::OPTIONS).to(handler))
}
