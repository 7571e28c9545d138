//! Text and CSV that a client sends for COPY: bytes to lines, lines to values.
//!
//! # Invariants
//! - However the bytes are cut into messages, the values are the same.
//! - Lines end alike in all of one COPY, as in Postgres: `\n`, `\r\n` or `\r`, which the first of them says.
//! - At most one line, of [`LINE_BYTES`], is kept.
//!
//! # Not here
//! What values mean (`copy_rows`).

use crate::failure::Failure;
use crate::pg::copy_options::{CopyCommand, Header};
use crate::pg::copy_rows::{Rows, shown};
use crate::pg::encode::copy::{CopyFormat, CopyOptions};

/// Bytes of a line.
pub(crate) const LINE_BYTES: usize = 64 << 20;

/// 22P04: the bytes are not what the format says.
pub(crate) fn broken(message: impl Into<String>) -> Failure {
    Failure::new("22P04", message)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Newline,
    Return,
    Both,
}

/// The lines of what comes, piece by piece.
pub(crate) struct Lines {
    options: CopyOptions,
    /// The values of a line, one for each column.
    forced: Vec<Forced>,
    header: Header,
    table: String,
    names: Vec<String>,
    fields: Fields,
    /// Bytes of a line that has not come to its end.
    rest: Vec<u8>,
    /// Of them, what has been looked at.
    scanned: usize,
    /// The byte that comes next follows a backslash, or in CSV an escape.
    is_escaped: bool,
    is_quoted: bool,
    ending: Option<Ending>,
    /// The number of the last line, from 1.
    number: u64,
    /// `\.` has come.
    is_over: bool,
}

/// What a column's value is whatever CSV's quotes say.
#[derive(Clone, Copy, Debug, Default)]
struct Forced {
    /// FORCE_NULL: also in quotes, what stands for NULL is NULL.
    null: bool,
    /// FORCE_NOT_NULL: it is not even without.
    not_null: bool,
}

/// The values of a line.
#[derive(Debug, Default)]
struct Fields {
    bytes: Vec<u8>,
    /// Where each ends, if it is not NULL.
    ends: Vec<Option<usize>>,
}

impl Fields {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// The value behind `start` is at its end.
    fn end(&mut self, start: usize, is_null: bool) {
        if is_null {
            self.bytes.truncate(start);
        }
        self.ends.push((!is_null).then_some(self.bytes.len()));
    }

    fn values(&self) -> impl Iterator<Item = Option<&[u8]>> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let value = (*end)?;
            let value = &self.bytes[start..value];
            start += value.len();
            Some(value)
        })
    }
}

impl Lines {
    /// Lines with values for these columns of a table.
    pub fn new(copy: &CopyCommand, table: &str, columns: &[String]) -> Self {
        let is_in = |list: &[String], name: &String| list.iter().any(|n| n == "*" || n == name);
        let forced = |name| Forced {
            null: is_in(&copy.force_null, name),
            not_null: is_in(&copy.force_not_null, name),
        };
        Self {
            options: copy.writer(columns),
            forced: columns.iter().map(forced).collect(),
            header: copy.header,
            table: table.to_owned(),
            names: columns.to_vec(),
            fields: Fields::default(),
            rest: Vec::new(),
            scanned: 0,
            is_escaped: false,
            is_quoted: false,
            ending: None,
            number: 0,
            is_over: false,
        }
    }

    fn is_csv(&self) -> bool {
        self.options.format == CopyFormat::Csv
    }

    /// The next piece of what the client sends, or with `is_last` its end.
    ///
    /// # Errors
    /// 22P04 for what is no line of the format, 54000 for one that is too long, and those of its values.
    pub fn take(&mut self, data: &[u8], is_last: bool, rows: &mut Rows) -> Result<(), Failure> {
        if self.is_over {
            return Ok(());
        }
        let mut bytes = std::mem::take(&mut self.rest);
        bytes.extend_from_slice(data);
        let mut start = 0;
        while let Some((end, next)) = self.line_end(&bytes, start, is_last)? {
            let line = &bytes[start..end];
            (start, self.scanned) = (next, next);
            self.number += 1;
            if line == b"\\." {
                self.is_over = true;
                return Ok(());
            }
            self.line(line, rows)?;
        }
        bytes.drain(..start);
        self.scanned -= start;
        if bytes.len() > LINE_BYTES {
            return Err(Failure::new("54000", format!("a line has more than {LINE_BYTES} bytes")));
        }
        self.rest = bytes;
        Ok(())
    }

