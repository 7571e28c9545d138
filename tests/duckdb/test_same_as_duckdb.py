"""The same question to uplake and to DuckDB, over the same data, must have the same answer.

    UPLAKE_BIN=target/release/uplake pytest -q tests/duckdb            everything, about a minute
    UPLAKE_BIN=… pytest -q tests/duckdb -k retail                      one group

uplake answers from tables made by `uplake load` (partitioned and clustered in several ways, so that
files and row groups are pruned); DuckDB reads the original files, so loading is checked too.

Queries are in *.sql beside this file:
    -- query: name          begins a query; lines after it that begin with -- are remarks
    -- tolerance: 1e-6      relative difference allowed between floats (default 1e-9)
    -- duckdb:              the text from here on is DuckDB's; the remark above says why it differs
{name} stands for a parameter (see `parameters`). Rows are compared in order if the query has an
outer ORDER BY, otherwise as multisets. Integers, text, dates, decimals and NULLs must be equal.

Two differences of dialect hold for all queries, so DuckDB is set to answer as uplake does:
    integer_division        7 / 2 is 3 (as in PostgreSQL); DuckDB's own default is 3.5
    default_null_order      NULLs last when ascending, first when descending (as in PostgreSQL);
                            DuckDB's own default is last in both

Data: `uplake generate` makes XAB. The rest is real data; a file that is not there is made up
(tests/real_data.py), so that every query runs everywhere, and the summary says which and who has it.
"""
import datetime as dt
import decimal
import json
import math
import os
import pathlib
import re
import subprocess
import sys

import duckdb
import pyarrow as pa
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import real_data

HERE = pathlib.Path(__file__).parent
UPLAKE = os.environ.get("UPLAKE_BIN", "uplake")

AIRPORTS = (
    "id int, name text, city text, country text, iata text, icao text, lat double, lon double, "
    "alt int, tz_offset double, dst text, tz text, kind text, source text"
)
ROUTES = (
    "airline text, airline_id int, src text, src_id int, dst text, dst_id int, codeshare text, "
    "stops int, equipment text"
)


def duck_columns(schema):
    pairs = [part.strip().split(" ") for part in schema.split(",")]
    return "{" + ", ".join(f"'{name}': '{kind.upper()}'" for name, kind in pairs) + "}"


def csv_of(path, schema):
    return (
        f"SELECT * FROM read_csv('{path}', header = false, nullstr = ['\\N', ''], delim = ',', "
        f"quote = '\"', escape = '\"', columns = {duck_columns(schema)})"
    )


# table: (file, options of uplake load, the same for DuckDB)
REAL = {
    "reviews": ("anonreviews.parquet", ["--cluster-by", "vendorId"], None),
    "retail": (
        "online_retail_II_2009_2010.parquet",
        ["--partition-by", "Country", "--cluster-by", "StockCode,InvoiceDate"],
        None,
    ),
    "asos": ("asos_digital_experiments.parquet", ["--partition-by", "metric_id"], None),
    "users": ("golden/inputs/users.csv", ["--partition-by", "variant"], "SELECT * FROM '{}'"),
    "latencies": ("golden/inputs/events.csv", ["--cluster-by", "latency_ms"], "SELECT * FROM '{}'"),
    "airports": (
        "airports.dat.gz",
        ["--no-header", "--delimiter", ",", "--null", "\\N", "--schema", AIRPORTS]
        + ["--cluster-by", "country,city"],
        AIRPORTS,
    ),
    "routes": (
        "routes.dat.gz",
        ["--no-header", "--delimiter", ",", "--null", "\\N", "--schema", ROUTES],
        ROUTES,
    ),
    # A separator that no line holds: each line is one text.
    "logs": (
        "apache_logs.gz",
        ["--no-header", "--delimiter", "\x01", "--schema", "line text"],
        "SELECT * FROM read_csv('{}', header = false, delim = '\x01', quote = '', escape = '', "
        "columns = {{'line': 'VARCHAR'}})",
    ),
}
XAB = {
    "events": ["--partition-by", "dt", "--cluster-by", "user_id,ts"],
    "exposures": ["--partition-by", "dt", "--cluster-by", "exp_id,user_id"],
    "products": ["--cluster-by", "city_id,poi_id"],
}


class Query:
    """One query of a file."""

    def __init__(self, group, name, body):
        self.id = f"{group}-{name}"
        found = re.search(r"^-- tolerance: (\S+)$", body, re.M)
        self.tolerance = float(found[1]) if found else 1e-9
        ours, _, theirs = body.partition("\n-- duckdb:\n")
        clean = lambda text: re.sub(r"^--.*\n?", "", text, flags=re.M).strip().rstrip(";")
        self.ours = clean(ours + "\n")
        self.theirs = clean(theirs + "\n") or self.ours
        words = set(re.findall(r"\w+", self.ours))
        self.tables = words & (REAL.keys() | XAB.keys())
        self.ordered = has_outer_order(self.ours)


def has_outer_order(sql):
    """Is there an ORDER BY outside all brackets?"""
    depth, flat = 0, []
    for char in re.sub(r"'[^']*'", "", sql):
        depth += {"(": 1, ")": -1}.get(char, 0)
        flat.append(char if depth == 0 else " ")
    return re.search(r"\border\s+by\b", "".join(flat), re.I) is not None


def queries():
    found = []
    for path in sorted(HERE.glob("*.sql")):
        parts = re.split(r"^-- query: (\S+)\n", path.read_text(), flags=re.M)
        for name, body in zip(parts[1::2], parts[2::2]):
            found.append(Query(path.stem, name, body))
    names = [q.id for q in found]
    assert len(names) == len(set(names)), "two queries have one name"
    return found


