//! `to_char` of dates and times with PostgreSQL's patterns, as drivers and platforms for PostgreSQL write them:
//! `to_char(ts, 'YYYY-MM-DD HH24:MI:SS')`.
//!
//! DataFusion's patterns are those of `strftime`, which all have a `%`. What has none is one of PostgreSQL's, where
//! DataFusion would answer with the pattern itself.
//!
//! # Source
//! PostgreSQL 15, "Data Type Formatting Functions", tables 9.27 and 9.28. Numbers of months in Roman, `TM` and the
//! parts of years in thousands (`Y,YYY`) are refused.

use std::fmt::Write;
use std::sync::Arc;

use chrono::{Datelike, NaiveDateTime, Offset, Timelike};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use datafusion::arrow::temporal_conversions::{as_datetime, as_datetime_with_timezone};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use super::as_before::scalar_as_before;
use crate::base::error::EngineError;
use crate::base::sql_state::SqlState;

/// `to_char`, for patterns of both.
pub(super) fn of_postgres(function: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(BothPatterns { function })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct BothPatterns {
    function: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for BothPatterns {
    scalar_as_before!(return_field_from_args, simplify, output_ordering);

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [times, patterns] = args.args.as_slice() else {
            return self.function.invoke_with_args(args);
        };
        let has_day = matches!(
            times.data_type(),
            DataType::Date32 | DataType::Date64 | DataType::Timestamp(..)
        );
        let is_of_strftime = match patterns {
            ColumnarValue::Scalar(pattern) => {
                pattern.try_as_str().flatten().is_none_or(|pattern| pattern.contains('%'))
            }
            ColumnarValue::Array(patterns) => {
                let patterns = patterns.as_string::<i32>();
                patterns.iter().flatten().all(|pattern| pattern.contains('%'))
            }
        };
        if !has_day || is_of_strftime {
            return self.function.invoke_with_args(args);
        }
        let are_scalars =
            matches!((times, patterns), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
        let rows = if are_scalars { 1 } else { args.number_rows };
        let (times, patterns) = (times.to_array(rows)?, patterns.to_array(rows)?);
        let texts = self.texts(&times, &patterns, &args)?;
        Ok(match are_scalars {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?),
            false => ColumnarValue::Array(texts),
        })
    }
}

impl BothPatterns {
    fn texts(
        &self,
        times: &ArrayRef,
        patterns: &ArrayRef,
        args: &ScalarFunctionArgs,
    ) -> Result<ArrayRef> {
        let zone = match times.data_type() {
            DataType::Timestamp(_, zone) => zone.clone(),
            _ => None,
        };
        let moments = cast(times, &DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))?;
        let moments = moments.as_primitive::<TimestampMicrosecondType>();
        let zone = zone.as_deref().map(str::parse::<Tz>).transpose()?;
        let patterns = patterns.as_string::<i32>();
        let mut texts = StringBuilder::with_capacity(times.len(), 16 * times.len());
        let mut read: Option<(&str, Vec<Piece<'_>>)> = None;
        for row in 0..times.len() {
            // Of an empty pattern it is NULL there, too.
            let pattern = if patterns.is_null(row) { "" } else { patterns.value(row) };
            if times.is_null(row) || pattern.is_empty() {
                texts.append_null();
                continue;
            }
            if pattern.contains('%') {
                texts.append_option(self.one(args, row)?);
                continue;
            }
            if read.as_ref().is_none_or(|(before, _)| *before != pattern) {
                read = Some((pattern, pieces(pattern)?));
            }
            let Some((_, pieces)) = &read else { continue };
            let value = moments.value(row);
            let local = match zone {
                None => as_datetime::<TimestampMicrosecondType>(value).map(|at| (at, None)),
                Some(zone) => as_datetime_with_timezone::<TimestampMicrosecondType>(value, zone)
                    .map(|at| {
                        let offset = at.offset().fix().local_minus_utc();
                        (
                            at.naive_local(),
                            Some((zone_name(&at.format("%Z").to_string(), offset), offset)),
                        )
                    }),
            };
            let Some((at, zone)) = local else {
                let message = "to_char: the time is beyond the years that have a calendar";
                return Err(EngineError::statement(SqlState::DatetimeFieldOverflow, message).into());
            };
            for piece in pieces {
                write(&mut texts, piece, &at, zone.as_ref());
            }
            texts.append_value("");
        }
        Ok(Arc::new(texts.finish()))
    }

    /// A row whose pattern is of `strftime`, among others.
    fn one(&self, args: &ScalarFunctionArgs, row: usize) -> Result<Option<String>> {
        let of_row = |value: &ColumnarValue| match value {
            ColumnarValue::Scalar(_) => Ok(value.clone()),
            ColumnarValue::Array(values) => {
                ScalarValue::try_from_array(values, row).map(ColumnarValue::Scalar)
            }
        };
        let args = ScalarFunctionArgs {
            args: args.args.iter().map(of_row).collect::<Result<_>>()?,
            arg_fields: args.arg_fields.clone(),
            number_rows: 1,
            return_field: Arc::clone(&args.return_field),
            config_options: Arc::clone(&args.config_options),
        };
        let text = self.function.invoke_with_args(args)?.to_array(1)?;
        let text = text.as_string::<i32>();
        Ok(text.is_valid(0).then(|| text.value(0).to_owned()))
    }
}

/// A part of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Field {
        field: Field,
        case: Case,
        /// Without zeros and spaces in front and behind (`FM`).
        is_bare: bool,
        /// `st`, `nd`, `rd` and `th` behind a number, or these in capitals.
        ordinal: Option<bool>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    /// Of half a day, of a day.
    Hour12,
    Hour24,
    Minute,
    Second,
    SecondOfDay,
    Millisecond,
    Microsecond,
    /// Tenths and finer, so many digits.
    Fraction(u32),
    /// With points or not.
    HalfDay(bool),
    /// So many digits at most.
    Year(u32),
    IsoYear(u32),
    /// With points or not.
    Era(bool),
    Month,
    /// Whole or its first three letters.
    MonthName(bool),
    DayName(bool),
    DayOfYear,
    DayOfIsoYear,
    Day,
    /// From Sunday as 1, from Monday as 1.
    DayOfWeek,
    IsoDayOfWeek,
    WeekOfMonth,
    WeekOfYear,
    IsoWeek,
    Century,
    JulianDay,
    Quarter,
    Zone,
    ZoneHour,
    ZoneMinute,
    ZoneOffset,
}

