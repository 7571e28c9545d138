//! Statements in parts: what of a plan others compute, and a part that this process computes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

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
use crate::base::progress::{self, QueryProgress, Spent};
use crate::base::settings::{InParts, Settings};
use crate::base::stop;
use crate::cache::memory::HeldMemory;
use crate::engine::session::Session;
use crate::engine::session_context::Held;
use crate::functions::calls::each_call;
use crate::operators::build_side_cache::without_sides;
use crate::optimizer::id_rewrite::id_keys;
use crate::portable::buckets::Buckets;
use crate::portable::cut::{Cut, Piece, cut};
use crate::portable::elsewhere::{
    Asked, Elsewhere, Fragment, PartRows, PartRunner, Placed, Share, Shuffle, Shuffled, Undivided,
    Wanted,
};
use crate::portable::fragment;
use crate::portable::functions::{Codec, Pin};
use crate::portable::part_error::PartError;
use crate::portable::parts::{Parts, parts_node};
use crate::portable::shuffle_read::reads;
use crate::portable::shuffles::{Step, shuffled};
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

/// Such a part of the largest table's rows is read whole by every part, up to so many times of what always is.
const WHOLE_OF_LARGEST: u64 = 10;
const WHOLE_TIMES: u64 = 4;

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
            context: Held::given(self.context()),
            changed: self.changes(),
            prepared: Arc::clone(&self.prepared),
        }
    }

    /// Who may compute parts of a statement, and whether that is wanted whatever it is worth.
    pub(crate) fn elsewhere(&self, state: &SessionState) -> Option<(Arc<dyn Elsewhere>, bool)> {
        let settings = Settings::of(state.config_options());
        let when = settings.map(|settings| settings.elsewhere).unwrap_or_default();
        let nodes = || {
            let own = self.elsewhere.as_ref()?;
            let named = settings.map(|settings| settings.warehouse.as_str());
            Some(match named.filter(|name| !name.is_empty()) {
                Some(warehouse) => own.of(warehouse),
                None => Arc::clone(own),
            })
        };
        match when {
            InParts::Never => None,
            InParts::Auto => Some((nodes()?, false)),
            InParts::Always => Some((nodes()?, true)),
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
        let asks = Asks { session: self, elsewhere: &elsewhere, always, state };
        let mut may_shuffle = always;
        if !always {
            let (rows, bytes) = read_by(plan, state, &mut HashSet::new())?;
            if let Some(why) = elsewhere.too_little(rows, self.remote(bytes)) {
                return Ok(Some(Err(why)));
            }
            // Rows that change nodes may take longer than one node takes, if that has the memory for them.
            may_shuffle = bytes > self.engine.budget.memory_bytes as u64;
        }
        let plan = without_sides(plan.clone())?;
        let codec = self.codec_of(&plan, state)?;
        let most_groups = elsewhere.whole_rows();
        let whole_rows = whole_rows(most_groups, &plan)?;
        if may_shuffle && let Some((plan, steps)) = shuffled(&plan, whole_rows, most_groups)? {
            let cut = cut(&plan, whole_rows, &mut |piece| asks.parts_of(piece, &steps, &codec))?;
            // What reads shuffles is computed by those who have them, or nothing is shuffled.
            if let Ok(cut) = cut
                && reads(&cut)?.is_empty()
            {
                return Ok(Some(Ok(cut)));
            }
        }
        let cut = cut(&plan, whole_rows, &mut |piece| asks.parts_of(piece, &[], &codec))?;
        Ok(Some(cut))
    }

    /// Of bytes of the lake's files, those that are not on this machine.
    fn remote(&self, bytes: u64) -> u64 {
        if self.engine.lake.is_remote() { bytes } else { 0 }
    }

    /// This process, as one that computes parts of a statement of this session.
    pub(crate) fn here(&self) -> Arc<dyn PartRunner> {
        Arc::new(Here { session: self.for_parts(), pays: progress::watcher() })
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

/// Who asks others for parts of a statement, and whom.
struct Asks<'a> {
    session: &'a Session,
    elsewhere: &'a Arc<dyn Elsewhere>,
    /// Is it wanted whatever it is worth?
    always: bool,
    state: &'a SessionState,
}

impl Asks<'_> {
    /// Rows that plans read, and bytes of files that are not on this machine.
    fn reads<'p>(&self, plans: impl IntoIterator<Item = &'p LogicalPlan>) -> DfResult<(u64, u64)> {
        let mut all = (0u64, 0u64);
        for plan in plans {
            let (rows, bytes) = read_by(plan, self.state, &mut HashSet::new())?;
            all = (all.0.saturating_add(rows), all.1.saturating_add(bytes));
        }
        Ok((all.0, self.session.remote(all.1)))
    }

    /// What has the rows of a piece, which may read what steps have shuffled.
    fn parts_of(&self, piece: Piece, steps: &[Step], codec: &Codec) -> DfResult<Cut> {
        let needed = needed(&piece.plan, steps)?;
        let of_steps = needed.iter().map(|number| &steps[*number as usize].piece.plan);
        let (rows, remote_bytes) = match self.always {
            true => (piece.rows, 0),
            false => self.reads(of_steps.chain([&piece.plan]))?,
        };
        let shuffles = !needed.is_empty();
        let parts = match self.divide(&piece, (rows, remote_bytes), shuffles, self.always) {
            Ok(parts) => parts,
            Err(Undivided { why, is_alone }) => {
                if is_alone {
                    let message = format!("the statement was computed by one node: {why}");
                    self.session.warn(ALONE, &message);
                }
                return Ok(Err(why));
            }
        };
        let shuffles = match self.shuffles(&needed, (&piece, parts.len()), steps, codec)? {
            Ok(shuffles) => shuffles,
            Err(why) => return Ok(Err(why)),
        };
        let fragment = match self.fragment(&piece, codec) {
            Ok(fragment) => fragment,
            Err(why) => return Ok(Err(why)),
        };
        // What depends on what in a part need not do so in all of them.
        let schema = DFSchema::clone(piece.plan.schema())
            .with_functional_dependencies(FunctionalDependencies::empty())?;
        let asked = Asked {
            shuffles,
            fragment,
            parts,
            reads: reads(&piece.plan)?,
            is_raw: piece.is_raw,
            deadline: stop::deadline(),
            here: self.session.here(),
            told: Arc::default(),
        };
        let parts = Parts { asked, elsewhere: Arc::clone(self.elsewhere) };
        Ok(Ok(parts_node(parts, Arc::new(schema))))
    }

    fn divide(
        &self,
        piece: &Piece,
        (rows, remote_bytes): (u64, u64),
        shuffles: bool,
        always: bool,
    ) -> Result<Vec<Placed>, Undivided> {
        self.elsewhere.divide(&Wanted {
            source: piece.source.as_ref().map(IdColumn::source).as_deref(),
            highest_id: piece.highest_id,
            files: &piece.files,
            rows,
            remote_bytes,
            is_raw: piece.is_raw,
            shuffles,
            always,
        })
    }

    /// What is computed before a piece of so many parts, or why it is not.
    fn shuffles(
        &self,
        needed: &[u32],
        (piece, parts): (&Piece, usize),
        steps: &[Step],
        codec: &Codec,
    ) -> DfResult<std::result::Result<Vec<Shuffle>, String>> {
        let of_piece = reads(&piece.plan)?.into_iter();
        let mut buckets: HashMap<u32, usize> = of_piece.map(|read| (read, parts)).collect();
        let mut shuffles = Vec::new();
        // Whoever reads a shuffle comes after it.
        for number in needed.iter().rev() {
            let Step { piece, keys } = &steps[*number as usize];
            // That the whole is worth it is known.
            let divided = self.divide(piece, (piece.rows, 0), true, true);
            let fragment = self.fragment(piece, codec);
            let (parts, fragment) = match (divided, fragment) {
                (Ok(parts), Ok(fragment)) => (parts, fragment),
                (Err(Undivided { why, .. }), _) | (_, Err(why)) => return Ok(Err(why)),
            };
            let reads = reads(&piece.plan)?;
            buckets.extend(reads.iter().map(|read| (*read, parts.len())));
            let keys = keys.iter().map(|key| *key as u32).collect();
            let count = buckets.get(number).copied().unwrap_or(1) as u32;
            let buckets = Buckets { keys, count };
            shuffles.push(Shuffle { number: *number, fragment, parts, buckets, reads });
        }
        shuffles.reverse();
        Ok(Ok(shuffles))
    }

    /// What parts of a piece are told, or why that does not travel.
    fn fragment(&self, piece: &Piece, codec: &Codec) -> std::result::Result<Fragment, String> {
        let plan = self.session.engine.portable.bytes_of(&piece.plan, codec);
        let plan = plan.map_err(|error| error.strip_backtrace())?;
        let settings = self.session.settings_of_parts();
        let bytes = fragment::to_bytes(codec, settings, &piece.divided, &plan);
        Ok(Fragment { bytes: bytes.into(), schema: Arc::clone(piece.plan.schema().inner()) })
    }
}

