//! SQL functions that say which bucket or arm published assignment systems give a unit.
//!
//! # Invariants
//! - NULL in, NULL out.
//! - An argument that a function has no answer for (a hash version that does not exist, zero
//!   shards) is an error.
//!
//! # Not here
//! The hashes: [`uplake_experiment::assignment`].

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, UInt64Array,
};
use datafusion::arrow::datatypes::{DataType, Field, Float64Type, Int64Type};
use datafusion::common::{Result, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use uplake_experiment::assignment::{
    Range, choose, eppo_shard, growthbook_hash, growthbook_in_namespace, growthbook_ranges,
    optimizely_bucket, planout_hash, statsig_hash, statsig_user_bucket, unleash_value,
};
use uplake_experiment::digest::murmur3_32;

use crate::base::error::EngineError;
use crate::base::sql_state::SqlState;

/// All functions, to be registered with a session.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    let function = |which: &Which| Function { which: *which, signature: signature.clone() };
    Which::ALL.iter().map(|which| ScalarUDF::from(function(which))).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Which {
    GbBucket,
    GbVariation,
    GbInNamespace,
    Murmur3,
    Optimizely,
    Unleash,
    Statsig,
    StatsigUserBucket,
    PlanOut,
    Eppo,
}

/// What an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Text, or a whole number as text: ids are often either.
    Text,
    Whole,
    Number,
    Numbers,
}

impl Kind {
    fn data_type(self) -> DataType {
        match self {
            Self::Text => DataType::Utf8,
            Self::Whole => DataType::Int64,
            Self::Number => DataType::Float64,
            Self::Numbers => {
                DataType::List(Arc::new(Field::new_list_field(DataType::Float64, true)))
            }
        }
    }

    fn accepts(self, given: &DataType) -> bool {
        if let DataType::Dictionary(_, values) = given {
            return self.accepts(values);
        }
        let text = matches!(given, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
        match self {
            _ if given.is_null() => true,
            Self::Text => text || given.is_integer(),
            Self::Whole => given.is_integer(),
            Self::Number => given.is_numeric(),
            Self::Numbers => {
                matches!(given, DataType::List(item) | DataType::LargeList(item)
                    | DataType::FixedSizeList(item, _)
                    if item.data_type().is_numeric() || item.data_type().is_null())
            }
        }
    }
}

impl Which {
    const ALL: [Self; 10] = [
        Self::GbBucket,
        Self::GbVariation,
        Self::GbInNamespace,
        Self::Murmur3,
        Self::Optimizely,
        Self::Unleash,
        Self::Statsig,
        Self::StatsigUserBucket,
        Self::PlanOut,
        Self::Eppo,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::GbBucket => "gb_bucket",
            Self::GbVariation => "gb_variation",
            Self::GbInNamespace => "gb_in_namespace",
            Self::Murmur3 => "murmur3_32",
            Self::Optimizely => "optimizely_bucket",
            Self::Unleash => "unleash_value",
            Self::Statsig => "statsig_hash",
            Self::StatsigUserBucket => "statsig_user_bucket",
            Self::PlanOut => "planout_hash",
            Self::Eppo => "eppo_shard",
        }
    }

    /// Names and kinds of the arguments.
    fn arguments(self) -> &'static [(&'static str, Kind)] {
        use Kind::{Number, Numbers, Text, Whole};
        match self {
            Self::GbBucket => &[("seed", Text), ("value", Text), ("version", Whole)],
            Self::GbVariation => &[
                ("seed", Text),
                ("value", Text),
                ("version", Whole),
                ("coverage", Number),
                ("weights", Numbers),
            ],
            Self::GbInNamespace => {
                &[("value", Text), ("namespace", Text), ("low", Number), ("high", Number)]
            }
            Self::Murmur3 => &[("text", Text), ("seed", Whole)],
            Self::Optimizely => &[("bucketing_id", Text), ("experiment_id", Text)],
            Self::Unleash => {
                &[("id", Text), ("group", Text), ("normalizer", Whole), ("seed", Whole)]
            }
            Self::Statsig => &[("salt", Text), ("rule_salt", Text), ("unit", Text)],
            Self::StatsigUserBucket => &[("salt", Text), ("unit", Text)],
            Self::PlanOut => &[("experiment_salt", Text), ("parameter_salt", Text), ("unit", Text)],
            Self::Eppo => &[("text", Text), ("shards", Whole)],
        }
    }

    fn returns(self) -> DataType {
        match self {
            Self::GbBucket => DataType::Float64,
            Self::GbInNamespace => DataType::Boolean,
            // Its high bit is used.
            Self::Statsig => DataType::UInt64,
            _ => DataType::Int64,
        }
    }

    fn evaluate(self, rows: &AssignmentRows<'_>) -> Result<ArrayRef> {
        let whole = |of: &dyn Fn(usize) -> Result<Option<i64>>| -> Result<ArrayRef> {
            let values = rows.each(of)?;
            Ok(Arc::new(Int64Array::from(values)))
        };
        match self {
            Self::GbBucket => {
                let values = rows.each(|row| rows.gb_hash(row).map(Some))?;
                Ok(Arc::new(Float64Array::from(values)))
            }
            Self::GbVariation => whole(&|row| {
                let weights = rows.numbers(4, row)?;
                let ranges = growthbook_ranges(weights.len(), rows.number(3, row), Some(&weights));
                Ok(choose(rows.gb_hash(row)?, &ranges).map(|variation| variation as i64))
            }),
            Self::GbInNamespace => {
                let values = rows.each(|row| {
                    let range = Range { low: rows.number(2, row), high: rows.number(3, row) };
                    Ok(Some(growthbook_in_namespace(rows.text(0, row), rows.text(1, row), range)))
                })?;
                Ok(Arc::new(BooleanArray::from(values)))
            }
            Self::Murmur3 => whole(&|row| {
                let hash = murmur3_32(rows.text(0, row).as_bytes(), rows.word(1, row, 0)?);
                Ok(Some(i64::from(hash)))
            }),
            Self::Optimizely => whole(&|row| {
                Ok(Some(i64::from(optimizely_bucket(rows.text(0, row), rows.text(1, row)))))
            }),
            Self::Unleash => whole(&|row| {
                let (normalizer, seed) = (rows.word(2, row, 1)?, rows.word(3, row, 0)?);
                let value = unleash_value(rows.text(0, row), rows.text(1, row), normalizer, seed);
                Ok(Some(i64::from(value)))
            }),
            Self::Statsig => {
                let values = rows.each(|row| {
                    let (salt, rule) = (rows.text(0, row), rows.text(1, row));
                    Ok(Some(statsig_hash(salt, rule, rows.text(2, row))))
                })?;
                Ok(Arc::new(UInt64Array::from(values)))
            }
            Self::StatsigUserBucket => whole(&|row| {
                let bucket = statsig_user_bucket(rows.text(0, row), rows.text(1, row));
                Ok(Some(bucket as i64))
            }),
            // 60 bits.
            Self::PlanOut => whole(&|row| {
                let (experiment, parameter) = (rows.text(0, row), rows.text(1, row));
                Ok(Some(planout_hash(experiment, parameter, rows.text(2, row)) as i64))
            }),
            Self::Eppo => whole(&|row| {
                Ok(Some(i64::from(eppo_shard(rows.text(0, row), rows.word(1, row, 1)?))))
            }),
        }
    }
}

