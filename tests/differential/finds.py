#!/usr/bin/env python3
"""Does the tester find what it was made for? Runs it on a binary from before the mends.

    tests/differential/finds.py --uplake OLD --seconds 600

Of each fault of README.md's table it says in which world, and after how many seconds, a failure was
met that is this fault; the exit code is 1 if one is missing. The worlds of the table come first.

A failure is a fault if the tree and the message, or the rows, have the fault's signature. But for
panics the statement is made small first: what is left of it must have the signature, so that another
fault in the same statement does not count.
"""

import argparse
import collections
import dataclasses
import itertools
import math
import os
import re
import sys
import time
import traceback

import engines
import reduce
import run
import tree
from tree import Aggregate, Call, Case, Column, Derived, InList, InQuery, Join, Literal, Select

# In which each fault was first met, those with most faults first.
WORLDS = [1, 2, 3, 6, 11, 20, 25, 26]
SMALL_S = 5
# After so many failures of one signature that were another fault, no more are made small.
TRIES = 12
NOT_ASKED = {
    "14": "two billion characters",
    "22": "a setting that does nothing",
    "26": "a refused statement in a script",
    "28": "nanoseconds, which the lake does not store",
}


def nodes_of(failure, *kinds):
    return [n for n in tree.walk(failure.query) if isinstance(n, kinds)]


def calls(failure, *names):
    return [n for n in nodes_of(failure, Call) if n.function.name in names]


def says(failure, pattern, kind="refused"):
    return failure.kind == kind and re.search(pattern, failure.message)


def values_of(failure):
    """Every value of the statement and of its tables."""
    yield from (n.value for n in nodes_of(failure, Literal))
    for table in failure.world.tables:
        yield from itertools.chain.from_iterable(table.rows())


def columns(failure):
    """Columns of both answers, side by side."""
    if not failure.ours or not failure.theirs or len(failure.ours[0]) != len(failure.theirs[0]):
        return []
    return list(zip(zip(*failure.ours), zip(*failure.theirs)))


def is_start(value):
    """What a minimum, maximum, sum or truth begins with."""
    if isinstance(value, str):  # a time that no calendar has, as compare shows it
        return re.fullmatch(r"(date|timestamp)\S* -?\d+", value) is not None
    if isinstance(value, (bool, int, float)):
        ends = {n for bits in (15, 31, 63) for n in (2**bits - 1, -(2**bits))}
        return value in ends | {0, 1} or abs(value) > 1e30
    return abs(value) > 1e9 if hasattr(value, "is_finite") else hasattr(value, "year")


def start_values(failure):
    """01: start values instead of NULL."""
    names = {"min", "max", "bool_and", "bool_or", "sum", "bit_and", "bit_or"}
    joined = any(
        isinstance(n, Select) and n.group and isinstance(n.source, Join)
        for n in tree.walk(failure.query)
    )
    if not joined or not any(a.function.name in names for a in nodes_of(failure, Aggregate)):
        return False
    for ours, theirs in columns(failure):
        # Where a start value is taken for a value above, only the NULLs' number differs.
        more = collections.Counter(ours) - collections.Counter(theirs)
        fewer = ours.count(None) < theirs.count(None)
        if fewer and any(is_start(v) for v in more if v is not None):
            return True
    return False


def batch_of_column_twice(failure):
    """02: a batch panics on a column grouped twice."""
    twice = any(
        a.value == b.value
        for n in nodes_of(failure, Select)
        for a, b in itertools.combinations(n.items, 2)
    )
    return failure.way == "batch" and twice and says(failure, "index out of bounds", "died")


def below_or_and_is(failure, constant):
    """The IN (SELECT …) that are no condition by themselves, of a constant or of no constant."""
    found = []
    for outer in nodes_of(failure, Call):
        if outer.function.name in ("or", "not") or outer.function.name.startswith("is "):
            found += [n for n in tree.walk_here(outer.args) if isinstance(n, InQuery)]
    for case in nodes_of(failure, Case):
        found += [n for n in tree.walk_here(case) if isinstance(n, InQuery)]
    return [n for n in found if isinstance(n.inner, Literal) == constant]


