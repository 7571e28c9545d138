#!/usr/bin/env python3
"""Compares Uplake's answers to statements made up from seeds with DuckDB's and PostgreSQL's, and with
its own.

    tests/differential/run.py                          two minutes with a fresh seed
    tests/differential/run.py --seconds 36000 --jobs 2
    tests/differential/run.py --seed 4711 --statements 300      one world again

UPLAKE_BIN names the binary (or --uplake). The last line counts; the exit code is 1 if an answer was
different without a reason in known.py. README.md says how to read a failure.
"""

import argparse
import collections
import dataclasses
import json
import multiprocessing
import os
import pathlib
import queue
import random
import shutil
import sys
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import changes
import engines
import grammar
import known
import oracles
import postgres
import reduce
import schemas
import shapes

STATEMENTS_A_WORLD = 300
# Of them, how many are asked again after a change of layout.
ASKED_AGAIN = 25
# Statements that change rows, of each table.
CHANGES = 3


@dataclasses.dataclass
class Report:
    """What came of some worlds."""

    compared: int = 0
    other_ways: int = 0
    theirs_refused: int = 0
    both_refused: int = 0
    rows: int = 0
    known: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    refused: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    different: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    texts: list = dataclasses.field(default_factory=list)
    postgres: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    failures: list = dataclasses.field(default_factory=list)  # every one, for --log

    def add(self, other):
        for name in (
            "compared",
            "other_ways",
            "theirs_refused",
            "both_refused",
            "rows",
            "known",
            "refused",
            "different",
            "postgres",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failures += other.failures


class Seen:
    """What a worker has seen: which failures are worth the time that making them small takes."""

    def __init__(self):
        self.kinds = collections.Counter()
        self.begun = time.monotonic()
        self.reducing_s = 0.0

    def wants(self, failure, sign):
        """Is it to be shown: the first of a refusal or panic, the first two of different rows?"""
        self.kinds[sign] += 1
        return self.kinds[sign] <= (2 if failure.kind == "different" else 1)

    def has_time(self):
        """Reducing takes at most a third of a run's time, after the first minute of it."""
        return self.reducing_s < 60 + (time.monotonic() - self.begun) / 3

    def forget_rows(self):
        """In the next world, different rows may come of another fault."""
        kept = {s: n for s, n in self.kinds.items() if not s.endswith(": different")}
        self.kinds = collections.Counter(kept)


class Trial:
    """One world: its statements, and what was found; `show` is given each failure's text."""

    def __init__(self, seed, options, until, seen, show):
        self.seed, self.options, self.until = seed, options, until
        self.seen, self.show = seen, show
        self.rng = random.Random(f"statements {seed}")
        self.report = Report()
        self.folder = pathlib.Path(
            tempfile.mkdtemp(prefix="uplake-differential-", dir=options.folder)
        )

    def over(self):
        return time.monotonic() >= self.until

    def run(self):
        court = None
        try:
            world = schemas.make(self.seed)
            court = oracles.Court(
                world, self.options.uplake, self.folder, self.options.server
            )
            court.until = self.until
            self.ask_all(court)
        except engines.Refused as refused:
            self.report.different["the tables cannot be made"] += 1
            self.show(f"# world {self.seed}: {refused.text}")
        finally:
            if court is not None:
                court.close()
                for field in dataclasses.fields(court.counts):
                    added = getattr(court.counts, field.name)
                    setattr(self.report, field.name, getattr(self.report, field.name) + added)
            shutil.rmtree(self.folder, ignore_errors=True)
        return self.report

    def ask_all(self, court):
        made = self.statements(court.world)
        first = [next(made) for _ in range(self.options.statements_a_world * 2 // 3)]
        good = [q for q in first if not self.over() and self.ask(court, q)]
        self.together(court, good)
        for _ in range(2):
            if self.over():
                return
            court.change(self.rng)
            for query in self.rng.sample(good, min(len(good), ASKED_AGAIN)):
                self.note(court, court.check(query))
            for _ in range(self.options.statements_a_world // 6):
                if not self.over():
                    self.ask(court, next(made))
        self.elsewhere(court, good)
        self.rows_changed(court, good)

    def statements(self, world):
        random_ones = grammar.Grammar(self.rng, world)
        while True:
            if self.rng.random() < 0.3:
                yield shapes.statement(random_ones)
            else:
                yield random_ones.statement()

    def ask(self, court, query):
        """Asks one statement in some ways: is it answered, and rightly?"""
        found = court.check(query)
        if found:
            self.note(court, found)
            return False
        theirs = court.last_theirs
        if theirs is None:
            return False
        for failure in court.check_more(query, theirs, self.rng):
            self.note(court, failure)
        return True

    def together(self, court, good):
        if self.over() or not good:
            return
        for failure in court.check_batch(good):
            self.note(court, failure)

    def elsewhere(self, court, good):
        """The same rows in other pieces and another layout."""
        if self.over() or not good:
            return
        world = oracles.relaid(court.world, self.rng)
        other = oracles.Court(
            world, self.options.uplake, self.folder / "reload", self.options.server
        )
        try:
            for query in self.rng.sample(good, min(len(good), ASKED_AGAIN)):
                failure = other.check(query)
                if failure:
                    failure.way = "duckdb"
                self.note(other, failure)
            court.counts.other_ways += other.counts.compared
            court.counts.postgres += other.counts.postgres
        finally:
            other.close()

    def rows_changed(self, court, good):
        """Rows that are changed, and statements of before about what they are then."""
        made = grammar.Grammar(self.rng, court.world)
        for _ in range(CHANGES):
            for table in court.world.tables:
                if self.over():
                    return
                failure = court.check_change(changes.make(made, table))
                self.note(court, failure)
                if failure:
                    return  # the engines have other rows from here on
            for query in self.rng.sample(good, min(len(good), ASKED_AGAIN // 4)):
                failure = court.check(query)
                if failure:
                    failure.way = "after changes"
                    failure.message += f" (after {'; '.join(court.changes)})"
                self.note(court, failure)

    def note(self, court, failure):
        """Counts a failure, and makes it small if it is the first of its kind."""
        if failure is None:
            return
        reason = known.explain(failure)
        if reason:
            self.report.known[reason] += 1
            return
        self.report.failures.append(
            {
                "world": self.seed,
                "way": failure.way,
                "kind": failure.kind,
                "message": failure.message,
                "statement": reduce.statement_text(failure),
            }
        )
        sign = f"{failure.way}: {failure.kind}"
        if failure.kind != "different":
            sign = f"{failure.kind}: {reduce.signature(failure.message)}"
            if failure.kind == "refused":
                self.report.refused[sign] += 1
        self.report.different[sign] += 1
        if not self.seen.wants(failure, sign):
            return
        if self.options.reduce_seconds and self.seen.has_time() and not self.over():
            begun, counts = time.monotonic(), court.counts.copy()
            failure = self.reduced(court, failure)
            court.counts = counts
            self.seen.reducing_s += time.monotonic() - begun
        self.show(reduce.test_text(failure))

    def reduced(self, court, failure):
        def accept(other):
            return known.explain(other) is None

        binary, seconds = self.options.uplake, self.options.reduce_seconds
        return reduce.reduce(failure, court, binary, self.folder, accept, seconds)


def worlds(options, number, results, until):
    """A worker: worlds of every n-th seed until time or statements are up."""
    seed, done, seen = options.seed + number, 0, Seen()
    while time.monotonic() < until and (not options.statements or done < options.statements):
        trial = Trial(seed, options, until, seen, results.put)
        try:
            report = trial.run()
        except Exception:
            report = trial.report
            report.different["the tester itself failed"] += 1
            results.put(f"# world {seed}: the tester failed;\n{traceback.format_exc()}")
        results.put(report)
        done += report.compared * options.jobs
        seed += options.jobs
        seen.forget_rows()
    results.put(None)


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, help="how long (default 120)")
    parser.add_argument("--statements", type=int, default=0, help="how many to compare at least")
    parser.add_argument("--seed", type=int, help="the first world (default: a fresh one)")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--uplake", default=os.environ.get("UPLAKE_BIN", "uplake"))
    parser.add_argument(
        "--without-postgres", action="store_true", help="let DuckDB alone decide"
    )
    parser.add_argument("--folder", help="where to keep the lakes meanwhile")
    parser.add_argument(
        "--reduce-seconds", type=float, default=20, help="per failure; 0: not at all"
    )
    parser.add_argument("--statements-a-world", type=int, default=STATEMENTS_A_WORLD)
    parser.add_argument(
        "--log", type=pathlib.Path, help="write every failure here, one line of JSON each"
    )
    parser.set_defaults(server=None)
    options = parser.parse_args(arguments)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**9)
    if options.seconds is None:
        options.seconds = 10**9 if options.statements else 120
    return options


def run(options):
    """Runs it: the Report of all worlds."""
    if shutil.which(options.uplake) is None:
        sys.exit(f"there is no {options.uplake}: name the binary by UPLAKE_BIN or --uplake")
    print(f"seed {options.seed}", flush=True)
    until = time.monotonic() + options.seconds
    with postgres.serving(not options.without_postgres) as options.server:
        return run_until(options, until)


def run_until(options, until):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    workers = [
        context.Process(target=worlds, args=(options, n, results, until))
        for n in range(options.jobs)
    ]
    for worker in workers:
        worker.start()
    total, running = Report(), len(workers)
    while running:
        try:
            report = results.get(timeout=5)
        except queue.Empty:
            if not any(w.is_alive() for w in workers):
                break
            continue
        if report is None:
            running -= 1
            continue
        if isinstance(report, str):
            total.texts.append(report)
            print(f"\n{report}\n", flush=True)
            continue
        if options.log:
            with options.log.open("a") as log:
                log.writelines(json.dumps(failure) + "\n" for failure in report.failures)
        total.add(report)
    for worker in workers:
        worker.join()
    if any(w.exitcode for w in workers):
        sys.exit("a worker failed")
    return total


def summary(report):
    lines = []
    for title, counter in (("known", report.known), ("different", report.different)):
        for text, count in counter.most_common():
            lines.append(f"{title}: {count} x {' '.join(text.split())}")
    refused = sum(report.refused.values())
    different = sum(report.different.values()) - refused
    said = ", ".join(f"{text} {count}" for text, count in report.postgres.most_common())
    lines.append(f"PostgreSQL: {said or 'not asked'}")
    lines.append(
        f"asked in other ways {report.other_ways}, only DuckDB refused "
        f"{report.theirs_refused}, both refused {report.both_refused}, rows {report.rows}"
    )
    lines.append(
        f"compared {report.compared}, explained by known differences "
        f"{sum(report.known.values())}, refused {refused}, different {different}"
    )
    return "\n".join(lines)


def main():
    options = parse()
    begun = time.monotonic()
    report = run(options)
    print(summary(report))
    seconds = time.monotonic() - begun
    print(f"{seconds:.0f} s, {report.compared / max(seconds, 1):.0f} statements a second")
    sys.exit(1 if report.different else 0)


if __name__ == "__main__":
    main()
