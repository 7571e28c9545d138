//! JSON records to columns: those of a plain shape straight, the others by arrow-json.
//!
//! # Invariants
//! - Of records of a plain shape comes what arrow-json makes of the same bytes. Whatever looks unusual is left to it,
//!   such as a key that comes twice, a line end within a record, or an error.
//! - Values of columns that nobody wants are looked at, too: a file has the same errors whatever is asked of it.
//!
//! # Not here
//! Which record is bad, and why: `text`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Float64Builder, RecordBatch, RecordBatchOptions, StringBuilder,
};
use arrow::compute::kernels::cast_utils::Parser;
use arrow::datatypes::{DataType, Field, Fields, Float64Type, SchemaRef};
use arrow::error::ArrowError;

use super::strict;

/// Batches of `rows` records with the wanted columns (all if `None`), in this order.
///
/// # Errors
/// A record that is not good, whatever is wanted.
pub(super) fn decode(
    bytes: &[u8],
    schema: &SchemaRef,
    wanted: Option<&[usize]>,
    rows: usize,
) -> Result<Vec<RecordBatch>, ArrowError> {
    if let Some(batches) = plain_records(bytes, schema, wanted, rows) {
        return Ok(batches);
    }
    let batches = any_records(bytes, schema, rows)?;
    let Some(wanted) = wanted else { return Ok(batches) };
    batches.iter().map(|batch| batch.project(wanted)).collect()
}

fn any_records(
    bytes: &[u8],
    schema: &SchemaRef,
    rows: usize,
) -> Result<Vec<RecordBatch>, ArrowError> {
    let mut decoder = arrow::json::ReaderBuilder::new(strict::reading_schema(schema, true))
        .with_batch_size(rows)
        .with_strict_mode(true)
        // A number in a text column is its digits.
        .with_coerce_primitive(true)
        .build_decoder()?;
    let bytes = without_pairs(bytes);
    let (mut batches, mut rest) = (Vec::new(), bytes.as_ref());
    loop {
        let read = decoder.decode(rest)?;
        rest = &rest[read..];
        if rest.is_empty() || read == 0 || decoder.len() == rows {
            match decoder.flush()? {
                Some(batch) => batches.push(strict::convert(batch, schema)?),
                None => return Ok(batches),
            }
        }
    }
}

/// The same, if all are of a plain shape and good.
fn plain_records(
    bytes: &[u8],
    schema: &SchemaRef,
    wanted: Option<&[usize]>,
    rows: usize,
) -> Option<Vec<RecordBatch>> {
    let all: Vec<usize>;
    let wanted = match wanted {
        Some(wanted) => wanted,
        None => {
            all = (0..schema.fields().len()).collect();
            &all
        }
    };
    let mut object = Object::of(schema.fields());
    for index in wanted {
        object.columns.get_mut(*index)?.gather()?;
    }
    let read = Arc::new(schema.project(wanted).ok()?);
    // Texts end at quotes, so each is UTF-8 if all is.
    let mut scanner = Scanner { text: simdutf8::basic::from_utf8(bytes).ok()?, at: 0 };
    let (mut batches, mut count) = (Vec::new(), 0);
    while scanner.next_record()? {
        scanner.object(&mut object)?;
        count += 1;
        if count == rows {
            batches.push(object.batch(wanted, &read, count)?);
            count = 0;
        }
    }
    if count > 0 {
        batches.push(object.batch(wanted, &read, count)?);
    }
    Some(batches)
}

/// An object whose keys are known.
struct Object<'a> {
    columns: Vec<Column<'a>>,
    by_name: HashMap<&'a str, usize>,
    /// Objects that were seen.
    count: usize,
}

struct Column<'a> {
    name: &'a str,
    /// The rest of the name's text as it is mostly written.
    quoted: Vec<u8>,
    /// Is it written so, and no other way that has a backslash?
    is_plain: bool,
    kind: Kind<'a>,
    is_nullable: bool,
    /// The last object that had it, as [`Object::count`] says it.
    seen: usize,
    /// Its values, if they are wanted.
    values: Option<Values>,
}

