//! `ab_test_mean`, `ab_test_proportion`, `ab_test_ratio`, `ab_test_cuped`, `ab_test_cuped_ratio` and
//! `srm_test`: what a report says of a metric, from a row per user.
//!
//! The figures are those of [`uplake_experiment`]: differences by Welch's test, lifts by Fieller's
//! interval, by one look or by several, without correction for many comparisons. The control is the
//! variant named as the last argument; else the one called "control"; else the first in the order of
//! names.
//!
//! # Invariants
//! - States are [`Moments`], which any order of adding and merging rounds alike: the same bytes
//!   whatever the thread count.
//! - Where there is no estimate, `note` says why and the figures are NULL; never NaN.

mod options;

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Float64Builder, Int64Array, Int64Builder, ListArray,
    StringArray, StringBuilder, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Float64Type};
use datafusion_common::{Result, ScalarValue, internal_datafusion_err};
use datafusion_expr::AggregateUDF;
use datafusion_expr::function::AccumulatorArgs;
use datafusion_physical_expr::expressions::Literal;
use uplake_experiment::Moments;
use uplake_experiment::cuped::{adjust_mean, adjust_mean_by_many, adjust_ratio};
use uplake_experiment::definition::{Inference, Shape};
use uplake_experiment::distribution::normal_isf;
use uplake_experiment::effect::{ArmFigure, Estimate, Pivot, Side, StatsError, absolute, lift};
use uplake_experiment::equivalence::{of_looks, of_one_look, two_one_sided};
use uplake_experiment::health::sample_ratio;
use uplake_experiment::sequential::{Look, anytime};

use crate::error::refuse;
use crate::fold::{Fold, Function};
use options::{Options, shares_of};

/// Numbers from before exposure that one test takes.
const COVARIATES_MAX: usize = 32;
/// Variants of a test: more are a sign of another column.
const VARIANTS_MAX: usize = 1000;
/// The variant that is the control without being named.
const CONTROL: &str = "control";

