//! Statements in parts: what of a plan others compute, and a part that this process computes.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, FunctionalDependencies, Result as DfResult};
use datafusion::datasource::source_as_provider;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use futures::{StreamExt, TryStreamExt, stream};

use crate::base::error::Result;
use crate::base::id_column::IdColumn;
use crate::base::settings::{InParts, Settings};
use crate::base::stop;
use crate::cache::memory::HeldMemory;
use crate::engine::session::Session;
use crate::functions::calls::each_call;
use crate::operators::build_side_cache::without_sides;
use crate::optimizer::id_rewrite::id_keys;
use crate::portable::cut::{Cut, Piece, cut};
use crate::portable::elsewhere::{
    Asked, Elsewhere, Fragment, PartRows, PartRunner, Placed, Share, Undivided, Wanted,
};
use crate::portable::fragment;
use crate::portable::functions::{Codec, Pin};
use crate::portable::part_error::PartError;
use crate::portable::parts::{Parts, parts_node};
use crate::scan::lake_table::{LakeTable, unqualified};
use crate::sql::statement::Statement;

/// Whether a plan travels, or why not.
type Travel = std::result::Result<(), String>;

/// Slots that ids are divided into, for each part at least.
const SLOTS_OF_PART: u32 = 3;

/// What warnings are about that fewer nodes computed than should have.
pub(crate) const ALONE: &str = "parts";

/// Rows of so many ids are looked up, not read.
const LOOKED_UP: usize = 1000;

/// Rows of tables that every part reads whole, if a setting has this process compute them.
const HERE_WHOLE_ROWS: u64 = 1_000_000;

impl Session {
    /// This session, whose statements may be computed in parts.
    #[must_use]
    pub fn with_elsewhere(self, elsewhere: Arc<dyn Elsewhere>) -> Self {
        Self { elsewhere: Some(elsewhere), ..self }
    }

    /// The same session once more, which computes parts itself.
    #[must_use]
    pub fn for_parts(&self) -> Self {
        Self {
            engine: Arc::clone(&self.engine),
            catalog: Arc::clone(&self.catalog),
            shelf: self.shelf.clone(),
            guard: self.guard.clone(),
            share: self.share.clone(),
            elsewhere: None,
            may_divide: false,
            context: OnceLock::from(self.context().clone()),
            changed: self.changes(),
            prepared: Arc::clone(&self.prepared),
        }
    }

    /// Who may compute parts of a statement, and whether that is wanted whatever it is worth.
    pub(crate) fn elsewhere(&self, state: &SessionState) -> Option<(Arc<dyn Elsewhere>, bool)> {
        let settings = Settings::of(state.config_options());
        let when = settings.map(|settings| settings.elsewhere).unwrap_or_default();
        match when {
            InParts::Never => None,
            InParts::Auto => Some((self.elsewhere.clone()?, false)),
            InParts::Always => Some((self.elsewhere.clone()?, true)),
            InParts::Here(parts) if self.may_divide => {
                Some((Arc::new(HereInParts { parts, whole_rows: HERE_WHOLE_ROWS }), true))
            }
            InParts::Here(_) => None,
        }
    }

    /// An optimized plan with what others compute of it, or why they compute nothing; `None` if nobody is asked.
    pub(crate) fn in_parts(&self, plan: &LogicalPlan, state: &SessionState) -> Result<Option<Cut>> {
        let Some((elsewhere, always)) = self.elsewhere(state) else { return Ok(None) };
        if self.catalog.pending.is_some() {
            return Ok(Some(Err("nobody else can read what a transaction has written".to_owned())));
        }
        let plan = without_sides(plan.clone())?;
        let codec = self.codec_of(&plan, state)?;
        let cut = cut(&plan, elsewhere.whole_rows(), &mut |piece| {
            self.parts_of(piece, (&elsewhere, always), state, &codec)
        })?;
        Ok(Some(cut))
    }

