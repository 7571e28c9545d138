//! What operators may use, carried in DataFusion's session config.

use std::sync::Arc;

use datafusion::prelude::SessionConfig;

/// The part of the options that writing operators need, carried in DataFusion's session config.
#[derive(Clone)]
pub(crate) struct Budget {
    pub memory_bytes: usize,
    pub threads: usize,
    pub clock: Arc<dyn Fn() -> i64 + Send + Sync>,
}

impl Budget {
    /// A third for rows waiting to be written; the query that makes them needs the rest.
    pub fn write_bytes(&self) -> usize {
        self.memory_bytes / 3
    }

    pub fn now_millis(&self) -> i64 {
        (self.clock)()
    }

    pub fn of(config: &SessionConfig) -> Arc<Self> {
        config.get_extension::<Self>().expect("every session sets its budget when it is made")
    }
}
