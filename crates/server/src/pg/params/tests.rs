//! Parameters: what Postgres 15 takes and refuses, and what the encoder writes is read back.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Fields, IntervalUnit, Schema, TimeUnit};

use uplake_engine::ScalarValue;

use super::decode;
use crate::pg::encode::{Options, RowEncoder};
use crate::pg::types;

fn list(data_type: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(data_type, true)))
}

/// Every type that a parameter may have, with a text of it.
fn all() -> Vec<(DataType, &'static str)> {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    let utc = Some("UTC".into());
    let dictionary = |values| DataType::Dictionary(Box::new(DataType::Int32), Box::new(values));
    let field = |data_type| Arc::new(Field::new_list_field(data_type, true));
    vec![
        (DataType::Boolean, "t"),
        (DataType::Int8, "-128"),
        (DataType::Int16, "-32768"),
        (DataType::Int32, "2147483647"),
        (DataType::Int64, "-9223372036854775808"),
        (DataType::UInt8, "255"),
        (DataType::UInt16, "65535"),
        (DataType::UInt32, "4294967295"),
        (DataType::UInt64, "18446744073709551615"),
        (DataType::Float16, "1.5"),
        (DataType::Float32, "1e-05"),
        (DataType::Float64, "1.2345678901234568e+17"),
        (DataType::Decimal32(9, 2), "-1234567.89"),
        (DataType::Decimal64(18, 3), "0.001"),
        (DataType::Decimal128(38, 10), "9999999999999999999999999999.9999999999"),
        (
            DataType::Decimal256(76, 0),
            "1234567890123456789012345678901234567890123456789012345678901234567890123456",
        ),
        (DataType::Decimal128(5, -2), "100"),
        (DataType::Utf8, "é {}\""),
        (DataType::LargeUtf8, ""),
        (DataType::Utf8View, "longer than twelve bytes"),
        (DataType::Binary, "\\x00ff"),
        (DataType::LargeBinary, "\\x"),
        (DataType::BinaryView, "\\x01"),
        (DataType::FixedSizeBinary(2), "\\x6162"),
        (DataType::Date32, "0044-03-15 BC"),
        (DataType::Date64, "2024-02-29"),
        (DataType::Time32(Second), "24:00:00"),
        (DataType::Time32(Millisecond), "01:02:03.004"),
        (DataType::Time64(Microsecond), "23:59:59.999999"),
        (DataType::Time64(Nanosecond), "00:00:00.000001"),
        (DataType::Timestamp(Second, None), "12345-01-02 03:04:05"),
        (DataType::Timestamp(Millisecond, utc.clone()), "2024-07-01 00:00:00.5+00"),
        (DataType::Timestamp(Microsecond, None), "0044-03-15 01:02:03.5 BC"),
        (DataType::Timestamp(Nanosecond, utc), "1969-12-31 23:59:59.999999+00"),
        (DataType::Interval(IntervalUnit::YearMonth), "-1 years -2 mons"),
        (DataType::Interval(IntervalUnit::DayTime), "-1 days +00:00:01.5"),
        (DataType::Interval(IntervalUnit::MonthDayNano), "1 year 2 mons -3 days +04:05:06.789"),
        (DataType::Duration(Second), "1 day 02:03:04"),
        (DataType::Duration(Millisecond), "-00:00:01.5"),
        (DataType::Duration(Microsecond), "-1 days -12:00:00"),
        (DataType::Duration(Nanosecond), "00:00:00.000001"),
        (list(DataType::Int32), "{1,NULL,3}"),
        (list(DataType::Utf8), "{a,NULL,\"\",\"NULL\",\"q\\\"\\\\\"}"),
        (list(DataType::Float64), "{}"),
        (list(list(DataType::Int64)), "{{1,2},{3,NULL}}"),
        (list(DataType::Decimal128(10, 2)), "{1.50,-0.05}"),
        (list(DataType::Date32), "{2024-01-02}"),
        (DataType::LargeList(field(DataType::Boolean)), "{t,f}"),
        (DataType::FixedSizeList(field(DataType::Int16), 2), "{1,2}"),
        (dictionary(DataType::Utf8), "word"),
        (dictionary(DataType::Int32), "7"),
    ]
}

