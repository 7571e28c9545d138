"""A report of `[summary]`: figures of arms that somebody else computed (docs/experiments.md).

A row has the figures of all users until its time; the last are the result, those of each time a
day's. A metric without a row at a time keeps its last. Metrics may be of different users: an arm's
users are the most that a metric has.
"""
import collections

from reports import statistics_of_arms as st
from reports.model import MetricReport, Report
from reports.units import Days, day_text


class Slice:
    """The figures as of a time."""

    share = 1.0
    merged = False

    def __init__(self, owner, known):
        self.owner, self.known = owner, known
        self.users_of = [max((self.given(m, arm).n for m in owner.metrics), default=0)
                         for arm in owner.arms]
        self.units = self.users_of

    def given(self, metric, arm):
        return self.known.get((metric["name"], arm), st.Given(0, 0.0, 0.0))

    def moments(self, matrix, arm):
        return self.given(matrix.metric, arm)

    def users(self, _):
        return self.users_of

    def of_metric(self, metric):
        """The same with the metric's own users."""
        found = Slice(self.owner, self.known)
        found.users_of = found.units = [self.given(metric, arm).n for arm in self.owner.arms]
        return found


class Column:
    """Stands for `model.Matrix`."""

    def __init__(self, metric):
        self.metric = metric


class SummaryReport(Report):
    def __init__(self, world, definition):
        self.world, self.definition, self.asked = world, definition, []
        self.read_settings()
        self.is_clustered = self.is_switchback = False
        self.metrics = definition["metric"]
        self.matrices = [Column(metric) for metric in self.metrics]
        self.unknown = collections.Counter()
        self.times = self.read()
        self.as_of_days = [Slice(self, known) for _, known in self.times]
        self.everyone = self.as_of_days[-1] if self.times else Slice(self, {})
        self.days = list(range(len(self.times))) if "time" in definition["summary"] else []

    def read(self):
        """[(label, what is known then)] in the order of time."""
        asked = self.definition["summary"]
        found = collections.defaultdict(dict)
        names = {v["name"]: arm for arm, v in enumerate(self.variants)}
        for metric in self.metrics:
            for row in self.world.tables[asked["table"]].rows:
                if "where" in asked and not asked["where"].of(row, self.world):
                    continue
                if not metric["where"].of(row, self.world):
                    continue
                arm = asked["variant"].of(row, self.world)
                users = asked["users"].of(row, self.world)
                if arm not in names:
                    self.unknown[arm] = max(self.unknown[arm], users)
                    continue
                time = asked["time"].of(row, self.world) if "time" in asked else 0
                found[time][metric["name"], names[arm]] = self.figure_of(metric, row, users)
        known, times = {}, []
        for time in sorted(found):
            known = {**known, **found[time]}
            times.append((self.label(time), known))
        return times

    def figure_of(self, metric, row, users):
        mean = metric["mean"].of(row, self.world)
        if metric["type"] == "mean":
            return st.Given(users, mean, metric["variance"].of(row, self.world))
        return st.Given(users, mean, mean * (1 - mean) * users / (users - 1) if users > 1 else 0.0)

    def label(self, time):
        kind = self.world.tables[self.definition["summary"]["table"]].columns["day"]
        if kind == "bigint":
            return str(time)
        return day_text(Days(self.definition.get("time_zone", "UTC")).of(time))

    def metric(self, number, slice_, everyone, level=None) -> MetricReport:
        return super().metric(number, slice_.of_metric(self.metrics[number]), everyone, level)

    def as_of(self, day, matrix):
        return self.as_of_days[day].of_metric(matrix.metric)

    def planned_today(self):
        return sum(self.everyone.users_of)

    def day_names(self):
        return [self.times[day][0] for day in self.days]

    def first_exposures(self):
        return []

    def missing_days(self):
        return []

    def balance(self):
        return {"checks": 0, "alarms": []}

    def assigned_otherwise(self):
        return None

    def seen(self):
        return 0, self.unknown

    def cap_of(self, matrix):
        return None

    def end_of_data(self):
        return {}

    def follow_up(self, number, metric):
        return {}
