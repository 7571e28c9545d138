//! `window_funnel`, `conversion_times`, `sequence_match` and `sequence_count` as aggregates.
//!
//! They keep a user's rows in a log ([`crate::event_log`]), 9 bytes and their runs, and look at
//! them in the order of time when they are asked. Rows without a condition that holds are not
//! kept, unless the mode is `strict_order`.
//!
//! A plan may give them the conditions as one number of each row ([`EventBits`]), which is asked once for
//! each value where they are all about one column of few values.
//!
//! Where rows are known to come in the order of time ([`expect_order`]), `window_funnel` needs no log.
//!
//! # Invariants
//! - Constant arguments (window, mode, pattern) are read once when a statement is planned.
//! - A partial state is the times of a group, then its masks, in native byte order: it stays on
//!   the machine.

use std::any::Any;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int32Array, Int64Array, LargeBinaryArray,
    ListArray, RecordBatch, UInt8Array, new_empty_array,
};
use arrow::buffer::{Buffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, ToByteSlice, UInt8Type};
use datafusion_common::{DataFusionError, Result, ScalarValue, internal_err, resources_err};
use datafusion_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion_expr::function::{
    AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs,
};
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, EmitTo, Expr, GroupsAccumulator,
    Signature, Volatility,
};
use datafusion_physical_expr::PhysicalExpr;

use crate::arguments::{BoundConstants, constants, no_distinct};
use crate::error::refuse;
use crate::event_log::{ByGroup, EventLog, Mask, RowRun, row_runs};
use crate::event_path;
use crate::events::{NotInOrder, holds, is_text, raw_times};
use crate::sequence::{Pattern, order};
use crate::single::Single;
use crate::time::{span, span_type, ticks, time_type};
use crate::window_funnel::{CONDITIONS_MAX, Funnel, Mode, Ongoing};

/// Conditions that fit a mask of one byte.
const NARROW_CONDITIONS: usize = 8;

