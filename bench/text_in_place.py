#!/usr/bin/env python3
"""How fast is a CSV or JSON file answered where it lies: uplake against DuckDB?

Unit: seconds from the start of the process to its end (DuckDB: from after its import, which is kind to it).
Floor: 1.5 times DuckDB, each statement.

    python text_in_place.py FOLDER [--rows 5000000] [--rounds 5] [--only csv,gz] [--out FOLDER]

FOLDER takes the data: one file of about 400 MB, the same rows as JSON lines, and the CSV file compressed. It is
made once, from a seed. Files are read once before, so they come from the page cache. The contenders take turns, a
fresh process each. Answers are compared; a difference ends the program with status 1.

count    how many rows
sum      a sum for each of 200 groups
filter   rows of one user, all their columns
wide     a column of text that is looked into
"""

import argparse
import gzip
import json
import random
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import measure

CAP_SECONDS = 600
FLOOR = 1.5
KINDS = {"csv": "events.csv", "json": "events.jsonl", "gz": "events.csv.gz"}
STATEMENTS = {
    "count": "SELECT count(*) AS n FROM '{file}'",
    "sum": "SELECT shop, count(*) AS n, round(sum(amount), 2) AS amount FROM '{file}' GROUP BY shop ORDER BY shop",
    "filter": "SELECT user_id, shop, page, amount FROM '{file}' WHERE user_id = 'user-0000004711' ORDER BY amount, page",
    "wide": "SELECT count(*) AS n FROM '{file}' WHERE page LIKE '%/sale/%'",
}
PEER = """
import json, sys, time
import duckdb
started = time.perf_counter()
connection = duckdb.connect()
connection.execute(f"SET threads = {sys.argv[2]}")
connection.execute("SET enable_progress_bar = false")
rows = connection.execute(sys.argv[1]).fetchall()
print(json.dumps({"seconds": time.perf_counter() - started, "rows": rows}, default=str))
"""


def main():
    args = arguments()
    binary = measure.uplake_binary(args.uplake)
    facts = measure.circumstances(binary)
    files = {kind: args.folder / name for kind, name in KINDS.items() if kind in args.only}
    make(args.folder, args.rows, files)
    results, differ = [], []
    with tempfile.TemporaryDirectory(prefix="uplake-bench-") as scratch:
        for kind, file in files.items():
            measure.read_once([file])
            for name, text in STATEMENTS.items():
                sql = text.format(file=file)
                times, rows = {"uplake": [], "duckdb": []}, {}
                for _ in range(args.rounds):
                    for engine in times:
                        seconds, rows[engine] = ask(engine, sql, binary, Path(scratch) / "lake")
                        times[engine].append(seconds)
                if not alike(rows["uplake"], rows["duckdb"]):
                    differ.append(f"{kind} {name}")
                medians = {engine: statistics.median(each) for engine, each in times.items()}
                results.append({"kind": kind, "statement": name, **medians, "times": times})
                if args.out:
                    measure.append_raw(args.out / "text_in_place.jsonl", {**facts, **results[-1]})
    print(summary(args, facts, results, files))
    for what in differ:
        print(f"DIFFERENT ANSWERS: {what}")
    sys.exit(1 if differ else 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the data is, or is made")
    parser.add_argument("--uplake", type=Path, help="the binary (default: $UPLAKE, then target/release/uplake)")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(KINDS), help="csv, json, gz")
    parser.add_argument("--out", type=Path, help="raw results are added to a file in this folder")
    return parser.parse_args()


def make(folder, rows, files):
    """Lines of about 80 bytes: a user, a shop, a time, a page, an amount that is sometimes missing."""
    folder.mkdir(parents=True, exist_ok=True)
    said = folder / "rows"
    if said.exists() and said.read_text() == str(rows) and all(file.exists() for file in files.values()):
        return
    rng = random.Random(7)
    pages = [f"/{rng.choice(['shop', 'sale', 'help', 'cart'])}/{rng.randrange(100_000)}/view" for _ in range(50_000)]
    with open(folder / KINDS["csv"], "w") as csv, open(folder / KINDS["json"], "w") as lines:
        csv.write("user_id,shop,ts,page,amount,clicks\n")
        for i in range(rows):
            user, shop, page = f"user-{rng.randrange(500_000):010d}", rng.randrange(200), rng.choice(pages)
            ts = f"2026-11-{1 + i % 28:02d} {i // 3600 % 24:02d}:{i // 60 % 60:02d}:{i % 60:02d}"
            amount = "" if i % 7 == 0 else f"{rng.randrange(1, 20_000) / 100}"
            clicks = rng.randrange(30)
            csv.write(f"{user},{shop},{ts},{page},{amount},{clicks}\n")
            lines.write(
                f'{{"user_id":"{user}","shop":{shop},"ts":"{ts}","page":"{page}",'
                f'"amount":{amount or "null"},"clicks":{clicks}}}\n'
            )
    with open(folder / KINDS["csv"], "rb") as plain, gzip.open(folder / KINDS["gz"], "wb", compresslevel=4) as packed:
        shutil.copyfileobj(plain, packed, 8 * measure.MIB)
    said.write_text(str(rows))


def ask(engine, sql, binary, lake):
    threads = str(measure.cores())
    if engine == "duckdb":
        told = json.loads(measure.run([sys.executable, "-c", PEER, sql, threads], cap_seconds=CAP_SECONDS).out)
        return told["seconds"], told["rows"]
    command = [binary, "--lake", lake, "sql", "--threads", threads, "--format", "json", "-c", sql]
    cost = measure.run(command, cap_seconds=CAP_SECONDS)
    return cost.seconds, [list(json.loads(line).values()) for line in cost.out.splitlines() if line]


def alike(ours, theirs):
    """Sums of doubles depend on their order."""
    def same(a, b):
        if isinstance(a, float) or isinstance(b, float):
            return a is not None and b is not None and abs(a - b) <= 0.02 + 1e-9 * abs(a)
        return a == b

    rows = list(zip(ours, theirs))
    return len(ours) == len(theirs) and all(
        len(a) == len(b) and all(map(same, a, b)) for a, b in rows
    )


def summary(args, facts, results, files):
    rows = [
        [r["kind"], r["statement"], f"{r['uplake']:.2f}", f"{r['duckdb']:.2f}", f"{r['uplake'] / r['duckdb']:.2f}"]
        for r in results
    ]
    sizes = ", ".join(f"{kind} {file.stat().st_size / 1e6:.0f} MB" for kind, file in files.items())
    missed = [f"{r['kind']} {r['statement']}" for r in results if r["uplake"] > FLOOR * r["duckdb"]]
    text = f"# Text files in place, {args.rows:,} rows ({sizes})\n\n"
    text += measure.table(["file", "statement", "uplake s", "DuckDB s", "ratio"], rows)
    text += f"\n\n{measure.describe(facts)}\n"
    return text + (f"\nFLOOR OF {FLOOR} NOT MET: {', '.join(missed)}\n" if missed else "")


if __name__ == "__main__":
    main()
