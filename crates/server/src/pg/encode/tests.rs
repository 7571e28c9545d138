//! Rows as Postgres 15 sends them. Texts and bytes are those that it answered, for `SELECT` and `typesend(value)`.

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{
    DataType, Field, Int32Type, IntervalDayTime, IntervalMonthDayNano, Schema, i256,
};

use super::copy::{CopyEncoder, CopyFormat, CopyOptions, ForceQuote};
use super::*;

fn batch(columns: Vec<ArrayRef>) -> RecordBatch {
    let names = (0..columns.len()).map(|at| format!("c{at}"));
    RecordBatch::try_from_iter_with_nullable(names.zip(columns).map(|(n, c)| (n, c, true))).unwrap()
}

/// The values of each row, read back from the frames.
fn rows(bytes: &[u8]) -> Vec<Vec<Option<Vec<u8>>>> {
    let (mut rest, mut rows) = (bytes, Vec::new());
    while let Some((b'D', frame)) = rest.split_first() {
        let length = u32::from_be_bytes(*frame.first_chunk().unwrap()) as usize;
        let (mut body, behind) = (&frame[4..length], &frame[length..]);
        let count = u16::from_be_bytes(*body.first_chunk().unwrap());
        body = &body[2..];
        let row = (0..count).map(|_| {
            let length = i32::from_be_bytes(*body.first_chunk().unwrap());
            body = &body[4..];
            let value = usize::try_from(length).ok().map(|length| body[..length].to_vec());
            body = &body[length.max(0) as usize..];
            value
        });
        rows.push(row.collect());
        assert!(body.is_empty());
        rest = behind;
    }
    assert!(rest.is_empty());
    rows
}

fn encode(array: &ArrayRef, format: i16, zone: &str) -> Result<Vec<Option<Vec<u8>>>, EncodeError> {
    let batch = batch(vec![Arc::clone(array)]);
    let options = Options { time_zone: Zone::parse(zone).unwrap() };
    let mut encoder = RowEncoder::new(&batch.schema(), &[format], options)?;
    let mut out = b"before".to_vec();
    let done = encoder.encode(&batch, 0..batch.num_rows(), &mut out);
    assert_eq!(&out[..6], b"before");
    let rows = rows(&out[6..]).into_iter().map(|row| row.into_iter().next().unwrap());
    done.map(|()| rows.collect())
}

