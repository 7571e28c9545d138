//! Who may stop a statement, and how it is found by its number.
//!
//! # Invariants
//! - A role stops its own statements, admins those of all; others hear that there is none of that number.
//!
//! # Not here
//! Cancels of the wire, which have a key and ask for nobody (`pg::cancel`).

use crate::access::{Object, Verb};
use crate::audit::Action;
use crate::server::Shared;
use crate::statements::{Cause, Client};

impl Shared {
    /// May `asks` stop what `role` runs, and what that is called then? `None` if not.
    pub fn may_stop(&self, asks: &str, role: &str) -> Option<Cause> {
        if asks == role {
            return Some(Cause::Client);
        }
        self.rights(asks).may(Verb::Administer, &Object::Lake).is_ok().then_some(Cause::Admin)
    }

    /// Stops a statement for a client. False if there is none of this number that it may stop.
    pub fn stop_statement(&self, asks: &Client, id: u64) -> bool {
        let running = self.statements.running();
        let listed = running.iter().find(|listed| listed.id == id);
        let Some(cause) = listed.and_then(|listed| self.may_stop(&asks.role, &listed.client.role))
        else {
            return false;
        };
        let stops = self.statements.stop(id, cause);
        if stops {
            self.metrics.cancelled(cause);
        }
        if let (true, Cause::Admin, Some(listed)) = (stops, cause, listed) {
            let what = format!("statement {id} of {}", listed.client.role);
            self.statements.note(Action::Cancel, asks, &what, None);
        }
        stops
    }
}
