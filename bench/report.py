#!/usr/bin/env python3
"""How long does a report of thousands of statements take: one by one, as a batch, and in DuckDB?

Unit: seconds for all statements, and statements a second. Floor: DuckDB with 24 connections at once;
the goals are 5 times faster one by one and 20 times faster as a batch.

    python report.py DATA --stores STORES [--statements 600] [--engines batch,plain,duckdb]

STORES is what `queries.py --stores STORES --keep-stores` loaded. The statements are those of an A/B
test's report over XAB: users by variant (a fifth), sums and means of a metric of the exposed (two
fifths and a bit), and moments of a metric from first exposure on (the rest), each of one of 12
experiments, over 1, 7 or 20 days, some by system, version or city. The same seed gives the same
statements, and a smaller number the first of them.

batch    `uplake sql --batch`
plain    `uplake sql -f`, one after the other
duckdb   one process, 24 connections that take the next statement each

Answers are compared with DuckDB's if it is among the engines, else with each other's.
"""

import argparse
import csv
import json
import math
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import measure
import xab

STATEMENTS = 3245
SEED = 11
CONNECTIONS = 24
CAP_SECONDS = 3600
RELATIVE_TOLERANCE = 1e-6  # Engines add floats in different orders; counts must be equal.
DIMENSIONS = ["", "os", "app_version", "city"]
EVENTS = ["pay", "click", "add_to_cart", "product_view", "share", "search"]
METRICS = {"value": "e.value", "count": "1.0", "duration": "CAST(e.duration_ms AS DOUBLE)"}