/// The arguments of a batch.
struct AssignmentRows<'a> {
    which: Which,
    arrays: &'a [ArrayRef],
    rows: usize,
}

impl AssignmentRows<'_> {
    /// A value per row, NULL where an argument is.
    fn each<T>(&self, of: impl Fn(usize) -> Result<Option<T>>) -> Result<Vec<Option<T>>> {
        let is_null = |row: usize| self.arrays.iter().any(|array| array.is_null(row));
        (0..self.rows).map(|row| if is_null(row) { Ok(None) } else { of(row) }).collect()
    }

    fn text(&self, argument: usize, row: usize) -> &str {
        self.arrays[argument].as_string::<i32>().value(row)
    }

    fn number(&self, argument: usize, row: usize) -> f64 {
        self.arrays[argument].as_primitive::<Float64Type>().value(row)
    }

    fn numbers(&self, argument: usize, row: usize) -> Result<Vec<f64>> {
        let list = self.arrays[argument].as_list::<i32>().value(row);
        let numbers = list.as_primitive::<Float64Type>();
        if numbers.is_empty() || numbers.null_count() > 0 {
            return self.refuse(argument, "holds NULL or nothing", "a weight per variation");
        }
        Ok(numbers.values().to_vec())
    }

    /// 32 bits without a sign, at least `least`.
    fn word(&self, argument: usize, row: usize, least: u32) -> Result<u32> {
        let given = self.arrays[argument].as_primitive::<Int64Type>().value(row);
        match u32::try_from(given) {
            Ok(word) if word >= least => Ok(word),
            _ => self.refuse(argument, &format!("is {given}"), &format!("{least} to {}", u32::MAX)),
        }
    }

    fn gb_hash(&self, row: usize) -> Result<f64> {
        let version = self.word(2, row, 1)?;
        match growthbook_hash(self.text(0, row), self.text(1, row), version) {
            Some(hash) => Ok(hash),
            None => self.refuse(2, &format!("is {version}"), "1 or 2"),
        }
    }

    fn refuse<T>(&self, argument: usize, problem: &str, allowed: &str) -> Result<T> {
        let (name, _) = self.which.arguments()[argument];
        let what = format!("{}: `{name}` {problem}", self.which.name());
        Err(EngineError::execution(SqlState::InvalidParameterValue, what)
            .with_hint(format!("it must be {allowed}"))
            .into())
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    which: Which,
    signature: Signature,
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.which.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let wanted = self.which.arguments();
        let fits = given.len() == wanted.len()
            && given.iter().zip(wanted).all(|(given, (_, kind))| kind.accepts(given));
        if fits {
            return Ok(wanted.iter().map(|(_, kind)| kind.data_type()).collect());
        }
        let kind = |kind: &Kind| match kind {
            Kind::Text => "text",
            Kind::Whole => "a whole number",
            Kind::Number => "a number",
            Kind::Numbers => "an array of numbers",
        };
        let wanted: Vec<String> =
            wanted.iter().map(|(name, of)| format!("{name} ({})", kind(of))).collect();
        plan_err!("{} takes {}", self.name(), wanted.join(", "))
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.which.returns())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let all_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if all_scalar { 1 } else { args.number_rows };
        let arrays: Vec<ArrayRef> =
            args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<_>>()?;
        if arrays.len() != self.which.arguments().len() {
            return internal_err!("{} has other arguments", self.name());
        }
        let values =
            self.which.evaluate(&AssignmentRows { which: self.which, arrays: &arrays, rows })?;
        if all_scalar {
            let value = datafusion::common::ScalarValue::try_from_array(&values, 0)?;
            return Ok(ColumnarValue::Scalar(value));
        }
        Ok(ColumnarValue::Array(values))
    }
}
