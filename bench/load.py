#!/usr/bin/env python3
"""How fast do XAB events become a table: uplake against DuckDB, from Parquet and from CSV?

Unit: rows/s from the start of the process to its end (DuckDB: from opening its file).
Floors (2 cores): Parquet into a partitioned and clustered table at 1,000,000 rows/s; CSV at 60 %
of DuckDB's `read_csv` in the same run.

    python load.py DATA [--days 7] [--runs 3] [--out FOLDER]

uplake clustered   partitioned by dt, sorted by user_id, ts within a file: what a user would do
uplake plain       no layout: what DuckDB does
duckdb             CREATE TABLE AS SELECT into its own database file, then CHECKPOINT

The contenders take turns (A B C A B C), each run into a fresh folder that is removed afterwards.
The input is read once before, so it comes from the page cache. DuckDB writes through to the disk
before it ends and uplake does not: `to disk` is what it takes afterwards to sync every file of the
result, and belongs to the price of a load that must survive a power cut.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import measure
import xab

CONTENDERS = ["uplake clustered", "uplake plain", "duckdb"]
INPUTS = ["parquet", "csv"]
FLOOR_ROWS_PER_SECOND = 1_000_000
FLOOR_OF_DUCKDB_CSV = 0.6
CAP_SECONDS = 3600
PEER = Path(__file__).resolve().parent / "peer.py"

# Equal in two tables only if no row was lost, doubled or shifted by a column.
CHECK = (
    "SELECT count(*) AS n, sum(item_id) AS items, sum(duration_ms) AS ms, sum(length(page)) AS letters,"
    " count(DISTINCT user_id) AS users FROM events"
)


def main():
    args = arguments()
    binary = measure.uplake_binary(args.uplake)
    data = xab.DataSet(args.data)
    facts = measure.circumstances(binary)
    files = {"parquet": data.files("events")[: args.days]}
    if "csv" in args.inputs:
        files["csv"] = written_as_csv(data, files["parquet"])

    results = []
    with tempfile.TemporaryDirectory(prefix="uplake-bench-", dir=data.folder.parent) as scratch:
        for kind in args.inputs:
            measure.read_once(files[kind])
            for run in range(args.runs):
                for contender in CONTENDERS:
                    result = one_load(args, binary, contender, kind, files[kind], Path(scratch) / "store")
                    results.append({"input": kind, "contender": contender, "run": run, **result})
                    measure.append_raw(args.out / "load.jsonl", {**facts, **results[-1]})
                    measure.progress(f"{kind:8} {contender:17} {result['seconds']:8.2f} s")
    report(args, data, facts, files, results)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder that `uplake generate` wrote")
    parser.add_argument("--uplake", type=Path, help="the binary (default: $UPLAKE, then target/release/uplake)")
    parser.add_argument("--days", type=int, help="load only so many days (default: all)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each contender (3)")
    parser.add_argument("--inputs", type=lambda text: text.split(","), default=INPUTS, metavar="parquet,csv")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results"), help="where load.jsonl grows")
    args = parser.parse_args()
    if not set(args.inputs) <= set(INPUTS):
        parser.error(f"inputs are {', '.join(INPUTS)}")
    return args


def written_as_csv(data, parquet_files):
    """One CSV file a day beside the Parquet files, made once for each state of those."""
    folder = data.folder / "events-csv"
    folder.mkdir(exist_ok=True)
    csv_files = []
    for file in parquet_files:
        csv = folder / f"{file.stem}.csv"
        if not csv.exists() or csv.stat().st_mtime < file.stat().st_mtime:
            measure.progress(f"writing {csv.name}")
            partial = csv.with_suffix(".partial")
            duckdb(":memory:", 2, [f"COPY (FROM read_parquet('{file}')) TO '{partial}' (FORMAT csv, HEADER)"])
            partial.rename(csv)
        csv_files.append(csv)
    return csv_files


def duckdb(store, threads, statements, check=None):
    job = {"engine": "duckdb", "store": str(store), "threads": threads, "statements": statements}
    if check:
        job["check"] = check
    cost = measure.run([sys.executable, PEER], cap_seconds=CAP_SECONDS, stdin=json.dumps(job))
    return cost, json.loads(cost.out)


def one_load(args, binary, contender, kind, files, store):
    store.mkdir()
    loading = load_duckdb if contender == "duckdb" else load_uplake
    cost, seconds, check = loading(args, binary, contender, kind, files, store)
    result = {
        "seconds": seconds,
        "seconds_to_disk": check.pop("seconds_to_disk"),
        "cpu_seconds": cost.cpu_seconds,
        "peak_bytes": cost.peak_bytes,
        "bytes_on_disk": check.pop("bytes_on_disk"),
        "rows": check["rows"][0],
        "check": check["rows"],
    }
    shutil.rmtree(store)
    return result


def load_uplake(args, binary, contender, kind, files, store):
    layout = xab.LAYOUT["events"] if contender == "uplake clustered" else []
    options = ["--lake", store, "--threads", args.threads]
    cost = measure.run([binary, "load", *options, "--quiet", *layout, "events", *files], cap_seconds=CAP_SECONDS)
    check = settled(store)
    told = measure.run([binary, "sql", *options, "--format", "json", "-c", CHECK], cap_seconds=CAP_SECONDS)
    check["rows"] = list(json.loads(told.out).values())
    return cost, cost.seconds, check


def load_duckdb(args, binary, contender, kind, files, store):
    database = store / "events.duckdb"
    listed = ", ".join(f"'{file}'" for file in files)
    create = f"CREATE TABLE events AS SELECT * FROM read_{kind}([{listed}])"
    cost, told = duckdb(database, args.threads, [create, "CHECKPOINT"])
    check = settled(store)
    _, answer = duckdb(database, args.threads, [], CHECK)
    check["rows"] = answer["rows"][0]
    # Without starting Python and importing the package: kind to DuckDB, by 0.2 s or more.
    return cost, told["seconds"], check


def settled(store):
    return {"seconds_to_disk": measure.seconds_to_disk(store), "bytes_on_disk": measure.bytes_under(store)}


def report(args, data, facts, files, results):
    print(f"# Load\n\n{data.summary()}; {args.threads} threads an engine, medians of {args.runs} runs.")
    print(measure.describe(facts))
    for kind in args.inputs:
        mebibytes = sum(file.stat().st_size for file in files[kind]) / measure.MIB
        here = [result for result in results if result["input"] == kind]
        print(f"\n## From {kind}: {here[0]['rows']:,} events in {len(files[kind])} files, {mebibytes:.0f} MiB\n")
        print(input_table(here), end="")
        print(f"\n{verdict(kind, here)}")
    checks = {json.dumps(result["check"]) for result in results}
    if len(checks) > 1:
        print(f"\nWRONG: the tables differ in {CHECK}:")
        for result in results:
            print(f"- {result['input']}, {result['contender']}: {result['check']}")
        sys.exit(1)
    print("\nEvery table gives the same counts and sums.")


def median(results, contender, field):
    return statistics.median(result[field] for result in results if result["contender"] == contender)


def input_table(results):
    rows = []
    for contender in CONTENDERS:
        of = lambda field: median(results, contender, field)
        rows.append(
            [
                contender,
                f"{of('seconds'):.2f}",
                f"{of('rows') / of('seconds') / 1e6:.2f}",
                f"{of('cpu_seconds'):.1f}",
                f"{of('peak_bytes') / measure.MIB:.0f}",
                f"{of('bytes_on_disk') / measure.MIB:.0f}",
                f"{of('seconds_to_disk'):.2f}",
            ]
        )
    return measure.table(["into", "s", "M rows/s", "CPU s", "peak MiB", "MiB on disk", "then to disk s"], rows)


def verdict(kind, results):
    speed = {c: median(results, c, "rows") / median(results, c, "seconds") for c in CONTENDERS}
    own = speed["uplake clustered"]
    if kind == "parquet":
        met = own >= FLOOR_ROWS_PER_SECOND
        text = f"{own / 1e6:.2f} M rows/s clustered, floor {FLOOR_ROWS_PER_SECOND / 1e6:.0f} M"
    else:
        met = own >= FLOOR_OF_DUCKDB_CSV * speed["duckdb"]
        plain = speed["uplake plain"] / speed["duckdb"]
        text = f"{own / speed['duckdb']:.0%} of DuckDB clustered ({plain:.0%} plain), floor {FLOOR_OF_DUCKDB_CSV:.0%}"
    return f"{text}: {'met' if met else 'NOT met'}."


if __name__ == "__main__":
    main()
