//! `SUMMARIZE t` and `SUMMARIZE SELECT …`: what each column holds, in one scan.
//!
//! Memory is bounded by the number of columns: different values are estimated by a sketch, quartiles by another.
//! The columns are those of DuckDB.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::DataFusionError;
use datafusion::functions_aggregate::expr_fn::{approx_distinct, approx_percentile_cont};
use datafusion::logical_expr::{Cast, Expr, LogicalPlan, LogicalPlanBuilder, lit};
use futures::TryStreamExt;

use crate::base::answer::{Answer, rows_answer};
use crate::base::error::{EngineError, Result};
use crate::engine::session::Session;
use crate::sql::statement::Statement;

const QUARTILES: [f64; 3] = [0.25, 0.5, 0.75];

/// What is computed of a column.
struct Asked {
    /// Has its type an order that is shown as text?
    ordered: bool,
    /// What its mean is of: its numbers.
    number: bool,
    /// The whole numbers that its days or times are, of which quartiles are taken.
    counted: Option<DataType>,
}

impl Asked {
    fn of(data_type: &DataType) -> Self {
        use DataType::{Binary, BinaryView, Boolean, Date32, LargeBinary, Null, Timestamp};
        let number = data_type.is_numeric();
        let counted = match data_type {
            Date32 => Some(DataType::Int32),
            Timestamp(..) => Some(DataType::Int64),
            _ => None,
        };
        let text = matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
        let other = matches!(data_type, Boolean | Binary | LargeBinary | BinaryView);
        let ordered = (number || counted.is_some() || text || other) && *data_type != Null;
        Self { ordered, number, counted }
    }
}

impl Session {
    /// What each column of a query holds.
    pub(crate) async fn summarize(&self, statement: &Statement) -> Result<Answer> {
        let plan = self.plan(statement).await?;
        let types = self.columns_of(&plan)?;
        let shown = self.spell(statement, &Arc::new(types.clone())).await?;
        let asked: Vec<Asked> = types.fields().iter().map(|f| Asked::of(f.data_type())).collect();
        let aggregated = self.aggregated(plan, &types, &asked)?;
        let batches: Vec<RecordBatch> = self.run_query(aggregated).await?.try_collect().await?;
        let row = batches.iter().find(|batch| batch.num_rows() == 1);
        let row = row.ok_or_else(|| EngineError::bug("a summary has one row"))?;
        let mut results = row.columns().iter();
        let mut next = || results.next().ok_or_else(|| EngineError::bug("a summary is too short"));
        let count = whole(next()?)?;
        let mut summaries = Vec::new();
        for (field, asked) in types.fields().iter().zip(&asked) {
            let present = whole(next()?)?;
            let mut summary = Summary { present, ..Summary::default() };
            if asked.ordered {
                summary.min = text(next()?)?;
                summary.max = text(next()?)?;
                summary.different = Some(whole(next()?)?.min(present));
            }
            if asked.number {
                summary.mean = double(next()?)?;
                summary.deviation = double(next()?)?;
            }
            if asked.number || asked.counted.is_some() {
                for quartile in &mut summary.quartiles {
                    *quartile = shown_quartile(double(next()?)?, field.data_type(), asked)?;
                }
            }
            summaries.push(summary);
        }
        let types = shown.fields().iter().map(|f| Some(uplake_table::type_name(f.data_type())));
        let names: StringArray = shown.fields().iter().map(|f| Some(f.name())).collect();
        let types: StringArray = types.collect();
        answer_of(names, types, &summaries, count)
    }

    fn aggregated(
        &self,
        plan: LogicalPlan,
        types: &datafusion::arrow::datatypes::Schema,
        asked: &[Asked],
    ) -> Result<LogicalPlan> {
        let state = self.context().state();
        let call = |name: &str, of: Expr| -> Result<Expr> {
            let function = state.aggregate_functions().get(name);
            let function = function.ok_or_else(|| EngineError::bug(format!("no {name}")))?;
            Ok(function.call(vec![of]))
        };
        let double = |of: Expr| cast_to(of, DataType::Float64);
        let mut exprs = vec![call("count", lit(1_i64))?];
        let columns = plan.schema().columns();
        for ((column, field), asked) in columns.into_iter().zip(types.fields()).zip(asked) {
            let column = Expr::Column(column);
            exprs.push(call("count", column.clone())?);
            if asked.ordered {
                exprs.push(call("min", column.clone())?);
                exprs.push(call("max", column.clone())?);
                // There is no sketch of doubles.
                let sketched = match field.data_type().is_floating() {
                    true => cast_to(column.clone(), DataType::Utf8),
                    false => column.clone(),
                };
                exprs.push(approx_distinct(sketched));
            }
            if asked.number {
                exprs.push(call("avg", double(column.clone()))?);
                exprs.push(call("stddev", double(column.clone()))?);
            }
            let placed = match &asked.counted {
                Some(whole) => Some(double(cast_to(column, whole.clone()))),
                None => asked.number.then(|| double(column)),
            };
            for quartile in placed.iter().flat_map(|_| QUARTILES) {
                let of = placed.clone().ok_or_else(|| EngineError::bug("no quartile"))?;
                exprs.push(approx_percentile_cont(of.sort(true, false), lit(quartile), None));
            }
        }
        // Two columns of one name would have results of one name.
        let exprs = exprs.into_iter().enumerate();
        let exprs = exprs.map(|(place, expr)| expr.alias(format!("__{place}")));
        Ok(LogicalPlanBuilder::from(plan).aggregate(Vec::<Expr>::new(), exprs)?.build()?)
    }
}

