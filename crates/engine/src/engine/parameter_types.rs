//! The types that a plan asks of its parameters.
//!
//! | written | type of `$1` |
//! |---|---|
//! | `$1::date`, `CAST($1 AS date)` | date |
//! | `n = $1`, `n BETWEEN $1 AND 9`, `n IN ($1)`, `$1 IN (n)`, `CASE … THEN n ELSE $1 END` | that of `n` |
//! | `n = ANY ($1)`, `n <> ALL ($1)` | a list of what `n` is |
//! | `at + $1`, of a timestamp | interval |
//! | `LIMIT $1`, `OFFSET $1` | bigint |
//! | `WHERE $1` | boolean |
//! | `upper($1)` | what the function takes |
//! | `INSERT INTO t SELECT $1`, `VALUES (1), ($1)` | that of the column |
//!
//! # Invariants
//! - Of places that ask for different types the first counts, but what the statement says itself (a cast, LIMIT) before
//!   what is guessed from what stands beside; the others cast.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{
    AggregateFunction, Between, BinaryExpr, Cast, InList, Like, Placeholder, ScalarFunction,
    TryCast,
};
use datafusion::logical_expr::type_coercion::functions::{UDFCoercionExt, fields_with_udf};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Case, DmlStatement, Expr, ExprSchemable, LogicalPlan, Operator, WindowFunctionDefinition,
};

