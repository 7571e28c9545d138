//! `event_path` as an aggregate.
//!
//! It keeps a user's rows in a log ([`crate::event_log`]): 8 bytes for the time and 4 for the event, whose name
//! is kept once. Where rows are known to come in the order of time ([`expect_order`]) it keeps paths and no
//! rows.
//!
//! # Invariants
//! - Constant arguments (window, steps, mode) are read once when a statement is planned.
//! - A partial state is a group's rows and the names in them, in native byte order: it stays on the machine.

use std::any::Any;
use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, LargeBinaryArray, ListArray, StringViewArray,
    StructArray, make_view,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion_common::{
    DataFusionError, HashMap, Result, ScalarValue, internal_err, resources_err,
};
use datafusion_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion_expr::function::{
    AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs,
};
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, Expr, GroupsAccumulator, Signature,
    Volatility,
};

use crate::arguments::{BoundConstants, constants, no_distinct};
use crate::error::refuse;
use crate::event_log::{EventLog, RowRun, row_runs};
use crate::events::{NotInOrder, holds, is_text, raw_times};
use crate::path::{Event, NAMES_MAX, Path, Rules, STEPS_MAX};
use crate::single::Single;
use crate::time::{span, span_type, time_type};

const NAME: &str = "event_path";
const FORM: &str = "(window, steps, [mode,] time, event, condition of the start, of the end)";
/// Arguments that are no constants: time, event, start, end.
const COLUMNS: usize = 4;
/// Before all times but itself.
const NEVER: i64 = i64::MIN;

/// The function, to be registered with a session.
pub(crate) fn function() -> AggregateUDF {
    let signature = Signature::user_defined(Volatility::Immutable);
    AggregateUDF::from(EventPath { signature, rules: None, bound: None })
}

