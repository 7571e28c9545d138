//! Sets of ids as one value: long IN lists, and sets that are stored in the lake under a name.
//!
//! ```text
//! id IN (17, 4, …)      ─┐                     ┌─► in_list_0(id), one expression whatever its length
//! id IN ID SET vips     ─┴► id IN (id_set(…)) ─┴─► id IN (17, 4, …), for types that need conversion
//!      statement text          planned as is          resolved in the plan
//! ```
//!
//! # Invariants
//! - What a statement answers is what it would with the literals in place.

use std::collections::HashSet as StdSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, StringArray, StringArrayType,
};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Int8Type, Int16Type, Int32Type, Int64Type,
};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DataFusionError, HashSet, Result, ScalarValue};
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Aggregate, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Projection, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use uplake_table::key_of_i64;

use crate::base::error::refuse;

/// The function that stands for a set in a statement's text.
pub(crate) const MARK: &str = "__id_set";

/// Distinct values of one kind, without NULL.
#[derive(Debug)]
pub(crate) enum IdSet {
    Integers { set: HashSet<i64>, keys: Arc<Vec<u64>>, bounds: Option<(i64, i64)> },
    Texts { set: HashSet<Arc<str>>, values: Arc<Vec<String>>, bounds: Option<(String, String)> },
}

impl PartialEq for IdSet {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Integers { set, .. }, Self::Integers { set: other, .. }) => set == other,
            (Self::Texts { set, .. }, Self::Texts { set: other, .. }) => set == other,
            _ => false,
        }
    }
}

impl IdSet {
    pub fn of_integers(ids: Vec<i64>) -> Self {
        let bounds = ids.iter().min().zip(ids.iter().max()).map(|(a, b)| (*a, *b));
        let set: HashSet<i64> = ids.into_iter().collect();
        let keys = Arc::new(set.iter().map(|id| key_of_i64(*id)).collect());
        Self::Integers { set, keys, bounds }
    }

    pub fn of_texts(texts: Vec<String>) -> Self {
        let bounds =
            texts.iter().min().zip(texts.iter().max()).map(|(a, b)| (a.clone(), b.clone()));
        let set: HashSet<Arc<str>> = texts.iter().map(|t| Arc::from(t.as_str())).collect();
        let values = if set.len() == texts.len() {
            texts
        } else {
            set.iter().map(|t| t.to_string()).collect()
        };
        Self::Texts { set, values: Arc::new(values), bounds }
    }

    /// The ids of a column of integers or text; NULLs are left out.
    pub fn of_array(ids: &ArrayRef) -> Result<Self> {
        if ids.data_type().is_integer() {
            let exactly = CastOptions { safe: false, ..CastOptions::default() };
            let ids = cast_with_options(ids, &DataType::Int64, &exactly)?;
            return Ok(Self::of_integers(
                ids.as_primitive::<Int64Type>().iter().flatten().collect(),
            ));
        }
        let texts = cast(ids, &DataType::Utf8)?;
        let texts = texts.as_string::<i32>().iter().flatten();
        Ok(Self::of_texts(texts.map(str::to_owned).collect()))
    }

    pub fn to_array(&self) -> ArrayRef {
        match self {
            Self::Integers { set, .. } => {
                let mut ids: Vec<i64> = set.iter().copied().collect();
                ids.sort_unstable();
                Arc::new(Int64Array::from(ids))
            }
            Self::Texts { values, .. } => {
                let mut texts: Vec<&str> = values.iter().map(String::as_str).collect();
                texts.sort_unstable();
                Arc::new(StringArray::from(texts))
            }
        }
    }

