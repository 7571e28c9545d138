//! That who asks a node has the secret of its warehouse: each call carries a token for what it asks, and for nothing else.
//!
//! ```text
//! x-uplake-token: EXPIRY.MAC
//! MAC = HMAC-SHA256(secret, version, what, part, EXPIRY, query, warehouse, lake, SHA-256 of what is sent)
//! ```
//! EXPIRY is in milliseconds since 1970, UTC, MAC in hexadecimal digits; texts stand behind their lengths.
//!
//! # Invariants
//! - MACs are compared in constant time, and before anything else of a token is believed.
//! - Clocks of nodes may differ by [`SKEW_MS`] either way.
//!
//! # Not here
//! That a call is made once: who has a token and its ticket can have the same part computed again until its time is over.

use std::sync::Arc;

use ring::digest::{Digest, SHA256, digest};
use ring::hmac::{HMAC_SHA256, Key, Tag, sign, verify};

/// Where a token stands.
pub(super) const HEADER: &str = "x-uplake-token";
const VERSION: u8 = 1;
/// A token is good for so long after it was made: a call is made at once.
const LASTS_MS: i64 = 30_000;
/// What clocks of nodes may differ by.
const SKEW_MS: i64 = 30_000;
/// A secret that was replaced is still good for so long: until each node has read the new one, which takes a minute.
const BEFORE_MS: i64 = 300_000;

/// What is asked of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Who are you? Of nodes of other warehouses and lakes, too.
    Hello = 1,
    /// Compute a part.
    Part = 2,
    /// Stop the parts of a statement.
    Cancel = 3,
}

/// What a token is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct About<'a> {
    pub what: What,
    /// The statement, and which of its parts.
    pub query: &'a str,
    pub part: usize,
    pub warehouse: &'a str,
    pub lake: &'a str,
    /// SHA-256 of what is sent.
    pub sum: &'a [u8],
}

impl About<'_> {
    pub const HELLO: About<'static> =
        About { what: What::Hello, query: "", part: 0, warehouse: "", lake: "", sum: &[] };

    fn bytes(&self, expiry: i64) -> Vec<u8> {
        let mut bytes = vec![VERSION, self.what as u8];
        bytes.extend((self.part as u64).to_be_bytes());
        bytes.extend(expiry.to_be_bytes());
        let texts = [self.query, self.warehouse, self.lake].map(str::as_bytes);
        for text in texts.into_iter().chain([self.sum]) {
            bytes.extend((text.len() as u64).to_be_bytes());
            bytes.extend(text);
        }
        bytes
    }
}

/// The secret, and the one that it replaced.
pub(super) struct Secrets {
    key: Key,
    /// SHA-256 of the secret.
    sum: Digest,
    /// Until when it is good, in milliseconds since 1970, UTC.
    before: Option<(Key, i64)>,
}

impl Secrets {
    pub fn new(secret: &[u8]) -> Self {
        let (key, sum) = (Key::new(HMAC_SHA256, secret), digest(&SHA256, secret));
        Self { key, sum, before: None }
    }

    /// What is good from `now` on, when this is read; the same secret ends nothing of the one before it.
    pub fn followed_by(self: &Arc<Self>, secret: &[u8], now: i64) -> Arc<Self> {
        if self.sum.as_ref() == digest(&SHA256, secret).as_ref() {
            return Arc::clone(self);
        }
        let before = Some((self.key.clone(), now.saturating_add(BEFORE_MS)));
        Arc::new(Self { before, ..Self::new(secret) })
    }

    pub fn token(&self, about: &About<'_>, now: i64) -> String {
        let expiry = now.saturating_add(LASTS_MS);
        let mac = sign(&self.key, &about.bytes(expiry));
        format!("{expiry}.{}", hex(&mac))
    }

    /// # Errors
    /// Why it is none for this.
    pub fn check(&self, token: Option<&str>, about: &About<'_>, now: i64) -> Result<(), String> {
        let token = token.ok_or("calls of nodes have a token here: give who asks --node-secret")?;
        let other = || "the token is of another --node-secret, or for something else".to_owned();
        let (expiry, mac) = token.split_once('.').ok_or_else(other)?;
        let (expiry, mac) = expiry.parse().ok().zip(unhex(mac)).ok_or_else(other)?;
        let bytes = about.bytes(expiry);
        let before = self.before.as_ref().filter(|(_, until)| now < *until).map(|(key, _)| key);
        let mut keys = [&self.key].into_iter().chain(before);
        if !keys.any(|key| verify(key, &bytes, &mac).is_ok()) {
            return Err(other());
        }
        let left = expiry.saturating_sub(now);
        if (-SKEW_MS..=LASTS_MS + SKEW_MS).contains(&left) {
            return Ok(());
        }
        let differ = (LASTS_MS - left).unsigned_abs() / 1000;
        Err(format!(
            "the token was made {differ} s {} this node's clock: clocks of nodes may differ by {} s",
            if left < 0 { "before" } else { "after" },
            SKEW_MS / 1000,
        ))
    }
}