/// The bytes that the encoder has for a value.
fn encoded(value: &ScalarValue, format: i16) -> Option<Vec<u8>> {
    let array = value.to_array().unwrap();
    let schema = Schema::new(vec![Field::new("a", array.data_type().clone(), true)]);
    let batch = RecordBatch::try_new(Arc::new(schema), vec![array]).unwrap();
    let mut encoder = RowEncoder::new(&batch.schema(), &[format], Options::default()).unwrap();
    let mut out = Vec::new();
    encoder.encode(&batch, 0..1, &mut out).unwrap();
    // `D`, length, one column, its length.
    (out[7..11] != [0xff; 4]).then(|| out[11..].to_vec())
}

#[test]
fn every_type_goes_to_the_wire_and_back() {
    for (data_type, text) in all() {
        let oid = types::of(&data_type).oid;
        let value = decode(Some(text.as_bytes()), 0, &data_type, 0);
        let value = value.unwrap_or_else(|error| panic!("{data_type}: {error}"));
        assert_eq!(value.data_type(), data_type);
        assert_eq!(encoded(&value, 0).as_deref(), Some(text.as_bytes()), "{data_type}");
        let binary = encoded(&value, 1).unwrap();
        for said in [0, oid] {
            let back = decode(Some(&binary), 1, &data_type, said);
            assert_eq!(back.as_ref(), Ok(&value), "{data_type} said to be {said}");
            assert_eq!(decode(Some(text.as_bytes()), 0, &data_type, said).as_ref(), Ok(&value));
        }
        let null = decode(None, 1, &data_type, 0).unwrap();
        assert!(null.is_null() && null.data_type() == data_type, "{data_type}");
        assert_eq!(encoded(&null, 1), None);
    }
}

fn code(value: &[u8], format: i16, data_type: &DataType, oid: u32) -> &'static str {
    decode(Some(value), format, data_type, oid).unwrap_err().code()
}

#[test]
fn bad_values_have_the_codes_of_postgres_15() {
    let moment = DataType::Timestamp(TimeUnit::Microsecond, None);
    for (text, data_type, expected) in [
        ("o", DataType::Boolean, "22P02"),
        ("1.0", DataType::Int32, "22P02"),
        ("", DataType::Int32, "22P02"),
        ("99999", DataType::Int16, "22003"),
        ("-1", DataType::UInt64, "22003"),
        ("1e400", DataType::Float64, "22003"),
        ("1e-400", DataType::Float64, "22003"),
        ("abc", DataType::Decimal128(5, 2), "22P02"),
        ("123456", DataType::Decimal128(5, 2), "22003"),
        ("1.234", DataType::Decimal128(5, 2), "22003"),
        ("NaN", DataType::Decimal128(5, 2), "22003"),
        ("{1,2", list(DataType::Int32), "22P02"),
        ("{{1}}", list(DataType::Int32), "22P02"),
        ("{x}", list(DataType::Int32), "22P02"),
        ("\\xzz", DataType::Binary, "22P02"),
        ("2024-13-01", DataType::Date32, "22008"),
        ("x", DataType::Date32, "22007"),
        ("300000-01-01", moment.clone(), "22008"),
        ("infinity", moment, "22008"),
        ("1 foo", DataType::Interval(IntervalUnit::MonthDayNano), "22007"),
        ("25:00", DataType::Time64(TimeUnit::Microsecond), "22008"),
        ("1 mon", DataType::Duration(TimeUnit::Second), "22003"),
        ("a\0", DataType::Utf8, "22021"),
    ] {
        assert_eq!(code(text.as_bytes(), 0, &data_type, 0), expected, "{text} as {data_type}");
    }
    assert_eq!(code(b"\xff", 0, &DataType::Int32, 0), "22021");
    assert_eq!(code(b"\xff", 1, &DataType::Utf8, 0), "22021");
    assert_eq!(code(b"\0\0\0", 1, &DataType::Int32, 0), "22P03");
    assert_eq!(code(b"\0\0\0\x07", 2, &DataType::Int32, 0), "08P01");
    assert_eq!(code(b"{}", 0, &DataType::Struct(Fields::empty()), 0), "0A000");
    let error = decode(Some(b"abc"), 0, &DataType::Int64, 0).unwrap_err().to_string();
    assert_eq!(error, "invalid input syntax for type bigint: \"abc\"");
    let error = decode(Some(b"99999"), 0, &DataType::Int16, 0).unwrap_err().to_string();
    assert_eq!(error, "value \"99999\" is out of range for type smallint");
}