/// The functions, to be registered with a session.
pub(crate) fn functions() -> [AggregateUDF; 4] {
    let kinds =
        [Kind::WindowFunnel, Kind::ConversionTimes, Kind::SequenceMatch, Kind::SequenceCount];
    kinds.map(|kind| {
        let signature = Signature::user_defined(Volatility::Immutable);
        AggregateUDF::from(EventFunction { kind, signature, question: None, bound: None })
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    WindowFunnel,
    ConversionTimes,
    SequenceMatch,
    SequenceCount,
}

impl Kind {
    /// Does it take a window and perhaps a mode, and no pattern?
    fn is_funnel(self) -> bool {
        matches!(self, Self::WindowFunnel | Self::ConversionTimes)
    }
}

/// What is asked of a user's rows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Question {
    Funnel(Funnel),
    /// And so many units of time in a second.
    Times(Funnel, i64),
    Match(Pattern),
    Count(Pattern),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct EventFunction {
    kind: Kind,
    signature: Signature,
    /// Set when the constant arguments have been read and taken off.
    question: Option<Question>,
    /// And what they were.
    bound: Option<BoundConstants>,
}

/// What a function of these was made of.
pub(crate) fn bound_constants(function: &AggregateUDF) -> Option<&BoundConstants> {
    function.inner().downcast_ref::<EventFunction>()?.bound.as_ref()
}

/// The function that is made of them; `None` if none of these is called so.
pub(crate) fn bind(name: &str, bound: BoundConstants) -> Result<Option<AggregateUDF>> {
    let function = functions().into_iter().find(|function| function.name() == name);
    let Some(function) = function.as_ref().and_then(|f| f.inner().downcast_ref::<EventFunction>())
    else {
        return Ok(None);
    };
    if bound.constants.is_empty() {
        return internal_err!("{name} is made of one constant at least");
    }
    Ok(Some(AggregateUDF::from(function.bound_to(bound)?)))
}

impl EventFunction {
    fn bound_to(&self, bound: BoundConstants) -> Result<Self> {
        let BoundConstants { constants, time, conditions } = &bound;
        let question = self.question(constants, &time.data_type(), *conditions)?;
        Ok(Self { question: Some(question), bound: Some(bound), ..self.clone() })
    }
}

impl Question {
    /// Do rows without a condition matter?
    fn needs_all_rows(&self) -> bool {
        match self {
            Self::Funnel(funnel) | Self::Times(funnel, _) => funnel.mode == Mode::StrictOrder,
            Self::Match(_) | Self::Count(_) => false,
        }
    }

    /// Does the order of rows of one time matter?
    fn needs_order_of_ties(&self) -> bool {
        matches!(self, Self::Match(_) | Self::Count(_))
    }
}

impl EventFunction {
    /// Constant arguments in front of the time.
    fn leading(&self, types: &[DataType]) -> usize {
        if self.question.is_some() {
            return 0;
        }
        let mode = types.get(1).is_some_and(is_text);
        1 + usize::from(self.kind.is_funnel() && mode)
    }

    /// Reads the constant arguments. `time`: the type of the column.
    fn question(
        &self,
        constants: &[ScalarValue],
        time: &DataType,
        conditions: usize,
    ) -> Result<Question> {
        let name = self.name();
        if self.kind.is_funnel() {
            let mode = match constants.get(1).map(|mode| mode.try_as_str().flatten()) {
                None => Mode::Default,
                Some(text) => match text.and_then(Mode::of_name) {
                    Some(mode) => mode,
                    None => return refuse!(Value, "the mode of {name} is {}", Mode::NAMES),
                },
            };
            let window = span(&constants[0], time, "window", name)?;
            let funnel = Funnel { window, mode, steps: conditions };
            return Ok(match self.kind {
                Kind::ConversionTimes => Question::Times(funnel, ticks(time).unwrap_or(1)),
                _ => Question::Funnel(funnel),
            });
        }
        let Some(text) = constants[0].try_as_str().flatten() else {
            return refuse!(Value, "{name} takes a pattern such as '(?1).*(?2)', not NULL");
        };
        let pattern = Pattern::parse(text, ticks(time).unwrap_or(1), conditions);
        match (pattern, self.kind) {
            (Ok(pattern), Kind::SequenceMatch) => Ok(Question::Match(pattern)),
            (Ok(pattern), _) => Ok(Question::Count(pattern)),
            (Err(problem), _) => {
                refuse!(Value, "{name} cannot read the pattern '{text}': {problem}")
            }
        }
    }

    fn groups(&self, args: &AccumulatorArgs) -> Result<EventGroups> {
        no_distinct(args, self.name())?;
        let types: Vec<DataType> =
            args.expr_fields.iter().map(|field| field.data_type().clone()).collect();
        let leading = self.leading(&types);
        let conditions = types.len() - leading - 1;
        let question = match &self.question {
            Some(question) => question.clone(),
            None => {
                let constants = constants(args, leading, self.name())?;
                self.question(&constants, &types[leading], conditions)?
            }
        };
        Ok(EventGroups { question, leading, conditions })
    }
}

/// What both accumulators need to know.
struct EventGroups {
    question: Question,
    leading: usize,
    conditions: usize,
}

impl EventGroups {
    fn of<M: Mask>(self) -> Groups<M> {
        let Self { question, leading, .. } = self;
        Groups {
            keep_all: question.needs_all_rows(),
            question,
            leading,
            groups: 0,
            log: EventLog::default(),
            ongoing: None,
            mask: PhantomData,
        }
    }

    fn is_narrow(&self) -> bool {
        self.conditions <= NARROW_CONDITIONS
    }
}

/// An item of the list that `conversion_times` gives.
fn second() -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Float64, false))
}

