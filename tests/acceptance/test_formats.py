"""The same rows whatever they come in: CSV, TSV, JSON lines, Parquet, compressed, globbed, piped."""

import csv
import io
import json
import os
import pathlib
import re
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import support
import real_data
from support import assert_same, compressed, rows_of

ROWS = pa.table({
    "id": pa.array([1, 2, 3, 4, 5], pa.int64()),
    "name": ["plain", 'quote " and , comma', "two\nlines", "tab\tand ünïcødé ☃ 日本", None],
    "x": [0.5, -1e300, 3.25, None, 1e-7],
    "ok": [True, False, None, True, False],
})
SCHEMA = "id bigint, name text, x double, ok boolean"


def _text(value):
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _csv_bytes(table, delimiter=",", end="\n", header=True):
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator=end)
    if header:
        writer.writerow(table.column_names)
    writer.writerows([_text(v) for v in row.values()] for row in table.to_pylist())
    return out.getvalue().encode()


def _json_bytes(table):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in table.to_pylist()).encode()


def _parquet_bytes(table):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def _bytes_in(kind, table=ROWS):
    writers = {
        "csv": _csv_bytes,
        "tsv": lambda t: _csv_bytes(t, "\t"),
        "jsonl": _json_bytes,
        "parquet": _parquet_bytes,
    }
    return writers[kind](table)


KINDS = ["csv", "tsv", "jsonl", "parquet"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("packing", ["plain", "gz", "zst"])
def every_format_loads_the_same_rows(lake, folder, kind, packing):
    path = folder / f"data.{kind}"
    path.write_bytes(_bytes_in(kind))
    path = path if packing == "plain" else compressed(path, packing)
    lake.load("t", path)
    assert_same(lake.same_as_deltalake("t"), rows_of(ROWS), kind)
    described = lake.run("table", "describe", "t").out
    for column in SCHEMA.split(", "):
        name, type_name = column.split()
        assert any(line.split() == [name, type_name] for line in described.splitlines()), described


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("packing", ["plain", "gz", "zst"])
def standard_input_takes_every_format(lake, kind, packing):
    data = _bytes_in(kind)
    data = {"plain": lambda d: d, "gz": support.gzip.compress, "zst": support.zstd}[packing](data)
    lake.load("t", "-", stdin=data)
    assert_same(lake.rows("select * from t"), rows_of(ROWS), kind)


@pytest.mark.parametrize("kind", KINDS)
def json_output_tells_the_values_that_were_loaded(lake, folder, kind):
    path = folder / "data"
    path.write_bytes(_bytes_in(kind))
    lake.load("t", path)
    got = lake.json("select * from t order by id")
    want = ROWS.to_pylist()
    assert [r["name"] for r in got] == [r["name"] for r in want]
    assert [r["ok"] for r in got] == [r["ok"] for r in want]
    assert [None if r["x"] is None else float(r["x"]) for r in got] == [r["x"] for r in want]


def the_content_and_not_the_name_tells_the_format(lake, folder):
    path = folder / "lies.csv"
    path.write_bytes(_parquet_bytes(ROWS))
    lake.load("t", path)
    assert_same(lake.rows("select * from t"), rows_of(ROWS), "Parquet named .csv")


def a_glob_loads_each_matching_file_once(lake, folder):
    for i in range(12):
        (folder / f"part-{i}.csv").write_text(f"n\n{i}\n")
    (folder / "other.txt").write_text("n\n99\n")
    lake.load("t", f"{folder}/part-*.csv")
    assert sorted(r["n"] for r in lake.json("select n from t")) == list(range(12))


def a_glob_that_matches_nothing_is_named(lake, folder):
    lake.refused("load", "t", f"{folder}/*.csv", says=["*.csv"])
    assert lake.version("t") is None


def a_file_whose_name_looks_like_a_glob_is_that_file(lake, folder):
    path = folder / "a[1]*.csv"
    path.write_text("n\n1\n")
    (folder / "a1x.csv").write_text("n\n2\n")
    lake.load("t", path)
    assert lake.json("select n from t") == [{"n": 1}]


def files_of_several_formats_load_in_one_commit(lake, folder):
    paths = []
    for i, kind in enumerate(KINDS):
        part = ROWS.set_column(0, "id", pa.array([i * 10 + j for j in range(5)], pa.int64()))
        path = folder / f"d.{kind}"
        path.write_bytes(_bytes_in(kind, part))
        paths.append(path)
    lake.load("t", *paths)
    assert lake.version("t") == 0
    ids = sorted(r["id"] for r in lake.json("select id from t"))
    assert ids == sorted(i * 10 + j for i in range(4) for j in range(5))


def a_named_pipe_loads_like_a_file(lake, folder):
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"a,b\n1,x\n2,y\n"), daemon=True)
    writer.start()
    lake.load("t", pipe)
    assert lake.json("select * from t order by a") == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