QUERIES = queries()


def run(*args):
    done = subprocess.run([UPLAKE, *args], capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.fixture(scope="session")
def lake(tmp_path_factory):
    """A lake with every table, and a DuckDB connection with views of the same names."""
    root = tmp_path_factory.mktemp("lake")
    where, xab = str(root / "lake"), root / "xab"
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'; SET integer_division = true; SET threads = 2")
    duck.execute("SET default_null_order = 'nulls_last_on_asc_first_on_desc'")
    for table, (name, options, theirs) in REAL.items():
        path = real_data.file(name)
        run("load", "--lake", where, "-q", table, str(path), *options)
        if theirs is None:
            view = f"SELECT * FROM read_parquet('{path}')"
        elif theirs.startswith("SELECT"):
            view = theirs.format(path)
        else:
            view = csv_of(path, theirs)
        duck.execute(f"CREATE TABLE {table} AS {view}")
    size = ["--users", "5000", "--events-per-day", "20000", "--days", "5", "--products", "20000"]
    run("generate", str(xab), *size)
    for table, options in XAB.items():
        files = sorted(str(p) for p in (xab / table).glob("*.parquet"))
        # In two loads, so that a partition has several files.
        for half in (files[: len(files) // 2], files[len(files) // 2 :]):
            if half:
                run("load", "--lake", where, "-q", table, *half, *options)
        duck.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{xab}/{table}/*.parquet')")
    return where, duck, parameters(xab)


def parameters(xab):
    made = json.loads((xab / "params.json").read_text())
    days = made["days"]
    many = range(0, 600_000, 97)
    return {
        "a": days[0],
        "b": days[-1],
        "mid": days[2],
        "d0": days[0],
        "d1": days[1],
        "d7": days[-1],
        "exp": made["exp"],
        "user": made["point_user"],
        "ids": ",".join(map(str, made["poi_ids"])),
        "many": ",".join(map(str, many)),
        "many_texts": ",".join(f"'{n}'" for n in many),
    }


def fill(sql, values):
    return re.sub(r"\{(\w+)\}", lambda m: str(values.get(m[1], m[0])), sql)


def plain(value):
    """One form for what both sides spell differently: whole decimals, zones, lists."""
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else value.normalize()
    if isinstance(value, dt.datetime) and value.tzinfo:
        return value.astimezone(dt.timezone.utc).replace(tzinfo=None)
    if isinstance(value, list):
        return tuple(plain(v) for v in value)
    return value


def rows_of(table):
    columns = []
    for column in table.columns:
        kind = column.type
        if pa.types.is_timestamp(kind) and kind.unit == "ns":
            column = column.cast(pa.timestamp("us", kind.tz))
        columns.append([plain(v) for v in column.to_pylist()])
    return list(zip(*columns))


def sort_key(row):
    def key(value):
        if isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool)):
            return "number", (1, 0.0) if math.isnan(value) else (0, float(f"{value:.7g}"))
        if isinstance(value, decimal.Decimal):
            return "number", (0, float(f"{value:.7g}"))
        return type(value).__name__, value if value is not None else 0

    # Floats last: two answers may differ in their last digits.
    order = sorted(range(len(row)), key=lambda i: isinstance(row[i], float))
    return [key(row[i]) for i in order]


def same(ours, theirs, tolerance):
    if isinstance(ours, float) or isinstance(theirs, float):
        if ours is None or theirs is None:
            return ours is theirs
        a, b = float(ours), float(theirs)
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        return a == b or math.isclose(a, b, rel_tol=tolerance, abs_tol=1e-12)
    if isinstance(ours, bool) != isinstance(theirs, bool):
        return False
    return ours == theirs


@pytest.mark.parametrize("query", QUERIES, ids=[q.id for q in QUERIES])
def test_query_has_the_answer_of_duckdb(lake, query):
    where, duck, values = lake
    ours_sql, theirs_sql = fill(query.ours, values), fill(query.theirs, values)
    args = ["sql", "--lake", where, "--format", "arrow", "-f", "-"]
    done = subprocess.run([UPLAKE, *args], input=ours_sql.encode(), capture_output=True, timeout=60)
    assert done.returncode == 0, f"{ours_sql[:2000]}\n{done.stderr.decode()}"
    ours = rows_of(pa.ipc.open_stream(done.stdout).read_all())
    theirs = rows_of(duck.sql(theirs_sql).to_arrow_table())
    if not query.ordered:
        ours, theirs = sorted(ours, key=sort_key), sorted(theirs, key=sort_key)
    assert theirs, f"the query finds nothing, so it tests nothing\n{theirs_sql[:2000]}"
    wrong = [
        (number, a, b)
        for number, (a, b) in enumerate(zip(ours, theirs))
        if len(a) != len(b) or not all(same(x, y, query.tolerance) for x, y in zip(a, b))
    ]
    counts = f"{len(ours)} rows, DuckDB has {len(theirs)}"
    shown = "\n".join(f"row {n}: uplake {a}\n        DuckDB {b}" for n, a, b in wrong[:5])
    assert len(ours) == len(theirs) and not wrong, f"{ours_sql[:2000]}\n{counts}\n{shown}"


def test_there_are_enough_queries():
    assert len(QUERIES) >= 120


def test_the_real_data_is_there():
    names = [name for name, *_ in REAL.values()]
    if not all(map(real_data.is_real, names)):
        pytest.skip(real_data.reason(*names))
