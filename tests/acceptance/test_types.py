"""Values keep their meaning: every type, inference, --schema, nested and foreign Parquet types."""

import datetime
import decimal
import json
import shutil

import pyarrow as pa
import pyarrow.parquet
import pytest

import support
from support import assert_same, rows_of, write_parquet

UTC = datetime.timezone.utc
D = decimal.Decimal


def _type_of(lake, table, column):
    for line in lake.run("table", "describe", table).out.splitlines():
        parts = line.split()
        if line.startswith("  ") and parts[0] == column:
            return " ".join(parts[1:])
    raise AssertionError(f"no column {column} in {table}")


# (name in --schema, name that describe prints, CSV text, value)
TYPES = [
    ("text", "text", "007", "007"),
    ("varchar", "text", "héllo", "héllo"),
    ("string", "text", "x", "x"),
    ("char", "text", "x", "x"),
    ("bigint", "bigint", "9223372036854775807", 9223372036854775807),
    ("int8", "bigint", "-9223372036854775808", -9223372036854775808),
    ("long", "bigint", "0", 0),
    ("integer", "integer", "2147483647", 2147483647),
    ("int", "integer", "-2147483648", -2147483648),
    ("int4", "integer", "5", 5),
    ("smallint", "smallint", "-32768", -32768),
    ("int2", "smallint", "1", 1),
    ("short", "smallint", "1", 1),
    ("tinyint", "tinyint", "-128", -128),
    ("byte", "tinyint", "127", 127),
    ("double", "double", "1.7976931348623157e308", 1.7976931348623157e308),
    ("float8", "double", "-0.1", -0.1),
    ("double precision", "double", "5e-324", 5e-324),
    ("real", "real", "0.5", 0.5),
    ("float", "real", "-2.25", -2.25),
    ("float4", "real", "1e3", 1000.0),
    ("boolean", "boolean", "true", True),
    ("bool", "boolean", "false", False),
    ("date", "date", "2024-02-29", datetime.date(2024, 2, 29)),
    ("timestamp", "timestamp", "2026-11-01 08:00:00.123456", datetime.datetime(2026, 11, 1, 8, 0, 0, 123456)),
    ("datetime", "timestamp", "1900-01-01T00:00:00", datetime.datetime(1900, 1, 1)),
    ("timestamptz", "timestamptz", "2026-11-01T10:00:00+02:00", datetime.datetime(2026, 11, 1, 8, tzinfo=UTC)),
    ("timestamp with time zone", "timestamptz", "2026-11-01T08:00:00Z", datetime.datetime(2026, 11, 1, 8, tzinfo=UTC)),
    ("decimal(10,2)", "decimal(10,2)", "-12345678.90", D("-12345678.90")),
    ("numeric(38,0)", "decimal(38,0)", "9" * 38, D("9" * 38)),
    ("decimal(38, 38)", "decimal(38,38)", "0." + "1" * 38, D("0." + "1" * 38)),
    ("decimal(5)", "decimal(5,0)", "12345", D("12345")),
    ("TEXT", "text", "x", "x"),
]


@pytest.mark.parametrize("source", ["csv", "json"])
def each_type_name_keeps_its_extreme_values(lake, folder, source):
    columns = [f"c{i}" for i in range(len(TYPES))]
    schema = ", ".join(f"{c} {t[0]}" for c, t in zip(columns, TYPES))
    path = folder / f"d.{source}"
    if source == "csv":
        path.write_text(
            ",".join(columns) + "\n" + ",".join(t[2] for t in TYPES) + "\n" + "," * (len(TYPES) - 1) + "\n"
        )
    else:
        def spelled(kind, text, value):
            if kind in ("text", "date") or kind.startswith("timestamp"):
                return json.dumps(text)
            return text
        body = ", ".join(f'"{c}": {spelled(t[1], t[2], t[3])}' for c, t in zip(columns, TYPES))
        path.write_text("{" + body + '}\n{"c0": null}\n')
    lake.load("t", path, "--schema", schema)
    got = {tuple(r.values()) for r in lake.arrow(f"select {', '.join(columns)} from t").to_pylist()}
    want = {tuple(t[3] for t in TYPES), (None,) * len(TYPES)}
    for i, t in enumerate(TYPES):
        assert {row[i] for row in got} == {row[i] for row in want}, t
        assert _type_of(lake, "t", columns[i]) == t[1]
    lake.same_as_deltalake("t")


