"""From rows to numbers per unit: who was exposed, in which arm, and what their rows add up to.

Written from docs/experiments.md ("What counts") and docs/statistics/metric-types.md, as loops over
rows. Where those pages are silent the README of this folder says what is taken for right.

Invariant: a number is known as of every local day, because a report has a series.
"""
import collections
import dataclasses
import datetime
import math
import zoneinfo

from reports import expressions as ex
from reports.definitions import length
from reports.statistics_of_arms import rank

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
FOREVER = math.inf


@dataclasses.dataclass
class User:
    """An exposed user, or a region and stretch of time."""
    key: object
    arm: int
    time: int | None  # from which rows count: of the first exposure, or of the activation
    day: int | None  # local, since 1970
    dimensions: dict  # name -> value as text
    cluster: str = ""
    exposed: int | None = None  # time of the first exposure


class Days:
    """Local days of instants."""

    def __init__(self, zone):
        self.zone = zoneinfo.ZoneInfo(zone)
        self.known = {}

    def of(self, micros):
        if micros not in self.known:
            local = (EPOCH + datetime.timedelta(microseconds=micros)).astimezone(self.zone)
            self.known[micros] = local.date().toordinal() - datetime.date(1970, 1, 1).toordinal()
        return self.known[micros]


def day_text(day):
    return (datetime.date(1970, 1, 1) + datetime.timedelta(days=day)).isoformat()


def passes(where, row, world):
    return where is None or bool(where.of(row, world))


class Exposed:
    """The users of a definition, and what was found on the way."""

    def __init__(self, world, definition):
        self.world, self.definition = world, definition
        self.days = Days(definition.get("time_zone", "UTC"))
        self.start = definition.get("start_us")
        self.end = definition.get("end_us")
        self.rows = {}  # of tables, by user: see `Numbers.rows`
        self.in_many = 0
        self.idle = []  # users who were never activated
        asked = definition["exposures"]
        self.excluding = [{user for user, _ in self.rows_of_users(rows)}
                          for rows in asked.get("exclude", [])]
        self.excluded = [0] * len(self.excluding)
        self.activations = None
        if "activated_by" in asked:
            self.activations = self.find_activations(asked["activated_by"])
        self.unknown = collections.Counter()
        self.users = []
        self.without_user = self.without_time = 0
        self.before = set()  # users with an exposure before the start
        names = {ex.as_text(v.get("value", v["name"])): i
                 for i, v in enumerate(definition["variant"])}
        for key, rows in self.exposures().items():
            self.add(key, rows, names)
        self.by_key = {user.key: user for user in self.users + self.idle}
        self._observed = None

    def observed(self):
        """Up to when the data are known: the period's end, or what the definition says, or just after
        the last time of any row in the tables."""
        if self._observed is None:
            known = self.definition.get("observed_until_us")
            if known is None:
                known = max((time + 1 for time in self.all_times()), default=None)
            self._observed = min((t for t in (known, self.end) if t is not None), default=0)
        return self._observed

    def all_times(self):
        asked = self.definition["exposures"]
        sources = [(asked["table"], asked.get("time"))]
        sources += [(m.get("table", asked["table"]), m.get("time", asked.get("time")))
                    for m in self.definition["metric"]]
        if "activated_by" in asked:
            activating = asked["activated_by"]
            sources.append((activating["table"], activating.get("time", asked["time"])))
        for table, time in sources:
            for row in self.world.tables[table].rows if time else ():
                moment = time.of(row, self.world)
                if moment is not None:
                    yield moment

    def rows_of_users(self, asked):
        """(user, row) of the rows that are asked for."""
        user = asked.get("user", self.definition["exposures"].get("user"))
        return [(user.of(row, self.world), row) for row in self.world.tables[asked["table"]].rows
                if passes(asked.get("where"), row, self.world)]

    def find_activations(self, asked):
        """user -> times within the period of the rows that activate."""
        found = collections.defaultdict(list)
        time_of = asked.get("time", self.definition["exposures"]["time"])
        for user, row in self.rows_of_users(asked):
            time = time_of.of(row, self.world)
            if time is not None and self.within(time):
                found[user].append(time)
        return found

    def within(self, time):
        return self.start is None or (time is not None and self.start <= time < self.end)

    def unit_of(self, row, user, time):
        """The user, or the region and stretch; None for nobody."""
        switch = self.definition.get("switchback")
        if switch is None:
            return None if user is None else user.of(row, self.world)
        region, moment = switch["region"].of(row, self.world), time.of(row, self.world)
        if region is None or moment is None:
            return None
        return region, moment // length(switch["every"])

    def exposures(self):
        found = collections.defaultdict(list)
        asked = self.definition["exposures"]
        for row in self.world.tables[asked["table"]].rows:
            key = self.unit_of(row, asked.get("user"), asked.get("time"))
            time = asked["time"].of(row, self.world) if "time" in asked else None
            if not passes(asked.get("where"), row, self.world):
                continue
            self.without_time += "time" in asked and time is None
            if time is not None and self.start is not None and time < self.start:
                self.before.add(key)
            if "time" in asked and not self.within(time):
                continue
            if key is None:
                self.without_user += "time" not in asked or time is not None
                continue
            found[key].append((time, row))
        return found

    def add(self, key, rows, names):
        asked = self.definition["exposures"]
        for number, users in enumerate(self.excluding):
            if key in users:
                self.excluded[number] += 1
                return
        arms = {ex.as_text(asked["variant"].of(row, self.world)) for _, row in rows}
        if len(arms) > 1:
            self.in_many += 1
            return
        arm, = arms
        if arm not in names:
            self.unknown[arm] += 1
            return
        times = [time for time, _ in rows if time is not None]
        first = min(times, default=None)
        at_first = [row for time, row in rows if time == first]

        def then(of):
            # Of exposures at the same instant the first value by its text.
            return min(ex.as_text(of.of(row, self.world)) for row in at_first)

        dimensions = {d["name"]: then(d.get("sql") or ex.column(d["name"]))
                      for d in self.definition["dimension"]}
        cluster = then(asked["cluster"]) if "cluster" in asked else ""
        day = None if first is None else self.days.of(first)
        user = User(key, names[arm], first, day, dimensions, cluster, first)
        if self.activations is not None:
            times = self.activations.get(key, [])
            user.time = min((t for t in times if first is not None and first <= t), default=None)
            user.day = None if user.time is None else self.days.of(user.time)
            if user.time is None:
                self.idle.append(user)
                return
        self.users.append(user)


