"""A file in place is what a load of it is: the same columns, types and rows, or the same error."""

import gzip
import os
import re
import resource

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import support

# Name of the file, its bytes, and the columns and rows that both have; None: DuckDB's are the same.
TEXTS = {
    "comma": ("a.csv", b"a,b\n1,x\n2,y\n", None),
    "semicolon": ("a.csv", b"a;b\n1;x,1\n2;y\n", None),
    "tab": ("a.tsv", b"a\tb\n1\tx\n2\ty\n", None),
    "tab in a csv": ("a.csv", b"a\tb\n1\tx\n2\ty\n", None),
    "bar": ("a.txt", b"a|b\n1|x\n2|y\n", None),
    "no header": ("a.csv", b"1,x\n2,y\n3,z\n", ("column_1 int64, column_2 string", [(1, "x"), (2, "y"), (3, "z")])),
    "no header, one row": ("a.csv", b"2026-01-01;1.5\n", ("column_1 date32[day], column_2 double", None)),
    "a header of years": ("a.csv", b"name,2024\nx,y\n", ("name string, 2024 string", [("x", "y")])),
    "texts only": ("a.csv", b"a,b\nx,y\n", ("a string, b string", [("x", "y")])),
    "quotes": ("a.csv", b'a,b\n1,"x ""y"", z"\n2,"two\nlines"\n3,5" pipe\n', None),
    "carriage returns": ("a.csv", b"a,b\r\n1,x\r\n2,y\r\n", None),
    "byte order mark": ("a.csv", b"\xef\xbb\xbfa,b\n1,x\n", None),
    "no rows": ("a.csv", b"a,b\n", ("a string, b string", [])),
    "no last line end": ("a.csv", b"a,b\n1,x\n2,y", None),
    "zones": ("a.csv", b"ts\n2026-01-01T10:00:00Z\n2026-01-01T10:00:00+02:00\n", ("ts timestamp[us, tz=UTC]", None)),
    "times": ("a.csv", b"ts,d\n2026-01-01 10:00:00.25,2026-01-01\n", ("ts timestamp[us], d date32[day]", None)),
    "a time of day": ("a.csv", b"t\n10:00:00\n", ("t string", [("10:00:00",)])),
    "truth values": ("a.csv", b"b\ntrue\nFALSE\n", None),
    "fractions": ("a.csv", b"x,y\n1.50,1e3\n2,-0.25\n", None),
    "codes": ("a.csv", b"zip,n\n01234,1\n", ("zip string, n int64", [("01234", 1)])),
    "long numbers": ("a.csv", b"n,m\n9007199254740993,99999999999999999999\n",
                     ("n int64, m string", [(9007199254740993, "99999999999999999999")])),
    "NULL words": ("a.csv", b"a,b\n1,NULL\n,\\N\n", ("a int64, b string", [(1, "NULL"), (None, "\\N")])),
    "JSON lines": ("a.jsonl", b'{"a":1,"s":"x"}\n{"s":"y","a":2}\n', None),
    "JSON lines, other name": ("a.ndjson", b'{"a":1,"s":"x"}\n{"s":"y","a":2}\n', None),
    "JSON array": ("a.json", b'[{"a":1,"s":"[,]"},\n {"a":2,\n  "s":null}]\n', None),
    "nested JSON": ("a.json", b'{"a":{"b":[1,2]},"l":["x"]}\n{"a":null,"l":[]}\n', None),
    "numbers of other kinds": ("a.json", b'{"n":1}\n{"n":2.5}\n', None),
    "no name": ("table", b"a,b\n1,x\n", None),
}