# (type, texts that are not one, source)
NOT_VALUES = {
    "tinyint": ["128", "-129", "1.5", "x", "1e2"],
    "smallint": ["32768", "0x10"],
    "integer": ["2147483648", "1.0", "1,5", "1 2"],
    "bigint": ["9223372036854775808", "1.5", "--1", "1_000"],
    "double": ["x", "1,5", "0x1p3", "1.2.3"],
    "boolean": ["yes!", "2", "tru"],
    "date": ["2026-02-30", "01/02/2026", "2026-13-01", "2026-11-01 25:00:00", "2026-11-01 10:00:00",
        "2026-11-02T00:30:00+02:00", "20261101"],
    "timestamp": ["yesterday", "2026-11-01 25:00:00", "2026-11-01 10:00:00.1234567", "2026-11-01T10:00:00+02:00",
        "2026-11-01 10:00:00 Europe/Berlin"],
    "timestamptz": ["noon", "2026-11-01T10:00:00.123456789Z"],
    "decimal(4,2)": ["100.00", "1.234", "x", "1e400"],
}


@pytest.mark.parametrize(
    "kind,text", [(k, t) for k, texts in NOT_VALUES.items() for t in texts]
)
def a_value_that_would_have_to_change_is_a_bad_row_in_csv(lake, folder, kind, text):
    path = folder / "d.csv"
    path.write_text(f'k,v\n1,\n2,"{text}"\n')
    lake.refused(
        "load", "t", path, "--schema", f"k int, v {kind}",
        says=[str(path), "line 3", "`v`", text, kind],
    )
    assert lake.version("t") is None


JSON_NOT_VALUES = [
    ("tinyint", "128"), ("integer", "2147483648"), ("bigint", "1.5"), ("bigint", '"x"'),
    ("bigint", "9223372036854775808"), ("bigint", "true"), ("boolean", "1"), ("boolean", '"x"'),
    ("date", '"2026-02-30"'), ("date", "20261101"), ("date", "2.5"), ("date", '"2026-11-01 10:00:00"'), ("timestamp", '"2026-11-01 10:00:00.1234567"'), ("timestamp", '"x"'),
    ("decimal(4,2)", "1.234"), ("decimal(4,2)", "100"), ("double", '"x"'), ("text", "{}"), ("text", "[1]"),
]


@pytest.mark.parametrize("kind,text", JSON_NOT_VALUES)
def a_value_that_would_have_to_change_is_a_bad_row_in_json(lake, folder, kind, text):
    path = folder / "d.json"
    path.write_text(f'{{"k": 1, "v": null}}\n{{"k": 2, "v": {text}}}\n')
    lake.refused(
        "load", "t", path, "--schema", f"k int, v {kind}", says=[str(path), "line 2", "`v`", kind]
    )
    assert lake.version("t") is None


INFERRED = [
    (["1", "-2", ""], "bigint"),
    (["9223372036854775807"], "bigint"),
    (["9223372036854775808"], "text"),
    (["007"], "text"),
    (["1", "2.5"], "double"),
    (["9007199254740993", "2.5"], "text"),
    (["1e5"], "double"),
    (["true", "false"], "boolean"),
    (["1", "true"], "text"),
    (["2026-11-01"], "date"),
    (["2026-11-01", "2026-11-01 10:00:00"], "timestamp"),
    (["2026-11-01T10:00:00.5Z"], "timestamptz"),
    (["2026-11-31"], "text"),
    (["", ""], "text"),
    (["x", "1"], "text"),
    (["NaN"], "text"),
    (["+1"], "text"),
    (["12:30:00"], "text"),
]


@pytest.mark.parametrize("values,kind", INFERRED)
def csv_types_are_inferred_towards_text_and_keep_every_digit(lake, folder, values, kind):
    path = folder / "d.csv"
    path.write_text("k,v\n" + "".join(f"{i},{v}\n" for i, v in enumerate(values)))
    lake.load("t", path)
    assert _type_of(lake, "t", "v") == kind
    if kind == "text":
        got = [r["v"] for r in lake.json("select v from t order by k")]
        assert got == [v or None for v in values]


JSON_INFERRED = [
    (['"9007199254740993"'], "text"),
    (["1", "null"], "bigint"),
    (["1", "1.5"], "double"),
    (['"1"'], "text"),
    (['"true"'], "text"),
    (["true"], "boolean"),
    (['"2026-11-01"'], "date"),
    (['"2026-11-01T10:00:00Z"'], "timestamptz"),
    (['"x"', "2"], "text"),
    (["1", "true"], "text"),
    (["18446744073709551615"], "text"),
    (["[1, 2]", "[]"], "bigint[]"),
    (['["a"]', "null"], "text[]"),
    (["null"], "text"),
]


@pytest.mark.parametrize("values,kind", JSON_INFERRED)
def json_types_are_inferred_so_that_every_line_of_the_sample_loads(lake, folder, values, kind):
    path = folder / "d.json"
    path.write_text("".join(f'{{"k": {i}, "v": {v}}}\n' for i, v in enumerate(values)))
    lake.load("t", path)
    assert _type_of(lake, "t", "v") == kind
    assert lake.count("t") == len(values)
    if kind == "text":
        got = [r["v"] for r in lake.json("select v from t order by k")]
        assert got == [None if v == "null" else v.strip('"') for v in values]


