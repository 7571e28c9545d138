"""Triggered analysis, overlap of experiments and holdouts from the command line, against loops over rows.

Nothing here is shared with Uplake but the definition's meaning.
"""

import collections
import csv
import datetime
import io
import json
import math
import statistics

import pyarrow as pa
import pytest

import support

START = datetime.datetime(2026, 11, 1)
HOUR = datetime.timedelta(hours=1)
END = START + 14 * 24 * HOUR


class _World:
    """3,000 users, most of them in experiments "one" and "two", some in a holdout."""

    def __init__(self, seed):
        self.exposures, self.events, self.holdout = [], [], []
        for i in range(3000):
            user = f"u{i}"
            arms = {name: "AB"[seed.random() < 0.5] for name in ("one", "two")}
            shown = {name: START + HOUR * seed.randrange(24 * 10) for name in arms}
            if seed.random() < 0.05:
                self.holdout.append(user)
            for name, share in (("one", 0.9), ("two", 0.7)):
                if seed.random() < share:
                    self.exposures.append((user, name, arms[name], shown[name]))
                    if seed.random() < 0.03:
                        self.exposures.append((user, name, seed.choice("AB"), shown[name] + HOUR))
            for _ in range(seed.randrange(8)):
                amount = seed.expovariate(0.1) * (1.3 if arms["one"] == "B" else 1)
                amount += 4 * (arms == {"one": "B", "two": "B"})
                event = seed.choice(["cart", "pay", "pay", "view"])
                self.events.append((user, event, amount, shown["one"] + HOUR * seed.randrange(-48, 24 * 7)))

    def load(self, lake, prefix="", *options):
        for name, columns, rows in (
            ("exposures", ["user_id", "experiment", "variant", "ts"], self.exposures),
            ("events", ["user_id", "event", "amount", "ts"], self.events),
            ("holdout", ["uid"], [(user,) for user in self.holdout]),
        ):
            data = pa.table(dict(zip(columns, map(list, zip(*rows)))))
            lake.create_from(prefix + name, data, *(options if "user_id" in columns else ()))

    def arms(self, experiment):
        """user -> (arm, first exposure); users in several arms have the arm None."""
        found = {}
        for user, name, arm, ts in self.exposures:
            if name == experiment and START <= ts < END:
                known, first = found.get(user, (arm, ts))
                found[user] = (arm if known == arm else None, min(first, ts))
        return found

    def rows(self, user, event):
        """Rows within the period."""
        if not hasattr(self, "by_user"):
            self.by_user = collections.defaultdict(list)
            for row in self.events:
                self.by_user[row[0]].append(row)
        return [(amount, ts) for _, e, amount, ts in self.by_user[user] if e == event and ts < END]


DEFINITION = """
name = "{name}"
start = "2026-11-01"
end = "2026-11-15"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
where = "experiment = '{name}'"
{exposures}
[[variant]]
name = "A"
share = 0.5
[[variant]]
name = "B"
share = 0.5
[[metric]]
name = "revenue"
type = "mean"
table = "events"
value = "amount"
where = "event = 'pay'"
"""


@pytest.fixture
def world(lake):
    made = _World(support.seeded("overlap"))
    made.load(lake)
    return made


def _write(folder, name, exposures=""):
    path = folder / f"{name}.toml"
    path.write_text(DEFINITION.format(name=name, exposures=exposures))
    return path


def _json(lake, *args):
    return json.loads(lake.run("report", *args, "--format", "json").out)


def _close(ours, theirs, what, relative=1e-9):
    assert math.isclose(ours, theirs, rel_tol=relative, abs_tol=1e-12), f"{what}: {ours} != {theirs}"


def _from(world, user, time):
    """What a user paid from a time on."""
    return math.fsum(amount for amount, ts in world.rows(user, "pay") if ts >= time)


