"""What the acceptance tests share: running the binary, and comparing rows.

Rows are compared as multisets of Python values. The oracles are the values that the test itself
wrote, DuckDB, and the Python package `deltalake`; never Uplake's own earlier output, except where
a test says that something must not change.
"""

import datetime
import decimal
import gzip
import json
import math
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import zlib

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
# How many times as many moments a test kills at as it does at a push.
SOAK = int(os.environ.get("UPLAKE_SOAK", "1"))
TIMEOUT_SECONDS = 120

# An error is written for people: no panic, no backtrace, no `{:?}` of a Rust value.
RUST_DUMP = re.compile(
    r"panicked at|RUST_BACKTRACE|stack backtrace|please report this|internal error"
    r"|\b(?:Some|Err|Ok|None)\(|Os \{|Custom \{|ParquetError\(|ArrowError\(|kind: |\w+Error \{"
    r"|Box<|Arc<|Utf8View|Int64\b|Int32\b|Float64\b|Timestamp\((?:Micro|Nano|Milli)"
)


def _find_binary():
    name = os.environ.get("UPLAKE_BIN", "uplake")
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"no uplake binary: `{name}` is not there; set UPLAKE_BIN to a built one")
    return str(pathlib.Path(found).resolve())


BINARY = _find_binary()


def version():
    return subprocess.run([BINARY, "--version"], capture_output=True, text=True).stdout.strip()


def seeded(name):
    """A random source that a failed test can be rerun with: UPLAKE_TEST_SEED=<the printed number>."""
    seed = int(os.environ.get("UPLAKE_TEST_SEED", zlib.crc32(name.encode())))
    print(f"seed of {name}: {seed}")
    return random.Random(seed)


# On a machine that is slow a load tells how far it is, before it is refused.
SAID_WITH_PROGRESS = re.compile(r"(?:(?: *\d+ %|reading: ).*\n)*error: ")


class Result:
    def __init__(self, args, code, out, err):
        self.args, self.code, self.out_bytes, self.err = args, code, out, err

    @property
    def out(self):
        return self.out_bytes.decode()

    def __str__(self):
        out = self.out_bytes[:3000].decode(errors="replace")
        return f"uplake {' '.join(self.args)}\nexit {self.code}\nout: {out}\nerr: {self.err[:3000]}"


class Lake:
    def __init__(self, path, cwd):
        self.path, self.cwd = pathlib.Path(path), pathlib.Path(cwd)

    def start(self, *args, stdin=None, **more):
        """A process that is still running."""
        command = [BINARY, *map(str, args), "--lake", str(self.path)]
        return subprocess.Popen(
            command, cwd=self.cwd, stdin=stdin or subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more,
        )

    def run(self, *args, code=0, stdin=None, **more):
        """Runs to the end and checks the exit code, and that messages are for people."""
        args = [str(a) for a in args]
        done = subprocess.run(
            [BINARY, *args, "--lake", str(self.path)], cwd=self.cwd,
            input=stdin if stdin is not None else b"", capture_output=True,
            timeout=TIMEOUT_SECONDS, **more,
        )
        result = Result(args, done.returncode, done.stdout, done.stderr.decode(errors="replace"))
        dump = RUST_DUMP.search(result.err)
        assert not dump, f"a Rust value or panic in a message ({dump.group(0)!r}):\n{result}"
        assert code is None or result.code == code, f"expected exit {code}:\n{result}"
        return result

    def load(self, table, *files, **more):
        return self.run("load", table, *files, **more)

    def refused(self, *args, stdin=None, says=(), **more):
        """The command must fail with exit 1 and a message that holds every text of `says`."""
        result = self.run(*args, code=1, stdin=stdin, **more)
        assert SAID_WITH_PROGRESS.match(result.err), result
        for text in says:
            assert text in result.err, f"the message lacks {text!r}:\n{result}"
        return result

    def arrow(self, query, *options):
        """Rows through `--format parquet`: exact types and values."""
        result = self.run("sql", "-c", query, "--format", "parquet", *options)
        return pq.read_table(pa.BufferReader(result.out_bytes))

    def rows(self, query, *options):
        return rows_of(self.arrow(query, *options))

    def json(self, query, *options):
        """Rows through `--format json`: a list of dicts; numbers with a point are Decimals."""
        out = self.run("sql", "-c", query, "--format", "json", *options).out
        return [json.loads(line, parse_float=decimal.Decimal) for line in out.splitlines()]

    def count(self, table, *options):
        return self.json(f"select count(*) as n from {table}", *options)[0]["n"]

    def folder(self, table):
        return self.path / table

    def version(self, table):
        """The last commit by looking at the log; None if there is no table."""
        commits = sorted((self.folder(table) / "_delta_log").glob("*.json"))
        commits = [c for c in commits if re.fullmatch(r"\d{20}\.json", c.name)]
        return int(commits[-1].stem) if commits else None

    def delta(self, table, at=None):
        return deltalake.DeltaTable(str(self.folder(table)), version=at)

    def live_files(self, table):
        """Data files of the newest snapshot, as deltalake lists them: paths from the table's folder."""
        root = str(self.folder(table)) + "/"
        uris = self.delta(table).file_uris()
        return {uri.removeprefix("file://").removeprefix(root) for uri in uris}

    def files_on_disk(self, table):
        """Every file below the table's folder, hidden ones too, outside _delta_log."""
        root = self.folder(table)
        found = {str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir()}
        return {p for p in found if not p.startswith("_delta_log/")}

    def parquet(self, table):
        """The data files of the newest snapshot, opened."""
        return [pq.ParquetFile(self.folder(table) / f) for f in sorted(self.live_files(table))]

    def create_from(self, table, data, *options):
        """Loads an Arrow table through a Parquet file."""
        return self.load(table, write_parquet(self.cwd / f"{table}-source.parquet", data), *options)

    def same_as_deltalake(self, table):
        """Uplake and the Python package deltalake read the same rows; returns them."""
        ours = self.rows(f"select * from {table}")
        theirs = self.delta(table).to_pyarrow_table()
        theirs = rows_of(theirs.drop_columns([c for c in theirs.column_names if c.startswith("__id_")]))
        assert_same(ours, theirs, "uplake against deltalake")
        return ours


