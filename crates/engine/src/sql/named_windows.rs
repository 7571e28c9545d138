//! Windows that have names, written where they are used.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, Expr, NamedWindowDefinition, NamedWindowExpr, VisitorMut, WindowSpec, WindowType,
};

use crate::base::error::{EngineError, Result, refuse};
use crate::base::sql_state::SqlState;

/// The windows of a WINDOW clause, each with what it takes from those before it.
pub(super) fn windows_of(
    definitions: &[NamedWindowDefinition],
) -> Result<HashMap<String, WindowSpec>> {
    let mut windows: HashMap<String, WindowSpec> = HashMap::new();
    for NamedWindowDefinition(name, window) in definitions {
        let window = match window {
            NamedWindowExpr::NamedWindow(base) => known(&windows, base)?.clone(),
            NamedWindowExpr::WindowSpec(spec) => with_base(&windows, spec)?,
        };
        if windows.insert(window_name(name), window).is_some() {
            return refuse!(DuplicateAlias, "there are two windows called `{name}`");
        }
    }
    Ok(windows)
}

fn window_name(name: &ast::Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}

fn known<'a>(
    windows: &'a HashMap<String, WindowSpec>,
    name: &ast::Ident,
) -> Result<&'a WindowSpec> {
    windows.get(&window_name(name)).ok_or_else(|| {
        let message = format!("there is no window called `{name}`");
        EngineError::statement(SqlState::UndefinedObject, message)
    })
}

/// `(base ORDER BY x)`, written out: what DataFusion makes of it is a window without the base.
fn with_base(windows: &HashMap<String, WindowSpec>, spec: &WindowSpec) -> Result<WindowSpec> {
    let Some(name) = &spec.window_name else { return Ok(spec.clone()) };
    let base = known(windows, name)?;
    if !spec.partition_by.is_empty() {
        let what = format!("the window `{name}` has its own PARTITION BY");
        return Err(
            EngineError::statement(SqlState::WindowingError, what).with_hint("leave out this one")
        );
    }
    if !spec.order_by.is_empty() && !base.order_by.is_empty() {
        let what = format!("the window `{name}` has its own ORDER BY");
        return Err(
            EngineError::statement(SqlState::WindowingError, what).with_hint("leave out this one")
        );
    }
    if base.window_frame.is_some() {
        let what = format!("the window `{name}` has its own frame");
        return Err(EngineError::statement(SqlState::WindowingError, what)
            .with_hint(format!("write OVER {name}")));
    }
    let order_by = if spec.order_by.is_empty() { &base.order_by } else { &spec.order_by };
    Ok(WindowSpec {
        window_name: None,
        partition_by: base.partition_by.clone(),
        order_by: order_by.clone(),
        window_frame: spec.window_frame.clone(),
    })
}

/// Writes named windows out, but not in subqueries, which do not see them.
pub(super) struct NameWindows {
    pub(super) windows: HashMap<String, WindowSpec>,
    pub(super) depth: usize,
}

impl VisitorMut for NameWindows {
    type Break = EngineError;

    fn pre_visit_query(&mut self, _: &mut ast::Query) -> ControlFlow<EngineError> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut ast::Query) -> ControlFlow<EngineError> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<EngineError> {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        let Some(over) = function.over.as_mut().filter(|_| self.depth == 0) else {
            return ControlFlow::Continue(());
        };
        let window = match over {
            WindowType::NamedWindow(name) => known(&self.windows, name).cloned(),
            WindowType::WindowSpec(spec) => with_base(&self.windows, spec),
        };
        match window {
            Ok(window) => {
                *over = WindowType::WindowSpec(window);
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        }
    }
}
