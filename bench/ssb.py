#!/usr/bin/env python3
"""How long does the Star Schema Benchmark take: uplake, DuckDB and plain DataFusion?

Unit: milliseconds a statement, hot. Floor: a geometric mean of 40 ms at scale factor 1 on two
cores, and no statement slower than plain DataFusion. Equal answers are a condition.

    python ssb.py FOLDER [--scale 1] [--only 1.1,3.2] [--rounds 3] [--keep-stores] [--out RESULTS]

FOLDER takes the data (made once; the same seed gives the same rows) and the tables made of it.
Each engine runs a statement once, then `--repeats` times more, in a fresh process; the engines
take turns, `--rounds` times. The best and the median are over all rounds. Columns have the domains
of the published benchmark; the numbers are drawn anew, so counts differ from other generators'.
"""

import argparse
import datetime
import json
import shutil
import statistics
import sys
from pathlib import Path

import measure
import queries
from queries import REPEATS, Stores, attempt, compare, geometric_mean

ENGINES = ["uplake", "duckdb", "datafusion"]
FLIGHTS = ["1.1", "1.2", "1.3", "2.1", "2.2", "2.3", "3.1", "3.2", "3.3", "3.4", "4.1", "4.2", "4.3"]
# By date, which every flight but the second asks for; the other tables are small.
LAYOUT = {
    "lineorder": ["--cluster-by", "lo_orderdate"],
    "customer": ["--cluster-by", "c_custkey"],
    "supplier": ["--cluster-by", "s_suppkey"],
    "part": ["--cluster-by", "p_partkey"],
    "dates": ["--cluster-by", "d_datekey"],
}
FLOOR_SECONDS = 0.040
ROW_GROUP = 122_880

NATIONS = {
    "AFRICA": ["ALGERIA", "ETHIOPIA", "KENYA", "MOROCCO", "MOZAMBIQUE"],
    "AMERICA": ["ARGENTINA", "BRAZIL", "CANADA", "PERU", "UNITED STATES"],
    "ASIA": ["CHINA", "INDIA", "INDONESIA", "JAPAN", "VIETNAM"],
    "EUROPE": ["FRANCE", "GERMANY", "ROMANIA", "RUSSIA", "UNITED KINGDOM"],
    "MIDDLE EAST": ["EGYPT", "IRAN", "IRAQ", "JORDAN", "SAUDI ARABIA"],
}
SEGMENTS = ["AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD"]
PRIORITIES = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECI", "5-LOW"]
MODES = ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"]
COLORS = "almond antique aquamarine azure beige bisque black blanched blue blush brown burlywood".split()
DAYS = [datetime.date(1992, 1, 1) + datetime.timedelta(days=n) for n in range(2556)]
ORDER_DAYS = 2406  # No order in the last five months, as published.