    /// Where the line at `start` ends, and the next begins; `None` if its end has not come.
    fn line_end(
        &mut self,
        bytes: &[u8],
        start: usize,
        is_last: bool,
    ) -> Result<Option<(usize, usize)>, Failure> {
        let mut at = self.scanned;
        while let Some(&byte) = bytes.get(at) {
            if self.is_within(byte) {
                at += 1;
                continue;
            }
            let ending = match (byte, bytes.get(at + 1)) {
                (b'\n', _) => Ending::Newline,
                (b'\r', Some(b'\n')) if self.ending != Some(Ending::Return) => Ending::Both,
                (b'\r', None) if self.ending != Some(Ending::Return) && !is_last => {
                    self.scanned = at;
                    return Ok(None);
                }
                _ => Ending::Return,
            };
            let expected = *self.ending.get_or_insert(ending);
            if expected != ending {
                return Err(self.misplaced(byte));
            }
            return Ok(Some((at, at + if ending == Ending::Both { 2 } else { 1 })));
        }
        self.scanned = at;
        if !is_last || at == start {
            return Ok(None);
        }
        if self.is_quoted {
            self.number += 1;
            return Err(self.at_line(broken("unterminated CSV quoted field"), &bytes[start..]));
        }
        Ok(Some((at, at)))
    }

    /// Is the byte within a line, whatever it is?
    fn is_within(&mut self, byte: u8) -> bool {
        if self.is_csv() {
            let (quote, escape) = (self.options.quote, self.options.escape);
            let escapes = quote != escape && byte == escape;
            if self.is_quoted && escapes {
                self.is_escaped = !self.is_escaped;
            }
            if byte == quote && !self.is_escaped {
                self.is_quoted = !self.is_quoted;
            }
            self.is_escaped &= escapes;
            // A line of several is counted as Postgres counts it.
            let newline = if self.ending == Some(Ending::Return) { b'\r' } else { b'\n' };
            self.number += u64::from(self.is_quoted && byte == newline);
            return self.is_quoted || !matches!(byte, b'\n' | b'\r');
        }
        if std::mem::take(&mut self.is_escaped) {
            return true;
        }
        self.is_escaped = byte == b'\\';
        self.is_escaped || !matches!(byte, b'\n' | b'\r')
    }

    fn misplaced(&mut self, byte: u8) -> Failure {
        self.number += 1;
        let what = if byte == b'\n' { "newline" } else { "carriage return" };
        let failure = match self.is_csv() {
            true => broken(format!("unquoted {what} found in data"))
                .with_hint(format!("use a quoted CSV field for a {what}")),
            false => broken(format!("literal {what} found in data"))
                .with_hint(format!("write it as \"\\{}\"", if byte == b'\n' { 'n' } else { 'r' })),
        };
        failure.with_context(format!("COPY {}, line {}", self.table, self.number))
    }

    fn line(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), Failure> {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        let split = match self.is_csv() {
            true => self.csv(line, &mut fields),
            false => {
                self.text(line, &mut fields);
                Ok(())
            }
        };
        split.map_err(|failure| self.at_line(failure, line))?;
        let header = std::mem::replace(&mut self.header, Header::No);
        let done = match header {
            Header::No => self.row(line, &fields, rows),
            Header::Yes => Ok(()),
            Header::Match => {
                self.match_names(&fields).map_err(|failure| self.at_line(failure, line))
            }
        };
        self.fields = fields;
        done
    }

    fn row(&self, line: &[u8], fields: &Fields, rows: &mut Rows) -> Result<(), Failure> {
        let (given, wanted) = (fields.ends.len(), self.names.len());
        if given > wanted {
            return Err(self.at_line(broken("extra data after last expected column"), line));
        }
        if given < wanted {
            let name = &self.names[given];
            let missing = broken(format!("missing data for column \"{name}\""));
            return Err(self.at_line(missing, line));
        }
        rows.push(self.number, 0, fields.values())
    }

