//! The keys of ids that a plan groups by, where somebody looks at them.
//!
//! [`key_ids`](crate::optimizer::id_rewrite::key_ids) puts `keys_of_ids(id)` above groups by ids; the optimizer takes it out
//! again where no one reads it. What is left is given its domain by [`resolve`] before the plan runs.
//! Statements cannot name it.
//!
//! # Invariants
//! - An id of the table's files that its domain does not have is an error, never another key.

use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, LargeStringArray, StringViewArray};
use datafusion::arrow::buffer::{Buffer, OffsetBuffer};
use datafusion::arrow::datatypes::{DataType, Int32Type};
use datafusion::common::{Column, DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use uplake_table::Domain;

use crate::base::error::EngineError;
use crate::base::sql_state::SqlState;
use crate::functions::calls::{each_call, with_functions};
use crate::functions::domain_functions::unreadable;

/// `keys_of_ids(id)`, with its domain once the plan is resolved.
#[derive(Debug)]
struct KeysOfIds {
    /// The domain and the log that the ids are from: `users:0123…`.
    source: String,
    domain: Option<Arc<Domain>>,
    signature: Signature,
}

impl PartialEq for KeysOfIds {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source && self.domain.is_some() == other.domain.is_some()
    }
}

impl Eq for KeysOfIds {}

impl Hash for KeysOfIds {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.source.hash(state);
    }
}

/// The function that looks up keys of ids from `source`, with its domain once the plan is resolved.
pub(crate) fn function(source: &str, domain: Option<Arc<Domain>>) -> Arc<ScalarUDF> {
    let signature = Signature::exact(vec![DataType::Int32], Volatility::Immutable);
    Arc::new(ScalarUDF::from(KeysOfIds { source: source.to_owned(), domain, signature }))
}

/// Where the ids are from whose keys a function looks up, and its domain if it has it; `None` of all others.
pub(crate) fn source_of(function: &ScalarUDF) -> Option<(&str, Option<&Arc<Domain>>)> {
    let found = function.inner().downcast_ref::<KeysOfIds>()?;
    Some((&found.source, found.domain.as_ref()))
}

/// Is it the function that looks up keys?
pub(crate) fn looks_up_keys(function: &ScalarUDF) -> bool {
    function.inner().downcast_ref::<KeysOfIds>().is_some()
}

/// The keys of a column of ids.
pub(crate) fn keys_of(source: &str, ids: Column) -> Expr {
    let call = ScalarFunction::new_udf(function(source, None), vec![Expr::Column(ids)]);
    Expr::ScalarFunction(call)
}

/// The column of ids and their source, if `expr` is nothing but their keys.
pub(crate) fn ids_in_keys(expr: &Expr) -> Option<(Column, String)> {
    match expr {
        Expr::Alias(alias) => ids_in_keys(&alias.expr),
        Expr::ScalarFunction(call) => {
            let function = call.func.inner().downcast_ref::<KeysOfIds>()?;
            match call.args.as_slice() {
                [Expr::Column(ids)] => Some((ids.clone(), function.source.clone())),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The sources whose keys the plan wants.
pub(crate) fn wanted_sources(plan: &LogicalPlan) -> Result<HashSet<String>> {
    let mut sources = HashSet::new();
    each_call(plan, |call| {
        let function = call.func.inner().downcast_ref::<KeysOfIds>();
        sources.extend(function.map(|function| function.source.clone()));
        Ok(())
    })?;
    Ok(sources)
}

/// The plan with its domains, by source.
pub(crate) fn resolve(
    plan: LogicalPlan,
    domains: &HashMap<String, Arc<Domain>>,
) -> Result<LogicalPlan> {
    with_functions(plan, |call| {
        let found = call.func.inner().downcast_ref::<KeysOfIds>();
        Ok(found.map(|found| function(&found.source, domains.get(&found.source).cloned())))
    })
}

impl ScalarUDFImpl for KeysOfIds {
    fn name(&self) -> &'static str {
        "keys_of_ids"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (Some(domain), [ids]) = (&self.domain, arguments.args.as_slice()) else {
            return Err(DataFusionError::Internal("keys_of_ids has no domain".into()));
        };
        match ids {
            ColumnarValue::Array(ids) => Ok(ColumnarValue::Array(keys(domain, ids)?)),
            ColumnarValue::Scalar(id) => {
                let keys = keys(domain, &id.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&keys, 0)?))
            }
        }
    }
}

fn keys(domain: &Domain, ids: &ArrayRef) -> Result<ArrayRef> {
    let ids = ids.as_primitive::<Int32Type>();
    // No key has this id, which stands for NULL.
    let numbers: Vec<u32> =
        ids.iter().map(|id| id.and_then(|id| u32::try_from(id).ok()).unwrap_or(u32::MAX)).collect();
    // End to end, because all of it is checked at once: a key at a time takes longer than to find it.
    let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(ids.len() + 1));
    ends.push(0);
    let (mut row, mut missing) = (0, None);
    let each = |key: Option<&[u8]>| {
        match key {
            Some(key) => bytes.extend_from_slice(key),
            None => missing = missing.or(ids.is_valid(row).then_some(row)),
        }
        ends.push(bytes.len() as i64);
        row += 1;
    };
    domain.try_keys_of(&numbers, each).map_err(unreadable)?;
    if let Some(row) = missing {
        let message = format!("the id {} of a data file is not in its id domain", ids.value(row));
        return Err(EngineError::execution(SqlState::DataCorrupted, message)
            .with_hint("see `uplake domain check`")
            .into());
    }
    let ends = OffsetBuffer::new(ends.into());
    let keys = LargeStringArray::try_new(ends, Buffer::from(bytes), ids.nulls().cloned())?;
    Ok(Arc::new(StringViewArray::from(&keys)))
}
