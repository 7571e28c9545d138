//! CSV and JSON lines: cut into chunks of whole records, chunks decoded in parallel.
//!
//! The decoders are arrow-csv and arrow-json. When one refuses a chunk, the chunk is halved until the
//! bad records stand alone, so that they are named exactly and the good ones are kept; a chunk
//! without a bad record never pays for that.

use std::collections::HashSet;
use std::io::Read;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;

use super::bad_row::{BadRow, shorten};
use super::infer::Guess;
use super::json_columns;
use super::records::{
    Chunk, Chunker, CsvRecords, Quotes, RecordEnds, input_error, line_at, record_ranges,
};
use super::source::InputFile;
use super::strict;
use crate::error::{Result, TableError};
use crate::schema::type_name;

/// Records looked at to guess the columns' types.
const SAMPLE_RECORDS: usize = 20_000;
/// Of those, as many as tell whether the first line is one of names.
const HEADER_RECORDS: usize = 100;
/// JSON numbers of this size are more often ids of 20 digits than measurements.
const MAYBE_WHOLE: std::ops::Range<f64> = 1.8e19..1e25;
/// Rows of a decoded batch at most, …
const BATCH_ROWS: usize = 16_384;
/// … and at least, …
const LEAST_BATCH_ROWS: usize = 64;
/// … and fewer than the most where columns are many: the decoders allocate for each value of a batch before they
/// see one.
const BATCH_VALUES: usize = 2 << 20;

/// How text files are to be read.
#[derive(Clone, Debug)]
pub struct TextOptions {
    /// CSV field separator; `None` finds it in the first line.
    pub delimiter: Option<u8>,
    /// Does a CSV start with a line of column names?
    pub header: Header,
    /// CSV text that means NULL, beside an empty field.
    pub null: Option<String>,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self { delimiter: None, header: Header::Find, null: None }
    }
}

/// Does a CSV start with a line of column names?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Its first lines say: see [`is_header`].
    Find,
    Yes,
    No,
}

pub(super) struct TextInput {
    source: Chunker,
    first: Option<Chunk>,
    decoder: TextDecoder,
    /// Of a CSV, as it was found.
    pub header: Header,
}

/// Decoded rows of a chunk, in order, and the rows that were not good.
pub(crate) struct Decoded {
    pub batches: Vec<RecordBatch>,
    pub bad: Vec<BadRow>,
}