/// Of the letters of a field's name, which those of its text have, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Upper,
    Capital,
    Lower,
}

/// Longer ones before those that they begin with. All may be written in small letters, too, and names as `Month`.
const FIELDS: [(&str, Field); 51] = [
    ("A.M.", Field::HalfDay(true)),
    ("P.M.", Field::HalfDay(true)),
    ("AM", Field::HalfDay(false)),
    ("PM", Field::HalfDay(false)),
    ("A.D.", Field::Era(true)),
    ("B.C.", Field::Era(true)),
    ("AD", Field::Era(false)),
    ("BC", Field::Era(false)),
    ("MONTH", Field::MonthName(true)),
    ("MON", Field::MonthName(false)),
    ("DAY", Field::DayName(true)),
    ("DY", Field::DayName(false)),
    ("HH24", Field::Hour24),
    ("HH12", Field::Hour12),
    ("HH", Field::Hour12),
    ("MI", Field::Minute),
    ("MM", Field::Month),
    ("MS", Field::Millisecond),
    ("SSSSS", Field::SecondOfDay),
    ("SSSS", Field::SecondOfDay),
    ("SS", Field::Second),
    ("US", Field::Microsecond),
    ("FF1", Field::Fraction(1)),
    ("FF2", Field::Fraction(2)),
    ("FF3", Field::Fraction(3)),
    ("FF4", Field::Fraction(4)),
    ("FF5", Field::Fraction(5)),
    ("FF6", Field::Fraction(6)),
    ("IYYY", Field::IsoYear(4)),
    ("IYY", Field::IsoYear(3)),
    ("IY", Field::IsoYear(2)),
    ("IDDD", Field::DayOfIsoYear),
    ("ID", Field::IsoDayOfWeek),
    ("IW", Field::IsoWeek),
    ("I", Field::IsoYear(1)),
    ("YYYY", Field::Year(4)),
    ("YYY", Field::Year(3)),
    ("YY", Field::Year(2)),
    ("Y", Field::Year(1)),
    ("DDD", Field::DayOfYear),
    ("DD", Field::Day),
    ("D", Field::DayOfWeek),
    ("WW", Field::WeekOfYear),
    ("W", Field::WeekOfMonth),
    ("CC", Field::Century),
    ("J", Field::JulianDay),
    ("Q", Field::Quarter),
    ("TZH", Field::ZoneHour),
    ("TZM", Field::ZoneMinute),
    ("TZ", Field::Zone),
    ("OF", Field::ZoneOffset),
];
/// What PostgreSQL has, and this has not.
const REFUSED: [&str; 6] = ["Y,YYY", "y,yyy", "RM", "rm", "TM", "tm"];