# Name of the file, its bytes, and what both say.
WRONG = {
    "empty": ("a.csv", b"", "is empty"),
    "fewer fields": ("a.csv", b"a,b\n1,x\n2\n", 'line 3: "2" has 1 fields, expected 2'),
    "more fields": ("a.csv", b"a,b\n1,x\n2,y,z\n", 'line 3: "2,y,z" has 3 fields, expected 2'),
    "not UTF-8": ("a.csv", b"a,b\n1,\xff\n", "line 2, column `b`: .* is not valid UTF-8"),
    "open quote": ("a.csv", b'a,b\n1,"x\n2,y\n', "line 2: .* opens a quote that is never closed"),
    "late": ("a.csv", b"n\n" + b"1\n" * 30_000 + b"x\n", 'line 30002, column `n`: "x" is not a bigint'),
    "two names": ("a.csv", b"a,a\nx,y\n", "two columns are named `a`"),
    "no JSON": ("a.json", b'{"a":1}\n{"a":\n', "line 2: .* is not valid JSON"),
    "late key": ("a.json", b'{"n":1}\n' * 400_000 + b'{"z":1}\n', "line 400001, column `z`: is a key that"),
    "array": ("a.json", b'[{"a":1},\n{"a":2}, 3]', "row 3: .* is not a JSON object"),
    "array that is cut": ("a.json", b'[{"a":1},\n{"a":2}', "is not closed"),
    "after the array": ("a.json", b'[{"a":1}] {"a":2}', "text after the end of its array"),
    "no text": ("a.csv", b"a\0b\n", "NUL bytes"),
    "cut Parquet": ("a.parquet", b"PA", "begin with PAR1"),
}


def _plain(table):
    """The columns and rows, whichever of Arrow's types of text they have."""
    name = lambda t: re.sub(r"large_string|string_view", "string", str(t))
    return ", ".join(f"{f.name} {name(f.type)}" for f in table.schema), [tuple(row.values()) for row in table.to_pylist()]


def _in_place(path):
    return f"SELECT * FROM '{path}'"


@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
@pytest.mark.parametrize("case", TEXTS)
def a_text_file_in_place_is_what_is_loaded(lake, folder, case, packing):
    name, content, expected = TEXTS[case]
    if packing and name == "table":
        pytest.skip("a name without a point is found by its folder")
    path = folder / (name + packing)
    pack = {"": bytes, ".gz": gzip.compress, ".zst": support.zstd}
    path.write_bytes(pack[packing](content))
    lake.load("t", path)
    found = _plain(lake.arrow(_in_place(path)))
    assert found == _plain(lake.arrow("SELECT * FROM t"))
    if expected is not None:
        columns, rows = expected
        assert found[0] == columns
        assert rows is None or found[1] == rows
    elif not packing:
        read = "read_json_auto" if content[:1] in b"{[" else "read_csv_auto"
        theirs = duckdb.sql(f"SELECT * FROM {read}('{path}')").arrow()
        theirs = theirs.read_all() if hasattr(theirs, "read_all") else theirs
        assert found[1] == _plain(theirs)[1]
        assert [c.split()[0] for c in found[0].split(", ")] == theirs.column_names
    columns = [field.name for field in lake.arrow(_in_place(path)).schema]
    for column in columns:
        picked = lake.arrow(f'SELECT "{column}", count(*) OVER () AS "how many" FROM \'{path}\'').to_pylist()
        assert [row[column] for row in picked] == [row[columns.index(column)] for row in found[1]]
    assert lake.json(f"SELECT count(*) AS n FROM '{path}'") == [{"n": len(found[1])}]


@pytest.mark.parametrize("case", WRONG)
def what_is_wrong_with_a_file_is_said_alike(lake, folder, case):
    name, content, says = WRONG[case]
    path = folder / name
    path.write_bytes(content)
    first = lambda result: result.err.splitlines()[0]
    in_place = lake.run("sql", "-c", _in_place(path), code=1)
    loaded = lake.run("load", "t", path, code=1)
    assert re.search(says, first(loaded)), loaded
    assert first(in_place) == first(loaded)
    assert str(path) in first(loaded)


