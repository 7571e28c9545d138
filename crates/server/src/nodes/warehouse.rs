//! The nodes of a warehouse as those who compute parts of this node's statements.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Handle;
use tokio::sync::watch;
use uplake_cluster::members::Members;
use uplake_engine::{Asked, Elsewhere, PartRows, Placed, Undivided, Wanted, parts_format};

use super::division::{by_bytes, by_ids};
use super::messages::{Common, TICKET_BYTES};
use super::peers::Peers;
use super::statement::{self, Copies, Statement, asked_for};
use super::steps::Steps;
use super::trust::Trust;
use super::worker::Me;
use crate::metrics::{Metrics, Part};
use crate::server::{Random, Shared};

/// Fewer rows than these, and fewer bytes that come from a bucket, are not worth the two milliseconds that parts take more.
const ROWS: u64 = 4_000_000;
const REMOTE_BYTES: u64 = 64 << 20;
/// Tables of up to so many rows are read whole by every part.
const WHOLE_ROWS: u64 = 1_000_000;
/// Parts of a statement that is worth it, at least.
const LEAST: usize = 2;

/// Who asks, and whom.
#[derive(Clone)]
pub(crate) struct Warehouse {
    shared: Arc<statement::Shared>,
    /// The name of this node.
    name: String,
    lake: String,
    format: u64,
    network: Handle,
    random: Arc<Random>,
    drain: watch::Receiver<bool>,
}

impl fmt::Debug for Warehouse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Warehouse({:?})", self.shared.peers)
    }
}

impl Warehouse {
    /// From now on statements of this server may be computed by these members; whoever gets them is to look after them.
    pub fn join(
        shared: &Arc<Shared>,
        members: Members,
        me: Me,
        (works, network): (bool, Handle),
        trust: Arc<Trust>,
        drain: watch::Receiver<bool>,
    ) -> Arc<Peers> {
        let lake = shared.engine.session().lake().location();
        let (metrics, random) = (Arc::clone(&shared.metrics), Arc::clone(&shared.options.random));
        let (warehouse, peers) =
            Self::new((&lake, metrics), members, me, (works, network, random), trust, drain);
        shared.engine.set_elsewhere(Arc::new(warehouse));
        peers
    }

    /// The members as those who compute for a lake, and those who are to be looked after.
    pub fn new(
        (lake, metrics): (&str, Arc<Metrics>),
        members: Members,
        me: Me,
        (works, network, random): (bool, Handle, Arc<Random>),
        trust: Arc<Trust>,
        drain: watch::Receiver<bool>,
    ) -> (Self, Arc<Peers>) {
        let format = parts_format();
        let peers = Peers::new(members, &me.warehouse, lake, format, trust, Arc::clone(&metrics));
        let of_statements = statement::Shared {
            peers: Arc::clone(&peers),
            metrics,
            me: works.then(|| me.name.clone()),
            copies: Arc::new(Copies::new()),
            warehouse: me.warehouse,
        };
        let warehouse = Self {
            shared: Arc::new(of_statements),
            name: me.name,
            lake: lake.to_owned(),
            format,
            network,
            random,
            drain,
        };
        (warehouse, peers)
    }

