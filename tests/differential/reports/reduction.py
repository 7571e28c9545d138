"""Makes a failure small: fewer metrics, options, dimensions and rows, as long as it still fails.

A smaller case counts only if a difference of the same kind is left, which is the first path without
its numbers.
"""
import copy
import dataclasses
import re
import shutil
import time

from reports import script
from reports.command import Failed, Lake

SECONDS = 45
ATTEMPTS = 400


def kind_of(differences):
    return re.sub(r"\[\d+\]", "", differences[0][0]) if differences else None


class Reduction:
    """`check(lake, definition, asked)`: the differences that are left."""

    def __init__(self, binary, folder, check, world, definition, asked, kind,
                 seconds=SECONDS, attempts=ATTEMPTS):
        self.binary, self.folder, self.check = binary, folder, check
        self.world, self.definition, self.asked, self.kind = world, definition, list(asked), kind
        self.until, self.attempts = time.monotonic() + seconds, attempts
        self.number = 0
        self.differences = []

    def run(self):
        """Whether tables made by SQL fail alike, and then the smallest case found."""
        if not self.fails(self.world, self.definition, self.asked):
            return False
        while self.fewer_words():
            pass
        self.fewer_rows(largest_only=True)
        while not self.is_over() and (self.fewer_words() or self.fewer_rows()):
            pass
        return True

    def is_over(self):
        return self.number >= self.attempts or time.monotonic() > self.until

    def fails(self, world, definition, asked):
        self.number += 1
        folder = self.folder / f"smaller-{self.number}"
        try:
            lake = Lake(self.binary, folder, world)
            folder.mkdir(parents=True)
            lake.sql("\n".join(script.statements(world)))
            found = self.check(lake, definition, asked)
        except (Failed, KeyError, ValueError, ZeroDivisionError):
            return False
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if kind_of(found) != self.kind:
            return False
        self.differences = found
        return True

    def keep(self, world, definition, asked):
        if self.is_over() or not self.fails(world, definition, asked):
            return False
        self.world, self.definition, self.asked = world, definition, asked
        return True

    def fewer_words(self):
        smaller = False
        for candidate, asked in list(self.smaller_definitions()):
            smaller |= self.keep(self.world, candidate, asked)
            if smaller:
                return True
        return False

    def smaller_definitions(self):
        found, asked = self.definition, self.asked
        for name in asked:
            yield found, [other for other in asked if other != name]
        for place in range(len(found["metric"])):
            if len(found["metric"]) > 1:
                yield changed(found, lambda d: d["metric"].pop(place)), asked
            for key in list(found["metric"][place]):
                if key not in ("name", "type", "table", "value", "steps", "level", "at_least",
                               "numerator", "denominator"):
                    yield changed(found, lambda d: d["metric"][place].pop(key)), asked
        for key in ("hypothesis", "alpha", "correction", "lift", "stratify", "assignment", "compat",
                    "time_zone", "in_progress", "days_since_exposure"):
            # A local time in another zone is another instant.
            if key in found and not (key == "time_zone" and "observed_until" in found):
                yield changed(found, lambda d: d.pop(key)), asked
        if "start" in found:
            yield changed(found, lambda d: [d.pop(k) for k in (
                "start", "end", "start_us", "end_us")]), asked
        if "observed_until" in found:
            yield changed(found, lambda d: [d.pop(k) for k in (
                "observed_until", "observed_until_us")]), asked
        if "where" in found.get("exposures", ()):
            yield changed(found, lambda d: d["exposures"].pop("where")), asked
        for place, dimension in enumerate(found["dimension"]):
            if dimension["name"] not in (*asked, found.get("stratify")):
                yield changed(found, lambda d: d["dimension"].pop(place)), asked

    def fewer_rows(self, largest_only=False):
        """Without whole tables' rows, halves, quarters and so on; or not beyond quarters."""
        smaller = False
        for name in self.world.tables:
            if self.world.tables[name].cuts:
                world = with_table(self.world, name, cuts=[])
                smaller |= self.keep(world, self.definition, self.asked)
            smaller |= self.fewer_rows_of(name, largest_only)
        return smaller

    def fewer_rows_of(self, name, largest_only):
        smaller, size = False, len(self.world.tables[name].rows)
        least = size // 4 if largest_only else 1
        while size and size >= least:
            at = 0
            while at < len(self.world.tables[name].rows) and not self.is_over():
                rows = self.world.tables[name].rows
                world = with_table(self.world, name, rows=rows[:at] + rows[at + size:], cuts=[])
                if self.keep(world, self.definition, self.asked):
                    smaller = True
                else:
                    at += size
            size //= 2
        return smaller


def changed(definition, change):
    """A copy with the change; expressions are shared."""
    found = copy.copy(definition)
    for key in ("metric", "dimension", "variant"):
        found[key] = [dict(item) for item in definition[key]]
    for key in ("exposures", "summary"):
        if key in definition:
            found[key] = dict(definition[key])
    change(found)
    return found


def with_table(world, name, **changes):
    tables = dict(world.tables)
    tables[name] = dataclasses.replace(tables[name], **changes)
    return dataclasses.replace(world, tables=tables)