/// The functions, to be registered with a session.
pub(crate) fn functions() -> impl Iterator<Item = AggregateUDF> {
    Metric::ALL.into_iter().map(Function::aggregate).chain([SrmTest.aggregate()])
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Metric {
    Mean,
    Proportion,
    Ratio,
    Cuped,
    CupedRatio,
}

impl Metric {
    const ALL: [Self; 5] =
        [Self::Mean, Self::Proportion, Self::Ratio, Self::Cuped, Self::CupedRatio];

    /// How many of these arguments are numbers of a user, if they are what the function takes.
    fn numbers(self, given: &[DataType]) -> Option<usize> {
        let (variant, rest) = given.split_first()?;
        // More numbers may follow, so a name or options are told by their type.
        let ends = rest.last().is_some_and(|last| last.is_string() || is_options(last));
        let count = match self {
            Self::Mean | Self::Proportion => 1,
            Self::Ratio => 2,
            Self::Cuped => rest.len() - usize::from(ends),
            Self::CupedRatio => 4,
        };
        let (numbers, named) = rest.split_at_checked(count)?;
        let is_number = |given: &DataType| match self {
            Self::Proportion => matches!(given, DataType::Boolean | DataType::Null),
            Self::Cuped if *given == DataType::Boolean => true,
            _ => given.is_numeric() || given.is_null(),
        };
        let fits = is_name(variant)
            && numbers.iter().all(is_number)
            && (self != Self::Cuped || (2..=COVARIATES_MAX + 1).contains(&count))
            && matches!(named, [] | [_])
            && named.iter().all(|named| is_name(named) || is_options(named));
        fits.then_some(count)
    }

    fn figures(self, control: &Moments, treatment: &Moments) -> Result<[ArmFigure; 2], StatsError> {
        let shape = match self {
            Self::Mean | Self::Cuped => Shape::Mean,
            Self::Proportion => Shape::Proportion,
            Self::Ratio | Self::CupedRatio => Shape::Ratio,
        };
        let plain = [
            ArmFigure::of(shape, control, Side::Control)?,
            ArmFigure::of(shape, treatment, Side::Treatment)?,
        ];
        let adjusted = match (self, control.columns() - 1) {
            (Self::Cuped, 1) => adjust_mean(control, treatment, 0, 1),
            (Self::Cuped, covariates) => {
                let columns: Vec<usize> = (1..=covariates).collect();
                adjust_mean_by_many(control, treatment, 0, &columns).0
            }
            (Self::CupedRatio, _) => adjust_ratio(control, treatment),
            _ => return Ok(plain),
        };
        Ok([adjusted.control, adjusted.treatment])
    }
}

impl Function for Metric {
    type Fold = Compare;

    fn name(&self) -> &'static str {
        match self {
            Self::Mean => "ab_test_mean",
            Self::Proportion => "ab_test_proportion",
            Self::Ratio => "ab_test_ratio",
            Self::Cuped => "ab_test_cuped",
            Self::CupedRatio => "ab_test_cuped_ratio",
        }
    }

    fn coerce(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let takes = match self {
            Self::Mean => "number",
            Self::Proportion => "true or false",
            Self::Ratio => "numerator, denominator",
            Self::Cuped => "number, number before exposure, …",
            Self::CupedRatio => "numerator, denominator, and both before exposure",
        };
        let Some(numbers) = self.numbers(given) else {
            return refuse!(
                Call,
                "{} takes (variant, {takes} [, control or options]), a row per user",
                self.name()
            );
        };
        let number = if *self == Self::Proportion { DataType::Boolean } else { DataType::Float64 };
        let named = given[numbers + 1..]
            .iter()
            .map(|named| if is_options(named) { named.clone() } else { DataType::Utf8 });
        Ok([DataType::Utf8].into_iter().chain(vec![number; numbers]).chain(named).collect())
    }

    fn output(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(item()))
    }

    fn fold(&self, args: &AccumulatorArgs) -> Result<Compare> {
        let types: Vec<DataType> =
            args.expr_fields.iter().map(|field| field.data_type().clone()).collect();
        let is_named = types.last().is_some_and(|last| *last == DataType::Utf8 || is_options(last));
        let numbers = types.len() - 1 - usize::from(is_named);
        let options = match args.exprs.get(numbers + 1) {
            None => Options::default(),
            Some(given) => match given.downcast_ref::<Literal>() {
                Some(given) => Options::of(given.value(), self.name())?,
                None => {
                    return refuse!(
                        Value,
                        "the control of {} must be a constant name",
                        self.name()
                    );
                }
            },
        };
        Ok(Compare { metric: *self, numbers, options })
    }
}

fn is_options(given: &DataType) -> bool {
    matches!(given, DataType::Struct(_))
}

/// Names are text, and what is often used for them.
fn is_name(given: &DataType) -> bool {
    let given = match given {
        DataType::Dictionary(_, of) => of.as_ref(),
        given => given,
    };
    given.is_string() || given.is_integer() || matches!(given, DataType::Boolean | DataType::Null)
}

fn fields() -> Fields {
    let number = |name: &str| Field::new(name, DataType::Float64, true);
    let mut fields = vec![
        Field::new("variant", DataType::Utf8, false),
        Field::new("users", DataType::Int64, false),
    ];
    fields.extend(NUMBERS.map(number));
    fields.push(Field::new("note", DataType::Utf8, true));
    fields.into()
}

const NUMBERS: [&str; 11] = [
    "value",
    "control_value",
    "difference",
    "low",
    "high",
    "p_value",
    "lift",
    "lift_low",
    "lift_high",
    "lift_p_value",
    "equivalence_p",
];

fn item() -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Struct(fields()), false))
}

/// The variants of a group in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Arms(Vec<(String, Moments)>);

impl Arms {
    fn of(&mut self, name: &str, columns: usize, function: &str) -> Result<&mut Moments> {
        let place = self.0.iter().position(|(arm, _)| arm == name);
        let place = match place {
            Some(place) => place,
            None if self.0.len() == VARIANTS_MAX => {
                return refuse!(TooMany, "{function} met more than {VARIANTS_MAX} variants");
            }
            None => {
                self.0.push((name.to_owned(), Moments::new(columns)));
                self.0.len() - 1
            }
        };
        Ok(&mut self.0[place].1)
    }