def the_schema_overrides_inference_for_the_columns_it_names(lake, folder):
    path = folder / "d.csv"
    path.write_text("code,n\n12,1\n13,2\n")
    lake.load("t", path, "--schema", "code text")
    assert _type_of(lake, "t", "code") == "text"
    assert _type_of(lake, "t", "n") == "bigint"
    assert lake.json("select * from t order by n") == [{"code": "12", "n": 1}, {"code": "13", "n": 2}]


def the_inferred_schema_is_printed(lake, folder):
    path = folder / "d.csv"
    path.write_text("code,n\nx,1\n")
    assert "code text, n bigint" in lake.load("t", path).err


def a_schema_column_that_no_file_has_is_named(lake, folder):
    path = folder / "d.csv"
    path.write_text("a\n1\n")
    lake.refused("load", "t", path, "--schema", "typo int", says=["typo"])


BAD_SCHEMAS = [
    ("a", "NAME TYPE"), ("a blob2", "known types"), ("a int, a text", "twice"),
    ("a decimal(39,2)", "decimal"), ("a decimal(3,5)", "decimal"), ("", "NAME TYPE"),
]


@pytest.mark.parametrize("schema,says", BAD_SCHEMAS)
def a_wrong_schema_says_what_is_wrong(lake, folder, schema, says):
    path = folder / "d.csv"
    path.write_text("a\n1\n")
    lake.refused("load", "t", path, "--schema", schema, says=[says])


def binary_loads_from_parquet_and_csv_says_it_cannot(lake, folder):
    data = pa.table({"k": pa.array([1, 2], pa.int64()), "b": pa.array([b"\x00\xff", None], pa.binary())})
    lake.create_from("t", data)
    assert_same(lake.same_as_deltalake("t"), rows_of(data), "binary")
    path = folder / "d.csv"
    path.write_text("k,b\n1,x\n")
    lake.refused("load", "t", path, says=["`b`", "binary", "Parquet"])


