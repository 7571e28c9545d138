//! Questions about a kept column of few different values: asked once for each value.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, UInt8Array, new_null_array,
};
use datafusion::arrow::buffer::{BooleanBuffer, NullBuffer};
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema, UInt8Type, UInt16Type};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};

/// What an expression says of each value of a column that is kept as numbers.
#[derive(Clone)]
pub(crate) struct DictionaryFilter {
    /// Among the fields that are read.
    pub column: usize,
    /// By number; for each number of 8 bits there is one.
    answers: Arc<[u8]>,
    /// Of NULL.
    null: u8,
    kind: Kind,
}

/// What answers are.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// No or yes.
    Boolean,
    /// Or 2, which is NULL.
    Nullable,
    /// Numbers as they are.
    Number,
}

impl DictionaryFilter {
    /// `None` if it is no question about one column that is kept so, or fails on a value. `kept` has a
    /// field's values.
    pub fn new<'v>(
        expr: &Arc<dyn PhysicalExpr>,
        fields: &[FieldRef],
        kept: impl Fn(usize) -> Option<&'v ArrayRef>,
    ) -> Option<Self> {
        if expr.is::<Column>() {
            return None;
        }
        let columns = collect_columns(expr);
        let column = columns.iter().next().filter(|_| columns.len() == 1)?.index();
        let column_values = kept(column)?;
        let different = column_values.as_any_dictionary_opt()?.values();
        let schema = Arc::new(Schema::new(vec![Arc::clone(&fields[column])]));
        let expr = reassign_expr_columns(Arc::clone(expr), &schema).ok()?;
        let ask = |values: ArrayRef| -> Option<ArrayRef> {
            let rows = values.len();
            let batch = RecordBatch::try_new(Arc::clone(&schema), vec![values]).ok()?;
            expr.evaluate(&batch).ok()?.into_array(rows).ok()
        };
        let (said, of_null) =
            (ask(Arc::clone(different))?, ask(new_null_array(different.data_type(), 1))?);
        let (mut answers, null) = (answers_of(&said)?, *answers_of(&of_null)?.first()?);
        let has_nulls = column_values.null_count() > 0;
        let kind = match said.data_type() {
            DataType::UInt8 => Kind::Number,
            _ if answers.contains(&2) || (has_nulls && null == 2) => Kind::Nullable,
            _ => Kind::Boolean,
        };
        answers.resize(answers.len().max(1 << 8), null);
        Some(Self { column, answers: answers.into(), null, kind })
    }

    /// The type of the answers.
    pub fn data_type(&self) -> DataType {
        match self.kind {
            Kind::Boolean | Kind::Nullable => DataType::Boolean,
            Kind::Number => DataType::UInt8,
        }
    }

    /// The answers of rows whose values have these numbers.
    pub fn of(&self, keys: &dyn Array) -> ArrayRef {
        let answers = &*self.answers;
        let mut answers: Vec<u8> = match (keys.data_type(), answers.first_chunk::<{ 1 << 8 }>()) {
            (DataType::UInt8, Some(answers)) => {
                let numbers = keys.as_primitive::<UInt8Type>().values();
                numbers.iter().map(|number| answers[usize::from(*number)]).collect()
            }
            _ => {
                // The number of a NULL means nothing, and may be none.
                let answer = |number: usize| answers.get(number).copied().unwrap_or(self.null);
                let numbers = keys.as_primitive::<UInt16Type>().values();
                numbers.iter().map(|number| answer(usize::from(*number))).collect()
            }
        };
        if let Some(nulls) = keys.nulls().filter(|nulls| nulls.null_count() > 0) {
            (!nulls.inner()).set_indices().for_each(|row| answers[row] = self.null);
        }
        let valid = match self.kind {
            Kind::Number => return Arc::new(UInt8Array::from(answers)),
            Kind::Boolean => None,
            // Of no and yes the second bit is not set.
            Kind::Nullable => Some(NullBuffer::new(bits(&answers, |answers| !(answers >> 1)))),
        };
        Arc::new(BooleanArray::new(bits(&answers, |answers| answers), valid))
    }
}