def main():
    args = arguments()
    binary = measure.uplake_binary(args.uplake)
    data = Data(args.folder.resolve(), args.scale)
    data.make()
    facts = measure.circumstances(binary)
    stores = Tables(args, binary, data)
    stores.fill()
    for file in sorted(data.folder.rglob("*.parquet")):
        measure.read_once([file])
    print(f"# Star Schema Benchmark\n\nScale factor {args.scale:g}; {args.threads} threads an engine.")
    print(f"{measure.describe(facts)}\n")
    cells, wrong = {}, []
    for flight in args.only:
        sql = data.statement(flight)
        first = {engine: attempt(lambda: queries.cold(stores, engine, sql, args.cap)) for engine in args.engines}
        wrong += compare(f"SSB {flight}", 0, first)
        times = {engine: [] for engine in args.engines}
        for turn in range(args.rounds):
            order = args.engines[turn % len(args.engines) :] + args.engines[: turn % len(args.engines)]
            for engine in order:
                if "cold" in first[engine]:
                    hot = stores.run(engine, sql, args.repeats, args.cap * (1 + args.repeats))["hot"]
                    times[engine] += hot
        for engine, cell in first.items():
            if "failed" in cell:
                wrong.append(f"SSB {flight}: {engine} failed: {cell['failed']}")
            if times[engine]:
                cell.update(best=min(times[engine]), median=statistics.median(times[engine]))
            kept = {key: value for key, value in cell.items() if key not in ("rows", "columns")}
            record = {**facts, "flight": flight, "scale": args.scale, "engine": engine, **kept}
            measure.append_raw(args.out / "ssb.jsonl", {**record, "hot": times[engine]})
            cells[flight, engine] = cell
        shown = "  ".join(f"{e} {c.get('best', 0) * 1000:.0f}/{c.get('median', 0) * 1000:.0f}" for e, c in first.items())
        measure.progress(f"Q{flight}  {shown} ms (best/median)")
    print(table(cells, args.only, args.engines))
    for text in wrong:
        print(f"WRONG: {text}")
    sys.exit(1 if wrong else 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    listed = lambda text: text.split(",")
    parser.add_argument("folder", type=Path, help="where data and tables go")
    parser.add_argument("--uplake", type=Path, help="the binary (default: $UPLAKE, then target/release/uplake)")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--only", type=listed, default=FLIGHTS, metavar="1.1,3.2")
    parser.add_argument("--engines", type=listed, default=ENGINES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--cap", type=float, default=60, help="seconds one run of a statement may take (60)")
    parser.add_argument("--keep-stores", action="store_true", help="do not load again what is loaded")
    parser.add_argument("--out", type=Path, default=Path("results"), help="where ssb.jsonl grows")
    args = parser.parse_args()
    args.stores = args.folder / f"stores-{args.scale:g}"
    return args


def table(cells, flights, engines):
    rows = []
    for flight in flights:
        ms = lambda engine, field: cells[flight, engine].get(field, float("nan")) * 1000
        row = [f"Q{flight}", *(f"{ms(engine, 'best'):.0f}" for engine in engines)]
        row += [f"{ms(engine, 'median'):.0f}" for engine in engines]
        if "datafusion" in engines and "uplake" in engines:
            row.append(f"{ms('uplake', 'best') / ms('datafusion', 'best'):.2f}")
        rows.append(row)
    means = []
    for field in ("best", "median"):
        of = lambda engine: [cells[flight, engine].get(field, 0) for flight in flights]
        means += [f"{geometric_mean(of(engine)) * 1000:.0f}" if all(of(engine)) else "-" for engine in engines]
    rows.append(["geometric mean", *means])
    if len(rows[0]) > len(rows[-1]):
        rows[-1].append(f"floor {FLOOR_SECONDS * 1000:.0f} ms")
        header = ["uplake / DataFusion"]
    else:
        header = []
    names = [f"{engine} {field} ms" for field in ("best", "median") for engine in engines]
    return measure.table(["hot", *names, *header], rows)


class Tables(Stores):
    """The tables in uplake's lake and DuckDB's file; DataFusion reads the originals."""

    def fill(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.keep and self.lake.exists()):
            shutil.rmtree(self.lake, ignore_errors=True)
            for name, layout in LAYOUT.items():
                command = [self.binary, "load", "--lake", self.lake, "--threads", self.threads, "--quiet"]
                measure.run([*command, *layout, name, self.data.file(name)], cap_seconds=queries.LOAD_CAP_SECONDS)
        if not (self.keep and self.database.exists()):
            self.database.unlink(missing_ok=True)
            create = "CREATE TABLE {} AS SELECT * FROM read_parquet('{}')"
            statements = [create.format(name, self.data.file(name)) for name in LAYOUT]
            self.peer("duckdb", {"statements": [*statements, "CHECKPOINT"]}, queries.LOAD_CAP_SECONDS)

    def peer(self, engine, job, cap_seconds):
        tables = {name: str(self.data.file(name)) for name in LAYOUT}
        job = {"engine": engine, "store": str(self.database), "tables": tables, "threads": self.threads, **job}
        environment = {"TOKIO_WORKER_THREADS": str(self.threads)}
        program = [sys.executable, queries.PEER]
        cost = measure.run(program, cap_seconds=cap_seconds, stdin=json.dumps(job), env=environment)
        return cost, json.loads(cost.out)


class Data:
    """The five tables as Parquet files."""

    def __init__(self, folder, scale, seed=1):
        self.folder, self.scale, self.seed = folder / f"data-{scale:g}", scale, seed

    def file(self, name):
        return self.folder / f"{name}.parquet"

    def statement(self, flight):
        lines = (queries.PEER.parent / "queries" / f"ssb{flight}.sql").read_text().splitlines()
        return " ".join(line for line in lines if not line.startswith("--"))

    def make(self):
        if self.folder.exists():
            return
        measure.progress(f"making scale factor {self.scale:g}")
        partial = self.folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        # In a process of its own: what it needs would count as the engines' memory.
        program = "import sys, ssb; ssb.write_tables(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))"
        command = [sys.executable, "-c", program, partial, self.scale, self.seed]
        measure.run(command, cap_seconds=queries.LOAD_CAP_SECONDS, env={"PYTHONPATH": str(Path(__file__).parent)})
        partial.rename(self.folder)


def write_tables(folder, scale, seed):
    import numpy
    import pyarrow
    import pyarrow.parquet

    random = numpy.random.default_rng(seed)
    # Half-open, as numpy has it.
    whole = lambda low, end, count: random.integers(low, end, count).astype(numpy.int32)
    pick = lambda texts, places: pyarrow.array(texts).take(pyarrow.array(places))
    any_of = lambda texts, count: pick(texts, random.integers(0, len(texts), count))

    def write(name, columns):
        path = f"{folder}/{name}.parquet"
        pyarrow.parquet.write_table(pyarrow.table(columns), path, compression="zstd", row_group_size=ROW_GROUP)

    nations = [nation for of_region in NATIONS.values() for nation in of_region]
    regions = [region for region, of_region in NATIONS.items() for _ in of_region]
    cities = [f"{nation[:9]:9}{n}" for nation in nations for n in range(10)]

    def parties(prefix, key, title, count):
        nation = random.integers(0, len(nations), count)
        return {
            f"{prefix}_{key}": numpy.arange(1, count + 1, dtype=numpy.int32),
            f"{prefix}_name": [f"{title}#{n:09d}" for n in range(1, count + 1)],
            f"{prefix}_city": pick(cities, nation * 10 + random.integers(0, 10, count)),
            f"{prefix}_nation": pick(nations, nation),
            f"{prefix}_region": pick(regions, nation),
        }

    customers, suppliers = int(30_000 * scale), int(2_000 * scale)
    parts = int(200_000 * (1 + numpy.log2(scale))) if scale >= 1 else int(200_000 * scale)
    segment = any_of(SEGMENTS, customers)
    write("customer", {**parties("c", "custkey", "Customer", customers), "c_mktsegment": segment})
    write("supplier", parties("s", "suppkey", "Supplier", suppliers))

    maker, category, brand = whole(1, 6, parts), whole(1, 6, parts), whole(1, 41, parts)
    write(
        "part",
        {
            "p_partkey": numpy.arange(1, parts + 1, dtype=numpy.int32),
            "p_name": any_of(COLORS, parts),
            "p_mfgr": [f"MFGR#{a}" for a in maker],
            "p_category": [f"MFGR#{a}{b}" for a, b in zip(maker, category)],
            "p_brand1": [f"MFGR#{a}{b}{c}" for a, b, c in zip(maker, category, brand)],
            "p_color": any_of(COLORS, parts),
            "p_size": whole(1, 51, parts),
        },
    )
    keys = numpy.array([day.year * 10_000 + day.month * 100 + day.day for day in DAYS], numpy.int32)
    of_days = lambda value: numpy.array([value(day) for day in DAYS], numpy.int32)
    write(
        "dates",
        {
            "d_datekey": keys,
            "d_year": of_days(lambda day: day.year),
            "d_yearmonthnum": of_days(lambda day: day.year * 100 + day.month),
            "d_yearmonth": [day.strftime("%b%Y") for day in DAYS],
            "d_weeknuminyear": of_days(lambda day: (day.timetuple().tm_yday - 1) // 7 + 1),
        },
    )
    orders = int(1_500_000 * scale)
    lines = random.integers(1, 8, orders)
    of_order = lambda values: numpy.repeat(values, lines)
    rows = int(lines.sum())
    part, quantity, discount = whole(1, parts + 1, rows), whole(1, 51, rows), whole(0, 11, rows)
    price = (90_000 + (part // 10) % 20_001 + 100 * (part % 1_000)).astype(numpy.int64)
    extended = quantity * price // 100
    first_line = numpy.cumsum(lines) - lines
    write(
        "lineorder",
        {
            "lo_orderkey": of_order(numpy.arange(1, orders + 1, dtype=numpy.int32)),
            "lo_linenumber": (numpy.arange(rows) - of_order(first_line) + 1).astype(numpy.int32),
            "lo_custkey": of_order(whole(1, customers + 1, orders)),
            "lo_partkey": part,
            "lo_suppkey": whole(1, suppliers + 1, rows),
            "lo_orderdate": of_order(keys[random.integers(0, ORDER_DAYS, orders)]),
            "lo_orderpriority": pick(PRIORITIES, of_order(random.integers(0, len(PRIORITIES), orders))),
            "lo_quantity": quantity,
            "lo_extendedprice": extended.astype(numpy.int32),
            "lo_discount": discount,
            "lo_revenue": (extended * (100 - discount) // 100).astype(numpy.int32),
            "lo_supplycost": (6 * price // 1_000).astype(numpy.int32),
            "lo_tax": whole(0, 9, rows),
            "lo_shipmode": any_of(MODES, rows),
        },
    )


if __name__ == "__main__":
    main()
