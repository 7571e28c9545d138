//! Functions whose constant arguments have been read and taken off, as they can be made again elsewhere.

use datafusion_common::Result;
use datafusion_expr::AggregateUDF;

use crate::arguments::BoundConstants;
use crate::{event_function, event_path};

/// What a function was made of; `None` if it is not one of these.
pub fn bound_constants(function: &AggregateUDF) -> Option<&BoundConstants> {
    event_function::bound_constants(function).or_else(|| event_path::bound_constants(function))
}

/// The function of that name that is made of them; `None` if no such function is called so.
///
/// # Errors
/// As the function has them for such arguments.
pub fn bind(name: &str, bound: BoundConstants) -> Result<Option<AggregateUDF>> {
    match event_path::is_named(name) {
        true => event_path::bind(bound).map(Some),
        false => event_function::bind(name, bound),
    }
}