/// What may be in a column.
enum Kind<'a> {
    Text,
    /// What is decoded as text first.
    Strict(&'a DataType),
    Float,
    Boolean,
    List(Box<Kind<'a>>),
    Object(Object<'a>),
    Other,
}

enum Values {
    Text(StringBuilder),
    Float(Float64Builder),
    Boolean(BooleanBuilder),
}

impl<'a> Object<'a> {
    fn of(fields: &'a Fields) -> Self {
        let column = |field: &'a Arc<Field>| Column {
            name: field.name(),
            quoted: format!("{}\"", field.name()).into_bytes(),
            is_plain: !field.name().contains(['"', '\\']),
            kind: Kind::of(field.data_type()),
            is_nullable: field.is_nullable(),
            seen: 0,
            values: None,
        };
        let columns: Vec<Column> = fields.iter().map(column).collect();
        let by_name = columns.iter().enumerate().map(|(at, column)| (column.name, at)).collect();
        Self { columns, by_name, count: 0 }
    }

    /// What is gathered, which begins anew.
    fn batch(&mut self, wanted: &[usize], schema: &SchemaRef, rows: usize) -> Option<RecordBatch> {
        let mut arrays: Vec<Option<ArrayRef>> = Vec::with_capacity(self.columns.len());
        for column in &mut self.columns {
            let array: Option<ArrayRef> = column.values.as_mut().map(|values| match values {
                Values::Text(values) => Arc::new(values.finish()) as ArrayRef,
                Values::Float(values) => Arc::new(values.finish()),
                Values::Boolean(values) => Arc::new(values.finish()),
            });
            let array = match (array, &column.kind) {
                (Some(text), Kind::Strict(to)) => Some(strict::converted(&text, to).ok()?),
                (array, _) => array,
            };
            arrays.push(array);
        }
        let columns: Option<Vec<ArrayRef>> = wanted.iter().map(|at| arrays[*at].clone()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(schema), columns?, &options).ok()
    }
}

impl<'a> Kind<'a> {
    fn of(data_type: &'a DataType) -> Self {
        let is_nullable = |field: &Arc<Field>| field.is_nullable();
        match data_type {
            DataType::Utf8 => Self::Text,
            strict if strict::is_strict(strict, true) => Self::Strict(strict),
            DataType::Float64 => Self::Float,
            DataType::Boolean => Self::Boolean,
            DataType::List(item) if item.is_nullable() => {
                Self::List(Box::new(Self::of(item.data_type())))
            }
            DataType::Struct(fields) if fields.iter().all(is_nullable) => {
                Self::Object(Object::of(fields))
            }
            _ => Self::Other,
        }
    }
}

impl Column<'_> {
    fn gather(&mut self) -> Option<()> {
        self.values = Some(match self.kind {
            Kind::Text | Kind::Strict(_) => Values::Text(StringBuilder::new()),
            Kind::Float => Values::Float(Float64Builder::new()),
            Kind::Boolean => Values::Boolean(BooleanBuilder::new()),
            Kind::List(_) | Kind::Object(_) | Kind::Other => return None,
        });
        Some(())
    }

    fn null(&mut self) -> Option<()> {
        match &mut self.values {
            _ if !self.is_nullable => return None,
            Some(Values::Text(values)) => values.append_null(),
            Some(Values::Float(values)) => values.append_null(),
            Some(Values::Boolean(values)) => values.append_null(),
            None => {}
        }
        Some(())
    }
}

