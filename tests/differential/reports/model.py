"""A report from raw rows: what `uplake report --format json` should say.

`Report.all` gives a dict of the keys of docs/statistics/report-schema.md that the documents define.
Words (sentences, notes, methods) are left out, and so is `reproduce`.

Leaves that need more than equality are those of `compare`: `Near`, `OneOf`, `Unsure`.

Not here: numbers per unit (`units`), formulas (`statistics_of_arms`), figures of arms (`summary`).
"""
import collections
import dataclasses
import datetime
import math

import numpy as np

from reports import statistics_of_arms as st
from reports.assigned import arm_of
from reports.compare import Near, OneOf, Unsure
from reports.left_out import left_out
from reports.statistics_of_arms import Poor, Unavailable
from reports.data import DAY
from reports.units import EPOCH, Exposed, Numbers, day_text

SHARES = ("proportion", "retention", "threshold", "funnel")
ALARM = 0.001
ROWS_MAX = 20


def metrics_of(definition):
    """Metrics as they are reported: a funnel is one per step."""
    for metric in definition["metric"]:
        if metric["type"] != "funnel":
            yield metric
            continue
        for number, step in enumerate(metric["steps"], start=1):
            yield {**metric, "name": f"{metric['name']}: {step['name']}", "reached": number,
                   "funnel": metric["name"], "step": step["name"]}


def whole(users):
    """A plan's share in whole users, at least one."""
    return max(1, math.floor(users + 0.5))


def is_ratio(metric):
    """Of two numbers per user: sums, or values over users who have one."""
    return metric["type"] == "ratio" or (
        metric["type"] in ("first", "last") and not metric.get("zeros"))


class Matrix:
    """One metric's numbers: a row per unit of `users`, whole or as of a day."""

    def __init__(self, owner, metric):
        self.owner, self.metric = owner, metric
        self.numbers = Numbers(owner.exposed, metric)
        self.width = len(self.numbers.columns)

    def row(self, user, until=None):
        return [self.numbers.number(place, user, until) for place in range(self.width)]

    def moments(self, users, until=None):
        users = [user for user in users if self.numbers.counts(user, until)]
        rows = [self.row(user, until) for user in users]
        if not self.owner.is_clustered:
            return st.Moments(_matrix(rows, self.width))
        clusters = collections.defaultdict(list)
        for user, row in zip(users, rows):
            clusters[user.cluster].append(row)
        # Sums over a cluster's users; beside each, but in ratios, the number of users.
        units = []
        for _, of_users in sorted(clusters.items()):
            sums = [math.fsum(column) if all(map(math.isfinite, column)) else sum(column)
                    for column in zip(*of_users)]
            if not is_ratio(self.metric):
                sums = [x for s in sums for x in (s, float(len(of_users)))]
            elif self.numbers.is_exclusive:
                sums.append(float(len(of_users)))
            units.append(sums)
        width = self.width + self.numbers.is_exclusive if is_ratio(self.metric) else 2 * self.width
        return st.Moments(_matrix(units, width))


def _matrix(rows, width):
    return np.array(rows, dtype=np.float64).reshape(len(rows), width)


