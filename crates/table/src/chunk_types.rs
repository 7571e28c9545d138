//! Do the column chunks of a Parquet file have the types that its schema gives them?
//!
//! A footer has the type of a column twice, in the schema and in each of its chunks, and readers take the schema's.
//! One flipped bit there makes doubles be read as integers of half their length, and nothing else notices.
//!
//! # Not here
//! Files of our own, whose footers have checksums.
//!
//! # Source
//! parquet.thrift (`FileMetaData.row_groups[].columns[].meta_data.type`); Thrift's compact protocol.

use std::ops::Range;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ParquetMetaData;

use crate::stored_zones::check_zones;

/// Thrift nests no deeper in a footer: a type of a list of structs is three.
const DEEPEST: usize = 32;

/// Compares the types in `footer`, the bytes between the pages and the eight last ones, with what was parsed of it.
///
/// # Errors
/// If a chunk has another type, or the bytes are no footer; and as [`check_zones`].
pub fn check_chunk_types(footer: &[u8], parsed: &ParquetMetaData) -> Result<()> {
    let damaged = || ParquetError::General("its footer cannot be read".to_owned());
    let groups = Compact(footer).row_groups().ok_or_else(damaged)?;
    if groups.len() != parsed.num_row_groups() {
        return Err(damaged());
    }
    for (types, group) in groups.iter().zip(parsed.row_groups()) {
        if types.len() != group.num_columns() {
            return Err(damaged());
        }
        for (found, column) in types.iter().zip(group.columns()) {
            if *found != column.column_type() as i64 {
                let path = column.column_path().string();
                let words =
                    format!("it is damaged: column {path} has another type than the schema says");
                return Err(ParquetError::General(words));
            }
        }
    }
    check_zones(parsed)
}

/// Where a footer is in a file of `size` bytes that ends with `tail`.
///
/// # Errors
/// If the end is none of a Parquet file.
pub fn footer_within(size: u64, tail: &[u8]) -> Result<Range<u64>> {
    let end = tail.last_chunk::<8>().and_then(|end| end.first_chunk::<4>());
    let length = end.map(|length| u64::from(u32::from_le_bytes(*length)));
    let begin = length.and_then(|length| size.checked_sub(length + 8));
    let none = || ParquetError::General("its footer cannot be read".to_owned());
    Ok(begin.ok_or_else(none)?..size - 8)
}

/// [`check_chunk_types`] of a file that is read for it.
pub(crate) fn check_file(
    size: u64,
    parsed: &ParquetMetaData,
    read: impl Fn(Range<u64>) -> Result<Bytes>,
) -> Result<()> {
    let footer = footer_within(size, &read(size.saturating_sub(8)..size)?)?;
    check_chunk_types(&read(footer)?, parsed)
}

/// Types of the compact protocol.
mod kind {
    pub const BYTE: u8 = 3;
    pub const SHORT: u8 = 4;
    pub const INT: u8 = 5;
    pub const LONG: u8 = 6;
    pub const DOUBLE: u8 = 7;
    pub const BINARY: u8 = 8;
    pub const LIST: u8 = 9;
    pub const SET: u8 = 10;
    pub const MAP: u8 = 11;
    pub const STRUCT: u8 = 12;
}

/// What is left to read; `None` from a reader is the end of the bytes, or nonsense.
struct Compact<'a>(&'a [u8]);

