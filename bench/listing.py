#!/usr/bin/env python3
"""What does a look at a large lake cost, and what do sockets that never log in?

    bench/listing.py                   1,000 tables in a bucket; JSON on standard output
    bench/listing.py --folder          the same in a folder
    bench/listing.py --only connects
    bench/listing.py --quick           proves the program, gives no figure

    looks       psql's own queries for `\\d` and `\\d TABLE`, which `psql -E` shows, over one connection, after one look
                that does not count: p50 and p99 of all queries of a look in ms, and the requests that they made to the
                store. Goal: `\\d` in 50 ms, without a request
    connects    sockets that are opened and closed, by so many processes, without a word, and with a few bytes that are
                no login: a second; and meanwhile the p50 and p99 of `SELECT 1` of a client that is logged in, in ms, and
                afterwards what is held. Goal: 10,000 a second, none of which hurts who is logged in

Needs psycopg, psql, and for a bucket versitygw (`make s3-server`). UPLAKE names the binary.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
# In place of this folder, whose `concurrent` would stand before Python's own.
sys.path[0] = str(ROOT / "tests/wire")
sys.path.append(str(ROOT / "tests"))
os.environ["UPLAKE_BIN"] = os.environ.get("UPLAKE", str(ROOT / "target/release/uplake"))

from concurrent.futures import ThreadPoolExecutor

import buckets
import psycopg
import support

# The first bytes of HTTP, where a length is expected.
NO_LOGIN = b"GET / HTTP/1.1\r\n\r\n"
ASK_EVERY_S = 0.005
QUERY = re.compile(r"^(?:/)?\*+ QUERY \*+/?$(.*?)^(?:/)?\*+/?$", re.MULTILINE | re.DOTALL)


def percentiles(times):
    times = sorted(times)
    at = lambda share: round(times[min(len(times) - 1, int(len(times) * share))] * 1000, 2)
    return {"p50_ms": at(0.5), "p99_ms": at(0.99), "n": len(times)}


def queries(server, command):
    """What psql asks for a command of its own."""
    host, port = server.pg
    words = ["psql", "-X", "-E", "-h", host, "-p", str(port), "-U", support.USER, "-d", support.DATABASE, "-c", command]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    found = [text.strip().rstrip(";") for text in QUERY.findall(said.stdout + said.stderr)]
    if not found:
        raise RuntimeError(f"psql -E shows no query of {command}: {said.stderr}")
    return found


def requests(server):
    text = server.ask("GET", "/metrics")[2].decode()
    found = re.findall(r'^uplake_storage_requests_total\{([^}]*)\} (\S+)$', text, re.MULTILINE)
    counts = {"statements": 0, "server": 0}
    for labels, count in found:
        counts["server" if 'for="server"' in labels else "statements"] += int(float(count))
    return counts


def looks(server, tables, count):
    found = {}
    with psycopg.connect(server.url, autocommit=True) as wire:
        for name, command in {"d": "\\d", "d_table": f"\\d t{tables // 2:04}"}.items():
            asked = queries(server, command)
            look = lambda: [wire.execute(text).fetchall() for text in asked]
            rows = len(look()[-1]) if name == "d" else tables
            if rows < tables:
                raise RuntimeError(f"{rows} tables are listed of {tables}")
            before, times = requests(server), []
            for _ in range(count):
                began = time.perf_counter()
                look()
                times.append(time.perf_counter() - began)
            after = requests(server)
            found[name] = percentiles(times) | {"queries": len(asked)}
            found[name] |= {f"requests_of_{who}": after[who] - before[who] for who in after}
    return found


def knock(address, says, until, done):
    count = 0
    while time.monotonic() < until:
        wire = socket.socket()
        try:
            # A reset, so that no port waits for a minute.
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            wire.connect(address)
            if says:
                wire.send(says)
            count += 1
        except OSError:
            pass
        finally:
            wire.close()
    done.put(count)


def connects(server, seconds, processes):
    found = {}
    with psycopg.connect(server.url, autocommit=True) as wire:
        def ask(seconds):
            times, until = [], time.monotonic() + seconds
            while time.monotonic() < until:
                began = time.perf_counter()
                wire.execute("select 1").fetchall()
                times.append(time.perf_counter() - began)
                # One that asks without a pause takes a core from those that are counted.
                time.sleep(ASK_EVERY_S)
            return percentiles(times)

        found["alone"] = ask(seconds / 2)
        for name, says in {"silent": b"", "no_login": NO_LOGIN}.items():
            done, until = multiprocessing.Queue(), time.monotonic() + seconds
            knocks = [multiprocessing.Process(target=knock, args=[server.pg, says, until, done]) for _ in range(processes)]
            for process in knocks:
                process.start()
            beside = ask(seconds)
            opened = sum(done.get(timeout=60) for _ in knocks)
            for process in knocks:
                process.join()
            found[name] = {"connects_per_s": round(opened / seconds), "select_1": beside}
    server.free(10)
    sockets = lambda: sum("socket:" in os.readlink(link) for link in links())
    links = lambda: [f"/proc/{server.process.pid}/fd/{fd}" for fd in os.listdir(f"/proc/{server.process.pid}/fd")]
    support.within(15, lambda: sockets() < 30, "sockets are closed")
    found["sockets_left"] = sockets()
    return found


def make(folder, tables):
    """A lake of empty tables in a folder."""
    text = "".join(f"create table t{n:04} (id bigint, name text, at timestamp);\n" for n in range(tables))
    words = [support.binary(), "sql", "--lake", str(folder)]
    subprocess.run(words, input=text, text=True, check=True, capture_output=True)


def upload(client, folder, prefix):
    """A folder's files to a bucket: tables that are made there one after the other take a second each."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    put = lambda path: client.put_object(
        Bucket=buckets.BUCKET, Key=f"{prefix}/{path.relative_to(folder)}", Body=path.read_bytes()
    )
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(put, files))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", action="store_true", help="not in a bucket")
    parser.add_argument("--only", choices=["looks", "connects"])
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--looks", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10, help="of each kind of connects")
    parser.add_argument("--processes", type=int, default=4, help="that open sockets")
    args = parser.parse_args()
    if args.quick:
        args.tables, args.looks, args.seconds = 20, 5, 1
    tables = args.tables if args.only != "connects" else 1
    with tempfile.TemporaryDirectory(prefix="uplake-listing-") as folder:
        folder, store, environment = pathlib.Path(folder), None, dict(os.environ)
        lake = folder / "lake"
        made = time.perf_counter()
        make(lake, tables)
        try:
            if not args.folder and args.only != "connects":
                gateway = buckets.gateway() or str(support.tools().parent / "bin/versitygw")
                store = buckets.Gateway(gateway)
                store.client().create_bucket(Bucket=buckets.BUCKET)
                upload(store.client(), lake, "listing")
                lake, environment = buckets.url(store, "listing"), buckets.environment(store)
                environment["UPLAKE_CACHE"] = str(folder / "cache")
            found = {"tables": tables, "where": "folder" if store is None else "bucket", "load_before": os.getloadavg()[0]}
            found["made_s"] = round(time.perf_counter() - made, 1)
            server = support.Server(folder / "server", lake, env=environment)
            try:
                if args.only != "connects":
                    found["looks"] = looks(server, tables, args.looks)
                if args.only != "looks":
                    found["connects"] = connects(server, args.seconds, args.processes)
            finally:
                server.stop()
        finally:
            if store is not None:
                store.stop()
    found["load_after"] = os.getloadavg()[0]
    print(json.dumps(found, indent=1))
    if not args.quick and "looks" in found:
        look = found["looks"]["d"]
        if look["p99_ms"] > 50 or look["requests_of_statements"]:
            print("goal not met: \\d in 50 ms, without a request", file=sys.stderr)


if __name__ == "__main__":
    main()