/// Is it the function with its constant arguments read and taken off?
pub(crate) fn is_bound(function: &AggregateUDF) -> bool {
    let function = function.inner().downcast_ref::<EventPath>();
    function.is_some_and(|function| function.rules.is_some())
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct EventPath {
    signature: Signature,
    /// Set when the constant arguments have been read and taken off.
    rules: Option<Rules>,
    /// And what they were.
    bound: Option<BoundConstants>,
}

pub(crate) fn is_named(name: &str) -> bool {
    name == NAME
}

/// What the function was made of.
pub(crate) fn bound_constants(function: &AggregateUDF) -> Option<&BoundConstants> {
    function.inner().downcast_ref::<EventPath>()?.bound.as_ref()
}

/// The function that is made of them.
pub(crate) fn bind(bound: BoundConstants) -> Result<AggregateUDF> {
    if bound.constants.len() < 2 {
        return datafusion_common::plan_err!("{NAME} takes {FORM}");
    }
    let rules = Some(EventPath::read(&bound.constants, &bound.time.data_type())?);
    let signature = Signature::user_defined(Volatility::Immutable);
    Ok(AggregateUDF::from(EventPath { signature, rules, bound: Some(bound) }))
}

impl EventPath {
    /// Constant arguments in front of the time.
    fn leading(&self, types: &[DataType]) -> usize {
        match self.rules {
            Some(_) => 0,
            None => 2 + usize::from(types.get(2).is_some_and(is_text)),
        }
    }

    fn read(constants: &[ScalarValue], time: &DataType) -> Result<Rules> {
        let window = span(&constants[0], time, "window", NAME)?;
        let steps = match constants[1] {
            ScalarValue::Int64(Some(steps)) => usize::try_from(steps).unwrap_or(0),
            _ => 0,
        };
        if !(1..=STEPS_MAX).contains(&steps) {
            return refuse!(Value, "the steps of {NAME} are a whole number from 1 to {STEPS_MAX}");
        }
        let mode = constants.get(2).map(|mode| mode.try_as_str().flatten().unwrap_or_default());
        let collapses_repeats = match mode.map(str::to_ascii_lowercase).as_deref() {
            None | Some("default") => false,
            Some("collapse_repeats") => true,
            Some(_) => {
                return refuse!(Value, "the mode of {NAME} is 'default' or 'collapse_repeats'");
            }
        };
        Ok(Rules { window, steps, collapses_repeats })
    }

    fn groups(&self, args: &AccumulatorArgs) -> Result<Groups> {
        no_distinct(args, NAME)?;
        let types: Vec<DataType> =
            args.expr_fields.iter().map(|field| field.data_type().clone()).collect();
        let leading = self.leading(&types);
        let rules = match self.rules {
            Some(rules) => rules,
            None => Self::read(&constants(args, leading, NAME)?, &types[leading])?,
        };
        Ok(Groups::new(rules, leading))
    }
}

/// Of the struct that the function gives.
fn fields() -> Fields {
    let event = Arc::new(Field::new_list_field(DataType::Utf8View, false));
    Fields::from(vec![
        Field::new("events", DataType::List(event), true),
        Field::new("reached", DataType::Boolean, true),
        Field::new("truncated", DataType::Boolean, true),
    ])
}

impl AggregateUDFImpl for EventPath {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let leading = self.leading(given);
        if given.len() != leading + COLUMNS {
            return refuse!(Call, "{NAME} takes {FORM}");
        }
        let mut types = Vec::with_capacity(given.len());
        if leading > 0 {
            types.push(span_type(&given[0], "window", NAME)?);
            if !given[1].is_integer() {
                return refuse!(
                    Call,
                    "the steps of {NAME} are a whole number from 1 to {STEPS_MAX}"
                );
            }
            types.push(DataType::Int64);
            types.extend((2..leading).map(|_| DataType::Utf8));
        }
        let columns = &given[leading..];
        types.push(time_type(&columns[0], NAME)?);
        match &columns[1] {
            DataType::Dictionary(_, of) if is_text(of) => {}
            text if is_text(text) || text.is_null() => {}
            _ => {
                return refuse!(
                    Call,
                    "the event of {NAME} is a text; cast it, such as event::text"
                );
            }
        }
        types.push(DataType::Utf8View);
        for (condition, which) in columns[2..].iter().zip(["start", "end"]) {
            if !matches!(condition, DataType::Boolean | DataType::Null) {
                return refuse!(Call, "the {which} of {NAME} is neither true nor false");
            }
            types.push(DataType::Boolean);
        }
        Ok(types)
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Struct(fields()))
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Single::new(self.groups(&args)?)))
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
        Ok(Box::new(self.groups(&args)?))
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        if self.rules.is_some() {
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
            let mut args = call.params.args;
            args.drain(..leading);
            let params = AggregateFunctionParams { args, ..call.params };
            let func = Arc::new(bind(BoundConstants { constants, time, conditions })?);
            Ok(Expr::AggregateFunction(AggregateFunction { func, params }))
        }))
    }
}

/// Names of events by number.
#[derive(Debug, Default)]
struct Names {
    numbers: HashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
    bytes: usize,
}

impl Names {
    fn number(&mut self, name: &str) -> Result<u32> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        if self.names.len() == NAMES_MAX {
            return resources_err!("{NAME} has more than {NAMES_MAX} different events");
        }
        let (number, name) = (self.names.len() as u32, Arc::<str>::from(name));
        // The text and its counts, in the list, and in the table, of which a quarter may be empty.
        self.bytes += name.len() + 2 * size_of::<usize>() + 3 * size_of::<(Arc<str>, u32)>();
        self.names.push(Arc::clone(&name));
        self.numbers.insert(name, number);
        Ok(number)
    }

    /// Puts rows of one time in order.
    fn order(&self, events: &mut [Event]) {
        let name = |event: &Event| &self.names[event.name() as usize];
        events.sort_unstable_by(|a, b| a.rank().cmp(&b.rank()).then_with(|| name(a).cmp(name(b))));
    }

    /// Adds rows of one time, in any order.
    fn follow(&self, path: &mut Path, time: i64, events: &mut [Event], rules: &Rules) {
        if events.len() > 1 {
            self.order(events);
        }
        events.iter().for_each(|event| path.add(time, *event, rules));
    }
}

/// The path of one group whose rows come in the order of time. Rows of its last time wait, because they are taken
/// together.
#[derive(Debug, Clone)]
struct Walk {
    path: Path,
    time: i64,
    waiting: Vec<Event>,
}