    /// What it takes of memory, about: places of a hash table and of a list.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Integers { set, keys, .. } => {
                set.capacity() * (size_of::<i64>() + 1) + keys.len() * size_of::<u64>()
            }
            Self::Texts { set, values, .. } => {
                let place = size_of::<Arc<str>>() + 1;
                // Each text is there twice, once with two counts.
                let texts: usize = values.iter().map(|text| 2 * text.len() + 16).sum();
                set.capacity() * place + values.len() * size_of::<String>() + texts
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Integers { set, .. } => set.len(),
            Self::Texts { set, .. } => set.len(),
        }
    }

    /// The values of a set of text.
    pub fn texts(&self) -> Option<&[String]> {
        match self {
            Self::Integers { .. } => None,
            Self::Texts { values, .. } => Some(values),
        }
    }

    fn fits(&self, data_type: &DataType) -> bool {
        match self {
            Self::Integers { .. } => data_type.is_signed_integer(),
            Self::Texts { .. } => {
                matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
            }
        }
    }

    /// May a value between these bounds be in the set?
    pub fn may_meet(&self, low: &ScalarValue, high: &ScalarValue) -> bool {
        match self {
            Self::Integers { set, bounds, .. } => {
                let (Some(low), Some(high)) = (integer(low), integer(high)) else { return true };
                if low == high {
                    return set.contains(&low);
                }
                bounds.is_some_and(|(first, last)| first <= high && low <= last)
            }
            Self::Texts { set, bounds, .. } => {
                let text = |v: &ScalarValue| v.try_as_str().flatten().map(str::to_owned);
                let (Some(low), Some(high)) = (text(low), text(high)) else { return true };
                if low == high {
                    return set.contains(low.as_str());
                }
                bounds.as_ref().is_some_and(|(first, last)| *first <= high && low <= *last)
            }
        }
    }

    fn literals(&self) -> Vec<Expr> {
        match self {
            Self::Integers { set, .. } => set.iter().map(|id| lit(*id)).collect(),
            Self::Texts { values, .. } => values.iter().map(|t| lit(t.as_str())).collect(),
        }
    }

    fn contains(&self, values: &ArrayRef) -> Result<BooleanArray> {
        fn integers<T: ArrowPrimitiveType>(set: &HashSet<i64>, values: &ArrayRef) -> BooleanArray
        where
            T::Native: Into<i64>,
        {
            BooleanArray::from_unary(values.as_primitive::<T>(), |v| set.contains(&v.into()))
        }
        fn texts<'a>(set: &HashSet<Arc<str>>, values: impl StringArrayType<'a>) -> BooleanArray {
            values.iter().map(|v| v.map(|v| set.contains(v))).collect()
        }
        Ok(match (self, values.data_type()) {
            (Self::Integers { set, .. }, DataType::Int8) => integers::<Int8Type>(set, values),
            (Self::Integers { set, .. }, DataType::Int16) => integers::<Int16Type>(set, values),
            (Self::Integers { set, .. }, DataType::Int32) => integers::<Int32Type>(set, values),
            (Self::Integers { set, .. }, DataType::Int64) => integers::<Int64Type>(set, values),
            (Self::Texts { set, .. }, DataType::Utf8) => texts(set, values.as_string::<i32>()),
            (Self::Texts { set, .. }, DataType::LargeUtf8) => texts(set, values.as_string::<i64>()),
            (Self::Texts { set, .. }, DataType::Utf8View) => texts(set, values.as_string_view()),
            (_, other) => {
                return Err(DataFusionError::Internal(format!("a set of ids met {other}")));
            }
        })
    }
}

pub(crate) fn integer(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::Int8(v) => v.map(i64::from),
        ScalarValue::Int16(v) => v.map(i64::from),
        ScalarValue::Int32(v) => v.map(i64::from),
        ScalarValue::Int64(v) => *v,
        _ => None,
    }
}

/// `column IN` a set. Two are equal if their sets have the same values.
#[derive(Debug)]
pub(crate) struct InIdSet {
    name: String,
    pub set: Arc<IdSet>,
    signature: Signature,
}

impl InIdSet {
    /// `column IN` the set, under a name that plans show.
    pub fn of(name: String, set: Arc<IdSet>, column: Expr) -> Expr {
        let function = Self::function(name, set);
        Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), vec![column]))
    }

    /// What `column IN` the set calls.
    pub fn function(name: String, set: Arc<IdSet>) -> ScalarUDF {
        let signature = Signature::any(1, Volatility::Immutable);
        ScalarUDF::from(Self { name, set, signature })
    }

    /// What plans call it.
    pub fn set_name(&self) -> &str {
        &self.name
    }
}

impl PartialEq for InIdSet {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.set, &other.set) || self.set == other.set
    }
}

impl Eq for InIdSet {}

