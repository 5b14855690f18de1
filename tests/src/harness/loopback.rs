//! Where the tests' own servers listen.

use std::net::{Ipv4Addr, SocketAddr};

/// An address with a port to be chosen, on an interface address that no other server has.
///
/// A port alone may go from a server that has died to one that another test starts, which then gets
/// what is still sent to the first: requests of a test that runs beside it, or a lab's statements. A
/// store's server that is killed, on the other hand, must find its port free again.
#[must_use]
pub fn unshared_address() -> SocketAddr {
    let address = if cfg!(target_os = "linux") {
        let [second, third, fourth] = rand::random::<[u8; 3]>();
        Ipv4Addr::new(127, second.clamp(1, 254), third, fourth)
    } else {
        // Elsewhere only this one is there without being set up.
        Ipv4Addr::LOCALHOST
    };
    SocketAddr::from((address, 0))
}