impl Default for Walk {
    fn default() -> Self {
        Self { path: Path::default(), time: NEVER, waiting: Vec::new() }
    }
}

impl Walk {
    /// `false` if the row does not come in the order of time.
    fn add(&mut self, time: i64, event: Event, names: &Names, rules: &Rules) -> bool {
        if time > self.time {
            self.take_waiting(names, rules);
            self.time = time;
        } else if time < self.time || time == NEVER {
            return false;
        }
        if self.path.is_over() {
            self.waiting = Vec::new();
        } else {
            self.waiting.push(event);
        }
        true
    }

    fn take_waiting(&mut self, names: &Names, rules: &Rules) {
        names.follow(&mut self.path, self.time, &mut self.waiting, rules);
        self.waiting.clear();
    }

    fn heap_bytes(&self) -> usize {
        self.path.steps.capacity() * size_of::<u32>() + self.waiting.capacity() * size_of::<Event>()
    }
}

/// Paths of groups whose rows come in the order of time.
#[derive(Debug, Default)]
struct Ongoing {
    walks: Vec<Walk>,
    heap_bytes: usize,
}

#[derive(Debug)]
struct Groups {
    rules: Rules,
    /// Constant arguments to step over.
    leading: usize,
    names: Names,
    groups: usize,
    log: EventLog<u32>,
    /// In place of the log, if rows come in the order of time.
    ongoing: Option<Ongoing>,
}

/// Promises what [`crate::expect_order`] does.
pub(crate) fn expect_order(accumulator: &mut dyn GroupsAccumulator) {
    if let Some(groups) = (accumulator as &mut dyn Any).downcast_mut::<Groups>() {
        groups.ongoing = Some(Ongoing::default());
    }
}

/// As [`crate::absorb`].
pub(crate) fn absorb(
    accumulator: &mut dyn GroupsAccumulator,
    other: &mut dyn GroupsAccumulator,
    groups: &[usize],
    count: usize,
) -> bool {
    let mine = (accumulator as &mut dyn Any).downcast_mut::<Groups>();
    let other = (other as &mut dyn Any).downcast_mut::<Groups>();
    let (Some(mine), Some(other)) = (mine, other) else { return false };
    if mine.ongoing.is_some() || other.ongoing.is_some() {
        return false;
    }
    let numbers = other.names.names.iter().map(|name| mine.names.number(name));
    let Ok(numbers) = numbers.collect::<Result<Vec<u32>>>() else { return false };
    let mut log = std::mem::take(&mut other.log);
    log.change_masks(|bits| {
        let event = Event::from_bits(bits);
        event.renamed(numbers[event.name() as usize]).bits()
    });
    mine.groups = count;
    mine.log.absorb(log, groups);
    true
}

/// As [`crate::update_runs`].
pub(crate) fn update_runs(
    accumulator: &mut dyn GroupsAccumulator,
    values: &[ArrayRef],
    runs: &[RowRun],
    count: usize,
) -> Result<bool> {
    let Some(groups) = (accumulator as &mut dyn Any).downcast_mut::<Groups>() else {
        return Ok(false);
    };
    groups.update(values, runs, None, count)?;
    Ok(true)
}

impl Groups {
    fn new(rules: Rules, leading: usize) -> Self {
        let (names, log) = (Names::default(), EventLog::default());
        Self { rules, leading, names, groups: 0, log, ongoing: None }
    }

    fn update(
        &mut self,
        values: &[ArrayRef],
        runs: &[RowRun],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.groups = count;
        let [time, event, start_met, end_met] = &values[self.leading..] else {
            return internal_err!("{NAME} was given other arguments than it asked for");
        };
        let (starts, ends) = (holds(start_met.as_boolean()), holds(end_met.as_boolean()));
        let (all_times, texts) = (raw_times(time)?, event.as_string_view());
        let filter = filter.map(|filter| NullBuffer::new(holds(filter)));
        let valid = NullBuffer::union_many([time.nulls(), texts.nulls(), filter.as_ref()]);
        let (mut times, mut events, mut left) = (Vec::new(), Vec::new(), Vec::new());
        let mut row = 0;
        for RowRun { end, group } in runs.iter().copied() {
            let before = times.len();
            for row in row..end {
                if valid.as_ref().is_none_or(|valid| valid.is_valid(row)) {
                    let name = self.names.number(texts.value(row))?;
                    events.push(Event::new(name, starts.value(row), ends.value(row)).bits());
                    times.push(all_times[row]);
                }
            }
            row = end;
            if times.len() > before {
                left.push(RowRun { end: times.len(), group });
            }
        }
        self.add(&left, &times, &events)
    }