/// Rows of tables that every part of a plan reads whole, of which there are `usual`: beside a table of many times the rows,
/// a larger one is read by all in less time than the rows of both change nodes.
fn whole_rows(usual: u64, plan: &LogicalPlan) -> DfResult<u64> {
    let mut most = 0;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let provider = source_as_provider(&scan.source)?;
            let rows = provider.downcast_ref::<LakeTable>().and_then(LakeTable::rows);
            most = most.max(rows.unwrap_or_default());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(usual.max((most / WHOLE_OF_LARGEST).min(usual.saturating_mul(WHOLE_TIMES))))
}

/// The steps that a plan needs, by their numbers, each behind those that it needs itself.
fn needed(plan: &LogicalPlan, steps: &[Step]) -> DfResult<Vec<u32>> {
    let (mut found, mut left) = (BTreeSet::new(), reads(plan)?);
    while let Some(number) = left.pop() {
        if let Some(step) = steps.get(number as usize).filter(|_| found.insert(number)) {
            left.extend(reads(&step.piece.plan)?);
        }
    }
    Ok(found.into_iter().collect())
}

/// This process, as one that computes parts.
struct Here {
    session: Session,
    pays: Option<Arc<QueryProgress>>,
}

impl std::fmt::Debug for Here {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Here")
    }
}

