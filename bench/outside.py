#!/usr/bin/env python3
"""What do statements that others write cost: GrowthBook's check, unknown ids, first rows of groups, TPC-H?

Unit: milliseconds a statement, first in a fresh process and later in the same one; CPU seconds and MiB
at the peak of a process. Floors: the check 0.5 s, later ids 50 ms, g08 1.3 times DuckDB, the first of
Q21 3 times DuckDB's.

    python outside.py FOLDER [--only ids,g08] [--rounds 5] [--keep-stores]

    pip install duckdb==1.5.5 duckdb-extension-tpch==1.5.5        (or any DuckDB that can install it)

FOLDER takes the data (made once; the same rows each time) and the tables made of it. Engines take turns:
a round is one process each, which asks a question's statements one after the other. Those of `ids` are of
other ids each time, and the first `WARM` do not count as later ones: which columns are kept is decided by
then. The others are asked again as they are. Times are medians of all rounds. CPU is that of the whole
process, of DuckDB's without its start. Answers are compared; a difference ends the program with status 1.

check   is a user in two variants? 155,000 users, 1 M rows
ids     100, 1,000 and 10,000 of 10 M products, with an index and as an id domain
g08     of H2O's group-by benchmark: the two largest values of 100,000 groups, 10 M rows
tpch    TPC-H, scale factor 1
"""

import argparse
import json
import math
import random
import shutil
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

import measure
import queries
import tpch

ASKED = 6
WARM = 14
CAP_SECONDS = 300
USERS, EXPOSURES, ROWS, GROUPS = 155_000, 1_000_000, 10_000_000, 100
TPCH = [1, 4, 10, 18, 21]

DATA = {
    "exposures": f"""
        SELECT printf('user-%016x', hash(u)) AS user_id,
               CASE WHEN hash(i * 31) % 1000 = 0 THEN '2' ELSE (hash(u) % 2)::VARCHAR END AS variation,
               CASE WHEN hash(i * 31) % 1000 = 0 THEN 2 ELSE (hash(u) % 2)::INT END AS variation_id,
               printf('item%07d', hash(i) % 1000000) AS item,
               TIMESTAMP '2026-01-01' + INTERVAL 1 SECOND * (hash(i * 13) % 2000000)::BIGINT AS ts
        FROM (SELECT i, hash(i * 19) % {USERS} AS u FROM range({EXPOSURES}) r(i))""",
    "products": f"""
        SELECT i AS product_id, printf('B%010d', i * 7) AS asin,
               'Product ' || hash(i) % 1000000 || ' of brand ' || hash(i * 7) % 5000 AS title,
               'category ' || hash(i * 3) % 30 AS category,
               round(1 + (hash(i * 5) % 100000) / 100.0, 2)::DOUBLE AS price,
               (hash(i * 11) % 10000)::INT AS stock
        FROM range({ROWS}) r(i) ORDER BY hash(i * 17)""",
    "x": f"""
        SELECT printf('id%03d', hash(i * 3) % {GROUPS} + 1) AS id1,
               printf('id%010d', hash(i * 5) % {ROWS // GROUPS} + 1) AS id3,
               (hash(i * 7) % {ROWS // GROUPS} + 1)::INT AS id6,
               (hash(i * 11) % 5 + 1)::INT AS v1,
               round((hash(i * 13) % 100000000) / 1000000.0, 6)::DOUBLE AS v3
        FROM range({ROWS}) r(i)""",
}
# Tables of uplake: their data and how they are loaded.
TABLES = {
    "exposures": ("exposures", []),
    "exposures_ids": ("exposures", ["--id-domain", "user_id=users"]),
    "products": ("products", ["--index", "product_id,asin"]),
    "products_ids": ("products", ["--id-domain", "asin=products"]),
    "x": ("x", []),
    **{name: (name, []) for name in tpch.TABLES},
}