def write_parquet(path, data, **options):
    pq.write_table(data, path, **options)
    return path


def compressed(path, kind):
    """The file again as .gz or .zst beside it."""
    data = pathlib.Path(path).read_bytes()
    target = pathlib.Path(f"{path}.{kind}")
    target.write_bytes(gzip.compress(data) if kind == "gz" else zstd(data))
    return target


def zstd(data):
    return pa.compress(data, codec="zstd", asbytes=True) if data else data


def plain(value):
    """A value in one spelling, so that two readers' rows can be compared."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value
    if isinstance(value, decimal.Decimal):
        return ("decimal", str(value.normalize() + 0))
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(datetime.timezone.utc)
            return value.strftime("%Y-%m-%d %H:%M:%S.%fZ")
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    if isinstance(value, dict):
        return tuple((k, plain(v)) for k, v in sorted(value.items()))
    if isinstance(value, (list, tuple)):
        return ("list", *map(plain, value))
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return value


def rows_of(table):
    """The rows of an Arrow table: sorted tuples of (column, value) pairs."""
    names = sorted(table.column_names)
    columns = [table.column(n).to_pylist() for n in names]
    return sorted((tuple(zip(names, map(plain, row))) for row in zip(*columns)), key=repr)


def ordered_rows_of(table):
    names = sorted(table.column_names)
    columns = [table.column(n).to_pylist() for n in names]
    return [tuple(zip(names, map(plain, row))) for row in zip(*columns)]


def duck(query):
    return duckdb.connect().sql(query).to_arrow_table()


def assert_same(ours, theirs, what):
    if ours == theirs:
        return
    from collections import Counter

    def count(rows):
        return Counter(map(repr, rows))

    missing, extra = count(theirs) - count(ours), count(ours) - count(theirs)
    raise AssertionError(
        f"{what}: {len(ours)} rows against {len(theirs)}; "
        f"missing {list(missing.items())[:3]}; extra {list(extra.items())[:3]}"
    )


def events(rows, rng, days=1, users=50, first_id=0):
    """Event rows as an experiment has them: clustered by user, several days, NULLs."""
    start = datetime.datetime(2026, 11, 1)
    words = ["click", "view", "buy", "naïve ☃", "", None]
    return pa.table({
        "id": pa.array(range(first_id, first_id + rows), pa.int64()),
        "user_id": [f"u{rng.randrange(users):05}" for _ in range(rows)],
        "ts": pa.array(
            [start + datetime.timedelta(microseconds=rng.randrange(86_400_000_000)) for _ in range(rows)],
            pa.timestamp("us"),
        ),
        "day": pa.array(
            [datetime.date(2026, 11, 1 + rng.randrange(days)) for _ in range(rows)], pa.date32()
        ),
        "event": [rng.choice(words) for _ in range(rows)],
        "value": [None if rng.random() < 0.1 else round(rng.uniform(-5, 5), 3) for _ in range(rows)],
    })


def is_sorted(rows, columns):
    """NULLs last, text by bytes."""
    def key(row):
        values = dict(row)
        parts = []
        for column in columns:
            value = values[column]
            value = value.encode() if isinstance(value, str) else value
            parts.append((value is None, 0 if value is None else value))
        return tuple(parts)

    keys = list(map(key, rows))
    return all(a <= b for a, b in zip(keys, keys[1:]))
