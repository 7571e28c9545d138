//! Corrections for many comparisons, of a list or over a window.
//!
//! `p_adjust([0.01, 0.02], 'holm')` gives a list; `adjusted_p(p, 'holm') OVER (PARTITION BY experiment)`
//! a number per row, corrected over the rows of its partition. They have two names, because a
//! function of rows is found before one over a window.
//!
//! # Invariants
//! - NULL stays NULL and does not count as a comparison, as in R's `p.adjust`.
//!
//! # Not here
//! No arithmetic: [`uplake_experiment::multiplicity`].

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, ListArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{
    ColumnarValue, PartitionEvaluator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, WindowUDF, WindowUDFImpl,
};
use datafusion_functions_window_common::field::WindowUDFFieldArgs;
use datafusion_functions_window_common::partition::PartitionEvaluatorArgs;
use datafusion_physical_expr::expressions::Literal;
use uplake_experiment::multiplicity::{
    benjamini_hochberg, benjamini_yekutieli, bonferroni, hochberg, holm,
};

use crate::error::refuse;

const OF_LIST: &str = "p_adjust";
const OVER_WINDOW: &str = "adjusted_p";

type Method = fn(&[f64]) -> Vec<f64>;

const METHODS: [(&str, Method); 5] = [
    ("holm", holm),
    ("hochberg", hochberg),
    ("bonferroni", bonferroni),
    ("benjamini-hochberg", benjamini_hochberg),
    ("benjamini-yekutieli", benjamini_yekutieli),
];

/// Of a list.
pub(crate) fn scalar() -> ScalarUDF {
    ScalarUDF::from(PAdjust { signature: Signature::user_defined(Volatility::Immutable) })
}

/// Over a window.
pub(crate) fn window() -> WindowUDF {
    WindowUDF::from(PAdjust { signature: Signature::user_defined(Volatility::Immutable) })
}

fn method_of(name: &ScalarValue, function: &str) -> Result<Method> {
    let name = name.try_as_str().flatten().unwrap_or("NULL");
    match METHODS.iter().find(|(known, _)| *known == name) {
        Some((_, method)) => Ok(*method),
        None => {
            let known: Vec<&str> = METHODS.iter().map(|(known, _)| *known).collect();
            refuse!(Value, "{function} has no method '{name}'; it has: {}", known.join(", "))
        }
    }
}

/// A family of p-values, NULLs left where they are.
fn adjust(p: &Float64Array, method: Method, function: &str) -> Result<Vec<Option<f64>>> {
    let known: Vec<f64> = p.iter().flatten().collect();
    if let Some(odd) = known.iter().find(|p| !(0.0..=1.0).contains(*p)) {
        return refuse!(OutOfRange, "{odd} is no p-value; {function} takes numbers from 0 to 1");
    }
    let mut adjusted = method(&known).into_iter();
    Ok(p.iter().map(|p| p.and_then(|_| adjusted.next())).collect())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PAdjust {
    signature: Signature,
}

impl ScalarUDFImpl for PAdjust {
    fn name(&self) -> &str {
        OF_LIST
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let is_list = |given: &DataType| match given {
            DataType::List(of) | DataType::LargeList(of) => {
                of.data_type().is_numeric() || of.data_type().is_null()
            }
            given => given.is_null(),
        };
        match given {
            [list, method] if is_list(list) && method.is_string() => {
                Ok(vec![list_type(), DataType::Utf8])
            }
            _ => refuse!(
                Call,
                "{OF_LIST} takes (list of p-values, method); over a window write {OVER_WINDOW}"
            ),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(list_type())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [lists, ColumnarValue::Scalar(method)] = args.args.as_slice() else {
            return refuse!(Value, "the method of {OF_LIST} must be a constant");
        };
        let method = method_of(method, OF_LIST)?;
        let lists = lists.to_array(args.number_rows)?;
        let lists = lists.as_list::<i32>();
        let adjusted = lists.iter().map(|list| -> Result<Option<Vec<Option<f64>>>> {
            list.map(|list| adjust(list.as_primitive::<Float64Type>(), method, OF_LIST)).transpose()
        });
        let adjusted = adjusted.collect::<Result<Vec<_>>>()?;
        let adjusted = ListArray::from_iter_primitive::<Float64Type, _, _>(adjusted);
        Ok(ColumnarValue::Array(Arc::new(adjusted)))
    }
}

fn list_type() -> DataType {
    DataType::new_list(DataType::Float64, true)
}

impl WindowUDFImpl for PAdjust {
    fn name(&self) -> &str {
        OVER_WINDOW
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [p, method] if (p.is_numeric() || p.is_null()) && method.is_string() => {
                Ok(vec![DataType::Float64, DataType::Utf8])
            }
            _ => refuse!(Call, "{OVER_WINDOW} takes (p-value, method) over a window"),
        }
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(args.name(), DataType::Float64, true)))
    }

    fn partition_evaluator(
        &self,
        args: PartitionEvaluatorArgs,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        let Some(method) = args.input_exprs()[1].downcast_ref::<Literal>() else {
            return refuse!(Value, "the method of {OVER_WINDOW} must be a constant");
        };
        Ok(Box::new(Family { method: method_of(method.value(), OVER_WINDOW)? }))
    }
}

/// All p-values of a partition, whatever its frame.
#[derive(Debug)]
struct Family {
    method: Method,
}

impl PartitionEvaluator for Family {
    fn evaluate_all(&mut self, values: &[ArrayRef], _: usize) -> Result<ArrayRef> {
        let p = cast(&values[0], &DataType::Float64)?;
        let adjusted = adjust(p.as_primitive::<Float64Type>(), self.method, OVER_WINDOW)?;
        Ok(Arc::new(Float64Array::from(adjusted)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By statsmodels' `multipletests` of the five, which is what R's `p.adjust` does with NA.
    #[test]
    fn nulls_stay_and_do_not_count() {
        let p = Float64Array::from(vec![
            Some(0.01),
            None,
            Some(0.04),
            Some(0.03),
            Some(0.005),
            Some(0.9),
        ]);
        for (name, expected) in [
            ("holm", [0.04, 0.09, 0.09, 0.025, 0.9]),
            ("hochberg", [0.04, 0.08, 0.08, 0.025, 0.9]),
            ("bonferroni", [0.05, 0.2, 0.15, 0.025, 1.0]),
            ("benjamini-hochberg", [0.025, 0.05, 0.05, 0.025, 0.9]),
            (
                "benjamini-yekutieli",
                [0.025, 0.05, 0.05, 0.025, 0.9].map(|p: f64| (p * 137.0 / 60.0).min(1.0)),
            ),
        ] {
            let method = method_of(&ScalarValue::Utf8(Some(name.into())), "f").unwrap();
            let found = adjust(&p, method, "f").unwrap();
            assert_eq!(found[1], None);
            let found: Vec<f64> = found.into_iter().flatten().collect();
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() < 1e-14, "{name}: {found} and not {expected}");
            }
            assert_eq!(adjust(&Float64Array::from(Vec::<f64>::new()), method, "f").unwrap(), []);
        }
    }

    #[test]
    fn what_is_no_p_value_is_an_error() {
        for odd in [1.2, -0.1, f64::NAN] {
            let error = adjust(&Float64Array::from(vec![0.5, odd]), holm, "f").unwrap_err();
            assert!(error.to_string().contains("is no p-value"), "{error}");
        }
        let error =
            method_of(&ScalarValue::Utf8(Some("sidak".into())), "f").unwrap_err().to_string();
        assert!(error.contains("no method 'sidak'; it has: holm, hochberg"), "{error}");
    }
}