    fn add(&mut self, runs: &[RowRun], times: &[i64], events: &[u32]) -> Result<()> {
        let Some(ongoing) = &mut self.ongoing else {
            self.log.extend(runs, times, events);
            return Ok(());
        };
        ongoing.walks.resize_with(self.groups, Walk::default);
        let mut from = 0;
        for RowRun { end, group } in runs.iter().copied() {
            let walk = &mut ongoing.walks[group];
            let before = walk.heap_bytes();
            for (time, bits) in times[from..end].iter().zip(&events[from..end]) {
                if !walk.add(*time, Event::from_bits(*bits), &self.names, &self.rules) {
                    return Err(DataFusionError::External(Box::new(NotInOrder)));
                }
            }
            ongoing.heap_bytes = ongoing.heap_bytes + walk.heap_bytes() - before;
            from = end;
        }
        Ok(())
    }

    /// The paths of the groups to be emitted.
    fn take(&mut self, emit_to: EmitTo) -> Vec<Path> {
        let (rules, names) = (&self.rules, &self.names);
        if let Some(ongoing) = &mut self.ongoing {
            ongoing.walks.resize_with(self.groups, Walk::default);
            let mut walks = emit_to.take_needed(&mut ongoing.walks);
            ongoing.heap_bytes -= walks.iter().map(Walk::heap_bytes).sum::<usize>();
            self.groups -= walks.len();
            walks.iter_mut().for_each(|walk| walk.take_waiting(names, rules));
            return walks.into_iter().map(|walk| walk.path).collect();
        }
        let (mut paths, mut rows) = (Vec::with_capacity(self.groups), Vec::new());
        self.groups -= self.log.take(emit_to, self.groups, |groups| {
            for pair in groups.starts.windows(2) {
                let times = groups.times[pair[0]..pair[1]].iter().copied();
                let events = groups.masks[pair[0]..pair[1]].iter().copied().map(Event::from_bits);
                rows.clear();
                rows.extend(times.zip(events));
                // Stable sorting makes use of the sorted runs that the rows of each file are.
                rows.sort_by_key(|(time, _): &(i64, Event)| *time);
                paths.push(path_of(&rows, names, rules));
            }
        });
        paths
    }
}

/// `rows`: in the order of time.
fn path_of(rows: &[(i64, Event)], names: &Names, rules: &Rules) -> Path {
    let (mut path, mut same) = (Path::default(), Vec::new());
    for rows in rows.chunk_by(|a, b| a.0 == b.0) {
        same.clear();
        same.extend(rows.iter().map(|(_, event)| *event));
        names.follow(&mut path, rows[0].0, &mut same, rules);
        if path.is_over() {
            break;
        }
    }
    path
}

/// A text of so many bytes stands in its view.
const SHORT_TEXT: usize = 12;

/// Texts as views of one buffer that has each name once.
#[derive(Default)]
struct Texts {
    views: HashMap<u32, u128>,
    bytes: Vec<u8>,
}

impl Texts {
    fn view(&mut self, number: u32, names: &Names) -> Result<u128> {
        if let Some(view) = self.views.get(&number) {
            return Ok(*view);
        }
        let name = names.names[number as usize].as_bytes();
        let Ok(offset) = u32::try_from(self.bytes.len()) else {
            return resources_err!("the names of events in {NAME} take more than 4 GiB");
        };
        let view = make_view(name, 0, offset);
        if name.len() > SHORT_TEXT {
            self.bytes.extend_from_slice(name);
        }
        self.views.insert(number, view);
        Ok(view)
    }
}