/// That values are written so as text, and their bytes so as hex; the last is NULL.
fn check(array: impl Array + 'static, texts: &[&str], hex: &[&str]) {
    let array: ArrayRef = Arc::new(array);
    let name = array.data_type().to_string();
    let text = |value: Option<Vec<u8>>| value.map(|value| String::from_utf8(value).unwrap());
    let found = encode(&array, 0, "UTC").unwrap().into_iter().map(text);
    let mut expected: Vec<Option<String>> = texts.iter().map(|text| Some((*text).into())).collect();
    expected.push(None);
    assert_eq!(found.collect::<Vec<_>>(), expected, "{name}");
    let found = encode(&array, 1, "UTC").unwrap().into_iter().map(|value| {
        value.map(|value| value.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    });
    let mut expected: Vec<Option<String>> = hex.iter().map(|hex| Some((*hex).into())).collect();
    expected.push(None);
    assert_eq!(found.collect::<Vec<_>>(), expected, "{name} in binary");
    // A part of an array is as a whole one.
    let part = array.slice(1, array.len() - 1);
    assert_eq!(encode(&part, 0, "UTC").unwrap(), encode(&array, 0, "UTC").unwrap()[1..], "{name}");
    assert_eq!(encode(&part, 1, "UTC").unwrap(), encode(&array, 1, "UTC").unwrap()[1..], "{name}");
}

#[test]
fn numbers() {
    check(BooleanArray::from(vec![Some(true), Some(false), None]), &["t", "f"], &["01", "00"]);
    check(Int8Array::from(vec![Some(-128), Some(7), None]), &["-128", "7"], &["ff80", "0007"]);
    check(UInt8Array::from(vec![Some(255), None]), &["255"], &["00ff"]);
    check(Int16Array::from(vec![Some(-2), None]), &["-2"], &["fffe"]);
    check(UInt16Array::from(vec![Some(65535), None]), &["65535"], &["0000ffff"]);
    check(Int32Array::from(vec![Some(i32::MIN), None]), &["-2147483648"], &["80000000"]);
    check(UInt32Array::from(vec![Some(u32::MAX), None]), &["4294967295"], &["00000000ffffffff"]);
    check(Int64Array::from(vec![Some(-1), None]), &["-1"], &["ffffffffffffffff"]);
    check(
        UInt64Array::from(vec![Some(u64::MAX), Some(0), None]),
        &["18446744073709551615", "0"],
        &["000500040000000007341a5802e103bb064f", "0000000000000000"],
    );
    let half = |value: f32| {
        Some(<arrow::datatypes::Float16Type as ArrowPrimitiveType>::Native::from_f32(value))
    };
    check(Float16Array::from_iter([half(1.5), None]), &["1.5"], &["3fc00000"]);
    check(Float32Array::from(vec![Some(0.1), None]), &["0.1"], &["3dcccccd"]);
    check(
        Float64Array::from(vec![Some(-0.0), Some(1e15), Some(f64::NAN), None]),
        &["-0", "1e+15", "NaN"],
        &["8000000000000000", "430c6bf526340000", "7ff8000000000000"],
    );
}

#[test]
fn decimals_have_all_their_digits() {
    let decimals = Decimal128Array::from(vec![Some(12_345_678), Some(-5), Some(0), None]);
    check(
        decimals.with_precision_and_scale(10, 2).unwrap(),
        &["123456.78", "-0.05", "0.00"],
        &["0003000100000002000c0d801e78", "0001ffff4000000201f4", "0000000000000002"],
    );
    let decimals = Decimal128Array::from(vec![Some(1), None]);
    check(decimals.with_precision_and_scale(5, -2).unwrap(), &["100"], &["00010000000000000064"]);
    let nines = "9".repeat(76);
    let decimals = Decimal256Array::from(vec![i256::from_string(&nines), None]);
    check(
        decimals.with_precision_and_scale(76, 0).unwrap(),
        &[&nines],
        &[&format!("0013001200000000{}", "270f".repeat(19))],
    );
}

#[test]
fn text_and_bytes() {
    check(StringArray::from(vec![Some("é"), Some(""), None]), &["é", ""], &["c3a9", ""]);
    check(LargeStringArray::from(vec![Some("a"), None]), &["a"], &["61"]);
    let long = "longer than twelve bytes";
    check(
        StringViewArray::from(vec![Some("a"), Some(long), None]),
        &["a", long],
        &["61", "6c6f6e676572207468616e207477656c7665206279746573"],
    );
    check(BinaryArray::from(vec![Some(&b"\x00\xff"[..]), None]), &["\\x00ff"], &["00ff"]);
    check(BinaryViewArray::from(vec![Some(&b"\x01"[..]), None]), &["\\x01"], &["01"]);
    let fixed = vec![Some(&b"ab"[..]), None];
    let fixed = FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed.into_iter(), 2).unwrap();
    check(fixed, &["\\x6162"], &["6162"]);
    let array: ArrayRef = Arc::new(NullArray::new(2));
    assert_eq!(encode(&array, 0, "UTC"), Ok(vec![None, None]));
}

