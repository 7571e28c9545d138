#!/usr/bin/env python3
"""Statements on a bucket: cold, with a warm disk cache, warm, in a folder, and with the stock stack.

    bench/s3.py DATA [--ssb] --uplake target/release/uplake --server target/release/uplake-faulty-s3

DATA is a folder of `uplake generate`, or with --ssb one of bench/ssb.py. The server simulates S3 on a
usual day on loopback: 20 ms to the first byte at the median, 1 % of the requests 150-800 ms later,
70 MB/s a connection, 8 addresses. Every run is a process of its own, which runs the statement once and
`again`. The stock stack is the Python package deltalake: DataFusion and object_store's own
S3 client, reading the same tables; its time is from opening the tables to the last row. The ways
alternate; medians are printed, in seconds.
"""

import argparse
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import ssb
import xab

PORT = 9478
LAKE = "s3://bucket/lake"
# A run of the stock stack that takes longer is given up.
STOCK_SECONDS = 120
STOCK = """
import sys, time
from deltalake import DeltaTable, QueryBuilder
sql, tables = sys.stdin.read(), sys.argv[1].split(",")
options = dict(part.split("=", 1) for part in sys.argv[2:])
query = None
for _ in range(2):
    started = time.perf_counter()
    if query is None:
        query = QueryBuilder()
        for table in tables:
            if table in sql:
                query.register(table, DeltaTable(f"s3://bucket/lake/{table}", storage_options=options))
    rows = query.execute(sql)
    rows = rows.read_all() if hasattr(rows, "read_all") else list(rows)
    print(time.perf_counter() - started)
"""


class Xab:
    """The experiments' statements over the last days."""

    def __init__(self, folder, days):
        self.data, self.days = xab.DataSet(folder), days
        self.layout, self.statements = xab.LAYOUT, xab.QUERIES
        self.title = f"{self.data.summary()}; last {days} days"

    def source(self, table):
        return self.data.pattern(table)

    def statement(self, name, engine=None):
        return self.data.statement(name, self.days, engine)


class Ssb:
    """The Star Schema Benchmark at scale factor 1."""

    def __init__(self, folder):
        self.data = ssb.Data(pathlib.Path(folder).resolve(), 1)
        self.data.make()
        self.layout, self.statements = ssb.LAYOUT, ssb.FLIGHTS
        self.title = "Star Schema Benchmark, scale factor 1"

    def source(self, table):
        return self.data.file(table)

    def statement(self, name, engine=None):
        return self.data.statement(name)


def server_environment(folder):
    (folder / "uplake.toml").write_text(
        "[storage.addresses]\n\"s3.simulated\" = ["
        + ", ".join(f'"127.0.0.{11 + n}"' for n in range(8)) + "]\n"
    )
    return {
        "PATH": os.environ["PATH"], "HOME": str(folder), "UPLAKE_CONFIG": str(folder / "uplake.toml"),
        "AWS_ENDPOINT": f"http://s3.simulated:{PORT}", "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench",
        "UPLAKE_CACHE": str(folder / "cache"),
    }


def uplake(asked, env, lake, sql, *options):
    """Seconds of a statement, first and again, in a process of its own; None if it failed."""
    command = [asked.uplake, "sql", "--lake", str(lake), "--timing", "--format", "csv", "-f", "-"]
    twice = f"{sql.rstrip().rstrip(';')};\n" * 2
    done = subprocess.run([*command, *options], env=env, input=twice, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr.strip()[:200], file=sys.stderr)
        return None
    return [float(line.removeprefix("time: ")) for line in done.stderr.splitlines() if line.startswith("time: ")]


