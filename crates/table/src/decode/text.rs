//! CSV and JSON lines: cut into chunks of whole records, chunks decoded in parallel.
//!
//! The decoders are arrow-csv and arrow-json. When one refuses a chunk, the chunk is halved until the
//! bad records stand alone, so that they are named exactly and the good ones are kept; a chunk
//! without a bad record never pays for that.

use std::io::Read;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;

use crate::decode::infer::Guess;
use crate::decode::{BadRow, Decoded, InputFile, TextOptions, shorten};
use crate::error::{Result, TableError};
use crate::schema::type_name;

/// Bytes of a chunk: a few milliseconds of parsing.
const CHUNK_BYTES: usize = 4 << 20;
/// A record longer than this is an unclosed quote, not a record.
const RECORD_MAX_BYTES: usize = 64 << 20;
/// Records looked at to guess the columns' types.
const SAMPLE_RECORDS: usize = 20_000;
/// Rows of a decoded batch.
const BATCH_ROWS: usize = 16_384;

/// Whole records of one file.
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    /// Line number of the first record, from 1.
    first_line: u64,
}

pub(super) struct TextInput {
    source: Chunker,
    first: Option<Chunk>,
    decoder: TextDecoder,
}

/// Decodes chunks; cheap to clone, usable from several threads.
#[derive(Clone)]
pub(super) struct TextDecoder {
    name: Arc<str>,
    schema: SchemaRef,
    syntax: Syntax,
}

#[derive(Clone)]
enum Syntax {
    Csv { delimiter: u8, null: Option<Arc<str>> },
    Json,
}

impl TextInput {
    pub fn csv(
        file: &InputFile,
        bytes: Box<dyn Read + Send>,
        options: &TextOptions,
        known: Option<&Schema>,
    ) -> Result<Self> {
        let mut source = Chunker::new(&file.name, bytes, true);
        let mut first = source.next_chunk()?;
        let head = first.as_ref().map_or(&[][..], |c| &c.bytes);
        let line = head.split(|b| *b == b'\n').next().unwrap_or_default();
        let delimiter = options.delimiter.unwrap_or_else(|| guess_delimiter(line));
        let records = CsvRecords::new(head, delimiter);
        let mut records = records.peekable();
        let Some(width) = records.peek().map(|r| r.fields.len()) else {
            return Err(input_error(&file.name, "has no records".into()));
        };
        let names = if options.header {
            let header = records.next();
            header_names(&file.name, header.map(|r| r.fields).unwrap_or_default())?
        } else {
            names_without_header(&file.name, width, known)?
        };
        let mut guesses = vec![Guess::Nothing; names.len()];
        for record in records.take(SAMPLE_RECORDS).filter(|r| r.fields.len() == names.len()) {
            for (guess, value) in guesses.iter_mut().zip(&record.fields) {
                let text = String::from_utf8_lossy(value);
                if !text.is_empty() && Some(text.as_ref()) != options.null.as_deref() {
                    *guess = guess.and(Guess::of(&text));
                }
            }
        }
        if options.header {
            skip_header(&mut first);
        }
        let fields: Vec<Field> = names
            .iter()
            .zip(&guesses)
            .map(|(name, guess)| known_field(known, name, guess.data_type()))
            .collect();
        let null = options.null.as_deref().map(Arc::from);
        let decoder = TextDecoder {
            name: file.name.as_str().into(),
            schema: Arc::new(Schema::new(fields)),
            syntax: Syntax::Csv { delimiter, null },
        };
        decoder.check_types()?;
        Ok(Self { source, first, decoder })
    }

    pub fn json(
        file: &InputFile,
        bytes: Box<dyn Read + Send>,
        known: Option<&Schema>,
    ) -> Result<Self> {
        let mut source = Chunker::new(&file.name, bytes, false);
        let first = source.next_chunk()?;
        let head = first.as_ref().map_or(&[][..], |c| &c.bytes);
        let schema = json_schema(&file.name, head, known)?;
        let decoder = TextDecoder {
            name: file.name.as_str().into(),
            schema: Arc::new(schema),
            syntax: Syntax::Json,
        };
        Ok(Self { source, first, decoder })
    }

