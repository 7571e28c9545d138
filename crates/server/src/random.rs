//! Randomness that nobody can guess.

use ring::rand::{SecureRandom, SystemRandom};

/// Fills `bytes` from the system's generator.
///
/// # Panics
/// If the system has none, which no supported one lacks: a guessable secret would be worse.
pub fn system_random(bytes: &mut [u8]) {
    let filled = SystemRandom::new().fill(bytes);
    assert!(filled.is_ok(), "the system has no random bytes");
}