/// The answers.
fn answers(paths: &[Path], names: &Names) -> Result<ArrayRef> {
    let steps: usize = paths.iter().map(|path| path.steps.len()).sum();
    // Lists count their items in 32 bits.
    if i32::try_from(steps).is_err() {
        return resources_err!("{NAME} has too many users at once; ask for fewer users or steps");
    }
    let (mut texts, mut views) = (Texts::default(), Vec::with_capacity(steps));
    for number in paths.iter().flat_map(|path| &path.steps) {
        views.push(texts.view(*number, names)?);
    }
    let buffers = vec![Buffer::from_vec(texts.bytes)];
    let views = StringViewArray::try_new(ScalarBuffer::from(views), buffers, None)?;
    let begun = NullBuffer::from_iter(paths.iter().map(Path::has_begun));
    let fields = fields();
    let DataType::List(event) = fields[0].data_type() else {
        return internal_err!("the events of {NAME} are no list");
    };
    let offsets = OffsetBuffer::from_lengths(paths.iter().map(|path| path.steps.len()));
    let events =
        ListArray::try_new(Arc::clone(event), offsets, Arc::new(views), Some(begun.clone()))?;
    let truth = |is: fn(&Path) -> bool| {
        let values = paths.iter().map(is).collect();
        Arc::new(BooleanArray::new(values, Some(begun.clone()))) as ArrayRef
    };
    let columns =
        vec![Arc::new(events) as ArrayRef, truth(Path::has_reached), truth(Path::is_truncated)];
    Ok(Arc::new(StructArray::try_new(fields, columns, Some(begun.clone()))?))
}

impl GroupsAccumulator for Groups {
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
        let paths = self.take(emit_to);
        answers(&paths, &self.names)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        if self.ongoing.is_some() {
            return internal_err!("paths of rows in order were asked for their rows");
        }
        let (mut bytes, mut offsets) = (Vec::new(), vec![0]);
        let names = &self.names;
        self.groups -= self.log.take(emit_to, self.groups, |groups| {
            for pair in groups.starts.windows(2) {
                let (times, masks) =
                    (&groups.times[pair[0]..pair[1]], &groups.masks[pair[0]..pair[1]]);
                save(times, masks, names, &mut bytes);
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
            return internal_err!("paths of rows in order were given others' rows");
        }
        self.groups = total_num_groups;
        let Some(states) = values.first() else { return Ok(()) };
        for (state, group) in states.as_binary::<i64>().iter().zip(group_indices) {
            let Some((times, masks)) = read(state.unwrap_or_default(), &mut self.names)? else {
                return internal_err!("a partial state of {NAME} is cut off");
            };
            self.log.extend(&[RowRun { end: times.len(), group: *group }], &times, &masks);
        }
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let rows = values[0].len();
        let mut each = Self::new(self.rules, self.leading);
        each.update_batch(values, &(0..rows).collect::<Vec<_>>(), filter, rows)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        let ongoing = self.ongoing.as_ref();
        let walks = |o: &Ongoing| o.walks.capacity() * size_of::<Walk>() + o.heap_bytes;
        self.log.size() + self.names.bytes + ongoing.map_or(0, walks)
    }
}

/// Bytes of a row in a partial state: its time and event.
const ROW_BYTES: usize = 12;

/// Appends a group's rows and the names in them: how many rows, rows, and for each name its length and bytes.
/// Names are numbered as they first appear. Nothing for no rows.
fn save(times: &[i64], masks: &[u32], names: &Names, bytes: &mut Vec<u8>) {
    if times.is_empty() {
        return;
    }
    let (mut numbers, mut used) = (HashMap::new(), Vec::new());
    bytes.extend((times.len() as u64).to_ne_bytes());
    for (time, bits) in times.iter().zip(masks) {
        let event = Event::from_bits(*bits);
        let number = *numbers.entry(event.name()).or_insert_with(|| {
            used.push(event.name());
            used.len() as u32 - 1
        });
        bytes.extend(time.to_ne_bytes());
        bytes.extend(event.renamed(number).bits().to_ne_bytes());
    }
    for number in used {
        let name = names.names[number as usize].as_bytes();
        bytes.extend((name.len() as u64).to_ne_bytes());
        bytes.extend(name);
    }
}

/// Reads what [`save`] wrote; `None` if it is cut off.
fn read(bytes: &[u8], names: &mut Names) -> Result<Option<(Vec<i64>, Vec<u32>)>> {
    fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
        let (number, rest) = bytes.split_first_chunk()?;
        Some((u64::from_ne_bytes(*number) as usize, rest))
    }
    if bytes.is_empty() {
        return Ok(Some((Vec::new(), Vec::new())));
    }
    let rows_and_names = number(bytes).and_then(|(rows, rest)| {
        let rows = rows.checked_mul(ROW_BYTES)?;
        rest.split_at_checked(rows)
    });
    let Some((rows, mut rest)) = rows_and_names else { return Ok(None) };
    let mut numbers = Vec::new();
    while let Some((length, after)) = number(rest) {
        let Some((name, after)) = after.split_at_checked(length) else { return Ok(None) };
        let Ok(name) = std::str::from_utf8(name) else { return Ok(None) };
        numbers.push(names.number(name)?);
        rest = after;
    }
    let (mut times, mut masks) = (Vec::new(), Vec::new());
    for row in rows.chunks_exact(ROW_BYTES) {
        let (Some((time, bits)), true) = (row.split_first_chunk(), rest.is_empty()) else {
            return Ok(None);
        };
        let Ok(bits) = <[u8; 4]>::try_from(bits) else { return Ok(None) };
        let event = Event::from_bits(u32::from_ne_bytes(bits));
        let Some(number) = numbers.get(event.name() as usize) else { return Ok(None) };
        times.push(i64::from_ne_bytes(*time));
        masks.push(event.renamed(*number).bits());
    }
    Ok(Some((times, masks)))
}

