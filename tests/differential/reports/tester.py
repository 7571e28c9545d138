"""Worlds, batches of definitions, and what each report is held against.

A *report* is one definition's whole report: every arm, metric, comparison, breakdown and day of it.
It is compared with the model; every third batch is asked again another way (without indexes, one
thread, remembered sums) and must be the same to the last byte; of every batch one report is asked
with one of its metrics alone, and one is held against its own SQL. Before the last batch of a world
its tables may be compacted or indexed anew, which must change nothing.
"""
import collections
import dataclasses
import random
import shutil
import time

from reports import data
from reports import definitions
from reports import expected
from reports import own_sql
from reports import script
from reports.command import Failed, Lake
from reports.compare import compare
from reports.reduction import Reduction, kind_of

BATCHES = 4
WAYS = [("--no-index",), ("--threads", "1"), ("--remember",), ("--threads", "7"),
        ("--memory", "96M")]


@dataclasses.dataclass
class Failure:
    world: int
    batch: int
    name: str
    kind: str
    text: str


@dataclasses.dataclass
class Tally:
    reports: int = 0
    numbers: int = 0
    unsure: int = 0
    other_ways: int = 0
    by_sql: int = 0
    seconds: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    options: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    failures: list = dataclasses.field(default_factory=list)

    def count(self, definition):
        options = self.options
        for metric in definition["metric"]:
            options[f"metric {metric['type']}"] += 1
            for key in ("window", "cap", "cuped", "where", "guardrail", "margin", "equivalence",
                        "test", "per", "zeros", "transform", "in_progress", "days_since_exposure"):
                if key in metric:
                    options[f"metric with {key}"] += 1
        options[f"inference {definition.get('inference', 'fixed')}"] += 1
        exposures = definition.get("exposures") or definition["summary"]
        options["of figures"] += "summary" in definition
        options["unit " + ("clusters" if "cluster" in exposures else
                           "region-times" if "switchback" in definition else "users")] += 1
        for key in ("start", "stratify", "assignment", "compat", "lift", "correction", "alpha",
                    "time_zone", "in_progress", "days_since_exposure", "observed_until"):
            if key in definition:
                options[f"with {key}"] += 1
        if "time" not in exposures:
            options["without times"] += 1


