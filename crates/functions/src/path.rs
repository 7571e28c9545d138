//! What a user did from one event to another: the meaning of `event_path`, without SQL.
//!
//! A path begins at the first row that meets the condition of the start and goes on, in the order of time, until
//! a later row meets the condition of the end, or as long as rows are not later than the window after its
//! first. Of its events so many are told; whether it reached the end is known beyond them.
//!
//! Rows of one time come in this order: those that can only begin a path, those that can begin and end one,
//! those that do neither, those that can only end one; and among these by the name of the event.
//!
//! # Invariants
//! - A path is made of rows one by one, so that nothing is kept of rows after its end.
//!
//! # Source
//! Flows of Mixpanel and Journeys of Amplitude, of which a path is one user's, from the first start.

/// Events of a path that are told at most: a person reads ten.
pub(crate) const STEPS_MAX: usize = 100;
/// Names of events that can be told apart: two bits of 32 are conditions.
pub(crate) const NAMES_MAX: usize = 1 << 30;

/// How far paths are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    /// In the unit of the times.
    pub window: i64,
    /// From 1 to [`STEPS_MAX`].
    pub steps: usize,
    /// Is an event that follows one of the same name no step of its own?
    pub collapses_repeats: bool,
}

/// A row: the number of its event's name and which conditions it meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event(u32);

impl Event {
    /// `name`: below [`NAMES_MAX`].
    pub fn new(name: u32, starts: bool, ends: bool) -> Self {
        Self(name << 2 | u32::from(starts) << 1 | u32::from(ends))
    }

    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    pub fn bits(self) -> u32 {
        self.0
    }

    pub fn name(self) -> u32 {
        self.0 >> 2
    }

    /// The same event by another number.
    pub fn renamed(self, name: u32) -> Self {
        Self(name << 2 | self.0 & 3)
    }

    fn starts(self) -> bool {
        self.0 & 2 != 0
    }

    fn ends(self) -> bool {
        self.0 & 1 != 0
    }

    /// Its place among rows of one time, before names are compared.
    pub fn rank(self) -> u8 {
        match (self.starts(), self.ends()) {
            (true, false) => 0,
            (true, true) => 1,
            (false, false) => 2,
            (false, true) => 3,
        }
    }
}

/// Where a path is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    NotBegun,
    Going,
    Reached,
    /// A row came after the window.
    Over,
}

/// A user's path as far as rows have come.
#[derive(Debug, Clone, Default)]
pub(crate) struct Path {
    /// Numbers of names.
    pub steps: Vec<u32>,
    is_truncated: bool,
    stage: Stage,
    until: i64,
    /// The name of the last row.
    last: u32,
}

impl Path {
    /// Takes the next row.
    pub fn add(&mut self, time: i64, event: Event, rules: &Rules) {
        match self.stage {
            Stage::NotBegun if event.starts() => {
                self.stage = Stage::Going;
                self.until = time.saturating_add(rules.window);
                self.steps.push(event.name());
            }
            Stage::Going if time > self.until => self.stage = Stage::Over,
            Stage::Going => {
                let repeats = rules.collapses_repeats && event.name() == self.last;
                if !repeats && self.steps.len() < rules.steps {
                    self.steps.push(event.name());
                } else if !repeats {
                    self.is_truncated = true;
                }
                if event.ends() {
                    self.stage = Stage::Reached;
                }
            }
            _ => {}
        }
        self.last = event.name();
    }

    pub fn has_begun(&self) -> bool {
        self.stage != Stage::NotBegun
    }

    pub fn has_reached(&self) -> bool {
        self.stage == Stage::Reached
    }

    /// Were there more steps than are told?
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Will no further row change it?
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Reached | Stage::Over)
    }
}
