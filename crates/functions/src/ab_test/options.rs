//! The last argument of the `ab_test` functions: the control's name, or a struct of options that are
//! called as in a definition of an experiment.
//!
//! `{'control': 'old', 'alpha': 0.1, 'inference': 'anytime', 'planned_users': 100000}`

use arrow::array::{Array, AsArray, StructArray};
use arrow::datatypes::{DataType, Float64Type};
use datafusion_common::{DataFusionError, Result, ScalarValue};
use uplake_experiment::definition::Inference;

use crate::error::{FunctionError, refuse};

/// Two-sided; intervals cover 95 %, as those of a report without `alpha`.
const ALPHA: f64 = 0.05;
/// As many as a definition may have.
const LOOKS_MAX: f64 = 100.0;
/// Beyond 2^53 a count is no longer exact, nor a plan.
const USERS_MAX: f64 = 9e15;

const KEYS: [&str; 7] =
    ["control", "alpha", "inference", "planned_users", "looks", "shares", "equivalence"];

/// What a test is to do.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Options {
    pub(super) control: Option<String>,
    pub(super) alpha: f64,
    /// Of other kinds than beliefs.
    pub(super) inference: Inference,
    /// Planned, by variant; those seen if `None`.
    pub(super) shares: Option<Vec<(String, f64)>>,
    /// Margin of the lift, to both sides.
    pub(super) equivalence: Option<f64>,
}

impl Default for Options {
    fn default() -> Self {
        let (control, shares, equivalence) = (None, None, None);
        Self { control, alpha: ALPHA, inference: Inference::Fixed, shares, equivalence }
    }
}

impl Options {
    /// Of a name, or a struct of constants; `function` is for messages.
    pub(super) fn of(given: &ScalarValue, function: &str) -> Result<Self> {
        if let ScalarValue::Struct(fields) = given {
            return Self::of_struct(fields, function);
        }
        match given.try_as_str().flatten() {
            Some(name) => Ok(Self { control: Some(name.to_owned()), ..Self::default() }),
            None => refuse!(Value, "the control of {function} must be a constant name"),
        }
    }

    fn of_struct(given: &StructArray, function: &str) -> Result<Self> {
        if let Some(odd) =
            given.fields().iter().find(|field| !KEYS.contains(&field.name().as_str()))
        {
            let allowed = KEYS.join(", ");
            return refuse!(Value, "{function} has no option '{}'; allowed: {allowed}", odd.name());
        }
        let odd = |key: &str, allowed: &str| -> DataFusionError {
            let text = format!("the option '{key}' of {function} must be {allowed}");
            FunctionError::Value(text).into()
        };
        let value = |key: &str| -> Result<Option<ScalarValue>> {
            let column = given.column_by_name(key);
            column.map(|column| ScalarValue::try_from_array(column, 0)).transpose()
        };
        let text = |key: &str, allowed: &str| -> Result<Option<String>> {
            let Some(value) = value(key)? else { return Ok(None) };
            let text = value.try_as_str().flatten().ok_or_else(|| odd(key, allowed))?;
            Ok(Some(text.to_owned()))
        };
        let number = |key: &str, allowed: &str, fits: fn(f64) -> bool| -> Result<Option<f64>> {
            let Some(value) = value(key)? else { return Ok(None) };
            match value.cast_to(&DataType::Float64) {
                Ok(ScalarValue::Float64(Some(number))) if fits(number) => Ok(Some(number)),
                _ => Err(odd(key, allowed)),
            }
        };
        let alpha = number("alpha", "above 0 and below 0.5", |alpha| alpha > 0.0 && alpha < 0.5)?;
        let planned =
            number("planned_users", "2 or more", |users| (2.0..USERS_MAX).contains(&users))?;
        let looks = number("looks", "a whole number from 1 to 100", |looks| {
            (1.0..=LOOKS_MAX).contains(&looks) && looks.fract() == 0.0
        })?;
        let kinds = "'fixed', 'anytime' or 'group_sequential'";
        let kind = text("inference", kinds)?;
        let inference = match (kind.as_deref().unwrap_or("fixed"), planned, looks) {
            ("fixed", None, None) => Inference::Fixed,
            ("anytime", Some(planned), None) => {
                Inference::Anytime { planned_users: planned as u64 }
            }
            ("group_sequential", Some(planned), Some(looks)) => {
                Inference::GroupSequential { planned_users: planned as u64, looks: looks as u32 }
            }
            ("fixed" | "anytime" | "group_sequential", _, _) => {
                return refuse!(
                    Value,
                    "'anytime' of {function} needs 'planned_users', 'group_sequential' needs \
                     'planned_users' and 'looks', and 'fixed' neither"
                );
            }
            _ => return Err(odd("inference", kinds)),
        };
        let shares = match value("shares")? {
            None => None,
            Some(ScalarValue::Struct(shares)) => Some(shares_of(&shares, function)?),
            Some(_) => return Err(odd("shares", "such as {'a': 0.5, 'b': 0.5}")),
        };
        Ok(Self {
            control: text("control", "a name")?,
            alpha: alpha.unwrap_or(ALPHA),
            inference,
            shares,
            equivalence: number("equivalence", "above 0 and below 1", |margin| {
                margin > 0.0 && margin < 1.0
            })?,
        })
    }
}

