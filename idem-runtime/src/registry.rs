//! Every annotated handler of the program, known before the first request.

use crate::policy::Policy;

/// One annotated handler. Built by generated code, in a `static`.
#[doc(hidden)]
#[derive(Debug)]
pub struct Route {
    pub(crate) name: &'static str,
    pub(crate) file: &'static str,
    pub(crate) line: u32,
    pub(crate) policy: Policy,
}

#[doc(hidden)]
impl Route {
    /// `name` is the handler's path, `module::function`: it finds the handler of a record again
    /// after a restart.
    pub const fn new(name: &'static str, file: &'static str, line: u32, policy: Policy) -> Route {
        Route {
            name,
            file,
            line,
            policy,
        }
    }
}

inventory::collect!(&'static Route);

/// The annotated handlers that are linked into the program.
pub(crate) fn routes() -> impl Iterator<Item = &'static Route> {
    inventory::iter::<&'static Route>.into_iter().copied()
}