NS = [1_700_000_000_123_456_000, None, 0, -1000]
DT = [datetime.datetime(2026, 11, 1, 10, 0, 0, 5), None, datetime.datetime(1970, 1, 1), datetime.datetime(1969, 12, 31)]
# column -> (array, stored type, expected values or None for the same)
FOREIGN = {
    "u8": (pa.array([0, 255, None, 1], pa.uint8()), "smallint", None),
    "u16": (pa.array([0, 65535, None, 1], pa.uint16()), "integer", None),
    "u32": (pa.array([0, 4294967295, None, 1], pa.uint32()), "bigint", None),
    "u64": (pa.array([0, 18446744073709551615, None, 1], pa.uint64()), "decimal(20,0)",
            [D(0), D(18446744073709551615), None, D(1)]),
    "f16": (pa.array([0.5, None, -1.0, 2.0], pa.float32()).cast(pa.float16()), "real", [0.5, None, -1.0, 2.0]),
    "f64": (pa.array([float("inf"), float("-inf"), None, -0.0], pa.float64()), "double", None),
    "dict": (pa.array(["a", "b", None, "a"]).dictionary_encode(), "text", ["a", "b", None, "a"]),
    "large": (pa.array(["a", "", None, "☃"], pa.large_string()), "text", None),
    "view": (pa.array(["a", "", None, "a string longer than twelve bytes"], pa.string_view()), "text", None),
    "fixed": (pa.array([b"ab", b"cd", None, b"ef"], pa.binary(2)), "binary", None),
    "ts_s": (pa.array([d and d.replace(microsecond=0) for d in DT], pa.timestamp("s")), "timestamp", None),
    "ts_ms": (pa.array([d and d.replace(microsecond=0) for d in DT], pa.timestamp("ms")), "timestamp", None),
    "ts_us": (pa.array(DT, pa.timestamp("us")), "timestamp", None),
    "ts_ns": (pa.array(NS, pa.timestamp("ns")), "timestamp",
              pa.array([n if n is None else n // 1000 for n in NS], pa.timestamp("us")).to_pylist()),
    "ts_tz": (pa.array(DT, pa.timestamp("us", "Europe/Berlin")), "timestamptz", None),
    "date": (pa.array([datetime.date(2026, 11, 1), None, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]), "date", None),
    "dec": (pa.array([D("1.20"), None, D("-99999999.99"), D("0")], pa.decimal128(10, 2)), "decimal(10,2)", None),
    "null": (pa.nulls(4), "text", None),
    "time_s": (pa.array([0, 86399, None, 36000], pa.time32("s")), "text", ["00:00:00", "23:59:59", None, "10:00:00"]),
    "time_ms": (pa.array([0, 1, None, 36000250], pa.time32("ms")), "text",
                ["00:00:00", "00:00:00.001", None, "10:00:00.250"]),
    "time_us": (pa.array([1, 86399999999, None, 36000250000], pa.time64("us")), "text",
                ["00:00:00.000001", "23:59:59.999999", None, "10:00:00.250"]),
    "time_ns": (pa.array([1, 1000, None, 0], pa.time64("ns")), "text",
                ["00:00:00.000000001", "00:00:00.000001", None, "00:00:00"]),
    "times": (pa.array([[1], [], None, [None]], pa.list_(pa.time64("us"))), "text[]",
              [["00:00:00.000001"], [], None, [None]]),
    "list": (pa.array([[1, None], [], None, [3]], pa.list_(pa.int32())), "integer[]", None),
    "lists": (pa.array([[["a"]], [[], None], None, []], pa.list_(pa.list_(pa.string()))), "text[][]", None),
    "struct": (pa.array([{"x": 1, "y": ["p"]}, {"x": None, "y": None}, None, {"x": 2, "y": []}],
                        pa.struct([("x", pa.uint32()), ("y", pa.list_(pa.string()))])), None, None),
    "structs": (pa.array([[{"a": 1.5, "b": None}], [], None, [{"a": None, "b": "z"}]],
                         pa.list_(pa.struct([("a", pa.float64()), ("b", pa.large_string())]))), None, None),
}


def every_foreign_parquet_type_is_stored_as_the_nearest_delta_type(lake):
    data = pa.table({"k": pa.array(range(4), pa.int64()), **{n: c[0] for n, c in FOREIGN.items()}})
    lake.create_from("t", data)
    got = lake.arrow("select * from t order by k")
    for name, (array, stored, want) in FOREIGN.items():
        want = array.to_pylist() if want is None else want
        have = got.column(name).to_pylist()
        assert list(map(support.plain, have)) == list(map(support.plain, want)), name
        if stored:
            assert _type_of(lake, "t", name) == stored
    lake.same_as_deltalake("t")


MAPS = {
    "text to number": (pa.map_(pa.string(), pa.int32()), [[("a", 1), ("b", None)], [], None, [("c", 3)]]),
    "number to text": (pa.map_(pa.int64(), pa.string()), [[(7, "x")], None, [(1, None), (2, "y")], []]),
    "to a list": (pa.map_(pa.string(), pa.list_(pa.float64())), [[("a", [1.5, None])], [("b", None)], [], None]),
    "to a struct": (pa.map_(pa.string(), pa.struct([("x", pa.date32())])),
                    [[("a", {"x": datetime.date(2026, 11, 1)})], None, [], [("b", {"x": None})]]),
    "to a map": (pa.map_(pa.string(), pa.map_(pa.string(), pa.bool_())), [[("a", [("b", True)])], [], None, [("c", [])]]),
    "to a time": (pa.map_(pa.string(), pa.timestamp("us", "UTC")),
                  [[("a", DT[0].replace(tzinfo=UTC))], [("b", None)], [], None]),
}


@pytest.mark.parametrize("kind", MAPS)
def a_map_of_a_parquet_file_is_a_map_of_the_table(lake, folder, kind):
    kind, values = MAPS[kind]
    data = pa.table({"k": pa.array(range(4), pa.int64()), "m": pa.array(values, kind)})
    path = write_parquet(folder / "d.parquet", data)
    lake.load("t", path)
    lake.load("t", path)
    as_pairs = lambda value: None if value is None else [(k, as_pairs(v) if isinstance(v, list) and v and isinstance(v[0], tuple) else v) for k, v in value]
    for step in ("loaded", "compacted"):
        got = lake.arrow("select m from t order by k").column("m").to_pylist()
        assert list(map(as_pairs, got)) == [as_pairs(v) for v in values for _ in range(2)], step
        theirs = lake.delta("t").to_pyarrow_table().sort_by("k").column("m").to_pylist()
        assert list(map(as_pairs, theirs)) == [as_pairs(v) for v in values for _ in range(2)], step
        lake.run("table", "compact", "t")
    lake.run("table", "check", "t")
    assert lake.json("select count(*) as n, count(m) as m from t") == [{"n": 8, "m": 6}]


def maps_are_asked_by_key_and_written_by_statements(lake, folder):
    kind = pa.map_(pa.string(), pa.int64())
    data = pa.table({"k": [1, 2, 3], "m": pa.array([[("a", 1), ("b", 2)], [], None], kind)})
    lake.load("t", write_parquet(folder / "d.parquet", data))
    assert _type_of(lake, "t", "m") == "map(text, bigint)"
    for source in ("t", f"'{folder}/d.parquet'"):
        assert lake.json(f"select k, m['a'] as a, cardinality(m) as n from {source} order by k") == [
            {"k": 1, "a": 1, "n": 2}, {"k": 2, "a": None, "n": 0}, {"k": 3, "a": None, "n": None}], source
        assert lake.json(f"select sum(m['b']) as s from {source} where m['a'] = 1") == [{"s": 2}], source
        assert lake.json(f"select m['a'] as a, count(*) as n from {source} group by 1 order by 1") == [
            {"a": 1, "n": 1}, {"a": None, "n": 2}], source
    lake.run("sql", "-c", "create table u as select k + 10 as k, m from t; insert into t select * from u")
    lake.run("sql", "-c", "update t set k = k + 100 where k = 1; delete from t where k = 2")
    found = lake.json("select k, m['b'] as b from t order by k")
    assert found == [{"k": 3, "b": None}, {"k": 11, "b": 2}, {"k": 12, "b": None}, {"k": 13, "b": None}, {"k": 101, "b": 2}]
    # A narrower map is widened, another one refused.
    narrow = pa.table({"k": [4], "m": pa.array([[("c", 5)]], pa.map_(pa.string(), pa.int32()))})
    lake.load("t", write_parquet(folder / "e.parquet", narrow))
    assert lake.json("select m['c'] as c from t where k = 4") == [{"c": 5}]
    other = pa.table({"k": [5], "m": pa.array([[("c", "x")]], pa.map_(pa.string(), pa.string()))})
    lake.refused("load", "t", write_parquet(folder / "f.parquet", other), says=["`m`", "map(text, text)", "map(text, bigint)"])
    for option in ("--cluster-by", "--partition-by", "--primary-key", "--index"):
        lake.refused("load", "v", folder / "d.parquet", option, "m", says=["`m`"])
    cut = pa.table({"m": pa.array([[("a", 1001)]], pa.map_(pa.string(), pa.timestamp("ns", "UTC")))})
    lake.refused("load", "w", write_parquet(folder / "g.parquet", cut), says=["`m`"])


def times_of_day_are_compared_as_text_and_as_times(lake, folder):
    """Of an hour a file has a TIME, and a table its text: both say the same of `<`."""
    data = pa.table({"t": pa.array([36000_000_001, 36000_250_000, 35999_999_999, None], pa.time64("us"))})
    path = write_parquet(folder / "d.parquet", data)
    lake.load("t", path)
    for source in ("t", f"'{path}'"):
        found = lake.json(f"select t::text as t from {source} where t >= '10:00:00' order by t")
        assert found == [{"t": "10:00:00.000001"}, {"t": "10:00:00.250"}], source
    assert lake.json("select t::time::text as t from t where t::time < time '10:00:00'") == [{"t": "09:59:59.999999"}]
    beyond = pa.array([90_000], pa.int32()).view(pa.time32("s"))
    path = write_parquet(folder / "e.parquet", pa.table({"t": beyond}))
    lake.refused("load", "t", path, says=["e.parquet", "`t`"])
    assert lake.count("t") == 4


def nanoseconds_that_would_lose_digits_are_bad_rows(lake, folder):
    data = pa.table({"k": pa.array([1, 2, 3], pa.int64()), "t": pa.array([1000, 1001, None], pa.timestamp("ns"))})
    path = write_parquet(folder / "d.parquet", data)
    lake.refused("load", "t", path, says=["row 2", "`t`", "timestamp", "without changing it"])
    assert lake.version("t") is None


@pytest.mark.parametrize("inside,bad", [
    ("[{}]", "[1.7]"), ('{{"x": {}}}', '{"x": 1.5}'), ("[[{}]]", "[[2, 9.5]]"),
], ids=["list", "object", "lists"])
def nested_json_numbers_that_would_be_cut_are_bad_rows(lake, folder, inside, bad):
    path = folder / "d.json"
    path.write_text(f'{{"k": 1, "v": {inside.format(3)}}}\n')
    lake.load("t", path)
    assert lake.json("select v from t") == [{"v": json.loads(inside.format(3))}]
    path.write_text(f'{{"k": 2, "v": {bad}}}\n')
    lake.refused("load", "t", path, says=[str(path), "line 1", "`v`"])
    assert lake.count("t") == 1


def new_columns_of_a_table_with_rows_can_be_null(lake, folder):
    lake.create_from("t", pa.table({"a": [1]}))
    wider = pa.table([pa.array([2]), pa.array([3])], schema=pa.schema([("a", pa.int64()), pa.field("b", pa.int64(), nullable=False)]))
    path = write_parquet(folder / "d.parquet", wider)
    lake.refused("load", "t", path, "--allow-new-columns", "--schema", "c int not null", says=["c"])
    lake.load("t", path, "--allow-new-columns")
    lake.run("table", "compact", "t")
    assert lake.json("select a, b from t order by a") == [{"a": 1, "b": None}, {"a": 2, "b": 3}]


def times_of_96_bits_are_read_as_microseconds(lake, folder):
    times = [datetime.datetime(9999, 12, 31), datetime.datetime(2026, 11, 1, 10, 0, 0, 123456), datetime.datetime(1815, 3, 30), None]
    data = pa.table({"k": [0, 1, 2, 3], "ts": pa.array(times, pa.timestamp("us"))})
    path = folder / "d.parquet"
    pyarrow.parquet.write_table(data, path, use_deprecated_int96_timestamps=True)
    want = ["9999-12-31 00:00:00", "2026-11-01 10:00:00.123456", "1815-03-30 00:00:00", None]
    shown = lambda table: [row["ts"] for row in lake.json(f"select k, cast(ts as text) as ts from {table} group by k, ts order by k")]
    assert shown(f"'{path}'") == want
    # Another writer's table, rewritten.
    lake.create_from("t", pa.table({"k": pa.array([9], pa.int64()), "ts": pa.array([None], pa.timestamp("us"))}))
    for name in "ab":
        shutil.copy(path, lake.folder("t") / f"{name}.parquet")
        add = {"path": f"{name}.parquet", "partitionValues": {}, "size": path.stat().st_size, "modificationTime": 1, "dataChange": True}
        commit = lake.folder("t") / "_delta_log" / f"{lake.version('t') + 1:020}.json"
        commit.write_text(json.dumps({"add": add}) + "\n")
    assert shown("t") == [*want, None]
    lake.run("table", "compact", "t")
    lake.run("sql", "-c", "delete from t where k = 9")
    assert shown("t") == want
    nanos = pa.table({"ts": pa.array([1, 1000], pa.timestamp("ns"))})
    pyarrow.parquet.write_table(nanos, path, use_deprecated_int96_timestamps=True)
    lake.refused("load", "u", path, says=["row 1", "`ts`"])


@pytest.mark.parametrize("shape", ["list", "struct"])
def nested_nanoseconds_that_would_lose_digits_are_bad_rows(lake, folder, shape):
    values = pa.array([1000, 1001], pa.timestamp("ns"))
    if shape == "list":
        column = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), values)
    else:
        column = pa.StructArray.from_arrays([values], names=["x"])
    path = write_parquet(folder / "d.parquet", pa.table({"t": column}))
    lake.refused("load", "t", path, says=[str(path), "`t`", "without changing"])
    assert lake.version("t") is None


@pytest.mark.parametrize("shape", ["plain", "list", "struct"])
def a_timestamp_beyond_microseconds_is_a_bad_row_not_null(lake, folder, shape):
    values = pa.array([1, 2**62], pa.int64()).cast(pa.timestamp("ms"))
    if shape == "list":
        values = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), values)
    elif shape == "struct":
        values = pa.StructArray.from_arrays([values], names=["x"])
    path = write_parquet(folder / "d.parquet", pa.table({"t": values}))
    lake.refused("load", "t", path, says=[str(path), "`t`", "without changing"])
    assert lake.version("t") is None


