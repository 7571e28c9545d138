//! Connections at once: in all, of each address and of each role, whatever they speak.
//!
//! # Invariants
//! - A connection is counted from [`Connections::seat`] until its [`Seat`] is dropped, for one role at most.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::place;
use crate::failure::Failure;

/// Clients of which nobody knows yet who they are, at once.
const IN_LOGIN: usize = 200;

/// All connections.
#[derive(Debug)]
pub(crate) struct Connections {
    most: usize,
    most_of_address: usize,
    in_login: Arc<Semaphore>,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    addresses: HashMap<IpAddr, usize>,
    roles: HashMap<String, usize>,
}

/// Whose connections are too many, and how many there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Server(usize),
    Address(usize),
    Role(usize),
}

impl Full {
    /// Its name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Server(_) => "connections",
            Self::Address(_) => "connections_of_address",
            Self::Role(_) => "connections_of_role",
        }
    }

    /// What the client hears.
    pub fn failure(self) -> Failure {
        let (message, hint) = match self {
            Self::Server(most) => (
                "too many clients already",
                format!("at most {most} connections are served at once"),
            ),
            Self::Address(most) => (
                "too many connections from this address",
                format!("an address has at most {most} connections at once"),
            ),
            Self::Role(most) => (
                "too many connections for this role",
                format!("it has at most {most} connections at once: close some, or use a pool"),
            ),
        };
        Failure::new("53300", message).with_hint(hint)
    }
}

impl Connections {
    /// None yet.
    pub fn new(most: usize, most_of_address: usize) -> Arc<Self> {
        let in_login = Arc::new(Semaphore::new(IN_LOGIN));
        Arc::new(Self { most, most_of_address, in_login, counts: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place among those that are not logged in yet; `None` if there is none, of which clients are not even told: what
    /// it costs to tell is what there is too much of.
    pub fn door(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.in_login).try_acquire_owned().ok()
    }

    /// A place for a connection from this address.
    ///
    /// # Errors
    /// What is full.
    pub fn seat(self: &Arc<Self>, address: IpAddr) -> Result<Seat, Full> {
        let place = place(address);
        let mut counts = self.lock();
        if counts.all >= self.most {
            return Err(Full::Server(self.most));
        }
        if let Some(place) = place
            && !add(&mut counts.addresses, &place, self.most_of_address)
        {
            return Err(Full::Address(self.most_of_address));
        }
        counts.all += 1;
        drop(counts);
        Ok(Seat { all: Arc::clone(self), place, role: Mutex::default() })
    }
}

/// One more of a key; false if there are as many as may be.
fn add<K: Clone + Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K, most: usize) -> bool {
    let count = counts.get(key).copied().unwrap_or(0);
    let fits = count < most;
    if fits {
        counts.insert(key.clone(), count + 1);
    }
    fits
}

fn take<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// A connection that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    all: Arc<Connections>,
    place: Option<IpAddr>,
    role: Mutex<Option<String>>,
}

impl Seat {
    /// From now on it is one of this role's, which may have `most`.
    ///
    /// # Errors
    /// [`Full::Role`]; then it is whose it was.
    pub fn of_role(&self, role: &str, most: usize) -> Result<(), Full> {
        let mut own = self.role.lock().unwrap_or_else(PoisonError::into_inner);
        if own.as_deref() == Some(role) {
            return Ok(());
        }
        let mut counts = self.all.lock();
        if !add(&mut counts.roles, &role.to_owned(), most) {
            return Err(Full::Role(most));
        }
        if let Some(before) = own.replace(role.to_owned()) {
            take(&mut counts.roles, &before);
        }
        Ok(())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let own = self.role.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut counts = self.all.lock();
        counts.all -= 1;
        if let Some(place) = &self.place {
            take(&mut counts.addresses, place);
        }
        if let Some(role) = own {
            take(&mut counts.roles, role);
        }
    }
}

/// A connection of HTTP, whose requests say who asks: it is in login until one of them is let in.
#[derive(Clone, Debug)]
pub(crate) struct Arrival(Arc<(Seat, Mutex<Option<OwnedSemaphorePermit>>)>);

impl Arrival {
    pub fn new(seat: Seat, door: OwnedSemaphorePermit) -> Self {
        Self(Arc::new((seat, Mutex::new(Some(door)))))
    }

    pub fn seat(&self) -> &Seat {
        &self.0.0
    }

    /// A request of it was let in.
    pub fn let_in(&self) {
        self.0.1.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    pub fn is_let_in(&self) -> bool {
        self.0.1.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn connections_are_counted_in_all_by_address_and_by_role() {
        let all = Connections::new(4, 2);
        let (far, own) = (ip("10.0.0.1"), ip("127.0.0.1"));
        let first = all.seat(far).unwrap();
        let second = all.seat(far).unwrap();
        let refused = all.seat(far).unwrap_err();
        assert_eq!((refused, refused.failure().code.as_ref()), (Full::Address(2), "53300"));
        let here = [all.seat(own).unwrap(), all.seat(own).unwrap()];
        assert_eq!(all.seat(ip("10.0.0.2")).unwrap_err(), Full::Server(4));
        first.of_role("ann", 1).unwrap();
        first.of_role("ann", 1).unwrap();
        assert_eq!(second.of_role("ann", 1), Err(Full::Role(1)));
        // A connection that is somebody else's now.
        first.of_role("bob", 1).unwrap();
        second.of_role("ann", 1).unwrap();
        drop((first, second, here));
        let counts = all.lock();
        assert!(counts.all == 0 && counts.addresses.is_empty() && counts.roles.is_empty());
    }

    #[test]
    fn those_in_login_are_bounded_until_they_are_let_in() {
        let all = Connections::new(1000, 1000);
        let seat = || all.seat(ip("127.0.0.1")).unwrap();
        let arrivals: Vec<Arrival> =
            (0..IN_LOGIN).map(|_| Arrival::new(seat(), all.door().unwrap())).collect();
        assert!(all.door().is_none() && !arrivals[0].is_let_in());
        arrivals[0].let_in();
        arrivals[0].let_in();
        assert!(arrivals[0].is_let_in() && all.door().is_some());
    }
}
