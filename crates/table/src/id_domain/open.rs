//! The id domains that a process has open.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use tokio::sync::Mutex;
use uplake_domain::{Domain, Mark};

/// A mark, and the domain and log it was set in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DomainMark {
    pub domain: String,
    pub log: u128,
    pub mark: Mark,
}

/// How far the dictionary of a domain is read.
#[derive(Clone, Debug)]
pub struct DomainProgress {
    /// The domain's name.
    pub domain: String,
    /// Bytes read so far.
    pub done_bytes: u64,
    /// Bytes to read.
    pub total_bytes: u64,
    /// Keys known so far.
    pub keys: u64,
}

/// Who hears how far a dictionary is read.
pub type ReportDomain = Arc<dyn Fn(DomainProgress) + Send + Sync>;

/// The domains of one lake; they stay open as long as somebody has the lake.
#[derive(Default)]
pub(crate) struct OpenDomains {
    /// Where local dictionaries are kept; without, they are read from the lake every time.
    pub(crate) cache: Option<PathBuf>,
    pub(super) report: Option<ReportDomain>,
    pub(super) open: Mutex<HashMap<String, Arc<Domain>>>,
    /// Marks of tables that were found in their logs.
    pub(crate) kept_marks: std::sync::Mutex<HashSet<DomainMark>>,
    /// Logs that have the marks of all tables.
    vouched: std::sync::Mutex<HashSet<u128>>,
}

impl fmt::Debug for OpenDomains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenDomains").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl OpenDomains {
    pub fn new(cache: Option<PathBuf>, report: Option<ReportDomain>) -> Self {
        Self { cache, report, ..Self::default() }
    }

    pub(crate) fn is_vouched(&self, log: u128) -> bool {
        self.vouched.lock().unwrap_or_else(PoisonError::into_inner).contains(&log)
    }

    pub(crate) fn vouch(&self, log: u128) {
        self.vouched.lock().unwrap_or_else(PoisonError::into_inner).insert(log);
    }
}
