//! Questions about a kept column of few different values: asked once for each value.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, UInt32Array, new_null_array,
};
use datafusion::arrow::buffer::{BooleanBuffer, NullBuffer};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema, UInt8Type, UInt16Type};
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};

/// What an expression says of each value of a column that is kept as numbers.
#[derive(Clone)]
pub(super) struct Asked {
    column: ArrayRef,
    /// By number; 2 is NULL.
    answers: Arc<[u8]>,
    /// Of NULL.
    null: u8,
    may_be_null: bool,
}

impl Asked {
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
        let ask = |values: ArrayRef| -> Option<Vec<u8>> {
            let rows = values.len();
            let batch = RecordBatch::try_new(Arc::clone(&schema), vec![values]).ok()?;
            let said = expr.evaluate(&batch).ok()?.into_array(rows).ok()?;
            let said = said.as_boolean_opt()?;
            let answer = |answer: Option<bool>| answer.map_or(2, u8::from);
            Some(said.iter().map(answer).collect())
        };
        let answers = ask(Arc::clone(different))?;
        let null = ask(new_null_array(different.data_type(), 1))?.first().copied()?;
        let has_nulls = column_values.null_count() > 0;
        let may_be_null = answers.contains(&2) || (has_nulls && null == 2);
        let column = Arc::clone(column_values);
        Some(Self { column, answers: answers.into(), null, may_be_null })
    }

    /// The answers of a range of rows.
    pub fn piece(&self, from: usize, rows: usize) -> ArrayRef {
        self.of(&self.column.as_any_dictionary().keys().slice(from, rows))
    }

    /// The answers of rows by number.
    pub fn picked(&self, rows: &UInt32Array) -> Result<ArrayRef> {
        Ok(self.of(&take(self.column.as_any_dictionary().keys(), rows, None)?))
    }

    fn of(&self, keys: &ArrayRef) -> ArrayRef {
        // The number of a NULL means nothing, and may be none.
        let answer = |number: usize| self.answers.get(number).copied().unwrap_or(self.null);
        let mut answers: Vec<u8> = match keys.data_type() {
            DataType::UInt8 => {
                let all: [u8; 1 << 8] = std::array::from_fn(answer);
                let numbers = keys.as_primitive::<UInt8Type>().values();
                numbers.iter().map(|number| all[usize::from(*number)]).collect()
            }
            _ => {
                let numbers = keys.as_primitive::<UInt16Type>().values();
                numbers.iter().map(|number| answer(usize::from(*number))).collect()
            }
        };
        if let Some(nulls) = keys.nulls().filter(|nulls| nulls.null_count() > 0) {
            (!nulls.inner()).set_indices().for_each(|row| answers[row] = self.null);
        }
        let valid = self.may_be_null.then(|| {
            let valid = bits(&answers, |answer| u8::from(answer != 2));
            // Below a NULL stands no.
            answers.iter_mut().for_each(|answer| *answer &= 1);
            NullBuffer::new(valid)
        });
        Arc::new(BooleanArray::new(bits(&answers, |answer| answer), valid))
    }
}

/// A bit for each answer; `bit` is 0 or 1.
fn bits(answers: &[u8], bit: impl Fn(u8) -> u8) -> BooleanBuffer {
    // Moves the lowest bit of byte `n` to bit `56 + n`.
    const TO_TOP: u64 = 0x0102_0408_1020_4080;
    let byte =
        |answers: [u8; 8]| (u64::from_le_bytes(answers.map(&bit)).wrapping_mul(TO_TOP) >> 56) as u8;
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

    use super::super::compact::compact;
    use super::*;

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
        for (different, expr) in [0, 3, 300]
            .into_iter()
            .flat_map(|n| [(n, three.clone()), (n, is_null(column.clone()).unwrap())])
        {
            let plain = text(different);
            let kept = compact(&plain);
            let asked = Asked::new(&expr, &[Arc::clone(&field)], |_| Some(&kept)).unwrap();
            let batch = RecordBatch::try_new(Arc::clone(&schema), vec![plain]).unwrap();
            let expected = expr.evaluate(&batch).unwrap().into_array(2000).unwrap();
            assert_eq!(&asked.piece(0, 2000), &expected);
            assert_eq!(&asked.piece(70, 900), &expected.slice(70, 900));
            let rows = UInt32Array::from(vec![1999, 0, 7, 7]);
            let picked = datafusion::arrow::compute::take(&expected, &rows, None).unwrap();
            assert_eq!(&asked.picked(&rows).unwrap(), &picked);
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
            Asked::new(expr, &[Arc::clone(&field)], |_| Some(values)).is_some()
        };
        let number = cast(column.clone(), &schema, DataType::Int32).unwrap();
        assert!(!asked(&binary(number, Operator::Gt, lit(0), &schema).unwrap(), &kept));
        assert!(!asked(&column, &kept));
        let a = lit(ScalarValue::Utf8View(Some("a".into())));
        let a = binary(column, Operator::Eq, a, &schema).unwrap();
        assert!(asked(&a, &kept) && !asked(&a, &texts));
    }
}
