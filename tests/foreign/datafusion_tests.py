#!/usr/bin/env python3
"""Runs DataFusion's sqllogictest files against uplake.

    tests/foreign/datafusion_tests.py CHECKOUT [FILE …] [--show wrong,failed,bug] [--json OUT]

CHECKOUT is a checkout of apache/datafusion with its submodules `testing` and `parquet-testing`;
FILE is a path below datafusion/sqllogictest/test_files. UPLAKE_BIN names the binary (default:
`uplake` on PATH). The exit code is 1 if a record is wrong, fails without a reason, or shows a bug.

What uplake has not but a file needs to go on has a stand-in: an external table becomes a
table with the same rows. The statement itself counts as refused.

Not here: reading and judging (`sqllogictest`).
"""

import glob
import os
import pathlib
import re
import sys

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import display
import datafusion_rules as rules
import report
import sqllogictest as slt

FILES = "datafusion/sqllogictest/test_files"
EXTERNAL = re.compile(
    r"\s*create\s+(?:or\s+replace\s+)?(?:unbounded\s+)?external\s+table\s+(?:if\s+not\s+exists\s+)?"
    r"(?P<name>(?:\"[^\"]+\"|[\w.])+)\s*(?P<columns>\(.*?\)\s*(?=stored))?"
    r"stored\s+as\s+(?P<form>\w+)"
    r"(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
LOCATION = re.compile(r"location\s+'([^']+)'", re.IGNORECASE)
OPTION = re.compile(r"'?([\w.]+)'?\s+'?([^\s',]+|,|')'?")
SETTING = re.compile(r"\s*(?:re)?set\s+([\w.]+|time\s+zone)\s*(?:=|to\b)?(.*)", re.I | re.S)
IGNORED = "<slt:ignore>"
WRITTEN = re.compile(r"\bto\s+'([^']+)'", re.IGNORECASE)
# Settings that change what a statement means, their values that do not, and the name of the rule.
CHANGING_SETTINGS = {
    "datafusion.sql_parser.dialect": "another dialect of SQL",
    "datafusion.sql_parser.enable_ident_normalization": "names with capitals kept as written",
    "datafusion.execution.parquet.pushdown_filters": "settings of DataFusion",
}
PLAIN_SETTINGS = {
    "datafusion.sql_parser.dialect": ["generic", ""],
    "datafusion.sql_parser.enable_ident_normalization": ["true", ""],
    "datafusion.execution.parquet.pushdown_filters": ["false", ""],
}


class DataFusion(slt.Suite):
    name = "DataFusion"
    style = display.DataFusion
    refused = rules.REFUSED
    differs = rules.DIFFERS

    def __init__(self, checkout):
        self.checkout = pathlib.Path(checkout).resolve()
        self.files = self.checkout / FILES

    def all_files(self):
        """Without spark/, which tests functions of another crate that is not in uplake."""
        return [
            path
            for path in sorted(self.files.rglob("*.slt"))
            if "spark" not in path.relative_to(self.files).parts
        ]

    def parse(self, path):
        return list(self.included(path))

    def included(self, path):
        for record in slt.parse(path.read_text(), long_errors=True):
            if record.kind != "include":
                yield record
                continue
            for inner in sorted(glob.glob(str(path.parent / record.words[0]))):
                yield from self.included(pathlib.Path(inner))

    def lay_out(self, folder, path):
        """A folder to work in from which the paths that the files name lead to the checkout's."""
        ours = pathlib.Path(folder) / "datafusion/sqllogictest"
        scratch = ours / "test_files/scratch" / path.stem
        scratch.mkdir(parents=True)
        for entry in self.files.iterdir():
            if entry.is_dir() and entry.name != "scratch":
                (ours / "test_files" / entry.name).symlink_to(entry)
        for name in (
            "testing",
            "parquet-testing",
            "datafusion/core",
            "datafusion/datasource-arrow",
            "datafusion/sqllogictest/data",
        ):
            if (self.checkout / name).exists():
                (pathlib.Path(folder) / name).symlink_to(self.checkout / name)
        return ours

    def directive(self, record, state):
        if record.kind == "onlyif":
            state.skip_next = "made for Postgres"

    def prepare(self, record, sql, state):
        external = EXTERNAL.match(sql)
        self.note(sql, state)
        if external:
            return stand_in_for_external(external, state) or "external tables"
        return [sql]

    @staticmethod
    def note(sql, state):
        """What of the session's settings and of written files changes later answers."""
        setting = SETTING.match(sql)
        if setting:
            name, value = setting[1].lower(), setting[2].strip(" '\";").lower()
            if "zone" in name:
                state.zoned = value not in ("", "utc", "+00:00")
            if value in PLAIN_SETTINGS.get(name, [value]):
                state.settings.pop(name, None)
            else:
                state.settings[name] = CHANGING_SETTINGS[name]
        written = WRITTEN.search(sql)
        if written:
            path = os.path.join(state.cwd, written[1])
            state.other_files.update(
                {path: why for pattern, why in rules.OTHER_ROWS if pattern.search(sql)}
            )
            for name, source in state.sources.items():
                if path.startswith(source):
                    state.changed[name] = "external tables: files are written after CREATE"

    def created(self, record, state, name):
        for pattern, why in rules.OTHER_ROWS:
            if pattern.search(record.sql):
                state.changed[name] = why
        source = state.sources.get(name)
        if source:
            state.changed.update(
                {name: why for path, why in state.other_files.items() if path.startswith(source)}
            )
        if state.zoned:
            state.changed[name] = "tables keep times in UTC, not in another zone"

    def verify(self, record, answer, rows, _state):
        lines = [line for line in record.rows or [] if line != "----"]
        want = [line.split() for line in lines]
        hashed = slt.HASHED.fullmatch(lines[0]) if len(lines) == 1 else None
        if hashed:
            return "same" if slt.hash_of(rows, record.sort) == hashed[2] else "other"
        got = [" ".join(row).split() for full in rows for row in broken(full)]
        if not want and not any(got):
            return "same"
        if IGNORED in "\n".join(lines):
            return "same" if matches(got, want) else "other"
        outcome = slt.compared(record.sql, got, want, record.sort, answer.table.column_names)
        if outcome == "other" and rules.same_as_kept(got, want):
            return rules.KEPT_TYPES
        limited = re.search(r"\blimit\b", slt.without_strings(record.sql), re.IGNORECASE)
        if outcome == "other" and limited and slt.outer_order(record.sql) is None:
            return "LIMIT without ORDER BY names no rows" if len(got) == len(want) else outcome
        return outcome


def matches(got, want):
    """Whether rows are those of a file that leaves parts of them out."""
    parts = "\n".join(map(" ".join, want)).split(IGNORED)
    pattern = ".*".join(map(re.escape, parts))
    return re.fullmatch(pattern, "\n".join(map(" ".join, got)), re.DOTALL) is not None


def broken(row):
    """A last value of several lines, such as a plan, is several rows."""
    if not row or "\n" not in row[-1]:
        return [row]
    lines = row[-1].split("\n")
    marked = [
        f"{n:02d}){'-' * (len(x) - len(x.lstrip()))}{x.lstrip()}" for n, x in enumerate(lines, 1)
    ]
    return [row[:-1]] + [[line] for line in marked]


def stand_in_for_external(found, state):
    """Statements that make a table of the files' rows, or None."""
    place = LOCATION.search(found["rest"])
    form = found["form"].lower()
    if not place or "partitioned by" in found["rest"].lower():
        return None
    columns, name = (found["columns"] or "").strip(), found["name"]
    path = os.path.join(state.cwd, place[1])
    state.sources[slt.plain_name(found["name"])] = path.rstrip("/")
    options = dict(OPTION.findall(found["rest"].partition("OPTIONS")[2]))
    if form == "csv":
        return table_of_csv(name, columns, path, options, state)
    if form not in ("parquet", "json") or options or not os.path.exists(path):
        return None
    if os.path.isdir(path) and any(entry.is_dir() for entry in os.scandir(path)):
        return None
    source = path if os.path.isfile(path) else f"{path.rstrip('/')}/*.{form}"
    if columns:
        return [f"CREATE TABLE {name} {columns}", f"INSERT INTO {name} SELECT * FROM '{source}'"]
    return [f"CREATE TABLE {name} AS SELECT * FROM '{source}'"]


def table_of_csv(name, columns, path, options, state):
    if (
        not os.path.isfile(path)
        or not columns
        or not set(options) <= {"format.has_header", "has_header", "format.delimiter", "delimiter"}
    ):
        return None
    header = options.get("format.has_header", options.get("has_header", "false")) == "true"
    mark = options.get("format.delimiter", options.get("delimiter", ","))
    try:
        first = pa.csv.read_csv(
            path,
            pa.csv.ReadOptions(autogenerate_column_names=not header),
            pa.csv.ParseOptions(delimiter=mark, newlines_in_values=True),
        )
        texts = {column: pa.string() for column in first.column_names}
        table = pa.csv.read_csv(
            path,
            pa.csv.ReadOptions(autogenerate_column_names=not header),
            pa.csv.ParseOptions(delimiter=mark, newlines_in_values=True),
            pa.csv.ConvertOptions(column_types=texts, strings_can_be_null=True, null_values=[""]),
        )
    except pa.ArrowInvalid:
        return None
    copy = os.path.join(state.folder, f"external-{len(os.listdir(state.folder))}.parquet")
    table = table.rename_columns([f"c{n}" for n in range(table.num_columns)])
    pa.parquet.write_table(table, copy)
    types = column_types(columns)
    if len(types) != table.num_columns:
        return None
    casts = ", ".join(f"CAST(c{n} AS {kind})" for n, kind in enumerate(types))
    return [f"CREATE TABLE {name} {columns}", f"INSERT INTO {name} SELECT {casts} FROM '{copy}'"]


def column_types(columns):
    """`(a INT NOT NULL, b DECIMAL(10, 2))` to `INT` and `DECIMAL(10, 2)`."""
    inner = re.sub(r"--[^\n]*", "", columns).strip()[1:-1]
    parts = re.split(r",(?![^(]*\))", inner)
    found = []
    for part in parts:
        words = re.match(r"\s*(?:\"[^\"]+\"|\w+)\s+(.*)", part, re.DOTALL)
        if words is None:
            return []
        kind = re.sub(r"\b(not\s+null|null|primary\s+key)\b", "", words[1], flags=re.IGNORECASE)
        found.append(kind.strip())
    return found


def main():
    asked = report.arguments(__doc__)
    suite = DataFusion(asked.checkout)
    paths = [suite.files / f for f in asked.files] or suite.all_files()
    sys.exit(report.run(suite, paths, asked))


if __name__ == "__main__":
    main()
