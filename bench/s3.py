#!/usr/bin/env python3
"""XAB's statements on a bucket: cold, with a warm disk cache, in a folder, and with the stock stack.

    bench/s3.py DATA --uplake target/release/uplake --server target/release/uplake-faulty-s3

DATA is a folder of `uplake generate`. The server simulates S3 on a usual day on loopback: 20 ms to the
first byte at the median, 1 % of the requests 150-800 ms later, 70 MB/s a connection, 8 addresses.
Every run is a process of its own. The stock stack is the Python package deltalake: DataFusion and
object_store's own S3 client, reading the same tables; its time is from opening the tables to the last
row. The ways alternate; medians are printed, in seconds.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from xab import LAYOUT, QUERIES, DataSet

PORT = 9478
LAKE = "s3://bucket/lake"
STOCK = """
import sys, time
from deltalake import DeltaTable, QueryBuilder
options = dict(part.split("=", 1) for part in sys.argv[2:])
started = time.perf_counter()
query = QueryBuilder()
for table in ("events", "exposures", "products"):
    if table in sys.argv[1]:
        query.register(table, DeltaTable(f"s3://bucket/lake/{table}", storage_options=options))
rows = query.execute(sys.argv[1])
rows = rows.read_all() if hasattr(rows, "read_all") else list(rows)
print(time.perf_counter() - started)
"""


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
    """Seconds of one statement in a process of its own, or None if it failed."""
    command = [asked.uplake, "sql", "--lake", str(lake), "--timing", "--format", "csv", "-c", sql]
    done = subprocess.run([*command, *options], env=env, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr.strip()[:200], file=sys.stderr)
        return None
    return float(done.stderr.rsplit("time: ", 1)[1])


def stock(env, sql):
    options = [
        f"aws_endpoint=http://127.0.0.11:{PORT}", "aws_allow_http=true", "aws_region=us-east-1",
        "aws_access_key_id=bench", "aws_secret_access_key=bench",
    ]
    command = [sys.executable, "-c", STOCK, sql, *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr.strip().splitlines()[-1][:200], file=sys.stderr)
        return None
    return float(done.stdout)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("data")
    options.add_argument("--uplake", default="uplake")
    options.add_argument("--server", default="uplake-faulty-s3")
    options.add_argument("--days", type=int, default=7)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--queries", default=",".join(QUERIES))
    asked = options.parse_args()
    asked.uplake = str(pathlib.Path(asked.uplake).resolve())
    data = DataSet(asked.data)
    print(data.summary(), f"last {asked.days} days, median of {asked.rounds}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        env = server_environment(folder)
        server = subprocess.Popen(
            [asked.server, f"--port={PORT}", "--addresses=8", "--usual"], stdout=subprocess.DEVNULL
        )
        try:
            time.sleep(1)
            run(asked, data, folder, env)
        finally:
            server.kill()


def run(asked, data, folder, env):
    for lake in (LAKE, folder / "lake"):
        for table, layout in LAYOUT.items():
            began = time.perf_counter()
            command = [asked.uplake, "load", table, data.pattern(table), "--lake", str(lake), *layout]
            subprocess.run(command, env=env, check=True, capture_output=True)
            print(f"load {table} into {'bucket' if lake == LAKE else 'folder'}: "
                  f"{time.perf_counter() - began:.1f} s", flush=True)
    disk = ("--storage", "disk_cache=20GiB")
    ways = {
        "cold": lambda sql: uplake(asked, env, LAKE, sql),
        "disk": lambda sql: uplake(asked, env, LAKE, sql, *disk),
        "folder": lambda sql: uplake(asked, env, folder / "lake", sql),
        "stock": lambda sql: stock(env, sql),
    }
    print(f"{'':6}" + "".join(f"{way:>10}" for way in ways) + "   stock/cold   disk/folder")
    for query in asked.queries.split(","):
        sql = data.statement(query, asked.days)
        ways["disk"](sql)
        times = {way: [] for way in ways}
        for _ in range(asked.rounds):
            for way, measure in ways.items():
                seconds = measure(sql)
                if seconds is not None:
                    times[way].append(seconds)
        medians = {way: statistics.median(t) if t else float("nan") for way, t in times.items()}
        print(f"{query:6}" + "".join(f"{medians[way]:10.3f}" for way in ways)
              + f"{medians['stock'] / medians['cold']:13.1f}{medians['disk'] / medians['folder']:14.2f}",
              flush=True)


if __name__ == "__main__":
    main()