#[derive(Clone, Copy)]
enum Token<'a> {
    Null,
    Boolean(bool),
    Number(&'a str),
    Text(&'a str),
    /// With backslashes.
    Escaped(&'a str),
    List,
    Object,
}

impl<'a> Token<'a> {
    /// As a column of text has it.
    fn text(self, unescaped: &'a mut String) -> Option<&'a str> {
        match self {
            Self::Text(text) | Self::Number(text) => Some(text),
            Self::Boolean(value) => Some(if value { "true" } else { "false" }),
            Self::Escaped(text) => {
                unescaped.clear();
                unescape(text, unescaped)?;
                Some(unescaped)
            }
            Self::Null | Self::List | Self::Object => None,
        }
    }
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// The next byte that is no space.
    fn next_token(&mut self) -> Option<u8> {
        loop {
            match self.next()? {
                b' ' | b'\t' => {}
                byte => return Some(byte),
            }
        }
    }

    /// Goes behind the brace that opens the next record, which is on a line of its own; false at the end.
    fn next_record(&mut self) -> Option<bool> {
        let mut is_new_line = self.at == 0;
        while let Some(byte) = self.next() {
            match byte {
                b'\n' => is_new_line = true,
                b' ' | b'\t' | b'\r' => {}
                b'{' if is_new_line => return Some(true),
                _ => return None,
            }
        }
        Some(false)
    }

    /// The rest of an object.
    fn object(&mut self, object: &mut Object<'_>) -> Option<()> {
        object.count += 1;
        let (mut found, mut expected) = (0, 0);
        let mut token = self.next_token()?;
        while token != b'}' {
            if token != b'"' {
                return None;
            }
            let at = self.key(object, expected)?;
            let column = &mut object.columns[at];
            if self.next_token()? != b':' || column.seen == object.count {
                return None;
            }
            column.seen = object.count;
            self.value(column)?;
            (found, expected) = (found + 1, at + 1);
            token = self.next_token()?;
            if token == b',' {
                token = self.next_token().filter(|token| *token == b'"')?;
            }
        }
        if found < object.columns.len() {
            let missing = object.columns.iter_mut().filter(|column| column.seen != object.count);
            missing.map(Column::null).collect::<Option<()>>()?;
        }
        Some(())
    }

    /// Which column a key is, and goes behind its second quote. Most records have their keys in one order.
    fn key(&mut self, object: &Object<'_>, expected: usize) -> Option<usize> {
        let rest = &self.text.as_bytes()[self.at..];
        if let Some(column) = object.columns.get(expected)
            && rest.starts_with(&column.quoted)
            && column.is_plain
        {
            self.at += column.quoted.len();
            return Some(expected);
        }
        match self.quoted()? {
            Token::Text(name) => object.by_name.get(name).copied(),
            _ => None,
        }
    }

    /// The rest of a text.
    fn quoted(&mut self) -> Option<Token<'a>> {
        let (start, mut is_escaped) = (self.at, false);
        loop {
            self.at += memchr::memchr2(b'"', b'\\', &self.text.as_bytes()[self.at..])?;
            if self.next()? == b'"' {
                let text = self.text.get(start..self.at - 1)?;
                return Some(if is_escaped { Token::Escaped(text) } else { Token::Text(text) });
            }
            is_escaped = true;
            self.next()?;
        }
    }

    fn literal(&mut self, rest: &str, token: Token<'a>) -> Option<Token<'a>> {
        self.text.as_bytes()[self.at..].starts_with(rest.as_bytes()).then(|| {
            self.at += rest.len();
            token
        })
    }

    fn token(&mut self) -> Option<Token<'a>> {
        match self.next_token()? {
            b'"' => self.quoted(),
            b'n' => self.literal("ull", Token::Null),
            b't' => self.literal("rue", Token::Boolean(true)),
            b'f' => self.literal("alse", Token::Boolean(false)),
            b'[' => Some(Token::List),
            b'{' => Some(Token::Object),
            b'-' | b'0'..=b'9' => {
                self.at -= 1;
                self.number().map(Token::Number)
            }
            _ => None,
        }
    }

    /// A number as JSON has it.
    fn number(&mut self) -> Option<&'a str> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let is_zero = self.peek() == Some(b'0');
        if self.digits()? > 1 && is_zero {
            return None;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        self.text.get(start..self.at)
    }

    /// How many digits there are, at least one.
    fn digits(&mut self) -> Option<usize> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        Some(self.at - start).filter(|count| *count > 0)
    }

    fn value(&mut self, column: &mut Column<'_>) -> Option<()> {
        let token = self.token()?;
        match (&mut column.values, token) {
            (_, Token::Null) => column.null()?,
            // Empty text is NULL in all types but text.
            (None, Token::Text("")) if matches!(column.kind, Kind::Strict(_)) => column.null()?,
            (None, token) => self.is_of(token, &mut column.kind)?,
            (Some(Values::Text(values)), token) => {
                values.append_value(token.text(&mut String::new())?);
            }
            (Some(Values::Float(values)), Token::Number(text)) => {
                values.append_value(Float64Type::parse(text)?);
            }
            (Some(Values::Boolean(values)), Token::Boolean(value)) => values.append_value(value),
            _ => return None,
        }
        Some(())
    }

    /// Would the value that begins so be decoded? Goes behind it.
    fn is_of(&mut self, token: Token<'_>, kind: &mut Kind<'_>) -> Option<()> {
        match (kind, token) {
            (_, Token::Null)
            | (Kind::Boolean, Token::Boolean(_))
            | (Kind::Float, Token::Number(_))
            | (Kind::Strict(_), Token::Text("")) => Some(()),
            (Kind::Text, token) => token.text(&mut String::new()).map(|_| ()),
            (Kind::Strict(to), token) => {
                strict::is_of(token.text(&mut String::new())?, to).then_some(())
            }
            (Kind::Object(object), Token::Object) => self.object(object),
            (Kind::List(item), Token::List) => self.list(item),
            _ => None,
        }
    }

    /// The rest of a list.
    fn list(&mut self, item: &mut Kind<'_>) -> Option<()> {
        if self.next_token()? == b']' {
            return Some(());
        }
        self.at -= 1;
        loop {
            let token = self.token()?;
            self.is_of(token, item)?;
            match self.next_token()? {
                b']' => return Some(()),
                b',' => {}
                _ => return None,
            }
        }
    }
}

fn unescape(text: &str, out: &mut String) -> Option<()> {
    let mut rest = text;
    while let Some((plain, escape)) = rest.split_once('\\') {
        let from = &rest[plain.len()..];
        out.push_str(plain);
        rest = escape.get(1..)?;
        out.push(match escape.as_bytes().first()? {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let character = unit(rest.as_bytes()).and_then(|unit| char::from_u32(unit.into()));
                let (character, bytes) = match character {
                    Some(character) => (character, UNIT - 2),
                    None => (pair(from.as_bytes())?, 2 * UNIT - 2),
                };
                rest = rest.get(bytes..)?;
                character
            }
            _ => return None,
        });
    }
    out.push_str(rest);
    Some(())
}

