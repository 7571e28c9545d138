"""A file in place is what a load of it is: the same columns, types and rows, or the same error."""

import contextlib
import functools
import gzip
import http.server
import os
import pathlib
import re
import resource
import ssl
import threading
import time

import duckdb
import numpy as np
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
    # Whatever took long has said how far it was.
    first = lambda result: next(line for line in result.err.splitlines() if line.startswith("error: "))
    in_place = lake.run("sql", "-c", _in_place(path), code=1)
    loaded = lake.run("load", "t", path, code=1)
    assert re.search(says, first(loaded)), loaded
    assert first(in_place) == first(loaded)
    assert "--on-error" not in in_place.err and "loaded" not in in_place.err
    assert str(path) in first(loaded)


@pytest.mark.parametrize("late", ['{"n":"x","s":"a"}', '{"n":1,"s":"a","z":1}', '{"n":1,"s":"a"', '{"n":1,"s":[]}'])
def a_json_file_has_the_same_errors_whatever_is_asked_of_it(lake, folder, late):
    path = folder / "a.jsonl"
    path.write_text('{"n":1,"s":"a"}\n' * 25_000 + late + "\n")
    first = lambda result: next(line for line in result.err.splitlines() if line.startswith("error: "))
    told = {first(lake.run("sql", "-c", f"SELECT {what} FROM '{path}'", code=1))
            for what in ("*", "count(*)", "max(n)", "max(s)")}
    assert len(told) == 1 and "line 25001" in told.pop()


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


def a_pipe_that_cannot_be_read_twice_is_refused(lake, folder):
    os.mkfifo(folder / "pipe.csv")
    lake.refused("sql", "-c", _in_place(folder / "pipe.csv"), says=["pipe.csv"])


def _parquet(folder, name="p.parquet"):
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", None]}), folder / name)
    return (folder / name).read_bytes()


@pytest.mark.parametrize("name", ["-", "/dev/stdin", "/proc/self/fd/0"])
@pytest.mark.parametrize("kind", ["csv", "json", "array", "gz", "zst", "parquet"])
def standard_input_is_a_file_of_its_content(lake, folder, name, kind):
    text = b"a,b\n1,x\n2,\n"
    content = {
        "csv": text, "json": b'{"a":1,"b":"x"}\n{"a":2,"b":null}\n', "array": b'[{"a":1,"b":"x"},{"a":2,"b":null}]',
        "gz": gzip.compress(text), "zst": support.zstd(text), "parquet": _parquet(folder),
    }[kind]
    told = lake.run("sql", "-c", _in_place(name), "--format", "csv", stdin=content)
    assert told.out == "a,b\n1,x\n2,\n"