impl Hash for InIdSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.set.len().hash(state);
    }
}

impl ScalarUDFImpl for InIdSet {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = arguments.args.as_slice() else {
            return Err(DataFusionError::Internal("a set of ids takes one value".into()));
        };
        match value {
            ColumnarValue::Array(values) => {
                Ok(ColumnarValue::Array(Arc::new(self.set.contains(values)?)))
            }
            ColumnarValue::Scalar(value) => {
                let found = self.set.contains(&value.to_array()?)?;
                let found = found.is_valid(0).then(|| found.value(0));
                Ok(ColumnarValue::Scalar(ScalarValue::Boolean(found)))
            }
        }
    }
}

/// Stands for a set until the plan is resolved.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mark {
    signature: Signature,
}

impl Mark {
    pub fn function() -> ScalarUDF {
        ScalarUDF::from(Self { signature: Signature::any(1, Volatility::Volatile) })
    }
}

impl ScalarUDFImpl for Mark {
    fn name(&self) -> &str {
        MARK
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Null)
    }

    fn invoke_with_args(&self, _arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        refuse!(SyntaxError, "an id set stands after IN: id IN ID SET name")
    }
}

/// What a mark in a statement names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SetName {
    /// A list of the statement, by its place.
    List(usize),
    /// A set of the lake.
    Stored(String),
}

fn marked(expr: &Expr) -> Option<SetName> {
    let Expr::ScalarFunction(function) = expr else { return None };
    if function.func.name() != MARK {
        return None;
    }
    match function.args.as_slice() {
        [Expr::Literal(value, _)] => match value.try_as_str().flatten() {
            Some(name) => Some(SetName::Stored(name.to_owned())),
            None => Some(SetName::List(usize::try_from(integer(value)?).ok()?)),
        },
        _ => None,
    }
}

fn mark_of(list: &InList) -> Option<SetName> {
    match list.list.as_slice() {
        [only] => marked(only),
        _ => None,
    }
}

/// The stored sets that a plan names.
pub(crate) fn stored_names(plan: &LogicalPlan) -> Result<StdSet<String>> {
    let mut names = StdSet::new();
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Some(SetName::Stored(name)) = marked(expr) {
                    names.insert(name);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(names)
}

/// The plan with each mark resolved by `set_of`.
pub(crate) fn resolve(
    plan: LogicalPlan,
    set_of: &dyn Fn(&SetName) -> Option<Arc<IdSet>>,
) -> Result<LogicalPlan> {
    let resolved = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Aggregate(aggregate) => {
            let node = marks_below_grouping_sets(aggregate, set_of)?;
            resolved_node(node, set_of)
        }
        other => resolved_node(other, set_of),
    })?;
    Ok(resolved.data)
}

fn resolved_node(
    node: LogicalPlan,
    set_of: &dyn Fn(&SetName) -> Option<Arc<IdSet>>,
) -> Result<Transformed<LogicalPlan>> {
    let schema = match &node {
        LogicalPlan::TableScan(scan) => scan.projected_schema.as_ref().clone(),
        other => merge_schema(&other.inputs()),
    };
    // What is above knows columns by the names that they had with the marks.
    let names = NamePreserver::new(&node);
    node.map_expressions(|expr| {
        let name = names.save(&expr);
        let resolved = expr.transform_up(|expr| match expr {
            Expr::InList(list) => resolved_list(list, &schema, set_of),
            other => Ok(Transformed::no(other)),
        })?;
        Ok(resolved.update_data(|expr| name.restore(expr)))
    })
}

