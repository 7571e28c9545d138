"""One peer engine in one process: reads a job from standard input, writes what happened as JSON.

Job: {"engine", "store", "tables", "threads", "sql", "repeats"}; load jobs have "engine": "duckdb"
and "statements" instead of "sql". Times count from after the imports, which is kind to the peers:
uplake's cold time counts its whole process.
"""

import datetime
import decimal
import json
import math
import sys
import time


class DuckDb:
    def __init__(self, job):
        self.connection = duckdb.connect(job["store"], read_only="statements" not in job)
        self.connection.execute(f"SET threads = {job['threads']}")

    def rows(self, sql):
        answer = self.connection.execute(sql)
        return [column[0] for column in answer.description], answer.fetchall()


class DataFusion:
    """Plain DataFusion with its defaults, over the Parquet files as they were generated."""

    def __init__(self, job):
        config = datafusion.SessionConfig().with_target_partitions(job["threads"])
        self.context = datafusion.SessionContext(config)
        for table, folder in job["tables"].items():
            self.context.register_parquet(table, folder)

    def rows(self, sql):
        frame = self.context.sql(sql)
        rows = []
        for batch in frame.collect():
            rows += zip(*(column.to_pylist() for column in batch.columns))
        return frame.schema().names, rows


def plain(value):
    """A value as JSON can carry it; times as text with milliseconds."""
    if isinstance(value, decimal.Decimal):
        return float(value) if value % 1 else int(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value


def ask(engine, job, opened):
    columns, rows = engine.rows(job["sql"])
    first = time.perf_counter() - opened
    hot = []
    for _ in range(job["repeats"]):
        started = time.perf_counter()
        engine.rows(job["sql"])
        hot.append(time.perf_counter() - started)
    return {"first": first, "hot": hot, "columns": columns, "rows": [[plain(v) for v in row] for row in rows]}


def load(engine, job, opened):
    for statement in job["statements"]:
        engine.connection.execute(statement)
    rows = engine.connection.execute(job["check"]).fetchall() if "check" in job else []
    engine.connection.close()
    return {"seconds": time.perf_counter() - opened, "rows": [[plain(v) for v in row] for row in rows]}


if __name__ == "__main__":
    job = json.load(sys.stdin)
    if job["engine"] == "duckdb":
        import duckdb
    else:
        import datafusion
    opened = time.perf_counter()
    engine = (DuckDb if job["engine"] == "duckdb" else DataFusion)(job)
    json.dump((load if "statements" in job else ask)(engine, job, opened), sys.stdout, ensure_ascii=False)