    pub fn schema(&self) -> SchemaRef {
        // NOT NULL is checked when rows are decoded; the columns themselves may be compared freely.
        SchemaRef::clone(&self.decoder.schema)
    }

    pub fn next_chunk(&mut self) -> Result<Option<Chunk>> {
        match self.first.take() {
            Some(chunk) => Ok(Some(chunk)),
            None => self.source.next_chunk(),
        }
    }

    pub fn decoder(&self) -> TextDecoder {
        self.decoder.clone()
    }
}

/// The field of the table or `--schema` if it has one of that name.
fn known_field(known: Option<&Schema>, name: &str, guess: DataType) -> Field {
    match known.and_then(|s| s.field_with_name(name).ok()) {
        Some(field) => field.clone(),
        None => Field::new(name, guess, true),
    }
}

fn input_error(file: &str, reason: String) -> TableError {
    TableError::Input { file: file.to_owned(), reason }
}

fn guess_delimiter(line: &[u8]) -> u8 {
    let count = |d: u8| memchr::memchr_iter(d, line).count();
    // The comma wins ties: it is what the C in CSV stands for.
    [b',', b'\t', b';', b'|'].into_iter().rev().max_by_key(|d| count(*d)).unwrap_or(b',')
}

fn header_names(file: &str, fields: Vec<Vec<u8>>) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::with_capacity(fields.len());
    for (i, field) in fields.into_iter().enumerate() {
        let name = String::from_utf8(field).map_err(|_| {
            input_error(file, format!("line 1: column name {} is not UTF-8", i + 1))
        })?;
        let name = name.trim().to_owned();
        if name.is_empty() {
            return Err(input_error(
                file,
                format!(
                    "line 1: column {} has no name; if there is no header line, say --no-header",
                    i + 1
                ),
            ));
        }
        if names.contains(&name) {
            return Err(input_error(file, format!("line 1: two columns are named `{name}`")));
        }
        names.push(name);
    }
    Ok(names)
}

fn names_without_header(file: &str, width: usize, known: Option<&Schema>) -> Result<Vec<String>> {
    match known {
        Some(schema) if schema.fields().len() == width => {
            Ok(schema.fields().iter().map(|f| f.name().clone()).collect())
        }
        Some(schema) => Err(input_error(
            file,
            format!(
                "has {width} fields a line, but the table (or --schema) has {} columns; without a \
                 header line they must be the same",
                schema.fields().len()
            ),
        )),
        None => Ok((1..=width).map(|i| format!("column_{i}")).collect()),
    }
}

fn skip_header(first: &mut Option<Chunk>) {
    if let Some(chunk) = first {
        let end = record_end(&chunk.bytes, true).unwrap_or(chunk.bytes.len());
        chunk.first_line += memchr::memchr_iter(b'\n', &chunk.bytes[..end]).count() as u64;
        chunk.bytes.drain(..end);
    }
}