@dataclasses.dataclass
class Number:
    """One number per user: how it is made of the rows of a table."""
    aggregate: str  # sum, any, distinct, steps, days, first, last, has
    value: object = None  # an Expression
    where: list = dataclasses.field(default_factory=list)  # all must hold
    low: float = 0  # microseconds after the exposure
    high: float = FOREVER
    cap: object = None
    transform: str | None = None
    at_least: float | None = None
    steps: list = dataclasses.field(default_factory=list)
    reached: int = 0
    from_exposure: bool = False  # although users are activated later


class Numbers:
    """The numbers of one metric."""

    def __init__(self, exposed, metric):
        self.exposed, self.world, self.metric = exposed, exposed.world, metric
        asked = exposed.definition["exposures"]
        self.table = metric.get("table", asked["table"])
        self.user = metric.get("user", asked.get("user"))
        self.time = metric.get("time", asked.get("time"))
        self.timed = self.time is not None and "time" in asked
        self.is_switchback = "switchback" in exposed.definition
        self.caps = {}
        self.columns = self.columns_of()
        low, high = self.window()
        # When the window of a user is over, if it ever is; until then the user may be left out.
        self.ends = high if high != FOREVER else None
        asked = metric.get("in_progress", exposed.definition.get("in_progress"))
        self.is_exclusive = asked == "exclude" and self.ends is not None
        self.found = {}  # (column number, user key) -> [(day, value)]

    def columns_of(self):
        """The figure's one or two numbers, then those before exposure."""
        m, kind = self.metric, self.metric["type"]
        where = filters(m)
        low, high = self.window()
        one = ex.number("1", lambda row: 1)
        of_mean = {"cap": m.get("cap"), "transform": m.get("transform")}

        def made(aggregate, value, more=(), **others):
            return Number(aggregate, value, [*where, *more], low, high, **others)

        if kind in ("proportion", "retention"):
            columns = [made("any", m.get("value", one))]
        elif kind == "threshold":
            columns = [made("sum", m["value"], at_least=m["at_least"])]
        elif kind in ("mean", "count"):
            columns = [made("sum", m.get("value", one), **of_mean)]
        elif kind == "distinct":
            columns = [made("distinct", m["value"], **of_mean)]
        elif kind == "unique_days":
            columns = [made("days", one, **of_mean)]
        elif kind in ("first", "last"):
            columns = [made(kind, m["value"])]
            if not m.get("zeros"):
                columns.append(made("has", m["value"]))
        elif kind == "quantile":
            columns = [made("sum", m["value"])]
        elif kind == "ratio":
            columns = [made("sum", m[side]["value"], filters(m[side]))
                       for side in ("numerator", "denominator")]
        else:
            columns = [made("steps", None, steps=m["steps"], reached=m["reached"])]
        if "cuped" in m:
            pre = length(m["cuped"]["pre"])
            before = [dataclasses.replace(c, low=-pre, high=0) for c in columns]
            # Further covariates have a filter of their own, not the metric's.
            before += [Number("sum", w["value"], filters(w), -pre, 0)
                       for w in m["cuped"].get("with", [])]
            for column in before:
                column.from_exposure = True
            columns += before
        if self.has_overall():
            columns.append(dataclasses.replace(columns[0], from_exposure=True))
        return columns

    def is_over(self, user):
        return user.time is not None and user.time + self.ends <= self.exposed.observed()

    def counts(self, user, until=None):
        """Whether a user counts for the metric (by the end of a day)."""
        if not self.is_exclusive:
            return True
        return self.is_over(user) and (until is None or self.over_on(user) <= until)

    def over_on(self, user):
        """The day on which the window has its last instant."""
        return self.exposed.days.of(user.time + self.ends - 1)

    def has_overall(self):
        """Has an effect of activated users a lift on everybody? Then the last number says how much
        a user has from the first exposure on."""
        definition = self.exposed.definition
        return ("activated_by" in definition["exposures"] and "stratify" not in definition
                and self.metric["type"] in ("mean", "count")
                and not {"cap", "window", "transform"} & self.metric.keys())

    def window(self):
        window = self.metric.get("window")
        if window is None:
            return 0, FOREVER
        if isinstance(window, str):
            return 0, length(window)
        return length(window["from"]), length(window["to"]) if "to" in window else FOREVER

    def rows(self):
        """user -> [(time, row)] of users who are exposed, within the period."""
        known = self.exposed.rows
        key = (self.table, self.user and self.user.sql, self.time and self.time.sql)
        if key not in known:
            found = collections.defaultdict(list)
            for row in self.world.tables[self.table].rows:
                time = self.time.of(row, self.world) if self.time else None
                unit = self.exposed.unit_of(row, self.user, self.time)
                if unit not in self.exposed.by_key:
                    continue
                if self.time and self.exposed.end is not None and (
                        time is None or time >= self.exposed.end):
                    continue
                found[unit].append((time, row))
            known[key] = found
        return known[key]

    def counted(self, column, user):
        """[(time, row)] in the column's window that pass its filters."""
        return [(time, row) for time, row in self.rows().get(user.key, ())
                if self.in_window(column, user, time) and self.is_wanted(column, row)]

    def in_window(self, column, user, time):
        if self.timed and not self.is_switchback:
            start = user.exposed if column.from_exposure else user.time
            if time is None or start is None:
                return False
            return start + column.low <= time < start + column.high
        return not (self.time and self.exposed.start is not None and time < self.exposed.start)

    def is_wanted(self, column, row):
        return all(passes(where, row, self.world) for where in column.where) and (
            not column.steps
            or any(passes(step["where"], row, self.world) for step in column.steps))

    def raw(self, column, user, until=None):
        """The number before cap and threshold; `until`: rows of local days up to this one."""
        rows = self.counted(column, user)
        if until is not None and self.timed and column.high > 0:
            rows = [(t, r) for t, r in rows if self.exposed.days.of(t) <= until]
        if column.aggregate == "steps":
            return float(steps_done(rows, column.steps, self.world) >= column.reached)
        if column.aggregate == "days":
            return float(len({self.exposed.days.of(t) for t, _ in rows if t is not None}))
        if column.aggregate in ("first", "last", "has"):
            values = sorted(self.values_in_time(column, rows))
            if column.aggregate == "has":
                return float(bool(values))
            return values[0 if column.aggregate == "first" else -1][1] if values else 0.0
        values = [column.value.of(row, self.world) for _, row in rows]
        values = [value for value in values if value is not None]
        if column.aggregate == "distinct":
            return float(len({"nan" if value != value else value for value in values}))
        if column.aggregate == "any":
            return float(any(float(value) != 0 for value in values))
        return total([float(value) for value in values])

    def values_in_time(self, column, rows):
        """(time, value) of rows that have both; what is not finite is no value."""
        for time, row in rows:
            value = column.value.of(row, self.world)
            if time is not None and value is not None and math.isfinite(float(value)):
                yield time, float(value)

    def number(self, place, user, until=None):
        key = (place, user.key, until)
        if key not in self.found:
            self.found[key] = self._number(place, user, until)
        return self.found[key]

    def _number(self, place, user, until):
        column = self.columns[place]
        raw = self.raw(column, user, until)
        if column.cap is not None:
            cap = self.cap(place)
            raw = cap if raw > cap else raw
        if column.at_least is not None:
            return float(raw >= column.at_least)
        if column.transform is not None:
            if until is not None and self.was_negative(place, user, until):
                return math.nan
            return math.log1p(raw) if not raw < 0 else math.nan
        return raw

    def was_negative(self, place, user, until):
        """Without a log on one day there is none in the series from then on."""
        column = self.columns[place]
        days = {self.exposed.days.of(t) for t, _ in self.counted(column, user) if t is not None}
        for day in {user.day, *(day for day in days if user.day < day <= until)}:
            raw = self.raw(column, user, day)
            raw = min(raw, self.cap(place)) if column.cap is not None else raw
            if raw < 0:
                return True
        return False

    def cap(self, place):
        """One cap for all arms and days: a number, or a quantile of all users' numbers."""
        cap = self.columns[place].cap
        if not isinstance(cap, (str, dict)):
            return float(cap)
        if place not in self.caps:
            raws = [self.raw(self.columns[place], user) for user in self.exposed.users
                    if self.counts(user)]
            if isinstance(cap, dict):
                level = cap["quantile"]
                if not cap.get("zeros", True):
                    raws = [raw for raw in raws if raw != 0]
            else:
                level = float(cap.strip().rstrip("%").strip()) / 100
            raws.sort(key=lambda number: (math.isnan(number), number))
            self.caps[place] = raws[rank(len(raws), level) - 1] if raws else math.inf
        return self.caps[place]

    def row_values(self, user):
        """Of a quantile per row: single values that are not NULL."""
        column = self.columns[0]
        values = [column.value.of(row, self.world) for _, row in self.counted(column, user)]
        return [float(value) for value in values if value is not None]


