//! Who asks for a statement, and how.

use std::sync::{Arc, Mutex, PoisonError};

use uplake_engine::QueryProgress;

use crate::labels::Labels;

/// How a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Postgres,
    Http,
    Flight,
    /// Another node, which asks for a part of a statement.
    Node,
}

impl Protocol {
    /// Its name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Http => "http",
            Self::Flight => "flight",
            Self::Node => "node",
        }
    }
}

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub role: String,
    /// It has shown a token of the role, and no password.
    pub by_token: bool,
    /// Whose limits and share are its role's; empty for nobody's.
    pub tenant: String,
    pub protocol: Protocol,
    /// What it calls itself.
    pub application: String,
    /// Where it comes from.
    pub address: String,
    /// What it has set, beside those in a statement's text.
    pub labels: Labels,
    pub before: Before,
}

/// What a client has had computed since its last statement, such as plans of statements that come: the next one pays.
#[derive(Clone, Debug, Default)]
pub(crate) struct Before(Arc<Mutex<Arc<QueryProgress>>>);

impl Before {
    /// What pays now.
    pub fn progress(&self) -> Arc<QueryProgress> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A statement comes, which takes it over.
    pub fn take(&self) -> Arc<QueryProgress> {
        let mut progress = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut progress, QueryProgress::new())
    }
}
