"""One peer engine in one process: reads a job from standard input, writes what happened as JSON.

Job: {"engine", "store", "tables", "threads", "sql", "repeats"}; load jobs have "engine": "duckdb"
and "statements" instead of "sql"; a list as "sql" is asked one by one; those of many at once have
"many": {"statements", "at_once", "count"}. Times count from after the imports, which is kind to the peers:
uplake's cold time counts its whole process.
"""

import datetime
import decimal
import json
import math
import sys
import threading
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


class ChDb:
    """ClickHouse in this process, over tables of its own sorted as the lake's are."""

    def __init__(self, job):
        self.session = Session(job["store"] + ".chdb")
        self.session.query(f"SET max_threads = {job['threads']}")
        self.session.query("SET max_query_size = 100000000")
        self.session.query("SET output_format_arrow_date_as_uint16 = 0")

    def execute(self, sql):
        return self.session.query(sql, "ArrowStream")

    def rows(self, sql):
        answer = pyarrow.ipc.open_stream(self.execute(sql).bytes()).read_all()
        return answer.column_names, list(zip(*(column.to_pylist() for column in answer.columns)))


ENGINES = {"duckdb": DuckDb, "datafusion": DataFusion, "chdb": ChDb}


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


def ask_each(engine, job, opened):
    """The first one's time counts the opening of the store."""
    each, rows, before = [], [], time.process_time()
    for sql in job["sql"]:
        rows += engine.rows(sql)[1]
        each.append(time.perf_counter() - opened)
        opened = time.perf_counter()
    cpu_seconds = time.process_time() - before
    return {"each": each, "cpu_seconds": cpu_seconds, "rows": [[plain(v) for v in row] for row in rows]}


def load(engine, job, opened):
    connection = engine if job["engine"] == "chdb" else engine.connection
    for statement in job["statements"]:
        connection.execute(statement)
    if job["engine"] == "chdb":
        return {"seconds": time.perf_counter() - opened}
    rows = engine.connection.execute(job["check"]).fetchall() if "check" in job else []
    engine.connection.close()
    return {"seconds": time.perf_counter() - opened, "rows": [[plain(v) for v in row] for row in rows]}


def many(engine, job, opened):
    """DuckDB: so many cursors at once, each with a statement at a time."""
    about, left, lock = job["many"], iter(range(job["many"]["count"])), threading.Lock()
    times, errors = [], []

    def send():
        cursor = engine.connection.cursor()
        while True:
            with lock:
                number = next(left, None)
            if number is None:
                return
            begun = time.perf_counter()
            try:
                cursor.execute(about["statements"][number % len(about["statements"])]).fetchall()
                times.append(time.perf_counter() - begun)
            except duckdb.Error as error:
                errors.append(str(error))

    before = time.process_time()
    senders = [threading.Thread(target=send) for _ in range(about["at_once"])]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    times.sort()
    share = lambda part: times[min(int(part * len(times)), len(times) - 1)]
    return {
        "statements": len(times),
        "seconds": time.perf_counter() - opened,
        "cpu_seconds": time.process_time() - before,
        "mean": sum(times) / len(times),
        "p50": share(0.5),
        "p95": share(0.95),
        "errors": len(errors),
    }


if __name__ == "__main__":
    job = json.load(sys.stdin)
    if job["engine"] == "duckdb":
        import duckdb
    elif job["engine"] == "chdb":
        import pyarrow
        from chdb.session import Session
    else:
        import datafusion
    opened = time.perf_counter()
    engine = ENGINES[job["engine"]](job)
    asks = ask_each if isinstance(job.get("sql"), list) else ask
    work = many if "many" in job else load if "statements" in job else asks
    json.dump(work(engine, job, opened), sys.stdout, ensure_ascii=False)
