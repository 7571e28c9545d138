#!/usr/bin/env python3
"""What becomes of 24, 100 and 1,000 statements at once in one process: uplake and DuckDB?

Unit: statements/s, seconds a statement from when it is sent (mean, p50, p95), share of the cores,
peak memory. Floor: no error, CPU at least 95 % busy, and at 24 at once p95 at most twice the mean.

    python concurrent.py DATA --stores STORES [--at-once 24,100,1000] [--queries FILE.sql]

STORES is what `queries.py --stores STORES --keep-stores` loaded. The statements are those of
FILE.sql, or XAB's at 1 and 7 days without Q6, round and round. So many senders each send one, wait
for its answer, and send the next, until --statements are sent (at least one a sender). DuckDB has
one database with a cursor a sender and as many threads as uplake; it is asked at 24 alone unless
--peer-at-once says otherwise. Engines take turns, --rounds times.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import measure
import queries
import xab

QUERIES = [query for query in xab.QUERIES if query != "q6"]
RANGES = [1, 7]
BUSY_FLOOR = 0.95
P95_FLOOR = 2.0


def main():
    args = arguments()
    binary = measure.uplake_binary(args.uplake)
    data = xab.DataSet(args.data)
    facts = measure.circumstances(binary)
    statements = texts(args, data)
    print(f"# Many statements at once\n\n{len(statements)} statements in turn; {args.threads} threads an engine.")
    print(f"{measure.describe(facts)}\n")
    results = {}
    for at_once in args.at_once:
        count = max(args.statements, at_once)
        for turn in range(args.rounds):
            runs = {"uplake": run_uplake}
            if at_once in args.peer_at_once:
                runs["duckdb"] = run_duckdb
            for engine in sorted(runs, reverse=turn % 2 == 0):
                try:
                    told = runs[engine](args, binary, statements, at_once, count)
                except (measure.Failed, measure.OverCap) as error:
                    told = {"failed": str(error)}
                results.setdefault((at_once, engine), []).append(told)
                measure.append_raw(args.out / "concurrent.jsonl", {**facts, "at_once": at_once, "engine": engine, **told})
                measure.progress(f"{at_once} at once, {engine}: {told}")
    rows = [row(at_once, engine, runs) for (at_once, engine), runs in results.items()]
    busy = f"CPU of {measure.cores()} cores"
    header = ["at once", "statements/s", busy, "mean s", "p50 s", "p95 s", "p95 / mean", "peak MiB", "errors"]
    print(measure.table(header, rows))
    failed = [run for runs in results.values() for run in runs if "failed" in run or run["errors"]]
    for run in failed:
        print(f"FAILED: {run.get('failed') or str(run['errors']) + ' statements'}")
    sys.exit(1 if failed else 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(number) for number in text.split(",")]
    parser.add_argument("data", type=Path, help="the folder that `uplake generate` wrote")
    parser.add_argument("--stores", type=Path, required=True, help="what queries.py loaded")
    parser.add_argument("--uplake", type=Path, help="the binary (default: $UPLAKE, then target/release/uplake)")
    parser.add_argument("--queries", type=Path, help="a file of statements instead of XAB's")
    parser.add_argument("--at-once", type=numbers, default=[24, 100, 1000])
    parser.add_argument("--peer-at-once", type=numbers, default=[24])
    parser.add_argument("--statements", type=int, default=240, help="statements a run (240)")
    parser.add_argument("--slots", type=int, help="uplake: statements that compute at once")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--cap", type=float, default=1200, help="seconds a run may take (1200)")
    parser.add_argument("--out", type=Path, default=Path("results"), help="where concurrent.jsonl grows")
    return parser.parse_args()


def texts(args, data):
    if args.queries:
        return [text.strip() for text in args.queries.read_text().split(";") if text.strip()]
    ranges = sorted({min(days, len(data.days)) for days in RANGES})
    return [data.statement(query, days) for days in ranges for query in QUERIES]


def run_uplake(args, binary, statements, at_once, count):
    with tempfile.NamedTemporaryFile("w", suffix=".sql", encoding="utf-8") as file:
        file.write("".join(f"{sql};\n" for sql in statements))
        file.flush()
        command = [binary, "bench-concurrent", "--lake", args.stores / "lake", "--queries", file.name]
        command += ["--threads", args.threads, "--at-once", at_once, "--statements", count, "--seconds", args.cap]
        if args.slots:
            command += ["--slots", args.slots]
        cost = measure.run(command, cap_seconds=args.cap)
    return {**json.loads(cost.out), "peak_bytes": cost.peak_bytes}


def run_duckdb(args, binary, statements, at_once, count):
    many = {"statements": statements, "at_once": at_once, "count": count}
    job = {"engine": "duckdb", "store": str(args.stores / "xab.duckdb"), "threads": args.threads, "many": many}
    cost = measure.run([sys.executable, queries.PEER], cap_seconds=args.cap, stdin=json.dumps(job))
    return {**json.loads(cost.out), "peak_bytes": cost.peak_bytes}


def row(at_once, engine, runs):
    runs = [run for run in runs if "failed" not in run]
    name = f"{at_once} {engine}"
    if not runs:
        return [name, *["failed"] * 8]
    middle = lambda value: statistics.median(value(run) for run in runs)
    busy = middle(lambda run: run["cpu_seconds"] / run["seconds"] / measure.cores())
    tail = middle(lambda run: run["p95"] / run["mean"])
    return [
        name,
        f"{middle(lambda run: run['statements'] / run['seconds']):.2f}",
        f"{busy:.0%}{'' if busy >= BUSY_FLOOR else ' (below ' + format(BUSY_FLOOR, '.0%') + ')'}",
        *(f"{middle(lambda run: run[field]):.2f}" for field in ("mean", "p50", "p95")),
        f"{tail:.2f}{'' if tail <= P95_FLOOR or at_once != 24 else ' (over 2)'}",
        f"{max(run['peak_bytes'] for run in runs) / measure.MIB:.0f}",
        sum(run["errors"] for run in runs),
    ]


if __name__ == "__main__":
    main()