CSV_CASES = {
    "crlf_line_ends": (b"a,b\r\n1,x\r\n2,y\r\n", [(1, "x"), (2, "y")]),
    "no_newline_at_the_end": (b"a,b\n1,x\n2,y", [(1, "x"), (2, "y")]),
    "a_byte_order_mark": (b"\xef\xbb\xbfa,b\n1,x\n", [(1, "x")]),
    "a_byte_order_mark_and_a_quoted_header": (b'\xef\xbb\xbf"a","b"\n1,x\n', [(1, "x")]),
    "crlf_within_quotes": (b'a,b\r\n1,"x\r\ny"\r\n', [(1, "x\r\ny")]),
    "doubled_quotes": (b'a,b\n1,"say ""hi"""\n', [(1, 'say "hi"')]),
    "an_empty_field_is_null": (b"a,b\n1,\n,y\n", [(1, None), (None, "y")]),
    "blank_lines_between_records": (b"a,b\n1,x\n\n2,y\n\n", [(1, "x"), (2, "y")]),
    "a_blank_line_before_the_header": (b"\na,b\n1,x\n", [(1, "x")]),
    "spaces_are_kept": (b"a,b\n1, x \n", [(1, " x ")]),
    "a_quote_inside_an_unquoted_field": (b'a,b\n1,5" pipe\n2,y\n', [(1, '5" pipe'), (2, "y")]),
    "two_quotes_inside_unquoted_fields": (
        b'a,b\n1,5" pipe\n2,y\n3,7" pipe\n4,z\n',
        [(1, '5" pipe'), (2, "y"), (3, '7" pipe'), (4, "z")],
    ),
    "a_semicolon_as_separator": (b"a;b\n1;x,y\n", [(1, "x,y")]),
    "a_pipe_as_separator": (b"a|b\n1|x\n", [(1, "x")]),
    "a_nul_byte": (b"a,b\n1,x\0y\n", [(1, "x\0y")]),
}


@pytest.mark.parametrize("case", CSV_CASES)
def csv_reads(lake, folder, case):
    data, want = CSV_CASES[case]
    path = folder / "d.csv"
    path.write_bytes(data)
    lake.load("t", path)
    got = [tuple(r.values()) for r in lake.arrow("select a, b from t").to_pylist()]
    assert sorted(got, key=repr) == sorted(want, key=repr)


@pytest.mark.parametrize("data", [b"a,b\r1,x\r2,y\r", b"a,b\r1,x\r2,y", b"a,b\r1,x\r2,y\n", b"a\r1\r"],
                         ids=["all", "no_end", "newline_at_the_end", "one_column"])
def carriage_returns_as_line_ends_are_refused_with_the_way_out(lake, folder, data):
    path = folder / "d.csv"
    path.write_bytes(data)
    lake.refused("load", "t", path, says=["d.csv", "carriage return", "tr "])
    assert lake.version("t") is None


