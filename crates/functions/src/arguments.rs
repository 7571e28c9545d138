//! What functions ask of their arguments.

use arrow::array::{Array, BooleanArray};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::function::AccumulatorArgs;
use datafusion_physical_expr::expressions::Literal;

use crate::error::refuse;

/// The first `count` arguments, which must be constants.
pub(crate) fn constants(
    args: &AccumulatorArgs,
    count: usize,
    name: &str,
) -> Result<Vec<ScalarValue>> {
    let literal = |i: usize| match args.exprs[i].downcast_ref::<Literal>() {
        Some(literal) => Ok(literal.value().clone()),
        None => refuse!(Value, "argument {} of {name} must be a constant", i + 1),
    };
    (0..count).map(literal).collect()
}

/// The aggregate `name` is not asked for different values alone.
///
/// # Errors
/// If it is: planning, which says so.
pub fn no_distinct(args: &AccumulatorArgs, name: &str) -> Result<()> {
    if args.is_distinct { refuse!(Call, "{name} takes no DISTINCT") } else { Ok(()) }
}

/// Whether the FILTER of an aggregate lets a row through.
pub fn passes(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|f| f.is_valid(row) && f.value(row))
}

/// What a function was made of whose constant arguments have been read and taken off.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BoundConstants {
    /// The arguments that were taken off, in order.
    pub constants: Vec<ScalarValue>,
    /// A value of the type of the time, which follows them.
    pub time: ScalarValue,
    /// How many arguments follow the time.
    pub conditions: usize,
}