def standard_input_can_be_asked_as_often_as_one_likes(lake, folder):
    rows = b"n\n" + b"".join(b"%d\n" % n for n in range(300_000))
    twice = "SELECT count(*) AS n FROM '-' AS x JOIN '/dev/stdin' AS y USING (n); CREATE TABLE t AS SELECT * FROM '-'"
    assert lake.run("sql", "-c", twice, "--format", "csv", stdin=rows).out.startswith("n\n300000\n")
    assert lake.count("t") == 300_000
    (folder / "q.sql").write_text("SELECT sum(n) AS s FROM '-'; SELECT max(n) AS s FROM '-'")
    for option in ("-f", "--batch"):
        told = lake.run("sql", option, folder / "q.sql", "--format", "csv", stdin=rows)
        assert re.findall(r"\d+", told.out) == [str(300_000 * 299_999 // 2), "299999"], told
    lake.load("u", "-", stdin=rows)
    assert lake.count("u") == 300_000
    told = lake.refused("sql", "-c", "SELECT sum(n) FROM '-'", stdin=b"n\n" + b"1\n" * 30_000 + b"x\n")
    assert 'standard input, line 30002, column `n`: "x" is not a bigint' in told.err
    # It cannot be the statements and their rows.
    for options in ([], ["-f", "-"]):
        lake.refused("sql", *options, stdin=b"SELECT * FROM '-'", says=["standard input is read by statements of"])


class _Pages(http.server.SimpleHTTPRequestHandler):
    """The files of a folder, also under /moved; nobody gets /secret, and /cut is less than it promises. Parts are given
    under /parts, and written down; of what is under /new/parts no time is told."""

    asked = []

    def do_HEAD(self):
        self.send_error(403)

    def do_GET(self):
        kind = self.path.split("/")[1]
        if "/parts/" in self.path:
            self.parts()
        elif kind == "moved":
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/moved"))
            self.end_headers()
        elif kind == "secret":
            self.send_error(403)
        elif kind == "cut":
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            self.wfile.write(b"a,b\n1,x\n")
        else:
            super().do_GET()

    def parts(self):
        path = pathlib.Path(self.translate_path("/" + self.path.split("/parts/")[1]))
        if not path.is_file():
            return self.send_error(404)
        content, wanted = path.read_bytes(), self.headers.get("Range")
        first, end = 0, len(content)
        if wanted:
            first, last = re.fullmatch(r"bytes=(\d+)-(\d+)", wanted).groups()
            first, end = int(first), min(int(last) + 1, end)
        self.asked.append((path.name, end - first if wanted else None))
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(end - first))
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{end - 1}/{len(content)}")
        if not self.path.startswith("/new/"):
            self.send_header("Last-Modified", self.date_time_string(path.stat().st_mtime))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(content[first:end])

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def _web(folder, certificate=None):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Pages, directory=folder))
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http{'s' if certificate else ''}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def web(folder, monkeypatch):
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    (folder / "web").mkdir()
    with _web(folder / "web") as address:
        yield address


@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
@pytest.mark.parametrize("case", ["semicolon", "no header", "quotes", "zones", "JSON array", "nested JSON"])
def a_file_on_a_web_server_is_one_of_this_machine(lake, folder, web, case, packing):
    name, content, _ = TEXTS[case]
    pack = {"": bytes, ".gz": gzip.compress, ".zst": support.zstd}
    path = folder / "web" / (name + packing)
    path.write_bytes(pack[packing](content))
    expected = _plain(lake.arrow(_in_place(path)))
    address = f"{web}/{path.name}"
    assert _plain(lake.arrow(_in_place(address))) == expected
    assert _plain(lake.arrow(_in_place(f"{web}/moved/{path.name}?a=b&c=*"))) == expected
    lake.load("t", address)
    assert _plain(lake.arrow("SELECT * FROM t")) == expected