#[test]
fn values_of_another_type_fit_whole_or_not_at_all() {
    let decode = |bytes: &[u8], data_type, oid| decode(Some(bytes), 1, &data_type, oid);
    let whole = 7i64.to_be_bytes();
    assert_eq!(decode(&whole, DataType::Int32, types::INT8), Ok(ScalarValue::Int32(Some(7))));
    let seven = ScalarValue::Decimal128(Some(700), 10, 2);
    assert_eq!(decode(&whole, DataType::Decimal128(10, 2), types::INT8), Ok(seven));
    assert_eq!(decode(&whole, DataType::Float64, types::INT8), Ok(ScalarValue::Float64(Some(7.0))));
    let half = 1.5f64.to_be_bytes();
    let error = decode(&half, DataType::Int64, types::FLOAT8).unwrap_err();
    assert_eq!(error.code(), "22003");
    let tenth = 0.1f64.to_be_bytes();
    assert_eq!(
        decode(&tenth, DataType::Float32, types::FLOAT8),
        Ok(ScalarValue::Float32(Some(0.1)))
    );
    let expected = ScalarValue::Decimal128(Some(10), 10, 2);
    assert_eq!(decode(&tenth, DataType::Decimal128(10, 2), types::FLOAT8), Ok(expected));
    let error = decode(&whole, DataType::Date32, types::INT8).unwrap_err();
    assert_eq!(error.code(), "42804");
    let text = |text: &str| Ok(ScalarValue::Utf8(Some(text.into())));
    assert_eq!(decode(b"\x01{}", DataType::Utf8, types::JSONB), text("{}"));
    let uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f";
    let bytes: Vec<u8> = (0..16).collect();
    assert_eq!(decode(&bytes, DataType::Utf8, types::UUID), text(uuid));
    assert_eq!(decode(b"7", DataType::Int32, types::VARCHAR), Ok(ScalarValue::Int32(Some(7))));
    assert_eq!(decode(b"any", DataType::Null, 0), text("any"));
}

#[test]
fn moments_are_read_in_the_zone_they_name_or_that_of_the_type() {
    let berlin = DataType::Timestamp(TimeUnit::Microsecond, Some("Europe/Berlin".into()));
    for (text, seconds) in [
        ("2024-07-01 02:00:00", 1_719_792_000),
        ("2024-07-01 02:00:00+02", 1_719_792_000),
        ("2024-07-01 05:30:00 Asia/Kolkata", 1_719_792_000),
        ("2024-07-01T00:00:00Z", 1_719_792_000),
        // Never there, and twice there.
        ("2024-03-31 02:30", 1_711_848_600),
        ("2024-10-27 02:30", 1_729_992_600),
    ] {
        let found = decode(Some(text.as_bytes()), 0, &berlin, 0);
        let zone = Some("Europe/Berlin".into());
        let expected = ScalarValue::TimestampMicrosecond(Some(seconds * 1_000_000), zone);
        assert_eq!(found, Ok(expected), "{text}");
    }
}

/// Seeded, so that a failure can be repeated.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[test]
fn no_bytes_make_it_panic() {
    let mut noise = Noise(0x2545_f491_4f6c_dd1d);
    let letters = b"0123456789-+:.eE TZPYMD{}\",\\xnul[]=\xc3\xa9\0\x01\xff";
    let oids: [u32; 22] = [
        0, 0, 16, 17, 20, 21, 23, 26, 700, 701, 1082, 1083, 1114, 1184, 1186, 1700, 2950, 3802,
        1007, 1016, 1231, 9,
    ];
    let types = all();
    for round in 0..100_000 {
        let length = noise.next() as usize % 40;
        let mut bytes: Vec<u8> = (0..length)
            .map(|_| {
                let byte = noise.next();
                if round % 3 == 0 { byte as u8 } else { letters[byte as usize % letters.len()] }
            })
            .collect();
        if round % 3 == 1 && bytes.len() > 20 {
            // The head of an array, so that its inside is reached.
            let element = oids[noise.next() as usize % oids.len()];
            let length = noise.next() as u8 % 4;
            bytes[..12].copy_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]);
            bytes[8..12].copy_from_slice(&element.to_be_bytes());
            bytes[12..20].copy_from_slice(&[0, 0, 0, length, 0, 0, 0, 1]);
        }
        for (data_type, _) in &types {
            let chosen = noise.next() as usize;
            let oid = oids[chosen / 4 % oids.len()];
            let (format, oid) = ((chosen % 2) as i16, if chosen & 2 == 0 { 0 } else { oid });
            if let Ok(value) = decode(Some(&bytes), format, data_type, oid) {
                assert_eq!(value.data_type(), *data_type);
            }
        }
    }
}
