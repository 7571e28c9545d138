//! `ab_test_mean`, `ab_test_proportion`, `ab_test_ratio`, `ab_test_cuped` and `srm_test`: what a
//! report says of a metric, from a row per user.
//!
//! The figures are those of [`uplake_experiment`]: differences by Welch's test, lifts by the delta
//! method, each with its 95 % interval and two-sided p-value, without correction for many
//! comparisons. The control is the variant named as the last argument; else the one called
//! "control"; else the first in the order of names.
//!
//! # Invariants
//! - States are [`Moments`], which any order of adding and merging rounds alike: the same bytes
//!   whatever the thread count.
//! - Where there is no estimate, `note` says why and the figures are NULL; never NaN.

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Float64Builder, Int64Array, Int64Builder, ListArray,
    StringArray, StringBuilder, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Float64Type};
use datafusion_common::{Result, ScalarValue, exec_datafusion_err, exec_err, plan_err};
use datafusion_expr::AggregateUDF;
use datafusion_expr::function::AccumulatorArgs;
use datafusion_physical_expr::expressions::Literal;
use uplake_experiment::Moments;
use uplake_experiment::cuped::adjust_mean;
use uplake_experiment::definition::Shape;
use uplake_experiment::distribution::normal_isf;
use uplake_experiment::effect::{ArmFigure, Estimate, Side, StatsError, absolute, lift};
use uplake_experiment::health::sample_ratio;

use crate::fold::{Fold, Function};

/// The intervals cover 95 %, as those of a report without `alpha`.
const ALPHA: f64 = 0.05;
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
}

impl Metric {
    const ALL: [Self; 4] = [Self::Mean, Self::Proportion, Self::Ratio, Self::Cuped];

    /// Numbers per user.
    fn columns(self) -> usize {
        match self {
            Self::Mean | Self::Proportion => 1,
            Self::Ratio | Self::Cuped => 2,
        }
    }

    fn figures(self, control: &Moments, treatment: &Moments) -> Result<[ArmFigure; 2], StatsError> {
        let shape = match self {
            Self::Mean | Self::Cuped => Shape::Mean,
            Self::Proportion => Shape::Proportion,
            Self::Ratio => Shape::Ratio,
        };
        let plain = [
            ArmFigure::of(shape, control, Side::Control)?,
            ArmFigure::of(shape, treatment, Side::Treatment)?,
        ];
        if self == Self::Cuped {
            let adjusted = adjust_mean(control, treatment, 0, 1);
            return Ok([adjusted.control, adjusted.treatment]);
        }
        Ok(plain)
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
        }
    }

    fn coerce(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let takes = match self {
            Self::Mean => "(variant, number [, control])",
            Self::Proportion => "(variant, true or false [, control])",
            Self::Ratio => "(variant, numerator, denominator [, control])",
            Self::Cuped => "(variant, number, number before exposure [, control])",
        };
        let is_number = |given: &DataType| match self {
            Self::Proportion => matches!(given, DataType::Boolean | DataType::Null),
            _ => given.is_numeric() || given.is_null(),
        };
        let count = self.columns();
        let fits = (given.len() == count + 1 || given.len() == count + 2)
            && is_name(&given[0])
            && given[1..=count].iter().all(is_number)
            && given.get(count + 1).is_none_or(is_name);
        if !fits {
            return plan_err!("{} takes {takes}, a row per user", self.name());
        }
        let number = if *self == Self::Proportion { DataType::Boolean } else { DataType::Float64 };
        let mut types = vec![number; given.len()];
        types[0] = DataType::Utf8;
        if given.len() == count + 2 {
            types[count + 1] = DataType::Utf8;
        }
        Ok(types)
    }

    fn output(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(item()))
    }

    fn fold(&self, args: &AccumulatorArgs) -> Result<Compare> {
        let control = match args.exprs.get(self.columns() + 1) {
            None => None,
            Some(named) => {
                let literal = named.downcast_ref::<Literal>();
                let name = literal.and_then(|literal| literal.value().try_as_str().flatten());
                let Some(name) = name else {
                    return plan_err!("the control of {} must be a constant name", self.name());
                };
                Some(name.to_owned())
            }
        };
        Ok(Compare { metric: *self, control })
    }
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

const NUMBERS: [&str; 10] = [
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
                return exec_err!("{function} met more than {VARIANTS_MAX} variants");
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
        let cut_off = || exec_datafusion_err!("a partial state of {function} is cut off");
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
        const ARM_BYTES: usize = size_of::<(String, Moments)>() + 64 + 16 * 8;
        self.0.capacity() * ARM_BYTES
    }
}

/// A metric, and who is the control.
#[derive(Debug, Clone)]
pub(crate) struct Compare {
    metric: Metric,
    control: Option<String>,
}