def a_first_line_that_is_no_header_is_said_and_can_be_named_one(lake, folder):
    path = folder / "a.csv"
    path.write_text("2024,2025\n1,2\n")
    for result in (lake.load("t", path), lake.run("sql", "-c", _in_place(path))):
        assert "the first line is no header" in result.err and "column_1, column_2" in result.err
    loaded = lake.load("u", path, "--header")
    assert "no header" not in loaded.err
    assert lake.json("SELECT * FROM u") == [{"2024": 1, "2025": 2}]
    # What the table calls its columns are names, and rows without names take the table's.
    path.write_text("3,4\n")
    lake.load("u", path)
    assert lake.json('SELECT * FROM u ORDER BY "2024"') == [{"2024": 1, "2025": 2}, {"2024": 3, "2025": 4}]


def rows_of_large_files_come_in_their_order(lake, folder):
    path = folder / "a.csv"
    path.write_text("n,pad\n" + "".join(f"{n},{'x' * 100}\n" for n in range(150_000)))
    assert path.stat().st_size > 3 * (4 << 20)
    assert lake.json(f"SELECT n FROM '{path}' LIMIT 3") == [{"n": 0}, {"n": 1}, {"n": 2}]
    found = lake.json(f"SELECT count(*) AS c, sum(n) AS s, min(n) AS l, max(n) AS h FROM '{path}'")
    assert found == [{"c": 150_000, "s": 150_000 * 149_999 // 2, "l": 0, "h": 149_999}]
    assert lake.json(f"SELECT a.n FROM '{path}' a JOIN '{path}' b ON a.n = b.n WHERE b.n = 77777") == [{"n": 77777}]


def folders_and_patterns_are_read_alike(lake, folder):
    inside = folder / "d"
    (inside / "deeper").mkdir(parents=True)
    for number in range(3):
        (inside / f"{number}.csv").write_text(f"a;b\n{number};x\n")
    (inside / ".hidden.csv").write_text("other\n1\n")
    (inside / "_SUCCESS").write_text("")
    expected = [{"a": n, "b": "x"} for n in range(3)]
    for number, name in enumerate((f"{inside}/", f"{inside}/*.csv", f"{inside}/[0-9].csv")):
        assert lake.json(f"SELECT * FROM '{name}' ORDER BY a") == expected, name
        lake.load(f"t{number}", name)
        assert lake.json(f"SELECT * FROM t{number} ORDER BY a") == expected, name
    lake.refused("load", "t", inside / "deeper", says=["no file"])
    # Columns are the first file's.
    (inside / "3.csv").write_text("a;c\n3;x\n")
    for command in (("sql", "-c", f"SELECT * FROM '{inside}/*.csv'"), ("load", "t", f"{inside}/*.csv")):
        assert "column `c`" in lake.run(*command, code=1).err


def thousands_of_files_are_read_with_few_open(lake, folder):
    for number in range(3000):
        (folder / f"{number:05}.csv").write_text(f"n\n{number}\n")
    expected = [{"c": 3000, "s": 3000 * 2999 // 2}]
    few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    query = f"SELECT count(*) AS c, sum(n) AS s FROM '{folder}/*.csv'"
    for command in (("sql", "-c", query), ("load", "t", f"{folder}/*.csv")):
        lake.run(*command, preexec_fn=few)
    assert lake.json(query) == lake.json("SELECT count(*) AS c, sum(n) AS s FROM t") == expected


def parquet_under_any_name_is_parquet(lake, folder):
    table = pa.table({"a": [1, 2], "b": ["x", None]})
    for name in ("a.parquet", "a.pq", "a.csv", "a.bin"):
        pq.write_table(table, folder / name)
        assert lake.json(_in_place(folder / name)) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}], name


def a_file_that_cannot_be_read_twice_is_refused(lake, folder):
    os.mkfifo(folder / "pipe.csv")
    lake.refused("sql", "-c", _in_place(folder / "pipe.csv"), says=["pipe.csv"])