REFUSED = {
    "duration": pa.array([5], pa.duration("us")),
    "map of times": pa.array([[("a", 5)]], pa.map_(pa.string(), pa.timestamp("us"))),
    "map of lists of times": pa.array([[("a", [5])]], pa.map_(pa.string(), pa.list_(pa.timestamp("us")))),
    "decimal256": pa.array([D(1)], pa.decimal256(50, 2)),
}


@pytest.mark.parametrize("kind", REFUSED)
def a_type_that_delta_lacks_is_refused_with_file_and_column(lake, folder, kind):
    path = write_parquet(folder / "d.parquet", pa.table({"k": [1], "c": REFUSED[kind]}))
    lake.refused("load", "t", path, says=[str(path), "`c`", "cast "])
    assert lake.version("t") is None


WIDENED = [
    (pa.int8(), pa.int64(), True), (pa.int16(), pa.int32(), True), (pa.int32(), pa.int64(), True),
    (pa.int32(), pa.float64(), True), (pa.float32(), pa.float64(), True), (pa.uint32(), pa.int64(), True),
    (pa.decimal128(5, 2), pa.decimal128(12, 4), True), (pa.list_(pa.int32()), pa.list_(pa.int64()), True),
    (pa.int64(), pa.int32(), False), (pa.int64(), pa.float64(), False), (pa.float64(), pa.float32(), False),
    (pa.string(), pa.int64(), False), (pa.int64(), pa.string(), False), (pa.uint64(), pa.int64(), False),
    (pa.date32(), pa.timestamp("us"), False), (pa.timestamp("us", "UTC"), pa.timestamp("us"), False),
    (pa.decimal128(12, 4), pa.decimal128(5, 2), False), (pa.list_(pa.string()), pa.list_(pa.int64()), False),
]


