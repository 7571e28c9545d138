//! Tickets: a statement that may be run once its rows are fetched, in the client's hands.
//!
//! # Invariants
//! - A ticket is sealed with a key of this process, and ends after [`LIFE_MILLIS`].
//! - A statement that changes something, and one that was cancelled, does not run a second time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use ring::hmac;

use crate::failure::Failure;

/// How long a ticket may be fetched.
pub(super) const LIFE_MILLIS: i64 = 10 * 60_000;
/// Tickets that are remembered as used; each for as long as it would live.
const USED: usize = 100_000;
/// Bytes of a seal.
const MAC_BYTES: usize = 32;

/// What names a ticket, a prepared statement or a session; 16 random bytes.
pub(super) type Id = [u8; 16];

/// What a ticket says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub id: Id,
    /// Milliseconds since 1970, UTC.
    pub made: i64,
    pub role: String,
    pub text: String,
}

/// Makes tickets, and knows them again.
pub(super) struct Tickets {
    key: hmac::Key,
    /// When they were made, by id.
    used: Mutex<HashMap<Id, i64>>,
}

impl Tickets {
    /// Tickets of this process, which has the key.
    pub fn new(key: &[u8; 32]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key), used: Mutex::default() }
    }

    /// The ticket's bytes.
    pub fn seal(&self, ticket: &Ticket) -> Bytes {
        let role = ticket.role.as_bytes();
        let mut body = Vec::with_capacity(64 + role.len() + ticket.text.len());
        body.extend_from_slice(&ticket.id);
        body.extend_from_slice(&ticket.made.to_be_bytes());
        body.extend_from_slice(&(role.len() as u32).to_be_bytes());
        body.extend_from_slice(role);
        body.extend_from_slice(ticket.text.as_bytes());
        let mut sealed = hmac::sign(&self.key, &body).as_ref().to_vec();
        sealed.append(&mut body);
        sealed.into()
    }

    /// What is in a ticket.
    ///
    /// # Errors
    /// 26000 if it is not one of this process, or is over.
    pub fn open(&self, sealed: &[u8], now: i64) -> Result<Ticket, Failure> {
        let ticket = self.read(sealed).ok_or_else(|| {
            Failure::new("26000", "the ticket is not one of this server")
                .with_hint("run the statement again")
        })?;
        match now.saturating_sub(ticket.made) > LIFE_MILLIS {
            true => Err(Failure::new("26000", "the ticket was not fetched in 10 minutes")
                .with_hint("run the statement again")),
            false => Ok(ticket),
        }
    }

    fn read(&self, sealed: &[u8]) -> Option<Ticket> {
        let (mac, body) = sealed.split_at_checked(MAC_BYTES)?;
        hmac::verify(&self.key, body, mac).ok()?;
        let (id, rest) = body.split_first_chunk::<16>()?;
        let (made, rest) = rest.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (role, text) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        Some(Ticket {
            id: *id,
            made: i64::from_be_bytes(*made),
            role: String::from_utf8(role.to_vec()).ok()?,
            text: String::from_utf8(text.to_vec()).ok()?,
        })
    }

    /// It is not to be run, or not again. False if that was so already.
    ///
    /// # Errors
    /// 54000 if too many are remembered.
    pub fn use_up(&self, ticket: &Ticket, now: i64) -> Result<bool, Failure> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.len() >= USED {
            used.retain(|_, made| now.saturating_sub(*made) <= LIFE_MILLIS);
        }
        if used.len() >= USED {
            return Err(Failure::new("54000", "too many tickets were used in 10 minutes")
                .with_hint("send statements that change something as updates"));
        }
        Ok(used.insert(ticket.id, ticket.made).is_none())
    }

    /// Was it used up?
    pub fn is_used(&self, ticket: &Ticket) -> bool {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&ticket.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_open_for_ten_minutes_and_only_as_they_were_sealed() {
        let tickets = Tickets::new(&[7; 32]);
        let (role, text) = ("ann".to_owned(), "SELECT 'ü'".to_owned());
        let ticket = Ticket { id: [1; 16], made: 1000, role, text };
        let sealed = tickets.seal(&ticket);
        assert_eq!(tickets.open(&sealed, 1000 + LIFE_MILLIS), Ok(ticket.clone()));
        assert_eq!(tickets.open(&sealed, 1001 + LIFE_MILLIS).unwrap_err().code, "26000");
        for at in 0..sealed.len() {
            let mut wrong = sealed.to_vec();
            wrong[at] ^= 1;
            assert!(tickets.open(&wrong, 1000).is_err(), "byte {at}");
            assert!(tickets.open(&sealed[..at], 1000).is_err(), "{at} bytes");
        }
        assert!(Tickets::new(&[8; 32]).open(&sealed, 1000).is_err());
        assert_eq!(tickets.use_up(&ticket, 1000), Ok(true));
        assert_eq!(tickets.use_up(&ticket, 1000), Ok(false));
        assert!(tickets.is_used(&ticket));
    }
}
