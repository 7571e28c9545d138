//! What handlers share.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{Mutex, watch};

use crate::server::Shared;

/// What handlers share.
#[derive(Clone)]
pub(super) struct Here {
    pub shared: Arc<Shared>,
    /// True once the server goes down.
    pub drain: watch::Receiver<bool>,
    /// When the lake answered last.
    pub answered: Arc<Mutex<Option<Instant>>>,
}