def an_effect_of_activated_users_comes_with_its_worth_over_all(lake, folder, world):
    cart = "activated_by = { table = \"events\", where = \"event = 'cart'\" }"
    report = _json(lake, _write(folder, "one", cart))
    activated, exposed = {"A": [], "B": []}, {"A": [], "B": []}
    for user, (arm, first) in world.arms("one").items():
        if arm is None:
            continue
        exposed[arm].append(_from(world, user, first))
        times = [ts for _, ts in world.rows(user, "cart") if ts >= first]
        if times:
            activated[arm].append(_from(world, user, min(times)))
    check = report["health"]["activation"]
    assert check["exposed"] == [len(exposed[arm]) for arm in "AB"]
    assert check["activated"] == [len(activated[arm]) for arm in "AB"]
    assert [arm["users"] for arm in report["arms"]] == check["activated"]
    assert not check["alarm"] and check["independence"]["p"] > 0.001
    metric = report["metrics"][0]
    comparison = metric["comparisons"][0]
    means = {arm: statistics.fmean(activated[arm]) for arm in "AB"}
    difference = means["B"] - means["A"]
    for value, arm in zip(metric["values"], "AB"):
        _close(value["value"], means[arm], arm)
    _close(comparison["absolute"]["value"], difference, "difference")
    rate = sum(check["activated"]) / sum(check["exposed"])
    diluted = comparison["diluted"]
    _close(diluted["absolute"]["value"], rate * difference, "diluted difference")
    _close(diluted["relative"]["value"], rate * difference / statistics.fmean(exposed["A"]), "lift")
    assert diluted["absolute"]["p"] == diluted["relative"]["p"] == comparison["absolute"]["p"]
    # The share's own error widens the interval a little.
    plain = comparison["absolute"]
    width = (diluted["absolute"]["high"] - diluted["absolute"]["low"]) / rate
    assert 1 < width / (plain["high"] - plain["low"]) < 1.02
    text = lake.run("report", folder / "one.toml").out
    assert "exposed users were activated" in text and "over all exposed users a difference of" in text
    line = next(csv.DictReader(io.StringIO(lake.run("report", folder / "one.toml", "--format", "csv").out)))
    assert float(line["diluted_low"]) == diluted["absolute"]["low"]
    assert float(line["diluted_lift"]) == diluted["relative"]["value"]


def activation_that_the_treatment_moves_is_an_alarm(lake, folder, world):
    # Every payment of B counts as an activation, of A only large ones.
    where = "event = 'pay' AND (amount > 12 OR user_id IN (SELECT user_id FROM exposures WHERE experiment = 'one' AND variant = 'B'))"
    path = _write(folder, "one", f'activated_by = {{ table = "events", where = "{where}" }}')
    report = _json(lake, path)
    assert report["health"]["activation"]["alarm"] and report["health"]["sample_ratio"]["alarm"]
    assert report["verdict"]["decision"] == "do_not_trust"
    assert report["metrics"][0]["comparisons"][0]["call"] == "untrusted"
    assert "the arms differ in how many users were activated" in lake.run("report", path).out


def users_of_two_experiments_are_told_apart(lake, folder, world):
    one, two = _write(folder, "one"), _write(folder, "two")
    report = _json(lake, one, "--overlap", two)
    others = world.arms("two")
    table, cells = collections.Counter(), collections.defaultdict(list)
    for user, (arm, first) in world.arms("one").items():
        if arm is not None:
            there = (others[user][0] or "several") if user in others else "nowhere"
            table[there, arm] += 1
            cells[there, arm].append(_from(world, user, first))
    overlap, = report["overlaps"]
    assert (overlap["experiment"], overlap["arms"], overlap["control"]) == ("two", ["A", "B"], 0)
    assert overlap["users"] == [[table[there, arm] for arm in "AB"] for there in "AB"]
    assert overlap["several"] == [table["several", arm] for arm in "AB"]
    assert overlap["not_there"] == [table["nowhere", arm] for arm in "AB"]
    assert not overlap["alarm"]
    _close(overlap["arms_independent"]["chi_square"], _chi_square(overlap["users"]), "arms")
    there = [sum(column) for column in zip(*overlap["users"], overlap["several"])]
    expected = _chi_square([there, overlap["not_there"]])
    _close(overlap["presence_independent"]["chi_square"], expected, "presence")
    interaction, = overlap["interactions"]
    mean = {key: statistics.fmean(numbers) for key, numbers in cells.items()}
    square = {key: statistics.variance(numbers) / len(numbers) for key, numbers in cells.items()}
    four = [square[there, arm] for there in "AB" for arm in "AB"]
    sizes = [len(cells[there, arm]) for there in "AB" for arm in "AB"]
    difference = mean["B", "B"] - mean["B", "A"] - mean["A", "B"] + mean["A", "A"]
    found = interaction["difference"]
    _close(found["value"], difference, "interaction")
    _close(found["error"], math.sqrt(sum(four)), "its error")
    _close(found["df"], sum(four) ** 2 / sum(v * v / (n - 1) for v, n in zip(four, sizes)), "df")
    # B gains 4 a payment from the other's B.
    assert found["low"] > 0 and interaction["p_adjusted"] < 0.05
    breakdown, = report["breakdowns"]
    assert breakdown["dimension"] == overlap["dimension"] == "arm in two"
    assert {row["value"] for row in breakdown["rows"]} == {"A", "B", "(several)", "(not in it)"}
    # The same without the scan that experiments share, and the command that the report names.
    assert _json(lake, one, "--overlap", two, "--no-index") == report
    assert f"--overlap {two}" in report["reproduce"]["command"]
    text = lake.run("report", one, "--overlap", two).out
    assert "users are also in two; arms and presence there do not clearly depend" in text
    assert "The difference of B in B less that in A: +" in text
    html = lake.run("report", one, "--overlap", two, "--format", "html").out
    assert "users are also in two" in html