impl AggregateUDFImpl for EventFunction {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::WindowFunnel => "window_funnel",
            Kind::ConversionTimes => "conversion_times",
            Kind::SequenceMatch => "sequence_match",
            Kind::SequenceCount => "sequence_count",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let name = self.name();
        let leading = self.leading(given);
        let form = if self.kind.is_funnel() { "window, [mode,]" } else { "pattern," };
        if given.len() < leading + 2 {
            return refuse!(Call, "{name} takes ({form} time, condition, …)");
        }
        let mut types = Vec::with_capacity(given.len());
        if leading > 0 {
            types.push(match (self.kind.is_funnel(), &given[0]) {
                (true, window) => span_type(window, "window", name)?,
                (false, text) if is_text(text) => DataType::Utf8,
                _ => return refuse!(Call, "{name} takes a pattern such as '(?1).*(?2)' first"),
            });
            types.extend((1..leading).map(|_| DataType::Utf8));
        }
        types.push(time_type(&given[leading], name)?);
        let conditions = &given[leading + 1..];
        if conditions.len() > CONDITIONS_MAX {
            return refuse!(Call, "{name} takes at most {CONDITIONS_MAX} conditions");
        }
        for (i, condition) in conditions.iter().enumerate() {
            if !matches!(condition, DataType::Boolean | DataType::Null) {
                return refuse!(Call, "condition {} of {name} is neither true nor false", i + 1);
            }
            types.push(DataType::Boolean);
        }
        Ok(types)
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.kind {
            Kind::WindowFunnel => DataType::Int32,
            Kind::ConversionTimes => DataType::List(second()),
            Kind::SequenceMatch => DataType::Boolean,
            Kind::SequenceCount => DataType::Int64,
        })
    }

    fn is_nullable(&self) -> bool {
        false
    }

    fn default_value(&self, _: &DataType) -> Result<ScalarValue> {
        Ok(match self.kind {
            Kind::WindowFunnel => ScalarValue::Int32(Some(0)),
            Kind::ConversionTimes => {
                let seconds = new_empty_array(second().data_type());
                let nothing = OffsetBuffer::from_lengths([0]);
                ScalarValue::List(Arc::new(ListArray::try_new(second(), nothing, seconds, None)?))
            }
            Kind::SequenceMatch => ScalarValue::Boolean(Some(false)),
            Kind::SequenceCount => ScalarValue::Int64(Some(0)),
        })
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let groups = self.groups(&args)?;
        Ok(if groups.is_narrow() {
            Box::new(Single::new(groups.of::<u8>()))
        } else {
            Box::new(Single::new(groups.of::<u32>()))
        })
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let name = format!("{}[rows]", args.name);
        Ok(vec![Arc::new(Field::new(name, DataType::LargeBinary, true))])
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs) -> bool {
        true
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let groups = self.groups(&args)?;
        Ok(if groups.is_narrow() {
            Box::new(groups.of::<u8>())
        } else {
            Box::new(groups.of::<u32>())
        })
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        if self.question.is_some() {
            return None;
        }
        let function = self.clone();
        Some(Box::new(move |call: AggregateFunction, info| {
            let types = call.params.args.iter().map(|arg| info.get_data_type(arg));
            let types = types.collect::<Result<Vec<_>>>()?;
            let leading = function.leading(&types);
            let literals = call.params.args[..leading].iter().map(|arg| match arg {
                Expr::Literal(value, _) => Some(value.clone()),
                _ => None,
            });
            let Some(constants) = literals.collect::<Option<Vec<_>>>() else {
                return Ok(Expr::AggregateFunction(call));
            };
            let time = ScalarValue::try_from(&types[leading])?;
            let conditions = types.len() - leading - 1;
            let bound = function.bound_to(BoundConstants { constants, time, conditions })?;
            let mut args = call.params.args;
            args.drain(..leading);
            let params = AggregateFunctionParams { args, ..call.params };
            let func = Arc::new(AggregateUDF::from(bound));
            Ok(Expr::AggregateFunction(AggregateFunction { func, params }))
        }))
    }
}