fn json_schema(file: &str, head: &[u8], known: Option<&Schema>) -> Result<Schema> {
    let mut names: Vec<String> = Vec::new();
    let mut guesses: std::collections::HashMap<String, Guess> = Default::default();
    let mut nested: Vec<serde_json::Value> = Vec::new();
    for line in head.split(|b| *b == b'\n').take(SAMPLE_RECORDS) {
        let Ok(serde_json::Value::Object(object)) = serde_json::from_slice(line) else { continue };
        for (key, value) in &object {
            if !guesses.contains_key(key) {
                names.push(key.clone());
                guesses.insert(key.clone(), Guess::Nothing);
            }
            let Some(guess) = guesses.get_mut(key) else { continue };
            *guess = guess.and(match value {
                serde_json::Value::Null => Guess::Nothing,
                serde_json::Value::Bool(_) => Guess::Boolean,
                serde_json::Value::Number(n) if n.is_i64() => Guess::Integer,
                serde_json::Value::Number(n) if n.is_u64() => Guess::Text,
                serde_json::Value::Number(_) => Guess::Float,
                serde_json::Value::String(text) => match Guess::of(text) {
                    // A quoted number was meant as text.
                    Guess::Integer | Guess::Float | Guess::Boolean => Guess::Text,
                    other => other,
                },
                serde_json::Value::Array(_) | serde_json::Value::Object(_) => {
                    nested.push(serde_json::json!({ key: value }));
                    Guess::Nothing
                }
            });
        }
    }
    if names.is_empty() && known.is_none() {
        return Err(input_error(file, "holds no JSON object in its first lines".into()));
    }
    let nested = arrow::json::reader::infer_json_schema_from_iterator(nested.into_iter().map(Ok))
        .map_err(|e| TableError::arrow(format!("reading {file}"), e))?;
    let mut fields = Vec::with_capacity(names.len());
    for name in &names {
        let guess = guesses.get(name).copied().unwrap_or_default();
        let inferred = match (guess, nested.field_with_name(name)) {
            (Guess::Nothing, Ok(field)) => crate::schema::stored_type(field.data_type())
                .map_err(|reason| input_error(file, format!("column `{name}`: {reason}")))?,
            _ => guess.data_type(),
        };
        fields.push(known_field(known, name, inferred));
    }
    // A key that the sample lacks may still come: the table's columns are all expected.
    for field in known.map(Schema::fields).into_iter().flatten() {
        if !names.contains(field.name()) && field.is_nullable() {
            fields.push(field.as_ref().clone());
        }
    }
    Ok(Schema::new(fields))
}

impl TextDecoder {
    fn check_types(&self) -> Result<()> {
        for field in self.schema.fields() {
            if field.data_type().is_nested() || field.data_type() == &DataType::Binary {
                return Err(input_error(
                    &self.name,
                    format!(
                        "column `{}` is {} in the table, which CSV cannot hold; load it from Parquet",
                        field.name(),
                        type_name(field.data_type())
                    ),
                ));
            }
        }
        Ok(())
    }

    pub fn decode(&self, chunk: &Chunk, max_bad: usize) -> Result<Decoded> {
        if let Ok(batches) = self.parse(&chunk.bytes) {
            return Ok(Decoded { batches, bad: Vec::new() });
        }
        let records = record_ranges(&chunk.bytes, matches!(self.syntax, Syntax::Csv { .. }));
        let mut decoded = Decoded { batches: Vec::new(), bad: Vec::new() };
        self.decode_range(chunk, &records, max_bad, &mut decoded);
        Ok(decoded)
    }

    /// Halves a refused range until each bad record stands alone.
    fn decode_range(
        &self,
        chunk: &Chunk,
        records: &[(usize, usize)],
        max_bad: usize,
        out: &mut Decoded,
    ) {
        let (Some(first), Some(last)) = (records.first(), records.last()) else { return };
        if out.bad.len() >= max_bad {
            return;
        }
        match self.parse(&chunk.bytes[first.0..last.1]) {
            Ok(batches) => out.batches.extend(batches),
            Err(error) if records.len() == 1 => {
                let lines = memchr::memchr_iter(b'\n', &chunk.bytes[..first.0]).count() as u64;
                let record = &chunk.bytes[first.0..first.1];
                out.bad.push(self.explain(record, chunk.first_line + lines, &error));
            }
            Err(_) => {
                let (left, right) = records.split_at(records.len() / 2);
                self.decode_range(chunk, left, max_bad, out);
                self.decode_range(chunk, right, max_bad, out);
            }
        }
    }