def main():
    args = arguments()
    if args.child:
        return child()
    data = xab.DataSet(args.data)
    statements = report(data, args.statements)
    binary = measure.uplake_binary(args.uplake)
    facts = measure.circumstances(binary)
    print(f"# A report of {len(statements):,} statements\n\n{data.summary()}; {args.threads} threads an engine.")
    print(f"{measure.describe(facts)}\n")
    answers, rows = {}, []
    for engine in args.engines:
        measure.progress(f"{engine} …")
        cost, seconds, answers[engine] = run(engine, args, binary, statements)
        record = {"engine": engine, "statements": len(statements), "seconds": seconds}
        record |= {"cpu_seconds": cost.cpu_seconds, "peak_bytes": cost.peak_bytes}
        measure.append_raw(args.out / "report.jsonl", {**facts, **record})
        each = 1000 * seconds / len(statements)
        rows.append([engine, f"{seconds:.1f}", f"{each:.1f}", f"{cost.cpu_seconds:.1f}",
                     f"{cost.peak_bytes / measure.MIB:,.0f}"])
        measure.progress(f"{engine}: {seconds:.1f} s, {cost.cpu_seconds:.1f} CPU-s")
    print(measure.table(["engine", "s", "ms a statement", "CPU s", "peak MiB"], rows))
    differences = compare(statements, answers)
    for difference in differences[:20]:
        print(f"WRONG ANSWER: {difference}")
    sys.exit(1 if differences else 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    listed = lambda text: text.split(",")
    parser.add_argument("data", type=Path, nargs="?", help="the folder that `uplake generate` wrote")
    parser.add_argument("--stores", type=Path, help="the folder with the loaded tables")
    parser.add_argument("--uplake", type=Path, help="the binary (default: $UPLAKE, then target/release/uplake)")
    parser.add_argument("--statements", type=int, default=STATEMENTS)
    parser.add_argument("--engines", type=listed, default=["batch", "plain", "duckdb"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", help="uplake's --memory")
    parser.add_argument("--out", type=Path, default=Path("results"), help="where report.jsonl grows")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.child and not (args.data and args.stores):
        parser.error("DATA and --stores are needed")
    return args


def report(data, count):
    """The first `count` statements."""
    source = random.Random(SEED)
    # Experiment: when it begins, as a place among the days.
    begins = {int(name): facts[1] for name, facts in data.about["exps"].items()}
    last = len(data.days) - 1
    statements = []
    for _ in range(count):
        exp = source.choice(sorted(begins))
        kind = source.choices(["users", "sums", "moments"], [20, 45, 35])[0]
        days = min(len(data.days), source.choices([1, 7, 20], [50, 35, 15])[0])
        end = source.randrange(max(days - 1, min(begins[exp], last)), len(data.days))
        dimension = source.choice(DIMENSIONS) if kind != "moments" else ""
        event, metric = source.choice(EVENTS), METRICS[source.choice(sorted(METRICS))]
        range_ = f"dt BETWEEN DATE '{data.days[end - days + 1]}' AND DATE '{data.days[end]}'"
        statements.append(statement(kind, exp, range_, dimension, event, metric))
    return statements


def statement(kind, exp, range_, dimension, event, metric):
    exposed = f"FROM exposures WHERE exp_id = {exp} AND {range_}"
    if kind == "users":
        groups = "variant" + (f", {dimension}" if dimension else "")
        return f"SELECT {groups}, COUNT(DISTINCT user_id) AS users, COUNT(*) AS n {exposed} GROUP BY {groups}"
    if kind == "sums":
        groups = "u.variant" + (f", e.{dimension}" if dimension else "")
        return (
            f"WITH u AS (SELECT user_id, MIN(variant) AS variant {exposed} GROUP BY user_id) "
            f"SELECT {groups}, COUNT(*) AS n, SUM({metric}) AS s, AVG({metric}) AS m "
            f"FROM events e JOIN u ON e.user_id = u.user_id WHERE e.{range_} AND e.event = '{event}' GROUP BY {groups}"
        )
    return (
        f"WITH fe AS (SELECT user_id, MIN(variant) AS variant, MIN(ts) AS first_ts {exposed} GROUP BY user_id), "
        "pu AS (SELECT fe.user_id AS user_id, MIN(fe.variant) AS variant, "
        f"SUM(CASE WHEN e.ts >= fe.first_ts THEN {metric} ELSE 0.0 END) AS x, "
        "SUM(CASE WHEN e.ts >= fe.first_ts THEN 1.0 ELSE 0.0 END) AS y FROM fe LEFT JOIN "
        f"(SELECT user_id, ts, value, duration_ms FROM events WHERE {range_} AND event = '{event}') e "
        "ON e.user_id = fe.user_id GROUP BY fe.user_id) "
        "SELECT variant, COUNT(*) AS n, AVG(x) AS mx, AVG(y) AS my, VAR_SAMP(x) AS vx, VAR_SAMP(y) AS vy, "
        "COVAR_SAMP(x, y) AS cxy, SUM(x) / SUM(y) AS ratio FROM pu GROUP BY variant"
    )


def run(engine, args, binary, statements):
    """The process's cost, the seconds to quote, and the answers."""
    if engine == "duckdb":
        job = {"store": str(args.stores / "xab.duckdb"), "threads": args.threads, "statements": statements}
        command = [sys.executable, Path(__file__).resolve(), "--child"]
        cost = measure.run(command, cap_seconds=CAP_SECONDS, stdin=json.dumps(job))
        told = json.loads(cost.out)
        return cost, told["seconds"], told["answers"]
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(";\n".join(statements))
        file.flush()
        how = "--batch" if engine == "batch" else "--file"
        command = [binary, "sql", "--lake", args.stores / "lake", "--threads", args.threads, "--format", "csv"]
        command += ["--memory", args.memory] if args.memory else []
        cost = measure.run([*command, "--timing", how, file.name], cap_seconds=CAP_SECONDS)
    for line in cost.err.splitlines():
        if line.startswith("batch:"):
            measure.progress(line)
    return cost, cost.seconds, split(cost.out)


def split(text):
    """Answers one after the other, each with a header that begins with `variant`."""
    answers = []
    for row in csv.reader(text.splitlines()):
        if row[0] == "variant":
            answers.append([])
        else:
            answers[-1].append(row)
    return answers


def child():
    import duckdb

    job = json.load(sys.stdin)
    database = duckdb.connect(job["store"], read_only=True)
    database.execute(f"SET threads = {job['threads']}")
    answers = [None] * len(job["statements"])
    numbers, lock = iter(range(len(answers))), threading.Lock()

    def work():
        connection = database.cursor()
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            rows = connection.execute(job["statements"][number]).fetchall()
            answers[number] = [["" if cell is None else str(cell) for cell in row] for row in rows]

    started = time.perf_counter()
    threads = [threading.Thread(target=work) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    json.dump({"seconds": time.perf_counter() - started, "answers": answers}, sys.stdout)


def compare(statements, answers):
    oracle = "duckdb" if "duckdb" in answers else next(iter(answers))
    differences = []
    for engine, found in answers.items():
        if len(found) != len(statements):
            differences.append(f"{engine}: {len(found)} answers for {len(statements)} statements")
            continue
        for number, sql in enumerate(statements):
            if not same(found[number], answers[oracle][number]):
                differences.append(f"{engine}, statement {number + 1}: {sql}")
    return differences


def same(rows, others):
    # The groups, or one and its count.
    key = lambda row: row[:2]
    rows, others = sorted(rows, key=key), sorted(others, key=key)
    if [len(row) for row in rows] != [len(row) for row in others]:
        return False
    return all(equal(a, b) for row, other in zip(rows, others) for a, b in zip(row, other))


def number(cell):
    try:
        return math.isfinite(float(cell)) or True
    except ValueError:
        return False


def equal(a, b):
    if a == b:
        return True
    if not (number(a) and number(b)):
        return False
    return math.isclose(float(a), float(b), rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-9)


if __name__ == "__main__":
    main()
