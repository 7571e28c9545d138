//! An aggregate without GROUP BY, on the same code as with: one group.

use arrow::array::ArrayRef;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{Accumulator, EmitTo, GroupsAccumulator};

/// Gives the only group of a [`GroupsAccumulator`].
#[derive(Debug, Default)]
pub struct Single<G>(pub G);

impl<G: GroupsAccumulator + std::fmt::Debug + Sync> Accumulator for Single<G> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(values, &vec![0; values[0].len()], None, 1)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.0.merge_batch(&[], &[], 1)?;
        ScalarValue::try_from_array(&self.0.evaluate(EmitTo::All)?, 0)
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.merge_batch(&[], &[], 1)?;
        let state = self.0.state(EmitTo::All)?;
        state.iter().map(|array| ScalarValue::try_from_array(array, 0)).collect()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states, &vec![0; states[0].len()], 1)
    }
}
