#!/usr/bin/env python3
"""How long do the questions of an A/B-testing shop take: uplake, DuckDB, ClickHouse and plain DataFusion?

Unit: seconds a statement, hot and cold. Floor: the best of the peers in every cell, ratio 1;
version 0.1 has to show its ratios, not to win. Equal answers are not a goal but a condition.

    python queries.py DATA [--only q1,q4] [--ranges 1,7] [--out FOLDER]

cold    a fresh process, from its start (peers: from opening the store) to the last row
hot     one process that runs the statement once and then up to five times more: best, median
memory  peak resident memory of either process

The page cache is warm throughout. Every answer is compared with DuckDB's of the same run; a
difference is printed and the program ends with status 1.
"""

import argparse
import json
import math
import os
import re
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import measure
import xab

ENGINES = ["uplake", "duckdb", "chdb", "datafusion"]
REPEATS = 5
HOT_BUDGET_SECONDS = 12  # A slow statement repeats less often, but at least twice: 2 x 6 s says enough.
LOAD_CAP_SECONDS = 3600
RELATIVE_TOLERANCE = 1e-6  # Engines add floats in different orders; counts must be equal.
PEER = Path(__file__).resolve().parent / "peer.py"


def main():
    args = arguments()
    binary = measure.uplake_binary(args.uplake)
    data = xab.DataSet(args.data)
    facts = measure.circumstances(binary)
    stores = Stores(args, binary, data)
    stores.fill()
    for table in xab.TABLES:
        measure.read_once(data.files(table))

    print(f"# Queries\n\n{data.summary()}; {args.threads} threads an engine, > cap: over {args.cap:g} s.")
    print(f"{measure.describe(facts)}\n")
    cells, differences = {}, []
    ranges = within(args.ranges, len(data.days))
    for turn, (query, days) in enumerate(plan(args.only, ranges)):
        # The engines take turns in being the first, so that a neighbour's burst hits each of them.
        order = args.engines[turn % len(args.engines) :] + args.engines[: turn % len(args.engines)]
        measured = ask_all(stores, query, days, order, args.cap)
        differences += compare(query, days, measured)
        for engine, cell in measured.items():
            cells[query, days, engine] = cell
            kept = {key: value for key, value in cell.items() if key not in ("rows", "columns")}
            measure.append_raw(
                args.out / "queries.jsonl", {**facts, "query": query, "days": days, "engine": engine, **kept}
            )
            measure.progress(f"{query:4} {days:2} d  {engine:10}  {one_line(cell)}")
    write_tables(cells, args.engines, ranges)
    for difference in differences:
        print(f"WRONG ANSWER: {difference}")
    errors = [f"{key}: {cell['failed']}" for key, cell in cells.items() if "failed" in cell]
    for error in errors:
        print(f"FAILED: {error}")
    sys.exit(1 if differences or errors else 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    listed = lambda text: text.split(",")
    parser.add_argument("data", type=Path, help="the folder that `uplake generate` wrote")
    parser.add_argument("--uplake", type=Path, help="the binary (default: $UPLAKE, then target/release/uplake)")
    parser.add_argument("--only", type=listed, default=xab.QUERIES, metavar="q1,q4", help="these statements")
    parser.add_argument(
        "--ranges", type=lambda text: [int(days) for days in text.split(",")], default=[1, 7, 20], metavar="1,7"
    )
    parser.add_argument("--engines", type=listed, default=ENGINES, help=f"default: {','.join(ENGINES)}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cap", type=float, default=60, help="seconds one run of a statement may take (60)")
    parser.add_argument("--stores", type=Path, help="where to load the tables (default: a temporary folder)")
    parser.add_argument("--keep-stores", action="store_true", help="do not load again what --stores already holds")
    parser.add_argument("--out", type=Path, default=Path("results"), help="where queries.jsonl grows")
    args = parser.parse_args()
    for name in args.only:
        if name not in xab.QUERIES:
            parser.error(f"no statement {name}; there are {', '.join(xab.QUERIES)}")
    for name in args.engines:
        if name not in ENGINES:
            parser.error(f"no engine {name}; there are {', '.join(ENGINES)}")
    return args


def within(ranges, days):
    for longer in [range_days for range_days in ranges if range_days > days]:
        measure.progress(f"skipping {longer} days: the data has {days}")
    kept = [range_days for range_days in ranges if range_days <= days]
    return kept or sys.exit(f"the data has only {days} days; ask for fewer with --ranges")


def plan(queries, ranges):
    """The (statement, days) pairs; statements without a range count with the longest one."""
    for days in ranges:
        for query in queries:
            if query in xab.RANGED or days == max(ranges):
                yield query, days


class Stores:
    """The tables of the data set in uplake's lake, DuckDB's file and chDB's folder; DataFusion reads the originals."""

    def __init__(self, args, binary, data):
        self.binary, self.data, self.threads, self.keep = binary, data, args.threads, args.keep_stores
        self.engines = args.engines
        self.temporary = None
        if args.stores is None:
            self.temporary = tempfile.TemporaryDirectory(prefix="uplake-bench-", dir=data.folder.parent)
        self.folder = Path(self.temporary.name if self.temporary else args.stores).resolve()
        self.lake, self.database = self.folder / "lake", self.folder / "xab.duckdb"

    def fill(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        if "uplake" in self.engines and not (self.keep and self.lake.exists()):
            shutil.rmtree(self.lake, ignore_errors=True)
            for table in xab.TABLES:
                measure.progress(f"loading {table} into uplake")
                command = [self.binary, "load", "--lake", self.lake, "--threads", self.threads, "--quiet"]
                command += [*xab.LAYOUT[table], table, self.data.pattern(table)]
                measure.run(command, cap_seconds=LOAD_CAP_SECONDS)
        if "duckdb" in self.engines and not (self.keep and self.database.exists()):
            self.database.unlink(missing_ok=True)
            measure.progress("loading every table into DuckDB")
            create = "CREATE TABLE {} AS SELECT * FROM read_parquet('{}')"
            statements = [create.format(table, self.data.pattern(table)) for table in xab.TABLES]
            self.peer("duckdb", {"statements": [*statements, "CHECKPOINT"]}, LOAD_CAP_SECONDS)
        clickhouse = Path(f"{self.database}.chdb")
        if "chdb" in self.engines and not (self.keep and clickhouse.exists()):
            shutil.rmtree(clickhouse, ignore_errors=True)
            measure.progress("loading every table into chDB")
            statements = [f"CREATE TABLE {table} {layout}" for table, layout in xab.CLICKHOUSE.items()]
            for table in xab.TABLES:
                insert = "INSERT INTO {} SELECT * FROM file('{}', 'Parquet')"
                statements += [insert.format(table, file) for file in self.data.files(table)]
            statements += [f"OPTIMIZE TABLE {table} FINAL" for table in xab.TABLES]
            self.peer("chdb", {"statements": statements}, LOAD_CAP_SECONDS)

    def peer(self, engine, job, cap_seconds):
        job = {
            "engine": engine,
            "store": str(self.database),
            "tables": {table: f"{self.data.folder / table}/" for table in xab.TABLES},
            "threads": self.threads,
            **job,
        }
        cost = measure.run(
            [sys.executable, PEER],
            cap_seconds=cap_seconds,
            stdin=json.dumps(job),
            env={"TOKIO_WORKER_THREADS": str(self.threads)},
        )
        return cost, json.loads(cost.out)

    def run(self, engine, sql, repeats, cap_seconds):
        """Runs `sql` 1 + `repeats` times in a fresh process of `engine`."""
        if engine == "uplake":
            return self.run_uplake(sql, repeats, cap_seconds)
        cost, told = self.peer(engine, {"sql": sql, "repeats": repeats}, cap_seconds)
        return {**told, "peak_bytes": cost.peak_bytes}

    def run_uplake(self, sql, repeats, cap_seconds):
        with tempfile.NamedTemporaryFile("w", suffix=".sql", encoding="utf-8") as file:
            file.write(f"{sql};\n" * (1 + repeats))
            file.flush()
            command = [self.binary, "sql", "--lake", self.lake, "--threads", self.threads]
            cost = measure.run([*command, "--timing", "--format", "json", "-f", file.name], cap_seconds=cap_seconds)
        times = [float(line.split()[1]) for line in cost.err.splitlines() if line.startswith("time: ")]
        if len(times) != 1 + repeats:
            raise measure.Failed(f"{len(times)} `time:` lines for {1 + repeats} statements")
        answer = {"first": cost.seconds, "hot": times[1:], "peak_bytes": cost.peak_bytes}
        if repeats == 0:
            # Lines of JSON leave out what is NULL, so rows stay maps until they meet DuckDB's columns.
            answer["rows"] = [json.loads(line) for line in cost.out.splitlines()]
        return answer


def ask_all(stores, query, days, engines, cap):
    """Cold runs of every engine, then hot runs of every engine: {engine: cell}."""
    cells = {}
    for engine in engines:
        sql = stores.data.statement(query, days, engine)
        cells[engine] = attempt(lambda: cold(stores, engine, sql, cap))
    for engine, cell in cells.items():
        sql = stores.data.statement(query, days, engine)
        if "cold" in cell:
            repeats = max(2, min(REPEATS, int(HOT_BUDGET_SECONDS / max(cell["cold"], 1e-3))))
            cell.update(attempt(lambda: hot(stores, engine, sql, repeats, cap)))
    return cells


def attempt(measurement):
    try:
        return measurement()
    except measure.OverCap:
        return {"over_cap": True}
    except measure.Failed as error:
        return {"failed": str(error)}


def cold(stores, engine, sql, cap):
    answer = stores.run(engine, sql, 0, cap)
    return {
        "cold": answer["first"],
        "cold_peak_bytes": answer["peak_bytes"],
        "rows": answer["rows"],
        "columns": answer.get("columns"),
    }


def hot(stores, engine, sql, repeats, cap):
    answer = stores.run(engine, sql, repeats, cap * (1 + repeats))
    times = answer["hot"]
    return {
        "best": min(times),
        "median": statistics.median(times),
        "hot": times,
        "peak_bytes": answer["peak_bytes"],
        "load_average": round(os.getloadavg()[0], 2),
    }


def one_line(cell):
    if "failed" in cell:
        return f"FAILED: {cell['failed']}"
    if "best" not in cell:
        return "over the cap"
    return f"cold {cell['cold']:.3f}  best {cell['best']:.3f}  median {cell['median']:.3f}"


# Answers


def compare(query, days, cells):
    """What differs from DuckDB's answer, and marks every cell with `agrees`."""
    reference = cells.get("duckdb", {})
    if "rows" not in reference:
        return []
    expected = in_order([[normal(value) for value in row] for row in reference["rows"]])
    found = []
    for engine, cell in cells.items():
        if engine == "duckdb" or "rows" not in cell:
            continue
        rows = cell["rows"]
        if engine == "uplake":
            unknown = sorted({name for row in rows for name in row} - set(reference["columns"]))
            if unknown:
                found.append(f"{query}, {days} days: {engine} has columns {unknown}, DuckDB {reference['columns']}")
            rows = [[row.get(column) for column in reference["columns"]] for row in rows]
        difference = first_difference(in_order([[normal(v) for v in row] for row in rows]), expected)
        cell["agrees"] = not difference
        if difference:
            found.append(f"{query}, {days} days: {engine} {difference}")
    return found


def normal(value):
    """Times get the same number of digits everywhere."""
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", value):
        seconds, _, fraction = value.partition(".")
        return f"{seconds}.{fraction[:3]:0<3}"
    return value


def in_order(rows):
    """Sorted by what is exact first: every group has its own keys, floats differ in the last digits."""

    def key(row):
        exact = tuple(str(value) for value in row if not isinstance(value, float))
        return exact, tuple(f"{value:.5e}" for value in row if isinstance(value, float))

    return sorted(rows, key=key)


def first_difference(rows, expected):
    if len(rows) != len(expected):
        return f"has {len(rows)} rows, DuckDB {len(expected)}"
    for row, wanted in zip(rows, expected):
        if len(row) != len(wanted) or not all(equal(a, b) for a, b in zip(row, wanted)):
            return f"says {row}, DuckDB {wanted}"
    return ""


def equal(a, b):
    numbers = isinstance(a, (int, float)) and isinstance(b, (int, float))
    if numbers and (isinstance(a, float) or isinstance(b, float)):
        return math.isclose(a, b, rel_tol=RELATIVE_TOLERANCE)
    return a == b


# Tables


def write_tables(cells, engines, ranges):
    for days in ranges:
        here = {key: cell for key, cell in cells.items() if key[1] == days}
        if here:
            print(f"## {days} day{'s' if days > 1 else ''}\n\n{range_table(here, engines)}")
    print(f"## Together\n\n{mean_table(cells, engines)}")


def range_table(cells, engines):
    pairs = list(dict.fromkeys(key[:2] for key in cells))
    hot, cold = [], []
    for query, days in pairs:
        of = lambda field: [show(cells[query, days, engine], field) for engine in engines]
        verdict = [ratio(cells, query, days, engines), agreement(cells, query, days, engines)]
        hot.append([query.upper(), *of("best"), *of("median"), *of("peak_bytes"), *verdict])
        cold.append([query.upper(), *of("cold"), *of("cold_peak_bytes")])
    columns = lambda *names: [f"{engine} {name}" for name in names for engine in engines]
    return (
        measure.table(["hot", *columns("best s", "median s", "MiB"), "uplake / best peer", "answers"], hot)
        + "\n"
        + measure.table(["cold", *columns("s", "MiB")], cold)
    )


def show(cell, field):
    if "failed" in cell:
        return "failed"
    if field not in cell:
        return "> cap"
    return f"{cell[field] / measure.MIB:.0f}" if field.endswith("peak_bytes") else f"{cell[field]:.3f}"


def ratio(cells, query, days, engines):
    peers = [cells[query, days, engine].get("best") for engine in engines if engine != "uplake"]
    peers = [best for best in peers if best]
    own = cells.get((query, days, "uplake"), {}).get("best")
    return f"{own / min(peers):.2f}" if own and peers else "-"


def agreement(cells, query, days, engines):
    known = [cells[query, days, engine]["agrees"] for engine in engines if "agrees" in cells[query, days, engine]]
    if not known:
        return "not compared"
    rows = len(cells[query, days, "duckdb"]["rows"])
    return f"equal, {rows} row{'s' if rows != 1 else ''}" if all(known) else "WRONG"


def mean_table(cells, engines):
    """Geometric means over the cells that every engine finished."""
    rows = []
    for field in ("best", "median", "cold"):
        pairs = list(dict.fromkeys(key[:2] for key in cells))
        common = [pair for pair in pairs if all("best" in cells[(*pair, engine)] for engine in engines)]
        if not common:
            return "No cell that every engine finished.\n"
        means = {e: geometric_mean([cells[(*pair, e)][field] for pair in common]) for e in engines}
        name = f"{field}, geometric mean of {len(common)} of {len(pairs)} cells"
        peers = [mean for engine, mean in means.items() if engine != "uplake"]
        against = f"{means['uplake'] / min(peers):.2f}" if peers and "uplake" in means else "-"
        rows.append([name, *(f"{means[engine]:.3f}" for engine in engines), against])
    return measure.table(["seconds", *engines, "uplake / best peer"], rows)


def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values))


if __name__ == "__main__":
    main()