fn cast_to(of: Expr, data_type: DataType) -> Expr {
    Expr::Cast(Cast::new(Box::new(of), data_type))
}

#[derive(Default)]
struct Summary {
    present: i64,
    min: Option<String>,
    max: Option<String>,
    different: Option<i64>,
    mean: Option<f64>,
    deviation: Option<f64>,
    quartiles: [Option<String>; 3],
}

fn answer_of(
    names: StringArray,
    types: StringArray,
    summaries: &[Summary],
    count: i64,
) -> Result<Answer> {
    fn column<'a, T, A: FromIterator<Option<T>> + Array + 'static>(
        of: &'a [Summary],
        value: impl Fn(&'a Summary) -> Option<T>,
    ) -> ArrayRef {
        Arc::new(of.iter().map(value).collect::<A>())
    }
    // With two digits, as DuckDB has it.
    let nulls = |summary: &Summary| match count {
        0 => 0.0,
        count => ((count - summary.present) as f64 / count as f64 * 10_000.0).round() / 100.0,
    };
    rows_answer(vec![
        ("column_name", Arc::new(names)),
        ("column_type", Arc::new(types)),
        ("min", column::<_, StringArray>(summaries, |summary| summary.min.as_deref())),
        ("max", column::<_, StringArray>(summaries, |summary| summary.max.as_deref())),
        ("approx_unique", column::<_, Int64Array>(summaries, |summary| summary.different)),
        ("avg", column::<_, Float64Array>(summaries, |summary| summary.mean)),
        ("std", column::<_, Float64Array>(summaries, |summary| summary.deviation)),
        ("q25", column::<_, StringArray>(summaries, |summary| summary.quartiles[0].as_deref())),
        ("q50", column::<_, StringArray>(summaries, |summary| summary.quartiles[1].as_deref())),
        ("q75", column::<_, StringArray>(summaries, |summary| summary.quartiles[2].as_deref())),
        ("count", column::<_, Int64Array>(summaries, |_| Some(count))),
        ("null_percentage", column::<_, Float64Array>(summaries, |summary| Some(nulls(summary)))),
    ])
}

fn whole(of: &ArrayRef) -> Result<i64> {
    let of = cast(of, &DataType::Int64).map_err(DataFusionError::from)?;
    Ok(of.as_primitive::<Int64Type>().value(0))
}

fn double(of: &ArrayRef) -> Result<Option<f64>> {
    let of = cast(of, &DataType::Float64).map_err(DataFusionError::from)?;
    Ok(of.is_valid(0).then(|| of.as_primitive::<Float64Type>().value(0)))
}

fn text(of: &ArrayRef) -> Result<Option<String>> {
    if of.is_null(0) {
        return Ok(None);
    }
    let shown = datafusion::arrow::util::display::array_value_to_string(of, 0);
    Ok(Some(shown.map_err(DataFusionError::from)?))
}

/// A quartile of days or times is one of them, of whole numbers the nearest.
fn shown_quartile(
    value: Option<f64>,
    data_type: &DataType,
    asked: &Asked,
) -> Result<Option<String>> {
    let Some(value) = value else { return Ok(None) };
    let whole: ArrayRef = Arc::new(Int64Array::from(vec![value.round() as i64]));
    let cast = |of: &ArrayRef, to: &DataType| cast(of, to).map_err(DataFusionError::from);
    let shown = match (&asked.counted, data_type) {
        (Some(counted), _) => cast(&cast(&whole, counted)?, data_type)?,
        (None, of) if of.is_integer() => whole,
        _ => Arc::new(Float64Array::from(vec![value])),
    };
    text(&shown)
}
