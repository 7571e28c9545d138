//! A column of a batch behind its own type, and one value of it as text or binary.
//!
//! A [`Column`] is made once for a batch; then a value costs a branch and no downcast.
//! Writers append the value alone: its length is the caller's.
//!
//! # Not here
//! Lists as binary arrays and text (`list`), structs and maps (`json`), frames (`mod`).

use std::ops::Range;

use arrow::array::{
    Array, ArrowPrimitiveType, AsArray, BinaryArray, BinaryViewArray, BooleanArray,
    FixedSizeBinaryArray, LargeBinaryArray, LargeStringArray, RunArray, StringArray,
    StringViewArray, UnionArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    IntervalDayTimeType, IntervalMonthDayNanoType, IntervalUnit, IntervalYearMonthType,
    RunEndIndexType, Time32MillisecondType, Time32SecondType, Time64MicrosecondType,
    Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};

use super::error::EncodeError;
use super::quote::json_escape;
use crate::pg::types;

type Native<T> = <T as ArrowPrimitiveType>::Native;

pub(super) struct Column<'a> {
    nulls: Option<&'a NullBuffer>,
    /// Whether values can be NULL that the array itself does not call so.
    has_inner_nulls: bool,
    pub values: Values<'a>,
}

pub(super) enum Values<'a> {
    Null,
    Boolean(&'a BooleanArray),
    Int8(&'a [i8]),
    Int16(&'a [i16]),
    Int32(&'a [i32]),
    Int64(&'a [i64]),
    UInt8(&'a [u8]),
    UInt16(&'a [u16]),
    UInt32(&'a [u32]),
    UInt64(&'a [u64]),
    Float16(&'a [Native<Float16Type>]),
    Float32(&'a [f32]),
    Float64(&'a [f64]),
    Decimal32(&'a [i32], i8),
    Decimal64(&'a [i64], i8),
    Decimal128(&'a [i128], i8),
    Decimal256(&'a [Native<Decimal256Type>], i8),
    Utf8(&'a StringArray),
    LargeUtf8(&'a LargeStringArray),
    Utf8View(&'a StringViewArray),
    Binary(&'a BinaryArray),
    LargeBinary(&'a LargeBinaryArray),
    BinaryView(&'a BinaryViewArray),
    FixedBinary(&'a FixedSizeBinaryArray),
    Date32(&'a [i32]),
    Date64(&'a [i64]),
    Time32(&'a [i32], TimeUnit),
    Time64(&'a [i64], TimeUnit),
    /// Whether in a zone is the last.
    Timestamp(&'a [i64], TimeUnit, bool),
    YearMonth(&'a [i32]),
    DayTime(&'a [Native<IntervalDayTimeType>]),
    MonthDayNano(&'a [Native<IntervalMonthDayNanoType>]),
    Duration(&'a [i64], TimeUnit),
    List(List<'a>),
    /// Names are escaped for JSON.
    Struct(Vec<(String, Column<'a>)>),
    Map(&'a [i32], Box<Column<'a>>, Box<Column<'a>>),
    Union(&'a UnionArray, Vec<(i8, Column<'a>)>),
    /// Dictionaries and runs: row to row of the values.
    Mapped(Vec<usize>, Box<Column<'a>>),
}

pub(super) struct List<'a> {
    offsets: Offsets<'a>,
    pub elements: Box<Column<'a>>,
    /// The oid of the innermost elements.
    pub oid: u32,
    /// 1 for a list of what are no lists.
    pub dimensions: usize,
}

enum Offsets<'a> {
    Small(&'a [i32]),
    Large(&'a [i64]),
    Views(&'a [i32], &'a [i32]),
    LargeViews(&'a [i64], &'a [i64]),
    Fixed(usize),
}

impl List<'_> {
    /// The rows of `elements` that are the list of a row.
    pub(super) fn range(&self, row: usize) -> Range<usize> {
        match self.offsets {
            Offsets::Small(at) => at[row] as usize..at[row + 1] as usize,
            Offsets::Large(at) => at[row] as usize..at[row + 1] as usize,
            Offsets::Views(at, sizes) => at[row] as usize..(at[row] + sizes[row]) as usize,
            Offsets::LargeViews(at, sizes) => at[row] as usize..(at[row] + sizes[row]) as usize,
            Offsets::Fixed(size) => row * size..(row + 1) * size,
        }
    }
}

impl<'a> Column<'a> {
    /// # Errors
    /// [`EncodeError::Unsupported`] for a type that Arrow gets after this was written.
    pub(super) fn new(array: &'a dyn Array) -> Result<Self, EncodeError> {
        let values = values(array)?;
        let has_inner_nulls =
            matches!(values, Values::Null | Values::Mapped(..) | Values::Union(..));
        Ok(Self { nulls: array.nulls(), has_inner_nulls, values })
    }

    #[inline]
    pub(super) fn is_null(&self, row: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls.is_null(row))
            || self.has_inner_nulls && self.is_inner_null(row)
    }

    /// Is no row NULL, as far as that is known without a look at them?
    #[inline]
    pub(super) fn has_no_nulls(&self) -> bool {
        self.nulls.is_none() && !self.has_inner_nulls
    }

    fn is_inner_null(&self, row: usize) -> bool {
        match &self.values {
            Values::Null => true,
            Values::Mapped(rows, values) => values.is_null(rows[row]),
            Values::Union(array, children) => {
                let (id, row) = (array.type_id(row), array.value_offset(row));
                child(children, id).is_none_or(|child| child.is_null(row))
            }
            _ => false,
        }
    }
}

/// The column of a union's type.
pub(super) fn child<'c, 'a>(children: &'c [(i8, Column<'a>)], id: i8) -> Option<&'c Column<'a>> {
    children.iter().find(|(known, _)| *known == id).map(|(_, child)| child)
}

fn numbers<T: ArrowPrimitiveType>(array: &dyn Array) -> &[T::Native] {
    array.as_primitive::<T>().values()
}

fn values(array: &dyn Array) -> Result<Values<'_>, EncodeError> {
    Ok(match array.data_type() {
        DataType::Null => Values::Null,
        DataType::Boolean => Values::Boolean(array.as_boolean()),
        DataType::Int8 => Values::Int8(numbers::<Int8Type>(array)),
        DataType::Int16 => Values::Int16(numbers::<Int16Type>(array)),
        DataType::Int32 => Values::Int32(numbers::<Int32Type>(array)),
        DataType::Int64 => Values::Int64(numbers::<Int64Type>(array)),
        DataType::UInt8 => Values::UInt8(numbers::<UInt8Type>(array)),
        DataType::UInt16 => Values::UInt16(numbers::<UInt16Type>(array)),
        DataType::UInt32 => Values::UInt32(numbers::<UInt32Type>(array)),
        DataType::UInt64 => Values::UInt64(numbers::<UInt64Type>(array)),
        DataType::Float16 => Values::Float16(numbers::<Float16Type>(array)),
        DataType::Float32 => Values::Float32(numbers::<Float32Type>(array)),
        DataType::Float64 => Values::Float64(numbers::<Float64Type>(array)),
        DataType::Decimal32(_, scale) => Values::Decimal32(numbers::<Decimal32Type>(array), *scale),
        DataType::Decimal64(_, scale) => Values::Decimal64(numbers::<Decimal64Type>(array), *scale),
        DataType::Decimal128(_, scale) => {
            Values::Decimal128(numbers::<Decimal128Type>(array), *scale)
        }
        DataType::Decimal256(_, scale) => {
            Values::Decimal256(numbers::<Decimal256Type>(array), *scale)
        }
        DataType::Utf8 => Values::Utf8(array.as_string()),
        DataType::LargeUtf8 => Values::LargeUtf8(array.as_string()),
        DataType::Utf8View => Values::Utf8View(array.as_string_view()),
        DataType::Binary => Values::Binary(array.as_binary()),
        DataType::LargeBinary => Values::LargeBinary(array.as_binary()),
        DataType::BinaryView => Values::BinaryView(array.as_binary_view()),
        DataType::FixedSizeBinary(_) => Values::FixedBinary(array.as_fixed_size_binary()),
        DataType::Date32
        | DataType::Date64
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Timestamp(..)
        | DataType::Interval(_)
        | DataType::Duration(_) => times(array)?,
        _ => return nested(array),
    })
}

fn times(array: &dyn Array) -> Result<Values<'_>, EncodeError> {
    Ok(match array.data_type() {
        DataType::Date32 => Values::Date32(numbers::<Date32Type>(array)),
        DataType::Date64 => Values::Date64(numbers::<Date64Type>(array)),
        DataType::Time32(unit @ TimeUnit::Second) => {
            Values::Time32(numbers::<Time32SecondType>(array), *unit)
        }
        DataType::Time32(unit @ TimeUnit::Millisecond) => {
            Values::Time32(numbers::<Time32MillisecondType>(array), *unit)
        }
        DataType::Time64(unit @ TimeUnit::Microsecond) => {
            Values::Time64(numbers::<Time64MicrosecondType>(array), *unit)
        }
        DataType::Time64(unit @ TimeUnit::Nanosecond) => {
            Values::Time64(numbers::<Time64NanosecondType>(array), *unit)
        }
        DataType::Timestamp(unit, zone) => {
            let moments = match unit {
                TimeUnit::Second => numbers::<TimestampSecondType>(array),
                TimeUnit::Millisecond => numbers::<TimestampMillisecondType>(array),
                TimeUnit::Microsecond => numbers::<TimestampMicrosecondType>(array),
                TimeUnit::Nanosecond => numbers::<TimestampNanosecondType>(array),
            };
            Values::Timestamp(moments, *unit, zone.is_some())
        }
        DataType::Duration(unit) => {
            let durations = match unit {
                TimeUnit::Second => numbers::<DurationSecondType>(array),
                TimeUnit::Millisecond => numbers::<DurationMillisecondType>(array),
                TimeUnit::Microsecond => numbers::<DurationMicrosecondType>(array),
                TimeUnit::Nanosecond => numbers::<DurationNanosecondType>(array),
            };
            Values::Duration(durations, *unit)
        }
        DataType::Interval(IntervalUnit::YearMonth) => {
            Values::YearMonth(numbers::<IntervalYearMonthType>(array))
        }
        DataType::Interval(IntervalUnit::DayTime) => {
            Values::DayTime(numbers::<IntervalDayTimeType>(array))
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            Values::MonthDayNano(numbers::<IntervalMonthDayNanoType>(array))
        }
        other => return Err(EncodeError::Unsupported { data_type: other.to_string() }),
    })
}

fn nested(array: &dyn Array) -> Result<Values<'_>, EncodeError> {
    let data_type = array.data_type();
    let unsupported = || EncodeError::Unsupported { data_type: data_type.to_string() };
    Ok(match data_type {
        DataType::List(_) => {
            let array = array.as_list::<i32>();
            list_of(data_type, Offsets::Small(array.value_offsets()), array.values())?
        }
        DataType::LargeList(_) => {
            let array = array.as_list::<i64>();
            list_of(data_type, Offsets::Large(array.value_offsets()), array.values())?
        }
        DataType::ListView(_) => {
            let array = array.as_list_view::<i32>();
            let offsets = Offsets::Views(array.value_offsets(), array.value_sizes());
            list_of(data_type, offsets, array.values())?
        }
        DataType::LargeListView(_) => {
            let array = array.as_list_view::<i64>();
            let offsets = Offsets::LargeViews(array.value_offsets(), array.value_sizes());
            list_of(data_type, offsets, array.values())?
        }
        DataType::FixedSizeList(_, size) => {
            let size = usize::try_from(*size).map_err(|_| unsupported())?;
            let array = array.as_fixed_size_list();
            list_of(data_type, Offsets::Fixed(size), array.values())?
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns().iter().zip(fields);
            let columns = columns.map(|(column, field)| {
                let mut name = Vec::new();
                json_escape(field.name(), |piece| name.extend_from_slice(piece));
                let name = String::from_utf8_lossy(&name).into_owned();
                Ok((name, Column::new(column)?))
            });
            Values::Struct(columns.collect::<Result<_, EncodeError>>()?)
        }
        DataType::Map(..) => {
            let array = array.as_map();
            let (keys, values) = (Column::new(array.keys())?, Column::new(array.values())?);
            Values::Map(array.value_offsets(), Box::new(keys), Box::new(values))
        }
        DataType::Union(fields, _) => {
            let array = array.as_any().downcast_ref::<UnionArray>().ok_or_else(unsupported)?;
            let children = fields.iter().map(|(id, _)| Ok((id, Column::new(array.child(id))?)));
            Values::Union(array, children.collect::<Result<_, EncodeError>>()?)
        }
        DataType::Dictionary(..) => {
            let array = array.as_any_dictionary();
            if array.values().is_empty() {
                return Ok(Values::Null);
            }
            Values::Mapped(array.normalized_keys(), Box::new(Column::new(array.values())?))
        }
        DataType::RunEndEncoded(ends, _) => match ends.data_type() {
            DataType::Int16 => runs::<Int16Type>(array)?,
            DataType::Int32 => runs::<Int32Type>(array)?,
            DataType::Int64 => runs::<Int64Type>(array)?,
            _ => return Err(unsupported()),
        },
        _ => return Err(unsupported()),
    })
}

fn list_of<'a>(
    data_type: &DataType,
    offsets: Offsets<'a>,
    elements: &'a dyn Array,
) -> Result<Values<'a>, EncodeError> {
    let elements = Box::new(Column::new(elements)?);
    let dimensions = match &elements.values {
        Values::List(inner) => inner.dimensions + 1,
        _ => 1,
    };
    Ok(Values::List(List { offsets, elements, oid: types::innermost(data_type), dimensions }))
}

fn runs<R: RunEndIndexType>(array: &dyn Array) -> Result<Values<'_>, EncodeError> {
    let Some(array) = array.as_any().downcast_ref::<RunArray<R>>() else {
        return Err(EncodeError::Unsupported { data_type: array.data_type().to_string() });
    };
    let rows = (0..array.len()).map(|row| array.get_physical_index(row)).collect();
    Ok(Values::Mapped(rows, Box::new(Column::new(array.values())?)))
}