#[cfg(test)]
mod tests {
    use arrow::array::{TimestampMicrosecondArray, UInt64Array};
    use arrow::compute::take;

    use super::*;
    use crate::random::Random;

    const EVENTS: [&str; 4] = ["a", "b", "", "a name that is longer than a view"];
    const GROUPS: usize = 3;

    /// Events, whether the end was reached, whether there were more events.
    type Told = Option<(Vec<String>, bool, bool)>;

    /// The documentation's words: put in order, cut off what comes before the start, after the window and
    /// after the end, then repeats, then what is too long.
    fn model(mut rows: Vec<(i64, &str, bool, bool)>, rules: &Rules) -> Told {
        let class = |starts: bool, ends: bool| match (starts, ends) {
            (true, ends) => u8::from(ends),
            (false, ends) => 2 + u8::from(ends),
        };
        rows.sort_by(|a, b| {
            let of = |row: &(i64, &str, bool, bool)| (row.0, class(row.2, row.3));
            of(a).cmp(&of(b)).then(a.1.cmp(b.1))
        });
        let start = rows.iter().position(|row| row.2)?;
        let mut path = rows.split_off(start);
        let first_time = path[0].0;
        path.retain(|row| row.0 <= first_time + rules.window);
        let end = path.iter().skip(1).position(|row| row.3);
        path.truncate(end.map_or(path.len(), |end| end + 2));
        let mut names: Vec<String> = path.iter().map(|row| row.1.to_owned()).collect();
        if rules.collapses_repeats {
            names.dedup();
        }
        let is_truncated = names.len() > rules.steps;
        names.truncate(rules.steps);
        Some((names, end.is_some(), is_truncated))
    }

    fn told(answers: &ArrayRef) -> Vec<Told> {
        let answers = answers.as_struct();
        let events = answers.column(0).as_list::<i32>();
        let one = |row: usize| {
            let is_there = answers.is_valid(row);
            assert!(answers.columns().iter().all(|column| column.is_valid(row) == is_there));
            let of = |column: usize| answers.column(column).as_boolean().value(row);
            let names = events.value(row);
            let names = names.as_string_view().iter().map(|name| name.unwrap().to_owned());
            is_there.then(|| (names.collect(), of(1), of(2)))
        };
        (0..answers.len()).map(one).collect()
    }

    /// Random rows: columns as they are given, groups, filter.
    struct Table {
        values: Vec<ArrayRef>,
        group_of: Vec<usize>,
        filter: BooleanArray,
    }

