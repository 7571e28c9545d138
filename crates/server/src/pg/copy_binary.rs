//! Binary files of COPY: a head, rows of counted values, an end.
//!
//! # Invariants
//! - However the bytes are cut into messages, the values are the same.
//! - At most one row, of [`LINE_BYTES`], is kept.

use crate::failure::Failure;
use crate::pg::copy_lines::{LINE_BYTES, broken};
use crate::pg::copy_rows::Rows;
use crate::pg::encode::copy::SIGNATURE;

/// The signature's own bytes; flags and the length of what extends them follow.
const OWN_BYTES: usize = 11;
/// A flag of files that had a column more, long ago.
const WITH_OIDS: u32 = 1 << 16;

/// The rows of what comes, piece by piece.
#[derive(Debug)]
pub(crate) struct Binary {
    table: String,
    columns: usize,
    rest: Vec<u8>,
    /// Has the head come?
    is_begun: bool,
    is_over: bool,
    number: u64,
}

impl Binary {
    /// Rows of so many values of a table.
    pub fn new(table: &str, columns: usize) -> Self {
        let table = table.to_owned();
        Self { table, columns, rest: Vec::new(), is_begun: false, is_over: false, number: 0 }
    }

    /// The next piece of what the client sends, or with `is_last` its end.
    ///
    /// # Errors
    /// 22P04 for what is no such file, 54000 for a row that is too long, and those of values.
    pub fn take(&mut self, data: &[u8], is_last: bool, rows: &mut Rows) -> Result<(), Failure> {
        let mut bytes = std::mem::take(&mut self.rest);
        bytes.extend_from_slice(data);
        let mut rest = bytes.as_slice();
        if !self.is_begun {
            match head(rest)? {
                Some(behind) => (rest, self.is_begun) = (behind, true),
                None if is_last => return Err(broken("COPY file signature not recognized")),
                None => {}
            }
        }
        while self.is_begun && !rest.is_empty() {
            if self.is_over {
                return Err(broken("received copy data after EOF marker"));
            }
            let Some((count, behind)) = rest.split_first_chunk() else { break };
            let count = i16::from_be_bytes(*count);
            self.number += 1;
            if count == -1 {
                (rest, self.is_over) = (behind, true);
                continue;
            }
            if usize::try_from(count) != Ok(self.columns) {
                let columns = self.columns;
                let wrong = format!("row field count is {count}, expected {columns}");
                return Err(self.located(broken(wrong)));
            }
            let Some((values, behind)) =
                values(behind, self.columns).map_err(|failure| self.located(failure))?
            else {
                self.number -= 1;
                break;
            };
            rows.push(self.number, 1, values.into_iter())?;
            rest = behind;
        }
        let left = rest.len();
        if is_last && left > 0 {
            self.number += 1;
            return Err(self.located(broken("unexpected EOF in COPY data")));
        }
        if left > LINE_BYTES {
            return Err(Failure::new("54000", format!("a row has more than {LINE_BYTES} bytes")));
        }
        bytes.drain(..bytes.len() - left);
        self.rest = bytes;
        Ok(())
    }

    fn located(&self, failure: Failure) -> Failure {
        failure.with_context(format!("COPY {}, line {}", self.table, self.number))
    }
}

/// What is behind the head; `None` if it has not come.
fn head(bytes: &[u8]) -> Result<Option<&[u8]>, Failure> {
    let own = &SIGNATURE[..OWN_BYTES];
    let come = bytes.len().min(OWN_BYTES);
    if bytes[..come] != own[..come] {
        return Err(broken("COPY file signature not recognized"));
    }
    let word = |at: usize| bytes.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word));
    let (Some(flags), Some(extension)) = (word(OWN_BYTES), word(OWN_BYTES + 4)) else {
        return Ok(None);
    };
    if flags & WITH_OIDS != 0 {
        return Err(broken("invalid COPY file header (WITH OIDS)"));
    }
    if flags >> 16 != 0 {
        return Err(broken("unrecognized critical flags in COPY file header"));
    }
    let extension = usize::try_from(extension).unwrap_or(usize::MAX);
    if extension > LINE_BYTES {
        return Err(broken("invalid COPY file header (wrong length)"));
    }
    Ok(bytes.get(OWN_BYTES + 8 + extension..))
}