    fn parts_of(
        &self,
        piece: Piece,
        (elsewhere, always): (&Arc<dyn Elsewhere>, bool),
        state: &SessionState,
        codec: &Codec,
    ) -> DfResult<Cut> {
        let source = piece.source.as_ref().map(IdColumn::source);
        let (rows, bytes) = match always {
            true => (piece.rows, 0),
            false => read_by(&piece.plan, state, &mut HashSet::new())?,
        };
        let wanted = Wanted {
            source: source.as_deref(),
            highest_id: piece.highest_id,
            files: &piece.files,
            rows,
            remote_bytes: if self.engine.lake.is_remote() { bytes } else { 0 },
            is_raw: piece.is_raw,
            always,
        };
        let parts = match elsewhere.divide(&wanted) {
            Ok(parts) => parts,
            Err(Undivided { why, is_alone }) => {
                if is_alone {
                    self.warn(ALONE, &format!("the statement was computed by one node: {why}"));
                }
                return Ok(Err(why));
            }
        };
        let plan = match self.engine.portable.bytes_of(&piece.plan, codec) {
            Ok(plan) => plan,
            Err(error) => return Ok(Err(error.strip_backtrace())),
        };
        let settings = self.settings_of_parts();
        let bytes = fragment::to_bytes(codec, settings, &piece.divided, &plan);
        let schema = piece.plan.schema();
        let fragment = Fragment { bytes: bytes.into(), schema: Arc::clone(schema.inner()) };
        // What depends on what in a part need not do so in all of them.
        let schema =
            DFSchema::clone(schema).with_functional_dependencies(FunctionalDependencies::empty())?;
        let here = self.here();
        let (is_raw, deadline, told) = (piece.is_raw, stop::deadline(), Arc::default());
        let asked = Asked { fragment, parts, is_raw, deadline, here, told };
        let parts = Parts { asked, elsewhere: Arc::clone(elsewhere) };
        Ok(Ok(parts_node(parts, Arc::new(schema))))
    }

    /// This process, as one that computes parts of a statement of this session.
    pub(crate) fn here(&self) -> Arc<dyn PartRunner> {
        Arc::new(Here(self.for_parts()))
    }

    /// What a plan's tables and functions are written with.
    fn codec_of(&self, plan: &LogicalPlan, state: &SessionState) -> Result<Codec> {
        let mut tables: Vec<(Pin, Arc<LakeTable>)> = Vec::new();
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node
                && let Ok(provider) = source_as_provider(&scan.source)
                && let Some(table) = provider.downcast_ref::<LakeTable>()
                && let Some(pin) = Pin::of(table)
                && !tables.iter().any(|(known, _)| *known == pin)
            {
                tables.push((pin, table.without_ids()));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        let mut domains = HashMap::new();
        each_call(plan, |call| {
            if let Some((source, Some(domain))) = id_keys::source_of(&call.func) {
                domains.insert(source.to_owned(), Arc::clone(domain));
            }
            Ok(())
        })?;
        Ok(Codec::new(state.task_ctx(), tables, domains))
    }

    /// Does the optimized plan of a query travel as it is? Why not, if not; `None` of a query that reads no table.
    ///
    /// # Errors
    /// Those of planning it.
    #[doc(hidden)]
    pub async fn travels(&self, statement: &Statement) -> Result<Option<Travel>> {
        self.catalog.begin_statement();
        let (state, _) = self.query_state();
        let plan = self.plan(statement).await?;
        let plan = without_sides(self.optimized(&state, plan).await?)?;
        let codec = self.codec_of(&plan, &state)?;
        if codec.tables.is_empty() {
            return Ok(None);
        }
        let bytes = self.engine.portable.bytes_of(&plan, &codec);
        Ok(Some(bytes.map(drop).map_err(|error| error.to_string())))
    }
}

/// This process, as one that computes parts.
struct Here(Session);

impl std::fmt::Debug for Here {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Here")
    }
}

#[async_trait]
impl PartRunner for Here {
    async fn run_part(&self, fragment: &[u8], share: &Share) -> Result<PartRows> {
        let work = async {
            let part = self.0.read_part(fragment, share).await?;
            self.0.rows_of_part(&part).await
        };
        Ok(Box::pin(work).await?.map_err(PartError::from).boxed())
    }

    fn hold(&self, bytes: usize) -> Result<HeldMemory> {
        let pool = &self.0.context().runtime_env().memory_pool;
        HeldMemory::take(pool, "rows of parts", bytes, bytes)
    }

    fn warn(&self, message: &str) {
        self.0.warn(ALONE, message);
    }
}

/// Rows and bytes of the files that a plan reads, without those that are ruled out and without rows that are looked up by
/// an id: those are few. `looked_up`: columns of ids and keys of which values are named.
fn read_by(
    plan: &LogicalPlan,
    state: &SessionState,
    looked_up: &mut HashSet<String>,
) -> DfResult<(u64, u64)> {
    let before = looked_up.clone();
    if let LogicalPlan::Filter(filter) = plan {
        looked_up.extend(named_values(&filter.predicate));
    }
    let mut read = (0u64, 0u64);
    if let LogicalPlan::TableScan(scan) = plan {
        looked_up.extend(scan.filters.iter().flat_map(named_values));
        let provider = source_as_provider(&scan.source)?;
        if let Some(table) = provider.downcast_ref::<LakeTable>()
            && !table.key_columns().iter().any(|column| looked_up.contains(column))
        {
            let filters: Vec<Expr> =
                scan.filters.iter().cloned().map(unqualified).collect::<DfResult<_>>()?;
            for number in table.candidate_files(state, &filters)? {
                let file = &table.files()[number];
                read.0 = read.0.saturating_add(file.rows.unwrap_or(u32::MAX.into()));
                read.1 = read.1.saturating_add(file.size);
            }
        }
    }
    for input in plan.inputs() {
        let (rows, bytes) = read_by(input, state, looked_up)?;
        read = (read.0.saturating_add(rows), read.1.saturating_add(bytes));
    }
    *looked_up = before;
    Ok(read)
}

