//! `string_agg` of several orders in one SELECT.
//!
//! DataFusion asks for its rows in the order of its ORDER BY, and refuses a second order beside the first. What
//! adds texts up in an order is its `array_agg`, which sorts by itself.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{AggregateUDF, AggregateUDFImpl, ReversedUDAF};

use super::as_before::aggregate_as_before;

/// DataFusion's function, which needs no order of its rows.
pub(super) fn in_any_order(function: Arc<AggregateUDF>) -> AggregateUDF {
    AggregateUDF::from(InAnyOrder { function })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct InAnyOrder {
    function: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for InAnyOrder {
    aggregate_as_before!(
        accumulator,
        state_fields,
        groups_accumulator_supported,
        create_groups_accumulator,
        create_sliding_accumulator
    );

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::SoftRequirement
    }

    /// It sorts whatever order there is.
    fn with_beneficial_ordering(
        self: Arc<Self>,
        _: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        Ok(Some(self))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
    }
}