class Report:
    def __init__(self, world, definition, asked):
        self.world, self.definition, self.asked = world, definition, asked
        self.read_settings()
        self.exposed = Exposed(world, definition)
        self.is_clustered = "cluster" in definition["exposures"]
        self.is_switchback = "switchback" in definition
        self.metrics = list(metrics_of(definition))
        self.matrices = [Matrix(self, metric) for metric in self.metrics]
        self.everyone = Slice(self, self.exposed.users)
        self.slices = {}  # as of days
        self._active = None
        self.days = self.days_with_data()

    def read_settings(self):
        definition = self.definition
        self.variants = definition["variant"]
        self.shares = [v["share"] for v in self.variants]
        self.alpha = definition.get("alpha", 0.05)
        self.inference = definition.get("inference", "fixed")
        self.growthbook = definition.get("compat") == "growthbook"
        self.lift = definition.get("lift", "delta" if self.growthbook else "fieller")
        controls = [i for i, v in enumerate(self.variants) if v.get("control")]
        self.control = controls[0] if controls else 0
        self.arms = range(len(self.variants))
        self.treatments = [i for i in self.arms if i != self.control]
        default = "none" if self.growthbook else "holm"
        self.correction = definition.get("correction", default)
        if self.inference == "bayesian":
            self.correction = "none"

    def all(self):
        d = self.definition
        metrics = self.goals_and_guardrails()
        # The dimension of strata comes with the others, asked for or not.
        strata = d.get("stratify")
        names = [*self.asked, *([strata] if strata not in (None, *self.asked) else [])]
        breakdowns = [self.breakdown(name) for name in names]
        self.correct_differences(breakdowns)
        health = self.health(breakdowns)
        verdict = self.verdict(metrics, health)
        self.distrust(health, metrics, breakdowns)
        series = [self.series(number, metric) for number, metric in enumerate(metrics)]
        total = sum(self.everyone.units)
        return {
            "schema": "uplake.report/1", "experiment": d["name"],
            "hypothesis": d.get("hypothesis"),
            "period": [d["start"], d["end"]] if "start" in d else None,
            "time_zone": d.get("time_zone", "UTC"), "alpha": self.alpha,
            "inference": self.inference, "correction": self.correction,
            "p_tests": "belief" if self.inference == "bayesian"
                       else "shown_effect" if self.lift == "delta" else "difference",
            "unit": "clusters" if self.is_clustered
                    else "region-times" if self.is_switchback else "users",
            "arms": [{
                "name": v["name"], "control": i == self.control, "planned_share": v["share"],
                "users": self.everyone.users_of[i], "units": self.everyone.units[i],
                "share": self.everyone.units[i] / total if total else None,
            } for i, v in enumerate(self.variants)],
            "health": health,
            "verdict": verdict,
            "metrics": [{**m.json(), "series": s, **self.follow_up(number, m)}
                        for number, (m, s) in enumerate(zip(metrics, series))],
            "breakdowns": [b.json() for b in breakdowns],
            "funnels": self.funnels(),
            "first_exposures": self.first_exposures(),
            "days": self.day_names(), **self.end_of_data(),
        }

    # Users whose window is not over, and days since exposure

    def end_of_data(self):
        needed = any(m.numbers.ends for m in self.matrices) or any(
            list(self.days_since(m.metric)) for m in self.matrices)
        if not needed:
            return {}
        seconds = -(-self.exposed.observed() // 1_000_000)
        local = (EPOCH + datetime.timedelta(seconds=seconds)).astimezone(self.exposed.days.zone)
        return {"observed_until": local.strftime("%Y-%m-%dT%H:%M:%S")}

    def follow_up(self, number, metric):
        matrix, found = self.matrices[number], {}
        if matrix.numbers.ends is not None:
            users = [sum(not matrix.numbers.is_over(u) for u in of_arm)
                     for of_arm in self.everyone.of_arm]
            found["in_progress"] = {"excluded": matrix.numbers.is_exclusive, "users": users}
        days = list(self.days_since(matrix.metric))
        if days:
            matrices = [Matrix(self, self.on_day(matrix, day)) for day in days]
            found["since_exposure"] = [
                {"arm": c.arm, "points": [self.point_since(day, of_day, c)
                                          for day, of_day in zip(days, matrices)]}
                for c in metric.comparisons]
        return found

    def days_since(self, metric):
        """Those that lie in the window as a whole."""
        asked = metric.get("days_since_exposure", self.definition.get("days_since_exposure", 0))
        numbers = Numbers(self.exposed, metric)
        if (metric["type"] in ("funnel", "distinct", "quantile") or not numbers.timed
                or self.is_switchback):
            return
        low, high = numbers.window()
        yield from (day for day in range(asked) if low <= day * DAY and (day + 1) * DAY <= high)

    @staticmethod
    def on_day(matrix, day):
        metric = {k: v for k, v in matrix.metric.items() if k != "cuped"}
        if isinstance(metric.get("cap"), (str, dict)):
            metric["cap"] = matrix.numbers.cap(0)
        return metric | {"window": {"from": f"{day} days", "to": f"{day + 1} days"},
                         "in_progress": "exclude"}

    def point_since(self, day, matrix, comparison):
        arms = (self.control, comparison.arm)
        found = {"day": day, "users": [self.everyone.users(matrix)[arm] for arm in arms]}
        values, pair = [], []
        for arm in arms:
            try:
                pair.append(self.plain_figure(matrix, self.everyone, arm))
                values.append(_finite(pair[-1].raw_value))
            except Unavailable:
                values.append(None)
        found["control"], found["treatment"] = values
        effect = {"effect": None, "low": None, "high": None}
        if comparison.poor:
            return found | dict.fromkeys(effect, Unsure(st.POOR))
        try:
            if len(pair) < 2:
                raise Unavailable("empty_arm")
            fixed = st.difference(*pair, self.alpha)
            if comparison.scale == "relative" and self.lift == "delta":
                fixed = st.lift(*pair, self.alpha)
            elif comparison.scale == "relative":
                fixed = st.pivot(*pair).estimate(
                    lambda df: st.t_critical(self.alpha, df), fixed.p)
            effect = {"effect": Near(fixed.value, fixed.noise), **_ends(fixed, "low", "high")}
        except Poor:
            effect = dict.fromkeys(effect, Unsure(st.POOR))
        except Unavailable:
            pass
        return found | effect

    def day_names(self):
        return [day_text(day) for day in self.days]

    def seen(self):
        """Users in many variants, and variants that the definition does not name."""
        return self.exposed.in_many, self.exposed.unknown

    def planned_today(self):
        return len(self.exposed.users)

    # Everyone

    def has_days(self):
        return "start" in self.definition and "time" in self.definition["exposures"]

    def first_day(self):
        return self.exposed.days.of(self.exposed.start)

    def days_with_data(self):
        """Days of the period up to the last with an exposure or a row that counts."""
        if not self.has_days():
            return []
        found = {user.day for user in self.exposed.users}
        for numbers in (m.numbers for m in self.matrices if m.numbers.is_exclusive):
            found |= {numbers.over_on(u) for u in self.exposed.users if numbers.counts(u)}
        found.update(day for _, day in self.active())
        if not found:
            return []
        return list(range(self.first_day(), max(found) + 1))

    def first_exposures(self):
        days = collections.defaultdict(lambda: [0] * len(self.variants))
        for user in self.exposed.users:
            if user.day is not None:
                days[user.day][user.arm] += 1
        return [{"day": day_text(day), "users": users} for day, users in sorted(days.items())]

    def funnels(self):
        found = {}
        for number, metric in enumerate(self.metrics):
            if "funnel" in metric:
                found.setdefault(metric["funnel"], []).append(
                    {"name": metric["step"], "metric": number})
        return [{"name": name, "steps": steps} for name, steps in found.items()]

    # Health

    @staticmethod
    def distrust(health, metrics, breakdowns):
        """Where users did not fall into the arms as planned nothing is called."""
        everyone = health["sample_ratio"]["alarm"]
        off = {(alarm["dimension"], alarm["value"]) for alarm in health["sample_ratio_alarms"]}
        metrics = list(metrics) if everyone else []
        for b in breakdowns:
            for row in b.rows:
                if everyone or (b.name, row.value) in off:
                    metrics += row.metrics
        for comparison in (c for m in metrics for c in m.comparisons):
            comparison.is_trusted = False

    def health(self, breakdowns):
        counts = self.everyone.units
        activation = self.activation()
        ratio = {"p": None, "chi_square": None, "sequential_p": None, "alarm": False,
                 "expected": []}
        if sum(counts):
            q, df, expected = st.sample_ratio(counts, self.shares)
            if self.growthbook:
                df = len(counts) - 1
            p = st.chi_square_p(q, df)
            ratio = {"p": p, "chi_square": q if math.isfinite(q) else None, "alarm": p < ALARM,
                     "sequential_p": Near(st.sequential_ratio_p(counts, self.shares), 1e-15),
                     "expected": expected, "unavailable": None}
        ratio["alarm"] = ratio["alarm"] or bool(activation and activation["alarm"])
        days = [(day["day"], day["users"]) for day in self.first_exposures()]
        in_many, unknown = self.seen()
        unknown = sorted(unknown.items(), key=lambda pair: (-pair[1], pair[0]))[:10]
        return {
            "sample_ratio": ratio,
            "sample_ratio_alarms": [
                {"dimension": b.name, **alarm} for b in breakdowns
                for alarm in self.alarms([(row.value, row.slice.users_of) for row in b.rows])],
            "sample_ratio_days": self.alarms(days),
            "users_in_many_variants": in_many,
            "unknown_variants": [{"value": v, "users": n} for v, n in unknown],
            "balance": self.balance(),
            "missing_days": self.missing_days(),
            "users_assigned_otherwise": self.assigned_otherwise(),
            "excluded": [{"table": rows["table"], "where": rows["where"].sql,
                          "users": self.exposed.excluded[number]}
                         for number, rows in enumerate(self.excludes())],
            "activation": activation,
            **left_out(self),
        }

    def excludes(self):
        return self.definition.get("exposures", {}).get("exclude", [])

    def activation(self):
        if "activated_by" not in self.definition.get("exposures", {}):
            return None
        activated = self.everyone.users_of
        idle = [sum(user.arm == arm for user in self.exposed.idle) for arm in self.arms]
        test = st.independence([activated, idle])
        return {"exposed": [a + b for a, b in zip(activated, idle)], "activated": activated,
                "independence": test, "alarm": test is not None and test["p"] < ALARM}

    def alarms(self, counts):
        if self.is_clustered:
            return []
        found = []
        for value, users in counts:
            if not sum(users):
                continue
            q, df, expected = st.sample_ratio(users, self.shares)
            p = st.chi_square_p(q, df)
            enough = all(e == 0 or e >= 5 for e in expected) or math.isinf(q)
            if enough and p < ALARM / len(counts):
                found.append({"value": value, "p": p})
        return found

    def balance(self):
        found = []
        for matrix in self.matrices:
            if "cuped" not in matrix.metric:
                continue
            for arm in self.treatments:
                try:
                    pair = [self.before(matrix, a) for a in (self.control, arm)]
                    estimate = st.difference(*pair, self.alpha)
                except Poor:
                    return Unsure(st.POOR)
                except Unavailable:
                    continue
                found.append((matrix.metric["name"], arm, estimate))
        alarms = [{"metric": name, "arm": arm, "p": estimate.p} for name, arm, estimate in found
                  if estimate.p < ALARM / len(found)]
        return {"checks": len(found), "alarms": alarms}

    def before(self, matrix, arm):
        moments = self.everyone.moments(matrix, arm)
        if moments.n == 0:
            raise Unavailable("empty_arm")
        if self.shape(matrix.metric) == "ratio":
            return st.ratio(moments, 2, 3)
        return st.plain(moments.n, moments.mean(1), moments.variance(1))

    def active(self):
        """(table, local day) -> users with a row there that counts: it passes a metric's filter,
        and is in the window of a metric of that table."""
        if self._active is None:
            self._active = collections.defaultdict(set)
            tables = collections.defaultdict(list)
            for matrix in self.matrices:
                numbers = matrix.numbers
                if self.has_days() and numbers.timed and matrix.metric["type"] != "quantile":
                    tables[numbers.table].append(numbers)
            for table, of_table in tables.items():
                self.find_active(table, of_table)
        return self._active

    def find_active(self, table, of_table):
        columns = [(numbers, column) for numbers in of_table for column in numbers.columns]
        for user in self.exposed.users:
            for time, row in of_table[0].rows().get(user.key, ()):
                if any(n.in_window(c, user, time) for n, c in columns
                       if c.high > 0 and not c.from_exposure) and any(
                        n.is_wanted(c, row) for n, c in columns):
                    self._active[table, self.exposed.days.of(time)].add(user.key)

    def missing_days(self):
        active = collections.defaultdict(collections.Counter)
        for (table, day), users in self.active().items():
            active[table][day] = len(users)
        missing = []
        for table, counts in sorted(active.items()):
            median = sorted(counts.values())[len(counts) // 2]
            if median >= 30:
                missing += [{"table": table, "day": day_text(day)} for day in self.days
                            if day > min(counts) and day not in counts]
        return missing

    def assigned_otherwise(self):
        if "assignment" not in self.definition:
            return None
        asked = self.definition["assignment"]
        return sum(arm_of(asked, str(user.key), self.shares) != user.arm
                   for user in self.exposed.users + self.exposed.idle)

    # Metrics

    def shape(self, metric):
        kind = metric["type"]
        if is_ratio(metric):
            return "ratio"
        if kind == "quantile":
            return kind
        if self.is_clustered:
            return "ratio"
        return "share" if kind in SHARES and not self.is_switchback else "mean"

    def plain_figure(self, matrix, slice_, arm):
        metric = matrix.metric
        if metric["type"] != "quantile":
            moments = slice_.moments(matrix, arm)
            if "transform" in metric and moments.n and not moments.finite:
                raise Unavailable("no_log")
            return st.figure(self.shape(metric), moments)
        if not slice_.users(matrix)[arm]:
            raise Unavailable("empty_arm")
        values, clusters = slice_.quantile_values(matrix, arm)
        if values is None or not values:
            raise Unavailable("no_quantile")
        return st.quantile_figure(values, metric["level"], clusters, self.growthbook)

    def figures(self, matrix, slice_, arm):
        pair = [self.plain_figure(matrix, slice_, a) for a in (self.control, arm)]
        if "cuped" not in matrix.metric:
            return pair
        moments = [slice_.moments(matrix, a) for a in (self.control, arm)]
        if self.shape(matrix.metric) == "ratio":
            return st.adjust_ratios(*moments)
        if matrix.numbers.has_overall():
            moments = [st.Moments(m.matrix[:, :-1]) for m in moments]
        return st.adjust_means(*moments)

    def planned_of_pair(self, planned, arm):
        pair = self.shares[self.control] + self.shares[arm]
        return whole(planned * pair / sum(self.shares))

    def planned(self):
        return self.definition.get("planned_users", 5000 if self.growthbook else None)

    def today(self, arm):
        users = self.everyone.users_of[self.control] + self.everyone.users_of[arm]
        return st.todays_look(users, self.planned_of_pair(self.planned(), arm),
                              self.definition["looks"])

    def users_and_plan(self, arm, slice_, matrix):
        planned = self.planned_of_pair(self.planned(), arm)
        if slice_.share != 1 and not self.growthbook:
            planned = whole(planned * slice_.share)
        users = slice_.users(matrix)
        return users[self.control] + users[arm], planned

    def looked(self, estimate, arm, slice_, matrix):
        """What the kind of inference makes of a fixed look's estimate."""
        if self.inference == "anytime":
            return st.anytime(estimate, *self.users_and_plan(arm, slice_, matrix),
                              self.alpha, self.level)
        if self.inference == "group_sequential":
            return st.at_look(estimate, self.today(arm)[0], self.level, self.alpha)
        if self.inference == "bayesian":
            return st.posterior(estimate, self.definition.get("prior"), self.level)
        return estimate

    def unit(self, metric, pair, lift):
        """What a prior of lifts is to be multiplied by to be one of differences, which those of logs are."""
        if "transform" in metric or self.inference != "bayesian" or "prior" not in self.definition or self.lift == "none":
            return 1.0
        if isinstance(lift, Unavailable):
            raise lift
        return lift.base if isinstance(lift, st.Pivot) else abs(pair[0].raw_value)

    def looked_lift(self, lift, difference, arm, slice_, matrix):
        """The lift, from a fixed look's (or its pivot) and the difference after the looks."""
        if not isinstance(lift, st.Pivot):
            return self.looked(lift, arm, slice_, matrix)
        if self.inference == "fixed":
            return lift.estimate(lambda df: st.t_critical(self.level, df), difference.p, lift.df(0))
        if self.inference == "bayesian":
            own = difference.error ** 2
            errors = (own, lift.errors[1] * own / lift.errors[0], lift.errors[2])
            lift = dataclasses.replace(lift, difference=difference.value, errors=errors)
            return lift.estimate(lambda _: st.z_of(self.level), difference.p)
        critical = (difference.high - difference.low) / (2 * difference.error)
        return lift.estimate(lambda _: critical, difference.p, rough=(difference.rough, difference.rough_ends))

    def metric(self, number, slice_, everyone, level=None):
        """`level`: of intervals, if it is not alpha."""
        self.level = level or self.alpha
        matrix = self.matrices[number]
        try:
            base = self.plain_figure(matrix, slice_, self.control)
            error = math.sqrt(base.raw_variance / base.n) if base.raw_variance > 0 else 0.0
            strength = abs(base.raw_value) / error if error else (
                math.inf if base.raw_value else math.nan)
            strength = math.nan if math.isnan(base.raw_variance) else strength
        except Unavailable:
            strength = math.inf
        found = MetricReport(matrix.metric, [self.arm_value(matrix, slice_, a) for a in self.arms],
                             [self.arm_moments(matrix, slice_, a) for a in self.arms],
                             self.cap_of(matrix))
        for arm in self.treatments:
            found.comparisons.append(
                self.compare(matrix, slice_, arm, everyone, strength >= st.z_of(self.alpha)))
        return found

    def cap_of(self, matrix):
        cap = matrix.metric.get("cap")
        if not isinstance(cap, (str, dict)) or not self.exposed.users:
            return None
        cap = matrix.numbers.cap(0)
        return cap if math.isfinite(cap) else None

    def arm_value(self, matrix, slice_, arm):
        metric = matrix.metric
        found = {"users": slice_.users(matrix)[arm]}
        try:
            value = self.plain_figure(matrix, slice_, arm).value
        except Unavailable:
            value = None
        if metric["type"] == "quantile":
            values, _ = slice_.quantile_values(matrix, arm)
            value = None
            if values:
                value = st.band_of(values, metric["level"])[0][1]
            count = None if values is None else float(len(values))
            # An arm without values in a slice: none or 0 of them.
            return found | {"value": _finite(value), "numerator": None,
                            "denominator": count if count else OneOf((0.0, None))}
        moments = slice_.moments(matrix, arm)
        found["value"] = _finite(value)
        found["numerator"] = _finite(float(moments.sums[0]))
        found["denominator"] = (_finite(float(moments.sums[1])) if self.shape(metric) == "ratio"
                                else float(moments.n))
        for key in ("numerator", "denominator"):
            if found[key] is not None:
                found[key] = Near(found[key], 1e-13 * _or_zero(float(abs(moments.matrix).sum())))
        return found

    def arm_moments(self, matrix, slice_, arm):
        if matrix.metric["type"] == "quantile":
            return {"units": slice_.users(matrix)[arm] if not self.only_quantiles() else Unsure("no unit"),
                    "means": [], "covariances": []}
        moments = slice_.moments(matrix, arm)
        columns = range(moments.columns)
        scales = [math.sqrt(max(_or_zero(moments.variance(i)), 0)) for i in columns]
        largest = [_or_zero(float(abs(moments.matrix[:, i]).max())) if moments.n else 0
                   for i in columns]
        covariances = []
        for i in columns:
            for j in range(i, moments.columns):
                value = _or_zero(moments.covariance(i, j))
                covariances.append(Near(value, 1e-11 * scales[i] * scales[j]))
        return {"units": moments.n,
                "means": [Near(_or_zero(moments.mean(i)), 1e-15 * largest[i]) for i in columns],
                "covariances": covariances}

    def only_quantiles(self):
        return all(m["type"] == "quantile" for m in self.metrics)

    def strata(self, matrix, arm, overall):
        """Strata's figures, put together where small or an arm has none; None if there are no strata."""
        name = self.definition.get("stratify")
        if name is None or self.shape(matrix.metric) in ("ratio", "quantile"):
            return None
        values = collections.defaultdict(list)
        for user in self.exposed.users:
            if user.arm in (self.control, arm) and matrix.numbers.counts(user):
                values[user.dimensions[name]].append(user)
        ordered = sorted(sorted(values.items()), key=lambda pair: -len(pair[1]))

        def figures(users):
            if len(users) < 20:
                return None
            try:
                pair = self.figures(matrix, Slice(self, users), arm)
                for side in pair:
                    side.check()
                return pair
            except Poor:
                raise
            except Unavailable:
                return None

        good = [(users, figures(users)) for _, users in ordered]
        rest = [user for users, pair in good if pair is None for user in users]
        good = [(users, pair) for users, pair in good if pair is not None]
        if rest:
            together = figures(rest)
            if together is None and good:
                users = good.pop()[0] + rest
                good.append((users, figures(users)))
            else:
                good.append((rest, together))
        pairs = [pair for _, pair in good]
        if not pairs or None in pairs:
            return None
        try:
            for side in overall:
                side.check()
            return st.stratified(pairs, overall, self.level)
        except Poor:
            raise
        except Unavailable:
            return None

    def tested(self, matrix, slice_, pair, arm):
        """The difference of one look, and the lift by the delta method or its pivot."""
        metric = matrix.metric
        test = metric.get("test", "unpooled")
        usual, lift = _or_why(st.difference, *pair, self.level), None
        if self.lift == "delta":
            lift = _or_why(st.lift, *pair, self.level)
        else:
            lift = _or_why(st.pivot, *pair)
        if test == "unpooled":
            return usual, lift
        counts = []
        for a in (self.control, arm):
            moments = slice_.moments(matrix, a)
            counts += [round(float(moments.sums[0])), moments.n]
        if test == "pooled":
            found = _or_why(st.pooled_difference, *counts, self.level)
        else:
            if isinstance(usual, Poor):
                raise usual
            low, high = st.newcombe(*counts, self.level)
            error = (high - low) / (2 * st.z_of(self.level))
            if not isinstance(usual, Unavailable):
                error = usual.error
            found = st.Estimate(pair[1].value - pair[0].value, error, math.inf, low, high,
                                st.fisher_p(*counts), 1e-15).checked()
        if isinstance(lift, st.Estimate) and not isinstance(found, Unavailable):
            lift = dataclasses.replace(lift, p=found.p)
        return found, lift

    def compare(self, matrix, slice_, arm, everyone, divisible):
        metric = matrix.metric
        pair, reduction, strata = None, None, None
        try:
            pair = self.figures(matrix, slice_, arm)
            if "cuped" in metric:
                poor = max(figure.condition for figure in pair) > st.CONDITION_MAX
                reduction = Unsure(st.POOR) if poor else st.variance_reduction(*pair)
            if everyone:
                strata = self.strata(matrix, arm, pair)
        except Unavailable as reason:
            fixed = lift = reason
        else:
            try:
                fixed, lift = self.tested(matrix, slice_, pair, arm)
            except Unavailable as reason:
                fixed = lift = reason
            if strata:
                fixed, lift = strata[0], strata[1 if self.lift == "delta" else 2]
            if "transform" in metric:
                lift = Unavailable("lift_of_logs")
            if strata and not isinstance(reduction, Unsure):
                try:
                    plain = st.difference(*pair, self.alpha)
                    kept = 1 - (reduction or 0)
                    reduction = 1 - kept * (strata[0].error / plain.error) ** 2
                except Unavailable:
                    pass
        shown = {}
        try:
            if isinstance(fixed, Unavailable):
                raise fixed
            unit = self.unit(metric, pair, lift)
            shown["absolute"] = self.looked(fixed.times(1 / unit), arm, slice_, matrix).times(unit)
        except Unavailable as reason:
            shown["absolute"] = reason
        try:
            for known in (lift, shown["absolute"]):
                if isinstance(known, Unavailable):
                    raise known
            shown["relative"] = self.looked_lift(lift, shown["absolute"], arm, slice_, matrix)
        except Unavailable as reason:
            shown["relative"] = reason
        ok = {s: not isinstance(e, Unavailable) for s, e in shown.items()}
        lift_holds = ok["relative"] and divisible and self.lift != "none"
        scale = "relative"
        if "transform" in metric or ok["absolute"] and not lift_holds:
            scale = "absolute"
        found = Comparison(self, matrix, arm, slice_, (fixed, lift), shown, scale, reduction)
        found.level, level = self.level, self.level
        found.non_inferiority = self.non_inferior(matrix, pair, arm, slice_)
        if everyone and "activated_by" in self.definition.get("exposures", {}):
            found.diluted = self.diluted(matrix, pair, arm, slice_, fixed, shown["absolute"])
        self.level = level
        found.poor = any(isinstance(e, Poor) for e in [fixed, lift, *shown.values()])
        if "equivalence" in metric and divisible and ok["absolute"] and ok["relative"]:
            try:
                found.equivalence = self.equivalent(metric["equivalence"], lift, shown, arm, slice_,
                                                    matrix)
            except Poor:
                found.poor = True
            except Unavailable:
                pass
        return found

    def diluted(self, matrix, pair, arm, slice_, fixed, difference):
        """The difference per exposed user, and as a share of what the control's exposed users have."""
        if (is_ratio(matrix.metric) or matrix.metric["type"] == "quantile"
                or isinstance(difference, Unavailable)):
            return None
        idle, users = self.exposed.idle, self.exposed.users
        exposed = len(users) + len(idle)
        share = len(users) / exposed
        of_share = share * (1 - share) / exposed

        def absolute():
            pivot = st.over(pair, 1 / share, of_share / share ** 4, 0.0)
            # Of strata and tests of shares it is another than that of the arms.
            errors = (fixed.error ** 2, *pivot.errors[1:])
            return dataclasses.replace(pivot, difference=fixed.value, errors=errors)

        def relative():
            if not matrix.numbers.has_overall():
                raise Unavailable("no_overall_lift")
            moments = [slice_.moments(matrix, a) for a in (self.control, arm)]
            rows = [matrix.row(user) for user in idle if user.arm == self.control]
            base = st.overall(moments, _matrix(rows, matrix.width), share, of_share, exposed)
            return st.over(pair, *base)

        try:
            return {scale: _or_why(lambda: self.looked_lift(pivot(), difference, arm, slice_, matrix))
                    for scale, pivot in [("absolute", absolute), ("relative", relative)]}
        except Poor:
            return Unsure(st.POOR)

    def non_inferior(self, matrix, pair, arm, slice_):
        metric = matrix.metric
        margin = metric.get("margin")
        if margin is None or pair is None or not pair[0].value > 0:
            return None
        try:
            distance = st.non_inferiority(*pair, margin, metric.get("direction", "increase"),
                                          self.alpha)
            if self.inference in ("fixed", "bayesian"):
                p = distance.p / 2 if distance.value > 0 else 1 - distance.p / 2
            elif self.inference == "anytime":
                p = st.anytime_above(distance, *self.users_and_plan(arm, slice_, matrix), self.alpha)
            else:
                self.level = self.alpha
                distance = self.looked(distance, arm, slice_, matrix)
                p = distance.p / 2 if distance.value > 0 else 1.0
        except Unavailable:
            return None
        holds = p < self.alpha / 2
        if self.inference == "group_sequential" and not self.today(arm)[1]:
            holds = False
        return {"margin": margin, "p": _p(p, distance) if p < 1 else 1.0, "holds": holds}

    def equivalent(self, margin, lift, shown, arm, slice_, matrix):
        """equivalence.md: the larger p of the two tests, of distances that are above 0 within."""
        if self.inference == "bayesian":
            after = shown["absolute"] if isinstance(lift, st.Pivot) else shown["relative"]
            if isinstance(lift, st.Pivot):
                own = after.error ** 2
                errors = (own, lift.errors[1] * own / lift.errors[0], lift.errors[2])
                lift = dataclasses.replace(lift, difference=after.value, errors=errors,
                                           noise=after.noise)
            else:
                lift = after
        ps = []
        for side in (1, -1):
            if isinstance(lift, st.Pivot):
                value, df = lift.difference + side * margin * lift.base, lift.df(-side * margin)
                error = math.sqrt(lift.squared_error(-side * margin))
            else:
                value, error, df = lift.value + side * margin, lift.error, lift.df
            if self.inference == "bayesian":
                df = math.inf
            found = (st.normal(side * value, error, self.alpha, lift.noise) if math.isinf(df)
                     else st.student(side * value, error, df, self.alpha, lift.noise))
            if self.inference in ("fixed", "bayesian"):
                p = found.p / 2 if found.value > 0 else 1 - found.p / 2
            else:
                found = self.looked(found, arm, slice_, matrix)
                p = found.p if found.value > 0 else 1.0
            ps.append((p, found))
        p, found = max(ps, key=lambda pair: pair[0])
        holds = p < self.alpha
        if self.inference == "group_sequential" and not self.today(arm)[1]:
            holds = False
        return {"margin": margin, "p": _p(p, found), "holds": holds}

    # Families

    def goals_and_guardrails(self):
        numbers = range(len(self.metrics))
        goals = [n for n in numbers if not self.metrics[n].get("guardrail", False)]
        found = dict(zip(goals, self.family([(n, self.everyone) for n in goals], True)))
        return [found.get(n) or self.metric(n, self.everyone, True) for n in numbers]

    def family(self, asked, everyone):
        """Metrics of slices that are corrected together, with intervals that fit the correction."""
        size = max(1, len(asked) * len(self.treatments))
        level = self.alpha / size if self.correction == "holm" else self.alpha
        found = [self.metric(*one, everyone, level) for one in asked]
        self.correct(found)
        comparisons = [c for m in found for c in m.comparisons]
        if self.correction == "benjamini-hochberg" and any(c.family_poor for c in comparisons):
            # How many are called decides every interval.
            for comparison in comparisons:
                comparison.poor = True
            return found
        ps = [c.p_adjusted for c in comparisons if c.deciding() is not None]
        called = max(1, sum(p < self.alpha for p in ps))
        if self.correction == "benjamini-hochberg" and called < len(ps):
            found = [self.metric(*one, everyone, self.alpha * called / len(ps)) for one in asked]
            self.correct(found)
        if self.correction == "holm":
            for comparison in comparisons:
                comparison.leave_out_zero()
        return found

    def correct(self, metrics):
        family = [c for m in metrics for c in m.comparisons]
        if any(c.poor for c in family):
            for comparison in family:
                comparison.family_poor = True
        family = [c for c in family if c.deciding() is not None]
        for comparison, p in zip(family, st.corrected([c.deciding().p for c in family],
                                                      self.correction)):
            comparison.p_adjusted = p

    @staticmethod
    def correct_differences(breakdowns):
        found = [d for breakdown in breakdowns for d in breakdown.differences]
        unsure = any(isinstance(d, Unsure) for d in found)
        found = [d for d in found if not isinstance(d, Unsure)]
        adjusted = st.corrected([d["p"].value for d in found], "holm")
        for d, p in zip(found, adjusted):
            d["p_adjusted"] = Unsure(st.POOR) if unsure else Near(p, len(found) * d["p"].atol)

    def breakdown(self, name):
        values = collections.defaultdict(list)
        for user in self.exposed.users:
            values[user.dimensions[name]].append(user)
        ordered = sorted(sorted(values.items()), key=lambda pair: -len(pair[1]))
        if len(ordered) > ROWS_MAX:
            rest = [user for _, users in ordered[ROWS_MAX - 1:] for user in users]
            ordered = [*ordered[:ROWS_MAX - 1], ("(other)", rest)]
        total = len(self.exposed.users)
        rows = []
        for value, users in ordered:
            slice_ = Slice(self, users, len(users) / total, merged=(value, users) == (
                "(other)", ordered[-1][1]) and len(values) > ROWS_MAX)
            rows.append(BreakdownRow(value, slice_, []))
        differences = []
        for number, metric in enumerate(self.metrics):
            family = self.family([(number, row.slice) for row in rows], False)
            for row, found in zip(rows, family):
                row.metrics.append(found)
            for place, arm in enumerate(self.treatments):
                differences += self.differences(
                    metric, arm, [row.metrics[number].comparisons[place] for row in rows])
        return Breakdown(name, rows, differences)

    def differences(self, metric, arm, comparisons):
        if any(c.poor for c in comparisons):
            return [Unsure(st.POOR)]
        known = [c.fixed for c in comparisons if not isinstance(c.fixed[0], Unavailable)]
        if len(known) < 2:
            return []
        differences = [e for e, _ in known]
        scale = "absolute"
        if self.lift == "fieller" and all(isinstance(lift, st.Pivot) for _, lift in known):
            scale = "relative"
            try:
                q, df = st.spread_of_lifts([lift for _, lift in known])
            except Poor:
                return [Unsure(st.POOR)]
        else:
            q, df = st.heterogeneity([(e.value, e.error) for e in differences])
        noise = sum(2 * abs(e.value) * e.noise / e.error ** 2 + 1e-13 * (e.value / e.error) ** 2
                    for e in differences)
        p = st.chi_square_p(q, df)
        return [{"metric": metric["name"], "arm": arm, "scale": scale, "q": Near(q, noise + 1e-12), "df": df,
                 "p": Near(p, noise + 1e-12)}]

    # Days

    def series(self, number, metric):
        matrix = self.matrices[number]
        if matrix.metric["type"] == "quantile" or not self.days:
            return []
        return [{"arm": c.arm, "points": [self.point(matrix, c, day) for day in self.days]}
                for c in metric.comparisons]

    def point(self, matrix, comparison, day):
        if comparison.poor:
            return Unsure(st.POOR)
        arm = comparison.arm
        slice_ = self.as_of(day, matrix)
        try:
            pair = self.figures(matrix, slice_, arm)
            level = comparison.level
            difference = st.difference(*pair, level)
        except Poor:
            return Unsure(st.POOR)
        except Unavailable:
            return None
        planned = self.planned() if self.inference in ("anytime", "group_sequential") else None
        if planned is None:
            planned = max(2, self.planned_today())
        users = slice_.users(matrix)[self.control] + slice_.users(matrix)[arm]
        try:
            planned = self.planned_of_pair(planned, arm)
            always = st.anytime(difference, users, planned, self.alpha, level)
            fixed, error = difference, difference.error
            if comparison.scale == "relative" and self.lift == "delta":
                fixed = st.lift(*pair, level)
                always, error = st.anytime(fixed, users, planned, self.alpha, level), fixed.error
            elif comparison.scale == "relative":
                pivot = st.pivot(*pair)
                critical = (always.high - always.low) / (2 * always.error)
                fixed = pivot.estimate(lambda df: st.t_critical(level, df), difference.p)
                always = pivot.estimate(lambda _: critical, always.p)
                error = difference.error / pivot.base
        except Poor:
            return Unsure(st.POOR)
        except Unavailable:
            return None
        return {
            "control": pair[0].raw_value, "treatment": pair[1].raw_value,
            "effect": Near(fixed.value, fixed.noise), **_ends(fixed, "low", "high"),
            **_ends(always, "anytime_low", "anytime_high"),
            "detectable": detectable(error, self.alpha),
        }

    def as_of(self, day, matrix):
        if day not in self.slices:
            users = [user for user in self.exposed.users if user.day <= day]
            self.slices[day] = Slice(self, users, until=day)
        return self.slices[day]

    # Verdict

    def verdict(self, metrics, health):
        if health["sample_ratio"]["alarm"]:
            return {"decision": "do_not_trust", "arms": []}
        if any(c.poor or c.family_poor or c.is_close() for m in metrics for c in m.comparisons):
            return Unsure(st.POOR)
        arms = [{"arm": arm, "decision": self.decision(metrics, place)}
                for place, arm in enumerate(self.treatments)]
        order = ["ship", "trade_off", "keep_running", "roll_back"]
        best = min((arm["decision"] for arm in arms), key=order.index)
        return {"decision": best, "arms": arms}

    def decision(self, metrics, place):
        goals = [m.comparisons[place] for m in metrics if not m.guardrail]
        guards = [(m, m.comparisons[place]) for m in metrics if m.guardrail]
        better = any(c.call() == "better" for c in goals)
        worse = any(c.call() == "worse" for c in [*goals, *(c for _, c in guards)])
        unguarded = any(
            c.call() == "unavailable"
            or "margin" in m.metric and not (c.non_inferiority or {"holds": False})["holds"]
            or "equivalence" in m.metric and not (c.equivalence or {"holds": False})["holds"]
            for m, c in guards)
        same = goals and all((c.equivalence or {"holds": False})["holds"] for c in goals)
        if better or same and not worse:
            return "trade_off" if worse or unguarded else "ship"
        return "roll_back" if worse else "keep_running"


class Slice:
    """Some users: everyone, those with a value of a dimension, or those exposed by a day."""

    def __init__(self, owner, users, share=1.0, merged=False, until=None):
        self.owner, self.share, self.merged, self.until = owner, share, merged, until
        self.of_arm = [[] for _ in owner.arms]
        for user in users:
            self.of_arm[user.arm].append(user)
        self.users_of = [len(users) for users in self.of_arm]
        self.units = self.users_of
        if owner.is_clustered:
            self.units = [len({user.cluster for user in users}) for users in self.of_arm]
        self._moments = {}

    def moments(self, matrix, arm):
        key = (matrix, arm)
        if key not in self._moments:
            self._moments[key] = matrix.moments(self.of_arm[arm], self.until)
        return self._moments[key]

    def users(self, matrix):
        """Per arm, those whom the metric does not leave out."""
        counts = matrix.numbers.counts
        return [sum(counts(user, self.until) for user in users) for users in self.of_arm]

    def quantile_values(self, matrix, arm):
        """Sorted values, and per user those at or below the quantile (of rows only)."""
        if self.merged:
            return None, None
        users = [user for user in self.of_arm[arm] if matrix.numbers.counts(user)]
        if matrix.metric.get("per", "user") == "user":
            return sorted((matrix.row(user)[0] for user in users),
                          key=lambda v: (math.isnan(v), v)), None
        values = [matrix.numbers.row_values(user) for user in users]
        values = [own for own in values if own]
        ordered = sorted((v for own in values for v in own), key=lambda v: (math.isnan(v), v))
        if not ordered:
            return [], None
        middle = st.band_of(ordered, matrix.metric["level"])[0][1]
        rows = [[float(sum(v <= middle for v in own)), float(len(own))] for own in values]
        return ordered, st.Moments(_matrix(rows, 2))


@dataclasses.dataclass
class MetricReport:
    metric: dict
    values: list
    moments: list
    cap: float | None
    comparisons: list = dataclasses.field(default_factory=list)

    @property
    def guardrail(self):
        return self.metric.get("guardrail", False)

    def json(self):
        return {
            "name": self.metric["name"], "kind": self.metric["type"],
            "direction": self.metric.get("direction", "increase"), "guardrail": self.guardrail,
            "values": self.values, "comparisons": [c.json() for c in self.comparisons],
            "moments": self.moments, "cap": self.cap,
        }


class Comparison:
    def __init__(self, owner, matrix, arm, slice_, fixed, shown, scale, reduction):
        self.owner, self.matrix, self.arm, self.slice = owner, matrix, arm, slice_
        self.fixed, self.shown, self.scale, self.reduction = fixed, shown, scale, reduction
        self.non_inferiority = self.equivalence = self.diluted = None
        self.poor = self.family_poor = False
        self.is_trusted = True
        found = self.deciding()
        self.p_adjusted = None if found is None else found.p

    def deciding(self):
        found = self.shown[self.scale]
        return None if isinstance(found, Unavailable) else found

    def leave_out_zero(self):
        """Ends at 0 where Holm's method rejects and the interval does not."""
        if self.family_poor and any(e.low < 0 < e.high for e in self.shown.values()
                                    if not isinstance(e, Unavailable)):
            # Whether it rejects is not known.
            self.poor = True
        if self.deciding() is None or not self.p_adjusted < self.owner.alpha:
            return
        for estimates in (self.shown, self.diluted if isinstance(self.diluted, dict) else {}):
            for scale, found in estimates.items():
                if not isinstance(found, Unavailable):
                    end = {"low": max(found.low, 0)} if found.value > 0 else {"high": min(found.high, 0)}
                    estimates[scale] = dataclasses.replace(found, **end)

    def decided_by(self, difference, delta=None):
        """A difference in units of the scale that decides; of the delta method its own estimate."""
        lift = self.fixed[1]
        if self.scale == "absolute":
            found = difference
        elif isinstance(lift, st.Pivot):
            found = difference if isinstance(difference, Unavailable) else difference.times(1 / lift.base)
        else:
            found = lift if delta is None else delta
        return None if isinstance(found, Unavailable) else found

    def unplanned(self):
        return (self.owner.inference == "group_sequential"
                and not self.owner.today(self.arm)[1])

    def call(self):
        if self.deciding() is None:
            return "unavailable"
        if not self.is_trusted:
            return "untrusted"
        if not self.p_adjusted < self.owner.alpha or self.unplanned():
            return "inconclusive"
        rose = self.deciding().value > 0
        wanted = self.matrix.metric.get("direction", "increase") == "increase"
        return "better" if rose == wanted else "worse"

    def is_close(self):
        """A p-value that rounding could move across alpha, or an effect across 0."""
        found = self.deciding()
        if found is None:
            return False
        return (abs(self.p_adjusted - self.owner.alpha) < 1e-9 * self.owner.alpha
                or self.p_adjusted < self.owner.alpha and abs(found.value) <= found.noise)

    def json(self):
        if self.poor:
            return Unsure(st.POOR)
        if self.is_close():
            return Unsure("p is alpha")
        owner = self.owner
        fixed = self.decided_by(self.fixed[0])
        found = self.deciding()
        adjusted = self.p_adjusted
        if adjusted is not None:
            ratio = adjusted / found.p if found.p else 1
            adjusted = Near(adjusted, ratio * _p(found.p, found).atol)
        result = {
            "arm": self.arm, "scale": self.scale, "p_adjusted": adjusted, "call": self.call(),
            "interval_alpha": Near(self.level, 1e-15),
            "unplanned_look": self.unplanned(),
            "absolute": estimate_json(self.shown["absolute"]),
            "relative": estimate_json(self.shown["relative"]),
            "detectable": None if fixed is None else detectable(fixed.error, owner.alpha),
            "variance_reduction": self.reduction if isinstance(self.reduction, (Unsure, type(None)))
                                  else Near(self.reduction, 1e-9),
            "impact": self.impact(), "diluted": self.diluted_json(),
            "non_inferiority": self.non_inferiority, "belief": None,
            "further_users": further(fixed, owner.alpha),
        }
        if self.equivalence is not None:
            result["equivalence"] = self.equivalence
        if self.family_poor:
            result["p_adjusted"] = result["call"] = Unsure(st.POOR)
        if owner.inference == "bayesian" and found is not None:
            found = self.decided_by(self.shown["absolute"], self.shown["relative"])
            noise = found.noise
            known = st.belief(found, self.matrix.metric.get("direction", "increase"))
            result["belief"] = {
                k: Near(v, noise / found.error + 1e-15 * abs(found.value / found.error)
                        if k == "chance_to_win"
                        else noise + 1e-13 * (found.error + abs(found.value)))
                for k, v in known.items()}
        return result

    def diluted_json(self):
        if not isinstance(self.diluted, dict):
            return self.diluted
        return {scale: estimate_json(found) for scale, found in self.diluted.items()}

    def impact(self):
        found = self.shown["absolute"]
        metric = self.matrix.metric
        if metric["type"] == "quantile" or is_ratio(metric) or "transform" in metric:
            return None
        if isinstance(found, Unavailable):
            return None
        units = sum(self.slice.units if self.owner.is_switchback
                    else self.slice.users(self.matrix))
        wide = (1e-9 + found.rough_ends) * (found.high - found.low) + found.noise
        return {"value": Near(found.value * units, found.noise * units),
                "low": Near(found.low * units, wide * units),
                "high": Near(found.high * units, wide * units)}


def detectable(error, alpha):
    return (st.z_of(alpha) + st.z_of(0.4)) * error


def further(estimate, alpha):
    if estimate is None or estimate.value == 0:
        return None if estimate is None else OneOf((None,), estimate.noise)
    effort = (detectable(estimate.error, alpha) / estimate.value) ** 2
    if abs(estimate.value) <= 1e6 * estimate.noise:
        return Unsure("an effect of 0 but for rounding")
    return Near(max(0.0, effort - 1), effort * 2 * estimate.noise / abs(estimate.value)
                + 1e-12 * effort)


def estimate_json(found):
    if isinstance(found, Unavailable):
        return {"unavailable": found.code}
    return {"value": Near(found.value, found.noise), "error": found.error,
            "df": None if math.isinf(found.df) else found.df, **_ends(found, "low", "high"),
            "p": _p(found.p, found)}


def _or_why(of, *args):
    try:
        return of(*args)
    except Poor:
        raise
    except Unavailable as reason:
        return reason


def _ends(found, low, high):
    width = found.high - found.low
    wide = 1e-9 * max(abs(found.value), width) + found.noise + found.rough_ends * width
    return {low: Near(found.low, wide), high: Near(found.high, wide)}


def _p(p, found):
    """A p-value moves with z = value / error."""
    z = found.value / found.error
    return Near(p, 2 * found.noise / found.error + p * z * z * 1e-13 + found.rough * p)


def _finite(value):
    return value if value is not None and math.isfinite(value) else None


def _or_zero(value):
    return value if math.isfinite(value) else 0.0


@dataclasses.dataclass
class BreakdownRow:
    value: str
    slice: Slice
    metrics: list


@dataclasses.dataclass
class Breakdown:
    name: str
    rows: list
    differences: list

    def json(self):
        unsure = [found for found in self.differences if isinstance(found, Unsure)]
        return {
            "dimension": self.name,
            "rows": [{"value": row.value, "users": row.slice.users_of,
                      "metrics": [m.json() for m in row.metrics]} for row in self.rows],
            "differences": unsure[0] if unsure else self.differences,
        }
