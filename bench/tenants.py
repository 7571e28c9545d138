#!/usr/bin/env python3
"""Does one tenant's flood hurt another? Short statements of one, alone and beside long scans of the other.

    bench/tenants.py                   200 long scans at once; some minutes; JSON on standard output
    bench/tenants.py --quick           proves the program, gives no figure

One server with two tenants of the same weight. `small` asks short statements over one connection, one after the
other: alone, then while `flood` has as many long scans running and waiting as it is told, each asked again as soon as
it is done. p50 and p95 of the short ones in ms, both in one run. Floor: p95 beside the flood at most twice that alone.

Needs psycopg. UPLAKE names the binary.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
# In place of this folder, whose `concurrent` would stand before Python's own.
sys.path[0] = str(ROOT / "tests/wire")
os.environ["UPLAKE_BIN"] = os.environ.get("UPLAKE", str(ROOT / "target/release/uplake"))

import psycopg
import support

PASSWORD = "a password of benchmarks"
DATA = """
create table small as select x as id, x % 100 as part from generate_series(1, 100000) g(x);
create table large as select x as id, x % 1000 as part, (x * 7919) % 1000003 as value, 'user-' || (x % 500000) as name
from generate_series(1, {rows}) g(x);
"""
SHORT = [
    "select count(*) from small where part = 3", "select part, sum(id) from small where id < 5000 group by part",
    "select id from small where id = 4711",
]
LONG = "select name, count(distinct value), sum(part) from large group by name order by 2 desc limit 5"


def connect(address, user):
    host, port = address
    words = {"host": host, "port": port, "user": user, "password": PASSWORD, "dbname": support.DATABASE}
    return psycopg.connect(**words, autocommit=True, connect_timeout=60)


def flood(address, count, done, ready, stop):
    """Long scans over so many connections, until told to stop."""

    def ask(wire):
        while not stop.is_set():
            try:
                wire.execute(LONG)
            except psycopg.Error as error:
                if not stop.is_set():
                    print(f"a long scan failed: {error}", file=sys.stderr)
                return
            with done.get_lock():
                done.value += 1

    wires = [connect(address, "ann") for _ in range(count)]
    threads = [threading.Thread(target=ask, args=[wire], daemon=True) for wire in wires]
    for thread in threads:
        thread.start()
    ready.set()
    stop.wait()
    for wire in wires:
        with contextlib.suppress(psycopg.Error):
            wire.cancel()
    os._exit(0)


def short(wire, seconds):
    times, began = [], time.perf_counter()
    while time.perf_counter() - began < seconds:
        asked = time.perf_counter()
        wire.execute(SHORT[len(times) % len(SHORT)]).fetchall()
        times.append(time.perf_counter() - asked)
    times.sort()
    ms = lambda at: round(times[min(len(times) - 1, int(len(times) * at))] * 1000, 2)
    return {"statements": len(times), "p50_ms": ms(0.5), "p95_ms": ms(0.95), "p99_ms": ms(0.99)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--flood", type=int, default=200, metavar="N", help="long scans at once")
    parser.add_argument("--seconds", type=float, default=30, help="of each half")
    parser.add_argument("--rows", type=int, default=20_000_000, help="of the long scans")
    args = parser.parse_args()
    if args.quick:
        args.flood, args.seconds, args.rows = 20, 3, 500_000
    folder = pathlib.Path(tempfile.mkdtemp(prefix="uplake-tenants-"))
    lake = support.make_lake(folder, DATA.format(rows=args.rows))
    for tenant, user in (("flood", "ann"), ("small", "bob")):
        for words in (["tenant", "add", tenant], ["user", "add", user, "--role", "reader", "--tenant", tenant]):
            command = [support.binary(), *words, "--lake", str(lake)]
            subprocess.run(command, input=PASSWORD + "\n", text=True, check=True, capture_output=True)
    server = support.Server(folder, lake)
    found = {"flood": args.flood, "rows": args.rows, "load_before": os.getloadavg()[0]}
    try:
        with connect(server.pg, "bob") as wire:
            short(wire, args.seconds / 5)
            found["alone"] = short(wire, args.seconds)
            done, ready, stop = multiprocessing.Value("q", 0), multiprocessing.Event(), multiprocessing.Event()
            process = multiprocessing.Process(target=flood, args=[server.pg, args.flood, done, ready, stop])
            process.start()
            assert ready.wait(120), "the flood does not begin"
            short(wire, args.seconds / 5)
            found["flooded"] = short(wire, args.seconds)
            found["long_scans_done"] = done.value
            stop.set()
            process.join(30)
    finally:
        server.stop()
        subprocess.run(["rm", "-rf", str(folder)])
    found["p95_ratio"] = round(found["flooded"]["p95_ms"] / found["alone"]["p95_ms"], 2)
    print(json.dumps(found, indent=1))
    if found["p95_ratio"] > 2 and not args.quick:
        print("floor not met: p95 beside the flood at most twice that alone", file=sys.stderr)


if __name__ == "__main__":
    main()