@dataclass
class Question:
    name: str
    # For each engine and round: what is asked.
    statements: list
    # How many of them do not count as later ones.
    warm: int = 1


def check(table, what):
    text = f"SELECT count(*) AS n, min(v) AS v FROM (SELECT user_id, {what} FROM {table} GROUP BY user_id) t WHERE d > 1"
    return [text] * ASKED


def ids(table, column, key, count, what, rounds):
    chance = random.Random(f"{table} {count} {what}")
    drawn = lambda: ", ".join(key(n) for n in chance.sample(range(ROWS), count))
    of_round = lambda: [f"SELECT {what.format(table=table, column=column, ids=drawn())}" for _ in range(WARM + ASKED)]
    return [of_round() for _ in range(rounds)]


def questions(args):
    text, number = lambda n: f"'B{n * 7:010d}'", str
    top = "{column}, price FROM {table} WHERE {column} IN ({ids}) ORDER BY price, {column} LIMIT 20"
    total = "count(*) AS n, sum(stock) AS s FROM {table} WHERE {column} IN ({ids})"
    if "check" in args.only:
        for table in ("exposures", "exposures_ids"):
            for name, what in {
                "text": "min(variation) AS v, count(DISTINCT variation) AS d",
                "integer": "min(variation_id) AS v, count(DISTINCT variation_id) AS d",
                "both, and items": "min(variation) AS v, count(DISTINCT variation) AS d,"
                " count(DISTINCT variation_id) AS e, count(DISTINCT item) AS f",
            }.items():
                yield Question(f"check, {name}, {table}", [check(table, what)] * args.rounds)
    if "ids" in args.only:
        of = [("products", "product_id", number), ("products", "asin", text), ("products_ids", "asin", text)]
        for table, column, key in of:
            for name, what in (("top 20", top), ("sum", total)):
                for count in (100, 1_000, 10_000):
                    asked = ids(table, column, key, count, what, args.rounds)
                    yield Question(f"{count:,} of {table}.{column}, {name}", asked, WARM)
    if "g08" in args.only:
        sql = (
            "SELECT id6, v3 FROM (SELECT id6, v3, row_number() OVER (PARTITION BY id6 ORDER BY v3 DESC) AS r"
            " FROM x WHERE v3 IS NOT NULL) t WHERE r <= 2"
        )
        yield Question("g08", [[f"SELECT count(*) AS n, sum(v3) AS v FROM ({sql}) t"] * ASKED] * args.rounds)
    if "tpch" in args.only:
        for number in TPCH:
            sql = (args.folder / "data" / f"q{number}.sql").read_text().strip().rstrip(";")
            yield Question(f"TPC-H Q{number}", [[sql] * ASKED] * args.rounds)