#[async_trait]
impl PartRunner for Here {
    async fn run_part(
        &self,
        fragment: &[u8],
        share: &Share,
        from: &Arc<dyn Shuffled>,
    ) -> Result<PartRows> {
        let work = async {
            let part = self.session.read_part(fragment, share, from).await?;
            self.session.rows_of_part(&part).await
        };
        Ok(Box::pin(work).await?.map_err(PartError::from).boxed())
    }

    fn hold(&self, bytes: usize) -> Result<HeldMemory> {
        let pool = &self.session.context().runtime_env().memory_pool;
        HeldMemory::take(pool, "rows of parts", bytes, bytes)
    }

    fn pay(&self, spent: Spent) {
        if let Some(pays) = &self.pays {
            pays.spent(spent);
        }
    }

    fn warn(&self, message: &str) {
        self.session.warn(ALONE, message);
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

    fn of(&self, _: &str) -> Arc<dyn Elsewhere> {
        Arc::new(*self)
    }

    fn too_little(&self, _: u64, _: u64) -> Option<String> {
        None
    }

    fn rows(&self, asked: Asked) -> PartRows {
        let parts = async move {
            let mut shuffled = Vec::new();
            for Shuffle { number, fragment, parts, buckets, .. } in &asked.shuffles {
                let mut rows: Vec<_> = (0..buckets.count).map(|_| Vec::new()).collect();
                for part in parts {
                    let of_part = part_here(&asked, fragment, &part.share, &shuffled).await?;
                    for batch in of_part.try_collect::<Vec<RecordBatch>>().await? {
                        for (bucket, batch) in buckets.of(&batch)? {
                            rows[bucket as usize].push(batch);
                        }
                    }
                }
                shuffled.push((*number, Arc::new(rows)));
            }
            let parts = stream::iter(asked.parts.clone()).then(move |part| {
                let (asked, shuffled) = (asked.clone(), shuffled.clone());
                async move {
                    let rows = part_here(&asked, &asked.fragment, &part.share, &shuffled).await?;
                    // A part that fails has handed nothing on.
                    let rows: Vec<RecordBatch> = rows.try_collect().await?;
                    Ok::<_, PartError>(stream::iter(rows.into_iter().map(Ok)))
                }
            });
            Ok::<_, PartError>(parts.try_flatten())
        };
        stream::once(parts).try_flatten().boxed()
    }
}

async fn part_here(
    asked: &Asked,
    fragment: &Fragment,
    share: &Share,
    shuffled: &[(u32, Arc<Vec<Vec<RecordBatch>>>)],
) -> Result<PartRows, PartError> {
    let bucket = match share {
        Share::Stretch { part, .. } => *part as usize,
        Share::Ids { .. } => 0,
    };
    let from: Arc<dyn Shuffled> = Arc::new(ShuffledHere { bucket, shuffled: shuffled.to_vec() });
    Ok(asked.here.run_part(&fragment.bytes, share, &from).await?)
}

/// The rows of one bucket, by shuffle, which are in memory.
#[derive(Debug)]
struct ShuffledHere {
    bucket: usize,
    shuffled: Vec<(u32, Arc<Vec<Vec<RecordBatch>>>)>,
}

impl ShuffledHere {
    fn of(&self, shuffle: u32) -> &[RecordBatch] {
        let all = self.shuffled.iter().find(|(number, _)| *number == shuffle);
        all.and_then(|(_, rows)| rows.get(self.bucket)).map_or(&[], Vec::as_slice)
    }
}

impl Shuffled for ShuffledHere {
    fn rows(&self, shuffle: u32) -> PartRows {
        stream::iter(self.of(shuffle).to_vec().into_iter().map(Ok)).boxed()
    }

    fn size(&self, shuffle: u32) -> Option<(usize, usize)> {
        let all = self.of(shuffle).iter();
        let each = all.map(|batch| (batch.num_rows(), batch.get_array_memory_size()));
        Some(each.fold((0, 0), |(rows, bytes), (more, size)| (rows + more, bytes + size)))
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
                shuffles: false,
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