    fn parse(&self, bytes: &[u8]) -> Result<Vec<RecordBatch>, ArrowError> {
        match &self.syntax {
            Syntax::Csv { delimiter, null } => {
                parse_csv(bytes, &self.schema, *delimiter, null.as_deref())
            }
            Syntax::Json => parse_json(bytes, &self.schema),
        }
    }

    /// Which column of a refused record is to blame, and what it should have held.
    fn explain(&self, record: &[u8], line: u64, error: &ArrowError) -> BadRow {
        let text = String::from_utf8_lossy(record).trim_end_matches(['\r', '\n']).to_owned();
        let mut bad = BadRow {
            file: self.name.to_string(),
            line,
            is_row: false,
            column: None,
            value: None,
            problem: plain_message(error),
            record: text,
        };
        match &self.syntax {
            Syntax::Csv { delimiter, null } => {
                self.explain_csv(record, *delimiter, null.as_deref(), &mut bad);
            }
            Syntax::Json => self.explain_json(record, &mut bad),
        }
        bad
    }

    fn explain_csv(&self, record: &[u8], delimiter: u8, null: Option<&str>, bad: &mut BadRow) {
        let Some(fields) = CsvRecords::new(record, delimiter).next().map(|r| r.fields) else {
            return;
        };
        let width = self.schema.fields().len();
        if fields.len() != width {
            bad.problem = format!("has {} fields, expected {width}", fields.len());
            bad.value = Some(shorten(&bad.record));
            return;
        }
        for (field, value) in self.schema.fields().iter().zip(&fields) {
            let one = Arc::new(Schema::new(vec![Arc::clone(field)]));
            if parse_csv(&quoted(value), &one, b',', null).is_err() {
                self.blame(field, &String::from_utf8_lossy(value), value, bad);
                return;
            }
        }
    }

    fn blame(&self, field: &Field, shown: &str, value: &[u8], bad: &mut BadRow) {
        bad.column = Some(field.name().clone());
        bad.value = Some(shorten(shown));
        bad.problem = if std::str::from_utf8(value).is_err() {
            "is not valid UTF-8".to_owned()
        } else if value.is_empty() && !field.is_nullable() {
            "is NULL, but the column is NOT NULL".to_owned()
        } else {
            format!("is not a {}", type_name(field.data_type()))
        };
    }

    fn explain_json(&self, record: &[u8], bad: &mut BadRow) {
        let object = match serde_json::from_slice(record) {
            Ok(serde_json::Value::Object(object)) => object,
            Ok(_) => {
                bad.problem = "is not a JSON object".to_owned();
                bad.value = Some(shorten(&bad.record));
                return;
            }
            Err(e) => {
                bad.problem = format!("is not valid JSON: {e}");
                bad.value = Some(shorten(&bad.record));
                return;
            }
        };
        for key in object.keys() {
            if self.schema.field_with_name(key).is_err() {
                bad.column = Some(key.clone());
                bad.problem = "is a key that the table and the first lines of the file do not have"
                    .to_owned();
                return;
            }
        }
        for field in self.schema.fields() {
            let value = object.get(field.name()).cloned().unwrap_or_default();
            let single = serde_json::json!({ field.name(): value }).to_string();
            let one = Arc::new(Schema::new(vec![Arc::clone(field)]));
            if parse_json(single.as_bytes(), &one).is_err() {
                bad.column = Some(field.name().clone());
                bad.value = Some(shorten(&value.to_string()));
                bad.problem = if value.is_null() {
                    "is NULL, but the column is NOT NULL".to_owned()
                } else {
                    format!("is not a {}", type_name(field.data_type()))
                };
                return;
            }
        }
    }
}

fn plain_message(error: &ArrowError) -> String {
    let text = error.to_string();
    text.split_once("error: ").map_or(text.as_str(), |(_, rest)| rest).to_owned()
}