def never_null(failure):
    """03: IN (SELECT …) is never NULL below OR, IS NULL."""
    return failure.kind == "different" and below_or_and_is(failure, False)


def minus_zero(failure):
    """04: -0.0 in count(DISTINCT)."""
    counts = any(
        a.distinct and a.args and a.args[0].type in ("wild", "double")
        for a in nodes_of(failure, Aggregate)
    )
    lists = any(len(n.items) > 3 and n.inner.type == "wild" for n in nodes_of(failure, InList))
    held = any(
        v == 0 and isinstance(v, float) and math.copysign(1, v) < 0 for v in values_of(failure)
    )
    return failure.kind == "different" and (counts or lists) and held


def forgetful_minimum(failure):
    """05: min and max of groups with NaN."""
    groups = any(n.group for n in nodes_of(failure, Select))
    ends = any(
        a.function.name in ("min", "max") and a.type == "wild" for a in nodes_of(failure, Aggregate)
    )
    held = any(v != v for v in values_of(failure))
    made = calls(failure, "cast double")
    return (
        failure.kind == "different"
        and groups
        and ends
        and (held or made)
        and not start_values(failure)
    )


def takes_the_rest(failure):
    """06: IS DISTINCT FROM takes the rest."""
    names = ("IS DISTINCT FROM", "IS NOT DISTINCT FROM")
    before = any(
        n.function.name in names
        for c in calls(failure, "and", "or")
        for n in tree.walk_here(c.args[0])
        if isinstance(n, Call)
    )
    refused = says(failure, "incompatible types|[Cc]annot infer common|coerc|boolean")
    return before and (refused or failure.kind == "different")


def case_of_truths(failure):
    """07: GROUP BY CASE … THEN true."""
    keys = [k for n in nodes_of(failure, tree.Group) for k in n.keys]
    cases = any(isinstance(n, Case) and n.type == "bool" for n in tree.walk(keys))
    return cases and says(failure, "field nullability|Physical input schema should be the same")


def top(failure):
    """08: a column called top."""
    bare = any(c.alias is None and c.name == "top" for c in nodes_of(failure, Column))
    return bare and says(failure, r"(?i)expected")


def using(failure):
    """09: FULL and RIGHT JOIN USING."""
    merged = any(j.using and j.kind in ("FULL", "RIGHT") for j in nodes_of(failure, Join))
    return failure.kind == "different" and merged


def grouping_id(failure):
    """10: grouping() beside count(DISTINCT id)."""
    users = any(a.distinct for a in nodes_of(failure, Aggregate))
    return users and nodes_of(failure, tree.Grouping) and says(failure, "__grouping_id")


def count_of_count(failure):
    """11: count FILTER above count."""
    above = any(
        isinstance(n.source, Derived)
        and any(isinstance(i.value, Aggregate) and i.value.where is not None for i in n.items)
        and any(isinstance(i.value, Aggregate) for i in tree.first_select(n.source.query).items)
        for n in nodes_of(failure, Select)
    )
    return above and (failure.kind == "different" or says(failure, "matching_name"))


def long_list(failure):
    """12: ROLLUP of a long list."""
    groups = any(g.kind for g in nodes_of(failure, tree.Group))
    return groups and says(failure, "__id_set")


def delete_of_partition(failure):
    """13: DELETE with coalesce of a partition column."""
    return failure.table and says(failure, "should have been simplified")


def beyond_2262(failure):
    """15: times beyond 2262."""
    times = [n.value for n in nodes_of(failure, Literal) if n.type.startswith("timestamp")]
    far = any(time is not None and not 1678 <= time.year <= 2261 for time in times)
    return far and says(
        failure,
        "Overflow converting .* to Nanosecond|represented as nanoseconds"
        r"|exceeds the representable|Timestamp -?\d+ out of range",
    )