    impl Table {
        fn new(random: &mut Random) -> Self {
            let rows = random.below(24) as usize;
            let span = 1 + random.below(20);
            let mut column = |values: u64, nulls: u64| -> Vec<Option<u64>> {
                let mut cell = || Some(random.below(values)).filter(|_| random.below(9) >= nulls);
                (0..rows).map(|_| cell()).collect()
            };
            let times = column(span, 1).into_iter().map(|t| t.map(|t| t as i64));
            let times = TimestampMicrosecondArray::from_iter(times);
            let events = column(4, 1).into_iter().map(|e| e.map(|e| EVENTS[e as usize]));
            let events = StringViewArray::from_iter(events);
            let mut truths = |of: u64| -> BooleanArray {
                column(of, 1).into_iter().map(|truth| truth.map(|n| n == 0)).collect()
            };
            let (starts, ends, not_kept) = (truths(4), truths(7), truths(10));
            let kept = not_kept.iter().map(|not| not.map(|not| !not));
            let filter = BooleanArray::from_iter(kept);
            let group_of = (0..rows).map(|_| random.below(GROUPS as u64) as usize).collect();
            let values: Vec<ArrayRef> =
                vec![Arc::new(times), Arc::new(events), Arc::new(starts), Arc::new(ends)];
            Self { values, group_of, filter }
        }

        /// The rows at these places, in this order.
        fn at(&self, places: &[usize]) -> Self {
            let indices = UInt64Array::from_iter_values(places.iter().map(|row| *row as u64));
            Self {
                values: self.values.iter().map(|c| take(c, &indices, None).unwrap()).collect(),
                group_of: places.iter().map(|row| self.group_of[*row]).collect(),
                filter: take(&self.filter, &indices, None).unwrap().as_boolean().clone(),
            }
        }

        fn expected(&self, rules: &Rules) -> Vec<Told> {
            let times = raw_times(&self.values[0]).unwrap();
            let texts = self.values[1].as_string_view();
            let truth =
                |column: &BooleanArray, row: usize| column.is_valid(row) && column.value(row);
            let rows_of = |group: usize| {
                let counts = |row: &usize| {
                    let valid = self.values[..2].iter().all(|column| column.is_valid(*row));
                    self.group_of[*row] == group && valid && truth(&self.filter, *row)
                };
                let row = |row: usize| {
                    let of = |column: usize| truth(self.values[column].as_boolean(), row);
                    (times[row], texts.value(row), of(2), of(3))
                };
                (0..self.group_of.len()).filter(counts).map(row).collect()
            };
            (0..GROUPS).map(|group| model(rows_of(group), rules)).collect()
        }
    }