/// Decodes chunks; cheap to clone, usable from several threads.
#[derive(Clone)]
pub(super) struct TextDecoder {
    name: Arc<str>,
    schema: SchemaRef,
    syntax: Syntax,
    /// The columns that are wanted, all if `None`.
    wanted: Option<Arc<[usize]>>,
    /// Are records counted, because they are no lines?
    is_rows: bool,
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
        key: &[String],
    ) -> Result<Self> {
        let mut source =
            Chunker::new(&file.name, bytes, Some(Quotes { delimiter: options.delimiter }));
        let mut first = source.next_chunk()?;
        let head = first.as_ref().map_or(&[][..], |c| &c.bytes);
        let lines = head.strip_suffix(b"\n").unwrap_or(head);
        if memchr::memchr(b'\n', lines).is_none()
            && memchr::memchr(b'\r', head).is_some_and(|at| at + 1 < head.len())
        {
            return Err(input_error(
                &file.name,
                "ends its lines with carriage returns only; convert it: tr '\\r' '\\n'".into(),
            ));
        }
        let delimiter = source.delimiter();
        let records = CsvRecords::new(head, delimiter);
        let mut records = records.peekable();
        let Some(width) = records.peek().map(|r| r.fields.len()) else {
            return Err(input_error(&file.name, "has no records".into()));
        };
        let header = match options.header {
            Header::Find => found_header(head, delimiter, known),
            said => said,
        };
        let has_header = header == Header::Yes;
        let names = if has_header {
            let header = records.next();
            header_names(&file.name, header.map(|r| r.fields).unwrap_or_default())?
        } else {
            names_without_header(&file.name, width, known)?
        };
        let mut guesses = vec![Guess::Nothing; names.len()];
        let is_known = |name: &String| known.is_some_and(|k| k.field_with_name(name).is_ok());
        let sample = if names.iter().all(is_known) { 0 } else { SAMPLE_RECORDS };
        for record in records.take(sample).filter(|r| r.fields.len() == names.len()) {
            for (guess, value) in guesses.iter_mut().zip(&record.fields) {
                let text = String::from_utf8_lossy(value);
                if !text.is_empty() && Some(text.as_ref()) != options.null.as_deref() {
                    *guess = guess.and(Guess::of(&text));
                }
            }
        }
        if has_header {
            skip_header(&mut first, delimiter);
        }
        let fields: Vec<Field> = names
            .iter()
            .zip(&guesses)
            .map(|(name, guess)| known_field(known, key, name, guess.data_type()))
            .collect();
        let null = options.null.as_deref().map(Arc::from);
        let decoder = TextDecoder {
            name: file.name.as_str().into(),
            schema: Arc::new(Schema::new(fields)),
            syntax: Syntax::Csv { delimiter, null },
            wanted: None,
            is_rows: false,
        };
        decoder.check_types()?;
        Ok(Self { source, first, decoder, header })
    }

    /// `found`: the columns that were found in this file before.
    pub fn json(
        file: &InputFile,
        bytes: Box<dyn Read + Send>,
        known: Option<&Schema>,
        key: &[String],
        found: Option<&Schema>,
        is_rows: bool,
    ) -> Result<Self> {
        let mut source = Chunker::new(&file.name, bytes, None);
        let first = source.next_chunk()?;
        let head = first.as_ref().map_or(&[][..], |c| &c.bytes);
        let schema = match found.filter(|found| has_keys_of(found, head)) {
            Some(found) => found.clone(),
            None => json_schema(&file.name, head, known, key)?,
        };
        let decoder = TextDecoder {
            name: file.name.as_str().into(),
            schema: Arc::new(schema),
            syntax: Syntax::Json,
            wanted: None,
            is_rows,
        };
        Ok(Self { source, first, decoder, header: Header::Find })
    }

    pub fn schema(&self) -> SchemaRef {
        // NOT NULL is checked when rows are decoded; the columns themselves may be compared freely.
        SchemaRef::clone(&self.decoder.schema)
    }

    /// How long a record is, as far as the first chunk tells.
    pub fn record_bytes(&self) -> usize {
        let Some(first) = &self.first else { return 0 };
        let records = record_ranges(&first.bytes, self.decoder.quotes()).len();
        first.bytes.len() / records.max(1)
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

/// Is the first line one of names?
///
/// It is not if it has a number, a date, a time or a truth value where the lines below have the same, and nothing
/// that the lines below cannot be. What the table (or `--schema`) calls its columns are names.
fn found_header(head: &[u8], delimiter: u8, known: Option<&Schema>) -> Header {
    let mut records = CsvRecords::new(head, delimiter);
    let first = records.next().map(|record| record.fields).unwrap_or_default();
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let is_known = |value: &Vec<u8>| {
        known.is_some_and(|known| known.field_with_name(text(value).trim()).is_ok())
    };
    if first.iter().all(is_known) {
        return Header::Yes;
    }
    let mut below = vec![Guess::Nothing; first.len()];
    for record in records.take(HEADER_RECORDS).filter(|record| record.fields.len() == first.len()) {
        for (guess, value) in below.iter_mut().zip(&record.fields).filter(|(_, v)| !v.is_empty()) {
            *guess = guess.and(Guess::of(&text(value)));
        }
    }
    let mut is_data = false;
    for (value, below) in first.iter().zip(below) {
        let here = if value.is_empty() { Guess::Nothing } else { Guess::of(&text(value)) };
        match (here, below) {
            (Guess::Nothing, _) | (Guess::Text, Guess::Nothing | Guess::Text) => {}
            (Guess::Text, _) | (_, Guess::Text) => return Header::Yes,
            (here, below) if here.and(below) == Guess::Text => return Header::Yes,
            _ => is_data = true,
        }
    }
    if is_data { Header::No } else { Header::Yes }
}

/// The field of the table or `--schema` if it has one of that name. Columns of a primary key have no NULL.
fn known_field(known: Option<&Schema>, key: &[String], name: &str, guess: DataType) -> Field {
    let field = match known.and_then(|s| s.field_with_name(name).ok()) {
        Some(field) => field.clone(),
        None => Field::new(name, guess, true),
    };
    let nullable = field.is_nullable() && !key.iter().any(|column| column == name);
    field.with_nullable(nullable)
}

fn header_names(file: &str, fields: Vec<Vec<u8>>) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::with_capacity(fields.len());
    let mut seen = HashSet::with_capacity(fields.len());
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
        if !seen.insert(name.clone()) {
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

fn skip_header(first: &mut Option<Chunk>, delimiter: u8) {
    if let Some(chunk) = first {
        let end =
            RecordEnds::new(&chunk.bytes, Some(delimiter)).next().unwrap_or(chunk.bytes.len());
        chunk.first_line += memchr::memchr_iter(b'\n', &chunk.bytes[..end]).count() as u64;
        chunk.bytes.drain(..end);
        chunk.unclosed = chunk.unclosed.and_then(|at| at.checked_sub(end));
    }
}

fn json_schema(file: &str, head: &[u8], known: Option<&Schema>, key: &[String]) -> Result<Schema> {
    let mut names: Vec<String> = Vec::new();
    let mut guesses: std::collections::HashMap<String, Guess> = Default::default();
    let mut nested: Vec<serde_json::Value> = Vec::new();
    for line in head.split(|b| *b == b'\n').take(SAMPLE_RECORDS) {
        let Ok(InOrder(object)) = serde_json::from_slice(line) else { continue };
        for (key, value) in &object {
            if !guesses.contains_key(key) {
                names.push(key.clone());
                guesses.insert(key.clone(), Guess::Nothing);
            }
            let Some(guess) = guesses.get_mut(key) else { continue };
            *guess = guess.and(match value {
                serde_json::Value::Null => Guess::Nothing,
                serde_json::Value::Bool(_) => Guess::Boolean,
                serde_json::Value::Number(n) if n.is_i64() => Guess::of(&n.to_string()),
                serde_json::Value::Number(n) if n.is_u64() => Guess::Text,
                // Whole beyond 64 bits, or so large that it may be: a float would lose its digits.
                serde_json::Value::Number(n)
                    if n.as_f64()
                        .is_some_and(|x| x.fract() == 0.0 && MAYBE_WHOLE.contains(&x.abs())) =>
                {
                    Guess::Text
                }
                serde_json::Value::Number(_) => Guess::Float,
                serde_json::Value::String(text) => match Guess::of(text) {
                    // A quoted number was meant as text.
                    Guess::Integer | Guess::LongInteger | Guess::Float | Guess::Boolean => {
                        Guess::Text
                    }
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
        fields.push(known_field(known, key, name, inferred));
    }
    // A key that the sample lacks may still come: the table's columns are all expected.
    for field in known.map(Schema::fields).into_iter().flatten() {
        if !names.contains(field.name()) && field.is_nullable() {
            fields.push(field.as_ref().clone());
        }
    }
    Ok(Schema::new(fields))
}

/// Are the keys of the first records those of columns?
fn has_keys_of(found: &Schema, head: &[u8]) -> bool {
    let records = head.split(|b| *b == b'\n').take(HEADER_RECORDS);
    let mut objects = records.filter_map(|line| serde_json::from_slice(line).ok());
    objects.all(|InOrder(object)| object.iter().all(|(key, _)| found.field_with_name(key).is_ok()))
}

/// A JSON object with its keys in the order they are written.
struct InOrder(Vec<(String, serde_json::Value)>);

impl<'de> serde::Deserialize<'de> for InOrder {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> serde::de::Visitor<'de> for Keys {
            type Value = InOrder;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<InOrder, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(InOrder(pairs))
            }
        }
        deserializer.deserialize_map(Keys)
    }
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
        let whole = chunk.unclosed.unwrap_or(chunk.bytes.len());
        let mut decoded = Decoded { batches: Vec::new(), bad: Vec::new() };
        match self.parse(&chunk.bytes[..whole]) {
            Ok(batches) => decoded.batches = batches,
            Err(_) => {
                let records = record_ranges(&chunk.bytes[..whole], self.quotes());
                self.decode_range(chunk, &records, max_bad, &mut decoded);
            }
        }
        if whole < chunk.bytes.len() && decoded.bad.len() < max_bad {
            let record = String::from_utf8_lossy(&chunk.bytes[whole..]).into_owned();
            decoded.bad.push(BadRow {
                file: self.name.to_string(),
                line: line_at(chunk, whole),
                is_row: self.is_rows,
                column: None,
                value: Some(shorten(&record)),
                problem: "opens a quote that is never closed".to_owned(),
                record,
            });
        }
        Ok(decoded)
    }

    /// The delimiter after which a quote may open; JSON has no quoted newlines.
    fn quotes(&self) -> Option<u8> {
        match self.syntax {
            Syntax::Csv { delimiter, .. } => Some(delimiter),
            Syntax::Json => None,
        }
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
                let record = &chunk.bytes[first.0..first.1];
                out.bad.push(self.explain(record, line_at(chunk, first.0), &error));
            }
            Err(_) => {
                let (left, right) = records.split_at(records.len() / 2);
                self.decode_range(chunk, left, max_bad, out);
                self.decode_range(chunk, right, max_bad, out);
            }
        }
    }

    /// The same for some of the columns, in this order.
    pub fn with_columns(&self, wanted: &[usize]) -> Self {
        Self { wanted: Some(wanted.into()), ..self.clone() }
    }

    fn parse(&self, bytes: &[u8]) -> Result<Vec<RecordBatch>, ArrowError> {
        let wanted = self.wanted.as_deref();
        match &self.syntax {
            Syntax::Csv { delimiter, null } => {
                parse_csv(bytes, &self.schema, *delimiter, null.as_deref(), wanted)
            }
            Syntax::Json => {
                json_columns::decode(bytes, &self.schema, wanted, batch_rows(&self.schema))
            }
        }
    }

    /// Which column of a refused record is to blame, and what it should have held.
    fn explain(&self, record: &[u8], line: u64, error: &ArrowError) -> BadRow {
        let text = String::from_utf8_lossy(record).trim_end_matches(['\r', '\n']).to_owned();
        let mut bad = BadRow {
            file: self.name.to_string(),
            line,
            is_row: self.is_rows,
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
            if parse_csv(&quoted(value), &one, b',', null, None).is_err() {
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
            not_of_type(field.data_type())
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
            if json_columns::decode(single.as_bytes(), &one, None, 1).is_err() {
                bad.column = Some(field.name().clone());
                bad.value = Some(shorten(&value.to_string()));
                bad.problem = if value.is_null() {
                    "is NULL, but the column is NOT NULL".to_owned()
                } else {
                    not_of_type(field.data_type())
                };
                return;
            }
        }
    }
}

fn not_of_type(data_type: &DataType) -> String {
    let name = type_name(data_type);
    let article = if name.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("is not {article} {name}")
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

fn batch_rows(schema: &Schema) -> usize {
    let columns = schema.fields().len().max(1);
    (BATCH_VALUES / columns).clamp(LEAST_BATCH_ROWS, BATCH_ROWS)
}

fn parse_csv(
    bytes: &[u8],
    schema: &SchemaRef,
    delimiter: u8,
    null: Option<&str>,
    wanted: Option<&[usize]>,
) -> Result<Vec<RecordBatch>, ArrowError> {
    let read = match wanted {
        Some(wanted) => Arc::new(schema.project(wanted)?),
        None => Arc::clone(schema),
    };
    let mut builder = arrow::csv::ReaderBuilder::new(strict::reading_schema(schema, false))
        .with_header(false)
        .with_delimiter(delimiter)
        .with_batch_size(batch_rows(schema));
    if let Some(wanted) = wanted {
        builder = builder.with_projection(wanted.to_vec());
    }
    if let Some(null) = null {
        let pattern = format!("^({})?$", regex::escape(null));
        let pattern = regex::Regex::new(&pattern)
            .map_err(|e| ArrowError::CsvError(format!("--null: {e}")))?;
        builder = builder.with_null_regex(pattern);
    }
    let mut decoder = builder.build_decoder();
    let (mut batches, mut rest) = (Vec::new(), bytes);
    loop {
        let taken = decoder.decode(rest)?;
        rest = &rest[taken..];
        if taken == 0 || decoder.capacity() == 0 {
            match decoder.flush()? {
                Some(batch) => batches.push(strict::convert(batch, &read)?),
                None if taken == 0 => return Ok(batches),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: Option<Quotes> = Some(Quotes { delimiter: Some(b',') });

    fn chunks(text: &str) -> Vec<(u64, String)> {
        let mut chunker = Chunker::new("f", Box::new(std::io::Cursor::new(text.to_owned())), CSV);
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
        let parts = chunks(&text);
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
        let mut chunker = Chunker::new("f", Box::new(std::io::Cursor::new(text)), CSV);
        chunker.next_chunk().unwrap();
        let error = chunker.next_chunk().err().expect("no record ends").to_string();
        assert!(error.contains("line 2") && error.contains("quote"), "{error}");
    }

    fn decoder(columns: &[(&str, DataType, bool)], syntax: Syntax) -> TextDecoder {
        let fields: Vec<Field> =
            columns.iter().map(|(n, t, null)| Field::new(*n, t.clone(), *null)).collect();
        TextDecoder {
            name: "f".into(),
            schema: Arc::new(Schema::new(fields)),
            syntax,
            wanted: None,
            is_rows: false,
        }
    }

    fn decode(decoder: &TextDecoder, text: &[u8]) -> (usize, Vec<BadRow>) {
        let chunk = Chunk { bytes: text.to_vec(), first_line: 2, unclosed: None };
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
    fn a_quote_inside_a_field_is_a_character_and_an_unclosed_one_is_a_bad_row() {
        let text = b"n,t\n1,5\" a\n2,\"a\"\"\nb\"\nx,c\n4,\"7\n5,e\n";
        let options = TextOptions::default();
        let file = InputFile::of_path("f", "f");
        let known = Schema::new(vec![Field::new("n", DataType::Int64, true)]);
        let source = Box::new(std::io::Cursor::new(text.to_vec()));
        let mut input = TextInput::csv(&file, source, &options, Some(&known), &[]).unwrap();
        let chunk = input.next_chunk().unwrap().unwrap();
        let decoded = input.decoder().decode(&chunk, 100).unwrap();
        assert_eq!(decoded.batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 2);
        let bad: Vec<String> = decoded.bad.iter().map(ToString::to_string).collect();
        assert_eq!(bad[0], "f, line 5, column `n`: \"x\" is not a bigint");
        assert!(bad[1].starts_with("f, line 6: ") && bad[1].contains("never closed"), "{bad:?}");
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
        let chunk = Chunk { bytes: b"\\N,\\N\n,x\n".to_vec(), first_line: 1, unclosed: None };
        let decoded = decoder.decode(&chunk, 1).unwrap();
        assert!(decoded.bad.is_empty(), "{:?}", decoded.bad);
        let batch = &decoded.batches[0];
        assert_eq!(batch.column(0).null_count(), 2);
        assert_eq!(batch.column(1).null_count(), 1);
    }
}
