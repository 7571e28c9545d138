//! How much anybody may ask of a server: connections, logins and statements by address, and what tenants use by day and
//! hour.
//!
//! # Invariants
//! - Whatever is kept by name or address is bounded, whoever invents names and addresses.
//! - Time is an argument, or a clock that is given.
//!
//! # Not here
//! Who asks (`gate` has the one place for each question); slots and queues (the engine's admission); rows that wait for
//! their clients (`spool`).

mod connections;
mod failed_logins;
mod kept;
mod memory;
mod quotas;
mod rates;

use std::net::{IpAddr, Ipv6Addr};

pub(crate) use connections::{Arrival, Connections, Seat};
pub(crate) use failed_logins::FailedLogins;
pub(crate) use kept::{keep, kept};
pub(crate) use memory::MemoryShares;
pub(crate) use quotas::{Quotas, Used};
pub(crate) use rates::Rate;

/// Loads of all protocols that are under way at once; others wait with their files on the disk.
pub(crate) const LOADS_AT_ONCE: usize = 2;
/// Names, addresses and the like of which something is kept.
const MOST_KEPT: usize = 10_000;

/// What a server lets each address and role do. Addresses of the server's own machine have no limit of connections and
/// rates: a proxy there speaks for many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once of a role that has no limit of its own.
    pub connections_of_role: usize,
    pub connections_of_address: usize,
    /// Logins that are checked, of each address; 0 is no limit.
    pub logins_per_second: u32,
    /// Statements, of each address; 0 is no limit.
    pub statements_per_second: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_of_role: 500,
            connections_of_address: 500,
            logins_per_second: 50,
            statements_per_second: 500,
        }
    }
}

/// Who is counted together: an IPv4 address, or the 64 bits of an IPv6 one that a network's owner does not choose.
/// `None` for this machine.
fn place(address: IpAddr) -> Option<IpAddr> {
    match address.to_canonical() {
        own if own.is_loopback() => None,
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            Some(Ipv6Addr::from_bits(network).into())
        }
        address => Some(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_network_are_one_and_this_machine_is_none() {
        let of = |text: &str| place(text.parse().unwrap()).map(|address| address.to_string());
        assert_eq!(of("127.0.0.9"), None);
        assert_eq!((of("::1"), of("::ffff:127.0.0.1")), (None, None));
        assert_eq!(of("::ffff:10.0.0.1").unwrap(), "10.0.0.1");
        assert_eq!(of("2001:db8:1:2:3:4:5:6").unwrap(), "2001:db8:1:2::");
    }
}
