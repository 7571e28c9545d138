"""TPC-H: its tables and its 22 questions, written by DuckDB.

    pip install duckdb==1.5.5 duckdb-extension-tpch==1.5.5        (or any DuckDB that can install it)
"""

import glob
import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path

import measure
import queries

TABLES = ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"]
QUESTIONS = range(1, 23)


def written(folder, scale):
    """DuckDB's statements that write all of it into a folder."""
    package = importlib.util.find_spec("duckdb_extension_tpch")
    found = package and glob.glob(f"{os.path.dirname(package.origin)}/extensions/*/tpch.duckdb_extension")
    yield from [f"LOAD '{found[0]}'"] if found else ["INSTALL tpch", "LOAD tpch"]
    yield f"CALL dbgen(sf = {scale:g})"
    for table in TABLES:
        yield f"COPY {table} TO '{folder}/{table}.parquet'"
    for number in QUESTIONS:
        yield (
            f"COPY (SELECT query FROM tpch_queries() WHERE query_nr = {number}) TO '{folder}/q{number}.sql'"
            " (FORMAT csv, HEADER false, QUOTE '', ESCAPE '', DELIMITER '|')"
        )


class Data:
    """The tables of one scale factor as Parquet files, and the questions beside them."""

    def __init__(self, folder, scale):
        self.folder, self.scale = Path(folder) / f"data-{scale:g}", scale

    def file(self, table):
        return self.folder / f"{table}.parquet"

    def statement(self, number):
        return (self.folder / f"q{number}.sql").read_text().strip().rstrip(";")

    def make(self):
        if self.folder.exists():
            return
        measure.progress(f"making TPC-H, scale factor {self.scale:g}")
        partial = self.folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        statements = list(written(partial, self.scale))
        job = {"engine": "duckdb", "tables": {}, "threads": measure.cores(), "store": ":memory:", "statements": statements}
        # In a process of its own: what it needs would count as the engine's memory.
        measure.run([sys.executable, queries.PEER], cap_seconds=queries.LOAD_CAP_SECONDS, stdin=json.dumps(job))
        partial.rename(self.folder)