/// Columns that are to have one of a few values.
fn named_values(predicate: &Expr) -> Vec<String> {
    let column = |expr: &Expr| match expr {
        Expr::Column(column) => Some(column.name.clone()),
        _ => None,
    };
    let named = split_conjunction(predicate).into_iter().filter_map(|part| match part {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            match (left.as_ref(), right.as_ref()) {
                (named, Expr::Literal(..)) | (Expr::Literal(..), named) => column(named),
                _ => None,
            }
        }
        // What an IN of a few becomes.
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            match (named_values(left).as_slice(), named_values(right).as_slice()) {
                ([one], [other]) if one == other => Some(one.clone()),
                _ => None,
            }
        }
        Expr::InList(list) if !list.negated && list.list.len() <= LOOKED_UP => column(&list.expr),
        _ => None,
    });
    named.collect()
}

/// Every statement that can be in parts is, in this process, one part after the other: the oracle of all that is cut
/// and travels.
#[derive(Clone, Copy, Debug)]
pub struct HereInParts {
    pub parts: u32,
    /// Tables of more rows are read whole by no part.
    pub whole_rows: u64,
}

impl Elsewhere for HereInParts {
    fn whole_rows(&self) -> u64 {
        self.whole_rows
    }

    fn divide(&self, wanted: &Wanted<'_>) -> Result<Vec<Placed>, Undivided> {
        let parts = self.parts.max(1);
        let placed = |share| Placed { share, node: String::new() };
        if wanted.source.is_none() {
            return Ok((0..parts).map(|part| placed(Share::Stretch { part, parts })).collect());
        }
        let slots = parts * SLOTS_OF_PART;
        let width = wanted.highest_id.unwrap_or_default() / slots + 1;
        let border = |slot: u32| if slot == slots { u32::MAX } else { slot * width };
        let share = |part: u32| {
            let own = (0..slots).filter(|slot| slot % parts == part);
            let mut ranges: Vec<std::ops::Range<u32>> = Vec::new();
            for slot in own {
                let (from, to) = (border(slot), border(slot + 1));
                match ranges.last_mut() {
                    Some(last) if last.end == from => last.end = to,
                    _ => ranges.push(from..to),
                }
            }
            placed(Share::Ids { ranges, without_id: part == 0 })
        };
        Ok((0..parts).map(share).collect())
    }

    fn rows(&self, asked: Asked) -> PartRows {
        let Asked { fragment, parts, here, .. } = asked;
        let parts = stream::iter(parts).then(move |part| {
            let (here, fragment) = (Arc::clone(&here), fragment.clone());
            async move {
                let rows = here.run_part(&fragment.bytes, &part.share).await?;
                // A part that fails has handed nothing on.
                let rows: Vec<RecordBatch> = rows.try_collect().await?;
                Ok::<_, PartError>(stream::iter(rows.into_iter().map(Ok)))
            }
        });
        parts.try_flatten().boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_in_one_share() {
        for (parts, highest) in [(1, 0), (2, 3), (3, 1000), (7, 20), (7, i32::MAX as u32)] {
            let here = HereInParts { parts, whole_rows: 0 };
            let highest_id = Some(highest);
            let wanted = Wanted {
                source: Some("u:1"),
                highest_id,
                files: &[],
                rows: 1,
                remote_bytes: 0,
                is_raw: false,
                always: false,
            };
            let placed = here.divide(&wanted).unwrap();
            let shares: Vec<Share> = placed.into_iter().map(|part| part.share).collect();
            assert_eq!(shares.len(), parts as usize);
            let owners = |id: u32| {
                let owns = |share: &&Share| match share {
                    Share::Ids { ranges, .. } => ranges.iter().any(|range| range.contains(&id)),
                    Share::Stretch { .. } => false,
                };
                shares.iter().filter(owns).count()
            };
            for id in [0, 1, highest / 3, highest / 2, highest, i32::MAX as u32] {
                assert_eq!(owners(id), 1, "{id} of {parts} parts");
            }
        }
    }
}