    /// Per variant the length of its name, the name, the count of numbers, the numbers.
    fn save(&self, bytes: &mut Vec<u8>) {
        for (name, moments) in &self.0 {
            bytes.extend((name.len() as u64).to_le_bytes());
            bytes.extend(name.as_bytes());
            let state = moments.to_state();
            state.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        }
    }

    fn merge(&mut self, mut bytes: &[u8], columns: usize, function: &str) -> Result<()> {
        let cut_off = || internal_datafusion_err!("a partial state of {function} is cut off");
        let numbers = Moments::new(columns).to_state().len();
        while !bytes.is_empty() {
            let (length, rest) = bytes.split_first_chunk::<8>().ok_or_else(cut_off)?;
            let length = u64::from_le_bytes(*length) as usize;
            let (name, rest) = rest.split_at_checked(length).ok_or_else(cut_off)?;
            let (state, rest) = rest.split_at_checked(8 * numbers).ok_or_else(cut_off)?;
            let mut raw = [0; 8];
            let number = |chunk: &[u8]| {
                raw.copy_from_slice(chunk);
                f64::from_le_bytes(raw)
            };
            let state: Vec<f64> = state.chunks_exact(8).map(number).collect();
            let name = std::str::from_utf8(name).map_err(|_| cut_off())?;
            let moments = Moments::from_state(columns, &state).ok_or_else(cut_off)?;
            self.of(name, columns, function)?.merge(&moments);
            bytes = rest;
        }
        Ok(())
    }

    /// An upper bound for names up to 64 bytes.
    fn heap_bytes(&self) -> usize {
        let columns = self.0.first().map_or(0, |(_, moments)| moments.columns());
        // A pivot, sums and products in 106 bits.
        let numbers = columns + 2 * columns + columns * (columns + 1);
        self.0.capacity() * (size_of::<(String, Moments)>() + 64 + 8 * numbers)
    }
}

/// A metric, how many numbers of a user it takes, and how it is tested.
#[derive(Debug, Clone)]
pub(crate) struct Compare {
    metric: Metric,
    numbers: usize,
    options: Options,
}

/// One treatment against the control.
struct Comparison {
    variant: String,
    users: i64,
    numbers: [Option<f64>; NUMBERS.len()],
    note: Option<String>,
}

/// What is made of an estimate of one look.
enum Looks {
    Once,
    Anytime { users: u64, planned: u64 },
    GroupSequential(Look),
}

impl Looks {
    fn apply(&self, estimate: Estimate, alpha: f64) -> Result<Estimate, StatsError> {
        match self {
            Self::Once => Ok(estimate),
            Self::Anytime { users, planned } => anytime(estimate, *users, *planned, alpha),
            Self::GroupSequential(look) => look.apply(estimate),
        }
    }
}

impl Compare {
    fn comparisons(&self, mut arms: Vec<(String, Moments)>) -> Vec<Comparison> {
        arms.sort_by(|a, b| a.0.cmp(&b.0));
        let seen: Vec<(String, f64)> =
            arms.iter().map(|(name, arm)| (name.clone(), arm.count() as f64)).collect();
        let shares = self.options.shares.as_ref().unwrap_or(&seen);
        let named = self.options.control.as_deref();
        let wanted = named.unwrap_or(CONTROL);
        let control = arms.iter().position(|(name, _)| name == wanted);
        let control = control.or(named.is_none().then_some(0));
        let control = control.filter(|place| *place < arms.len()).map(|place| arms.remove(place));
        let compare = |arm: (String, Moments)| {
            let mut numbers = [None; NUMBERS.len()];
            let note = match &control {
                Some(control) => self.compare(control, &arm, shares, &mut numbers),
                None => Err(format!("there is no variant '{wanted}' to compare with")),
            };
            let note = note.map_or_else(Some, |note| note.map(str::to_owned));
            Comparison { users: arm.1.count() as i64, variant: arm.0, numbers, note }
        };
        arms.into_iter().map(compare).collect()
    }