class Tester:
    __test__ = False  # not one of pytest's

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        self.tally = Tally()

    def run(self, seed, reports=None, seconds=None):
        """Worlds from `seed` on, until so many reports are compared or so much time has passed."""
        begin = time.monotonic()
        while not (reports and self.tally.reports >= reports) and not (
                seconds and time.monotonic() - begin >= seconds):
            self.world(seed, until=seconds and begin + seconds)
            seed += 1
        return self.tally

    def world(self, seed, until=None):
        world = data.make(seed)
        folder = self.folder / f"world-{seed}"
        lake = Lake(self.binary, folder, world)
        try:
            with self.timed("load"):
                lake.load()
            for batch in range(BATCHES):
                if batch == BATCHES - 1:
                    look_after(lake, random.Random(f"care {seed}"))
                self.batch(lake, seed, batch)
                if until and time.monotonic() > until:
                    break
        except Failed as error:
            self.fail(seed, -1, "load", "command", str(error))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def batch(self, lake, seed, batch):
        found, asked = definitions.batch(lake.world, batch)
        rng = random.Random(f"ways {seed} {batch}")
        with self.timed("uplake"):
            reports = lake.reports(found, asked)
        for definition, report in zip(found, reports):
            self.tally.reports += 1
            self.tally.count(definition)
            self.one(lake, seed, batch, definition, asked, report)
        if rng.random() < 1 / 3:
            self.another_way(lake, seed, batch, found, asked, reports, rng.choice(WAYS))
        self.one_metric(lake, seed, batch, rng.choice(found), asked)
        with self.timed("sql"):
            place = rng.randrange(len(found))
            # NaN is NULL in JSON.
            if not isinstance(reports[place], str) and not lake.world.has_nan:
                self.tally.by_sql += 1
                self.reduce(lake, seed, batch, found[place], asked,
                            own_sql.differences(lake, found[place], asked, reports[place]))

    def one(self, lake, seed, batch, definition, asked, report):
        if isinstance(report, str):
            self.fail(seed, batch, definition["name"], "error", report)
            return
        with self.timed("model"):
            found = compare(expected.report(lake.world, definition, asked), report)
        self.tally.numbers += found.numbers
        self.tally.unsure += found.unsure
        self.reduce(lake, seed, batch, definition, asked, found.differences)

    def one_metric(self, lake, seed, batch, definition, asked):
        """`--metric`: as if the definition had no other."""
        metric = definition["metric"][-1]
        if metric["type"] == "funnel" or len(definition["metric"]) == 1:
            return
        with self.timed("other ways"):
            report, = lake.reports([definition], asked, "--metric", metric["name"])
        self.tally.other_ways += 1
        self.one(lake, seed, batch, {**definition, "metric": [metric]}, asked, report)

    def reduce(self, lake, seed, batch, definition, asked, differences):
        """Makes what differs, if anything does, small, and keeps it as a failure."""
        if not differences:
            return
        kind = kind_of(differences)
        hint = (f"world {seed}, batch {batch}, definition {definition['name']}: "
                f"python run.py --world {seed}")
        seen = any(failure.kind == kind for failure in self.tally.failures)
        smaller = Reduction(self.binary, self.folder, self.check, lake.world, definition, asked,
                            kind)
        if not seen and smaller.run():
            text = script.text(smaller.world, smaller.definition, smaller.asked, (),
                               smaller.differences, hint)
        else:
            text = script.text(lake.world, definition, asked, (), differences, hint)
        self.fail(seed, batch, definition["name"], kind, text)

    def check(self, lake, definition, asked):
        """What differs in one report of a smaller case."""
        report, = lake.reports([definition], asked)
        if isinstance(report, str):
            return []
        return compare(expected.report(lake.world, definition, asked), report).differences

    def another_way(self, lake, seed, batch, found, asked, reports, way):
        with self.timed("other ways"):
            again = lake.reports(found, asked, *way)
        for definition, one, other in zip(found, reports, again):
            self.tally.other_ways += 1
            if isinstance(one, str) and isinstance(other, str):
                continue
            if without_command(one) != without_command(other):
                differences = [("another way", one, other)]
                if not isinstance(one, str) and not isinstance(other, str):
                    differences = unequal(one, other)
                self.fail(seed, batch, definition["name"], f"not the same with {' '.join(way)}",
                          script.text(lake.world, definition, asked, way, differences,
                                      f"world {seed}, batch {batch}: with and without {way}"))

    def fail(self, seed, batch, name, kind, text):
        self.tally.failures.append(Failure(seed, batch, name, kind, text))

    def timed(self, name):
        return Timer(self.tally.seconds, name)


def look_after(lake, rng):
    """What may be done to tables without changing a row."""
    for table in lake.world.tables.values():
        care = rng.choice([None, None, "compact", "reindex"])
        if care:
            lake.run("table", care, table.name)


class Timer:
    def __init__(self, seconds, name):
        self.seconds, self.name = seconds, name

    def __enter__(self):
        self.begin = time.monotonic()

    def __exit__(self, *_):
        self.seconds[self.name] += time.monotonic() - self.begin


def without_command(report):
    if not isinstance(report, dict):
        return report
    return {key: value for key, value in report.items() if key != "reproduce"}


def unequal(one, other, path=""):
    """Paths at which two reports differ."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [d for key in one if key != "reproduce"
                for d in unequal(one[key], other[key], f"{path}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [d for n, pair in enumerate(zip(one, other)) for d in unequal(*pair, f"{path}[{n}]")]
    return [] if one == other else [(path, one, other)]
