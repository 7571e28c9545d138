//! A statement that waits for values.

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;

use crate::base::error::{EngineError, Result, refuse};
use crate::sql::statement::Statement;

/// A statement that waits for values, of [`Session::prepare`](crate::Session::prepare).
#[derive(Clone, Debug)]
pub struct Prepared {
    statement: Statement,
    types: Vec<Option<DataType>>,
    schema: SchemaRef,
}

impl Prepared {
    pub(crate) fn new(
        statement: Statement,
        types: Vec<Option<DataType>>,
        schema: SchemaRef,
    ) -> Self {
        Self { statement, types, schema }
    }

    /// What was prepared.
    pub fn statement(&self) -> &Statement {
        &self.statement
    }

    /// The types of `$1`, `$2` and so on; `None` where any will do.
    pub fn types(&self) -> &[Option<DataType>] {
        &self.types
    }

    /// The columns of its answers, as far as values do not decide their types.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The statement with values in place, which [`Session::run`](crate::Session::run) runs: `values[0]` is that of `$1`. Each is cast to
    /// the parameter's type, but decimals keep their digits.
    ///
    /// # Errors
    /// [`EngineError::Statement`] if there are too few or too many, or one has no value of its parameter's type.
    pub fn bind(&self, values: &[ScalarValue]) -> Result<Statement> {
        if values.len() != self.types.len() {
            let (wanted, found) = (self.types.len(), values.len());
            return refuse!(
                UndefinedParameter,
                "the statement has {wanted} parameters, and {found} values came"
            );
        }
        let typed = values.iter().zip(&self.types).enumerate().map(|(at, (value, wanted))| {
            let Some(wanted) = wanted else { return Ok(value.clone()) };
            // Rounded, it would be equal to what it is not: a cast in the statement rounds itself.
            if wanted.is_decimal() && value.data_type().is_decimal() {
                return Ok(value.clone());
            }
            let wrong = |error| {
                let error = EngineError::from(error);
                let message = format!("${}: {}", at + 1, error.message());
                EngineError::statement(error.code(), message)
            };
            value.cast_to(wanted).map_err(wrong)
        });
        let mut statement = self.statement.clone();
        statement.values = typed.collect::<Result<_>>()?;
        Ok(statement)
    }
}