    /// Users of this pair now and planned, or the look of today.
    fn looks(
        &self,
        pair: [&(String, Moments); 2],
        shares: &[(String, f64)],
    ) -> Result<Looks, String> {
        let planned_of_all = match self.options.inference {
            Inference::Anytime { planned_users }
            | Inference::GroupSequential { planned_users, .. } => planned_users,
            Inference::Fixed | Inference::Bayesian { .. } => return Ok(Looks::Once),
        };
        let (mut of_pair, mut users) = (0.0, 0);
        for (name, moments) in pair {
            let share = shares.iter().find(|(known, _)| known == name);
            let share = share.ok_or_else(|| format!("'shares' do not name '{name}'"))?;
            (of_pair, users) = (of_pair + share.1, users + moments.count());
        }
        let of_all: f64 = shares.iter().map(|(_, share)| share).sum();
        let planned = (planned_of_all as f64 * of_pair / of_all).round().max(1.0) as u64;
        let Inference::GroupSequential { looks, .. } = self.options.inference else {
            return Ok(Looks::Anytime { users, planned });
        };
        let look = Look::at(users, planned, looks, self.options.alpha);
        Ok(Looks::GroupSequential(look.map_err(|error| error.to_string())?))
    }

    /// The figures, and what is to be noted of them; an error says why there are none, or no more.
    fn compare(
        &self,
        control: &(String, Moments),
        treatment: &(String, Moments),
        shares: &[(String, f64)],
        numbers: &mut [Option<f64>; NUMBERS.len()],
    ) -> Result<Option<&'static str>, String> {
        let said = |error: StatsError| error.to_string();
        let alpha = self.options.alpha;
        let looks = self.looks([control, treatment], shares)?;
        let [control, treatment] = self.metric.figures(&control.1, &treatment.1).map_err(said)?;
        numbers[0] = Some(treatment.value);
        numbers[1] = Some(control.value);
        let once = absolute(&control, &treatment, alpha).map_err(said)?;
        let difference = looks.apply(once, alpha).map_err(said)?;
        let Estimate { value, low, high, p, .. } = difference;
        numbers[2..6].copy_from_slice(&[value, low, high, p].map(Some));
        // A report does not divide by what cannot be told from 0 either.
        if control.baseline_strength() < normal_isf(alpha / 2.0) {
            return Err(said(StatsError::ZeroControlMean));
        }
        let pivot = Pivot::of(&control, &treatment).map_err(said)?;
        let lift = match looks {
            Looks::Once => lift(&control, &treatment, alpha),
            _ => pivot.looked_at(&difference),
        };
        let Estimate { value, low, high, p, .. } = lift.map_err(said)?;
        numbers[6..10].copy_from_slice(&[value, low, high, p].map(Some));
        if let Some(margin) = self.options.equivalence {
            let p = |distance: Estimate, side: f64| match looks {
                Looks::Once => of_one_look(distance, side),
                _ => Ok(of_looks(looks.apply(distance, alpha)?, side)),
            };
            let p = two_one_sided(margin, |lift| pivot.distance(lift, alpha), p);
            numbers[10] = Some(p.map_err(said)?);
        }
        let is_between = matches!(&looks, Looks::GroupSequential(look) if !look.planned);
        Ok(is_between.then_some("users are between two planned looks: nothing may be called"))
    }
}

impl Fold for Compare {
    type State = Arms;
    type Columns = (StringArray, Vec<Float64Array>);

