//! Which nodes can be used, as one coordinator sees them.
//!
//! A coordinator says hello to each nominee every two seconds and when something failed. What it hears,
//! and what failed, decides: nothing is agreed on with other coordinators.
//!
//! # Invariants
//! - A node is used only after it has answered with the same lake and the same format.
//! - A node that failed is out for ten seconds; then a hello, not a query, decides. Another process at its address is
//!   used at once.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Between two hellos to a node.
pub const HELLO_EVERY: Duration = Duration::from_secs(2);
/// A node is used as long as its last answer is younger than this.
const ANSWER_LASTS: Duration = Duration::from_secs(3);
/// How long a node is asked for nothing but hello after it has failed.
const OUT_FOR: Duration = Duration::from_secs(10);
/// This many failures within [`FAILURES_WITHIN`] keep a node out for as long:
const FAILURES_MAX: usize = 3;
const FAILURES_WITHIN: Duration = Duration::from_secs(60);

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Its name, which stays when it begins anew: slots are placed by it.
    pub name: String,
    /// Told apart from its earlier processes by this.
    pub start: u64,
    /// The group of nodes it belongs to.
    pub warehouse: String,
    /// Whether it takes parts of queries.
    pub works: bool,
    /// Whether it is about to end: it finishes what it has and takes nothing more.
    pub draining: bool,
    /// What of plans it understands; only equal formats understand each other.
    pub format: u64,
    /// Which lake it serves.
    pub lake: String,
}

/// Why a node is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unused {
    /// It has not answered yet, or not for three seconds.
    Silent,
    /// It failed less than ten seconds ago, or three times within a minute.
    Out,
    /// It is about to end.
    Draining,
    /// It takes no parts of queries.
    Coordinates,
    /// Another version: its plans are other ones.
    OtherFormat,
    /// It serves another lake.
    OtherLake,
}

/// The nodes that one coordinator knows, by address.
#[derive(Debug)]
pub struct Nodes {
    format: u64,
    lake: String,
    known: BTreeMap<String, Known>,
}

#[derive(Debug, Default)]
struct Known {
    hello: Option<(Hello, Duration)>,
    failures: VecDeque<Duration>,
}

impl Nodes {
    /// No nodes yet; those of `lake` that speak `format` will be used.
    #[must_use]
    pub fn new(lake: &str, format: u64) -> Self {
        Self { format, lake: lake.to_owned(), known: BTreeMap::new() }
    }

    /// These addresses are nominated now. What is known of those that stay is kept.
    pub fn nominate(&mut self, addresses: &[String]) {
        self.known.retain(|address, _| addresses.contains(address));
        for address in addresses {
            self.known.entry(address.clone()).or_default();
        }
    }

    /// A node answered. A new process of a node that was out is used at once.
    pub fn answered(&mut self, address: &str, hello: Hello, now: Duration) {
        let Some(known) = self.known.get_mut(address) else { return };
        let before = known.hello.as_ref().map(|(before, _)| before.start);
        if before.is_some_and(|start| start != hello.start) {
            known.failures.clear();
        }
        known.hello = Some((hello, now));
    }

    /// A node says that it takes nothing more.
    pub fn drains(&mut self, address: &str) {
        if let Some((hello, _)) = self.known.get_mut(address).and_then(|known| known.hello.as_mut())
        {
            hello.draining = true;
        }
    }

    /// A node did not understand a part, or has other tables: it is not used until its next hello.
    pub fn refused(&mut self, address: &str) {
        if let Some(known) = self.known.get_mut(address) {
            known.hello = None;
        }
    }

    /// A part or the connection of a node failed.
    pub fn failed(&mut self, address: &str, now: Duration) {
        let Some(known) = self.known.get_mut(address) else { return };
        while known.failures.front().is_some_and(|at| now.saturating_sub(*at) > FAILURES_WITHIN) {
            known.failures.pop_front();
        }
        if known.failures.len() == FAILURES_MAX {
            known.failures.pop_front();
        }
        known.failures.push_back(now);
    }

    /// The nodes of `warehouse` that can be used, as (name, address) in the order of names, each name
    /// once: of two processes that call themselves the same, the one that answered last.
    #[must_use]
    pub fn usable(&self, warehouse: &str, now: Duration) -> Vec<(&str, &str)> {
        let mut by_name: BTreeMap<&str, (Duration, &str)> = BTreeMap::new();
        for (address, known) in &self.known {
            let Some((hello, at)) = &known.hello else { continue };
            if hello.warehouse != warehouse || self.unused(known, now).is_some() {
                continue;
            }
            let last = by_name.entry(&hello.name).or_insert((*at, address));
            if *at > last.0 {
                *last = (*at, address);
            }
        }
        by_name.into_iter().map(|(name, (_, address))| (name, address)).collect()
    }

