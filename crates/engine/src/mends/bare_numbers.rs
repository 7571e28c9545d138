//! Text that is a bare number, as an interval or a time of day, and a time without its seconds.
//!
//! `'2026-11-05 10:00'::TIMESTAMP` is refused, and so is a comparison with that text. DataFusion takes `'90'::INTERVAL` for months, though `INTERVAL '90'` is seconds, as both are in PostgreSQL; and
//! `'11'::TIME` for nanoseconds, where it is refused here. It knows no clock in an interval: `'1 day 02:00'::INTERVAL`.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, AsArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, lit,
};

use crate::sql::interval_text::in_units;

/// A cast, of text that says what it is.
pub(super) fn spelled_out(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let (text, wanted) = match &mut expr {
        Expr::Cast(cast) => (cast.expr.as_mut(), cast.field.data_type()),
        Expr::TryCast(cast) => (cast.expr.as_mut(), cast.field.data_type()),
        _ => return Transformed::no(expr),
    };
    if matches!(wanted, DataType::Timestamp(..)) {
        return match with_seconds(text) {
            Some(whole) => {
                *text = whole;
                Transformed::yes(expr)
            }
            None => Transformed::no(expr),
        };
    }
    let function = match wanted {
        DataType::Interval(_) => &*SECONDS,
        DataType::Time32(_) | DataType::Time64(_) => &*CLOCK,
        _ => return Transformed::no(expr),
    };
    if !text.get_type(schema).is_ok_and(|found| found.is_string()) {
        return Transformed::no(expr);
    }
    *text = function.call(vec![std::mem::take(text)]);
    Transformed::yes(expr)
}

/// The constant text of a time with its seconds, if it has none: `2026-11-05 10:00`, also with a zone.
fn with_seconds(text: &Expr) -> Option<Expr> {
    let Expr::Literal(value, _) = text else { return None };
    let text = value.try_as_str()??.trim();
    let (minutes, zone) = text.split_at_checked("2026-11-05 10:00".len())?;
    let is_like = |(found, wanted): (u8, u8)| match wanted {
        b'd' => found.is_ascii_digit(),
        b' ' => matches!(found, b' ' | b'T'),
        other => found == other,
    };
    let is_whole = minutes.bytes().zip(b"dddd-dd-dd dd:dd".iter().copied()).all(is_like)
        && !zone.starts_with(|c: char| c == ':' || c.is_ascii_digit());
    is_whole.then(|| lit(format!("{minutes}:00{zone}")))
}

pub(super) static SECONDS: LazyLock<ScalarUDF> = LazyLock::new(|| spelled(Kind::Interval));
pub(super) static CLOCK: LazyLock<ScalarUDF> = LazyLock::new(|| spelled(Kind::Time));

fn spelled(kind: Kind) -> ScalarUDF {
    ScalarUDF::from(Spelled { kind, signature: Signature::any(1, Volatility::Immutable) })
}

/// What a text is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Interval,
    Time,
}

/// As DataFusion reads it as what it is.
pub(super) fn in_seconds(text: &str) -> String {
    if is_number(text) {
        return format!("{} seconds", text.trim().trim_start_matches('+'));
    }
    in_units(text).unwrap_or_else(|| text.to_owned())
}

/// As DataFusion refuses it, if it is a number.
fn on_a_clock(text: &str) -> String {
    if is_number(text) { format!("{text} without minutes") } else { text.to_owned() }
}

fn is_number(text: &str) -> bool {
    let digits = text.trim().trim_start_matches(['+', '-']);
    digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.chars().all(|c| c.is_ascii_digit() || c == '.')
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Spelled {
    kind: Kind,
    signature: Signature,
}

impl ScalarUDFImpl for Spelled {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Interval => "text_of_interval",
            Kind::Time => "text_of_time",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let spelled = match self.kind {
            Kind::Interval => in_seconds,
            Kind::Time => on_a_clock,
        };
        let of = |texts: &ArrayRef| -> Result<ArrayRef> {
            let texts = cast(texts, &DataType::Utf8)?;
            let texts = texts.as_string::<i32>().iter();
            let texts: StringArray = texts.map(|text| text.map(spelled)).collect();
            Ok(Arc::new(texts))
        };
        match args.args.as_slice() {
            [ColumnarValue::Array(texts)] => Ok(ColumnarValue::Array(of(texts)?)),
            [ColumnarValue::Scalar(text)] => {
                let text = of(&text.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&text, 0)?))
            }
            _ => internal_err!("{} has one argument", self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bare_numbers_are_spelled_otherwise() {
        for number in ["1", "-47.210", "+3", " 5 ", "0.5"] {
            let bare = number.trim().trim_start_matches('+');
            assert_eq!(in_seconds(number), format!("{bare} seconds"));
            assert_ne!(on_a_clock(number), number);
        }
        for other in ["1 day", "", "-", "P1D", "5d", "1e3", "one"] {
            assert_eq!(in_seconds(other), other);
            assert_eq!(on_a_clock(other), other);
        }
    }
}
