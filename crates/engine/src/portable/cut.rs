//! Where a plan is cut: below, parts that never talk to each other; above, this process.
//!
//! ```text
//! Sort c DESC LIMIT 3                       Sort c DESC LIMIT 3
//!   Aggregate by country: count(*) c   ─►     Aggregate by country: final_count(p) c
//!     Join on id                                Parts ◄── Aggregate by country: count(*) p
//!       users, events                                       Join on id
//!                                                             users, events (ids of a part)
//! ```
//!
//! # Invariants
//! - Every row of the cut's plan comes from exactly one part: tables are divided by the ids of one domain, or one table
//!   by its bytes, and what is not divided is read whole by every part, where that makes no row twice.
//! - Rows with equal ids are in one part, those without an id in the first, so what groups, joins or orders windows by
//!   these ids is complete in a part.
//! - What answers otherwise when it is asked again (limits without order, `random()`) is never below a cut.
//!
//! # Not here
//! Whether it is worth it: [`Elsewhere::divide`](crate::portable::elsewhere::Elsewhere::divide).

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::LogicalPlan;

use crate::base::id_column::IdColumn;
use crate::portable::choice::{Choice, Divides, choices};
use crate::portable::kind::{Kind, Looked, is_repeatable};
use crate::portable::partial::{Above, halves};
use crate::portable::share::Divided;
use crate::portable::shuffle_read::ShuffleRead;
use crate::scan::file_bounds::FileIds;

/// Scans and operators of a plan that is looked at, at most: each operator is looked at once for each above it.
const SCANS_MAX: usize = 64;
const NODES_MAX: usize = 400;

/// A plan that is computed in parts.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// What each part computes, of its share.
    pub plan: LogicalPlan,
    pub divided: Vec<Divided>,
    /// The ids that tell parts apart; `None` if one table is divided by its bytes, or what is read was shuffled.
    pub source: Option<IdColumn>,
    pub highest_id: Option<u32>,
    /// Of the table with the most rows.
    pub files: Vec<FileIds>,
    /// Rows of the tables that are divided.
    pub rows: u64,
    /// Are rows answered as they are read?
    pub is_raw: bool,
}

impl Piece {
    pub fn new(plan: LogicalPlan, divided: Vec<Divided>, choice: Choice, is_raw: bool) -> Self {
        let Choice { divides, rows, highest_id, files } = choice;
        let source = match divides {
            Divides::Ids(source) => Some(source),
            Divides::Bytes { .. } | Divides::Shuffles => None,
        };
        Self { plan, divided, source, highest_id, files, rows, is_raw }
    }
}

/// A plan, or why there is none.
pub(crate) type Cut = std::result::Result<LogicalPlan, String>;

/// The plan with `parts` of pieces in it, or why there is none; where `parts` says why it has none, what is below is
/// looked at.
pub(crate) fn cut(
    plan: &LogicalPlan,
    whole_rows: u64,
    parts: &mut dyn FnMut(Piece) -> Result<Cut>,
) -> Result<Cut> {
    if let Some(why) = not_looked_at(plan)? {
        return Ok(Err(why));
    }
    let mut why = None;
    let cut = cut_below(plan, whole_rows, parts, &mut why)?;
    Ok(cut.ok_or_else(|| why.unwrap_or_else(|| "it reads no table of the lake".to_owned())))
}

/// Why nobody looks where a plan could be divided, if nobody does.
pub(crate) fn not_looked_at(plan: &LogicalPlan) -> Result<Option<String>> {
    let (mut nodes, mut reads) = (0, 0);
    plan.apply(|node| {
        nodes += 1;
        let is_scan = matches!(node, LogicalPlan::TableScan(_));
        reads += usize::from(is_scan || ShuffleRead::of(node).is_some());
        let is_much = nodes > NODES_MAX || reads > SCANS_MAX;
        Ok(if is_much { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(match reads {
        0 => Some("it reads no table".to_owned()),
        _ if reads > SCANS_MAX || nodes > NODES_MAX => {
            Some(format!("it has more than {SCANS_MAX} scans or {NODES_MAX} operators"))
        }
        _ => None,
    })
}

fn cut_below(
    plan: &LogicalPlan,
    whole_rows: u64,
    parts: &mut dyn FnMut(Piece) -> Result<Cut>,
    why: &mut Option<String>,
) -> Result<Option<LogicalPlan>> {
    match piece_of(plan, whole_rows)? {
        Ok((piece, above)) => match parts(piece)? {
            Ok(rows) => return above(rows).map(Some),
            // That there is a piece says more than what is above it.
            Err(reason) => *why = Some(reason),
        },
        Err(reason) => {
            *why = why.take().or(reason);
        }
    }
    let mut changed = false;
    let mut inputs = Vec::new();
    for input in plan.inputs() {
        let cut = cut_below(input, whole_rows, parts, why)?;
        changed |= cut.is_some();
        inputs.push(cut.unwrap_or_else(|| input.clone()));
    }
    if !changed {
        return Ok(None);
    }
    let mut inputs = inputs.into_iter();
    let plan = plan.clone().map_children(|child| {
        let next = inputs.next().unwrap_or(child);
        Ok(Transformed::yes(next))
    })?;
    Ok(Some(plan.data))
}

/// The piece that ends with this operator, or which operator cannot be in one.
fn piece_of(
    plan: &LogicalPlan,
    whole_rows: u64,
) -> Result<std::result::Result<(Piece, Above), Option<String>>> {
    // Rows are not brought together in parts to be handed on as they are.
    if ShuffleRead::of(plan).is_some() {
        return Ok(Err(None));
    }
    let mut why = None;
    for choice in choices(plan)? {
        let (kind, mut looked) = Looked::at(plan, &choice, whole_rows)?;
        why = why.or(looked.why.take());
        if matches!(kind, Kind::Split(_)) {
            let is_raw = !has_groups(plan)?;
            let above: Above = Box::new(Ok);
            return Ok(Ok((Piece::new(plan.clone(), looked.divided, choice, is_raw), above)));
        }
        let [input] = plan.inputs()[..] else { continue };
        let (Kind::Split(together), looked) = Looked::at(input, &choice, whole_rows)? else {
            continue;
        };
        if !is_repeatable(plan) || !looked.may_ask(plan)? {
            continue;
        }
        let Some((half, above)) = halves(plan, &together)? else { continue };
        return Ok(Ok((Piece::new(half, looked.divided, choice, false), above)));
    }
    Ok(Err(why))
}

fn has_groups(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::Aggregate(_))))
}