#[test]
fn dates_and_times() {
    check(
        Date32Array::from(vec![Some(19_724), Some(0), None]),
        &["2024-01-02", "1970-01-01"],
        &["0000223f", "ffffd533"],
    );
    check(Date64Array::from(vec![Some(19_724 * 86_400_000), None]), &["2024-01-02"], &["0000223f"]);
    check(Time32SecondArray::from(vec![Some(3_723), None]), &["01:02:03"], &["00000000dde878c0"]);
    check(
        Time64NanosecondArray::from(vec![Some(3_723_000_100_000), None]),
        &["01:02:03.0001"],
        &["00000000dde87924"],
    );
    check(
        TimestampMicrosecondArray::from(vec![Some(946_684_800_000_001), Some(-1), None]),
        &["2000-01-01 00:00:00.000001", "1969-12-31 23:59:59.999999"],
        &["0000000000000001", "fffca2fec4c81fff"],
    );
    check(
        TimestampSecondArray::from(vec![Some(946_684_801), None]),
        &["2000-01-01 00:00:01"],
        &["00000000000f4240"],
    );
    check(
        TimestampMillisecondArray::from(vec![Some(946_684_800_500), None])
            .with_timezone("Asia/Kolkata"),
        &["2000-01-01 00:00:00.5+00"],
        &["000000000007a120"],
    );
}

#[test]
fn moments_are_in_the_zone_of_the_session() {
    let moments =
        TimestampMicrosecondArray::from(vec![1_719_792_000_000_000, -2_524_521_600_000_000]);
    let moments: ArrayRef = Arc::new(moments.with_timezone("UTC"));
    for (zone, expected) in [
        ("Europe/Berlin", ["2024-07-01 02:00:00+02", "1890-01-01 00:53:28+00:53:28"]),
        ("Asia/Kolkata", ["2024-07-01 05:30:00+05:30", "1890-01-01 05:21:10+05:21:10"]),
        ("-03:30", ["2024-06-30 20:30:00-03:30", "1889-12-31 20:30:00-03:30"]),
    ] {
        let found = encode(&moments, 0, zone).unwrap();
        let found = found.iter().map(|value| std::str::from_utf8(value.as_ref().unwrap()).unwrap());
        assert_eq!(found.collect::<Vec<_>>(), expected, "{zone}");
    }
}

#[test]
fn intervals_and_lengths_of_time() {
    check(
        IntervalMonthDayNanoArray::from(vec![
            Some(IntervalMonthDayNano::new(14, -3, 14_706_789_000_000)),
            None,
        ]),
        &["1 year 2 mons -3 days +04:05:06.789"],
        &["000000036c97ca88fffffffd0000000e"],
    );
    check(
        IntervalDayTimeArray::from(vec![Some(IntervalDayTime::new(1, -1500)), None]),
        &["1 day -00:00:01.5"],
        &["ffffffffffe91ca00000000100000000"],
    );
    check(
        IntervalYearMonthArray::from(vec![Some(-1), None]),
        &["-1 mons"],
        &["000000000000000000000000ffffffff"],
    );
    check(
        DurationMicrosecondArray::from(vec![Some(93_784_500_000), Some(-129_600_000_000), None]),
        &["1 day 02:03:04.5", "-1 days -12:00:00"],
        &["00000001b82687200000000100000000", "fffffff5f1145000ffffffff00000000"],
    );
}

#[test]
fn arrays_are_quoted_and_may_have_dimensions() {
    let mut lists = ListBuilder::new(StringBuilder::new());
    lists.append_value([Some("a"), None, Some(""), Some("NULL"), Some("a b"), Some("q\"\\")]);
    lists.append_value([None::<&str>; 0]);
    lists.append_null();
    check(
        lists.finish(),
        &["{a,NULL,\"\",\"NULL\",\"a b\",\"q\\\"\\\\\"}", "{}"],
        &[
            "0000000100000001000000190000000600000001000000016\
             1ffffffff00000000000000044e554c4c000000036120620000000371225c",
            "000000000000000000000019",
        ],
    );
    let numbers = ListArray::from_iter_primitive::<Int32Type, _, _>([
        Some(vec![Some(1), Some(2)]),
        Some(vec![Some(3), Some(4)]),
    ]);
    let nested = |lengths: [usize; 2], inner: ListArray| {
        let field = Arc::new(Field::new_list_field(inner.data_type().clone(), true));
        let nulls = Some(vec![true, false].into());
        ListArray::new(field, OffsetBuffer::from_lengths(lengths), Arc::new(inner), nulls)
    };
    check(
        nested([2, 0], numbers),
        &["{{1,2},{3,4}}"],
        &[
            "0000000200000000000000170000000200000001000000020000000100000004000000010000000400000002\
           00000004000000030000000400000004",
        ],
    );
    let ragged =
        ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)]), Some(vec![])]);
    let ragged: ArrayRef = Arc::new(nested([2, 0], ragged));
    assert_eq!(encode(&ragged, 0, "UTC").unwrap()[0].as_deref(), Some(&b"{{1},{}}"[..]));
    assert_eq!(encode(&ragged, 1, "UTC").unwrap_err().code(), "2202E");
}