def _some(kind):
    if pa.types.is_list(kind):
        return pa.array([[v] for v in _some(kind.value_type).to_pylist()], kind)
    if pa.types.is_string(kind):
        return pa.array(["3", "4"])
    if pa.types.is_timestamp(kind):
        return pa.array([3, 4], pa.int64()).cast(kind)
    if pa.types.is_date(kind):
        return pa.array([3, 4], pa.int32()).cast(kind)
    if pa.types.is_decimal(kind):
        return pa.array([D(3), D("4.5")], kind)
    return pa.array([3, 4], kind)


@pytest.mark.parametrize("found,table,fits", WIDENED, ids=lambda v: str(v).replace(" ", ""))
def a_later_file_widens_or_clashes_by_name_of_file_column_and_types(lake, folder, found, table, fits):
    lake.create_from("t", pa.table({"k": [1, 2], "v": _some(table)}))
    path = write_parquet(folder / "later.parquet", pa.table({"k": [3, 4], "v": _some(found)}))
    if not fits:
        lake.refused("load", "t", path, says=[str(path), "`v`", _spelled(found), _spelled(table)])
        assert lake.version("t") == 0
        return
    lake.load("t", path)
    got = {r["k"]: r["v"] for r in lake.arrow("select * from t").to_pylist()}
    assert got[3] == _some(found).to_pylist()[0] and got[4] == _some(found).to_pylist()[1]
    assert str(lake.delta("t").to_pyarrow_table().schema.field("v").type).replace("item", "element") == str(table).replace("item", "element")