    /// The addresses that are nominated, in their order.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.known.keys().cloned().collect()
    }

    /// Why the node at `address` is not used; `None` if it is, or if it is not nominated.
    #[must_use]
    pub fn why_not(&self, address: &str, now: Duration) -> Option<Unused> {
        self.unused(self.known.get(address)?, now)
    }

    fn unused(&self, known: &Known, now: Duration) -> Option<Unused> {
        let Some((hello, at)) = &known.hello else { return Some(Unused::Silent) };
        let failed_since = known.failures.back().is_some_and(|failed| failed >= at);
        if hello.lake != self.lake {
            Some(Unused::OtherLake)
        } else if hello.format != self.format {
            Some(Unused::OtherFormat)
        } else if failed_since || out(known, now) {
            Some(Unused::Out)
        } else if now.saturating_sub(*at) > ANSWER_LASTS {
            Some(Unused::Silent)
        } else if !hello.works {
            Some(Unused::Coordinates)
        } else {
            hello.draining.then_some(Unused::Draining)
        }
    }
}

fn out(known: &Known, now: Duration) -> bool {
    let since = |at: &Duration| now.saturating_sub(*at);
    let often = known.failures.len() == FAILURES_MAX
        && known.failures.front().is_some_and(|at| since(at) <= FAILURES_WITHIN);
    often || known.failures.back().is_some_and(|at| since(at) < OUT_FOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "10.0.0.1:19001";
    const B: &str = "10.0.0.2:19001";

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn hello(name: &str, start: u64) -> Hello {
        Hello {
            name: name.to_owned(),
            start,
            warehouse: "default".to_owned(),
            works: true,
            draining: false,
            format: 7,
            lake: "lake".to_owned(),
        }
    }

    fn two() -> Nodes {
        let mut nodes = Nodes::new("lake", 7);
        nodes.nominate(&[A.to_owned(), B.to_owned()]);
        nodes.answered(A, hello("a", 1), s(0));
        nodes.answered(B, hello("b", 1), s(0));
        nodes
    }

    #[test]
    fn nodes_that_answer_are_used_until_they_are_silent() {
        let mut nodes = two();
        assert_eq!(nodes.usable("default", s(3)), [("a", A), ("b", B)]);
        assert_eq!(nodes.usable("reports", s(3)), []);
        nodes.answered(B, hello("b", 1), s(4));
        assert_eq!(nodes.usable("default", s(5)), [("b", B)]);
        assert_eq!(nodes.why_not(A, s(5)), Some(Unused::Silent));
        nodes.nominate(&[A.to_owned()]);
        assert_eq!(nodes.usable("default", s(5)), []);
    }

    #[test]
    fn what_nodes_say_of_themselves_decides() {
        for (change, why) in [
            ((|h: &mut Hello| h.draining = true) as fn(&mut Hello), Unused::Draining),
            (|h| h.works = false, Unused::Coordinates),
            (|h| h.format = 8, Unused::OtherFormat),
            (|h| h.lake = "other".to_owned(), Unused::OtherLake),
        ] {
            let mut nodes = two();
            let mut said = hello("a", 1);
            change(&mut said);
            nodes.answered(A, said, s(1));
            assert_eq!(nodes.why_not(A, s(1)), Some(why));
            assert_eq!(nodes.usable("default", s(1)), [("b", B)]);
        }
    }

    #[test]
    fn a_node_that_failed_is_out_until_a_hello_after_ten_seconds() {
        let mut nodes = two();
        nodes.failed(A, s(1));
        assert_eq!(nodes.why_not(A, s(2)), Some(Unused::Out));
        nodes.answered(A, hello("a", 1), s(10));
        assert_eq!(nodes.why_not(A, s(10)), Some(Unused::Out), "it answers, and is out");
        nodes.failed(B, s(1));
        assert_eq!(nodes.why_not(B, s(11)), Some(Unused::Out), "not by time alone");
        nodes.answered(A, hello("a", 1), s(11));
        assert_eq!(nodes.why_not(A, s(11)), None);
    }

    #[test]
    fn three_failures_in_a_minute_keep_a_node_out_until_it_begins_anew() {
        let mut nodes = two();
        for at in [0, 15, 30] {
            nodes.failed(A, s(at));
            nodes.answered(A, hello("a", 1), s(at + 11));
        }
        assert_eq!(nodes.why_not(A, s(42)), Some(Unused::Out));
        nodes.answered(A, hello("a", 2), s(43));
        assert_eq!(nodes.why_not(A, s(43)), None, "another process");
    }

    #[test]
    fn a_node_that_refuses_or_drains_is_not_used_until_it_says_otherwise() {
        let mut nodes = two();
        nodes.drains(A);
        nodes.refused(B);
        assert_eq!(nodes.why_not(A, s(1)), Some(Unused::Draining));
        assert_eq!(nodes.why_not(B, s(1)), Some(Unused::Silent));
        nodes.answered(A, hello("a", 2), s(2));
        nodes.answered(B, hello("b", 1), s(2));
        assert_eq!(nodes.usable("default", s(2)), [("a", A), ("b", B)]);
    }

    #[test]
    fn of_two_that_call_themselves_the_same_the_last_is_used() {
        let mut nodes = two();
        nodes.answered(B, hello("a", 2), s(1));
        assert_eq!(nodes.usable("default", s(2)), [("a", B)]);
    }
}