/// The parts of a pattern.
fn pieces(pattern: &str) -> Result<Vec<Piece<'_>>> {
    let mut pieces = Vec::new();
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        if let Some(refused) = REFUSED.iter().find(|refused| rest.starts_with(**refused)) {
            let error = EngineError::unsupported(format!("to_char: {refused} is not supported"));
            return Err(error.into());
        }
        // A text in quotes, of which a backslash makes the next character one of the text.
        if first == '"' {
            rest = &rest[1..];
            let end = rest.find('"').unwrap_or(rest.len());
            pieces.push(Piece::Text(&rest[..end]));
            rest = rest.get(end + 1..).unwrap_or("");
            continue;
        }
        if first == '\\' && rest[1..].starts_with('"') {
            pieces.push(Piece::Text(&rest[1..2]));
            rest = &rest[2..];
            continue;
        }
        let bare = ["FM", "fm"].iter().find_map(|mark| rest.strip_prefix(mark));
        let fields = bare.unwrap_or(rest);
        let Some((length, field, case)) = field_of(fields) else {
            let length = match bare {
                Some(_) => 2,
                None => first.len_utf8(),
            };
            // FM before what is no field says nothing.
            if bare.is_none() {
                pieces.push(Piece::Text(&rest[..length]));
            }
            rest = &rest[length..];
            continue;
        };
        rest = &fields[length..];
        let ordinal = match rest.get(..2) {
            Some("TH") => Some(true),
            Some("th") => Some(false),
            _ => None,
        };
        rest = if ordinal.is_some() { &rest[2..] } else { rest };
        pieces.push(Piece::Field { field, case, is_bare: bare.is_some(), ordinal });
    }
    Ok(pieces)
}

/// What a text begins with, how long that is, and how it is written.
fn field_of(text: &str) -> Option<(usize, Field, Case)> {
    FIELDS.iter().find_map(|(name, field)| {
        let start = text.get(..name.len())?;
        let is_lower = |start: &str, name: &str| *start == *name.to_ascii_lowercase();
        let case = if start == *name {
            Case::Upper
        } else if is_lower(start, name) {
            Case::Lower
        } else if matches!(field, Field::MonthName(_) | Field::DayName(_))
            && start.starts_with(&name[..1])
            && is_lower(&start[1..], &name[1..])
        {
            Case::Capital
        } else {
            return None;
        };
        Some((name.len(), *field, case))
    })
}

fn write(
    texts: &mut StringBuilder,
    piece: &Piece<'_>,
    at: &NaiveDateTime,
    zone: Option<&(String, i32)>,
) {
    let (field, case, is_bare, ordinal) = match piece {
        Piece::Text(text) => {
            let _ = texts.write_str(text);
            return;
        }
        Piece::Field { field, case, is_bare, ordinal } => (*field, *case, *is_bare, *ordinal),
    };
    let (number, width) = match value(field, case, at, zone) {
        Value::Number(number, width) => (number, width),
        Value::Name(name, width) => {
            let width = if is_bare { 0 } else { width };
            let _ = write!(texts, "{name:<width$}");
            return;
        }
        Value::Text(text) => {
            let _ = texts.write_str(&text);
            return;
        }
    };
    let width = if is_bare { 0 } else { width };
    let _ = write!(texts, "{number:0width$}");
    if let Some(is_upper) = ordinal {
        let ending = match (number % 10, number % 100 / 10) {
            (1, tens) if tens != 1 => "st",
            (2, tens) if tens != 1 => "nd",
            (3, tens) if tens != 1 => "rd",
            _ => "th",
        };
        let _ = match is_upper {
            true => texts.write_str(&ending.to_uppercase()),
            false => texts.write_str(ending),
        };
    }
}

/// What stands for a field.
enum Value {
    /// With zeros in front to so many digits.
    Number(i64, usize),
    /// With spaces behind to so many characters.
    Name(String, usize),
    Text(String),
}