fn quoted(value: &[u8]) -> Vec<u8> {
    if value.is_empty() {
        // An empty line would be no record at all.
        return b"\"\"\n".to_vec();
    }
    let mut out = vec![b'"'];
    for byte in value {
        if *byte == b'"' {
            out.push(b'"');
        }
        out.push(*byte);
    }
    out.extend_from_slice(b"\"\n");
    out
}

fn parse_csv(
    bytes: &[u8],
    schema: &SchemaRef,
    delimiter: u8,
    null: Option<&str>,
) -> Result<Vec<RecordBatch>, ArrowError> {
    let mut builder = arrow::csv::ReaderBuilder::new(SchemaRef::clone(schema))
        .with_header(false)
        .with_delimiter(delimiter)
        .with_batch_size(BATCH_ROWS);
    if let Some(null) = null {
        let pattern = format!("^({})?$", regex::escape(null));
        let pattern = regex::Regex::new(&pattern)
            .map_err(|e| ArrowError::CsvError(format!("--null: {e}")))?;
        builder = builder.with_null_regex(pattern);
    }
    let mut decoder = builder.build_decoder();
    let (mut batches, mut rest) = (Vec::new(), bytes);
    loop {
        let read = decoder.decode(rest)?;
        rest = &rest[read..];
        if read == 0 || decoder.capacity() == 0 {
            match decoder.flush()? {
                Some(batch) => batches.push(batch),
                None if read == 0 => return Ok(batches),
                None => {}
            }
        }
    }
}

fn parse_json(bytes: &[u8], schema: &SchemaRef) -> Result<Vec<RecordBatch>, ArrowError> {
    let mut decoder = arrow::json::ReaderBuilder::new(SchemaRef::clone(schema))
        .with_batch_size(BATCH_ROWS)
        .with_strict_mode(true)
        .build_decoder()?;
    let (mut batches, mut rest) = (Vec::new(), bytes);
    loop {
        let read = decoder.decode(rest)?;
        rest = &rest[read..];
        if rest.is_empty() || read == 0 || decoder.len() == BATCH_ROWS {
            match decoder.flush()? {
                Some(batch) => batches.push(batch),
                None => return Ok(batches),
            }
        }
    }
}

/// Reads a stream and cuts it at record ends.
struct Chunker {
    name: String,
    reader: Box<dyn Read + Send>,
    carry: Vec<u8>,
    line: u64,
    quotes: bool,
    done: bool,
}

impl Chunker {
    fn new(name: &str, reader: Box<dyn Read + Send>, quotes: bool) -> Self {
        Self { name: name.to_owned(), reader, carry: Vec::new(), line: 1, quotes, done: false }
    }

    fn next_chunk(&mut self) -> Result<Option<Chunk>> {
        let mut wanted = CHUNK_BYTES;
        while !self.done {
            let missing = wanted.saturating_sub(self.carry.len()) as u64;
            let read = (&mut self.reader)
                .take(missing)
                .read_to_end(&mut self.carry)
                .map_err(|e| input_error(&self.name, format!("cannot be read to its end: {e}")))?;
            if (read as u64) < missing {
                self.done = true;
                break;
            }
            if let Some(end) = last_record_end(&self.carry, self.quotes) {
                let rest = self.carry.split_off(end);
                let bytes = std::mem::replace(&mut self.carry, rest);
                return Ok(Some(self.chunk(bytes)));
            }
            wanted = self.carry.len() * 2;
            if wanted > RECORD_MAX_BYTES {
                return Err(input_error(
                    &self.name,
                    format!(
                        "line {}: no end of record within {} MiB; is a quote not closed?",
                        self.line,
                        self.carry.len() >> 20
                    ),
                ));
            }
        }
        let bytes = std::mem::take(&mut self.carry);
        Ok((!bytes.is_empty()).then(|| self.chunk(bytes)))
    }