    fn match_names(&self, fields: &Fields) -> Result<(), Failure> {
        let (given, wanted) = (fields.ends.len(), self.names.len());
        if given != wanted {
            return Err(broken(format!(
                "wrong number of fields in header line: got {given}, expected {wanted}"
            )));
        }
        for (at, (value, name)) in fields.values().zip(&self.names).enumerate() {
            let field = at + 1;
            let got = match value {
                Some(value) if value == name.as_bytes() => continue,
                Some(value) => format!("got \"{}\"", shown(value)),
                None => format!("got null value (\"{}\")", self.options.null),
            };
            return Err(broken(format!(
                "column name mismatch in header line field {field}: {got}, expected \"{name}\""
            )));
        }
        Ok(())
    }

    fn at_line(&self, failure: Failure, line: &[u8]) -> Failure {
        let (table, number) = (&self.table, self.number);
        failure.with_context(format!("COPY {table}, line {number}: \"{}\"", shown(line)))
    }

    /// A line of text: backslashes are for what would be a separator, a line's end or NULL.
    fn text(&self, line: &[u8], fields: &mut Fields) {
        let (delimiter, null) = (self.options.delimiter, self.options.null.as_bytes());
        let mut at = 0;
        loop {
            let (begun, start) = (at, fields.bytes.len());
            while let Some(&byte) = line.get(at).filter(|byte| **byte != delimiter) {
                at += 1;
                if byte != b'\\' {
                    fields.bytes.push(byte);
                } else if let Some((byte, length)) = escaped(&line[at..]) {
                    fields.bytes.push(byte);
                    at += length;
                }
            }
            fields.end(start, &line[begun..at] == null);
            if at == line.len() {
                return;
            }
            at += 1;
        }
    }

    /// A line of CSV, whose quotes may be anywhere in a value.
    fn csv(&self, line: &[u8], fields: &mut Fields) -> Result<(), Failure> {
        let CopyOptions { delimiter, quote, escape, .. } = self.options;
        let null = self.options.null.as_bytes();
        let (mut at, mut is_quoted) = (0, false);
        loop {
            let (begun, start, mut had_quote) = (at, fields.bytes.len(), false);
            while let Some(&byte) = line.get(at).filter(|byte| is_quoted || **byte != delimiter) {
                at += 1;
                let next = line.get(at).copied().filter(|next| [escape, quote].contains(next));
                match next {
                    Some(next) if is_quoted && byte == escape => {
                        fields.bytes.push(next);
                        at += 1;
                    }
                    _ if byte == quote => {
                        is_quoted = !is_quoted;
                        had_quote = true;
                    }
                    _ => fields.bytes.push(byte),
                }
            }
            if is_quoted {
                return Err(broken("unterminated CSV quoted field"));
            }
            let forced = self.forced.get(fields.ends.len()).copied().unwrap_or_default();
            let is_null = match had_quote {
                true => forced.null && &fields.bytes[start..] == null,
                false => !forced.not_null && &line[begun..at] == null,
            };
            fields.end(start, is_null);
            if at == line.len() {
                return Ok(());
            }
            at += 1;
        }
    }
}

