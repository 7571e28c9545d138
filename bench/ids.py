#!/usr/bin/env python3
"""What do 10,000 ids in a condition cost: uplake with and without its indexes, DuckDB, chDB?

Unit: seconds a statement. Floor: 10 times faster than the better peer for users among events (median,
hot), and 5 ms at the 99th percentile for shops in the catalogue.

    python ids.py STORES [--rounds 40]     STORES: what `queries.py --stores STORES` loaded

Both tables are indexed first (`uplake table reindex`), which is timed. Each statement has other ids. The
engines follow each other within a question; each is one process. uplake's time is that of `--timing`,
which leaves out finding the ids in the text (about 1 ms). Columns that questions ask for again stay in
memory, so uplake asks every statement twice and the second half counts; peers run the first five.
Answers are compared with DuckDB's; a difference ends the program with status 1.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import measure

IDS = 10_000
WORDS = ["老字号鸡腿", "秘制水饺", "现烤麻辣烫", "小龙虾500g", "双人现烤"]
QUESTIONS = {
    "users: count": "SELECT count(*) AS n FROM events WHERE user_id IN ({ids})",
    "users: sum": "SELECT count(*) AS n, round(sum(value), 2) AS v FROM events WHERE user_id IN ({ids})",
    "users: by day": "SELECT dt, count(*) AS n, count(DISTINCT item_id) AS items FROM events"
    " WHERE user_id IN ({ids}) GROUP BY dt ORDER BY dt",
    "shops": "SELECT spu_name, poi_id, sales FROM products WHERE spu_name LIKE '%{word}%' AND poi_id IN ({ids})"
    " ORDER BY sales DESC, poi_id, spu_name LIMIT 20",
}


class Uplake:
    """One process a question."""

    def __init__(self, binary, lake, threads, *options):
        command = [binary, "sql", "--lake", lake, "--threads", str(threads), "--timing", "--format", "json", *options]
        self.command = [str(part) for part in command]

    def ask(self, statements):
        """(seconds, rows) of each statement, in one process."""
        started = time.perf_counter()
        done = subprocess.run(
            [*self.command, "-f", "-"], input=";\n".join(statements), capture_output=True, text=True, check=False
        )
        whole = time.perf_counter() - started
        if done.returncode:
            raise measure.Failed(done.stderr)
        if "warning:" in done.stderr:
            raise measure.Failed(done.stderr)
        times = [float(line.split()[1]) for line in done.stderr.splitlines() if line.startswith("time: ")]
        return times, whole, done.stdout


class DuckDb:
    def __init__(self, store, threads):
        import duckdb

        self.connection = duckdb.connect(str(store), read_only=True)
        self.connection.execute(f"SET threads = {threads}")

    def rows(self, sql):
        return self.connection.execute(sql).fetchall()


class ChDb:
    """chDB with tables of its own, in the order of the lake's files."""

    def __init__(self, lake, threads):
        from chdb.session import Session

        self.session = Session()
        self.session.query(f"SET max_threads = {threads}")
        self.session.query("SET max_query_size = 100000000")
        self.session.query("SET max_ast_elements = 10000000")
        for table in ("events", "products"):
            pattern = f"{lake}/{table}/**/*.parquet"
            self.session.query(f"CREATE TABLE {table} ENGINE = MergeTree ORDER BY tuple() AS SELECT * FROM file('{pattern}')")

    def rows(self, sql):
        text = self.session.query(sql, "JSONCompactEachRow").bytes().decode()
        return [tuple(json.loads(line)) for line in text.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", type=Path, help="lake and xab.duckdb, as queries.py --stores leaves them")
    parser.add_argument("--uplake", type=Path)
    parser.add_argument("--rounds", type=int, default=40, help="statements of each question")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-chdb", action="store_true")
    args = parser.parse_args()
    binary = measure.uplake_binary(args.uplake)
    lake = args.stores / "lake"
    print(f"# 10,000 ids\n\n{measure.describe(measure.circumstances(binary))}; {args.rounds} statements a row\n")
    for table, indexes in (("events", "user_id"), ("products", "poi_id,spu_name:words,spu_name:ngrams")):
        cost = measure.run([binary, "table", "--lake", lake, "reindex", table, "--index", indexes], cap_seconds=3600)
        print(f"indexing {table}: {cost.seconds:.1f} s; {cost.out.strip().splitlines()[-1]}\n")
    duckdb = DuckDb(args.stores / "xab.duckdb", args.threads)
    peers = {"DuckDB": duckdb}
    if not args.no_chdb:
        peers["chDB"] = ChDb(lake, args.threads)
    indexed, plain = Uplake(binary, lake, args.threads), Uplake(binary, lake, args.threads, "--no-index")

    pools = {
        "users": [f"'{user}'" for (user,) in duckdb.rows("SELECT DISTINCT user_id FROM events ORDER BY 1")],
        "shops": [str(shop) for (shop,) in duckdb.rows("SELECT DISTINCT poi_id FROM products ORDER BY 1")],
    }
    wrong = []
    print("| | uplake p50 | p99 | first of a process | without index p50 | " + " | ".join(f"{p} p50" for p in peers) + " | ratio |")
    print("|---|--:|--:|--:|--:|" + "--:|" * len(peers) + "--:|")
    for name, template in QUESTIONS.items():
        chance = random.Random(name)
        pool = pools[name.split(":")[0]]
        statements = [
            template.format(ids=",".join(chance.sample(pool, IDS)), word=chance.choice(WORDS))
            for _ in range(args.rounds)
        ]
        few = statements[:5]
        first, _, _ = indexed.ask(statements[:1])
        times, _, told = indexed.ask([*statements, *statements])
        slow, _, told_plain = plain.ask(few)
        if told.splitlines() != told.splitlines()[: len(told.splitlines()) // 2] * 2:
            wrong.append(f"{name}: the second time another answer")
        cells = {}
        for peer, engine in peers.items():
            taken = []
            for statement in few:
                started = time.perf_counter()
                rows = engine.rows(statement)
                taken.append(time.perf_counter() - started)
            cells[peer] = statistics.median(taken)
        of_first = plain_rows(indexed.ask(few[:1])[2])
        expected = [tuple(plain_value(v) for v in row) for row in duckdb.rows(few[0])]
        if of_first != expected or plain_rows(told_plain)[: len(expected)] != expected:
            wrong.append(f"{name}: {of_first[:3]} is not {expected[:3]}")
        hot = sorted(times[args.rounds :])
        p50, p99 = statistics.median(hot), hot[min(len(hot) - 1, int(len(hot) * 0.99))]
        ratio = min(cells.values()) / p50
        texts = [f"{1000 * s:.1f} ms" for s in (p50, p99, first[0], statistics.median(slow), *cells.values())]
        print(f"| {name} | " + " | ".join(texts) + f" | {ratio:.1f} |", flush=True)
    for difference in wrong:
        print(f"WRONG ANSWER: {difference}")
    sys.exit(1 if wrong else 0)


def plain_rows(text):
    return [tuple(plain_value(v) for v in json.loads(line).values()) for line in text.splitlines()]


def plain_value(value):
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return round(value, 2) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