#[test]
fn structs_and_maps_are_json() {
    let moments = TimestampSecondArray::from(vec![1_719_792_000]);
    let bytes = BinaryArray::from(vec![&b"\x00"[..]]);
    let mut list = ListBuilder::new(Int32Builder::new());
    list.append_value([Some(1), None]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("a \"b\"", Arc::new(StringArray::from(vec!["x\ny"]))),
        ("n", Arc::new(Int32Array::from(vec![None]))),
        ("f", Arc::new(Float64Array::from(vec![f64::NAN]))),
        ("t", Arc::new(moments)),
        ("y", Arc::new(bytes)),
        ("l", Arc::new(list.finish())),
        ("ok", Arc::new(BooleanArray::from(vec![true]))),
    ];
    let json = "{\"a \\\"b\\\"\":\"x\\ny\",\"n\":null,\"f\":\"NaN\",\"t\":\"2024-07-01T00:00:00\",\
                \"y\":\"\\\\x00\",\"l\":[1,null],\"ok\":true}";
    let array: ArrayRef = Arc::new(StructArray::try_from(columns).unwrap());
    for format in [0, 1] {
        assert_eq!(encode(&array, format, "UTC"), Ok(vec![Some(json.into())]));
    }
    let mut map = MapBuilder::new(None, Int32Builder::new(), StringBuilder::new());
    map.keys().append_value(1);
    map.values().append_value("x");
    map.append(true).unwrap();
    let array: ArrayRef = Arc::new(map.finish());
    assert_eq!(encode(&array, 0, "UTC"), Ok(vec![Some(b"{\"1\":\"x\"}".to_vec())]));
}

#[test]
fn dictionaries_and_runs_are_their_values() {
    let keys = Int32Array::from(vec![Some(1), Some(0), Some(1), None, Some(2)]);
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), Some("b"), None]));
    let numbers: ArrayRef = Arc::new(Float64Array::from(vec![Some(0.5), Some(2.5), None]));
    for (values, expected) in [(texts, ["b", "a"]), (numbers, ["2.5", "0.5"])] {
        let array: ArrayRef = Arc::new(DictionaryArray::new(keys.clone(), values));
        let some = |text: &str| Some(text.as_bytes().to_vec());
        let expected = vec![some(expected[0]), some(expected[1]), some(expected[0]), None, None];
        assert_eq!(encode(&array, 0, "UTC"), Ok(expected));
    }
    // A value that no row has may be one that cannot be sent.
    let dates: ArrayRef = Arc::new(Date32Array::from(vec![0, i32::MAX]));
    let array = DictionaryArray::new(Int32Array::from(vec![0, 0]), dates);
    let array: ArrayRef = Arc::new(array);
    assert_eq!(encode(&array, 0, "UTC").unwrap().len(), 2);
    let ends = Int32Array::from(vec![2, 3]);
    let runs = RunArray::try_new(&ends, &StringArray::from(vec![Some("a"), None])).unwrap();
    let runs: ArrayRef = Arc::new(runs);
    let a = || Some(b"a".to_vec());
    assert_eq!(encode(&runs, 0, "UTC"), Ok(vec![a(), a(), None]));
    assert_eq!(encode(&runs.slice(1, 2), 0, "UTC"), Ok(vec![a(), None]));
}

