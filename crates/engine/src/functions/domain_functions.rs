//! `id_of('users', key)` and `key_of('users', id)`.
//!
//! The functions of a statement's text know no lake. [`resolve`] puts in their place functions that
//! have the domain, read up to where its log is when the statement is planned.

use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, Int32Builder, Int64Array, StringBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::types::{NativeType, logical_int64, logical_string};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    Coercion, ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, TypeSignature, TypeSignatureClass, Volatility,
};
use uplake_table::Domain;

use crate::base::error::EngineError;
use crate::base::sql_state::SqlState;
use crate::functions::calls::{each_call, with_functions};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    IdOf,
    KeyOf,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Self::IdOf => "id_of",
            Self::KeyOf => "key_of",
        }
    }

    fn of_name(name: &str) -> Option<Self> {
        [Self::IdOf, Self::KeyOf].into_iter().find(|d| d.name() == name)
    }

    fn output(self) -> DataType {
        match self {
            Self::IdOf => DataType::Int32,
            Self::KeyOf => DataType::Utf8,
        }
    }
}

/// A function, with its domain once the plan is resolved.
#[derive(Debug)]
struct DomainFunction {
    direction: Direction,
    domain: Option<Arc<Domain>>,
    signature: Signature,
}

impl PartialEq for DomainFunction {
    fn eq(&self, other: &Self) -> bool {
        let domain = |f: &Self| f.domain.as_ref().map(Arc::as_ptr);
        self.direction == other.direction && domain(self) == domain(other)
    }
}

impl Eq for DomainFunction {}

impl Hash for DomainFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.direction.hash(state);
        self.domain.as_ref().map(Arc::as_ptr).hash(state);
    }
}

/// The functions as a statement's text names them.
pub(crate) fn functions() -> [ScalarUDF; 2] {
    [function(Direction::IdOf, None), function(Direction::KeyOf, None)]
}

fn function(direction: Direction, domain: Option<Arc<Domain>>) -> ScalarUDF {
    let text = Coercion::new_exact(TypeSignatureClass::Native(logical_string()));
    let argument = match direction {
        Direction::IdOf => text.clone(),
        Direction::KeyOf => Coercion::new_implicit(
            TypeSignatureClass::Native(logical_int64()),
            vec![TypeSignatureClass::Integer],
            NativeType::Int64,
        ),
    };
    // Without its domain it must not be computed while the plan is made.
    let volatility = if domain.is_some() { Volatility::Stable } else { Volatility::Volatile };
    let signature = Signature::new(TypeSignature::Coercible(vec![text, argument]), volatility);
    ScalarUDF::from(DomainFunction { direction, domain, signature })
}

impl ScalarUDFImpl for DomainFunction {
    fn name(&self) -> &str {
        self.direction.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(self.direction.output())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (Some(domain), [_, value]) = (&self.domain, arguments.args.as_slice()) else {
            return Err(DataFusionError::Internal(format!("{} has no domain", self.name())));
        };
        let answer = |values: &ArrayRef| match self.direction {
            Direction::IdOf => ids_of(domain, values),
            Direction::KeyOf => keys_of(domain, values),
        };
        match value {
            ColumnarValue::Array(values) => Ok(ColumnarValue::Array(answer(values)?)),
            ColumnarValue::Scalar(value) => {
                let found = answer(&value.to_array()?)?;
                Ok(ColumnarValue::Scalar(datafusion::common::ScalarValue::try_from_array(
                    &found, 0,
                )?))
            }
        }
    }
}

/// The dictionary of this machine is damaged; the next statement reads it from the lake again.
pub(crate) fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

fn ids_of(domain: &Domain, keys: &ArrayRef) -> Result<ArrayRef> {
    let keys = cast(keys, &DataType::Utf8View)?;
    let keys = keys.as_string_view();
    let known: Vec<&str> = keys.iter().flatten().collect();
    let mut found = Vec::new();
    domain.try_lookup_many(known.as_slice(), &mut found).map_err(unreadable)?;
    let mut found = found.into_iter();
    let mut ids = Int32Builder::with_capacity(keys.len());
    for key in keys.iter() {
        let id = key.and_then(|_| found.next().flatten());
        ids.append_option(id.and_then(|id| i32::try_from(id).ok()));
    }
    Ok(Arc::new(Int32Array::from(ids.finish())))
}

fn keys_of(domain: &Domain, ids: &ArrayRef) -> Result<ArrayRef> {
    let ids = cast(ids, &DataType::Int64)?;
    let ids: &Int64Array = ids.as_primitive::<Int64Type>();
    // No key has the id -1, and none has what NULL and numbers out of range become here.
    let numbers: Vec<u32> =
        ids.iter().map(|id| id.and_then(|id| u32::try_from(id).ok()).unwrap_or(u32::MAX)).collect();
    let mut keys = StringBuilder::with_capacity(ids.len(), 0);
    let mut all_text = true;
    let each = |key: Option<&[u8]>| match key.map(std::str::from_utf8) {
        Some(Ok(text)) => keys.append_value(text),
        Some(Err(_)) => {
            all_text = false;
            keys.append_null();
        }
        None => keys.append_null(),
    };
    domain.try_keys_of(&numbers, each).map_err(unreadable)?;
    if !all_text {
        let message = "a key of the id domain is not text";
        return Err(EngineError::execution(SqlState::DataCorrupted, message).into());
    }
    Ok(Arc::new(keys.finish()))
}

fn unresolved(call: &ScalarFunction) -> Option<Direction> {
    let unresolved = call.func.inner().downcast_ref::<DomainFunction>()?.domain.is_none();
    Direction::of_name(call.func.name()).filter(|_| unresolved)
}

fn domain_name(direction: Direction, call: &ScalarFunction) -> Result<String> {
    let literal = match call.args.first() {
        Some(Expr::Literal(value, _)) => value.try_as_str().flatten(),
        _ => None,
    };
    literal.map(str::to_owned).ok_or_else(|| {
        let name = direction.name();
        let message = format!("{name} takes the name of an id domain as text: {name}('users', …)");
        EngineError::statement(SqlState::InvalidParameterValue, message).into()
    })
}

/// The domains that a plan's functions name.
pub(crate) fn named_domains(plan: &LogicalPlan) -> Result<HashSet<String>> {
    let mut names = HashSet::new();
    each_call(plan, |call| {
        if let Some(direction) = unresolved(call) {
            names.insert(domain_name(direction, call)?);
        }
        Ok(())
    })?;
    Ok(names)
}

/// The plan with functions that have their domains.
pub(crate) fn resolve(
    plan: LogicalPlan,
    domains: &HashMap<String, Arc<Domain>>,
) -> Result<LogicalPlan> {
    with_functions(plan, |call| {
        let Some(direction) = unresolved(call) else { return Ok(None) };
        let domain = domains.get(&domain_name(direction, call)?).cloned();
        Ok(Some(Arc::new(function(direction, domain))))
    })
}
