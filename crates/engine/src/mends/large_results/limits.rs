//! What one call may make.

use datafusion::common::config::ConfigOptions;
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

use super::{growth, sizes};
use crate::base::error::EngineError;
use crate::base::held::held_bytes;
use crate::base::settings::Settings;
use crate::base::sql_state::SqlState;

/// What one call may make at most: half of what Arrow's 32-bit offsets reach.
const MOST_BYTES: usize = (i32::MAX / 2) as usize;
/// Of the session's memory: several calls are under way at once, and each result is copied once or twice.
const MEMORY_SHARE: usize = 8;
/// Of what one call may make, a constant: a plan holds ten to twenty copies of it while it is made, 300 MB of one
/// of 30 MB.
const CONSTANT_SHARE: u128 = 4;
/// However little memory there is: a batch of ordinary texts.
const LEAST_BYTES: usize = 16 << 20;
/// Of the largest column among its arguments, what a call may make beyond it: 40 MiB of documents with a word
/// before each are as good as 40 MiB of documents.
const COLUMN_SHARE: u128 = 8;
/// Calls that make less than this part of what one may make do not ask what the process holds, which takes some
/// 20 µs: at 256 MiB of memory 4 MiB, which take 1 ms to make.
const UNASKED_SHARE: u128 = 8;
/// Of the memory, what the process may hold beyond it while a call makes its result.
const OVERDRAFT_SHARE: usize = 8;

const MIB: u128 = 1 << 20;

/// Refuses a call that would make too much.
pub(super) fn expect_to_fit(name: &str, args: &ScalarFunctionArgs) -> Result<()> {
    // Of constants one value is made, for however many rows.
    let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let rows = if is_constant { 1 } else { args.number_rows };
    let mut limits = Limits::of(&args.config_options);
    if is_constant {
        limits.most /= CONSTANT_SHARE;
    }
    let bytes = growth::bytes(name, &args.args, rows, limits.most)?;
    let column = || args.args.iter().map(sizes::of_column).max().unwrap_or_default();
    if bytes > limits.most && bytes > column() / COLUMN_SHARE * (COLUMN_SHARE + 1) {
        return limits.refuse(name, bytes, rows);
    }
    limits.expect_beside_others(name, bytes, rows)
}

/// What calls may make with the session's memory.
pub(super) struct Limits {
    /// For all that the process holds; 0 if nobody said.
    memory: usize,
    /// One call.
    pub most: u128,
}

impl Limits {
    pub fn of(config: &ConfigOptions) -> Self {
        let settings = config.extensions.get::<Settings>();
        let most = match settings.map_or(0, |s| s.memory_bytes) {
            0 => MOST_BYTES,
            memory => (memory / MEMORY_SHARE).clamp(LEAST_BYTES, MOST_BYTES),
        };
        Self { memory: settings.map_or(0, |s| s.shared_bytes), most: most as u128 }
    }

    pub fn refuse(&self, name: &str, bytes: u128, rows: usize) -> Result<()> {
        let what = format!(
            "{name} would make {} MiB for {rows} rows, and one call may make {} MiB with this much \
             memory",
            bytes / MIB,
            self.most / MIB
        );
        Err(EngineError::limit(SqlState::ProgramLimitExceeded, &what).into())
    }

    /// A call that is large enough to matter must fit beside all that the process holds.
    pub fn expect_beside_others(&self, name: &str, bytes: u128, rows: usize) -> Result<()> {
        if self.memory == 0 || bytes <= self.most / UNASKED_SHARE {
            return Ok(());
        }
        let may = (self.memory + self.memory / OVERDRAFT_SHARE) as u128;
        let held = held_bytes() as u128;
        if held + bytes <= may {
            return Ok(());
        }
        Err(DataFusionError::ResourcesExhausted(format!(
            "{name} would make {} MiB for {rows} rows beside {} MiB that are held, and together \
             they may be {} MiB",
            bytes / MIB,
            held / MIB,
            may / MIB
        )))
    }
}
