#!/usr/bin/env python3
"""Runs the queries of TPC-H or TPC-DS against uplake, with DuckDB's answers as the expected ones.

    tests/foreign/tpc.py tpch [QUERY …] [--scale 0.1] [--show wrong,failed,bug] [--json OUT]
    tests/foreign/tpc.py tpcds …

Data and queries are those of DuckDB's extensions `tpch` and `tpcds`:

    pip install duckdb==1.5.5 duckdb-extension-tpch==1.5.5 duckdb-extension-tpcds==1.5.5 pyarrow

or any DuckDB that can install them. UPLAKE_BIN names the binary (default: `uplake` on PATH).
The exit code is 1 if a query is refused, shows a bug, or answers other rows.

Not here: comparing (`sqllogictest`), the process (`shell`).
"""

import argparse
import glob
import importlib.util
import os
import sys
import tempfile

import duckdb

import display
import report
import shell
import sqllogictest as slt

DECIMAL_ERROR = 1e-6
GENERATORS = {"tpch": "dbgen", "tpcds": "dsdgen"}


def load(connection, name):
    """Loads DuckDB's extension, from the Python package of that name or from its own registry."""
    package = importlib.util.find_spec(f"duckdb_extension_{name}")
    if package is None:
        connection.install_extension(name)
        connection.load_extension(name)
        return
    folder = os.path.dirname(package.origin)
    found = glob.glob(f"{folder}/extensions/*/{name}.duckdb_extension")
    connection.execute(f"LOAD '{found[0]}'")


def generated(connection, name, scale, folder):
    """Parquet files of each table, by table."""
    connection.execute(f"CALL {GENERATORS[name]}(sf={scale})")
    tables = [row[0] for row in connection.execute("SHOW TABLES").fetchall()]
    for table in tables:
        connection.execute(f"COPY {table} TO '{folder}/{table}.parquet'")
    return {table: f"{folder}/{table}.parquet" for table in tables}


def queries(connection, name, asked):
    found = connection.execute(
        f"SELECT query_nr, query FROM {name}_queries() ORDER BY 1"
    ).fetchall()
    return [(number, text) for number, text in found if not asked or number in asked]


def verdict(connection, session, number, sql):
    expected = connection.execute(sql).to_arrow_table()
    want = display.rows(expected, display.DuckDB)
    record = slt.Record(number, "query", [], sql, ["\t".join(row) for row in want], "rows")
    answer = session.ask(slt.statements(sql)[0])
    if answer.error is not None:
        return slt.Verdict("bug" if answer.bug else "failed", record, got=answer.error)
    got = display.rows(answer.table, display.DuckDB)
    outcome = slt.compared(sql, got, want, "", answer.table.column_names, nearly)
    return slt.Verdict(
        "passed" if outcome in ("same", "ties") else "wrong",
        record,
        got="\n".join(map("\t".join, got)),
    )


def nearly(got, want):
    """Averages and quotients of decimals are decimals of 6 places and more here, doubles there."""
    if slt.same_text(got, want):
        return True
    try:
        return abs(float(got) - float(want)) <= max(DECIMAL_ERROR, DECIMAL_ERROR * abs(float(want)))
    except ValueError:
        return False


def run(name, scale, asked):
    connection = duckdb.connect()
    load(connection, name)
    with tempfile.TemporaryDirectory(prefix="foreign-") as folder:
        files = generated(connection, name, scale, folder)
        with shell.Shell(report.binary(), f"{folder}/lake", folder, 120) as session:
            for table, path in files.items():
                made = session.ask(f"CREATE TABLE {table} AS SELECT * FROM '{path}'")
                if made.error is not None:
                    raise SystemExit(f"{table}: {made.error}")
            found = [
                verdict(connection, session, *query) for query in queries(connection, name, asked)
            ]
    for each in found:
        each.path = name
    return found


def main():
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("benchmark", choices=GENERATORS)
    options.add_argument("queries", nargs="*", type=int, help="only these queries")
    options.add_argument("--scale", type=float, default=0.1, help="1 is a gigabyte")
    options.add_argument("--show", default="wrong,failed,bug", help="verdicts to print in full")
    options.add_argument("--json", help="write every query that did not pass here, one a line")
    asked = options.parse_args()
    found = run(asked.benchmark, asked.scale, asked.queries)
    title = f"{asked.benchmark.upper().replace('TPC', 'TPC-')}, scale {asked.scale:g}"
    sys.exit(report.finish(title, found, asked))


if __name__ == "__main__":
    main()
