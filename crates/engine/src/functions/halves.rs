//! Aggregates in two halves: what rows of one part come to, and what the parts come to together.
//!
//! ```text
//! avg(x)  ─►  final_avg(p)  over  partial_avg(x) AS p  of each part
//! ```
//!
//! # Invariants
//! - `partial(f)` answers the state that `f` hands from thread to thread, as a struct; `final(f)` merges such. Both
//!   leave all computing to `f`.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StructArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};

/// The first half of a function.
pub(crate) fn partial(function: Arc<AggregateUDF>) -> AggregateUDF {
    AggregateUDF::from(Partial { name: format!("partial_{}", function.name()), function })
}

/// The function of which this is the first half.
pub(crate) fn of_partial(function: &AggregateUDF) -> Option<&Arc<AggregateUDF>> {
    function.inner().downcast_ref::<Partial>().map(|partial| &partial.function)
}

/// An argument of the function in the parts, and its value if that is a constant.
pub(crate) type Argument = (FieldRef, Option<ScalarValue>);

/// The second half of a function that had these arguments. It takes the structs of [`partial`] if `is_struct`, or else
/// what the function itself came to, which must be all of its state.
pub(crate) fn merged(
    function: Arc<AggregateUDF>,
    arguments: Vec<Argument>,
    is_struct: bool,
) -> AggregateUDF {
    let name = format!("final_{}", function.name());
    let signature = Signature::any(1, Volatility::Immutable);
    AggregateUDF::from(Final { name, signature, function, arguments, is_struct })
}

/// What [`merged`] made a function of.
pub(crate) fn of_merged(
    function: &AggregateUDF,
) -> Option<(&Arc<AggregateUDF>, &[Argument], bool)> {
    let merged = function.inner().downcast_ref::<Final>()?;
    Some((&merged.function, &merged.arguments, merged.is_struct))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Partial {
    name: String,
    function: Arc<AggregateUDF>,
}

impl Partial {
    fn as_before<'a>(&self, args: AccumulatorArgs<'a>) -> Result<AccumulatorArgs<'a>> {
        let return_field = self.function.return_field(args.expr_fields)?;
        Ok(AccumulatorArgs { return_field, ..args })
    }

    fn states(&self, input_fields: &[FieldRef]) -> Result<Vec<FieldRef>> {
        self.function.state_fields(StateFieldsArgs {
            name: &self.name,
            input_fields,
            return_field: self.function.return_field(input_fields)?,
            ordering_fields: &[],
            is_distinct: false,
        })
    }
}

/// The fields of the struct that a function answers.
fn fields_of(args: &AccumulatorArgs) -> Result<Fields> {
    match args.return_field.data_type() {
        DataType::Struct(fields) => Ok(fields.clone()),
        other => internal_err!("the state of an aggregate is no {other}"),
    }
}

impl AggregateUDFImpl for Partial {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let field = |data_type: &DataType| Arc::new(Field::new("", data_type.clone(), true));
        let fields: Vec<FieldRef> = types.iter().map(field).collect();
        Ok(self.return_field(&fields)?.data_type().clone())
    }

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        let states = self.states(fields)?;
        let as_any = |field: &FieldRef| field.as_ref().clone().with_nullable(true);
        let states: Fields = states.iter().map(as_any).collect();
        Ok(Arc::new(Field::new(&self.name, DataType::Struct(states), true)))
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.function.coerce_types(types)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.function.supports_null_handling_clause()
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let fields = fields_of(&args)?;
        Ok(Box::new(AsStruct { of: self.function.accumulator(self.as_before(args)?)?, fields }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.states(args.input_fields)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        let args = self.as_before(args);
        args.is_ok_and(|args| self.function.groups_accumulator_supported(args))
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let fields = fields_of(&args)?;
        let of = self.function.create_groups_accumulator(self.as_before(args)?)?;
        Ok(Box::new(AsStruct { of, fields }))
    }
}

/// An accumulator whose answer is its state.
#[derive(Debug)]
struct AsStruct<A> {
    of: A,
    fields: Fields,
}

impl<A> AsStruct<A> {
    fn joined(&self, states: Vec<ArrayRef>) -> Result<StructArray> {
        Ok(StructArray::try_new(self.fields.clone(), states, None)?)
    }
}