def filters(term):
    return [term["where"]] if "where" in term else []


def total(values):
    if all(map(math.isfinite, values)):
        return math.fsum(values)
    return sum(values)


def steps_done(rows, steps, world):
    """How many steps, from the first, rows passed in this order: each by a later row, or by another
    one at the same instant."""
    rows = [(time if time is not None else 0,
             [passes(step["where"], row, world) for step in steps]) for time, row in rows]
    rows = [(time, bits) for time, bits in rows if any(bits)]
    rows.sort(key=lambda pair: pair[0])
    return furthest(rows, len(steps))


def furthest(rows, steps):
    """The most steps that rows sorted by time can make: rows at one instant come in any order."""
    reached, at = 0, 0
    while at < len(rows):
        end = at
        while end < len(rows) and rows[end][0] == rows[at][0]:
            end += 1
        reached = at_once([bits for _, bits in rows[at:end]], reached, steps)
        at = end
    return reached


def at_once(rows, reached, steps):
    """The furthest that rows at one instant lead, each used for one step at most: a matching of
    steps `reached`, `reached` + 1, … with rows."""
    taken = {}

    def place(step, seen):
        for number, bits in enumerate(rows):
            if bits[step] and number not in seen:
                seen.add(number)
                if number not in taken or place(taken[number], seen):
                    taken[number] = step
                    return True
        return False

    while reached < steps and place(reached, set()):
        reached += 1
    return reached
