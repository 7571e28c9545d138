#!/usr/bin/env python3
"""PostgreSQL's regression files, asked of a PostgreSQL and of uplake's server, one statement after the other.

    tests/foreign/postgres_tests.py ~/postgresql-15.18 --postgres "host=/tmp port=5432 user=postgres"
    tests/foreign/postgres_tests.py ~/postgresql-15.18 aggregates window --postgres … --json postgres.json

What PostgreSQL answers is what is expected, so no file of expected text is read. Both are asked the same; where a
statement changes a table of one alone, the table is copied anew from PostgreSQL, without the rows whose values no Delta table
keeps (infinite times and numbers). Rows are compared by value, in any order. Verdicts of queries:

    same       the same rows, or an error of both
    differ     other rows
    refused    an error of uplake alone
    lenient    an error of PostgreSQL alone
    lost       the connection, or an internal error: the exit code is 1

A database `uplake_regression` is made anew in that PostgreSQL. Needs psycopg. UPLAKE_BIN names the binary.
"""

import argparse
import collections
import json
import math
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/wire"), str(ROOT / "tests")]

import psycopg
import support
from psycopg import pq

FILES = """
aggregates arrays boolean case date delete expressions float4 float8 groupingsets horology incremental_sort insert int2 int4
int8 interval join join_hash limit merge numeric partition_aggregate regex returning select select_distinct
select_distinct_on select_having select_implicit strings subselect text time timestamp timestamptz union update window with
""".split()
DATABASE = "uplake_regression"
TIMEOUT_MS = 20_000
# Files of data that the set-up copies, by their tables; and what other files of the suite make.
DATA = {"onek": "onek", "tenk1": "tenk", "person": "person", "emp": "emp", "student": "student", "stud_emp": "stud_emp", "road": "streets"}
SHARED = "char_tbl float8_tbl int2_tbl int4_tbl int8_tbl text_tbl varchar_tbl onek onek2 tenk1 tenk2 aggtest float4_tbl".split()
FLOATS = "0.0 1004.30 -34.84 1.2345678901234e+20 1.2345678901234e-20".split()
# By PostgreSQL's number of the type.
TYPES = {
    16: "boolean", 17: "bytea", 18: "text", 19: "text", 20: "bigint", 21: "smallint", 23: "integer", 25: "text", 700: "real",
    701: "double precision", 1007: "int[]", 1009: "text[]", 1016: "bigint[]", 1042: "text", 1043: "text", 1082: "date",
    1114: "timestamp", 1184: "timestamptz",
}
TIMES, NUMERIC = (1082, 1114, 1184), 1700
# What is PostgreSQL's alone, and asked of it alone; transactions are asked of both.
ITS_OWN = re.compile(
    r"(?i)(explain|analyze|vacuum|set|reset|show|create\s+(unique|index|function|or|role)|drop\s+(index|role)|savepoint|release|"
    r"grant|revoke|comment|lock|do|declare|fetch|close|move)\b"
)
TRANSACTION = re.compile(r"(?i)(begin|start|commit|rollback|end|abort)\b")
QUERY = re.compile(r"(?i)[\s(]*(select|with|values|table)\b")
CHANGES = re.compile(r"(?i)\binto\s+(temp|table)|\bfor\s+(update|share)|\b(insert|update|delete|merge)\b.*\breturning\b")
TARGET = re.compile(
    r"(?i)\s*(?:create\s+(?:(?:global|local)\s+)?(?:temp(?:orary)?\s+|unlogged\s+)?table\s+(?:if\s+not\s+exists\s+)?|"
    r"(?:insert|merge)\s+into\s+|update\s+(?:only\s+)?|delete\s+from\s+(?:only\s+)?|alter\s+table\s+(?:only\s+)?|"
    r"truncate\s+(?:table\s+)?)(?P<name>[\w.\"]+)"
)
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def bare(text):
    """Without comments."""
    return re.sub(r"--[^\n]*|/\*.*?\*/", "", text, flags=re.S).strip()