    fn columns(&self, values: &[ArrayRef]) -> Result<Self::Columns> {
        let number = |column: &ArrayRef| {
            Ok(cast(column, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
        };
        let numbers = values[1..=self.numbers].iter().map(number);
        Ok((values[0].as_string::<i32>().clone(), numbers.collect::<Result<_>>()?))
    }

    /// A row in which something is NULL does not count.
    fn add(&self, arms: &mut Arms, columns: &Self::Columns, row: usize) -> Result<()> {
        let (names, numbers) = columns;
        if names.is_null(row) || numbers.iter().any(|column| column.is_null(row)) {
            return Ok(());
        }
        let mut of_user = [0.0; COVARIATES_MAX + 1];
        for (slot, column) in of_user.iter_mut().zip(numbers) {
            *slot = column.value(row);
        }
        let moments = arms.of(names.value(row), numbers.len(), self.metric.name())?;
        moments.add(&of_user[..numbers.len()]);
        Ok(())
    }

    fn save(&self, arms: &Arms, bytes: &mut Vec<u8>) {
        arms.save(bytes);
    }

    fn merge(&self, arms: &mut Arms, bytes: &[u8]) -> Result<()> {
        arms.merge(bytes, self.numbers, self.metric.name())
    }

    fn finish(&self, states: Vec<Arms>) -> Result<ArrayRef> {
        let (mut variants, mut users) = (StringBuilder::new(), Int64Builder::new());
        let mut numbers: Vec<Float64Builder> = NUMBERS.map(|_| Float64Builder::new()).into();
        let mut notes = StringBuilder::new();
        let mut lengths = Vec::with_capacity(states.len());
        for arms in states {
            let comparisons = self.comparisons(arms.0);
            lengths.push(comparisons.len());
            for comparison in comparisons {
                variants.append_value(comparison.variant);
                users.append_value(comparison.users);
                let slots = numbers.iter_mut().zip(comparison.numbers);
                slots.for_each(|(column, number)| column.append_option(number));
                notes.append_option(comparison.note);
            }
        }
        let mut columns: Vec<ArrayRef> =
            vec![Arc::new(variants.finish()), Arc::new(users.finish())];
        columns.extend(numbers.iter_mut().map(|column| Arc::new(column.finish()) as ArrayRef));
        columns.push(Arc::new(notes.finish()));
        let rows = Arc::new(StructArray::try_new(fields(), columns, None)?);
        let offsets = OffsetBuffer::from_lengths(lengths);
        Ok(Arc::new(ListArray::try_new(item(), offsets, rows, None)?))
    }

    fn heap_bytes(arms: &Arms) -> usize {
        arms.heap_bytes()
    }
}

/// `srm_test(variant [, {name: share, …}])`: do the users fall into variants as planned?
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SrmTest;

impl Function for SrmTest {
    type Fold = SampleRatio;

    fn name(&self) -> &'static str {
        "srm_test"
    }

    fn coerce(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let (name, shares) = match given {
            [name] => (name, None),
            [name, DataType::Struct(shares)] => (name, Some(shares)),
            _ => {
                return refuse!(
                    Call,
                    "srm_test takes (variant [, {{'a': 0.5, 'b': 0.5}}]), a row per user"
                );
            }
        };
        let numbers = |shares: &Fields| shares.iter().all(|share| share.data_type().is_numeric());
        if !is_name(name) || !shares.is_none_or(numbers) {
            return refuse!(
                Call,
                "srm_test takes (variant [, {{'a': 0.5, 'b': 0.5}}]), a row per user"
            );
        }
        let double = |share: &FieldRef| Field::new(share.name(), DataType::Float64, true);
        let shares = shares.map(|shares| DataType::Struct(shares.iter().map(double).collect()));
        Ok([DataType::Utf8].into_iter().chain(shares).collect())
    }

    fn output(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Struct(srm_fields()))
    }

    fn fold(&self, args: &AccumulatorArgs) -> Result<SampleRatio> {
        let Some(shares) = args.exprs.get(1) else { return Ok(SampleRatio { shares: None }) };
        let Some(literal) = shares.downcast_ref::<Literal>() else {
            return refuse!(Value, "the shares of srm_test must be constants");
        };
        let ScalarValue::Struct(shares) = literal.value() else {
            return refuse!(Value, "the shares of srm_test are such as {{'a': 0.5, 'b': 0.5}}");
        };
        Ok(SampleRatio { shares: Some(shares_of(shares, "srm_test")?) })
    }
}

