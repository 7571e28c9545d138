//! `round(x, places)` of floats, where ten to the power of `places` is no float.
//!
//! DataFusion multiplies by that power and divides again: `round(1.5, 1000)` was infinity by infinity, NaN, and
//! `round(1e300, 20)` infinity. Such a number has no digits behind those places, or none before them.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float32Type, Float64Type, Int32Type,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use super::as_before::scalar_as_before;

/// DataFusion's `round`, to any number of places.
pub(super) fn to_any_place(function: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(ToAnyPlace { function })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToAnyPlace {
    function: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for ToAnyPlace {
    scalar_as_before!(return_field_from_args, is_strict, output_ordering);

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (given, rows) = (args.args.clone(), args.number_rows);
        let rounded = self.function.invoke_with_args(args)?;
        let [value, places] = given.as_slice() else { return Ok(rounded) };
        let data_type = rounded.data_type();
        match (&rounded, &data_type) {
            (ColumnarValue::Scalar(_), DataType::Float32 | DataType::Float64) => {
                let array = rounded.to_array(1)?;
                let mended = mended(value.to_array(1)?, array, places.to_array(1)?);
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&mended, 0)?))
            }
            (ColumnarValue::Array(array), DataType::Float32 | DataType::Float64) => {
                let array = Arc::clone(array);
                let mended = mended(value.to_array(rows)?, array, places.to_array(rows)?);
                Ok(ColumnarValue::Array(mended))
            }
            _ => Ok(rounded),
        }
    }
}

fn mended(values: ArrayRef, rounded: ArrayRef, places: ArrayRef) -> ArrayRef {
    match rounded.data_type() {
        DataType::Float32 => of_type::<Float32Type>(&values, rounded, &places, f32::is_finite),
        DataType::Float64 => of_type::<Float64Type>(&values, rounded, &places, f64::is_finite),
        _ => rounded,
    }
}

/// `rounded`, but where a number became none: the number itself, or 0.
fn of_type<T: ArrowPrimitiveType>(
    values: &ArrayRef,
    rounded: ArrayRef,
    places: &ArrayRef,
    is_number: fn(T::Native) -> bool,
) -> ArrayRef {
    let found = rounded.as_primitive::<T>();
    if found.values().iter().all(|x| is_number(*x)) {
        return rounded;
    }
    let (Some(values), Some(places)) =
        (values.as_primitive_opt::<T>(), places.as_primitive_opt::<Int32Type>())
    else {
        return rounded;
    };
    let row = |row: usize| {
        let (value, found) = (values.value(row), found.value(row));
        let lost = is_number(value) && !is_number(found);
        match places.value(row) {
            _ if !lost => found,
            1.. => value,
            _ => T::default_value(),
        }
    };
    let mended = (0..found.len()).map(row);
    let mended = PrimitiveArray::<T>::from_iter_values(mended);
    Arc::new(PrimitiveArray::<T>::new(mended.values().clone(), found.nulls().cloned()))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Float64Array, Int32Array};

    use super::*;

    #[test]
    fn numbers_stay_numbers_and_others_stay_as_they_are() {
        let column = |values: &[Option<f64>]| -> ArrayRef {
            Arc::new(values.iter().copied().collect::<Float64Array>())
        };
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        let values = column(&[Some(1.5), Some(1e300), Some(15.0), None, Some(inf), Some(2.5)]);
        let rounded = column(&[Some(nan), Some(inf), Some(nan), None, Some(inf), Some(3.0)]);
        let places: ArrayRef = Arc::new(Int32Array::from(vec![1000, 20, -1000, 5, 1000, 0]));
        let expected = column(&[Some(1.5), Some(1e300), Some(0.0), None, Some(inf), Some(3.0)]);
        assert_eq!(&mended(values, rounded, places), &expected);
    }
}
