//! What the writers of values have in common.

use super::text::Text;
use super::zone::Zone;

/// Bytes of a row's frame that Postgres' clients take: 1 GiB - 1.
pub(super) const MOST_ROW_BYTES: usize = (1 << 30) - 1;

/// The session's zone, room for one value, and what happened.
pub(super) struct State {
    pub zone: Zone,
    pub text: Text,
    pub scratch: Vec<u8>,
    /// Nanoseconds were left out.
    pub cut: bool,
    /// Moments are written as in JSON.
    pub in_json: bool,
}

impl State {
    pub(super) fn new(zone: Zone) -> Self {
        Self { zone, text: Text::new(), scratch: Vec::new(), cut: false, in_json: false }
    }
}
