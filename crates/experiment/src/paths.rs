//! Sequences of events that users went through, per arm.
//!
//! The engine hands sequences to a [`Tally`], which knows how far users came and keeps the most
//! common ones; nothing here is tested or compared, because sequences are found in the data that would
//! test them, and who goes on to a step is what a treatment changes.
//!
//! # Invariants
//! - What a tally finds does not depend on the order of sequences.
//! - It keeps a few times as many sequences as it tells.

use serde::Serialize;

use crate::definition::Path;

/// Sequences that are kept for each that is told, before the rest is dropped.
const KEPT_PER_TOLD: usize = 8;

/// What users did, from the first event to the last or to the last that is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    pub events: Vec<String>,
    /// Did they come to the last event?
    pub reached: bool,
    /// Were there more events than are told?
    pub truncated: bool,
    /// Per arm.
    pub users: Vec<u64>,
}

/// Users who came as far as a step, per arm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathStep {
    pub users: Vec<u64>,
    /// For whom the step was the event that the path leads to.
    pub reached: Vec<u64>,
    /// Of whom no further event came. Who neither reached the end here nor dropped off went on.
    pub dropped_off: Vec<u64>,
}

/// The engine's answer to a [`Path`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathTable {
    /// Per arm, users with the first event, and those of them who came to the last.
    pub started: Vec<u64>,
    pub reached: Vec<u64>,
    /// One per event that somebody came to, as many as are told at most.
    pub steps: Vec<PathStep>,
    /// The most common, most users first.
    pub sequences: Vec<Sequence>,
    /// How many there are.
    pub different_sequences: u64,
}

/// Counts users by sequence.
#[derive(Debug)]
pub struct Tally {
    arms: usize,
    top: usize,
    found: PathTable,
}

impl Tally {
    pub fn new(path: &Path, arms: usize) -> Self {
        let nobody = vec![0; arms];
        let found = PathTable { started: nobody.clone(), reached: nobody, ..PathTable::default() };
        Self { arms, top: path.top, found }
    }

    /// Adds a sequence that was not added before. `users`: as many as there are arms.
    pub fn add(&mut self, sequence: Sequence) {
        let found = &mut self.found;
        add(&mut found.started, &sequence.users);
        if sequence.reached {
            add(&mut found.reached, &sequence.users);
        }
        let nobody = vec![0; self.arms];
        let empty =
            PathStep { users: nobody.clone(), reached: nobody.clone(), dropped_off: nobody };
        let steps = found.steps.len().max(sequence.events.len());
        found.steps.resize(steps, empty);
        let came = &mut found.steps[..sequence.events.len()];
        came.iter_mut().for_each(|step| add(&mut step.users, &sequence.users));
        match came.last_mut() {
            Some(last) if !sequence.truncated && sequence.reached => {
                add(&mut last.reached, &sequence.users);
            }
            Some(last) if !sequence.truncated => add(&mut last.dropped_off, &sequence.users),
            _ => {}
        }
        found.different_sequences += 1;
        found.sequences.push(sequence);
        if found.sequences.len() >= KEPT_PER_TOLD * self.top {
            self.keep_most_common();
        }
    }

    /// All that was added.
    pub fn finish(mut self) -> PathTable {
        self.keep_most_common();
        self.found
    }

    fn keep_most_common(&mut self) {
        let users = |sequence: &Sequence| sequence.users.iter().sum::<u64>();
        self.found.sequences.sort_by(|a, b| {
            let rest = |s: &Sequence| (!s.reached, s.truncated);
            users(b).cmp(&users(a)).then_with(|| (&a.events, rest(a)).cmp(&(&b.events, rest(b))))
        });
        self.found.sequences.truncate(self.top);
    }
}

fn add(counts: &mut [u64], more: &[u64]) {
    counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
}

/// A [`Path`] in a report: descriptive, without tests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PathReport {
    pub name: String,
    /// Per arm, users with the first event after exposure, and those of them who came to the last.
    pub started: Vec<u64>,
    pub reached: Vec<u64>,
    pub steps: Vec<PathStep>,
    /// The most common, most users first.
    pub sequences: Vec<SequenceReport>,
    /// How many there are, told or not.
    pub different_sequences: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SequenceReport {
    pub events: Vec<String>,
    pub reached: bool,
    pub truncated: bool,
    /// Per arm.
    pub users: Vec<u64>,
    /// Of exposed users, per arm; absent without any.
    pub shares: Vec<Option<f64>>,
}

impl PathReport {
    /// `exposed`: users per arm.
    pub(crate) fn new(path: &Path, table: &PathTable, exposed: &[u64]) -> Self {
        let told = |sequence: &Sequence| SequenceReport {
            events: sequence.events.clone(),
            reached: sequence.reached,
            truncated: sequence.truncated,
            users: sequence.users.clone(),
            shares: sequence.users.iter().zip(exposed).map(|(n, all)| share(*n, *all)).collect(),
        };
        Self {
            name: path.name.clone(),
            started: table.started.clone(),
            reached: table.reached.clone(),
            steps: table.steps.clone(),
            sequences: table.sequences.iter().map(told).collect(),
            different_sequences: table.different_sequences,
        }
    }
}

impl SequenceReport {
    /// "open → view → pay", and what became of those who did not pay.
    pub(crate) fn words(&self) -> String {
        let mut words = self.events.join(" → ");
        words.push_str(match (self.reached, self.truncated) {
            (true, false) => "",
            (false, false) => " → dropped off",
            (true, true) => " → … → reached",
            (false, true) => " → … → not reached",
        });
        words
    }
}

/// `part` of `whole`, if that is anybody.
pub(crate) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// What is said of every path.
pub(crate) const DESCRIPTIVE: &str =
    "Paths describe what users did after exposure; differences between arms are not tested.";

/// How long users took from the first step of a funnel to the last, of those who did both.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Default)]
pub struct ConversionTime {
    pub users: u64,
    /// In seconds; absent without users.
    pub median: Option<f64>,
    pub p90: Option<f64>,
}

impl ConversionTime {
    /// "median 3 min 20 s, 90 % within 1 h 5 min (1,234 users)"
    pub(crate) fn words(&self) -> String {
        match (self.median, self.p90) {
            (Some(median), Some(p90)) => format!(
                "median {}, 90 % within {} ({} users)",
                crate::format::duration(median),
                crate::format::duration(p90),
                crate::format::count(self.users)
            ),
            _ => "nobody".into(),
        }
    }
}