def statements(text):
    """The statements of a file, without psql's own commands and rows for COPY."""
    lines, in_copy = [], False
    for line in text.split("\n"):
        if in_copy:
            in_copy = line.strip() != "\\."
        elif re.match(r"\s*copy\b.*from stdin", line, re.I):
            in_copy = True
        elif not re.match(r"\s*\\", line):
            lines.append(re.sub(r"\\g.*$", ";", line))
    text, found, begin, at = "\n".join(lines), [], 0, 0
    skipped = re.compile(r"--[^\n]*|/\*.*?\*/|[eE]'(?:\\.|''|[^'\\])*'|'(?:''|[^'])*'|\"[^\"]*\"|(\$\w*\$).*?\1", re.S)
    while at < len(text):
        part = skipped.match(text, at)
        if part:
            at = part.end()
            continue
        if text[at] == ";":
            found.append(text[begin:at].strip())
            begin = at + 1
        at += 1
    return [one for one in found if bare(one)]


def ask(wire, text):
    """(rows, None), or (None, "code message")."""
    result = wire.pgconn.exec_(text.encode())
    if result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        value = lambda row, column: None if (found := result.get_value(row, column)) is None else found.decode(errors="replace")
        return [[value(row, column) for column in range(result.nfields)] for row in range(result.ntuples)], None
    field = lambda which: (result.error_field(which) or b"").decode()
    return None, f"{field(pq.DiagnosticField.SQLSTATE)} {field(pq.DiagnosticField.MESSAGE_PRIMARY)}"


def normal(value):
    if value is None or not NUMBER.fullmatch(value):
        return None if value is None else value.rstrip(" ")
    return float(value)


def equal(left, right):
    if isinstance(left, float) and isinstance(right, float):
        return left == right or math.isclose(left, right, rel_tol=1e-9)
    return left == right


def same(expected, found):
    if len(expected) != len(found):
        return False
    by_text = lambda row: [(value is None, str(value)) for value in row]
    both = [sorted(([normal(value) for value in row] for row in rows), key=by_text) for rows in (expected, found)]
    return all(len(a) == len(b) and all(map(equal, a, b)) for a, b in zip(*both))


def copy(peer, wire, table):
    """The table as PostgreSQL has it, to uplake; what stands in the way, or None."""
    ask(wire, f"drop table if exists {table}")
    columns, error = ask(
        peer,
        f"select attname, atttypid, atttypmod from pg_attribute where attrelid = '{table}'::regclass and attnum > 0 "
        "and not attisdropped order by attnum",
    )
    if error:
        return None
    definitions, finite = [], []
    for name, oid, modifier in columns:
        oid, digits = int(oid), int(modifier) - 4
        if oid == NUMERIC:
            kind = "decimal(38, 10)" if digits < 0 else f"decimal({min(38, digits >> 16 & 65535)}, {digits & 65535})"
            finite.append(f'("{name}" is null or "{name}" between -1e27 and 1e27)')
        elif oid in TYPES:
            kind = TYPES[oid]
        else:
            return f"type {oid} of {table}"
        if oid in TIMES:
            finite.append(f"(\"{name}\" is null or \"{name}\" between '1700-01-01' and '2260-01-01')")
        definitions.append(f'"{name}" {kind}')
    if finite:
        ask(peer, f"delete from {table} where not ({' and '.join(finite)})")
    _, error = ask(wire, f"create table {table} ({', '.join(definitions)})")
    if error:
        return f"create table {table}: {error}"
    try:
        with peer.cursor() as reading, wire.cursor() as writing:
            with reading.copy(f"copy (select * from {table}) to stdout") as rows, writing.copy(f"copy {table} from stdin") as to:
                for part in rows:
                    to.write(part)
    except psycopg.Error as error:
        return f"copy {table}: {error}"
    return None