def a_large_file_on_a_web_server_is_read_in_its_order(lake, folder, web):
    rows = "".join(f"{n},{'x' * 50}\n" for n in range(400_000))
    (folder / "web/a.csv").write_text("n,s\n" + rows)
    (folder / "web/b.csv").write_text("n,s\n1,y\n")
    asked = f"SELECT count(*) AS c, sum(n) AS s, max(length(s)) AS l FROM '{web}/a.csv'"
    assert lake.json(asked) == [{"c": 400_000, "s": 400_000 * 399_999 // 2, "l": 50}]
    assert lake.json(f"SELECT n FROM '{web}/a.csv' LIMIT 3") == [{"n": n} for n in range(3)]
    lake.load("t", f"{web}/a.csv", f"{web}/b.csv")
    assert lake.json("SELECT count(*) AS c, sum(n) AS s FROM t") == [{"c": 400_001, "s": 400_000 * 399_999 // 2 + 1}]


def what_a_web_server_says_is_told(lake, folder, web):
    for command in (lambda a: ("sql", "-c", _in_place(a)), lambda a: ("load", "t", a)):
        refused = lambda address, *says: lake.refused(*command(address), says=says)
        refused(f"{web}/none.csv", f"there is no file `{web}/none.csv`")
        refused(f"{web}/secret/a.csv", f"{web}/secret/a.csv", "403")
        refused(f"{web}/cut/a.csv", f"{web}/cut/a.csv")
        (folder / "web/late.csv").write_bytes(WRONG["late"][1])
        told = refused(f"{web}/late.csv", f"{web}/late.csv, line 30002, column `n`").err
        assert '"x" is not a bigint' in told
        begun = time.monotonic()
        refused("http://127.0.0.1:9/a.csv", "http://127.0.0.1:9/a.csv")
        assert time.monotonic() - begun < 30
        refused("https://", "https://")
    assert lake.version("t") is None
    for name in ("rows.bin", "rows.parquet"):
        _parquet(folder / "web", name)
        # This one gives no parts of files.
        lake.refused("sql", "-c", _in_place(f"{web}/{name}"), says=[f"{web}/{name}: is Parquet", "parts", "uplake load"])
        lake.load("p", f"{web}/{name}")
    assert lake.json("SELECT * FROM p ORDER BY a") == [{"a": 1, "b": "x"}] * 2 + [{"a": 2, "b": None}] * 2


def parquet_on_a_web_server_is_read_in_parts(lake, folder, web):
    rows = 200_000
    random = np.random.default_rng(7)
    table = pa.table({
        "n": np.arange(rows), "day": pa.array(np.arange(rows) // 10_000), "large": random.random(rows),
        "text": [f"{n * 7919 % rows:040}" for n in range(rows)],
    })
    path = folder / "web/day.parquet"
    pq.write_table(table, path, row_group_size=20_000)
    pq.write_table(table, folder / "web/any name[1].bin")
    asked = "SELECT count(*) AS c, sum(n) AS s, max(day) AS d, min(text) AS t FROM '{}' WHERE n >= 150000"
    expected = lake.json(asked.format(path))
    for address in ("parts/day.parquet", "new/parts/day.parquet?key=a%2Fb&c=*", "parts/any%20name%5B1%5D.bin"):
        address = f"{web}/{address}"
        assert lake.json(asked.format(address)) == expected, address
        joined = f"SELECT count(*) AS c FROM '{address}' a JOIN '{path}' b ON a.n = b.n AND a.text = b.text"
        assert lake.json(joined) == [{"c": rows}], address
    # One small column of some row groups is a small part of the file.
    _Pages.asked.clear()
    assert lake.json(f"SELECT sum(day) AS s FROM '{web}/parts/day.parquet' WHERE n < 1000") == [{"s": 0}]
    read = [count for _, count in _Pages.asked]
    # It is looked at from its beginning to see what it is.
    assert read.count(None) == 1 and sum(count for count in read if count) < path.stat().st_size / 10, read
    # What is copied and loaded is the same.
    lake.load("t", f"{web}/parts/day.parquet")
    lake.run("sql", "-c", f"COPY t FROM '{web}/parts/day.parquet'")
    assert lake.json("SELECT count(*) AS c, sum(n) AS s FROM t") == [{"c": 2 * rows, "s": rows * (rows - 1)}]
    lake.refused("sql", "-c", _in_place(f"{web}/parts/none.parquet"), says=[f"there is no file `{web}/parts/none.parquet`"])
    path.write_bytes(path.read_bytes()[:-100_000])
    lake.refused("sql", "-c", _in_place(f"{web}/parts/day.parquet"), says=["Parquet"])


def a_web_server_with_a_certificate(lake, folder, web, tmp_path, monkeypatch):
    from test_buckets import _certificate_of

    (folder / "web/a.csv").write_text("a\n1\n")
    certificate = _certificate_of("127.0.0.1", tmp_path)
    with _web(folder / "web", certificate) as address:
        lake.refused("sql", "-c", _in_place(f"{address}/a.csv"), says=[f"{address}/a.csv", "certificate"])
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        assert lake.json(_in_place(f"{address}/a.csv")) == [{"a": 1}]
