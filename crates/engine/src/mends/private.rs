//! Functions of ours that plans have and no statement names, for who writes plans down and reads them again.

use std::sync::Arc;

use datafusion::logical_expr::{AggregateUDF, ScalarUDF};

use super::checked_formula::{Checked, Operation, Step};
use super::{
    aggregate_order, bare_numbers, decimals, intervals, large_results, nan_sign, nested_order,
    null_lists, rounded_casts, scalar_subquery, scaled_intervals, text_casts, texts_of_times,
    time_spans,
};

/// Of a formula, what stands for an operand.
const OPERAND: u8 = 0xff;
const OPERATIONS: [Operation; 6] = [
    Operation::Add,
    Operation::Subtract,
    Operation::Multiply,
    Operation::Negate,
    Operation::Divide,
    Operation::Remainder,
];

/// Those that are nothing but their names.
fn named() -> [ScalarUDF; 17] {
    let [constant, joined] = large_results::private_functions();
    [
        nan_sign::FUNCTION.clone(),
        text_casts::FUNCTION.clone(),
        texts_of_times::FUNCTION.clone(),
        time_spans::FUNCTION.clone(),
        rounded_casts::FUNCTION.clone(),
        null_lists::FUNCTION.clone(),
        intervals::FUNCTION.clone(),
        scaled_intervals::FUNCTION.clone(),
        decimals::FITS.clone(),
        bare_numbers::SECONDS.clone(),
        bare_numbers::CLOCK.clone(),
        nested_order::ORDER_KEY.clone(),
        nested_order::GREATEST.clone(),
        nested_order::LEAST.clone(),
        scalar_subquery::or_null(),
        constant,
        joined,
    ]
}

/// What is to be known of a function beside its name; `None` if it is not one of these.
pub(crate) fn private_to_bytes(function: &ScalarUDF) -> Option<Vec<u8>> {
    let Some(formula) = function.inner().downcast_ref::<Checked>() else {
        return named().contains(function).then(Vec::new);
    };
    let mut bytes = Vec::new();
    for step in &formula.steps {
        match step {
            Step::Operation(operation) => {
                bytes.push(OPERATIONS.iter().position(|known| known == operation)? as u8);
            }
            Step::Operand(shown) => {
                bytes.push(OPERAND);
                bytes.extend_from_slice(&u32::try_from(shown.len()).ok()?.to_le_bytes());
                bytes.extend_from_slice(shown.as_bytes());
            }
        }
    }
    Some(bytes)
}

/// The function of which [`private_to_bytes`] said so.
pub(crate) fn private_from_bytes(name: &str, mut bytes: &[u8]) -> Option<ScalarUDF> {
    if bytes.is_empty() {
        return named().into_iter().find(|function| function.name() == name);
    }
    let (mut steps, mut operands) = (Vec::new(), 0);
    while let Some((first, rest)) = bytes.split_first() {
        bytes = rest;
        if *first != OPERAND {
            steps.push(Step::Operation(*OPERATIONS.get(usize::from(*first))?));
            continue;
        }
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (shown, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        steps.push(Step::Operand(Arc::from(std::str::from_utf8(shown).ok()?)));
        operands += 1;
        bytes = rest;
    }
    Some(ScalarUDF::from(Checked::new(steps, operands)))
}

/// The function that an aggregate stands in front of, if that is all it does.
pub(crate) fn sorted_at_the_end(function: &AggregateUDF) -> Option<&Arc<AggregateUDF>> {
    aggregate_order::inner(function)
}

/// The aggregate of which [`sorted_at_the_end`] said so.
pub(crate) fn sorting_at_the_end(function: Arc<AggregateUDF>) -> AggregateUDF {
    aggregate_order::in_its_order(function)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_functions_are_found_again() {
        for function in named() {
            let bytes = private_to_bytes(&function).unwrap();
            assert_eq!(private_from_bytes(function.name(), &bytes), Some(function));
        }
        let operand = |shown: &str| Step::Operand(Arc::from(shown));
        let steps = vec![
            operand("a"),
            operand("b * c"),
            Step::Operation(Operation::Multiply),
            Step::Operation(Operation::Negate),
        ];
        let formula = ScalarUDF::from(Checked::new(steps, 2));
        let bytes = private_to_bytes(&formula).unwrap();
        let again = private_from_bytes(formula.name(), &bytes).unwrap();
        assert_eq!((again.name(), &again), (formula.name(), &formula));
        assert_eq!(format!("{again:?}"), format!("{formula:?}"), "operands are shown alike");
        for end in 1..bytes.len() {
            // Cut off, it is another formula at most.
            assert_ne!(private_from_bytes(formula.name(), &bytes[..end]), Some(formula.clone()));
        }
        let theirs = datafusion::functions::math::abs();
        assert_eq!(private_to_bytes(&theirs), None);
        assert_eq!(private_from_bytes("abs", &[]), None);
    }
}
