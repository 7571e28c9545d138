#!/usr/bin/env python3
"""Runs sqllogictest files against the uplake binary: the quick way to try one file.

    tests/sql/run.py                         every *.slt beside this script
    tests/sql/run.py tests/sql/nulls.slt     one file
    tests/sql/run.py -v …                    show every record

UPLAKE_BIN names the binary (default: `uplake` on PATH). Needs pyarrow. Every record is a process
of its own on the file's lake, so what a session caches is not exercised here.

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
import datetime as dt
import decimal
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

UPLAKE = os.environ.get("UPLAKE_BIN", "uplake")


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


def uplake(lake, sql, cwd):
    command = [UPLAKE, "sql", "--lake", lake, "--format", "arrow", "-c", sql]
    done = subprocess.run(command, capture_output=True, cwd=cwd, timeout=120)
    return done.returncode, done.stdout, done.stderr.decode().removeprefix("error: ")


def check(record, lake, folder, substitute):
    """What is wrong, or None."""
    sql = record.sql.replace("$TMP", folder) if substitute else record.sql
    code, out, message = uplake(lake, sql, folder)
    if record.mode == "error":
        if code == 0:
            return "it should fail, but it did not"
        if not re.search(record.rest, message):
            return f"expected an error like: {record.rest}\ngot: {message.strip()}"
        return None
    if code != 0:
        return message.strip()
    if record.kind == "statement":
        found = re.search(r"(\d+) rows", message)
        if record.mode == "count" and (not found or found[1] != record.rest):
            return f"expected {record.rest} rows, got: {message.strip()}"
        return None
    table = pa.ipc.open_stream(out).read_all()
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


def run_file(path, verbose):
    """(passed, [failure]) of one file."""
    passed, failures, substitute = 0, [], False
    with tempfile.TemporaryDirectory() as folder:
        lake = os.path.join(folder, "lake")
        for record in records(path.read_text()):
            if record.kind == "control":
                substitute = record.rest == "on"
                continue
            problem = check(record, lake, folder, substitute)
            if verbose:
                print(f"{path.name}:{record.line} {'FAILED' if problem else 'ok'}")
            if problem is None:
                passed += 1
            else:
                failures.append(f"{path}:{record.line}\n{record.sql}\n{problem}\n")
    return passed, failures


def main():
    names = [a for a in sys.argv[1:] if a != "-v"]
    here = pathlib.Path(__file__).parent
    paths = [pathlib.Path(n) for n in names] or sorted(here.glob("*.slt"))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda p: run_file(p, "-v" in sys.argv), paths))
    failures = [f for _, fs in results for f in fs]
    print("\n".join(failures))
    for path, (passed, failed) in zip(paths, results):
        print(f"{path.name}: {passed} passed" + (f", {len(failed)} FAILED" if failed else ""))
    print(f"{sum(p for p, _ in results)} records passed, {len(failures)} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
