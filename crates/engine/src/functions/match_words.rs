//! `match(text, 'words')`: does the text hold all the words?
//!
//! Words are cut as an index of words cuts them, so that both agree: longest runs of letters and
//! digits without case, and bigrams where a script is written without spaces.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use uplake_table::WordMatcher;

#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct MatchWords {
    signature: Signature,
}

impl MatchWords {
    pub fn function() -> ScalarUDF {
        ScalarUDF::from(Self { signature: Signature::string(2, Volatility::Immutable) })
    }
}

impl ScalarUDFImpl for MatchWords {
    fn name(&self) -> &str {
        "match"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let scalar = arguments.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let [texts, queries] = arguments.args.as_slice() else {
            return Err(datafusion::common::DataFusionError::Internal("match(text, words)".into()));
        };
        let texts = cast(&texts.to_array(if scalar { 1 } else { rows })?, &DataType::Utf8View)?;
        let found = match queries {
            ColumnarValue::Scalar(query) => match query.try_as_str().flatten() {
                Some(query) => match_one(&texts, query),
                None => BooleanArray::new_null(texts.len()),
            },
            ColumnarValue::Array(queries) => match_each(&texts, queries)?,
        };
        if scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?));
        }
        Ok(ColumnarValue::Array(Arc::new(found)))
    }
}

fn match_one(texts: &ArrayRef, query: &str) -> BooleanArray {
    let matcher = WordMatcher::new(query);
    texts.as_string_view().iter().map(|text| text.map(|text| matcher.matches(text))).collect()
}

fn match_each(texts: &ArrayRef, queries: &ArrayRef) -> Result<BooleanArray> {
    let queries = cast(queries, &DataType::Utf8View)?;
    let pairs = texts.as_string_view().iter().zip(queries.as_string_view().iter());
    Ok(pairs.map(|(text, query)| Some(WordMatcher::new(query?).matches(text?))).collect())
}