def _chi_square(table):
    columns, total = [sum(c) for c in zip(*table)], sum(map(sum, table))
    return sum((n - sum(row) * c / total) ** 2 / (sum(row) * c / total)
               for row in table for n, c in zip(row, columns))


def several_experiments_are_each_compared_with_the_others(lake, folder, world):
    one, two = _write(folder, "one"), _write(folder, "two")
    both = f"{one},{two}"
    found = json.loads(lake.run("report", one, two, "--overlap", both, "--format", "json").out)
    assert [[o["experiment"] for o in r["overlaps"]] for r in found] == [["two"], ["one"]]
    users = [sum(map(sum, r["overlaps"][0]["users"])) for r in found]
    assert users[0] == users[1], "who is in one arm of each is so from both sides"
    lake.refused("report", one, "--overlap", "thre", says=["no experiment `thre`"])


def users_of_a_holdout_are_left_out_and_counted(lake, folder, world):
    exclude = """exclude = [
  { table = "holdout", user = "uid" }, { table = "exposures", where = "experiment = 'two'" }]"""
    report = _json(lake, _write(folder, "one", exclude))
    one, holdout = world.arms("one"), set(world.holdout)
    two = {user for user, name, *_ in world.exposures if name == "two"}
    kept = {user: arm for user, (arm, _) in one.items() if user not in holdout | two}
    assert [e["users"] for e in report["health"]["excluded"]] == [
        len(holdout & set(one)), len((two - holdout) & set(one))]
    assert [arm["users"] for arm in report["arms"]] == [
        sum(found == arm for found in kept.values()) for arm in "AB"]
    assert report["health"]["users_in_many_variants"] == sum(arm is None for arm in kept.values())
    text = lake.run("report", folder / "one.toml").out
    assert f"{len(holdout & set(one))} users in holdout were left out" in text
    assert "users in exposures where experiment = 'two' were left out" in text


def ids_and_sql_say_the_same(lake, folder, world):
    """Tables whose users have ids, and the statements that a report shows."""
    world.load(lake, "with_", "--id-domain", "user_id=users")
    exclude = 'exclude = [{ table = "holdout", user = "uid" }]'
    for name in ("one", "two"):
        text = _write(folder, name, exclude).read_text()
        changed = text.replace('"exposures"', '"with_exposures"').replace('"events"', '"with_events"')
        (folder / f"{name}_ids.toml").write_text(changed)
    plain = _json(lake, folder / "one.toml", "--overlap", folder / "two.toml")
    ids = _json(lake, folder / "one_ids.toml", "--overlap", folder / "two_ids.toml")
    for report in (plain, ids):
        del report["reproduce"]
    assert plain == ids
    shown = lake.run("report", folder / "one.toml", "--overlap", folder / "two.toml", "--show-sql").out
    assert "__up_arm0" in shown and "__up_excluded0" in shown
    rows = lake.rows(shown)
    assert len(rows) == len(world.arms("one"))