/// One treatment against the control.
struct Comparison {
    variant: String,
    users: i64,
    numbers: [Option<f64>; NUMBERS.len()],
    note: Option<String>,
}

impl Compare {
    fn comparisons(&self, mut arms: Vec<(String, Moments)>) -> Vec<Comparison> {
        arms.sort_by(|a, b| a.0.cmp(&b.0));
        let named = self.control.as_deref();
        let wanted = named.unwrap_or(CONTROL);
        let control = arms.iter().position(|(name, _)| name == wanted);
        let control = control.or(named.is_none().then_some(0));
        let control = control.filter(|place| *place < arms.len()).map(|place| arms.remove(place));
        let compare = |(variant, moments): (String, Moments)| {
            let users = moments.count() as i64;
            let mut numbers = [None; NUMBERS.len()];
            let note = match &control {
                Some((_, control)) => self.compare(control, &moments, &mut numbers),
                None => Err(format!("there is no variant '{wanted}' to compare with")),
            };
            Comparison { variant, users, numbers, note: note.err() }
        };
        arms.into_iter().map(compare).collect()
    }

    fn compare(
        &self,
        control: &Moments,
        treatment: &Moments,
        numbers: &mut [Option<f64>; NUMBERS.len()],
    ) -> Result<(), String> {
        let said = |error: StatsError| error.to_string();
        let [control, treatment] = self.metric.figures(control, treatment).map_err(said)?;
        numbers[0] = Some(treatment.value);
        numbers[1] = Some(control.value);
        let Estimate { value, low, high, p, .. } =
            absolute(&control, &treatment, ALPHA).map_err(said)?;
        numbers[2..6].copy_from_slice(&[value, low, high, p].map(Some));
        // A report does not divide by what cannot be told from 0 either.
        if control.baseline_strength() < normal_isf(ALPHA / 2.0) {
            return Err(said(StatsError::ZeroControlMean));
        }
        let Estimate { value, low, high, p, .. } =
            lift(&control, &treatment, ALPHA).map_err(said)?;
        numbers[6..10].copy_from_slice(&[value, low, high, p].map(Some));
        Ok(())
    }
}

impl Fold for Compare {
    type State = Arms;
    type Columns = (StringArray, Vec<Float64Array>);

    fn columns(&self, values: &[ArrayRef]) -> Result<Self::Columns> {
        let number = |column: &ArrayRef| {
            Ok(cast(column, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
        };
        let numbers = values[1..=self.metric.columns()].iter().map(number);
        Ok((values[0].as_string::<i32>().clone(), numbers.collect::<Result<_>>()?))
    }

    /// A row in which something is NULL does not count.
    fn add(&self, arms: &mut Arms, columns: &Self::Columns, row: usize) -> Result<()> {
        let (names, numbers) = columns;
        if names.is_null(row) || numbers.iter().any(|column| column.is_null(row)) {
            return Ok(());
        }
        let mut of_user = [0.0; 2];
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
        arms.merge(bytes, self.metric.columns(), self.metric.name())
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
                return plan_err!(
                    "srm_test takes (variant [, {{'a': 0.5, 'b': 0.5}}]), a row per user"
                );
            }
        };
        let numbers = |shares: &Fields| shares.iter().all(|share| share.data_type().is_numeric());
        if !is_name(name) || !shares.is_none_or(numbers) {
            return plan_err!(
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
            return plan_err!("the shares of srm_test must be constants");
        };
        let ScalarValue::Struct(shares) = literal.value() else {
            return plan_err!("the shares of srm_test are such as {{'a': 0.5, 'b': 0.5}}");
        };
        let mut of_variant = Vec::new();
        for (field, share) in shares.fields().iter().zip(shares.columns()) {
            let share = share.as_primitive::<Float64Type>();
            if share.is_null(0) || !share.value(0).is_finite() || share.value(0) < 0.0 {
                return plan_err!(
                    "the share of '{}' in srm_test is not a number from 0",
                    field.name()
                );
            }
            of_variant.push((field.name().clone(), share.value(0)));
        }
        Ok(SampleRatio { shares: Some(of_variant) })
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
            ] {
                let mut values = vec![Arc::clone(&users.columns[0])];
                values.extend(columns.iter().map(|i| Arc::clone(&users.columns[*i])));
                let named = (seed % 3 == 0).then(|| "B".to_owned());
                let (control, others) =
                    if named.is_some() { ("B", ["A", "control"]) } else { ("control", ["A", "B"]) };
                let fold = Compare { metric, control: named };
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
                        Metric::Cuped => {
                            let adjusted = adjust_mean(a, b, 0, 1);
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
            let fold = Compare { metric: Metric::Mean, control: control.map(str::to_owned) };
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