/// Planned shares by variant, from `{'a': 0.5, 'b': 0.5}`.
pub(super) fn shares_of(shares: &StructArray, function: &str) -> Result<Vec<(String, f64)>> {
    let share = |(field, column): (&arrow::datatypes::FieldRef, &arrow::array::ArrayRef)| {
        let column = arrow::compute::cast(column, &DataType::Float64)?;
        let share = column.as_primitive::<Float64Type>();
        if share.is_null(0) || !share.value(0).is_finite() || share.value(0) < 0.0 {
            let name = field.name();
            return refuse!(Value, "the share of '{name}' in {function} is not a number from 0");
        }
        Ok((field.name().clone(), share.value(0)))
    };
    shares.fields().iter().zip(shares.columns()).map(share).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray};
    use arrow::datatypes::Field;

    use super::*;

    fn options(fields: Vec<(&str, ArrayRef)>) -> Result<Options> {
        let fields = fields.into_iter().map(|(name, column)| {
            (Arc::new(Field::new(name, column.data_type().clone(), true)), column)
        });
        let fields: Vec<_> = fields.collect();
        Options::of(&ScalarValue::Struct(Arc::new(StructArray::from(fields))), "f")
    }

    fn text(text: &str) -> ArrayRef {
        Arc::new(StringArray::from(vec![text]))
    }

    fn whole(number: i64) -> ArrayRef {
        Arc::new(Int64Array::from(vec![number]))
    }

    fn double(number: f64) -> ArrayRef {
        Arc::new(Float64Array::from(vec![number]))
    }

    #[test]
    fn options_are_read_or_refused_with_what_is_allowed() {
        let named = Options::of(&ScalarValue::Utf8(Some("old".into())), "f").unwrap();
        assert_eq!(named, Options { control: Some("old".into()), ..Options::default() });
        let shares = StructArray::from(vec![
            (Arc::new(Field::new("a", DataType::Int64, true)), whole(3)),
            (Arc::new(Field::new("b", DataType::Float64, true)), double(0.5)),
        ]);
        let all = options(vec![
            ("inference", text("group_sequential")),
            ("planned_users", whole(1000)),
            ("looks", whole(4)),
            ("alpha", double(0.1)),
            ("control", text("old")),
            ("equivalence", double(0.02)),
            ("shares", Arc::new(shares)),
        ]);
        let expected = Options {
            control: Some("old".into()),
            alpha: 0.1,
            inference: Inference::GroupSequential { planned_users: 1000, looks: 4 },
            shares: Some(vec![("a".into(), 3.0), ("b".into(), 0.5)]),
            equivalence: Some(0.02),
        };
        assert_eq!(all.unwrap(), expected);
        for (fields, said) in [
            (vec![("power", double(0.8))], "no option 'power'; allowed: control, alpha"),
            (vec![("alpha", double(0.5))], "'alpha' of f must be above 0 and below 0.5"),
            (vec![("alpha", text("small"))], "'alpha' of f must be"),
            (vec![("equivalence", double(0.0))], "above 0 and below 1"),
            (vec![("control", whole(1))], "'control' of f must be a name"),
            (vec![("inference", text("bayesian"))], "'fixed', 'anytime' or"),
            (vec![("inference", text("anytime"))], "needs 'planned_users'"),
            (vec![("planned_users", whole(10))], "'fixed' neither"),
            (vec![("looks", double(2.5)), ("planned_users", whole(10))], "from 1 to 100"),
            (vec![("shares", double(0.5))], "'shares' of f must be such as"),
        ] {
            let error = options(fields).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
