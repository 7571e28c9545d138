//! Numbers of JSON that are none.

use arrow::array::{Array, AsArray, Float64Array};
use arrow::datatypes::{DataType, FieldRef, Float64Type};
use arrow::error::ArrowError;
use arrow::json::writer::{Encoder, EncoderFactory, EncoderOptions, NullableEncoder};

/// JSON has no NaN and no infinity: they are the strings that PostgreSQL's `to_json` and JavaScript have for
/// them, not null.
#[derive(Debug)]
pub(super) struct NonFinite;

impl EncoderFactory for NonFinite {
    fn make_default_encoder<'a>(
        &self,
        _: &'a FieldRef,
        array: &'a dyn Array,
        _: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        if !array.data_type().is_floating() {
            return Ok(None);
        }
        let floats = arrow::compute::cast(array, &DataType::Float64)?;
        let floats = floats.as_primitive::<Float64Type>().clone();
        if floats.iter().flatten().all(f64::is_finite) {
            return Ok(None);
        }
        let nulls = array.nulls().cloned();
        Ok(Some(NullableEncoder::new(Box::new(Floats(floats)), nulls)))
    }
}

struct Floats(Float64Array);

impl Encoder for Floats {
    fn encode(&mut self, at: usize, out: &mut Vec<u8>) {
        let text = match self.0.value(at) {
            x if x.is_nan() => "\"NaN\"".to_owned(),
            f64::INFINITY => "\"Infinity\"".to_owned(),
            f64::NEG_INFINITY => "\"-Infinity\"".to_owned(),
            x => format!("{x:?}"),
        };
        out.extend_from_slice(text.as_bytes());
    }
}
