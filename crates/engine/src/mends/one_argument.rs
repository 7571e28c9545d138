//! Functions of one argument, of a constant as of an array.

use datafusion::arrow::array::ArrayRef;
use datafusion::common::{Result, internal_err};
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

pub(super) fn by_array(
    args: &ScalarFunctionArgs,
    of: impl Fn(&ArrayRef) -> Result<ArrayRef>,
) -> Result<ColumnarValue> {
    let of_one = |args: &[ArrayRef]| match args {
        [only] => of(only),
        _ => internal_err!("a function of one argument"),
    };
    make_scalar_function(of_one, Vec::new())(&args.args)
}
