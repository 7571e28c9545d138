//! How a function is made of one that knows a row.

use std::cell::OnceCell;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, StringArray};
use arrow::datatypes::{DataType, Int64Type};
use uplake_engine::{AddedFunction, Call, Result, SessionFacts, Takes};

use crate::catalog::listing::Listing;
use crate::catalog::tables::CATALOG;

/// The listing that the rows of a call are asked of, once one of them has asked.
pub(super) type Looked = OnceCell<Arc<Listing>>;

/// The arguments of one row.
pub(super) struct Arguments<'a> {
    pub call: &'a Call<'a>,
    pub row: usize,
    pub looked: &'a Looked,
}

impl Arguments<'_> {
    pub fn count(&self) -> usize {
        self.call.values.len()
    }

    pub fn facts(&self) -> &SessionFacts {
        self.call.facts
    }

    pub fn value(&self, place: usize) -> Option<&ArrayRef> {
        self.call.values.get(place).filter(|values| values.is_valid(self.row))
    }

    pub fn text(&self, place: usize) -> Option<&str> {
        Some(self.value(place)?.as_string_opt::<i32>()?.value(self.row))
    }

    pub fn number(&self, place: usize) -> Option<i64> {
        Some(self.value(place)?.as_primitive_opt::<Int64Type>()?.value(self.row))
    }

    pub fn truth(&self, place: usize) -> Option<bool> {
        Some(self.value(place)?.as_boolean_opt()?.value(self.row))
    }

    /// A text, or a number as one.
    pub fn text_or_number(&self, place: usize) -> Option<String> {
        self.number(place)
            .map(|number| number.to_string())
            .or_else(|| self.text(place).map(str::to_owned))
    }
}

/// The ways to call a function: of each argument a letter.
pub(super) fn forms(written: &[&str]) -> Vec<Vec<Takes>> {
    let argument = |letter: char| match letter {
        't' => Takes::Text,
        'n' => Takes::Number,
        'b' => Takes::Truth,
        'o' => Takes::TextOrNumber,
        _ => Takes::Anything,
    };
    written.iter().map(|form| form.chars().map(argument).collect()).collect()
}

pub(super) fn function(
    name: &'static str,
    takes: &[&str],
    gives: DataType,
    compute: impl Fn(&Call<'_>) -> Result<ArrayRef> + Send + Sync + 'static,
) -> AddedFunction {
    let (takes, compute) = (forms(takes), Arc::new(compute));
    AddedFunction { name, schema: CATALOG, takes, gives, acts: false, compute }
}

pub(super) fn of_rows<T>(
    call: &Call<'_>,
    compute: &impl Fn(&Arguments<'_>) -> Result<Option<T>>,
) -> Result<Vec<Option<T>>> {
    let looked = &Looked::new();
    (0..call.rows).map(|row| compute(&Arguments { call, row, looked })).collect()
}

pub(super) fn text(
    name: &'static str,
    takes: &[&str],
    compute: impl Fn(&Arguments<'_>) -> Result<Option<String>> + Send + Sync + 'static,
) -> AddedFunction {
    function(name, takes, DataType::Utf8, move |call| {
        Ok(Arc::new(StringArray::from(of_rows(call, &compute)?)))
    })
}

pub(super) fn number(
    name: &'static str,
    takes: &[&str],
    compute: impl Fn(&Arguments<'_>) -> Result<Option<i64>> + Send + Sync + 'static,
) -> AddedFunction {
    function(name, takes, DataType::Int64, move |call| {
        Ok(Arc::new(Int64Array::from(of_rows(call, &compute)?)))
    })
}

pub(super) fn truth(
    name: &'static str,
    takes: &[&str],
    compute: impl Fn(&Arguments<'_>) -> Result<Option<bool>> + Send + Sync + 'static,
) -> AddedFunction {
    function(name, takes, DataType::Boolean, move |call| {
        Ok(Arc::new(BooleanArray::from(of_rows(call, &compute)?)))
    })
}