type Values<'a> = Vec<Option<&'a [u8]>>;

/// The values of a row, and what is behind it; `None` if it has not come to its end.
fn values(mut rest: &[u8], count: usize) -> Result<Option<(Values<'_>, &[u8])>, Failure> {
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        let Some((length, behind)) = rest.split_first_chunk() else { return Ok(None) };
        rest = behind;
        let length = i32::from_be_bytes(*length);
        if length == -1 {
            values.push(None);
            continue;
        }
        let length = usize::try_from(length).map_err(|_| broken("invalid field size"))?;
        let Some((value, behind)) = rest.split_at_checked(length) else { return Ok(None) };
        values.push(Some(value));
        rest = behind;
    }
    Ok(Some((values, rest)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int64Array, RecordBatch, StringArray};
    use arrow::datatypes::SchemaRef;

    use super::*;
    use crate::pg::encode::Options;
    use crate::pg::encode::copy::{CopyEncoder, CopyFormat, CopyOptions};

    fn batch() -> RecordBatch {
        let numbers = Int64Array::from(vec![Some(1), None, Some(-3)]);
        let texts = StringArray::from(vec![Some("é"), Some(""), None]);
        let floats = Float64Array::from(vec![1.5, f64::NEG_INFINITY, 0.0]);
        let columns: [(&str, arrow::array::ArrayRef); 3] =
            [("n", Arc::new(numbers)), ("t", Arc::new(texts)), ("x", Arc::new(floats))];
        let columns = columns.map(|(name, column)| (name, column, true));
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    }

    /// The file that COPY TO makes of it, without the messages' heads.
    fn file(batch: &RecordBatch) -> Vec<u8> {
        let options = CopyOptions::new(CopyFormat::Binary);
        let mut encoder = CopyEncoder::new(&batch.schema(), options, Options::default()).unwrap();
        let mut out = Vec::new();
        encoder.encode(batch, 0..batch.num_rows(), &mut out).unwrap();
        encoder.finish(&mut out);
        let (mut rest, mut file) = (&out[..], Vec::new());
        while let [b'd', behind @ ..] = rest {
            let length = u32::from_be_bytes(behind[..4].try_into().unwrap()) as usize;
            file.extend_from_slice(&behind[4..length]);
            rest = &behind[length..];
        }
        file
    }

    fn read(schema: &SchemaRef, data: &[u8], piece: usize) -> Result<RecordBatch, Failure> {
        let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
        let mut rows = Rows::new("t", schema, &names, "UTC").unwrap();
        let mut binary = Binary::new("t", names.len());
        for piece in data.chunks(piece) {
            binary.take(piece, false, &mut rows)?;
        }
        binary.take(&[], true, &mut rows)?;
        rows.batch()
    }

    #[test]
    fn what_copy_to_writes_is_read_however_it_is_cut() {
        let (batch, file) = (batch(), file(&batch()));
        for piece in 1..=file.len() {
            assert_eq!(read(&batch.schema(), &file, piece).unwrap(), batch, "{piece}");
        }
        // The end need not be said.
        assert_eq!(read(&batch.schema(), &file[..file.len() - 2], 7).unwrap(), batch);
        for cut in 1..file.len() - 2 {
            let found = read(&batch.schema(), &file[..cut], 9);
            // Whole rows are what they are.
            assert!(found.is_err() || found.unwrap().num_rows() < 3, "{cut}");
        }
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        let schema = batch().schema();
        let whole = file(&batch());
        let with = |at: usize, byte: u8| {
            let mut changed = whole.clone();
            changed[at] = byte;
            changed
        };
        let more = [whole.as_slice(), &[0]].concat();
        for data in [
            with(3, b'x'),
            with(12, 1),
            with(11, 1),
            with(15, 0x7f),
            // Another number of columns, a value that is longer than all that comes, one of less than none.
            with(20, 4),
            with(24, 99),
            with(21, 0x80),
            more,
        ] {
            assert_eq!(read(&schema, &data, 5).unwrap_err().code, "22P04", "{data:?}");
        }
    }
}