#[test]
fn nanoseconds_are_cut_and_that_is_said_once() {
    let batch = batch(vec![Arc::new(TimestampNanosecondArray::from(vec![1000, -1]))]);
    let mut encoder = RowEncoder::new(&batch.schema(), &[], Options::default()).unwrap();
    let mut out = Vec::new();
    encoder.encode(&batch, 0..1, &mut out).unwrap();
    assert!(!encoder.cut_nanoseconds());
    encoder.encode(&batch, 1..2, &mut out).unwrap();
    assert!(encoder.cut_nanoseconds());
    encoder.encode(&batch, 0..2, &mut out).unwrap();
    assert!(!encoder.cut_nanoseconds());
    assert_eq!(rows(&out)[1][0].as_deref(), Some(&b"1969-12-31 23:59:59.999999"[..]));
}

#[test]
fn what_postgres_has_not_is_an_error_and_leaves_whole_rows() {
    let batch = batch(vec![Arc::new(Date32Array::from(vec![0, i32::MAX, 0]))]);
    let mut encoder = RowEncoder::new(&batch.schema(), &[1], Options::default()).unwrap();
    let mut out = Vec::new();
    let error = encoder.encode(&batch, 0..3, &mut out).unwrap_err();
    assert_eq!(error.code(), "22008");
    assert_eq!(rows(&out).len(), 1);
    assert_eq!(encoder.encode(&batch, 2..4, &mut out).unwrap_err().code(), "XX000");
    let times: ArrayRef = Arc::new(Time32SecondArray::from(vec![-1]));
    assert_eq!(encode(&times, 0, "UTC").unwrap_err().code(), "22008");
    let moments: ArrayRef = Arc::new(TimestampSecondArray::from(vec![i64::MAX]));
    assert_eq!(encode(&moments, 0, "UTC").unwrap_err().code(), "22008");
}

#[test]
fn formats_are_none_one_or_one_for_each() {
    let schema = Schema::new(vec![
        Field::new("a", DataType::Int32, true),
        Field::new("b", DataType::Utf8, true),
    ]);
    let formats = |formats: &[i16]| {
        RowEncoder::new(&schema, formats, Options::default())
            .map(|encoder| encoder.formats().collect::<Vec<_>>())
            .map_err(|error| error.code())
    };
    assert_eq!(formats(&[]), Ok(vec![0, 0]));
    assert_eq!(formats(&[1]), Ok(vec![1, 1]));
    assert_eq!(formats(&[0, 1]), Ok(vec![0, 1]));
    assert_eq!(formats(&[0, 1, 0]), Err("08P01"));
    assert_eq!(formats(&[2]), Err("08P01"));
    let field = |at| Field::new(format!("c{at}"), DataType::Int32, true);
    let wide = |columns| Schema::new((0..columns).map(field).collect::<Vec<_>>());
    assert!(RowEncoder::new(&wide(1664), &[], Options::default()).is_ok());
    let error = RowEncoder::new(&wide(1665), &[], Options::default()).err();
    assert_eq!(error.map(|error| error.code()), Some("54011"));
    let empty = RecordBatch::new_empty(Arc::new(schema.clone()));
    let mut out = Vec::new();
    let mut encoder = RowEncoder::new(&schema, &[], Options::default()).unwrap();
    encoder.encode(&empty, 0..0, &mut out).unwrap();
    assert!(out.is_empty());
}

/// The file that COPY makes, and how many messages it came in.
fn copied(batch: &RecordBatch, options: CopyOptions) -> (Vec<u8>, usize) {
    let mut encoder = CopyEncoder::new(&batch.schema(), options, Options::default()).unwrap();
    let mut out = Vec::new();
    encoder.begin(&mut out);
    encoder.encode(batch, 0..batch.num_rows(), &mut out).unwrap();
    encoder.finish(&mut out);
    let (mut rest, mut file, mut frames) = (&out[..], Vec::new(), 0);
    while let Some((b'd', frame)) = rest.split_first() {
        let length = u32::from_be_bytes(*frame.first_chunk().unwrap()) as usize;
        file.extend_from_slice(&frame[4..length]);
        rest = &frame[length..];
        frames += 1;
    }
    assert!(rest.is_empty());
    (file, frames)
}