#[derive(Debug)]
struct Groups<M> {
    question: Question,
    /// Constant arguments to step over.
    leading: usize,
    /// Rows without a condition matter, too.
    keep_all: bool,
    groups: usize,
    log: EventLog<M>,
    /// In place of the log, if rows come in the order of time.
    ongoing: Option<Ongoing>,
    mask: PhantomData<M>,
}

/// Per row, a bit for each condition that holds.
fn masks_of<M: Mask>(conditions: &[ArrayRef], rows: usize) -> Vec<M> {
    let mut masks = vec![M::default(); rows];
    for (i, condition) in conditions.iter().enumerate() {
        for row in holds(condition.as_boolean()).set_indices() {
            masks[row] = M::from_bits(masks[row].bits() | 1 << i);
        }
    }
    masks
}

/// The conditions of an event function as one number: the first is bit 0, and so on to the eighth.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct EventBits {
    conditions: Vec<Arc<dyn PhysicalExpr>>,
}

impl EventBits {
    /// The arguments of a function of this module with its conditions as one number of each row. `None` if
    /// it is not such a function, still has its constants, or has more conditions than fit.
    pub fn in_arguments(
        function: &AggregateUDF,
        arguments: &[Arc<dyn PhysicalExpr>],
    ) -> Option<Vec<Arc<dyn PhysicalExpr>>> {
        let function = function.inner().downcast_ref::<EventFunction>()?;
        let (time, conditions) = arguments.split_first()?;
        if function.question.is_none() || conditions.len() > NARROW_CONDITIONS {
            return None;
        }
        let bits = Self { conditions: conditions.to_vec() };
        Some(vec![Arc::clone(time), Arc::new(bits)])
    }

    /// What the bits are of.
    pub fn conditions(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.conditions
    }
}

impl fmt::Display for EventBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let conditions: Vec<String> = self.conditions.iter().map(ToString::to_string).collect();
        write!(f, "bits({})", conditions.join(", "))
    }
}

impl PhysicalExpr for EventBits {
    fn data_type(&self, _: &Schema) -> Result<DataType> {
        Ok(DataType::UInt8)
    }

    fn nullable(&self, _: &Schema) -> Result<bool> {
        Ok(false)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let rows = batch.num_rows();
        let held = |condition: &Arc<dyn PhysicalExpr>| condition.evaluate(batch)?.into_array(rows);
        let held = self.conditions.iter().map(held).collect::<Result<Vec<_>>>()?;
        let bits = UInt8Array::from(masks_of::<u8>(&held, rows));
        Ok(ColumnarValue::Array(Arc::new(bits)))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.conditions.iter().collect()
    }

