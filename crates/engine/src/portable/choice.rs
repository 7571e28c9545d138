//! What a plan could be divided by.

use std::collections::HashMap;

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::LogicalPlan;

use crate::base::id_column::IdColumn;
use crate::portable::shuffle_read::ShuffleRead;
use crate::scan::file_bounds::{FileIds, highest_id};
use crate::scan::lake_table::LakeTable;

/// What tells parts apart.
pub(crate) enum Divides {
    /// Ids of a domain.
    Ids(IdColumn),
    /// The bytes of one scan's table, by its number.
    Bytes { scan: usize },
    /// What shuffles have made of the keys of rows.
    Shuffles,
}

/// What tables are divided by.
pub(crate) struct Choice {
    pub divides: Divides,
    /// Of the tables that are divided.
    pub rows: u64,
    pub highest_id: Option<u32>,
    /// Of the table with the most rows.
    pub files: Vec<FileIds>,
}

/// The tables that have ids of a domain, together.
#[derive(Default)]
struct WithIds {
    rows: u64,
    highest_id: Option<u32>,
    /// Of the table with the most rows, and how many these are.
    files: Vec<FileIds>,
    most_rows: u64,
}

/// The ids and the table that a plan could be divided by, those of the most rows first.
pub(crate) fn choices(plan: &LogicalPlan) -> Result<Vec<Choice>> {
    if plan.exists(|node| Ok(ShuffleRead::of(node).is_some()))? {
        let (divides, highest_id, files) = (Divides::Shuffles, None, Vec::new());
        return Ok(vec![Choice { divides, rows: 0, highest_id, files }]);
    }
    let mut by_ids: HashMap<IdColumn, WithIds> = HashMap::new();
    let (mut largest, mut number): (Option<(u64, usize)>, usize) = (None, 0);
    plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let provider = source_as_provider(&scan.source)?;
            if let Some(table) = provider.downcast_ref::<LakeTable>().filter(|t| t.is_plain()) {
                let rows = table.rows().unwrap_or(u64::MAX);
                let mut of_files = table.file_ids();
                for (source, _) in table.id_columns() {
                    let files = of_files.remove(&source.source()).flatten();
                    let most = files.as_deref().and_then(highest_id);
                    let unknown = || WithIds { highest_id: most, ..WithIds::default() };
                    let known = by_ids.entry(source).or_insert_with(unknown);
                    known.rows = known.rows.saturating_add(rows);
                    known.highest_id = known.highest_id.zip(most).map(|(a, b)| a.max(b));
                    if rows > known.most_rows {
                        (known.files, known.most_rows) = (files.unwrap_or_default(), rows);
                    }
                }
                if largest.is_none_or(|(most, _)| rows > most) {
                    largest = Some((rows, number));
                }
            }
            number += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let mut choices: Vec<Choice> = by_ids
        .into_iter()
        .map(|(source, WithIds { rows, highest_id, files, .. })| Choice {
            divides: Divides::Ids(source),
            rows,
            highest_id,
            files,
        })
        .collect();
    // The same one whoever asks.
    choices.sort_by_key(|choice| {
        let source = match &choice.divides {
            Divides::Ids(source) => Some(source.source()),
            _ => None,
        };
        (std::cmp::Reverse(choice.rows), source)
    });
    choices.extend(largest.map(|(rows, scan)| Choice {
        divides: Divides::Bytes { scan },
        rows,
        highest_id: None,
        files: Vec::new(),
    }));
    Ok(choices)
}