fn copy_columns() -> RecordBatch {
    let mut list = ListBuilder::new(StringBuilder::new());
    list.append_value([Some("a b"), None]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("x,y", Arc::new(StringArray::from(vec!["a,b\t\\|"]))),
        ("n", Arc::new(Int32Array::from(vec![None]))),
        ("e", Arc::new(StringArray::from(vec![""]))),
        ("q", Arc::new(StringArray::from(vec!["q\"q\nz"]))),
        ("l", Arc::new(list.finish())),
        ("i", Arc::new(Int32Array::from(vec![1]))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
        .unwrap()
}

#[test]
fn copies_are_the_files_of_postgres_15() {
    let batch = copy_columns();
    let mut options = CopyOptions::new(CopyFormat::Text);
    options.header = true;
    let (file, frames) = copied(&batch, options);
    let expected = "x,y\tn\te\tq\tl\ti\na,b\\t\\\\|\t\\N\t\tq\"q\\nz\t{\"a b\",NULL}\t1\n";
    assert_eq!(String::from_utf8(file).unwrap(), expected);
    assert_eq!(frames, 2);
    let mut options = CopyOptions::new(CopyFormat::Csv);
    options.header = true;
    let (file, _) = copied(&batch, options.clone());
    let expected = "\"x,y\",n,e,q,l,i\n\"a,b\t\\|\",,\"\",\"q\"\"q\nz\",\"{\"\"a b\"\",NULL}\",1\n";
    assert_eq!(String::from_utf8(file).unwrap(), expected);
    options.force_quote = ForceQuote::Columns(vec![1, 5]);
    options.header = false;
    let (file, _) = copied(&batch, options);
    assert!(file.ends_with(b",\"1\"\n"), "{file:?}");
    let (file, _) = copied(&batch.project(&[5, 1]).unwrap(), CopyOptions::new(CopyFormat::Binary));
    let expected =
        b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\x04\0\0\0\x01\xff\xff\xff\xff\xff\xff";
    assert_eq!(file, expected);
}

#[test]
fn a_message_of_a_copy_is_a_row() {
    let texts: Vec<String> = (0..5000).map(|at| format!("{at:0>99}")).collect();
    let batch = batch(vec![Arc::new(StringArray::from(texts))]);
    let (file, frames) = copied(&batch, CopyOptions::new(CopyFormat::Text));
    assert_eq!((file.len(), frames), (500_000, 5000));
    // The head is with the first row, or the end.
    let (_, frames) = copied(&batch, CopyOptions::new(CopyFormat::Binary));
    assert_eq!(frames, 5001);
    let (file, frames) = copied(&batch.slice(0, 0), CopyOptions::new(CopyFormat::Binary));
    assert_eq!((file.as_slice(), frames), (&b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\xff\xff"[..], 1));
    let end: ArrayRef = Arc::new(StringArray::from(vec!["\\."]));
    let end = RecordBatch::try_from_iter([("x", end)]).unwrap();
    assert_eq!(copied(&end, CopyOptions::new(CopyFormat::Csv)).0, b"\"\\.\"\n");
    let mut options = CopyOptions::new(CopyFormat::Text);
    options.delimiter = b'a';
    let error = CopyEncoder::new(&batch.schema(), options, Options::default()).err().unwrap();
    assert_eq!(error.code(), "22023");
}

/// Row by row: what blocks of columns must be the same as.
fn one_by_one(batch: &RecordBatch, formats: &[i16]) -> (Vec<u8>, Result<(), EncodeError>) {
    let mut encoder = RowEncoder::new(&batch.schema(), formats, Options::default()).unwrap();
    let mut out = b"before".to_vec();
    let cells = cells(batch, &encoder.columns, &mut encoder.state).unwrap();
    let done = encode_rows(&cells, batch.num_rows(), &mut out, &mut encoder.state);
    (out, done)
}

fn by_columns(batch: &RecordBatch, formats: &[i16]) -> (Vec<u8>, Result<(), EncodeError>) {
    let mut encoder = RowEncoder::new(&batch.schema(), formats, Options::default()).unwrap();
    let mut out = b"before".to_vec();
    let done = encoder.encode(batch, 0..batch.num_rows(), &mut out);
    (out, done)
}

/// Numbers of all sizes, the same for a seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> i64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ (self.0 >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed as i64) >> (self.0 >> 58)
    }

    /// So many values, `nulls` of 100 of them NULL.
    fn many<T>(&mut self, rows: usize, nulls: i64, value: impl Fn(i64) -> T) -> Vec<Option<T>> {
        let mut one = || {
            let number = self.next();
            (self.next().rem_euclid(100) >= nulls).then(|| value(number))
        };
        (0..rows).map(|_| one()).collect()
    }
}

/// A column of each kind that rows are written from in another way.
fn all_ways(numbers: &mut Numbers, rows: usize, nulls: i64) -> RecordBatch {
    let text = |number: i64| "ü☃ab".repeat((number.unsigned_abs() % 9) as usize);
    let texts = numbers.many(rows, nulls, text);
    let keys = Int32Array::from(numbers.many(rows, nulls, |n| (n.rem_euclid(5)) as i32));
    let days: ArrayRef =
        Arc::new(Date32Array::from(vec![Some(1), None, Some(-9), Some(20_000), Some(3)]));
    let words: ArrayRef =
        Arc::new(StringArray::from(vec![Some("a"), None, Some(""), Some("ccc"), Some("dd")]));
    let micros = |n: i64| n % 4_000_000_000_000_000;
    let lists = numbers.many(rows, nulls, |n| vec![Some(n as i32), None]);
    let decimals = numbers.many(rows, nulls, |n| i128::from(n) * 7);
    let decimals = Decimal128Array::from(decimals).with_precision_and_scale(38, 4).unwrap();
    batch(vec![
        Arc::new(Int64Array::from(numbers.many(rows, nulls, |n| n))),
        Arc::new(Int32Array::from(numbers.many(rows, nulls, |n| n as i32))),
        Arc::new(Int16Array::from(numbers.many(rows, nulls, |n| n as i16))),
        Arc::new(Int8Array::from(numbers.many(rows, nulls, |n| n as i8))),
        Arc::new(UInt8Array::from(numbers.many(rows, nulls, |n| n as u8))),
        Arc::new(UInt16Array::from(numbers.many(rows, nulls, |n| n as u16))),
        Arc::new(UInt32Array::from(numbers.many(rows, nulls, |n| n as u32))),
        Arc::new(UInt64Array::from(numbers.many(rows, nulls, |n| n as u64))),
        Arc::new(Float32Array::from(numbers.many(rows, nulls, |n| n as f32 / 7.0))),
        Arc::new(Float64Array::from(numbers.many(rows, nulls, |n| n as f64 / 7.0))),
        Arc::new(BooleanArray::from(numbers.many(rows, nulls, |n| n % 2 == 0))),
        Arc::new(decimals),
        Arc::new(StringArray::from(texts.clone())),
        Arc::new(LargeStringArray::from(texts.clone())),
        Arc::new(StringViewArray::from_iter(texts.clone())),
        Arc::new(BinaryArray::from_iter(
            texts.clone().into_iter().map(|text| text.map(String::into_bytes)),
        )),
        Arc::new(Date32Array::from(numbers.many(rows, nulls, |n| (n % 1_000_000) as i32))),
        Arc::new(TimestampMicrosecondArray::from(numbers.many(rows, nulls, micros))),
        Arc::new(
            TimestampMicrosecondArray::from(numbers.many(rows, nulls, |n| n % 90_000_000_000))
                .with_timezone("UTC"),
        ),
        Arc::new(TimestampMicrosecondArray::from(
            numbers.many(rows, nulls, |n| n % 200_000 * 1_000_000),
        )),
        Arc::new(TimestampNanosecondArray::from(numbers.many(rows, nulls, |n| n))),
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists)),
        Arc::new(DictionaryArray::new(keys.clone(), days)),
        Arc::new(DictionaryArray::new(keys, words)),
        Arc::new(NullArray::new(rows)),
    ])
}