    /// Answers of rows in any order, split over partial accumulators.
    fn in_parts(table: &Table, rules: Rules, random: &mut Random) -> Vec<Told> {
        let mut places: Vec<usize> = (0..table.group_of.len()).collect();
        random.shuffle(&mut places);
        let mut last = Groups::new(rules, 0);
        let mut rest = places.as_slice();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(1 + random.below(rest.len() as u64) as usize);
            rest = later;
            let part = table.at(now);
            let mut partial = Groups::new(rules, 0);
            let update = |groups: &mut Groups| {
                let filter = Some(&part.filter);
                groups.update_batch(&part.values, &part.group_of, filter, GROUPS).unwrap();
            };
            match random.below(4) {
                0 => update(&mut last),
                1 => {
                    let state = last.convert_to_state(&part.values, Some(&part.filter)).unwrap();
                    last.merge_batch(&state, &part.group_of, GROUPS).unwrap();
                }
                2 => {
                    update(&mut partial);
                    let state = partial.state(EmitTo::All).unwrap();
                    last.merge_batch(&state, &[0, 1, 2], GROUPS).unwrap();
                    assert_eq!(partial.log.size(), 0);
                }
                _ => {
                    update(&mut partial);
                    assert!(absorb(&mut last, &mut partial, &[0, 1, 2], GROUPS));
                }
            }
        }
        last.merge_batch(&[], &[], GROUPS).unwrap();
        let mut answers = told(&last.evaluate(EmitTo::First(2)).unwrap());
        answers.extend(told(&last.evaluate(EmitTo::All).unwrap()));
        assert_eq!(last.log.size(), 0);
        answers
    }

    /// Answers of rows that come in the order of time, by and by.
    fn in_order(table: &Table, rules: Rules, random: &mut Random) -> Vec<Told> {
        let mut places: Vec<usize> = (0..table.group_of.len()).collect();
        random.shuffle(&mut places);
        let times = raw_times(&table.values[0]).unwrap();
        places.sort_by_key(|row| times[*row]);
        let mut groups = Groups::new(rules, 0);
        expect_order(&mut groups);
        let mut rest = places.as_slice();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(1 + random.below(rest.len() as u64) as usize);
            rest = later;
            let part = table.at(now);
            let filter = Some(&part.filter);
            groups.update_batch(&part.values, &part.group_of, filter, GROUPS).unwrap();
        }
        groups.groups = GROUPS;
        let mut answers = told(&groups.evaluate(EmitTo::First(1)).unwrap());
        answers.extend(told(&groups.evaluate(EmitTo::All).unwrap()));
        assert_eq!(groups.ongoing.unwrap().heap_bytes, 0);
        answers
    }

    #[test]
    fn every_order_and_split_gives_what_the_documentation_says() {
        let mut kinds = [0; 5];
        for seed in 0..6000 {
            let mut random = Random::new(seed);
            let rules = Rules {
                window: random.below(25) as i64,
                steps: 1 + random.below(6) as usize,
                collapses_repeats: random.below(2) == 0,
            };
            let table = Table::new(&mut random);
            let expected = table.expected(&rules);
            assert_eq!(in_parts(&table, rules, &mut random), expected, "seed {seed}: {rules:?}");
            assert_eq!(in_order(&table, rules, &mut random), expected, "seed {seed}: {rules:?}");
            for path in expected {
                kinds[match path {
                    None => 0,
                    Some((_, reached, truncated)) => {
                        1 + 2 * usize::from(reached) + usize::from(truncated)
                    }
                }] += 1;
            }
        }
        assert!(kinds.iter().all(|count| *count > 300), "cases too easy: {kinds:?}");
    }

    #[test]
    fn rows_that_do_not_come_in_the_order_of_time_are_noticed() {
        let rules = Rules { window: 9, steps: 9, collapses_repeats: false };
        let check = |times: [i64; 2], is_order: bool| {
            let mut groups = Groups::new(rules, 0);
            expect_order(&mut groups);
            let truths: ArrayRef = Arc::new(BooleanArray::from(vec![true, false]));
            let values: Vec<ArrayRef> = vec![
                Arc::new(TimestampMicrosecondArray::from(times.to_vec())),
                Arc::new(StringViewArray::from(vec!["a", "b"])),
                Arc::clone(&truths),
                truths,
            ];
            let done = groups.update_batch(&values, &[0, 0], None, 1);
            assert_eq!(done.is_ok(), is_order, "{times:?}");
        };
        check([3, 3], true);
        check([3, 4], true);
        check([4, 3], false);
        check([i64::MIN, 3], false);
    }

    #[test]
    fn a_window_at_the_end_of_time_does_not_overflow() {
        let rules = Rules { window: i64::MAX, steps: 9, collapses_repeats: false };
        let mut path = Path::default();
        path.add(i64::MAX - 1, Event::new(0, true, false), &rules);
        path.add(i64::MAX, Event::new(1, false, true), &rules);
        assert!(path.has_reached());
        let mut path = Path::default();
        path.add(i64::MIN, Event::new(0, true, false), &rules);
        path.add(i64::MAX, Event::new(1, false, true), &rules);
        assert!(path.is_over() && !path.has_reached());
    }

    #[test]
    fn a_state_that_is_cut_off_is_an_error() {
        let mut names = Names::default();
        let numbers = [names.number("a").unwrap(), names.number("bc").unwrap()];
        let masks = numbers.map(|number| Event::new(number, true, false).bits());
        let mut bytes = Vec::new();
        save(&[5, 6], &masks, &names, &mut bytes);
        let whole = read(&bytes, &mut Names::default()).unwrap();
        assert_eq!(whole, Some((vec![5, 6], masks.to_vec())));
        for length in 1..bytes.len() {
            let found = read(&bytes[..length], &mut Names::default()).unwrap();
            assert_eq!(found, None, "{length} of {} bytes", bytes.len());
        }
    }
}
