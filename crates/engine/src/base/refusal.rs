//! Why an operator stops before its first row, and another way of computing the same goes on.

use datafusion::common::DataFusionError;
use uplake_functions::NotInOrder;

/// What an operator finds of its rows that it cannot do; memory is not the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    #[error("there are more groups than arrays are for")]
    TooManyGroups,
    #[error("the rows are not in the order of ids")]
    NotById,
    #[error("the columns are not kept, or not any more")]
    NotKept,
}

impl From<Unfit> for DataFusionError {
    fn from(unfit: Unfit) -> Self {
        Self::External(Box::new(unfit))
    }
}

/// Can the same be computed in another way, if no row of it has been handed out?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The memory pool has no more.
    Memory,
    /// The rows are not what the plan counted on.
    Rows,
}

/// The refusal that an error is, if it is one.
pub(crate) fn refusal(error: &DataFusionError) -> Option<Refusal> {
    match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => Some(Refusal::Memory),
        DataFusionError::External(inner) if inner.is::<Unfit>() || inner.is::<NotInOrder>() => {
            Some(Refusal::Rows)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn refusals_are_found_below_what_was_put_around_them() {
        let around = |error: DataFusionError| {
            DataFusionError::Shared(Arc::new(error.context("while grouping")))
        };
        let full = || DataFusionError::ResourcesExhausted("no more".into());
        assert_eq!(refusal(&full()), Some(Refusal::Memory));
        assert_eq!(refusal(&around(full())), Some(Refusal::Memory));
        assert_eq!(refusal(&around(Unfit::NotKept.into())), Some(Refusal::Rows));
        let order = DataFusionError::External(Box::new(NotInOrder));
        assert_eq!(refusal(&around(order)), Some(Refusal::Rows));
        let divided = DataFusionError::Execution("Divide by zero".into());
        assert_eq!(refusal(&around(divided)), None);
    }
}