#[test]
fn columns_are_written_as_rows_one_by_one() {
    let mut numbers = Numbers(20_261_127);
    for (rows, nulls) in [(8, 0), (9, 50), (511, 0), (512, 3), (513, 100), (1800, 0), (1800, 30)] {
        let whole = all_ways(&mut numbers, rows, nulls);
        let mixed: Vec<i16> = (0..whole.num_columns() as i16).map(|at| at % 2).collect();
        for batch in [whole.clone(), whole.slice(1, rows - 1), whole.slice(rows / 2, rows / 2)] {
            for formats in [&[0][..], &[1], &mixed] {
                let (expected, found) = (one_by_one(&batch, formats), by_columns(&batch, formats));
                assert!(expected == found, "{rows} rows, {nulls} % NULL, {formats:?}");
                assert_eq!(found.1, Ok(()));
            }
        }
        // The messages of a COPY have the same values.
        let (mut rows_out, _) = one_by_one(&whole.slice(1, rows - 1), &[1]);
        let mut at = "before".len();
        while at < rows_out.len() {
            let length = u32::from_be_bytes(*rows_out[at + 1..].first_chunk().unwrap());
            rows_out[at] = b'd';
            at += 1 + length as usize;
        }
        let copy = CopyOptions::new(CopyFormat::Binary);
        let mut encoder = CopyEncoder::new(&whole.schema(), copy, Options::default()).unwrap();
        let mut out = Vec::new();
        encoder.encode(&whole, 0..1, &mut out).unwrap();
        let first = out.len();
        encoder.encode(&whole, 1..rows, &mut out).unwrap();
        assert!(out[first..] == rows_out[6..], "COPY of {rows} rows");
    }
}