/// The types of a plan's parameters by their names (`$1`); `None` where nothing is asked.
///
/// # Errors
/// Those of a plan whose expressions have no type.
pub(crate) fn parameter_types(plan: &LogicalPlan) -> Result<BTreeMap<String, Option<DataType>>> {
    let names = plan.get_parameter_names()?;
    let mut asked = Asked::default();
    if !names.is_empty() {
        plan.apply_with_subqueries(|node| {
            asked.look_at(node)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    let Asked { said, mut guessed } = asked;
    let mut types: BTreeMap<_, _> = names.into_iter().map(|name| (name, None)).collect();
    guessed.extend(said);
    for (name, data_type) in guessed {
        types.insert(name, Some(data_type));
    }
    Ok(types)
}

#[derive(Default)]
struct Asked {
    said: BTreeMap<String, DataType>,
    guessed: BTreeMap<String, DataType>,
}

/// The parameter that an expression is.
fn parameter(expr: &Expr) -> Option<&String> {
    match expr {
        Expr::Placeholder(Placeholder { id, .. }) => Some(id),
        Expr::Alias(alias) => parameter(&alias.expr),
        _ => None,
    }
}

/// The type of an expression that is no parameter.
fn known_type(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    if parameter(expr).is_some() {
        return None;
    }
    expr.get_type(schema).ok().filter(|data_type| !data_type.is_null())
}

fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

fn item_of(list: &DataType) -> Option<&DataType> {
    match list {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            Some(item.data_type())
        }
        _ => None,
    }
}

impl Asked {
    fn say(&mut self, expr: &Expr, data_type: DataType) {
        if let Some(name) = parameter(expr) {
            self.said.entry(name.clone()).or_insert(data_type);
        }
    }

    fn guess(&mut self, expr: &Expr, data_type: &DataType) {
        if let Some(name) = parameter(expr).filter(|_| !data_type.is_null()) {
            self.guessed.entry(name.clone()).or_insert_with(|| data_type.clone());
        }
    }

    fn look_at(&mut self, node: &LogicalPlan) -> Result<()> {
        match node {
            LogicalPlan::Limit(limit) => {
                for rows in [&limit.skip, &limit.fetch].into_iter().flatten() {
                    self.say(rows, DataType::Int64);
                }
            }
            LogicalPlan::Filter(filter) => self.guess(&filter.predicate, &DataType::Boolean),
            LogicalPlan::Values(values) => {
                for row in &values.values {
                    for (value, field) in row.iter().zip(values.schema.fields()) {
                        self.guess(value, field.data_type());
                    }
                }
            }
            LogicalPlan::Dml(inserted) => self.of_insert(inserted)?,
            _ => {}
        }
        let schema = merge_schema(&node.inputs());
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                self.of_expr(expr, &schema);
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(())
    }

    /// The query of an INSERT is cast to the table's columns by a step of its own.
    fn of_insert(&mut self, inserted: &DmlStatement) -> Result<()> {
        let LogicalPlan::Projection(casts) = inserted.input.as_ref() else { return Ok(()) };
        let LogicalPlan::Projection(query) = casts.input.as_ref() else { return Ok(()) };
        for (cast, field) in casts.expr.iter().zip(casts.schema.fields()) {
            let mut column = cast;
            loop {
                column = match column {
                    Expr::Alias(alias) => &alias.expr,
                    Expr::Cast(cast) => &cast.expr,
                    _ => break,
                };
            }
            let Expr::Column(column) = column else { continue };
            if let Some(place) = query.schema.maybe_index_of_column(column) {
                self.guess(&query.expr[place], field.data_type());
            }
        }
        Ok(())
    }

    fn of_expr(&mut self, expr: &Expr, schema: &DFSchema) {
        match expr {
            // What DataFusion has found itself.
            Expr::Placeholder(Placeholder { field: Some(field), .. }) => {
                self.guess(expr, field.data_type());
            }
            Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
                self.say(expr, field.data_type().clone());
            }
            Expr::BinaryExpr(binary) => self.of_operator(binary, schema),
            Expr::Between(Between { expr, low, high, .. }) => {
                self.alike([expr, low, high].map(AsRef::as_ref), schema);
            }
            Expr::InList(InList { expr, list, .. }) => {
                self.alike(std::iter::once(expr.as_ref()).chain(list), schema);
            }
            Expr::Like(Like { expr, pattern, .. }) => {
                self.guess(expr, &DataType::Utf8);
                self.guess(pattern, &DataType::Utf8);
            }
            Expr::Not(expr) => self.guess(expr, &DataType::Boolean),
            Expr::Case(case) => self.of_case(case, schema),
            Expr::ScalarFunction(ScalarFunction { func, args }) => {
                self.of_list_function(func.name(), args, schema);
                self.of_call(func.as_ref(), args, schema);
            }
            Expr::AggregateFunction(AggregateFunction { func, params }) => {
                self.of_call(func.as_ref(), &params.args, schema);
            }
            Expr::WindowFunction(window) => match &window.fun {
                WindowFunctionDefinition::AggregateUDF(func) => {
                    self.of_call(func.as_ref(), &window.params.args, schema);
                }
                WindowFunctionDefinition::WindowUDF(func) => {
                    self.of_call(func.as_ref(), &window.params.args, schema);
                }
            },
            _ => {}
        }
    }

    /// All have the type of the first that has one.
    fn alike<'a>(
        &mut self,
        exprs: impl IntoIterator<Item = &'a Expr, IntoIter: Clone>,
        schema: &DFSchema,
    ) {
        let exprs = exprs.into_iter();
        if let Some(data_type) = exprs.clone().find_map(|expr| known_type(expr, schema)) {
            exprs.for_each(|expr| self.guess(expr, &data_type));
        }
    }

    fn of_operator(&mut self, BinaryExpr { left, op, right }: &BinaryExpr, schema: &DFSchema) {
        for (one, other) in [(left, right), (right, left)] {
            let Some(of_other) = known_type(other, schema) else { continue };
            match one.as_ref() {
                // What DataFusion makes of `x > ALL ($1)`.
                Expr::ScalarFunction(call) if ["array_min", "array_max"].contains(&call.name()) => {
                    call.args.iter().for_each(|list| self.guess(list, &list_of(of_other.clone())));
                }
                // An interval, which the planner has named.
                _ if *op == Operator::Plus && matches!(of_other, DataType::Timestamp(..)) => {}
                one => self.guess(one, &of_other),
            }
        }
    }

    fn of_case(&mut self, case: &Case, schema: &DFSchema) {
        let whens = case.when_then_expr.iter().map(|(when, _)| when.as_ref());
        match case.expr.as_deref() {
            Some(base) => self.alike(whens.chain(std::iter::once(base)), schema),
            None => whens.for_each(|when| self.guess(when, &DataType::Boolean)),
        }
        let thens = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
        self.alike(thens.chain(case.else_expr.as_deref()), schema);
    }

    /// `x = ANY (list)` is `array_has(list, x)`.
    fn of_list_function(&mut self, name: &str, args: &[Expr], schema: &DFSchema) {
        let [list, item] = args else { return };
        if name != "array_has" {
            return;
        }
        if let Some(of_item) = known_type(item, schema) {
            self.guess(list, &list_of(of_item));
        }
        if let Some(of_list) = known_type(list, schema)
            && let Some(of_item) = item_of(&of_list)
        {
            self.guess(item, of_item);
        }
    }

    /// What the function makes of its arguments.
    fn of_call<F: UDFCoercionExt>(&mut self, func: &F, args: &[Expr], schema: &DFSchema) {
        if !args.iter().any(|arg| parameter(arg).is_some()) {
            return;
        }
        let field = |arg: &Expr| -> FieldRef {
            Arc::new(Field::new("", known_type(arg, schema).unwrap_or(DataType::Null), true))
        };
        let given: Vec<FieldRef> = args.iter().map(field).collect();
        // What it does not take with NULLs, it says itself when it has values.
        let Ok(taken) = fields_with_udf(&given, func) else { return };
        // Of a list that is a parameter, what is in it is not known here.
        let of_lists = func.name().starts_with("array_") || func.name() == "cardinality";
        for (arg, field) in args.iter().zip(taken).skip(usize::from(of_lists)) {
            self.guess(arg, field.data_type());
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    fn check(sql: &str, expected: &[Option<DataType>]) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let plan = runtime.block_on(async {
            let context = SessionContext::new();
            let table =
                "CREATE TABLE t (n BIGINT, name VARCHAR, day DATE, at TIMESTAMP, q DECIMAL(10, 2))";
            context.sql(table).await.unwrap();
            context.state().create_logical_plan(sql).await.unwrap()
        });
        let found = parameter_types(&plan).unwrap();
        let names: Vec<String> = (1..=expected.len()).map(|n| format!("${n}")).collect();
        assert_eq!(found.keys().cloned().collect::<Vec<_>>(), names, "{sql}");
        assert_eq!(found.into_values().collect::<Vec<_>>(), expected, "{sql}");
    }

    #[test]
    fn a_cast_says_what_its_parameter_is() {
        check(
            "SELECT $1::bigint, CAST($2 AS date)",
            &[Some(DataType::Int64), Some(DataType::Date32)],
        );
        check("SELECT $1::decimal(10,2)", &[Some(DataType::Decimal128(10, 2))]);
        check("SELECT n FROM t WHERE n = $1 AND $1::int > 3", &[Some(DataType::Int32)]);
        check("SELECT $1::bigint[]", &[Some(list_of(DataType::Int64))]);
        check("SELECT $1, $2 IS NULL", &[None, None]);
    }

    #[test]
    fn what_stands_beside_a_parameter_tells_its_type() {
        let (n, day) = (Some(DataType::Int64), Some(DataType::Date32));
        check("SELECT n FROM t WHERE n = $1 AND $2 < day", &[n.clone(), day.clone()]);
        check(
            "SELECT n FROM t WHERE $1 IN (n, 1) AND $2 BETWEEN day AND day",
            &[n.clone(), day.clone()],
        );
        check("SELECT CASE n WHEN $1 THEN day ELSE $2 END FROM t", &[n.clone(), day]);
        check("SELECT n FROM t ORDER BY n LIMIT $1 OFFSET $2", &[n.clone(), n.clone()]);
        check("SELECT n FROM t WHERE n = ANY($1)", &[Some(list_of(DataType::Int64))]);
        check("SELECT n FROM t WHERE n < ALL($1)", &[Some(list_of(DataType::Int64))]);
        check("SELECT n FROM t WHERE q > $1", &[Some(DataType::Decimal128(10, 2))]);
        check(
            "SELECT n FROM t WHERE (SELECT max(n) FROM t WHERE n < $1) = $2",
            &[n.clone(), n.clone()],
        );
        check("SELECT n FROM t WHERE $1", &[Some(DataType::Boolean)]);
        check("SELECT coalesce(n, $1), nullif(n, $2) FROM t", &[n.clone(), n]);
    }

    #[test]
    fn columns_that_are_inserted_into_tell_the_type() {
        let (n, day) = (Some(DataType::Int64), Some(DataType::Date32));
        check("INSERT INTO t (n, day) VALUES ($1, $2)", &[n.clone(), day.clone()]);
        check("INSERT INTO t (n, day) SELECT $1, $2", &[n, day]);
    }
}