def set_up(peer, suite):
    """The tables that most files ask."""
    for text in statements((suite / "sql/test_setup.sql").read_text()):
        if "regresslib" in text:
            continue
        if ":'filename'" in text:
            table = re.match(r"(?i)copy (\w+)", bare(text)).group(1)
            text = f"copy {table} from '{suite}/data/{DATA[table]}.data'"
        ask(peer, text)
    ask(peer, f"create table aggtest (a int2, b float4); copy aggtest from '{suite}/data/agg.data'")
    ask(peer, "create table float4_tbl (f1 float4); insert into float4_tbl values " + ", ".join(f"('{one}')" for one in FLOATS))


def judged(peer, wire, text):
    """The verdict of a query, and what both say if it is not the same."""
    expected, refused = ask(peer, text)
    found, error = ask(wire, text)
    if error and error.startswith("XX000"):
        return "lost", [refused, error]
    if refused and error:
        return "same", []
    if refused or error:
        return ("lenient", [refused, found[:5]]) if refused else ("refused", [error])
    return ("same", []) if same(expected, found) else ("differ", [expected[:20], found[:20]])


def run(path, peer, wire):
    """(verdict, statement, what both say) of each query of a file."""
    for table in SHARED:
        problem = copy(peer, wire, table)
        assert problem is None, problem
    for text in statements(path.read_text()):
        plain = bare(text)
        if re.match(r"(?i)set\s+(datestyle|intervalstyle|time\s*zone)", plain):
            continue
        if TRANSACTION.match(plain):
            for one in (peer, wire):
                ask(one, text)
        elif ITS_OWN.match(plain):
            ask(peer, text)
        elif QUERY.match(plain) and not CHANGES.search(plain):
            verdict, said = judged(peer, wire, text)
            yield verdict, text, said
        else:
            errors = [ask(one, text)[1] for one in (peer, wire)]
            target = TARGET.match(plain)
            if target and (errors[0] is None) != (errors[1] is None):
                copy(peer, wire, target["name"])


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("source", type=pathlib.Path, help="PostgreSQL's source")
    options.add_argument("files", nargs="*", help="only these files of it, without .sql")
    options.add_argument("--postgres", required=True, help="how to connect to a PostgreSQL that may read the source's files")
    options.add_argument("--json", help="write every query that is not the same here, one a line")
    asked = options.parse_args()
    suite = asked.source.resolve() / "src/test/regress"
    total, others = collections.Counter(), []
    with psycopg.connect(f"{asked.postgres} dbname=postgres", autocommit=True) as administrator:
        for name in asked.files or FILES:
            administrator.execute(f"drop database if exists {DATABASE}")
            administrator.execute(f"create database {DATABASE}")
            with tempfile.TemporaryDirectory(prefix="uplake-postgres-") as folder:
                server = support.Server(folder, pathlib.Path(folder) / "lake")
                peer = psycopg.connect(f"{asked.postgres} dbname={DATABASE}", autocommit=True)
                wire = psycopg.connect(server.url, autocommit=True)
                with peer, wire:
                    ask(peer, "set timezone = 'UTC'; set datestyle = iso; set intervalstyle = postgres")
                    set_up(peer, suite)
                    for one in (peer, wire):
                        ask(one, f"set statement_timeout = {TIMEOUT_MS}")
                    verdicts = collections.Counter()
                    for verdict, text, said in run(suite / f"sql/{name}.sql", peer, wire):
                        verdicts[verdict] += 1
                        if verdict != "same":
                            others.append({"file": name, "verdict": verdict, "sql": text, "said": said})
                server.stop()
            print(f"{name:20} {dict(sorted(verdicts.items()))}", flush=True)
            total += verdicts
    print(f"{'all':20} {dict(sorted(total.items()))}")
    if asked.json:
        pathlib.Path(asked.json).write_text("".join(json.dumps(one) + "\n" for one in others))
    return 1 if total["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