fn hex(tag: &Tag) -> String {
    tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let is_one = |digit: &u8| digit.is_ascii_hexdigit();
    if digits.len() != 64 || !digits.iter().all(is_one) {
        return None;
    }
    let pair = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..digits.len()).step_by(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_793_491_200_000;

    fn about() -> About<'static> {
        let sum = &[7; 32];
        About { what: What::Part, query: "00ff", part: 2, warehouse: "default", lake: "/lake", sum }
    }

    #[test]
    fn a_token_is_for_what_it_was_made_for_and_for_nothing_else() {
        let secrets = Secrets::new(b"one");
        let token = secrets.token(&about(), NOW);
        assert_eq!(secrets.check(Some(&token), &about(), NOW), Ok(()));
        let others = [
            About { what: What::Cancel, ..about() },
            About { query: "00fe", ..about() },
            About { part: 3, ..about() },
            About { warehouse: "reports", ..about() },
            About { lake: "/lake2", ..about() },
            // Where a text ends is told, too.
            About { warehouse: "default/", lake: "lake", ..about() },
            About { sum: &[8; 32], ..about() },
            About::HELLO,
        ];
        for other in others {
            let said = secrets.check(Some(&token), &other, NOW).unwrap_err();
            assert!(said.contains("something else"), "{other:?}: {said}");
        }
        let said = Secrets::new(b"two").check(Some(&token), &about(), NOW).unwrap_err();
        assert!(said.contains("another --node-secret"), "{said}");
        let said = secrets.check(None, &about(), NOW).unwrap_err();
        assert!(said.contains("--node-secret"), "{said}");
    }

    #[test]
    fn tokens_that_are_changed_anywhere_are_none() {
        let secrets = Secrets::new(b"one");
        let token = secrets.token(&about(), NOW);
        for at in 0..token.len() {
            let mut other = token.clone().into_bytes();
            other[at] = if other[at] == b'1' { b'2' } else { b'1' };
            let other = String::from_utf8(other).unwrap();
            assert!(secrets.check(Some(&other), &about(), NOW).is_err(), "{other}");
            assert!(secrets.check(Some(&token[..at]), &about(), NOW).is_err(), "{at}");
        }
        let longer = format!("{token}00");
        for none in ["", ".", "1.", "x.00", "é.é", "99999999999999999999.00", &longer] {
            assert!(secrets.check(Some(none), &about(), NOW).is_err(), "{none}");
        }
    }

    #[test]
    fn clocks_may_differ_by_half_a_minute_and_no_token_is_good_for_ever() {
        let secrets = Secrets::new(b"one");
        let token = secrets.token(&about(), NOW);
        let at = |seconds: i64| secrets.check(Some(&token), &about(), NOW + seconds * 1000);
        for seconds in [-30, -1, 0, 1, 30, 60] {
            assert_eq!(at(seconds), Ok(()), "{seconds}");
        }
        let said = at(61).unwrap_err();
        assert!(said.contains("made 61 s before"), "{said}");
        let said = at(-31).unwrap_err();
        assert!(said.contains("made 31 s after"), "{said}");
    }

    #[test]
    fn a_secret_that_was_replaced_is_good_for_five_minutes() {
        let old = Arc::new(Secrets::new(b"one"));
        // It is read again with every certificate that is replaced.
        let new = old.followed_by(b"two", NOW).followed_by(b"two", NOW + 200_000);
        for (after, is_good) in [(0, true), (299_999, true), (300_000, false)] {
            let token = old.token(&about(), NOW + after);
            assert_eq!(new.check(Some(&token), &about(), NOW + after).is_ok(), is_good, "{after}");
            let token = new.token(&about(), NOW + after);
            assert_eq!(new.check(Some(&token), &about(), NOW + after), Ok(()));
            assert!(old.check(Some(&token), &about(), NOW + after).is_err());
        }
    }
}
