//! Statements in parts: what of a plan others compute, and a part that this process computes.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, DataFusionError, FunctionalDependencies, Result as DfResult};
use datafusion::datasource::source_as_provider;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt, stream};
use uplake_table::Domain;

use crate::base::error::{EngineError, Result};
use crate::base::id_column::IdColumn;
use crate::base::settings::{InParts, Settings};
use crate::engine::session::Session;
use crate::functions::calls::each_call;
use crate::operators::build_side_cache::without_sides;
use crate::operators::stoppable::holding;
use crate::optimizer::id_rewrite::id_keys;
use crate::portable::cut::{Cut, Piece, cut};
use crate::portable::elsewhere::{Elsewhere, Fragment, PartRunner, Share, Wanted};
use crate::portable::fragment;
use crate::portable::functions::{Codec, Pin};
use crate::portable::parts::{Parts, parts_node};
use crate::portable::plan::from_bytes;
use crate::portable::share::with_share;
use crate::scan::lake_table::LakeTable;
use crate::sql::statement::Statement;

/// Whether a plan travels, or why not.
type Travel = std::result::Result<(), String>;

/// Slots that ids are divided into, for each part at least.
const SLOTS_OF_PART: u32 = 3;

/// Rows of tables that every part reads whole, if a setting has this process compute them.
const HERE_WHOLE_ROWS: u64 = 1_000_000;

impl Session {
    /// This session, whose statements may be computed in parts.
    #[must_use]
    pub fn with_elsewhere(self, elsewhere: Arc<dyn Elsewhere>) -> Self {
        Self { elsewhere: Some(elsewhere), ..self }
    }

    /// The same session once more, whose statements are not computed in parts.
    pub(crate) fn again(&self) -> Self {
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
            self.parts_of(piece, &elsewhere, always, &codec)
        })?;
        Ok(Some(cut))
    }

    fn parts_of(
        &self,
        piece: Piece,
        elsewhere: &Arc<dyn Elsewhere>,
        always: bool,
        codec: &Codec,
    ) -> DfResult<Cut> {
        let source = piece.source.as_ref().map(IdColumn::source);
        let wanted = Wanted {
            source: source.as_deref(),
            highest_id: piece.highest_id,
            rows: piece.rows,
            is_raw: piece.is_raw,
            always,
        };
        let Some(shares) = elsewhere.divide(&wanted) else {
            return Ok(Err("it is not worth it, or nobody is there".to_owned()));
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
        let here = Arc::new(Here(self.again()));
        let parts = Parts { fragment, shares, elsewhere: Arc::clone(elsewhere), here };
        Ok(Ok(parts_node(parts, Arc::new(schema))))
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

    /// The rows of one part of a statement that was cut elsewhere.
    async fn part(&self, bytes: &[u8], share: &Share) -> Result<SendableRecordBatchStream> {
        let (header, plan) = fragment::from_bytes(bytes)?;
        let mut tables = Vec::new();
        for pin in header.pins {
            let table = self.catalog.at_version(&pin.table, pin.version).await?;
            if Pin::of(&table).as_ref() != Some(&pin) {
                let what = format!("{} at version {} has other files", pin.table, pin.version);
                return Err(EngineError::bug(what));
            }
            tables.push((pin, table));
        }
        let mut domains: HashMap<String, Arc<Domain>> = HashMap::new();
        for source in header.domains {
            let found = match source.split_once(':') {
                Some((name, log)) => self.engine.lake.domain_with_ids(name, log, None).await?,
                None => None,
            };
            domains.extend(found.map(|domain| (source, domain)));
        }
        let state = self.state_of_part(&header.settings)?;
        let codec = Codec::new(state.task_ctx(), tables, domains);
        let plan = with_share(from_bytes(plan, &codec)?, &header.divided, share)?;
        let (physical, end) = self.physical(&plan, &state).await?;
        Ok(holding(execute_stream(physical, state.task_ctx())?, end))
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
    async fn run_part(&self, fragment: &[u8], share: &Share) -> Result<SendableRecordBatchStream> {
        Box::pin(self.0.part(fragment, share)).await
    }
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

    fn divide(&self, wanted: &Wanted<'_>) -> Option<Vec<Share>> {
        let parts = self.parts.max(1);
        if wanted.source.is_none() {
            return Some((0..parts).map(|part| Share::Stretch { part, parts }).collect());
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
            Share::Ids { ranges, without_id: part == 0 }
        };
        Some((0..parts).map(share).collect())
    }

    fn rows(
        &self,
        fragment: Fragment,
        shares: Vec<Share>,
        here: Arc<dyn PartRunner>,
    ) -> SendableRecordBatchStream {
        let schema = Arc::clone(&fragment.schema);
        let parts = stream::iter(shares).then(move |share| {
            let (here, fragment) = (Arc::clone(&here), fragment.clone());
            async move {
                let rows = here.run_part(&fragment.bytes, &share).await?;
                // A part that fails has handed nothing on.
                let rows: Vec<RecordBatch> = rows.try_collect().await?;
                Ok::<_, DataFusionError>(stream::iter(rows.into_iter().map(Ok)))
            }
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, parts.try_flatten()))
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
            let wanted =
                Wanted { source: Some("u:1"), highest_id, rows: 1, is_raw: false, always: false };
            let shares = here.divide(&wanted).unwrap();
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