    fn with_new_children(
        self: Arc<Self>,
        conditions: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(Self { conditions }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

fn of<M: Mask>(accumulator: &mut dyn GroupsAccumulator) -> Option<&mut Groups<M>> {
    (accumulator as &mut dyn Any).downcast_mut()
}

/// The time by which a function of this module, or `event_path`, orders rows, given its arguments.
pub fn time_of<'a>(
    function: &AggregateUDF,
    arguments: &'a [Arc<dyn PhysicalExpr>],
) -> Option<&'a Arc<dyn PhysicalExpr>> {
    let is_bound = match function.inner().downcast_ref::<EventFunction>() {
        Some(function) => function.question.is_some(),
        None => event_path::is_bound(function),
    };
    arguments.first().filter(|_| is_bound)
}

/// Promises that the rows of each group will come in the order of time, and that partial states are not
/// asked for. Does nothing to other functions than those of this module and `event_path`, and where rows are
/// needed anyway.
pub fn expect_order(accumulator: &mut dyn GroupsAccumulator) {
    fn expect<M: Mask>(groups: &mut Groups<M>) {
        if let Question::Funnel(funnel) = groups.question {
            groups.ongoing = Ongoing::new(funnel);
        }
    }
    if let Some(groups) = of::<u8>(accumulator) {
        expect(groups);
    } else if let Some(groups) = of::<u32>(accumulator) {
        expect(groups);
    } else {
        event_path::expect_order(accumulator);
    }
}

fn is_ongoing(accumulator: &mut dyn GroupsAccumulator) -> bool {
    let narrow = of::<u8>(accumulator).is_some_and(|groups| groups.ongoing.is_some());
    narrow || of::<u32>(accumulator).is_some_and(|groups| groups.ongoing.is_some())
}

/// Adds the rows of another accumulator of the same call, whose group `g` is `groups[g]` here, of `count`
/// there are; `false` if these are no accumulators of this module or `event_path`. A partial state would be all rows
/// once more.
pub fn absorb(
    accumulator: &mut dyn GroupsAccumulator,
    other: &mut dyn GroupsAccumulator,
    groups: &[usize],
    count: usize,
) -> bool {
    fn try_absorb<M: Mask>(
        mine: &mut Groups<M>,
        other: &mut Groups<M>,
        groups: &[usize],
        count: usize,
    ) {
        mine.groups = count;
        mine.log.absorb(std::mem::take(&mut other.log), groups);
    }
    if is_ongoing(accumulator) || is_ongoing(other) {
        return false;
    }
    if let (Some(mine), Some(other)) = (of::<u8>(accumulator), of::<u8>(other)) {
        try_absorb(mine, other, groups, count);
    } else if let (Some(mine), Some(other)) = (of::<u32>(accumulator), of::<u32>(other)) {
        try_absorb(mine, other, groups, count);
    } else {
        return event_path::absorb(accumulator, other, groups, count);
    }
    true
}

/// Calls `see` with the sorted rows of each group. `ties`: the order of rows of one time matters.
fn each_group<M: Mask>(groups: &mut ByGroup<M>, ties: bool, mut see: impl FnMut(&[i64], &[M])) {
    let mut rows = Vec::new();
    for pair in groups.starts.windows(2) {
        let times = &mut groups.times[pair[0]..pair[1]];
        let masks = &mut groups.masks[pair[0]..pair[1]];
        // Rows mostly come in the order of time.
        let sorted =
            times.windows(2).all(|pair| pair[0] < pair[1] || (!ties && pair[0] == pair[1]));
        if !sorted {
            rows.clear();
            rows.extend(times.iter().copied().zip(masks.iter().copied()));
            if ties {
                order(&mut rows);
            } else {
                // Stable sorting makes use of the sorted runs that the rows of each file are.
                rows.sort_by_key(|(time, _)| *time);
            }
            for (i, (time, mask)) in rows.iter().enumerate() {
                (times[i], masks[i]) = (*time, *mask);
            }
        }
        see(times, masks);
    }
}

/// What [`GroupsAccumulator::update_batch`] does, of rows that are in the groups of `runs`, `count` in all;
/// `false` if this is no accumulator of this module or `event_path`. Spares writing out the group of each row.
///
/// # Errors
/// Those of `update_batch`.
pub fn update_runs(
    accumulator: &mut dyn GroupsAccumulator,
    values: &[ArrayRef],
    runs: &[RowRun],
    count: usize,
) -> Result<bool> {
    if let Some(groups) = of::<u8>(accumulator) {
        groups.update(values, runs, None, count)?;
    } else if let Some(groups) = of::<u32>(accumulator) {
        groups.update(values, runs, None, count)?;
    } else {
        return event_path::update_runs(accumulator, values, runs, count);
    }
    Ok(true)
}

impl<M: Mask> Groups<M> {
    fn update(
        &mut self,
        values: &[ArrayRef],
        runs: &[RowRun],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.groups = count;
        let values = &values[self.leading..];
        let times = raw_times(&values[0])?;
        let masks: Vec<M> = match values[1].as_primitive_opt::<UInt8Type>() {
            Some(bits) => bits.values().iter().map(|bits| M::from_bits(u32::from(*bits))).collect(),
            None => masks_of(&values[1..], times.len()),
        };
        // Neither a row without a time nor one that FILTER leaves out.
        let valid = values[0].nulls().map(|valid| valid.inner().clone());
        let kept = match (valid, filter.map(holds)) {
            (Some(valid), Some(filter)) => Some(&valid & &filter),
            (valid, filter) => valid.or(filter),
        };
        let is_any_mask_well = self.keep_all || self.ongoing.is_some();
        if kept.is_none() && (is_any_mask_well || masks.iter().all(|mask| mask.bits() != 0)) {
            return self.add(runs, &times, &masks);
        }
        let is_wanted = |row: usize| {
            (self.keep_all || masks[row].bits() != 0)
                && kept.as_ref().is_none_or(|kept| kept.value(row))
        };
        let (mut wanted, mut left, mut row) = (Vec::new(), Vec::new(), 0);
        for RowRun { end, group } in runs.iter().copied() {
            let before = wanted.len();
            wanted.extend((row..end).filter(|row| is_wanted(*row)));
            row = end;
            if wanted.len() > before {
                left.push(RowRun { end: wanted.len(), group });
            }
        }
        let times: Vec<i64> = wanted.iter().map(|row| times[*row]).collect();
        let masks: Vec<M> = wanted.iter().map(|row| masks[*row]).collect();
        self.add(&left, &times, &masks)
    }

