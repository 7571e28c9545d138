//! The columns of `system.running` and `system.queries`.

use super::columns::{Column, Values};
use crate::cost::{Cost, Prices};
use crate::labels::{EXPERIMENT, METRIC, shown};
use crate::statements::Listed;

use Values::{Day, Number, Real, Text, Time};

/// A statement and what is charged.
pub(super) struct Charged {
    pub listed: Listed,
    pub prices: Prices,
    /// Of the process, and of the row in it.
    pub node: String,
    pub number: u64,
}

impl Charged {
    fn cost(&self) -> &Cost {
        &self.listed.cost
    }

    fn storage(&self) -> uplake_table::Counts {
        self.listed.cost.counts.storage
    }
}

/// FNV-1a, the same in every version.
fn hash(text: &str) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step))
}

fn who() -> Vec<Column<Charged>> {
    vec![
        ("id", Number(|row: &Charged| Some(row.listed.id))),
        ("role", Text(|row: &Charged| Some(row.listed.client.role.clone()))),
        ("tenant", Text(|row: &Charged| Some(row.listed.client.tenant.clone()))),
        ("application", Text(|row: &Charged| Some(row.listed.client.application.clone()))),
        ("address", Text(|row: &Charged| Some(row.listed.client.address.clone()))),
        ("protocol", Text(|row: &Charged| Some(row.listed.client.protocol.name().to_owned()))),
        ("text", Text(|row: &Charged| Some(row.listed.text.to_string()))),
        ("labels", Text(|row: &Charged| shown(&row.listed.labels))),
        ("experiment", Text(|row: &Charged| row.listed.labels.get(EXPERIMENT).cloned())),
        ("metric", Text(|row: &Charged| row.listed.labels.get(METRIC).cloned())),
        ("started", Time(|row: &Charged| row.listed.began_millis)),
        ("seconds", Real(|row: &Charged| Some(row.cost().total.as_secs_f64()))),
        ("queued_s", Real(|row: &Charged| Some(row.cost().counts.queued.as_secs_f64()))),
        ("planned_s", Real(|row: &Charged| Some(row.cost().counts.planned.as_secs_f64()))),
        ("compute_s", Real(|row: &Charged| Some(row.cost().compute_seconds()))),
        ("nodes_s", Real(|row: &Charged| Some(row.cost().node_seconds()))),
        ("dollars", Real(|row: &Charged| Some(row.listed.dollars(&row.prices)))),
        ("files", Number(|row: &Charged| Some(row.cost().counts.files_planned))),
        ("files_done", Number(|row: &Charged| Some(row.cost().counts.files_done))),
        ("rows_read", Number(|row: &Charged| Some(row.cost().counts.rows_read))),
        ("rows_out", Number(|row: &Charged| Some(row.cost().rows_out))),
        ("bytes_out", Number(|row: &Charged| Some(row.cost().bytes_out))),
        ("bytes_asked", Number(|row: &Charged| Some(row.storage().bytes_asked))),
        ("bytes_store", Number(|row: &Charged| Some(row.storage().bytes_read))),
    ]
}

/// Those of statements that run.
pub(super) fn running() -> Vec<Column<Charged>> {
    let mut columns = who();
    columns.extend([
        ("state", Text(|row: &Charged| Some(row.listed.stage.name().to_owned()))),
        ("memory", Number(|row: &Charged| Some(row.cost().counts.memory_bytes))),
    ]);
    columns
}

/// Those of statements that are over.
pub(super) fn over() -> Vec<Column<Charged>> {
    let mut columns = who();
    columns.extend([
        ("text_hash", Text(|row: &Charged| Some(hash(&row.listed.text)))),
        ("ran_s", Real(|row: &Charged| Some(row.cost().ran().as_secs_f64()))),
        ("sent_s", Real(|row: &Charged| Some(row.cost().sent().as_secs_f64()))),
        ("files_skipped", Number(|row: &Charged| Some(row.cost().counts.files_skipped))),
        ("bytes_memory", Number(|row: &Charged| Some(row.storage().bytes_from_memory))),
        ("bytes_disk", Number(|row: &Charged| Some(row.storage().bytes_from_disk))),
        ("bytes_written", Number(|row: &Charged| Some(row.storage().bytes_written))),
        ("requests", Number(|row: &Charged| Some(row.storage().requests()))),
        ("gets", Number(|row: &Charged| Some(row.storage().gets))),
        ("puts", Number(|row: &Charged| Some(row.storage().puts))),
        ("lists", Number(|row: &Charged| Some(row.storage().lists))),
        ("deletes", Number(|row: &Charged| Some(row.storage().deletes))),
        ("retries", Number(|row: &Charged| Some(row.storage().retries))),
        ("hedges", Number(|row: &Charged| Some(row.storage().hedges))),
        ("memory_peak", Number(|row: &Charged| Some(row.cost().counts.memory_peak_bytes))),
        ("spilled", Number(|row: &Charged| Some(row.cost().counts.spilled_bytes))),
        ("spooled", Number(|row: &Charged| Some(row.cost().spooled))),
        ("sides_kept", Number(|row: &Charged| Some(row.cost().counts.sides_kept))),
        ("saved_s", Real(|row: &Charged| Some(row.cost().counts.saved.as_secs_f64()))),
        ("sqlstate", Text(|row: &Charged| row.listed.failed.as_ref().map(|f| f.code.to_string()))),
        ("error", Text(|row: &Charged| row.listed.failed.as_ref().map(|f| f.message.clone()))),
        ("dt", Day(|row: &Charged| row.listed.began_millis)),
        ("node", Text(|row: &Charged| Some(row.node.clone()))),
        ("number", Number(|row: &Charged| Some(row.number))),
    ]);
    columns
}
