//! What the writers of values have in common.

use super::calendar::WrittenDay;
use super::zone::Zone;

/// Bytes of a row's frame that Postgres' clients take: 1 GiB - 1.
pub(super) const MOST_ROW_BYTES: usize = (1 << 30) - 1;

/// Values behind their lengths, in the order of rows.
#[derive(Default)]
pub(super) struct Made {
    pub bytes: Vec<u8>,
    /// Where that of each row ends.
    pub ends: Vec<usize>,
}

impl Made {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// The session's zone, room for values, and what happened.
pub(super) struct State {
    pub zone: Zone,
    pub scratch: Vec<u8>,
    /// Room for values that are made before their rows.
    pub made: Vec<Made>,
    /// That of the moment before, which is mostly that of the next one.
    pub day: WrittenDay,
    /// Nanoseconds were left out.
    pub cut: bool,
    /// Moments are written as in JSON.
    pub in_json: bool,
}

impl State {
    pub(super) fn new(zone: Zone) -> Self {
        Self {
            zone,
            scratch: Vec::new(),
            made: Vec::new(),
            day: WrittenDay::default(),
            cut: false,
            in_json: false,
        }
    }
}
