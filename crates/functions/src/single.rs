//! An aggregate without GROUP BY, on the same code as with: one group.

use arrow::array::ArrayRef;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{Accumulator, EmitTo, GroupsAccumulator};

/// Gives the only group of a [`GroupsAccumulator`], as often as it is asked: a window asks after each row.
#[derive(Debug, Default)]
pub struct Single<G> {
    groups: G,
    /// The state, while it is not in the group.
    kept: Option<Vec<ArrayRef>>,
}

impl<G: GroupsAccumulator> Single<G> {
    /// The group that `groups` will have.
    pub fn new(groups: G) -> Self {
        Self { groups, kept: None }
    }

    /// Makes the group whole.
    fn group(&mut self) -> Result<&mut G> {
        if let Some(state) = self.kept.take() {
            self.groups.merge_batch(&state, &[0], 1)?;
        }
        Ok(&mut self.groups)
    }

    /// What the group has seen; it may be nothing. The group is gone then.
    fn whole_state(&mut self) -> Result<Vec<ArrayRef>> {
        let group = self.group()?;
        group.merge_batch(&[], &[], 1)?;
        group.state(EmitTo::All)
    }
}

impl<G: GroupsAccumulator + std::fmt::Debug + Sync> Accumulator for Single<G> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.group()?.update_batch(values, &vec![0; values[0].len()], None, 1)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        // A group that has been evaluated is gone.
        let state = self.whole_state()?;
        self.groups.merge_batch(&state, &[0], 1)?;
        self.kept = Some(state);
        ScalarValue::try_from_array(&self.groups.evaluate(EmitTo::All)?, 0)
    }

    fn size(&self) -> usize {
        let kept = self.kept.iter().flatten().map(|array| array.get_array_memory_size());
        self.groups.size() + kept.sum::<usize>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let state = self.whole_state()?;
        state.iter().map(|array| ScalarValue::try_from_array(array, 0)).collect()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.group()?.merge_batch(states, &vec![0; states[0].len()], 1)
    }
}