def stock(env, sql, tables):
    options = [
        f"aws_endpoint=http://127.0.0.11:{PORT}", "aws_allow_http=true", "aws_region=us-east-1",
        "aws_access_key_id=bench", "aws_secret_access_key=bench",
    ]
    command = [sys.executable, "-c", STOCK, ",".join(tables), *options]
    try:
        done = subprocess.run(command, input=sql, capture_output=True, text=True, timeout=STOCK_SECONDS)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        print(done.stderr.strip().splitlines()[-1][:200], file=sys.stderr)
        return None
    return [float(line) for line in done.stdout.split()]


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("data")
    options.add_argument("--ssb", action="store_true", help="DATA is of the Star Schema Benchmark")
    options.add_argument("--uplake", default="uplake")
    options.add_argument("--server", default="uplake-faulty-s3")
    options.add_argument("--days", type=int, default=7)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--queries", help="some of them, with commas")
    options.add_argument("--storage", action="append", default=[], help="a setting for the bucket: KEY=VALUE")
    asked = options.parse_args()
    asked.uplake = str(pathlib.Path(asked.uplake).resolve())
    work = Ssb(asked.data) if asked.ssb else Xab(asked.data, asked.days)
    print(f"{work.title}; medians of {asked.rounds}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        env = server_environment(folder)
        server = subprocess.Popen(
            [asked.server, f"--port={PORT}", "--addresses=8", "--usual"], stdout=subprocess.DEVNULL
        )
        try:
            time.sleep(1)
            run(asked, work, folder, env)
        finally:
            server.kill()


def run(asked, work, folder, env):
    for lake in (LAKE, folder / "lake"):
        began = time.perf_counter()
        for table, layout in work.layout.items():
            command = [asked.uplake, "load", table, work.source(table), "--lake", str(lake), *layout]
            subprocess.run(command, env=env, check=True, capture_output=True)
        print(f"loads into {'the bucket' if lake == LAKE else 'a folder'}: {time.perf_counter() - began:.1f} s", flush=True)
    disk = ("--storage", "disk_cache=20GiB")
    settings = [part for setting in asked.storage for part in ("--storage", setting)]
    ways = {
        "bucket": lambda sql: uplake(asked, env, LAKE, sql, *settings),
        "disk": lambda sql: uplake(asked, env, LAKE, sql, *disk),
        "folder": lambda sql: uplake(asked, env, folder / "lake", sql),
        "stock": lambda sql: stock(env, sql, work.layout),
    }
    columns = ["bucket", "disk", "folder", "stock", "bucket again", "folder again", "stock again"]
    ratios = ["stock/bucket", "disk/folder", "bucket/folder again", "stock/bucket again"]
    print("| |" + "|".join([*columns, *ratios]) + "|\n|---|" + "---:|" * len(columns + ratios))
    logs = {name: [] for name in ratios}
    for query in asked.queries.split(",") if asked.queries else work.statements:
        ours, plain = work.statement(query, "uplake"), work.statement(query)
        ways["disk"](ours)
        times = {name: [] for way in ways for name in (way, f"{way} again")}
        for _ in range(asked.rounds):
            for way, measure in ways.items():
                sql = plain if way == "stock" else ours
                for name, seconds in zip((way, f"{way} again"), measure(sql) or ()):
                    times[name].append(seconds)
        medians = {name: statistics.median(t) if t else math.nan for name, t in times.items()}
        shares = [
            medians["stock"] / medians["bucket"], medians["disk"] / medians["folder"],
            medians["bucket again"] / medians["folder again"], medians["stock again"] / medians["bucket again"],
        ]
        for name, share in zip(ratios, shares):
            if share > 0:
                logs[name].append(math.log(share))
        print(f"|{query}|" + "|".join(f"{medians[name]:.3f}" for name in columns) + "|"
              + "|".join(f"{share:.2f}" for share in shares) + "|", flush=True)
    means = [f"{math.exp(statistics.mean(logs[name])):.2f}" if logs[name] else "-" for name in ratios]
    print("|geometric mean|" + "|" * len(columns) + "|".join(means) + "|")


if __name__ == "__main__":
    main()