impl Accumulator for AsStruct<Box<dyn Accumulator>> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.of.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let states = self.of.state()?;
        let states = states.iter().map(ScalarValue::to_array).collect::<Result<Vec<_>>>()?;
        Ok(ScalarValue::Struct(Arc::new(self.joined(states)?)))
    }

    fn size(&self) -> usize {
        self.of.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.of.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.of.merge_batch(states)
    }
}

impl GroupsAccumulator for AsStruct<Box<dyn GroupsAccumulator>> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.of.update_batch(values, groups, filter, count)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let states = self.of.state(emit_to)?;
        Ok(Arc::new(self.joined(states)?))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.of.state(emit_to)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.of.merge_batch(states, groups, count)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.of.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.of.size()
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Final {
    name: String,
    signature: Signature,
    function: Arc<AggregateUDF>,
    arguments: Vec<Argument>,
    is_struct: bool,
}

impl Final {
    fn fields(&self) -> Vec<FieldRef> {
        self.arguments.iter().map(|(field, _)| Arc::clone(field)).collect()
    }

    /// What `made` makes of what the function was told in the parts.
    fn as_in_parts<T>(
        &self,
        args: &AccumulatorArgs,
        made: impl FnOnce(AccumulatorArgs) -> Result<T>,
    ) -> Result<T> {
        let fields = self.fields();
        let schema = Schema::new(fields.clone());
        let expr = |(place, (field, value)): (usize, &Argument)| match value {
            Some(value) => Arc::new(Literal::new(value.clone())) as Arc<dyn PhysicalExpr>,
            None => Arc::new(Column::new(field.name(), place)),
        };
        let exprs: Vec<_> = self.arguments.iter().enumerate().map(expr).collect();
        made(AccumulatorArgs {
            return_field: self.function.return_field(&fields)?,
            schema: &schema,
            ignore_nulls: args.ignore_nulls,
            order_bys: &[],
            is_reversed: false,
            name: args.name,
            is_distinct: false,
            exprs: &exprs,
            expr_fields: &fields,
        })
    }
}

impl AggregateUDFImpl for Final {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.function.return_field(&self.fields())?.data_type().clone())
    }

    fn return_field(&self, _: &[FieldRef]) -> Result<FieldRef> {
        self.function.return_field(&self.fields())
    }

    fn is_nullable(&self) -> bool {
        self.function.is_nullable()
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.function.default_value(data_type)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let of = self.as_in_parts(&args, |args| self.function.accumulator(args))?;
        Ok(Box::new(Merging { of, is_struct: self.is_struct }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let fields = self.fields();
        self.function.state_fields(StateFieldsArgs {
            name: args.name,
            input_fields: &fields,
            return_field: self.function.return_field(&fields)?,
            ordering_fields: &[],
            is_distinct: false,
        })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        let supported =
            |args: AccumulatorArgs| Ok(self.function.groups_accumulator_supported(args));
        self.as_in_parts(&args, supported).unwrap_or(false)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let of = self.as_in_parts(&args, |args| self.function.create_groups_accumulator(args))?;
        Ok(Box::new(Merging { of, is_struct: self.is_struct }))
    }
}

/// An accumulator whose rows are states.
#[derive(Debug)]
struct Merging<A> {
    of: A,
    is_struct: bool,
}

impl<A> Merging<A> {
    fn states(&self, values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        match values {
            [states] if self.is_struct => match states.as_struct_opt() {
                Some(states) if states.null_count() == 0 => Ok(states.columns().to_vec()),
                _ => internal_err!("parts answer structs of states"),
            },
            _ => Ok(values.to_vec()),
        }
    }
}

impl Accumulator for Merging<Box<dyn Accumulator>> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let states = self.states(values)?;
        self.of.merge_batch(&states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.of.evaluate()
    }

    fn size(&self) -> usize {
        self.of.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.of.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.of.merge_batch(states)
    }
}

impl GroupsAccumulator for Merging<Box<dyn GroupsAccumulator>> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        if filter.is_some() {
            return internal_err!("parts have filtered already");
        }
        let states = self.states(values)?;
        self.of.merge_batch(&states, groups, count)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.of.evaluate(emit_to)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.of.state(emit_to)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.of.merge_batch(states, groups, count)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        _: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.states(values)
    }

    fn size(&self) -> usize {
        self.of.size()
    }
}