/// The same aggregate with columns in place of the conditions with marks that its grouping sets hold:
/// grouping sets have no names for what is in them, so it must not change there.
fn marks_below_grouping_sets(
    aggregate: Aggregate,
    set_of: &dyn Fn(&SetName) -> Option<Arc<IdSet>>,
) -> Result<LogicalPlan> {
    let is_set = |expr: &Expr| matches!(expr, Expr::GroupingSet(_));
    if !aggregate.group_expr.iter().any(is_set) {
        return Ok(LogicalPlan::Aggregate(aggregate));
    }
    let mut computed: Vec<(Expr, Column)> = Vec::new();
    let groups = aggregate.group_expr.iter().cloned().map(|group| {
        group.transform_down(|expr| {
            let has_mark = |part: &Expr| Ok(marked(part).is_some());
            if is_set(&expr) || !expr.exists(has_mark)? {
                return Ok(Transformed::no(expr));
            }
            let column = Column::new_unqualified(expr.schema_name().to_string());
            if !computed.iter().any(|(known, _)| *known == expr) {
                computed.push((expr, column.clone()));
            }
            let jump = TreeNodeRecursion::Jump;
            Ok(Transformed::new(Expr::Column(column), true, jump))
        })
    });
    let groups = groups.map(|group| Ok(group?.data)).collect::<Result<Vec<_>>>()?;
    if computed.is_empty() {
        return Ok(LogicalPlan::Aggregate(aggregate));
    }
    // grouping() names what is grouped by as the grouping sets do.
    let expressions = aggregate.aggr_expr.iter().cloned().map(|expr| match expr {
        Expr::AggregateFunction(function) if function.func.name() == "grouping" => {
            Expr::AggregateFunction(function)
                .transform_down(|part| {
                    let known = computed.iter().find(|(known, _)| *known == part);
                    Ok(match known {
                        Some((_, column)) => Transformed::yes(Expr::Column(column.clone())),
                        None => Transformed::no(part),
                    })
                })
                .data()
        }
        other => Ok(other),
    });
    let expressions = expressions.collect::<Result<Vec<_>>>()?;
    let columns = aggregate.input.schema().columns().into_iter().map(Expr::Column);
    let named = computed.iter().map(|(expr, column)| expr.clone().alias(&column.name));
    let below = Projection::try_new(columns.chain(named).collect(), aggregate.input)?;
    let below = resolved_node(LogicalPlan::Projection(below), set_of)?.data;
    Ok(LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(below), groups, expressions)?))
}

fn resolved_list(
    list: InList,
    schema: &DFSchema,
    set_of: &dyn Fn(&SetName) -> Option<Arc<IdSet>>,
) -> Result<Transformed<Expr>> {
    let Some(name) = mark_of(&list) else { return Ok(Transformed::no(Expr::InList(list))) };
    let Some(set) = set_of(&name) else {
        return Err(DataFusionError::Internal(format!("{name:?} was not read")));
    };
    let InList { expr, negated, .. } = list;
    if set.is_empty() {
        // Nothing is in it, not even NULL.
        return Ok(Transformed::yes(lit(negated)));
    }
    let fits = expr.get_type(schema).is_ok_and(|data_type| set.fits(&data_type));
    if !fits {
        // Conversion is DataFusion's business, with its rules and its messages.
        let list = set.literals();
        return Ok(Transformed::yes(Expr::InList(InList { expr, list, negated })));
    }
    let name = match name {
        SetName::List(number) => format!("in_list_{number}"),
        SetName::Stored(name) => format!("in_id_set_{name}"),
    };
    let found = InIdSet::of(name, set, *expr);
    Ok(Transformed::yes(if negated { Expr::Not(Box::new(found)) } else { found }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_knows_its_members_and_passes_nulls_on() {
        let set = IdSet::of_integers(vec![3, 1, 3, -7]);
        assert_eq!(set.len(), 3);
        let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(2), None, Some(-7)]));
        let found: Vec<Option<bool>> = set.contains(&values).unwrap().iter().collect();
        assert_eq!(found, [Some(true), Some(false), None, Some(true)]);
        let texts = IdSet::of_texts(vec!["a".into(), "b".into(), "a".into()]);
        assert_eq!(texts.to_array().as_string::<i32>().iter().flatten().count(), 2);
    }

    #[test]
    fn bounds_rule_files_out() {
        let set = IdSet::of_integers(vec![10, 20]);
        let meets = |low, high| {
            set.may_meet(&ScalarValue::Int64(Some(low)), &ScalarValue::Int64(Some(high)))
        };
        assert!(meets(0, 10) && meets(20, 30) && meets(12, 15) && meets(10, 10));
        assert!(!meets(0, 9) && !meets(21, 30) && !meets(11, 11));
        assert!(set.may_meet(&ScalarValue::Int64(None), &ScalarValue::Int64(Some(0))));
    }
}