#[test]
fn what_cannot_be_written_ends_columns_as_it_ends_rows() {
    let mut numbers = Numbers(7);
    let good = |rows: usize, bad: &[usize], worst: i32| {
        let day = |row: usize| if bad.contains(&row) { worst } else { row as i32 };
        Arc::new(Date32Array::from_iter_values((0..rows).map(day))) as ArrayRef
    };
    let time = |rows: usize, bad: usize| {
        let micros = (0..rows).map(|row| if row == bad { -1 } else { row as i64 });
        Arc::new(Time64MicrosecondArray::from_iter_values(micros)) as ArrayRef
    };
    for (day, at) in [(700, 699), (700, 700), (700, 701), (0, 1300), (1300, 0), (1299, 9999)] {
        let texts: StringArray = numbers.many(1300, 10, |n| n.to_string()).into_iter().collect();
        let columns =
            vec![Arc::new(texts) as ArrayRef, good(1300, &[day], i32::MAX), time(1300, at)];
        for format in [0, 1] {
            let batch = batch(columns.clone());
            let (expected, found) = (one_by_one(&batch, &[format]), by_columns(&batch, &[format]));
            assert!(expected == found, "{day} {at}: {:?} {:?}", expected.1, found.1);
            assert_eq!(found.1.is_err(), day < 1300 || at < 1300);
        }
    }
    // Blocks of what is long, among them one that ends behind a row that cannot be written.
    let long = BinaryArray::from_iter_values((0..150).map(|row| vec![row as u8; 40_000]));
    for bad in [10, 60, 149, 150] {
        let batch = batch(vec![Arc::new(long.clone()), good(150, &[bad], i32::MAX)]);
        let (expected, found) = (one_by_one(&batch, &[0]), by_columns(&batch, &[0]));
        assert!(expected == found && found.1.is_err() == (bad < 150), "{bad}");
    }
}