fn srm_fields() -> Fields {
    let number = |name: &str| Field::new(name, DataType::Float64, true);
    let whole = |name: &str| Field::new(name, DataType::Int64, true);
    vec![whole("users"), number("chi_square"), whole("df"), number("p_value")].into()
}

/// The planned shares; equal ones of the variants seen if `None`.
#[derive(Debug, Clone)]
pub(crate) struct SampleRatio {
    shares: Option<Vec<(String, f64)>>,
}

impl Fold for SampleRatio {
    type State = Arms;
    type Columns = StringArray;

    fn columns(&self, values: &[ArrayRef]) -> Result<StringArray> {
        Ok(values[0].as_string::<i32>().clone())
    }

    fn add(&self, arms: &mut Arms, names: &StringArray, row: usize) -> Result<()> {
        if names.is_valid(row) {
            arms.of(names.value(row), 0, "srm_test")?.add(&[]);
        }
        Ok(())
    }

    fn save(&self, arms: &Arms, bytes: &mut Vec<u8>) {
        arms.save(bytes);
    }

    fn merge(&self, arms: &mut Arms, bytes: &[u8]) -> Result<()> {
        arms.merge(bytes, 0, "srm_test")
    }

    /// NULL where no test can be made: fewer than two variants.
    fn finish(&self, states: Vec<Arms>) -> Result<ArrayRef> {
        let tests: Vec<_> = states
            .into_iter()
            .map(|arms| {
                let (users, shares) = self.users_and_shares(arms.0);
                let total = users.iter().sum::<u64>() as i64;
                sample_ratio(&users, &shares).ok().map(|test| (total, test))
            })
            .collect();
        let of = |number: fn(&uplake_experiment::health::SampleRatio) -> f64| -> ArrayRef {
            let numbers = tests.iter().map(|test| test.as_ref().map(|(_, test)| number(test)));
            Arc::new(numbers.collect::<Float64Array>())
        };
        let users = tests.iter().map(|test| test.as_ref().map(|(users, _)| *users));
        let df = tests.iter().map(|test| test.as_ref().map(|(_, test)| i64::from(test.df)));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(users.collect::<Int64Array>()),
            of(|test| test.chi_square),
            Arc::new(df.collect::<Int64Array>()),
            of(|test| test.p),
        ];
        let valid = NullBuffer::from_iter(tests.iter().map(Option::is_some));
        Ok(Arc::new(StructArray::try_new(srm_fields(), columns, Some(valid))?))
    }

    fn heap_bytes(arms: &Arms) -> usize {
        arms.heap_bytes()
    }
}