/// Bytes of an escape such as `\ud83d`.
const UNIT: usize = 6;

/// What the digits of an escape say.
fn unit(digits: &[u8]) -> Option<u16> {
    let digits = digits.first_chunk::<4>().filter(|four| four.iter().all(u8::is_ascii_hexdigit))?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The character that text begins with, if that is an escape of two units.
fn pair(text: &[u8]) -> Option<char> {
    let units = text.first_chunk::<{ 2 * UNIT }>()?;
    let (first, second) = units.split_at(UNIT);
    let unit = |escape: &[u8]| unit(escape.strip_prefix(b"\\u")?);
    let first = unit(first).filter(|unit| (0xd800..0xdc00).contains(unit))?;
    char::decode_utf16([first, unit(second)?]).next()?.ok()
}

/// The same without escapes of two units: arrow-json takes those of characters from U+20000 on for others.
fn without_pairs(bytes: &[u8]) -> Cow<'_, [u8]> {
    let (mut plain, mut copied, mut at) = (Vec::new(), 0, 0);
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr(b'\\', rest)) {
        let start = at + found;
        // The character after a backslash is no other escape's beginning.
        at = start + 2;
        if let Some(character) = pair(&bytes[start..]) {
            plain.extend_from_slice(&bytes[copied..start]);
            plain.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            at = start + 2 * UNIT;
            copied = at;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(bytes);
    }
    plain.extend_from_slice(&bytes[copied..]);
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use arrow::array::StringArray;
    use arrow::datatypes::{Schema, TimeUnit};

    use super::*;

    fn schema() -> SchemaRef {
        let time = DataType::Timestamp(TimeUnit::Microsecond, None);
        let fields = vec![
            Field::new("text", DataType::Utf8, true),
            Field::new("id", DataType::Int64, false),
            Field::new("amount", DataType::Float64, true),
            Field::new("ts", time.clone(), true),
            Field::new("is_new", DataType::Boolean, true),
            Field::new("price", DataType::Decimal128(7, 2), true),
            Field::new_list("tags", Field::new_list_field(DataType::Utf8, true), true),
            Field::new_struct("at", vec![Field::new("ts", time, true)], true),
        ];
        Arc::new(Schema::new(fields))
    }

    /// Steps of a linear congruential generator.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) as usize % end
        }

        fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
            all[self.below(all.len())]
        }
    }

    const VALUES: [(&str, &[&str]); 8] = [
        (
            "text",
            &[
                "\"\"",
                "\"a, }b\"",
                "null",
                "1.50",
                "true",
                r#""\"\\\u00e9\ud83d\ude00\n""#,
                "\"é\"",
            ],
        ),
        ("id", &["1", "-0", "\"7\"", "9223372036854775807"]),
        ("amount", &["1", "-0.5", "1e3", "2.5E-2", "null", "1e999"]),
        (
            "ts",
            &[
                "\"2026-11-01 10:00:00\"",
                "\"1969-01-01T00:00:00.25\"",
                "\"2026-11-01\"",
                "null",
                "\"\"",
            ],
        ),
        ("is_new", &["true", "false", "null"]),
        ("price", &["12.34", "7", "\"-0.50\"", "null"]),
        ("tags", &["[]", "[\"a\", null]", "null", "[1 ,\"]\"]"]),
        ("at", &["{}", "{\"ts\": null}", "null", "{\"ts\":\"2026-11-01 10:00:00.123456\"}"]),
    ];
    /// What makes records unusual or wrong.
    const ODD: [&str; 21] = [
        "\"id\":\"\"",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        "\n",
        " ",
        "0",
        ".",
        "e",
        "-",
        "x",
        "\u{e9}",
        "null",
        "\"id\":1",
        "\"2026-13-01 10:00:00\"",
        "\"\\ud800\"",
    ];

    fn records(random: &mut Random) -> String {
        let mut text = String::new();
        for _ in 0..1 + random.below(6) {
            let mut parts = Vec::new();
            for (name, values) in VALUES {
                if name == "id" || random.below(5) > 0 {
                    let space = random.of(&["", " "]);
                    parts.push(format!("{space}\"{name}\":{space}{}{space}", random.of(values)));
                }
            }
            if random.below(4) == 0 {
                parts.reverse();
            }
            text += &format!("{{{}}}{}", parts.join(","), random.of(&["\n", "\r\n", "\n\n"]));
        }
        text
    }

    /// Columns are never lists and objects here if they are to be decoded straight.
    fn wanted(random: &mut Random) -> Vec<usize> {
        (0..if random.below(8) == 0 { 8 } else { 6 }).filter(|_| random.below(2) == 0).collect()
    }

    #[test]
    fn what_is_asked_for_is_what_all_columns_have() {
        let (schema, mut random) = (schema(), Random(7));
        let (mut straight, mut refused) = (0, 0);
        for round in 0..6_000 {
            let mut text = records(&mut random);
            let is_changed = round % 2 == 1;
            if is_changed {
                let at = text.floor_char_boundary(random.below(text.len()));
                let end = text.floor_char_boundary((at + random.below(3)).min(text.len()));
                text.replace_range(at..end.max(at), random.of(&ODD));
            }
            let wanted = wanted(&mut random);
            let all = any_records(text.as_bytes(), &schema, 3);
            let some = decode(text.as_bytes(), &schema, Some(&wanted), 3);
            let plain = plain_records(text.as_bytes(), &schema, Some(&wanted), 3);
            straight += usize::from(plain.is_some() && !is_changed);
            refused += usize::from(all.is_err());
            match (all, some) {
                (Ok(all), Ok(some)) => {
                    let all = all.iter().map(|batch| batch.project(&wanted));
                    let all: Vec<RecordBatch> = all.collect::<Result<_, _>>().unwrap();
                    assert_eq!(some, all, "{wanted:?} of {text}");
                }
                (Err(_), Err(_)) => {}
                (all, some) => panic!("{wanted:?} of {text}: {some:?}, but {all:?}"),
            }
        }
        assert!(straight > 2_000, "{straight} of 3,000 were decoded straight");
        assert!(refused > 500, "{refused} were refused");
    }

    #[test]
    fn characters_are_what_their_escapes_say() {
        let schema = schema();
        for (escaped, expected) in [
            (r"\ud83d\ude00", "\u{1f600}"),
            (r"\ud840\udc00 \uD8ed\uDE00", "\u{20000} \u{4b600}"),
            (r"\udbff\udfff", "\u{10ffff}"),
            (r"\\ud840\\udc00", r"\ud840\udc00"),
            (r"\u00e9\n\/", "é\n/"),
        ] {
            let text = format!(r#"{{"id":1,"text":"{escaped}"}}"#);
            let any = any_records(text.as_bytes(), &schema, 8).unwrap().remove(0);
            let plain = plain_records(text.as_bytes(), &schema, Some(&[0]), 8).unwrap().remove(0);
            for batch in [any, plain] {
                let texts = batch.column(0).as_any().downcast_ref::<StringArray>().unwrap();
                assert_eq!(texts.value(0), expected);
            }
        }
        for wrong in
            [r"\ud840", r"\ud840\ud840\udc00", r"\udc00\ud840", r"\ud840\u0041", r"\x", r"\u12"]
        {
            let text = format!(r#"{{"id":1,"text":"{wrong}"}}"#);
            assert!(decode(text.as_bytes(), &schema, Some(&[1]), 8).is_err(), "{wrong}");
            assert!(decode(text.as_bytes(), &schema, Some(&[0]), 8).is_err(), "{wrong}");
        }
    }

    #[test]
    fn values_that_nobody_wants_are_checked() {
        let schema = schema();
        for wrong in [
            r#"{"id":1.5}"#,
            r#"{"id":null}"#,
            r#"{"id":""}"#,
            r#"{}"#,
            r#"{"id":1,"ts":"yesterday"}"#,
            r#"{"id":1,"is_new":1}"#,
            r#"{"id":1,"price":1.234}"#,
            r#"{"id":1,"tags":[{}]}"#,
            r#"{"id":1,"at":{"day":null}}"#,
            r#"{"id":1,"other":1}"#,
        ] {
            assert!(decode(wrong.as_bytes(), &schema, Some(&[0]), 8).is_err(), "{wrong}");
        }
    }
}
