//! That a plan which travels arrives as it was.
//!
//! # Invariants
//! - Bytes are given out only if reading them makes an equal plan, by DataFusion's own equality. What is lost on the way
//!   (metadata of literals and aliases, functions that others have under the same name) is found here and nowhere else.
//! - What was found once is remembered of the plan *and* its bytes: a plan that loses something may have the bytes of
//!   another that does not.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use datafusion::common::{Result, not_impl_err};
use datafusion::logical_expr::LogicalPlan;

use crate::portable::functions::Codec;
use crate::portable::plan::{from_bytes, to_bytes};

/// Plans that are remembered.
const KNOWN: usize = 256;

/// The plans that were found to arrive as they are.
#[derive(Debug, Default)]
pub(crate) struct PortablePlans(Mutex<HashSet<u64>>);

impl PortablePlans {
    /// The plan as bytes that make an equal plan.
    ///
    /// # Errors
    /// Why it does not travel.
    pub fn bytes_of(&self, plan: &LogicalPlan, codec: &Codec) -> Result<Vec<u8>> {
        let bytes = to_bytes(plan, codec)?;
        let mut hasher = DefaultHasher::new();
        (plan, &bytes).hash(&mut hasher);
        let number = hasher.finish();
        if self.known().contains(&number) {
            return Ok(bytes);
        }
        let again = from_bytes(&bytes, codec)?;
        if again != *plan {
            return not_impl_err!("{}", difference(plan, &again));
        }
        let mut known = self.known();
        if known.len() >= KNOWN {
            known.clear();
        }
        known.insert(number);
        Ok(bytes)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The operator that arrives as another one, for who asks why a plan stays.
fn difference(plan: &LogicalPlan, again: &LogicalPlan) -> String {
    let (inputs, others) = (plan.inputs(), again.inputs());
    if inputs.len() == others.len()
        && let Some((input, other)) = inputs.iter().zip(&others).find(|(a, b)| a != b)
    {
        return difference(input, other);
    }
    format!("{} would arrive as {}", plan.display(), again.display())
}