impl SampleRatio {
    fn users_and_shares(&self, mut arms: Vec<(String, Moments)>) -> (Vec<u64>, Vec<f64>) {
        arms.sort_by(|a, b| a.0.cmp(&b.0));
        let Some(planned) = &self.shares else {
            return (arms.iter().map(|(_, m)| m.count()).collect(), vec![1.0; arms.len()]);
        };
        let users_of = |name: &String| {
            arms.iter().find(|(arm, _)| arm == name).map_or(0, |(_, moments)| moments.count())
        };
        let unplanned = arms.iter().filter(|(arm, _)| planned.iter().all(|(name, _)| name != arm));
        let unplanned = unplanned.map(|(_, moments)| (moments.count(), 0.0));
        let planned = planned.iter().map(|(name, share)| (users_of(name), *share));
        planned.chain(unplanned).unzip()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::BooleanArray;
    use arrow::datatypes::Int64Type;

    use super::*;
    use crate::fold::answers_of_split;
    use crate::random::Random;

    /// Rows of users: variant, two numbers, yes or no.
    struct Users {
        names: Vec<Option<&'static str>>,
        columns: [ArrayRef; 4],
    }

    fn users(random: &mut Random, rows: usize) -> Users {
        let pick = |random: &mut Random| {
            [Some("B"), Some("control"), Some("A"), None][random.below(4) as usize]
        };
        let names: Vec<_> = (0..rows).map(|_| pick(random)).collect();
        let number = |random: &mut Random| {
            (random.below(12) > 0).then(|| random.below(1000) as f64 / 7.0 + 1e6)
        };
        let numbers = |random: &mut Random| -> ArrayRef {
            Arc::new((0..rows).map(|_| number(random)).collect::<Float64Array>())
        };
        let (a, b) = (numbers(random), numbers(random));
        let truths = BooleanArray::from_iter((0..rows).map(|_| Some(random.below(3) == 0)));
        let truths = cast(&(Arc::new(truths) as ArrayRef), &DataType::Float64).unwrap();
        Users { columns: [Arc::new(StringArray::from(names.clone())), a, b, truths], names }
    }

    fn moments(users: &Users, variant: &str, columns: &[usize]) -> Moments {
        let mut moments = Moments::new(columns.len());
        for (row, name) in users.names.iter().enumerate() {
            let cells = columns.iter().map(|i| users.columns[*i].as_primitive::<Float64Type>());
            let cells: Option<Vec<f64>> =
                cells.map(|column| column.is_valid(row).then(|| column.value(row))).collect();
            if let (Some(cells), true) = (cells, *name == Some(variant)) {
                moments.add(&cells);
            }
        }
        moments
    }

    #[test]
    fn every_split_gives_the_bits_of_the_reports_own_functions() {
        for seed in 0..60 {
            let mut random = Random::new(seed);
            let users = users(&mut random, 40 + seed as usize);
            let rows = users.names.len();
            for (metric, columns) in [
                (Metric::Mean, &[1][..]),
                (Metric::Proportion, &[3]),
                (Metric::Ratio, &[1, 2]),
                (Metric::Cuped, &[1, 2]),
                (Metric::Cuped, &[1, 2, 3]),
                (Metric::CupedRatio, &[1, 2, 3, 1]),
            ] {
                let mut values = vec![Arc::clone(&users.columns[0])];
                values.extend(columns.iter().map(|i| Arc::clone(&users.columns[*i])));
                let named = (seed % 3 == 0).then(|| "B".to_owned());
                let (control, others) =
                    if named.is_some() { ("B", ["A", "control"]) } else { ("control", ["A", "B"]) };
                let options = Options { control: named, ..Options::default() };
                let fold = Compare { metric, numbers: columns.len(), options };
                let found = answers_of_split(&fold, &values, &vec![0; rows], 1, &mut random);
                let found = found.as_list::<i32>().value(0);
                let found = found.as_struct();
                let of = |name: &str| {
                    found.column_by_name(name).unwrap().as_primitive::<Float64Type>().clone()
                };
                assert_eq!(found.len(), 2, "seed {seed}");
                for (i, variant) in others.into_iter().enumerate() {
                    let arms = [control, variant].map(|arm| moments(&users, arm, columns));
                    let [a, b] = &arms;
                    let (a, b) = match metric {
                        Metric::Mean => (ArmFigure::mean(a, 0), ArmFigure::mean(b, 0)),
                        Metric::Proportion => {
                            (ArmFigure::proportion(a, 0), ArmFigure::proportion(b, 0))
                        }
                        Metric::Ratio => (ArmFigure::ratio(a, 0, 1), ArmFigure::ratio(b, 0, 1)),
                        Metric::Cuped | Metric::CupedRatio => {
                            let adjusted = match columns.len() {
                                2 => adjust_mean(a, b, 0, 1),
                                3 => adjust_mean_by_many(a, b, 0, &[1, 2]).0,
                                _ => adjust_ratio(a, b),
                            };
                            (adjusted.control, adjusted.treatment)
                        }
                    };
                    let what = format!("seed {seed}, {metric:?}, {variant}");
                    let same = |name: &str, expected: f64| {
                        assert_eq!(
                            of(name).value(i).to_bits(),
                            expected.to_bits(),
                            "{what}: {name}"
                        );
                    };
                    assert_eq!(found.column(0).as_string::<i32>().value(i), variant, "{what}");
                    let users = found.column(1).as_primitive::<Int64Type>().value(i);
                    assert_eq!(users as u64, b.users, "{what}");
                    let (difference, lift) = (absolute(&a, &b, 0.05).unwrap(), lift(&a, &b, 0.05));
                    same("value", b.value);
                    same("control_value", a.value);
                    same("difference", difference.value);
                    same("low", difference.low);
                    same("high", difference.high);
                    same("p_value", difference.p);
                    match lift {
                        Ok(lift) if a.baseline_strength() >= 2.0 => {
                            same("lift", lift.value);
                            same("lift_low", lift.low);
                            same("lift_high", lift.high);
                            same("lift_p_value", lift.p);
                        }
                        Ok(_) => {}
                        Err(_) => assert!(of("lift").is_null(i), "{what}"),
                    }
                }
            }
        }
    }

    #[test]
    fn no_estimate_has_a_note_and_no_numbers() {
        let check = |names: Vec<&str>, numbers: Vec<f64>, control: Option<&str>, note: &str| {
            let values: [ArrayRef; 2] =
                [Arc::new(StringArray::from(names)), Arc::new(Float64Array::from(numbers))];
            let options = Options { control: control.map(str::to_owned), ..Options::default() };
            let fold = Compare { metric: Metric::Mean, numbers: 1, options };
            let rows = values[0].len();
            let found = answers_of_split(&fold, &values, &vec![0; rows], 1, &mut Random::new(1));
            let found = found.as_list::<i32>().value(0);
            let found = found.as_struct();
            assert!(found.column_by_name("lift").unwrap().is_null(0), "{note}");
            let said = found.column_by_name("note").unwrap();
            assert!(said.as_string::<i32>().value(0).contains(note), "{said:?}");
        };
        check(vec!["a", "a", "b"], vec![1.0, 2.0, 3.0], None, "single user");
        check(vec!["a", "a", "b", "b"], vec![1.0, 2.0, 3.0, 3.0], None, "same value");
        check(vec!["a", "a", "b", "b"], vec![-1.0, 1.0, 3.0, 4.0], None, "told from 0");
        check(vec!["a", "a"], vec![1.0, 2.0], Some("x"), "no variant 'x'");
        check(vec!["a", "a", "b", "b"], vec![1.0, 2.0, f64::NAN, 4.0], None, "not a number");
    }

    #[test]
    fn sample_ratios_are_the_reports() {
        let names: Vec<&str> = ["a"; 30].into_iter().chain(["b"; 50]).chain(["c"; 1]).collect();
        let values: [ArrayRef; 1] = [Arc::new(StringArray::from(names))];
        let check = |shares: Option<Vec<(&str, f64)>>, expected: Option<(&[u64], &[f64])>| {
            let shares =
                shares.map(|s| s.into_iter().map(|(n, share)| (n.to_owned(), share)).collect());
            let fold = SampleRatio { shares };
            let found = answers_of_split(&fold, &values, &[0; 81], 1, &mut Random::new(2));
            let found = found.as_struct();
            assert_eq!(found.is_valid(0), expected.is_some());
            let Some((users, shares)) = expected else { return };
            let expected = sample_ratio(users, shares).unwrap();
            let of = |i: usize| found.column(i).as_primitive::<Float64Type>().value(0);
            assert_eq!((of(1), of(3)), (expected.chi_square, expected.p));
            assert_eq!(found.column(0).as_primitive::<Int64Type>().value(0), 81);
        };
        check(None, Some((&[30, 50, 1], &[1.0, 1.0, 1.0])));
        check(
            Some(vec![("b", 2.0), ("a", 1.0), ("c", 0.1)]),
            Some((&[50, 30, 1], &[2.0, 1.0, 0.1])),
        );
        check(Some(vec![("a", 0.5), ("b", 0.5)]), Some((&[30, 50, 1], &[0.5, 0.5, 0.0])));
        check(Some(vec![("a", 1.0)]), None);
    }
}