/// Answers by [`Kind`]; `None` if they are of no such kind.
fn answers_of(said: &ArrayRef) -> Option<Vec<u8>> {
    if let Some(numbers) = said.as_primitive_opt::<UInt8Type>() {
        return (numbers.null_count() == 0).then(|| numbers.values().to_vec());
    }
    let answer = |answer: Option<bool>| answer.map_or(2, u8::from);
    Some(said.as_boolean_opt()?.iter().map(answer).collect())
}

/// A bit for each answer: the lowest of its byte in what `of_eight` makes of eight answers.
fn bits(answers: &[u8], of_eight: impl Fn(u64) -> u64) -> BooleanBuffer {
    const LOWEST: u64 = 0x0101_0101_0101_0101;
    // Moves the lowest bit of byte `n` to bit `56 + n`.
    const TO_TOP: u64 = 0x0102_0408_1020_4080;
    let byte = |answers: [u8; 8]| {
        let lowest = of_eight(u64::from_le_bytes(answers)) & LOWEST;
        (lowest.wrapping_mul(TO_TOP) >> 56) as u8
    };
    let (whole, rest) = answers.as_chunks::<8>();
    let mut bytes: Vec<u8> = whole.iter().map(|answers| byte(*answers)).collect();
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        bytes.push(byte(last));
    }
    BooleanBuffer::new(bytes.into(), 0, answers.len())
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{StringViewArray, StringViewBuilder};
    use datafusion::arrow::datatypes::Field;
    use datafusion::common::ScalarValue;
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{binary, cast, col, is_null, lit};

    use super::*;
    use crate::cache::dictionary::compact;

    fn text(different: usize) -> ArrayRef {
        let mut texts = StringViewBuilder::new().with_deduplicate_strings();
        for row in 0..2000 {
            match row % (different + 1) {
                0 => texts.append_null(),
                n => texts.append_value(n.to_string()),
            }
        }
        Arc::new(texts.finish())
    }

    #[test]
    fn answers_are_those_of_every_row() {
        let field: FieldRef = Arc::new(Field::new("t", DataType::Utf8View, true));
        let schema = Arc::new(Schema::new(vec![Arc::clone(&field)]));
        let column = col("t", &schema).unwrap();
        let three = lit(ScalarValue::Utf8View(Some("3".into())));
        let three = binary(column.clone(), Operator::Eq, three, &schema).unwrap();
        let number = cast(is_null(column.clone()).unwrap(), &schema, DataType::UInt8).unwrap();
        let questions = [three, is_null(column).unwrap(), number];
        for (different, expr) in
            [0, 3, 300].iter().flat_map(|n| questions.iter().map(move |q| (*n, q)))
        {
            let plain = text(different);
            let kept = compact(&plain);
            let asked =
                DictionaryFilter::new(expr, &[Arc::clone(&field)], |_| Some(&kept)).unwrap();
            let batch = RecordBatch::try_new(Arc::clone(&schema), vec![plain]).unwrap();
            let expected = expr.evaluate(&batch).unwrap().into_array(2000).unwrap();
            let keys = kept.as_any_dictionary().keys();
            assert_eq!(&asked.of(keys), &expected);
            assert_eq!(&asked.of(&keys.slice(70, 900)), &expected.slice(70, 900));
            assert_eq!(asked.data_type(), *expected.data_type());
        }
    }

    #[test]
    fn what_fails_or_is_no_question_is_left_to_rows() {
        let field: FieldRef = Arc::new(Field::new("t", DataType::Utf8View, true));
        let schema = Schema::new(vec![Arc::clone(&field)]);
        let column = col("t", &schema).unwrap();
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "1", "a"]));
        let kept = compact(&texts);
        let asked = |expr: &Arc<dyn PhysicalExpr>, values: &ArrayRef| {
            DictionaryFilter::new(expr, &[Arc::clone(&field)], |_| Some(values)).is_some()
        };
        let number = cast(column.clone(), &schema, DataType::Int32).unwrap();
        assert!(!asked(&binary(number, Operator::Gt, lit(0), &schema).unwrap(), &kept));
        assert!(!asked(&column, &kept));
        let a = lit(ScalarValue::Utf8View(Some("a".into())));
        let a = binary(column, Operator::Eq, a, &schema).unwrap();
        assert!(asked(&a, &kept) && !asked(&a, &texts));
    }
}