    fn add(&mut self, runs: &[RowRun], times: &[i64], masks: &[M]) -> Result<()> {
        match &mut self.ongoing {
            None => self.log.extend(runs, times, masks),
            Some(ongoing) => {
                if !ongoing.add(runs, times, masks, self.groups) {
                    return Err(DataFusionError::External(Box::new(NotInOrder)));
                }
            }
        }
        Ok(())
    }
}

impl<M: Mask> GroupsAccumulator for Groups<M> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.update(values, &row_runs(group_indices), filter, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        if let Some(ongoing) = &mut self.ongoing {
            let levels = ongoing.take(emit_to, self.groups);
            self.groups -= levels.len();
            return Ok(Arc::new(levels.into_iter().map(|n| n as i32).collect::<Int32Array>()));
        }
        let mut answers = Vec::with_capacity(self.groups);
        let mut seconds = Vec::new();
        let ties = self.question.needs_order_of_ties();
        self.groups -= self.log.take(emit_to, self.groups, |groups| {
            each_group(groups, ties, |times, masks| {
                answers.push(match &self.question {
                    Question::Funnel(funnel) => funnel.level(times, masks) as i64,
                    Question::Times(funnel, ticks) => {
                        let passed = funnel.passed(times, masks);
                        let since = |time: &i64| i128::from(*time) - i128::from(passed[0]);
                        seconds.extend(passed.iter().map(|t| since(t) as f64 / *ticks as f64));
                        passed.len() as i64
                    }
                    Question::Match(pattern) => i64::from(pattern.matches(times, masks)),
                    Question::Count(pattern) => pattern.count(times, masks),
                });
            });
        });
        Ok(match self.question {
            Question::Times(..) => {
                // Lists count their items in 32 bits.
                if i32::try_from(seconds.len()).is_err() {
                    return resources_err!(
                        "conversion_times has too many users at once; ask for fewer"
                    );
                }
                let offsets = OffsetBuffer::from_lengths(answers.iter().map(|n| *n as usize));
                let seconds = Arc::new(Float64Array::from(seconds));
                Arc::new(ListArray::try_new(second(), offsets, seconds, None)?)
            }
            Question::Funnel(_) => {
                Arc::new(answers.into_iter().map(|n| n as i32).collect::<Int32Array>()) as ArrayRef
            }
            Question::Match(_) => {
                Arc::new(BooleanArray::from_iter(answers.into_iter().map(|n| Some(n > 0))))
            }
            Question::Count(_) => Arc::new(Int64Array::from(answers)),
        })
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        if self.ongoing.is_some() {
            return internal_err!("a funnel of rows in order was asked for its rows");
        }
        let row_bytes = size_of::<i64>() + M::BYTES;
        let room = if matches!(emit_to, EmitTo::All) { self.log.rows() * row_bytes } else { 0 };
        let (mut bytes, mut offsets) = (Vec::with_capacity(room), vec![0]);
        self.groups -= self.log.take(emit_to, self.groups, |groups| {
            for pair in groups.starts.windows(2) {
                bytes.extend_from_slice(groups.times[pair[0]..pair[1]].to_byte_slice());
                for mask in &groups.masks[pair[0]..pair[1]] {
                    bytes.extend_from_slice(&mask.bits().to_le_bytes()[..M::BYTES]);
                }
                offsets.push(bytes.len() as i64);
            }
        });
        let offsets = OffsetBuffer::new(offsets.into());
        Ok(vec![Arc::new(LargeBinaryArray::try_new(offsets, Buffer::from_vec(bytes), None)?)])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        if self.ongoing.is_some() {
            return internal_err!("a funnel of rows in order was given others' rows");
        }
        self.groups = total_num_groups;
        let Some(states) = values.first() else { return Ok(()) };
        let states = states.as_binary::<i64>();
        let row_bytes = size_of::<i64>() + M::BYTES;
        for (state, group) in states.iter().zip(group_indices) {
            let Some(state) = state else { continue };
            let rows = state.len() / row_bytes;
            if rows * row_bytes != state.len() {
                return internal_err!("a partial state of a funnel is cut off");
            }
            let (raw_times, raw_masks) = state.split_at(rows * size_of::<i64>());
            let (mut times, mut masks) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
            for (time, mask) in raw_times.chunks_exact(8).zip(raw_masks.chunks_exact(M::BYTES)) {
                let (mut raw, mut bits) = ([0; 8], [0; 4]);
                raw.copy_from_slice(time);
                bits[..M::BYTES].copy_from_slice(mask);
                times.push(i64::from_ne_bytes(raw));
                masks.push(M::from_bits(u32::from_le_bytes(bits)));
            }
            self.log.extend(&[RowRun { end: rows, group: *group }], &times, &masks);
        }
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let rows = values[0].len();
        let question = self.question.clone();
        let mut each =
            Self { question, log: EventLog::default(), ongoing: None, groups: 0, ..*self };
        each.update_batch(values, &(0..rows).collect::<Vec<_>>(), filter, rows)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.log.size() + self.ongoing.as_ref().map_or(0, Ongoing::size)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::TimestampMicrosecondArray;
    use arrow::compute::cast;
    use arrow::datatypes::Float64Type;
    use arrow::datatypes::Int64Type;

    use super::*;
    use crate::random::Random;

    fn groups<M: Mask>(question: &Question) -> Groups<M> {
        EventGroups { question: question.clone(), leading: 0, conditions: 3 }.of()
    }

    /// Answers of rows split over partial accumulators, merged in the end.
    fn answers<M: Mask>(
        question: &Question,
        values: &[ArrayRef],
        group_of: &[usize],
        filter: &BooleanArray,
        random: &mut Random,
    ) -> ArrayRef {
        let mut last = groups::<M>(question);
        let mut at = 0;
        while at < group_of.len() {
            let rows = 1 + random.below((group_of.len() - at) as u64) as usize;
            let part: Vec<ArrayRef> = values.iter().map(|v| v.slice(at, rows)).collect();
            let (of, filter) = (&group_of[at..at + rows], filter.slice(at, rows));
            let mut partial = groups::<M>(question);
            let how = random.below(3);
            if how > 0 {
                partial.update_batch(&part, of, Some(&filter), 3).unwrap();
            }
            let (state, of) = match how {
                0 => (last.convert_to_state(&part, Some(&filter)).unwrap(), of.to_vec()),
                1 => (partial.state(EmitTo::All).unwrap(), (0..3).collect()),
                _ => {
                    assert!(absorb(&mut last, &mut partial, &[0, 1, 2], 3));
                    (Vec::new(), Vec::new())
                }
            };
            last.merge_batch(&state, &of, 3).unwrap();
            at += rows;
        }
        last.merge_batch(&[], &[], 3).unwrap();
        last.evaluate(EmitTo::All).unwrap()
    }

    #[test]
    fn every_order_and_split_gives_what_sorted_rows_give() {
        for seed in 0..3000 {
            let mut random = Random::new(seed);
            let rows = random.below(20) as usize;
            let mut cells = |nulls: u64| -> Vec<Option<u64>> {
                (0..rows).map(|_| Some(random.next()).filter(|n| n >> 40 & 7 >= nulls)).collect()
            };
            let times: Vec<Option<i64>> =
                cells(1).iter().map(|c| c.map(|n| (n % 12) as i64)).collect();
            let truths: Vec<Vec<Option<bool>>> =
                (0..3).map(|_| cells(1).iter().map(|c| c.map(|n| n % 3 == 0)).collect()).collect();
            let kept: Vec<Option<bool>> = cells(0).iter().map(|c| c.map(|n| n % 8 > 0)).collect();
            let group_of: Vec<usize> = (0..rows).map(|_| random.below(3) as usize).collect();
            let mut values: Vec<ArrayRef> =
                vec![Arc::new(TimestampMicrosecondArray::from(times.clone()))];
            values
                .extend(truths.iter().map(|c| Arc::new(BooleanArray::from(c.clone())) as ArrayRef));
            let filter = BooleanArray::from(kept.clone());

            let modes = [Mode::Default, Mode::StrictOrder, Mode::StrictIncrease, Mode::StrictDedup];
            let pattern = Pattern::parse("(?1)(?t<=0).*(?2)", 1, 3).unwrap();
            let funnel = |n| Funnel { window: 4, mode: modes[n as usize], steps: 3 };
            let question = match random.below(10) {
                0 => Question::Match(pattern),
                1 => Question::Count(pattern),
                n if n < 6 => Question::Funnel(funnel(n - 2)),
                n => Question::Times(funnel(n - 6), 2),
            };
            let narrow = answers::<u8>(&question, &values, &group_of, &filter, &mut random);
            let wide = answers::<u32>(&question, &values, &group_of, &filter, &mut random);
            assert_eq!(&narrow, &wide, "seed {seed}");
            for group in 0..3 {
                let mut own: Vec<(i64, u32)> = Vec::new();
                for row in (0..rows).filter(|r| group_of[*r] == group && kept[*r] == Some(true)) {
                    let bit = |i: usize| u32::from(truths[i][row] == Some(true)) << i;
                    let mask = bit(0) | bit(1) | bit(2);
                    own.extend(times[row].map(|time| (time, mask)));
                }
                order(&mut own);
                if question.needs_order_of_ties() {
                    own.retain(|row| row.1 != 0);
                }
                let (times, masks): (Vec<i64>, Vec<u32>) = own.into_iter().unzip();
                let expected = match &question {
                    Question::Times(funnel, _) => {
                        let passed = funnel.passed(&times, &masks);
                        let halves = passed.iter().map(|time| (time - passed[0]) as f64 / 2.0);
                        let found = narrow.as_list::<i32>().value(group);
                        let found = found.as_primitive::<Float64Type>().values();
                        assert_eq!(found, &halves.collect::<Vec<_>>(), "seed {seed}");
                        continue;
                    }
                    Question::Funnel(funnel) => funnel.level(&times, &masks) as i64,
                    Question::Match(pattern) => i64::from(pattern.matches(&times, &masks)),
                    Question::Count(pattern) => pattern.count(&times, &masks),
                };
                let found = cast(&narrow, &DataType::Int64).unwrap();
                let found = found.as_primitive::<Int64Type>().value(group);
                assert_eq!(found, expected, "seed {seed}: {question:?}");
            }
        }
    }
}