def constant_of_outer_join(failure):
    """16: ORDER BY a constant of an outer join."""

    def sides(join):
        return [s for s in (join.left, join.right) if isinstance(s, Derived)]

    constant = any(
        isinstance(i.value, Literal)
        for j in nodes_of(failure, Join)
        if j.kind in ("LEFT", "RIGHT", "FULL")
        for s in sides(j)
        for i in tree.first_select(s.query).items
    )
    ordered = any(getattr(n, "order", None) for n in tree.walk(failure.query))
    return failure.kind == "different" and constant and ordered


def lost_rows(failure):
    """17: RIGHT JOIN loses rows."""
    for join in nodes_of(failure, Join):
        if join.using or join.kind not in ("RIGHT", "FULL", "LEFT"):
            continue
        names = collections.Counter(
            c.name
            for r in tree.walk(join)
            if isinstance(r, tree.TableRef)
            for t in failure.world.tables
            if t.name == r.name
            for c in t.columns
        )
        tested = {
            c.name
            for s in nodes_of(failure, Select)
            for c in tree.walk_here([s.where, join.on])
            if isinstance(c, Column)
        }
        if any(names[n] > 1 for n in tested):
            return fewer_rows(failure)
    return False


def fewer_rows(failure):
    """Rows are missing, or are not counted."""
    if failure.kind != "different" or failure.ours is None:
        return False
    if len(failure.ours) != len(failure.theirs):
        return len(failure.ours) < len(failure.theirs)
    return any(
        isinstance(a, int) and isinstance(b, int) and a < b
        for ours, theirs in columns(failure)
        for a, b in zip(ours, theirs)
    )


def to_timestamp_of_text(failure):
    """18: to_timestamp(text)."""
    of_text = [c for c in calls(failure, "to_timestamp") if c.function.args == ("timestamp",)]
    return of_text and says(failure, "column types must match schema types|to_timestamp")


def constant_not_in(failure):
    """19: a constant NOT IN (SELECT …)."""
    constants = [n for n in nodes_of(failure, InQuery) if isinstance(n.inner, Literal)]
    return failure.kind == "different" and constants


def named_window(failure):
    """20: named windows."""
    based = any(w.over.base for w in nodes_of(failure, tree.Window))
    return failure.kind == "different" and based


def nested_concat(failure):
    """21: array_concat of nested lists."""
    nested = [c for c in calls(failure, "array_concat", "array_append") if c.type == "nested"]
    return nested and failure.kind == "died"


def window_of_equalities(failure):
    """23: window ordered by x = '0', y = '0'."""
    keys = [o.key for n in nodes_of(failure, tree.Over) for o in n.order]
    tests = [k for k in keys if isinstance(k, Call) and k.function.name == "="]
    return tests and says(failure, r"SanityCheckPlan|sanity|Plan: \[|does not satisfy")


def volatile(failure):
    """24: HAVING random() > 1000."""
    return failure.kind == "different" and calls(failure, "random")


def in_of_items(failure):
    """25: IN (SELECT …) in a SELECT list."""
    return nodes_of(failure, InQuery) and says(failure, "does not support logical expression InSub")


def json_of_nan(failure):
    """27: JSON writes NaN as null."""

    def odd(values):
        return sum(isinstance(v, float) and not math.isfinite(v) for v in values)

    return failure.way == "batch" and any(
        odd(ours) < odd(theirs) and ours.count(None) > theirs.count(None)
        for ours, theirs in columns(failure)
    )


def from_first(failure):
    """29: FROM first."""
    return failure.kind == "different" and any(not n.items for n in nodes_of(failure, Select))


def primary_key(failure):
    """30: a primary key is unknown to GROUP BY."""
    found = nodes_of(failure, tree.AnyOfGroup)
    return failure.kind == "refused" and found and says(failure, "must appear in GROUP BY")


FAULTS = [
    start_values,
    batch_of_column_twice,
    never_null,
    minus_zero,
    forgetful_minimum,
    takes_the_rest,
    case_of_truths,
    top,
    using,
    grouping_id,
    count_of_count,
    long_list,
    delete_of_partition,
    beyond_2262,
    constant_of_outer_join,
    lost_rows,
    to_timestamp_of_text,
    constant_not_in,
    named_window,
    nested_concat,
    window_of_equalities,
    volatile,
    in_of_items,
    json_of_nan,
    from_first,
    primary_key,
]