JSON_CASES = {
    "crlf_line_ends": b'{"a":1,"b":"x"}\r\n{"a":2,"b":"y"}\r\n',
    "no_newline_at_the_end": b'{"a":1,"b":"x"}\n{"a":2,"b":"y"}',
    "a_byte_order_mark": b'\xef\xbb\xbf{"a":1,"b":"x"}\n{"a":2,"b":"y"}\n',
    "blank_lines": b'\n{"a":1,"b":"x"}\n\n{"a":2,"b":"y"}\n\n',
    "keys_in_any_order": b'{"b":"x","a":1}\n{"a":2,"b":"y"}\n',
    "spaces": b'  { "a" : 1 , "b" : "x" }\n{"a":2,"b":"y"} \n',
    "escapes": b'{"a":1,"b":"\\u0078"}\n{"a":2,"b":"y"}\n',
}


@pytest.mark.parametrize("case", JSON_CASES)
def json_lines_read(lake, folder, case):
    path = folder / "d.json"
    path.write_bytes(JSON_CASES[case])
    lake.load("t", path)
    assert lake.json("select a, b from t order by a") == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


def json_objects_and_lists_load_as_structs_and_lists(lake, folder):
    rows = [
        {"a": 1, "s": {"x": 1, "y": "p"}, "l": [1, 2]},
        {"a": 2, "s": {"x": None, "y": "q"}, "l": []},
        {"a": 3, "s": None, "l": None},
        {"a": 4},
    ]
    path = folder / "d.json"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    lake.load("t", path)
    got = lake.arrow("select a, s, l from t order by a").to_pylist()
    assert got == [{"s": None, "l": None, **r} for r in rows]
    lake.same_as_deltalake("t")


def a_csv_without_header_takes_columns_from_the_schema_or_the_table(lake, folder):
    first, second = folder / "1.csv", folder / "2.csv"
    first.write_text("1,x\n")
    second.write_text("2,y\n")
    lake.load("t", first, "--no-header", "--schema", "n bigint, w text")
    lake.load("t", second, "--no-header")
    assert lake.json("select * from t order by n") == [{"n": 1, "w": "x"}, {"n": 2, "w": "y"}]
    lake.load("u", first, "--no-header")
    assert lake.json("select * from u") == [{"column_1": 1, "column_2": "x"}]


def the_delimiter_can_be_named(lake, folder):
    path = folder / "d.csv"
    path.write_text("a:b\n1:x,y;z\n")
    lake.load("t", path, "--delimiter", ":")
    assert lake.json("select * from t") == [{"a": 1, "b": "x,y;z"}]
    lake.run("load", "t", path, "--delimiter", "::", code=2)


def csv_output_loads_back_as_the_same_rows(lake, folder):
    rng = support.seeded("csv_output_loads_back_as_the_same_rows")
    pieces = ['"', ",", "\n", "\r\n", "'", "x", "☃", " ", "\t", "\\", ";", "0", "null"]
    text = ["".join(rng.choices(pieces, k=rng.randrange(1, 6))) + "." for _ in range(500)]
    numbers = [None if rng.random() < 0.2 else rng.uniform(-1e9, 1e9) for _ in range(500)]
    data = pa.table({"i": pa.array(range(500), pa.int64()), "t": text, "x": numbers})
    lake.create_from("t", data)
    path = folder / "out.csv"
    lake.run("sql", "-c", "select * from t", "--format", "csv", "-o", path)
    lake.load("u", path)
    assert_same(lake.rows("select * from u"), rows_of(data), "CSV there and back")


def long_records_cross_read_buffers_unharmed(lake, folder):
    """Chunks are 4 MiB: records of all sizes, some of several MiB, meet their borders."""
    rng = support.seeded("long_records_cross_read_buffers_unharmed")
    sizes = [0, 1, 100, 4000, 60_000, 1_000_000, 5_000_000]
    filler = "ab\n\"c☃" * 1_000_000
    texts = [filler[: rng.choices(sizes, weights=[5, 5, 40, 30, 15, 4, 1])[0]] + "." for _ in range(250)]
    data = pa.table({"i": pa.array(range(250), pa.int64()), "t": texts})
    path = folder / "d.csv"
    path.write_bytes(_csv_bytes(data))
    print(f"{path.stat().st_size} bytes")
    lake.load("t", path)
    assert_same(lake.rows("select * from t"), rows_of(data), "long records")
    json_path = folder / "d.json"
    json_path.write_bytes(_json_bytes(data))
    lake.load("u", json_path)
    assert_same(lake.rows("select * from u"), rows_of(data), "long JSON records")