/// The byte that stands behind a backslash as `rest` begins, and the length of how it is written.
fn escaped(rest: &[u8]) -> Option<(u8, usize)> {
    let number = |from: usize, most: usize, radix: u32| {
        let digits = rest.get(from..).unwrap_or_default().iter().take(most);
        let digits = digits.map_while(|byte| char::from(*byte).to_digit(radix));
        // Of three octal digits the last eight bits count.
        digits.fold((0u32, 0), |(number, count), digit| (number * radix + digit, count + 1))
    };
    let &first = rest.first()?;
    Some(match first {
        b'b' => (8, 1),
        b'f' => (12, 1),
        b'n' => (b'\n', 1),
        b'r' => (b'\r', 1),
        b't' => (b'\t', 1),
        b'v' => (11, 1),
        b'0'..=b'7' => {
            let (number, count) = number(0, 3, 8);
            ((number & 0xff) as u8, count)
        }
        b'x' => match number(1, 2, 16) {
            (_, 0) => (b'x', 1),
            (number, count) => (number as u8, 1 + count),
        },
        other => (other, 1),
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, RecordBatch};
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;
    use crate::pg::copy_options::copy_command;

    /// What becomes of `data` for two columns of text, come in pieces of so many bytes.
    fn read(options: &str, data: &[u8], piece: usize) -> Result<RecordBatch, Failure> {
        let copy = copy_command(&format!("COPY t FROM STDIN {options}")).unwrap().unwrap();
        let names = ["a".to_owned(), "b".to_owned()];
        let field = |name: &String| Field::new(name, DataType::Utf8, true);
        let schema = Schema::new(names.iter().map(field).collect::<Vec<_>>());
        let mut rows = Rows::new("t", &schema, &names, "UTC").unwrap();
        let mut lines = Lines::new(&copy, "t", &names);
        for piece in data.chunks(piece) {
            lines.take(piece, false, &mut rows)?;
        }
        lines.take(&[], true, &mut rows)?;
        Ok(rows.batch().unwrap())
    }

    fn shown_rows(batch: &RecordBatch) -> String {
        let value = |column: usize, row: usize| {
            let texts = batch.column(column).as_string::<i32>();
            texts.iter().nth(row).unwrap().map_or("NULL".to_owned(), |text| format!("{text:?}"))
        };
        let row = |at: usize| format!("{} {}", value(0, at), value(1, at));
        (0..batch.num_rows()).map(row).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn values_are_the_same_however_the_bytes_are_cut() {
        for (options, data, expected) in [
            ("", "a\\tb\t\\N\r\n\\\\N\t\r\n", "\"a\\tb\" NULL, \"\\\\N\" \"\""),
            ("", "x\\\ny\t\\x41\\1012\\\n\\.z", "\"x\\ny\" \"AA2\\n.z\""),
            (
                "(FORMAT csv)",
                "\"a\r\nb\",\r\n\"\"\"\",\"\"\r\n",
                "\"a\\r\\nb\" NULL, \"\\\"\" \"\"",
            ),
            (
                "(FORMAT csv, ESCAPE '\\')",
                "\"a\\\"\\\\\nb\",c\\d\n",
                "\"a\\\"\\\\\\nb\" \"c\\\\d\"",
            ),
            ("(FORMAT csv, HEADER)", "x,\"y\n\"\n1,2\n\\.\n3\n", "\"1\" \"2\""),
        ] {
            for piece in 1..=data.len() {
                let found = read(options, data.as_bytes(), piece).unwrap();
                assert_eq!(shown_rows(&found), expected, "{data:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (options, data, code, context) in [
            ("", "1\t2\n3\n", "22P04", "COPY t, line 2: \"3\""),
            ("", "1\t2\t3", "22P04", "COPY t, line 1: \"1\t2\t3\""),
            ("", "1\t2\r3\t4\n", "22P04", "COPY t, line 2"),
            ("(FORMAT csv)", "1,2\n3,\"4\n5,6\n", "22P04", "COPY t, line 4: \"3,\"4\n5,6\n\""),
            ("(HEADER match)", "a\tc\n", "22P04", "COPY t, line 1: \"a\tc\""),
        ] {
            for piece in 1..=data.len() {
                let failure = read(options, data.as_bytes(), piece).unwrap_err();
                assert_eq!(failure.code, code, "{data:?}");
                assert_eq!(failure.context.as_deref(), Some(context), "{data:?}");
            }
        }
        let failure = read("", b"a\t\xc3\x28\n", 9).unwrap_err();
        assert_eq!(failure.code, "22021");
        assert_eq!(failure.context.unwrap(), "COPY t, line 1, column b: \"\u{fffd}(\"");
        let long = [b"1\t".as_slice(), &vec![b'x'; 300], b"\ty\n"].concat();
        let shown = read("", &long, 1000).unwrap_err().context.unwrap();
        assert_eq!(shown, format!("COPY t, line 1: \"1\t{}...\"", "x".repeat(98)));
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let piece = vec![b'x'; 8 << 20];
        let data = piece.repeat(LINE_BYTES / piece.len() + 1);
        assert_eq!(read("", &data, piece.len()).unwrap_err().code, "54000");
    }
}