    fn query(&self) -> String {
        let mut bytes = [0; 8];
        (self.random)(&mut bytes);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Elsewhere for Warehouse {
    fn of(&self, warehouse: &str) -> Arc<dyn Elsewhere> {
        let shared =
            statement::Shared { warehouse: warehouse.to_owned(), ..(*self.shared).clone() };
        Arc::new(Self { shared: Arc::new(shared), ..self.clone() })
    }

    fn whole_rows(&self) -> u64 {
        WHOLE_ROWS
    }

    fn too_little(&self, rows: u64, remote_bytes: u64) -> Option<String> {
        too_little(rows, remote_bytes)
    }

    fn divide(&self, wanted: &Wanted<'_>) -> Result<Vec<Placed>, Undivided> {
        let here = |why: String| Undivided { why, is_alone: false };
        if *self.drain.borrow() {
            return Err(here("this node is about to end".to_owned()));
        }
        if let Some(why) = not_worth_it(wanted) {
            return Err(here(why));
        }
        let peers = &self.shared.peers;
        let nodes = self.shared.usable();
        let least = if wanted.always { 1 } else { LEAST };
        if nodes.len() < least {
            let (count, of, why) =
                (nodes.len(), peers.members(), peers.why_not(&self.shared.warehouse));
            let why = format!("{count} of {of} nodes can be used: {why}");
            return Err(Undivided { why, is_alone: nodes.is_empty() });
        }
        let names: Vec<&str> = nodes.iter().map(|(name, _)| name.as_str()).collect();
        match (wanted.source, wanted.highest_id) {
            (Some(source), Some(highest)) => Ok(by_ids(source, highest, wanted.files, &names)),
            (Some(source), None) if wanted.always => {
                Ok(by_ids(source, i32::MAX as u32, &[], &names))
            }
            (Some(_), None) => Err(here("its files do not say which ids they have".to_owned())),
            (None, _) => Ok(by_bytes(&names)),
        }
    }

    fn rows(&self, asked: Asked) -> PartRows {
        let of_steps = asked.shuffles.iter().map(|step| &step.fragment);
        if of_steps.chain([&asked.fragment]).any(|plan| plan.bytes.len() > TICKET_BYTES / 2) {
            // Its plan takes longer to send than to run.
            self.shared.metrics.part(Part::Here);
            return asked.as_one();
        }
        let common = Common {
            query: self.query(),
            parts: asked.parts.len(),
            from: self.name.clone(),
            format: self.format,
            lake: self.lake.clone(),
        };
        if asked.shuffles.is_empty() {
            return Statement::new(asked, common, Arc::clone(&self.shared)).rows(&self.network);
        }
        let (shared, began) = (Arc::clone(&self.shared), Instant::now());
        let (parts, calls) =
            ((asked.parts.len(), asked.is_raw), (common.clone(), Arc::clone(&shared)));
        let steps = Steps { asked, common, shared, began };
        asked_for(parts, calls, &self.network, |tell| async move { steps.run(&tell).await })
    }
}

/// Why what reads so much is not worth to be divided, if it is not.
fn too_little(rows: u64, remote_bytes: u64) -> Option<String> {
    let is_little = rows <= ROWS && remote_bytes <= REMOTE_BYTES;
    is_little.then(|| format!("it reads {rows} rows, and is divided from {ROWS} on"))
}

/// Why a statement is not worth to be divided, if it is not.
fn not_worth_it(wanted: &Wanted<'_>) -> Option<String> {
    if wanted.always {
        return None;
    }
    too_little(wanted.rows, wanted.remote_bytes).or_else(|| {
        let is_read_out = wanted.is_raw && !wanted.shuffles;
        is_read_out.then(|| "it answers rows as it reads them".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_reads_much_is_divided() {
        let wanted = Wanted {
            source: Some("users:1"),
            highest_id: Some(10),
            files: &[],
            rows: 0,
            remote_bytes: 0,
            is_raw: false,
            shuffles: false,
            always: false,
        };
        let is_worth_it = |wanted: Wanted<'_>| not_worth_it(&wanted).is_none();
        assert!(!is_worth_it(Wanted { rows: ROWS, remote_bytes: REMOTE_BYTES, ..wanted }));
        assert!(is_worth_it(Wanted { rows: ROWS + 1, ..wanted }));
        assert!(is_worth_it(Wanted { remote_bytes: REMOTE_BYTES + 1, ..wanted }));
        assert!(!is_worth_it(Wanted { rows: ROWS + 1, is_raw: true, ..wanted }));
        assert!(is_worth_it(Wanted { is_raw: true, always: true, ..wanted }));
        assert!(is_worth_it(Wanted { rows: ROWS + 1, is_raw: true, shuffles: true, ..wanted }));
    }
}