def memory_does_not_grow_with_the_file(lake, folder):
    """Peak memory of a load of 24 MB and of 120 MB within one budget."""
    block = "".join(f"{i},user-{i * 7919 % 100_003:06},{i * 31 % 997}.5,some words of text {i % 91}\n" for i in range(500_000))
    peaks = {}
    for blocks in (1, 5):
        path = folder / f"{blocks}.csv"
        path.write_text("i,u,x,t\n" + block * blocks)
        process = lake.start("load", f"t{blocks}", path, "--memory", "64M", "--cluster-by", "u", "--quiet")
        # VmHWM and not ru_maxrss: the latter starts at the size of the Python process that forked.
        peaks[blocks] = 0
        while process.poll() is None:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            found = re.search(r"VmHWM:\s+(\d+) kB", status)
            peaks[blocks] = max(peaks[blocks], int(found.group(1)) / 1024 if found else 0)
        assert process.returncode == 0, process.communicate()
        assert lake.count(f"t{blocks}") == 500_000 * blocks
        path.unlink()
    print(f"peak MiB: {peaks}")
    # 24 MB do not fill the budget yet; 280 MB were measured to peak where 120 MB do (170 MiB).
    assert 0 < peaks[5] < 256


def every_row_of_a_larger_csv_is_loaded_once_and_in_order(lake, folder):
    path = folder / "d.csv"
    count = 400_000
    path.write_text("i,t\n" + "".join(f"{i},text {i} of some length\n" for i in range(count)))
    lake.load("t", path)
    files = lake.parquet("t")
    assert len(files) == 1, "11 MB are one file"
    ids = [v for f in files for v in f.read(columns=["i"]).column("i").to_pylist()]
    assert ids == list(range(count))


AIRPORTS = (
    "id bigint, name text, city text, country text, iata text, icao text, lat double, lon double, "
    "altitude bigint, utc_offset double, dst text, zone text, kind text, source text"
)
ROUTES = (
    "airline text, airline_id bigint, source text, source_id bigint, target text, target_id bigint, "
    "codeshare text, stops bigint, equipment text"
)


@pytest.mark.parametrize("name,schema", [("airports.dat.gz", AIRPORTS), ("routes.dat.gz", ROUTES)])
def real_files_with_backslash_n_as_null_hold_what_pythons_csv_reads(lake, name, schema):
    path = real_data.file(name)
    lake.load("t", path, "--no-header", "--null", r"\N", "--schema", schema)
    parse = {"bigint": int, "double": float, "text": str}
    columns = [c.split() for c in schema.split(", ")]
    with support.gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        want = [
            {c: None if v in ("", r"\N") else parse[t](v) for (c, t), v in zip(columns, row, strict=True)}
            for row in csv.reader(lines)
        ]
    ours = lake.arrow("select * from t").to_pylist()
    assert len(want) > 2000
    assert_same(sorted(map(repr, ours)), sorted(map(repr, want)), name)


@pytest.mark.parametrize("name", ["asos_digital_experiments.parquet", "anonreviews.parquet"])
def real_parquet_files_read_as_in_duckdb(lake, name):
    path = real_data.file(name)
    lake.load("t", path)
    assert_same(
        rows_of(lake.arrow("select * from t")), rows_of(support.duck(f"from '{path}'")), name
    )


def inference_without_header_finds_the_types_of_the_routes(lake):
    path = real_data.file("routes.dat.gz")
    lake.load("t", path, "--no-header", "--null", r"\N")
    described = lake.run("table", "describe", "t").out
    types = [line.split()[1] for line in described.splitlines() if line.startswith("  ")]
    assert types == ["text", "bigint", "text", "bigint", "text", "bigint", "text", "bigint", "text"]
    with support.gzip.open(path, "rt", encoding="utf-8") as lines:
        assert lake.count("t") == sum(1 for _ in lines)
