#!/usr/bin/env python3
"""Runs sqllogictest files against the uplake binary: the quick way to try one file.

    tests/sql/run.py                         every *.slt beside this script
    tests/sql/run.py tests/sql/nulls.slt     one file
    tests/sql/run.py -v …                    show every record

`make test` runs all files in one process (crates/engine/tests/it/sql_records, which means the same by
every word below) and a few through the command by this script; `make soak` all.

UPLAKE_BIN names the binary (default: `uplake` on PATH). Needs pyarrow.

Each file is run in two ways, each on a lake of its own, and its expected rows must come of both:
    plain       every record is a process of its own
    indexed     all columns of whole numbers and text are indexed when their table was made, and
                queries that stand together share a process, so that a session's caches are used
    no-index    as indexed, but with --no-index: only if asked for with --way no-index
    s3          as indexed, in a bucket of an S3 server that is started for it (tests/buckets.py): only if
                asked for with --way s3
    wire        over the Postgres wire, from a server of the lake, as text: only if asked for with --wire.
                What names files ($TMP) is left out, as connections may read none, and information_schema,
                which has Postgres' words there
--way plain and --way indexed pick one of the others. Indexing is a commit, so later versions are counted
one higher there; what shows versions, sizes or layouts (SHOW, DESCRIBE) is asked in `plain` alone.

What the files use of the format, beside comments (#):
    statement ok                    the SQL is done
    statement count N               … and says that N rows were written or removed
    statement error REGEX           it fails, and the message matches
    query TYPES [rowsort]           rows follow after ----; sorted as text on both sides with rowsort
    query error REGEX               it fails, and the message matches
    control substitution on         from here on, $TMP is the file's scratch folder
One letter per column: I integers, R floats and decimals, T the rest. A NULL column may be of any
type. One row a line, one value per column, TAB between them (runs of white space count as one, so
values hold none). NULL is NULL, the empty string is (empty), booleans are true and false, dates
2026-01-31, timestamps 2026-01-31T10:00:00[.5] with Z at the end for timestamptz (UTC), floats with
a digit after the point. Every file starts from an empty lake.
"""
import argparse
import datetime as dt
import decimal
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import buckets

UPLAKE = os.environ.get("UPLAKE_BIN", "uplake")
WAYS = ["plain", "indexed"]
# Nothing is indexed behind a record's back.
AS_WRITTEN = ("plain", "wire")
wire = None
CREATED = re.compile(r"create\s+table\s+(?:if\s+not\s+exists\s+)?(\"[^\"]+\"|\w+)", re.IGNORECASE)
VERSION = re.compile(r"(version\s+as\s+of\s+'?)([1-9])\b", re.IGNORECASE)
SHOWS_LAYOUT = re.compile(r"\s*(show|describe)\b", re.IGNORECASE)
# COPY does not take these as SELECT does.
QUANTIFIED = re.compile(r"\b(any|all)\s*\(", re.IGNORECASE)
OF_SERVER = re.compile(r"\binformation_schema\b", re.IGNORECASE)
QUERY = re.compile(r"\s*(select|with|values)\b", re.IGNORECASE)


class Record:
    """One statement or query of a file, and what is expected of it."""

    def __init__(self, line, head, sql, rows):
        words = head.split(None, 2)
        self.line, self.sql, self.rows = line, sql, rows
        self.kind = words[0]
        self.mode = words[1] if len(words) > 1 else ""
        self.rest = words[2].strip() if len(words) > 2 else ""


def records(text):
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        head = lines[at].strip()
        if not head or head.startswith("#"):
            at += 1
            continue
        start = at + 1
        if head.startswith("control"):
            yield Record(start, head, "", None)
            at += 1
            continue
        if not head.startswith(("statement", "query")):
            raise ValueError(f"line {start}: `{head}` begins no record")
        sql, rows, at = [], None, at + 1
        while at < len(lines) and lines[at].strip():
            if rows is None and lines[at].strip() == "----":
                rows = []
            elif rows is None:
                sql.append(lines[at])
            else:
                rows.append("\t".join(lines[at].split()))
            at += 1
        yield Record(start, head, "\n".join(sql), rows)


def seconds_fraction(value):
    if not value.microsecond:
        return ""
    digits = f"{value.microsecond:06d}"
    return "." + (digits[:3] if digits.endswith("000") else digits)


def text(value, kind):
    if value is None:
        return "NULL"
    if value is True or value is False:
        return str(value).lower()
    if isinstance(value, dt.datetime):
        zone = "Z" if pa.types.is_timestamp(kind) and kind.tz else ""
        return value.replace(microsecond=0, tzinfo=None).isoformat() + seconds_fraction(value) + zone
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return str(value) if math.isfinite(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, list):
        return "[" + ",\t".join(text(v, kind.value_type) for v in value) + "]"
    return "\t".join(str(value).split()) or "(empty)"