def main():
    args = arguments()
    binary = measure.uplake_binary(args.uplake)
    make(args)
    load(args, binary)
    for file in sorted(args.folder.rglob("*.parquet")):
        measure.read_once([file])
    print(f"# Statements from outside\n\n{args.rounds} rounds, {args.threads} threads.")
    print(f"{measure.describe(measure.circumstances(binary))}\n")
    rows, wrong = [], []
    for question in questions(args):
        times = {"uplake": ([], [], []), "duckdb": ([], [], [])}
        peaks = dict.fromkeys(times, 0)
        for turn, statements in enumerate(question.statements):
            told = {}
            for engine in sorted(times, reverse=turn % 2 == 0):
                ask = ask_uplake if engine == "uplake" else ask_duckdb
                seconds, cpu, peak, told[engine] = ask(args, binary, statements)
                times[engine][0].append(1000 * seconds[0])
                times[engine][1].extend(1000 * second for second in seconds[question.warm :])
                times[engine][2].append(cpu)
                peaks[engine] = max(peaks[engine], peak)
            if not alike(told["uplake"], told["duckdb"]):
                wrong.append(f"{question.name}: {told['uplake'][:3]} is not {told['duckdb'][:3]}")
        row = [question.name]
        for at, digits in enumerate((0, 0, 2)):
            ours, theirs = (statistics.median(of[at]) for of in times.values())
            row += [f"{ours:.{digits}f}", f"{theirs:.{digits}f}", f"{ours / theirs:.2f}"]
        rows.append([*row, *(str(peak >> 20) for peak in peaks.values())])
        measure.progress("  ".join(rows[-1]))
    both = lambda what: [f"uplake {what}", f"duckdb {what}", "ratio"]
    head = ["", *both("first ms"), *both("later ms"), *both("cpu s"), "uplake MiB", "duckdb MiB"]
    print(measure.table(head, rows))
    for text in wrong:
        print(f"WRONG ANSWER: {text}")
    sys.exit(1 if wrong else 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where data and tables go")
    parser.add_argument("--uplake", type=Path)
    parser.add_argument("--only", type=lambda text: text.split(","), default=["check", "ids", "g08", "tpch"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--keep-stores", action="store_true", help="do not load again what is loaded")
    args = parser.parse_args()
    args.folder = args.folder.resolve()
    return args


def make(args):
    """The data as Parquet files, made by DuckDB."""
    data = args.folder / "data"
    if data.exists():
        return
    data.mkdir(parents=True)
    measure.progress("making data")
    own = [f"COPY ({sql}) TO '{data}/{name}.parquet'" for name, sql in DATA.items()]
    peer(args, {"store": ":memory:", "statements": [*tpch.written(data, 1), *own]})


def load(args, binary):
    lake, store = args.folder / "lake", args.folder / "tables.duckdb"
    if args.keep_stores and lake.exists() and store.exists():
        return
    shutil.rmtree(lake, ignore_errors=True)
    store.unlink(missing_ok=True)
    file = lambda data: args.folder / "data" / f"{data}.parquet"
    for table, (data, layout) in TABLES.items():
        measure.progress(f"loading {table}")
        command = [binary, "load", "--lake", lake, "--threads", args.threads, "--quiet", *layout, table, file(data)]
        measure.run(command, cap_seconds=CAP_SECONDS)
    tables = [f"CREATE TABLE {table} AS FROM '{file(data)}'" for table, (data, _) in TABLES.items()]
    peer(args, {"store": str(store), "statements": [*tables, "CHECKPOINT"]})


def peer(args, job):
    job = {"engine": "duckdb", "tables": {}, "threads": args.threads, **job}
    cost = measure.run([sys.executable, queries.PEER], cap_seconds=CAP_SECONDS, stdin=json.dumps(job))
    return cost, json.loads(cost.out)


def ask_duckdb(args, _, statements):
    cost, told = peer(args, {"store": str(args.folder / "tables.duckdb"), "sql": statements, "repeats": 0})
    return told["each"], told["cpu_seconds"], cost.peak_bytes, told["rows"]


def ask_uplake(args, binary, statements):
    command = [binary, "sql", "--lake", args.folder / "lake", "--threads", args.threads, "--timing"]
    text = ";\n".join(statements)
    cost = measure.run([*command, "--format", "json", "-f", "-"], cap_seconds=CAP_SECONDS, stdin=text)
    seconds = [float(line.split()[1]) for line in cost.err.splitlines() if line.startswith("time: ")]
    rows = [list(json.loads(line).values()) for line in cost.out.splitlines()]
    return seconds, cost.cpu_seconds, cost.peak_bytes, rows


def alike(ours, theirs):
    """Averages of decimals are decimals with six places more here, and doubles there."""
    same = lambda a, b: a == b or math.isclose(float(a), float(b), rel_tol=1e-9, abs_tol=1e-6)
    shape = [len(row) for row in ours] == [len(row) for row in theirs]
    try:
        return shape and all(same(*pair) for rows in zip(ours, theirs) for pair in zip(*rows))
    except ValueError:
        return False


if __name__ == "__main__":
    main()