def _spelled(kind):
    if pa.types.is_list(kind):
        return _spelled(kind.value_type) + "[]"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    names = {"string": "text", "int64": "bigint", "int32": "integer", "float": "real", "double": "double",
             "date32[day]": "date", "timestamp[us]": "timestamp", "timestamp[us, tz=UTC]": "timestamptz",
             "uint64": "decimal(20,0)"}
    return names[str(kind)]


def two_files_of_one_load_that_clash_are_named(lake, folder):
    one = write_parquet(folder / "1.parquet", pa.table({"v": ["x"]}))
    two = write_parquet(folder / "2.parquet", pa.table({"v": [1]}))
    lake.refused("load", "t", one, two, says=["2.parquet", "`v`", "bigint", "text"])
    assert lake.version("t") is None


def a_file_without_a_nullable_column_loads_it_as_null(lake, folder):
    lake.create_from("t", pa.table({"a": [1], "b": ["x"]}))
    (folder / "d.csv").write_text("a\n2\n")
    (folder / "d.json").write_text('{"a":3}\n')
    write_parquet(folder / "d.parquet", pa.table({"a": [4]}))
    lake.load("t", *[folder / f"d.{k}" for k in ("csv", "json", "parquet")])
    assert lake.json("select * from t order by a") == [
        {"a": 1, "b": "x"}, {"a": 2, "b": None}, {"a": 3, "b": None}, {"a": 4, "b": None}
    ]


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def a_file_without_a_not_null_column_is_refused(lake, folder, kind):
    (folder / "first.csv").write_text("a,b\n1,x\n")
    lake.load("t", folder / "first.csv", "--schema", "b text not null")
    path = folder / f"d.{kind}"
    if kind == "parquet":
        write_parquet(path, pa.table({"a": [2]}))
    else:
        path.write_text("a\n2\n" if kind == "csv" else '{"a":2}\n')
    lake.refused("load", "t", path, says=[str(path), "`b`", "NULL"])
    assert lake.version("t") == 0


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def a_new_column_needs_leave_and_is_null_in_older_rows(lake, folder, kind):
    lake.create_from("t", pa.table({"a": [1]}))
    path = folder / f"d.{kind}"
    if kind == "parquet":
        write_parquet(path, pa.table({"a": [2], "b": ["x"]}))
    else:
        path.write_text("a,b\n2,x\n" if kind == "csv" else '{"a":2,"b":"x"}\n')
    lake.refused("load", "t", path, says=[str(path), "`b`", "--allow-new-columns"])
    assert lake.version("t") == 0
    assert "new columns: b" in lake.load("t", path, "--allow-new-columns").err
    assert lake.json("select a, b from t order by a") == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    lake.same_as_deltalake("t")
    assert lake.json("select * from t", "--as-of", "0") == [{"a": 1}]


def column_names_that_differ_only_in_case_are_refused(lake, folder):
    path = write_parquet(folder / "d.parquet", pa.table([[1], [2]], names=["a", "A"]))
    lake.refused("load", "t", path, says=["`a`"])


@pytest.mark.parametrize("name", ["my col", "ü", "select", "a.b", "a-b", "1st", "a;b", 'q"uote'])
def odd_column_names_survive(lake, folder, name):
    data = pa.table({"k": pa.array([1, 2], pa.int64()), name: ["x", None]})
    path = write_parquet(folder / "d.parquet", data)
    lake.load("t", path, "--cluster-by", "k")
    assert_same(rows_of(lake.arrow("select * from t")), rows_of(data), name)
    quoted = name.replace('"', '""')
    assert lake.arrow(f'select "{quoted}" as v from t where k = 1').to_pylist() == [{"v": "x"}]