@dataclasses.dataclass
class Find:
    world: int
    seconds: float
    message: str
    statement: str


class Finds:
    """What was found, and what is looked for still."""

    def __init__(self):
        self.begun = time.monotonic()
        self.of = {}  # a Find by fault
        self.tried = collections.Counter()

    def missing(self):
        return [fault for fault in FAULTS if fault not in self.of]

    def candidates(self, failure):
        return [f for f in self.missing() if self.tried[f] < TRIES and f(failure)]

    def note(self, fault, failure):
        seconds = time.monotonic() - self.begun
        statement = reduce.statement_text(failure)
        self.of[fault] = Find(failure.world.seed, seconds, failure.message, statement)


class Hunt(run.Trial):
    """A world, asked until every fault is found; it shows nothing."""

    def __init__(self, seed, options, until, finds):
        super().__init__(seed, options, until, None, None)
        self.finds = finds

    def over(self):
        return super().over() or not self.finds.missing()

    def note(self, court, failure):
        if failure is None:
            return
        candidates = self.finds.candidates(failure)
        # A panic is told by its message.
        if failure.kind != "died" and candidates:
            failure = small(court, failure, min(self.until, time.monotonic() + SMALL_S))
            self.finds.tried.update(candidates)
            candidates = [f for f in self.finds.missing() if f(failure)]
        for fault in candidates[:1]:
            self.finds.note(fault, failure)


def small(court, failure, until):
    """The failure of the smallest statement that still fails in this world."""
    if failure.table:
        return failure
    way = "duckdb" if failure.way not in ("batch", "no-index", "threads 1") else failure.way
    last = failure

    def fails(query):
        nonlocal last
        if not tree.has_one_answer(query):
            return False
        try:
            found = court.check(query, way)
        except engines.Refused:
            return False
        last = found if reduce.alike(failure, found) else last
        return last is found

    if fails(failure.query):
        reduce.statement(failure.query, fails, until)
    return last


def hunt(options):
    """Runs the worlds until all faults are found or the time is up."""
    finds, until = Finds(), time.monotonic() + options.seconds
    others = (n for n in itertools.count(1) if n not in WORLDS)
    for seed in itertools.chain(WORLDS, others):
        if time.monotonic() >= until or not finds.missing():
            return finds
        before = len(finds.of)
        try:
            Hunt(seed, options, until, finds).run()
        except Exception:
            print(f"# world {seed}: the tester failed;\n{traceback.format_exc()}", flush=True)
        seconds = time.monotonic() - finds.begun
        print(f"world {seed}: {len(finds.of) - before} new, {seconds:.0f} s", flush=True)


def summary(finds):
    lines = []
    for fault in FAULTS:
        number, what = fault.__doc__.rstrip(".").split(": ", 1)
        find = finds.of.get(fault)
        if find is None:
            lines.append(f"{number} MISSING {what} ({finds.tried[fault]} looked like it)")
            continue
        lines.append(f"{number} world {find.world:3} {find.seconds:5.0f} s  {what}")
        lines += [f"     {' '.join(text.split())[:200]}" for text in (find.statement, find.message)]
    lines += [f"{number} not asked: {why}" for number, why in NOT_ASKED.items()]
    lines.append(f"found {len(finds.of)} of {len(FAULTS)}")
    return "\n".join(lines)


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--uplake", default=os.environ.get("UPLAKE_BIN", "uplake"))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--folder", help="where to keep the lakes meanwhile")
    # What a world of run.py is told beside.
    parser.set_defaults(statements_a_world=run.STATEMENTS_A_WORLD, reduce_seconds=0, server=None)
    return parser.parse_args(arguments)


def main():
    finds = hunt(parse())
    print(summary(finds))
    sys.exit(1 if finds.missing() else 0)


if __name__ == "__main__":
    main()