    fn chunk(&mut self, mut bytes: Vec<u8>) -> Chunk {
        if self.line == 1 && bytes.starts_with(b"\xef\xbb\xbf") {
            bytes.drain(..3);
        }
        let first_line = self.line;
        self.line += memchr::memchr_iter(b'\n', &bytes).count() as u64;
        Chunk { bytes, first_line }
    }
}

/// Where the first record ends (after its newline).
fn record_end(bytes: &[u8], quotes: bool) -> Option<usize> {
    let mut inside = false;
    for at in memchr::memchr2_iter(b'"', b'\n', bytes) {
        match bytes[at] {
            b'"' if quotes => inside = !inside,
            b'\n' if !inside => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// Where the last whole record ends. `bytes` starts at a record.
fn last_record_end(bytes: &[u8], quotes: bool) -> Option<usize> {
    if !quotes || memchr::memchr(b'"', bytes).is_none() {
        return memchr::memrchr(b'\n', bytes).map(|at| at + 1);
    }
    let (mut inside, mut last) = (false, None);
    for at in memchr::memchr2_iter(b'"', b'\n', bytes) {
        match bytes[at] {
            b'"' => inside = !inside,
            _ if !inside => last = Some(at + 1),
            _ => {}
        }
    }
    last
}

/// Start and end of each record.
fn record_ranges(bytes: &[u8], quotes: bool) -> Vec<(usize, usize)> {
    let (mut ranges, mut start, mut inside) = (Vec::new(), 0, false);
    for at in memchr::memchr2_iter(b'"', b'\n', bytes) {
        match bytes[at] {
            b'"' if quotes => inside = !inside,
            b'\n' if !inside => {
                ranges.push((start, at + 1));
                start = at + 1;
            }
            _ => {}
        }
    }
    if start < bytes.len() {
        ranges.push((start, bytes.len()));
    }
    ranges
}

struct CsvRecord {
    fields: Vec<Vec<u8>>,
}

/// The records of some CSV bytes, for headers, guesses and explanations (not for loading).
struct CsvRecords<'a> {
    reader: csv_core::Reader,
    rest: &'a [u8],
}

impl<'a> CsvRecords<'a> {
    fn new(bytes: &'a [u8], delimiter: u8) -> Self {
        Self { reader: csv_core::ReaderBuilder::new().delimiter(delimiter).build(), rest: bytes }
    }
}

impl Iterator for CsvRecords<'_> {
    type Item = CsvRecord;

    fn next(&mut self) -> Option<CsvRecord> {
        let mut fields = Vec::new();
        let mut output = vec![0; 4096];
        let mut field = Vec::new();
        loop {
            let (result, read, written) = self.reader.read_field(self.rest, &mut output);
            self.rest = &self.rest[read..];
            field.extend_from_slice(&output[..written]);
            match result {
                csv_core::ReadFieldResult::Field { record_end } => {
                    fields.push(std::mem::take(&mut field));
                    if record_end {
                        return Some(CsvRecord { fields });
                    }
                }
                csv_core::ReadFieldResult::End => return None,
                csv_core::ReadFieldResult::InputEmpty | csv_core::ReadFieldResult::OutputFull => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(text: &str, quotes: bool) -> Vec<(u64, String)> {
        let mut chunker =
            Chunker::new("f", Box::new(std::io::Cursor::new(text.to_owned())), quotes);
        let mut out = Vec::new();
        while let Some(chunk) = chunker.next_chunk().unwrap() {
            out.push((chunk.first_line, String::from_utf8(chunk.bytes).unwrap()));
        }
        out
    }

    #[test]
    fn chunks_hold_whole_records_and_know_their_line() {
        let record = format!("{},\"two\nlines\"\n", "x".repeat(1000));
        let text = record.repeat(10_000);
        let parts = chunks(&text, true);
        assert!(parts.len() > 1);
        assert_eq!(parts.iter().map(|(_, t)| t.as_str()).collect::<String>(), text);
        let mut line = 1;
        for (first_line, part) in &parts {
            assert_eq!(*first_line, line);
            assert!(part.starts_with("xx") && part.ends_with("lines\"\n"));
            line += part.matches('\n').count() as u64;
        }
    }

    #[test]
    fn an_unclosed_quote_is_named_instead_of_read_for_ever() {
        let text = format!("a,b\n1,\"{}", "y".repeat(70 << 20));
        let mut chunker = Chunker::new("f", Box::new(std::io::Cursor::new(text)), true);
        chunker.next_chunk().unwrap();
        let error = chunker.next_chunk().err().expect("no record ends").to_string();
        assert!(error.contains("line 2") && error.contains("quote"), "{error}");
    }

    fn decoder(columns: &[(&str, DataType, bool)], syntax: Syntax) -> TextDecoder {
        let fields: Vec<Field> =
            columns.iter().map(|(n, t, null)| Field::new(*n, t.clone(), *null)).collect();
        TextDecoder { name: "f".into(), schema: Arc::new(Schema::new(fields)), syntax }
    }

    fn decode(decoder: &TextDecoder, text: &[u8]) -> (usize, Vec<BadRow>) {
        let chunk = Chunk { bytes: text.to_vec(), first_line: 2 };
        let decoded = decoder.decode(&chunk, 100).unwrap();
        (decoded.batches.iter().map(RecordBatch::num_rows).sum(), decoded.bad)
    }

    #[test]
    fn bad_csv_rows_are_named_and_the_others_kept() {
        let csv = Syntax::Csv { delimiter: b',', null: None };
        let decoder = decoder(&[("n", DataType::Int64, true), ("t", DataType::Utf8, false)], csv);
        let text = b"1,a\nx2,b\n3,\"c\nd\"\n4\n5,\xff\n6,\n7,z\n";
        let (good, bad) = decode(&decoder, text);
        assert_eq!(good, 3);
        let shown: Vec<String> = bad.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "f, line 3, column `n`: \"x2\" is not a bigint",
                "f, line 6: \"4\" has 1 fields, expected 2",
                "f, line 7, column `t`: \"\u{fffd}\" is not valid UTF-8",
                "f, line 8, column `t`: \"\" is NULL, but the column is NOT NULL",
            ]
        );
    }

    #[test]
    fn bad_json_rows_are_named_and_the_others_kept() {
        let decoder =
            decoder(&[("n", DataType::Int64, true), ("t", DataType::Utf8, true)], Syntax::Json);
        let text = b"{\"n\":1}\n{\"n\":\"q\",\"t\":\"a\"}\n{\"n\":2,\n{\"z\":1}\n{\"t\":\"ok\"}\n";
        let (good, bad) = decode(&decoder, text);
        assert_eq!(good, 2);
        assert_eq!(bad.len(), 3);
        assert_eq!(bad[0].to_string(), "f, line 3, column `n`: \"\\\"q\\\"\" is not a bigint");
        assert!(bad[1].problem.contains("not valid JSON"), "{}", bad[1]);
        assert_eq!(bad[2].column.as_deref(), Some("z"));
    }

    #[test]
    fn empty_fields_and_the_null_text_are_null() {
        let csv = Syntax::Csv { delimiter: b',', null: Some("\\N".into()) };
        let decoder = decoder(&[("n", DataType::Int64, true), ("t", DataType::Utf8, true)], csv);
        let chunk = Chunk { bytes: b"\\N,\\N\n,x\n".to_vec(), first_line: 1 };
        let decoded = decoder.decode(&chunk, 1).unwrap();
        assert!(decoded.bad.is_empty(), "{:?}", decoded.bad);
        let batch = &decoded.batches[0];
        assert_eq!(batch.column(0).null_count(), 2);
        assert_eq!(batch.column(1).null_count(), 1);
    }
}