def letter(kind):
    if pa.types.is_integer(kind):
        return "I"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "R"
    return "?" if pa.types.is_null(kind) else "T"


def plain(column):
    """Timestamps in microseconds: Python's clock has no finer ones."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    return column


ENVIRONMENT = None


def uplake(lake, sql, cwd, options=(), output="arrow"):
    command = [UPLAKE, "sql", "--lake", lake, "--format", output, "-c", sql, *options]
    done = subprocess.run(command, capture_output=True, cwd=cwd, timeout=120, env=ENVIRONMENT)
    return done.returncode, done.stdout, done.stderr.decode().removeprefix("error: ")


class Run:
    """One file, one way."""

    def __init__(self, folder, way):
        self.folder, self.way = folder, way
        self.lake = os.path.join(folder, "lake")
        if way == "s3":
            self.lake = f"s3://{buckets.BUCKET}/{uuid.uuid4().hex}"
        self.options = ["--no-index"] if way == "no-index" else []
        self.substitute = False
        self.server = None  # of the wire, once there is something to ask

    def end(self):
        if self.server:
            self.server.stop()

    def sql(self, record):
        sql = record.sql.replace("$TMP", self.folder) if self.substitute else record.sql
        if self.way in AS_WRITTEN:
            return sql
        return VERSION.sub(lambda found: found[1] + str(int(found[2]) + 1), sql)

    def check(self, record):
        """What is wrong, or None."""
        if self.way not in AS_WRITTEN and SHOWS_LAYOUT.match(record.sql):
            return None
        if self.way == "wire":
            return self.check_over_the_wire(record)
        code, out, message = uplake(self.lake, self.sql(record), self.folder, self.options)
        if record.mode == "error":
            if code == 0:
                return "it should fail, but it did not"
            if not re.search(record.rest, message):
                return f"expected an error like: {record.rest}\ngot: {message.strip()}"
            return None
        if code != 0:
            return message.strip()
        if record.kind == "query":
            return compare(record, pa.ipc.open_stream(out).read_all())
        found = re.search(r"(\d+) rows", message)
        if record.mode == "count" and (not found or found[1] != record.rest):
            return f"expected {record.rest} rows, got: {message.strip()}"
        created = CREATED.match(record.sql.strip())
        return self.index(created[1]) if created and self.way != "plain" else None

    def check_over_the_wire(self, record):
        self.server = self.server or wire.server(self.folder)
        oids, rows, count, message = wire.ask(self.server, self.sql(record))
        if record.mode == "error":
            if message is None:
                return "it should fail, but it did not"
            found = re.search(record.rest, message)
            return None if found else f"expected an error like: {record.rest}\ngot: {message}"
        if message is not None:
            return message
        if record.kind == "query":
            return compare_texts(record, oids, rows)
        if record.mode == "count" and str(count) != record.rest:
            return f"expected {record.rest} rows, got: {count}"
        return None

    def check_together(self, records):
        """What is wrong with each of some queries, asked of one process: through files, because
        the output holds the rows of one statement."""
        files = [os.path.join(self.folder, f"answer-{n}.parquet") for n in range(len(records))]
        copies = [f"COPY (\n{self.sql(r)}\n) TO '{f}'" for r, f in zip(records, files)]
        code, _, message = uplake(self.lake, ";\n".join(copies), self.folder, self.options, "json")
        if code != 0 or "warning" in message or not all(map(os.path.exists, files)):
            return [self.check(record) for record in records]
        return [compare(record, pq.ParquetFile(file).read()) for record, file in zip(records, files)]

    def index(self, table):
        """Indexes all that can be indexed, unless the table has indexes already."""
        code, out, message = uplake(self.lake, f"DESCRIBE {table}", self.folder)
        if code != 0:
            return message.strip()
        specs = []
        for column in pa.ipc.open_stream(out).read_all().to_pylist():
            name, kind, layout = (column[c] for c in ("column_name", "data_type", "layout"))
            if "index" in (layout or ""):
                return None
            if "partition" in (layout or "") or re.search("[,:]|^ | $", name):
                continue
            if kind in ("text", "bigint", "integer", "smallint", "tinyint"):
                specs += [name] + ([f"{name}:words", f"{name}:ngrams"] if kind == "text" else [])
        if not specs:
            return None
        folder = table.strip('"') if table.startswith('"') else table.lower()
        options = [part for spec in specs for part in ("--index", spec)]
        command = [UPLAKE, "table", "reindex", folder, "--lake", self.lake, *options]
        done = subprocess.run(command, capture_output=True, timeout=120, env=ENVIRONMENT)
        return done.stderr.decode().strip() if done.returncode else None


def compare(record, table):
    """What is wrong with a query's rows, or None."""
    columns = [plain(c) for c in table.columns]
    kinds = [c.type for c in columns]
    letters = "".join(letter(k) for k in kinds)
    same = len(letters) == len(record.mode) and all(
        "?" in (a, b) or a == b for a, b in zip(letters, record.mode)
    )
    if not same:
        return f"expected column types {record.mode}, got {letters}"
    rows = zip(*[c.to_pylist() for c in columns])
    got = ["\t".join(text(v, k) for v, k in zip(row, kinds)) for row in rows]
    want = record.rows or []
    if "rowsort" in record.rest:
        got, want = sorted(got), sorted(want)
    if got != want:
        return "expected:\n" + "\n".join(want) + "\ngot:\n" + "\n".join(got)
    return None


