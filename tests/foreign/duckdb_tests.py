#!/usr/bin/env python3
"""Runs DuckDB's sqllogictest files against uplake.

    tests/foreign/duckdb_tests.py CHECKOUT [FILE …] [--show wrong,failed,bug] [--json OUT]

CHECKOUT is a checkout of duckdb/duckdb; FILE is a path below test/sql. UPLAKE_BIN names the binary
(default: `uplake` on PATH). The exit code is 1 if a record is wrong, fails without a reason, or
shows a bug.

NULLs are sorted last, as DuckDB does, by a setting made before each file; a temporary table
or view becomes one that stays.

Not here: reading and judging (`sqllogictest`), the rules (`duckdb_rules`).
"""

import pathlib
import re
import sys

import display
import duckdb_rules as rules
import report
import sqllogictest as slt

FILES = "test/sql"
TEMPORARY = re.compile(
    r"(\s*create\s+(?:or\s+replace\s+)?)(?:temp|temporary)\s+(table|view)", re.IGNORECASE
)
# Folders that test files on disk, the API and tools of DuckDB, not answers.
NOT_SQL = {
    "attach",
    "catalog",
    "connect",
    "copy_database",
    "detailed_profiler",
    "export",
    "extensions",
    "logging",
    "peg_parser",
    "pg_catalog",
    "pragma",
    "progress_bar",
    "secrets",
    "settings",
    "storage",
    "storage_version",
    "transactions",
    "trigger",
    "vacuum",
}
NULL_ORDER = re.compile(
    r"\s*(?:set|pragma|reset)\s+(?:global\s+|session\s+)?default_null_order(.*)",
    re.IGNORECASE | re.DOTALL,
)
# What a file may ask for that says nothing of the SQL in it.
HARMLESS = {
    "skip_reload",
    "vector_size",
    "noforcestorage",
    "no_alternative_verify",
    "notwindows",
    "notmingw",
    "no_extension_autoloading",
    "parquet",
    "json",
    "icu",
    "core_functions",
    "block_size",
    "strinline",
    "no_vector_verification",
    "no_latest_storage",
    "exact_vector_size",
    "ram",
    "longdouble",
    "no_force_storage",
    "64bit",
    "noalternativeverify",
}


class DuckDB(slt.Suite):
    name = "DuckDB"
    style = display.DuckDB
    refused = rules.REFUSED
    differs = rules.DIFFERS

    def __init__(self, checkout):
        self.checkout = pathlib.Path(checkout).resolve()
        self.files = self.checkout / FILES

    def all_files(self):
        return [
            path
            for path in sorted(self.files.rglob("*.test"))
            if path.relative_to(self.files).parts[0] not in NOT_SQL
        ]

    def lay_out(self, folder, _path):
        work = pathlib.Path(folder) / "work"
        work.mkdir()
        for name in ("data", "test"):
            (work / name).symlink_to(self.checkout / name)
        return work

    def directive(self, record, state):
        words = record.words or [""]
        if record.kind == "mode":
            state.skipping = (
                words[0] == "skip" if words[0] in ("skip", "unskip") else state.skipping
            )
        if record.kind == "require" and words[0].lower() not in HARMLESS:
            return f"extensions of DuckDB ({words[0].lower()})"
        if record.kind in ("require-env", "test-env", "unzip", "load", "template"):
            return "databases and environments of DuckDB's runner"
        if record.kind == "halt":
            return "after halt"
        return None

    def prepare(self, record, sql, state):
        if state.skipping:
            return "skipped by the file itself"
        if record.connection:
            state.several = True
        if state.several:
            return "several connections"
        first = [] if state.begun else [nulls("last")]
        state.begun = True
        self.note(sql, state)
        order = NULL_ORDER.match(sql)
        if order:
            return first + [nulls("first" if "first" in order[1].lower() else "last")]
        return first + [self.stand_in(one) for one in slt.statements(sql)]

    @staticmethod
    def stand_in(sql):
        return TEMPORARY.sub(r"\1\2", sql)

    @staticmethod
    def note(sql, state):
        """What of the session changes later answers."""
        for pattern, why in rules.CHANGING_SETTINGS:
            if pattern.match(sql):
                state.settings[why] = why

    def created(self, record, state, name):
        for pattern, why in rules.OTHER_ROWS:
            if pattern.search(record.sql):
                state.changed[name] = why

    def verify(self, record, answer, rows, state):
        lines = record.rows or []
        if record.label and not lines:
            # Queries of one label have the same rows, which the file does not list.
            first = state.labels.setdefault(record.label, rows)
            return "same" if slt.same_rows(slt.any_order(rows), slt.any_order(first)) else "other"
        columns = answer.table.num_columns
        hashed = slt.HASHED.fullmatch(lines[0].strip()) if len(lines) == 1 else None
        if hashed:
            return self.same_hash(record, rows, columns, hashed)
        rows = [typed(row) for row in rows]
        want = [typed(row) for row in slt.lines_to_rows(lines, columns)]
        if any(line.startswith(("<REGEX>:", "<!REGEX>:")) for line in lines):
            return "other" if not patterns_hold(rows, want) else "same"
        outcome = slt.compared(record.sql, rows, want, record.sort, answer.table.column_names)
        return rules.same_but(record.sql, rows, want) if outcome == "other" else outcome

    @staticmethod
    def same_hash(record, rows, columns, hashed):
        """The rows' order is not promised, so each order that can be made from here is tried."""
        if len(rows) * columns != int(hashed[1]):
            return "other"
        orders = [record.sort, "rowsort"] if slt.outer_order(record.sql) is None else [record.sort]
        same = any(slt.hash_of(rows, sort) == hashed[2] for sort in orders)
        return "same" if same else rules.HASHED_OTHERWISE


def nulls(place):
    return f"SET datafusion.sql_parser.default_null_ordering = 'nulls_{place}'"


def typed(row):
    """Booleans as numbers, because the files write them either way."""
    flags = {"true": "1", "false": "0"}
    return [flags.get(value.strip().lower(), value.strip()) for value in row]


def patterns_hold(rows, want):
    """Values with <REGEX>: match in full; the others are the same."""
    if [len(r) for r in rows] != [len(r) for r in want]:
        return False
    for value, expected in zip((v for r in rows for v in r), (v for r in want for v in r)):
        pattern = re.fullmatch(r"<(!?)REGEX>:(.*)", expected, re.DOTALL)
        if pattern is None and not slt.same_text(value, expected):
            return False
        if pattern and bool(pattern[1]) == bool(re.fullmatch(pattern[2], value, re.DOTALL)):
            return False
    return True


def main():
    asked = report.arguments(__doc__)
    suite = DuckDB(asked.checkout)
    paths = [suite.files / f for f in asked.files] or suite.all_files()
    sys.exit(report.run(suite, paths, asked))


if __name__ == "__main__":
    main()