fn value(field: Field, case: Case, at: &NaiveDateTime, zone: Option<&(String, i32)>) -> Value {
    use Value::{Name, Number, Text};
    let micros = i64::from(at.nanosecond() / 1_000);
    let offset = zone.map_or(0, |(_, seconds)| *seconds);
    let number = |number: u32, width: usize| Number(i64::from(number), width);
    // There is no year 0: the one before 1 is 1 BC.
    let of_era = |year: i32| i64::from(if year > 0 { year } else { 1 - year });
    let last_digits = |year: i64, digits: u32| match digits {
        4 => Number(year, 4),
        digits => Number(year % 10_i64.pow(digits), digits as usize),
    };
    match field {
        Field::Hour12 => number(at.hour12().1, 2),
        Field::Hour24 => number(at.hour(), 2),
        Field::Minute => number(at.minute(), 2),
        Field::Second => number(at.second(), 2),
        Field::SecondOfDay => number(at.num_seconds_from_midnight(), 0),
        Field::Millisecond => Number(micros / 1_000, 3),
        Field::Microsecond => Number(micros, 6),
        Field::Fraction(digits) => Number(micros / 10_i64.pow(6 - digits), digits as usize),
        Field::HalfDay(has_points) => {
            let [half, pointed] = if at.hour() < 12 { ["am", "a.m."] } else { ["pm", "p.m."] };
            Text(in_case(if has_points { pointed } else { half }, case))
        }
        Field::Era(has_points) => {
            let [era, pointed] = if at.year() > 0 { ["ad", "a.d."] } else { ["bc", "b.c."] };
            Text(in_case(if has_points { pointed } else { era }, case))
        }
        Field::Year(digits) => last_digits(of_era(at.year()), digits),
        Field::IsoYear(digits) => last_digits(of_era(at.iso_week().year()), digits),
        Field::Month => number(at.month(), 2),
        Field::MonthName(true) => Name(in_case(&at.format("%B").to_string(), case), 9),
        Field::MonthName(false) => Text(in_case(&at.format("%b").to_string(), case)),
        Field::DayName(true) => Name(in_case(&at.format("%A").to_string(), case), 9),
        Field::DayName(false) => Text(in_case(&at.format("%a").to_string(), case)),
        Field::DayOfYear => number(at.ordinal(), 3),
        Field::DayOfIsoYear => {
            number((at.iso_week().week() - 1) * 7 + at.weekday().number_from_monday(), 3)
        }
        Field::Day => number(at.day(), 2),
        Field::DayOfWeek => number(at.weekday().number_from_sunday(), 0),
        Field::IsoDayOfWeek => number(at.weekday().number_from_monday(), 0),
        Field::WeekOfMonth => number(at.day0() / 7 + 1, 0),
        Field::WeekOfYear => number(at.ordinal0() / 7 + 1, 2),
        Field::IsoWeek => number(at.iso_week().week(), 2),
        Field::Century => {
            let century = i64::from((at.year() - 1).div_euclid(100)) + 1;
            Number(if century > 0 { century } else { century - 1 }, 2)
        }
        // Day 1 of the proleptic calendar is 1,721,426.
        Field::JulianDay => Number(i64::from(at.num_days_from_ce()) + 1_721_425, 0),
        Field::Quarter => number(at.month0() / 3 + 1, 0),
        Field::Zone => Text(in_case(zone.map_or("", |(name, _)| name.as_str()), case)),
        Field::ZoneHour => Text(format!("{}{:02}", sign(offset), offset.abs() / 3_600)),
        Field::ZoneMinute => number(offset.unsigned_abs() % 3_600 / 60, 2),
        Field::ZoneOffset => Text(zone_offset(offset)),
    }
}

/// What a zone is called that is nothing but an offset.
fn zone_name(name: &str, offset: i32) -> String {
    match name.starts_with(['+', '-']) {
        true if offset == 0 => "UTC".to_owned(),
        true => zone_offset(offset),
        false => name.to_owned(),
    }
}

/// `+02`, `+05:30`.
fn zone_offset(offset: i32) -> String {
    let (hours, minutes) = (offset.abs() / 3_600, offset.abs() % 3_600 / 60);
    let minutes = if minutes == 0 { String::new() } else { format!(":{minutes:02}") };
    format!("{}{hours:02}{minutes}", sign(offset))
}

fn sign(offset: i32) -> char {
    if offset < 0 { '-' } else { '+' }
}

fn in_case(text: &str, case: Case) -> String {
    match case {
        Case::Upper => text.to_uppercase(),
        Case::Lower => text.to_lowercase(),
        Case::Capital => text.to_owned(),
    }
}