def compare_texts(record, oids, rows):
    """What is wrong with rows that came over the wire, or None."""
    letters = [wire.LETTERS.get(oid, "T") for oid in oids]
    for n, oid in enumerate(oids):
        if oid == 25 and all(row[n] is None for row in rows):
            letters[n] = "?"  # of no type, too
    same = len(letters) == len(record.mode) and all(
        a in ("?", b) or (a == "N" and b in "IR") for a, b in zip(letters, record.mode)
    )
    if not same:
        return f"expected column types {record.mode}, got {''.join(letters)}"
    utc, nested = pa.timestamp("us", "UTC"), pa.list_(pa.list_(pa.list_(pa.null())))
    kinds = [{1184: utc, 1185: pa.list_(utc)}.get(oid, nested) for oid in oids]
    got = ["\t".join(text(wire.value(v, o), k) for v, o, k in zip(row, oids, kinds)) for row in rows]
    want = record.rows or []
    if "rowsort" in record.rest:
        got, want = sorted(got), sorted(want)
    return None if got == want else "expected:\n" + "\n".join(want) + "\ngot:\n" + "\n".join(got)


def groups(found, way):
    """Records that share a process: queries that stand together, except in the plain way."""
    def alone(record):
        asks = record.kind == "query" and record.mode != "error" and QUERY.match(record.sql)
        return way in AS_WRITTEN or not asks or QUANTIFIED.search(record.sql)

    group = []
    for record in found:
        if not alone(record):
            group.append(record)
            continue
        if group:
            yield group
        group = []
        yield [record]
    if group:
        yield group


def run_file(path, way, verbose):
    """(passed, [failure]) of one file."""
    passed, failures = 0, []
    with tempfile.TemporaryDirectory() as folder:
        run = Run(folder, way)
        for group in groups(records(path.read_text()), way):
            if group[0].kind == "control":
                run.substitute = group[0].rest == "on"
                continue
            if way == "wire" and (run.substitute or OF_SERVER.search(group[0].sql)):
                continue
            problems = run.check_together(group) if len(group) > 1 else [run.check(group[0])]
            for record, problem in zip(group, problems):
                if verbose:
                    print(f"{path.name}:{record.line} {way} {'FAILED' if problem else 'ok'}")
                if problem is None:
                    passed += 1
                else:
                    failures.append(f"{path}:{record.line} ({way})\n{record.sql}\n{problem}\n")
        run.end()
    return passed, failures


def main():
    options = argparse.ArgumentParser(description="Runs sqllogictest files against uplake.")
    options.add_argument("files", nargs="*", type=pathlib.Path)
    options.add_argument("-v", action="store_true", help="show every record")
    options.add_argument("--way", choices=[*WAYS, "no-index", "s3", "wire"])
    options.add_argument("--wire", dest="way", action="store_const", const="wire", help="as --way wire")
    asked = options.parse_args()
    if asked.way == "wire":
        global wire
        import wire
    if asked.way == "s3":
        server = buckets.start()
        if server is None:
            sys.exit("no S3 server: make s3-server, or pip install -r tests/requirements.txt")
        global ENVIRONMENT
        ENVIRONMENT = buckets.environment(server)
    paths = asked.files or sorted(pathlib.Path(__file__).parent.glob("*.slt"))
    jobs = [(path, way) for path in paths for way in ([asked.way] if asked.way else WAYS)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda job: run_file(*job, asked.v), jobs))
    failures = [f for _, fs in results for f in fs]
    print("\n".join(failures))
    for (path, way), (passed, failed) in zip(jobs, results):
        print(f"{path.name} {way}: {passed} passed" + (f", {len(failed)} FAILED" if failed else ""))
    print(f"{sum(p for p, _ in results)} records passed, {len(failures)} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