def json_columns_keep_the_order_of_the_first_object(lake, folder):
    path = folder / "d.json"
    path.write_text('{"z":1,"a":2,"m":3}\n{"b":0,"a":2}\n')
    lake.load("t", path)
    assert lake.arrow("select * from t").column_names == ["z", "a", "m", "b"]


def no_text_value_becomes_another(lake):
    """Random text, read back by three readers."""
    rng = support.seeded("no_text_value_becomes_another")
    alphabet = ["a", "é", "☃", "😀", "\0", "\n", "\r", "\t", " ", '"', "\\", "'", ",", "\u200b", "\x7f"]
    texts = ["".join(rng.choices(alphabet, k=rng.randrange(0, 80))) for _ in range(3000)]
    data = pa.table({"k": pa.array(range(3000), pa.int64()), "t": texts})
    lake.create_from("t", data, "--cluster-by", "t")
    assert_same(lake.same_as_deltalake("t"), rows_of(data), "text")
    files = [str(lake.folder("t") / f) for f in lake.live_files("t")]
    assert_same(rows_of(support.duck(f"from read_parquet({files})")), rows_of(data), "DuckDB")


def filters_agree_with_duckdb_whatever_the_statistics_say(lake, folder):
    """Many small files with hard bounds: NaN, -0.0, long text, microseconds, NULLs, decimals."""
    rng = support.seeded("filters_agree_with_duckdb_whatever_the_statistics_say")
    long = "x" * 40
    texts = ["", "a", "ü", long, long + "y", long + "\U0010ffff", "\U0010ffff" * 40, "zz", None]
    floats = [0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), -2.5, None]
    base = datetime.datetime(2026, 11, 1)
    parts = []
    for part in range(24):
        texts_here, floats_here = rng.sample(texts, 2), rng.sample(floats, 2)
        n = 6
        data = pa.table({
            "k": pa.array(range(part * n, part * n + n), pa.int64()),
            "s": [rng.choice(texts_here) for _ in range(n)],
            "f": pa.array([rng.choice(floats_here) for _ in range(n)], pa.float64()),
            "r": pa.array([rng.choice(floats_here) for _ in range(n)], pa.float32()),
            "ts": [base + datetime.timedelta(microseconds=part * 1000 + rng.randrange(1000)) for _ in range(n)],
            "d": pa.array([D(rng.randrange(-500, 500)) / 100 for _ in range(n)], pa.decimal128(10, 2)),
            "i": pa.array([None if rng.random() < 0.3 else rng.randrange(-3, 3) + part for _ in range(n)], pa.int16()),
            "b": [rng.choice([True, False, None]) for _ in range(n)],
        })
        parts.append(data)
        write_parquet(folder / f"{part:02}.parquet", data)
        lake.load("t", folder / f"{part:02}.parquet")
    whole = write_parquet(folder.parent / "whole.parquet", pa.concat_tables(parts))
    predicates = [
        f"s {op} '{v}'" for op in ("=", "<", ">", ">=", "<>") for v in texts if v is not None and "\0" not in v
    ] + [
        f"{c} {op} {v}" for c in ("f", "r") for op in ("=", "<", ">", ">=", "<=", "<>")
        for v in ("0.0", "-0.0", "1.5", "100", "-2.5", "-100", "'NaN'::double")
    ] + [
        f"ts {op} timestamp '2026-11-01 00:00:00.{m:06}'" for op in ("<", ">", ">=", "<=") for m in (0, 999, 1000, 5500, 23_999)
    ] + [
        f"d {op} {v}" for op in ("<", ">", "=") for v in ("0", "1.25", "-4.99")
    ] + [
        "i is null", "i is not null", "i = 5", "i > 10 and b", "not b", "b is null", "s is null",
        "i in (1, 2, 20)", "s like 'x%'", "s not like 'x%'", "i between 3 and 7", "f is null or i > 20",
    ]
    con = support.duckdb.connect()
    checks = " , ".join(f"(select sum(k*k+1) from T where {p}) as p{n}" for n, p in enumerate(predicates))
    theirs = con.execute("select " + checks.replace("from T", f"from '{whole}'")).fetchall()[0]
    # One statement a predicate, several a call: parsing 100 scalar subqueries is not what is tested.
    script = ";\n".join(f"select {n} as n, sum(k*k+1) as s from t where {p}" for n, p in enumerate(predicates))
    script = script.replace("'NaN'::double", "cast('NaN' as double)")
    ours = {r["n"]: r["s"] for r in lake.json(script)}
    wrong = [
        (p, ours[n], theirs[n]) for n, p in enumerate(predicates)
        if ours[n] != (None if theirs[n] is None else int(theirs[n]))
    ]
    assert not wrong, wrong
