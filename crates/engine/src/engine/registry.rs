//! The functions that a session knows.

use std::sync::Arc;

use crate::functions::match_words::MatchWords;
use crate::sql::id_set::Mark;
use crate::{functions, mends};

pub(crate) fn aggregate_functions() -> Vec<Arc<datafusion::logical_expr::AggregateUDF>> {
    let mut functions = mends::aggregate_functions();
    let own = [
        functions::exact_sum::exact_sum(),
        functions::daily_sums::daily_sums(),
        functions::daily_values::daily_first(),
        functions::daily_values::daily_last(),
        functions::funnel::funnel(),
    ];
    functions.extend(own.map(Arc::new));
    functions.extend(uplake_functions::aggregates().into_iter().map(Arc::new));
    // Under the name that other engines have for it.
    let sketch = functions.iter().position(|function| function.name() == "approx_distinct");
    if let Some(sketch) = sketch.map(|place| functions[place].as_ref().clone()) {
        functions.push(Arc::new(sketch.with_aliases(["approx_count_distinct"])));
    }
    functions
}

pub(crate) fn window_functions() -> Vec<Arc<datafusion::logical_expr::WindowUDF>> {
    let mut functions = mends::window_functions();
    functions.extend(uplake_functions::windows().into_iter().map(Arc::new));
    functions
}

pub(crate) fn scalar_functions() -> Vec<Arc<datafusion::logical_expr::ScalarUDF>> {
    let mut functions = mends::scalar_functions();
    let own = [functions::local_day::local_day(), Mark::function(), MatchWords::function()];
    functions.extend(own.map(Arc::new));
    functions.extend(functions::assignment::functions().into_iter().map(Arc::new));
    functions.extend(functions::domain_functions::functions().map(Arc::new));
    functions.extend(uplake_functions::scalars().into_iter().map(Arc::new));
    functions
}
