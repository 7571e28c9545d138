//! Who is connected.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A connection that is open.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub id: u64,
    pub protocol: &'static str,
    /// Empty where each request says it anew.
    pub role: String,
    pub address: String,
    pub application: String,
    /// Milliseconds since 1970, UTC.
    pub since: i64,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Roll {
    state: Mutex<State>,
    at_end: OnceLock<AtEnd>,
}

/// What hears of connections that are over.
struct AtEnd(Box<dyn Fn(&Member) + Send + Sync>);

impl fmt::Debug for AtEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtEnd")
    }
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    members: BTreeMap<u64, Member>,
}

/// A connection that is on the roll until this is dropped.
#[derive(Debug)]
pub(crate) struct Membership {
    roll: Arc<Roll>,
    id: u64,
}

impl Roll {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more; its number is given to it.
    pub fn join(self: &Arc<Self>, member: Member) -> Membership {
        let mut state = self.lock();
        state.last += 1;
        let id = state.last;
        state.members.insert(id, Member { id, ..member });
        Membership { roll: Arc::clone(self), id }
    }

    /// From now on `hear` is told of each that is over; the first who asks for it is who is told.
    #[cfg_attr(not(feature = "otel"), allow(dead_code, reason = "traces are told of it"))]
    pub fn at_end(&self, hear: impl Fn(&Member) + Send + Sync + 'static) {
        // Nobody asks twice.
        let _ = self.at_end.set(AtEnd(Box::new(hear)));
    }

    /// All, the oldest first.
    pub fn members(&self) -> Vec<Member> {
        self.lock().members.values().cloned().collect()
    }
}

impl Membership {
    /// What it calls itself from now on.
    pub fn rename(&self, application: &str) {
        if let Some(member) = self.roll.lock().members.get_mut(&self.id)
            && member.application != application
        {
            application.clone_into(&mut member.application);
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let member = self.roll.lock().members.remove(&self.id);
        if let (Some(member), Some(AtEnd(hear))) = (member, self.roll.at_end.get()) {
            hear(&member);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_is_not_on_it() {
        let roll = Arc::new(Roll::default());
        let member = |role: &str| Member {
            id: 0,
            protocol: "http",
            role: role.into(),
            address: String::new(),
            application: String::new(),
            since: 7,
        };
        let (ann, bob) = (roll.join(member("ann")), roll.join(member("bob")));
        bob.rename("psql");
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = Arc::clone(&told);
        roll.at_end(move |member| tell.lock().unwrap().push(member.role.clone()));
        drop(ann);
        assert_eq!(*told.lock().unwrap(), ["ann"]);
        let left = roll.members();
        assert_eq!((left.len(), left[0].id, left[0].application.as_str()), (1, 2, "psql"));
    }
}