impl Compact<'_> {
    /// Per row group, the type of each column.
    fn row_groups(&mut self) -> Option<Vec<Vec<i64>>> {
        let mut groups = Vec::new();
        self.fields(|this, field, kind| match (field, kind) {
            (4, kind::LIST) => this.structs(|this| {
                groups.push(this.row_group()?);
                Some(())
            }),
            _ => this.skip(kind, 0),
        })?;
        Some(groups)
    }

    fn row_group(&mut self) -> Option<Vec<i64>> {
        let mut types = Vec::new();
        self.fields(|this, field, kind| match (field, kind) {
            (1, kind::LIST) => this.structs(|this| {
                types.push(this.chunk()??);
                Some(())
            }),
            _ => this.skip(kind, 0),
        })?;
        Some(types)
    }

    /// The type in a chunk's `meta_data`, if that has one.
    fn chunk(&mut self) -> Option<Option<i64>> {
        let mut found = None;
        self.fields(|this, field, kind| match (field, kind) {
            (3, kind::STRUCT) => this.fields(|this, field, kind| match (field, kind) {
                (1, kind::INT) => {
                    found = Some(this.zigzag()?);
                    Some(())
                }
                _ => this.skip(kind, 0),
            }),
            _ => this.skip(kind, 0),
        })?;
        Some(found)
    }

    /// Hands each field of a struct on, which is to read or skip it.
    fn fields(&mut self, mut each: impl FnMut(&mut Self, i64, u8) -> Option<()>) -> Option<()> {
        let mut field = 0;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            field = match head >> 4 {
                0 => self.zigzag()?,
                delta => field + i64::from(delta),
            };
            each(self, field, head & 15)?;
        }
    }

    fn structs(&mut self, mut each: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        let (count, kind) = self.list()?;
        for _ in 0..count {
            match kind {
                kind::STRUCT => each(self)?,
                _ => return None,
            }
        }
        Some(())
    }

    fn list(&mut self) -> Option<(u64, u8)> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            short => u64::from(short),
        };
        Some((count, head & 15))
    }

    /// Over a value of a struct's field.
    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        match kind {
            // A boolean's value is its type.
            1 | 2 => Some(()),
            kind::BYTE => self.byte().map(|_| ()),
            kind::SHORT | kind::INT | kind::LONG => self.varint().map(|_| ()),
            kind::DOUBLE => self.over(8),
            kind::BINARY => {
                let length = self.varint()?;
                self.over(length)
            }
            kind::LIST | kind::SET => {
                let (count, kind) = self.list()?;
                (0..count).try_for_each(|_| self.skip_element(kind, depth + 1))
            }
            kind::MAP => {
                let count = self.varint()?;
                let kinds = if count == 0 { 0 } else { self.byte()? };
                (0..count).try_for_each(|_| {
                    self.skip_element(kinds >> 4, depth + 1)?;
                    self.skip_element(kinds & 15, depth + 1)
                })
            }
            kind::STRUCT => self.fields(|this, _, kind| this.skip(kind, depth + 1)),
            _ => None,
        }
    }

    /// Over a value of a list, where booleans take a byte.
    fn skip_element(&mut self, kind: u8, depth: usize) -> Option<()> {
        if matches!(kind, 1 | 2) { self.over(1) } else { self.skip(kind, depth) }
    }

    fn over(&mut self, length: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(length).ok()?..)?;
        Some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
    };
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::ParquetMetaDataReader;
    use parquet::file::properties::WriterProperties;

    use super::*;

    fn file() -> Vec<u8> {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("x", Arc::new(Float64Array::from(vec![1.5, 2.5, 3.5]))),
            ("n", Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]))),
            ("t", Arc::new(StringArray::from(vec!["a", "b", "c"]))),
            ("b", Arc::new(BooleanArray::from(vec![true, false, true]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).expect("columns alike");
        let groups = WriterProperties::builder().set_max_row_group_row_count(Some(2)).build();
        let mut bytes = Vec::new();
        let mut writer =
            ArrowWriter::try_new(&mut bytes, batch.schema(), Some(groups)).expect("a writer");
        writer.write(&batch).expect("written");
        writer.close().expect("closed");
        bytes
    }

    fn check(file: &[u8]) -> Result<()> {
        let length =
            u32::from_le_bytes(file[file.len() - 8..file.len() - 4].try_into().expect("four"));
        let footer = &file[file.len() - 8 - length as usize..file.len() - 8];
        let parsed = ParquetMetaDataReader::decode_metadata(footer)?;
        check_chunk_types(footer, &parsed)
    }

    #[test]
    fn what_was_written_has_the_types_of_its_schema() {
        check(&file()).expect("sound");
    }

    /// Each flip of a bit is refused, or leaves the types that the chunks have.
    #[test]
    fn no_flipped_bit_gives_a_column_another_type() {
        let whole = file();
        let length =
            u32::from_le_bytes(whole[whole.len() - 8..whole.len() - 4].try_into().expect("four"));
        let begin = whole.len() - 8 - length as usize;
        let (mut refused, mut of_types) = (0, 0);
        let types = |file: &[u8]| {
            let footer =
                ParquetMetaDataReader::decode_metadata(&file[begin..file.len() - 8]).ok()?;
            let columns = footer.row_groups().iter().flat_map(|group| group.columns());
            Some(columns.map(|column| column.column_type()).collect::<Vec<_>>())
        };
        let expected = types(&whole);
        for bit in 8 * begin..8 * (whole.len() - 8) {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let Some(found) = std::panic::catch_unwind(|| types(&damaged)).ok().flatten() else {
                continue;
            };
            let checked = check(&damaged);
            refused += usize::from(checked.is_err());
            if Some(&found) != expected.as_ref() && found.len() == 8 {
                of_types += 1;
                assert!(checked.is_err(), "bit {bit}: {found:?}");
            }
        }
        assert!(refused > 0 && of_types > 0, "no flip reached a type");
    }
}
