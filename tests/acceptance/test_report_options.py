"""Everything a definition can ask for, from the command line, against figures computed here row by row.

The model is slow and plain: lists of users, loops over their events, numpy and scipy-free formulas. It
shares nothing with Uplake but the definition's meaning.
"""

import csv
import datetime
import io
import json
import math
import shutil
import statistics
import subprocess

import pyarrow as pa
import pytest

import support

START = datetime.datetime(2026, 11, 1)
DAYS = 6
HOUR = datetime.timedelta(hours=1)


class _Shop:
    """1,500 users in two arms, with events before and after exposure."""

    def __init__(self, seed):
        self.exposures, self.events = [], []
        for i in range(1500):
            user, arm = f"u{i}", "AB"[seed.random() < 0.5]
            country = seed.choice(["DE", "DE", "FR", "US", "XX"])
            shown = START + HOUR * seed.randrange(24 * (DAYS - 1))
            self.exposures.append((user, arm, country, f"shop{i % 40}", shown))
            if seed.random() < 0.05:
                self.exposures.append((user, arm, "late", f"shop{i % 40}", shown + HOUR))
            level = seed.expovariate(1)
            for _ in range(seed.randrange(6)):
                back = HOUR * seed.randrange(24 * 7)
                self.events.append((user, "buy", level * seed.randrange(1, 20), "x", shown - HOUR - back))
            for _ in range(seed.randrange(9)):
                event = seed.choice(["view", "cart", "buy"])
                amount = level * seed.randrange(1, 20) * (1.2 if arm == "B" else 1)
                item = seed.choice("abcde")
                later = shown + HOUR * seed.randrange(24 * DAYS)
                self.events.append((user, event, amount, item, later))
        self.end = START + datetime.timedelta(days=DAYS)

    def load(self, lake):
        names = ["user_id", "variant", "country", "shop", "ts"]
        lake.create_from("exposures", pa.table(dict(zip(names, map(list, zip(*self.exposures))))))
        names = ["user_id", "event", "amount", "item", "ts"]
        lake.create_from("events", pa.table(dict(zip(names, map(list, zip(*self.events))))))

    def users(self, until=None):
        """user -> (arm, country, shop, first exposure), and the events that count."""
        until = until or self.end
        first = {}
        for user, arm, country, shop, ts in self.exposures:
            if ts < until and (user not in first or ts < first[user][3]):
                first[user] = (arm, country, shop, ts)
        rows = {user: [] for user in first}
        # At the same time a funnel's steps count in its order.
        order = ["view", "cart", "buy"].index
        for user, event, amount, item, ts in sorted(self.events, key=lambda row: (row[4], order(row[1]))):
            if user in first and ts < until:
                rows[user].append((event, amount, item, ts))
        return first, rows

    def numbers(self, of, until=None, window=None):
        """arm -> a number per user, of the user's rows in the window after exposure."""
        first, rows = self.users(until)
        low, high = window or (datetime.timedelta(0), None)
        found = {"A": [], "B": []}
        for user, (arm, _, _, shown) in first.items():
            inside = [r for r in rows[user] if r[3] >= shown + low and (high is None or r[3] < shown + high)]
            found[arm].append(of(inside))
        return found


HEAD = """
name = "shop"
start = "2026-11-01"
end = "2026-11-07"
{top}
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
{exposures}
[[variant]]
name = "A"
share = 0.5
[[variant]]
name = "B"
share = 0.5
[[dimension]]
name = "country"
"""


@pytest.fixture
def shop(lake):
    made = _Shop(support.seeded("report options"))
    made.load(lake)
    return made


def _report(lake, folder, metrics, *options, top="", exposures=""):
    path = folder / "experiment.toml"
    text = HEAD.format(top=top, exposures=exposures)
    for name, body in metrics.items():
        text += f'\n[[metric]]\nname = "{name}"\ntable = "events"\n{body}\n'
    path.write_text(text)
    return json.loads(lake.run("report", path, "--format", "json", *options).out)


def _metric(report, name):
    return next(m for m in report["metrics"] if m["name"] == name)


def _close(ours, theirs, what, relative=1e-9):
    assert math.isclose(ours, theirs, rel_tol=relative, abs_tol=1e-12), f"{what}: {ours} != {theirs}"


def _same_difference(report, name, numbers):
    """The mean per arm, and the difference with Welch's error."""
    metric = _metric(report, name)
    for value, arm in zip(metric["values"], "AB"):
        _close(value["value"], statistics.fmean(numbers[arm]), f"{name} of {arm}")
        assert value["users"] == len(numbers[arm]), name
    found = metric["comparisons"][0]["absolute"]
    means = {arm: statistics.fmean(numbers[arm]) for arm in "AB"}
    _close(found["value"], means["B"] - means["A"], name)
    spread = {arm: _variance(metric["kind"], numbers[arm]) for arm in "AB"}
    _close(found["error"], math.sqrt(sum(spread[a] / len(numbers[a]) for a in "AB")), f"{name} error")


def _variance(kind, numbers):
    if kind in ("proportion", "retention", "threshold", "funnel"):
        share = statistics.fmean(numbers)
        return share * (1 - share)
    return statistics.variance(numbers)


def _steps(rows):
    """How many of view, cart, buy a user did in this order; rows are sorted by time."""
    reached = 0
    for event, *_ in rows:
        reached += reached < 3 and event == ["view", "cart", "buy"][reached]
    return reached


def _sum(rows):
    return math.fsum(r[1] for r in rows if r[0] == "buy")


BUY = "value = \"amount\"\nwhere = \"event = 'buy'\""
FUNNEL = """type = "funnel"
steps = [
  { name = "view", where = "event = 'view'" },
  { name = "cart", where = "event = 'cart'" },
  { name = "buy", where = "event = 'buy'" },
]"""
TYPES = {
    "bought": "type = \"proportion\"\nwhere = \"event = 'buy'\"",
    "back": "type = \"retention\"\nwindow = { from = \"2 days\", to = \"3 days\" }",
    "big": f"type = \"threshold\"\nat_least = 20\n{BUY}",
    "way": FUNNEL,
    "revenue": f"type = \"mean\"\n{BUY}",
    "orders": "type = \"count\"\nwhere = \"event = 'buy'\"",
    "items": "type = \"distinct\"\nvalue = \"item\"",
    "first day": f"type = \"mean\"\nwindow = \"1 day\"\n{BUY}",
    "capped": f"type = \"mean\"\ncap = \"95 %\"\n{BUY}",
}
DAY = datetime.timedelta(days=1)


def every_type_of_metric_is_what_it_says(lake, folder, shop):
    report = _report(lake, folder, TYPES)
    bought = shop.numbers(lambda rows: float(any(r[0] == "buy" for r in rows)))
    _same_difference(report, "bought", bought)
    back = shop.numbers(lambda rows: float(bool(rows)), window=(2 * DAY, 3 * DAY))
    _same_difference(report, "back", back)
    _same_difference(report, "big", shop.numbers(lambda rows: float(_sum(rows) >= 20)))
    for reached, step in enumerate(["view", "cart", "buy"], start=1):
        way = shop.numbers(lambda rows: float(_steps(rows) >= reached))
        _same_difference(report, f"way: {step}", way)
    revenue = shop.numbers(_sum)
    _same_difference(report, "revenue", revenue)
    orders = shop.numbers(lambda rows: float(sum(r[0] == "buy" for r in rows)))
    _same_difference(report, "orders", orders)
    items = shop.numbers(lambda rows: float(len({r[2] for r in rows})))
    _same_difference(report, "items", items)
    _same_difference(report, "first day", shop.numbers(_sum, window=(0 * DAY, DAY)))
    ordered = sorted(revenue["A"] + revenue["B"])
    cap = ordered[math.ceil(len(ordered) * 0.95) - 1]
    _close(_metric(report, "capped")["cap"], cap, "cap")
    _same_difference(report, "capped", {a: [min(n, cap) for n in revenue[a]] for a in "AB"})
    assert [step["name"] for step in report["funnels"][0]["steps"]] == ["view", "cart", "buy"]


def every_day_equals_a_report_that_ends_there(lake, folder, shop):
    report = _report(lake, folder, TYPES, top='correction = "none"')
    assert report["days"][0] == "2026-11-01" and len(report["days"]) == DAYS
    for number, day in enumerate(report["days"]):
        if number == 0:
            continue
        until = START + DAY * (number + 1)
        for name, of in [("revenue", _sum), ("items", lambda rows: float(len({r[2] for r in rows}))),
                         ("way: buy", lambda rows: float(_steps(rows) >= 3))]:
            numbers = shop.numbers(of, until=until)
            point = _metric(report, name)["series"][0]["points"][number]
            if point is None:
                # Of few users the control cannot be told from 0, and there is no lift.
                assert number < DAYS // 2, (name, number)
                continue
            _close(point["control"], statistics.fmean(numbers["A"]), f"{name} on {day}", 1e-12)
            _close(point["treatment"], statistics.fmean(numbers["B"]), f"{name} on {day}", 1e-12)
    last = _metric(report, "revenue")
    effect = last["comparisons"][0][last["comparisons"][0]["scale"]]
    _close(last["series"][0]["points"][-1]["effect"], effect["value"], "the last day", 1e-12)


def quantiles_are_values_of_the_data(lake, folder, shop):
    body = "type = \"quantile\"\nlevel = 0.9\n" + BUY
    report = _report(lake, folder, {"user p90": body, "row p90": body + "\nper = \"row\""})
    first, rows = shop.users()
    for arm, name in enumerate("AB"):
        sums = sorted(shop.numbers(_sum)[name])
        of_users = _metric(report, "user p90")["values"][arm]["value"]
        assert of_users == pytest.approx(sums[math.ceil(len(sums) * 0.9) - 1], rel=1e-12)
        single = sorted(r[1] for user in first if first[user][0] == name
                        for r in rows[user] if r[0] == "buy" and r[3] >= first[user][3])
        of_rows = _metric(report, "row p90")["values"][arm]["value"]
        assert of_rows == single[math.ceil(len(single) * 0.9) - 1]
    for name in ("user p90", "row p90"):
        estimate = _metric(report, name)["comparisons"][0]["absolute"]
        assert estimate["error"] > 0 and estimate["low"] < estimate["value"] < estimate["high"]


def clusters_are_the_unit_of_randomness(lake, folder):
    """Shops in arms: a mean per user whose error comes from shops."""
    seed = support.seeded("clusters")
    exposures, events, sums = [], [], {}
    for i in range(1200):
        place = i % 60
        arm = "AB"[place % 2]
        exposures.append((f"u{i}", arm, f"s{place}", START + HOUR))
        amount = float(seed.randrange(100) + place)
        events.append((f"u{i}", amount, START + 2 * HOUR))
        users, total = sums.get((arm, place), (0, 0.0))
        sums[arm, place] = (users + 1, total + amount)
    lake.create_from("exposures", pa.table(dict(zip(
        ["user_id", "variant", "shop", "ts"], map(list, zip(*exposures))))))
    lake.create_from("events", pa.table(dict(zip(["user_id", "amount", "ts"], map(list, zip(*events))))))
    text = HEAD.replace("[[dimension]]\nname = \"country\"\n", "")
    path = folder / "e.toml"
    path.write_text(text.format(top="", exposures='cluster = "shop"') + """
[[metric]]
name = "spend"
type = "mean"
table = "events"
value = "amount"
""")
    report = json.loads(lake.run("report", path, "--format", "json").out)
    assert report["unit"] == "clusters" and [a["units"] for a in report["arms"]] == [30, 30]
    assert [a["users"] for a in report["arms"]] == [600, 600]
    means, errors = {}, {}
    for arm in "AB":
        pairs = [pair for (of, _), pair in sums.items() if of == arm]
        n = [p[0] for p in pairs]
        s = [p[1] for p in pairs]
        means[arm] = sum(s) / sum(n)
        residuals = [b - means[arm] * a for a, b in pairs]
        errors[arm] = statistics.variance(residuals) / len(pairs) / statistics.fmean(n) ** 2
    found = _metric(report, "spend")["comparisons"][0]["absolute"]
    _close(found["value"], means["B"] - means["A"], "difference")
    _close(found["error"], math.sqrt(errors["A"] + errors["B"]), "error")


def regions_that_switch_are_compared_by_stretches_of_time(lake, folder):
    seed = support.seeded("switchback")
    exposures, events, totals = [], [], {}
    for city in ("rome", "oslo", "lima"):
        for stretch in range(36):
            begin = START + stretch * 4 * HOUR
            arm = seed.choice("AB")
            exposures.append((city, arm, begin))
            total = 0.0
            for _ in range(seed.randrange(5, 15)):
                amount = float(seed.randrange(50))
                events.append((city, amount, begin + HOUR * (seed.random() * 3.99)))
                total += amount
            totals.setdefault(arm, []).append(total)
    lake.create_from("exposures", pa.table(dict(zip(["city", "variant", "ts"], map(list, zip(*exposures))))))
    lake.create_from("events", pa.table(dict(zip(["city", "amount", "ts"], map(list, zip(*events))))))
    path = folder / "e.toml"
    path.write_text("""
name = "prices"
start = "2026-11-01"
end = "2026-11-07"
[exposures]
table = "exposures"
variant = "variant"
time = "ts"
[switchback]
region = "city"
every = "4 hours"
[[variant]]
name = "A"
share = 0.5
[[variant]]
name = "B"
share = 0.5
[[metric]]
name = "sales"
type = "mean"
table = "events"
value = "amount"
""")
    report = json.loads(lake.run("report", path, "--format", "json").out)
    assert [a["units"] for a in report["arms"]] == [len(totals["A"]), len(totals["B"])]
    found = _metric(report, "sales")["comparisons"][0]["absolute"]
    _close(found["value"], statistics.fmean(totals["B"]) - statistics.fmean(totals["A"]), "difference")
    error = math.sqrt(sum(statistics.variance(totals[a]) / len(totals[a]) for a in "AB"))
    _close(found["error"], error, "error")


def arms_that_differ_from_the_hash_are_counted(lake, folder):
    """Users assigned by murmur3 as Optimizely does, then 30 of them shown the other arm."""
    ids = ", ".join(f"('ü{i}')" for i in range(2000))
    lake.run("sql", "-c", f"""
CREATE TABLE exposures AS
SELECT id AS user_id, TIMESTAMP '2026-11-01 10:00:00' AS ts, 'DE' AS country,
       CASE WHEN (optimizely_bucket(id, 'exp7') < 5000) = (row_number() OVER (ORDER BY id) > 30)
            THEN 'A' ELSE 'B' END AS variant
FROM (VALUES {ids}) AS t(id)""")
    lake.run("sql", "-c", "CREATE TABLE events AS SELECT user_id, 1.0 AS amount, ts FROM exposures")
    body = {"spend": "type = \"mean\"\nvalue = \"amount\""}
    hashed = "[assignment]\nsystem = \"optimizely\"\nseed = \"exp7\""
    report = _report(lake, folder, body, top=hashed)
    assert report["health"]["users_assigned_otherwise"] == 30
    text = lake.run("report", folder / "experiment.toml").out
    assert "in another arm than the hash gives" in text


def missing_days_are_named(lake, folder, shop):
    hole = "ts >= TIMESTAMP '2026-11-04' AND ts < TIMESTAMP '2026-11-05'"
    lake.run("sql", "-c", f"DELETE FROM events WHERE {hole}")
    report = _report(lake, folder, {"revenue": TYPES["revenue"]})
    missing = report["health"]["missing_days"]
    assert missing == [{"table": "events", "day": "2026-11-04"}]
    assert "no rows on 2026-11-04" in lake.run("report", folder / "experiment.toml").out


def strata_are_compared_within_and_averaged(lake, folder, shop):
    report = _report(lake, folder, {"revenue": TYPES["revenue"]}, top='stratify = "country"\nlift = "none"')
    first, rows = shop.users()
    cells = {}
    for user, (arm, country, _, shown) in first.items():
        mine = _sum([r for r in rows[user] if r[3] >= shown])
        cells.setdefault(country, {"A": [], "B": []})[arm].append(mine)
    total = sum(len(c["A"]) + len(c["B"]) for c in cells.values())
    mean = sum((len(c["A"]) + len(c["B"])) / total * (statistics.fmean(c["B"]) - statistics.fmean(c["A"]))
               for c in cells.values())
    comparison = _metric(report, "revenue")["comparisons"][0]
    _close(comparison["absolute"]["value"], mean, "stratified difference")
    assert "within values of country" in comparison["method"]


def inference_changes_intervals_and_says_so(lake, folder, shop):
    widths = {}
    for name, top in {
        "fixed": "",
        "anytime": 'inference = "anytime"\nplanned_users = 2000',
        "group_sequential": 'inference = "group_sequential"\nplanned_users = 2000\nlooks = 4',
        "bayesian": 'inference = "bayesian"\nprior = { deviation = 0.05 }',
    }.items():
        report = _report(lake, folder, {"revenue": TYPES["revenue"]}, top=top)
        assert report["inference"] == name
        estimate = _metric(report, "revenue")["comparisons"][0]["relative"]
        widths[name] = estimate["high"] - estimate["low"]
        assert lake.run("report", folder / "experiment.toml").out.count("%") > 3
    assert widths["fixed"] < widths["group_sequential"] < widths["anytime"]
    assert widths["bayesian"] < widths["fixed"]


def csv_has_a_line_per_comparison(lake, folder, shop):
    report = _report(lake, folder, TYPES, "--dimension", "country")
    path = folder / "experiment.toml"
    text = lake.run("report", path, "--format", "csv", "--dimension", "country").out
    lines = list(csv.DictReader(io.StringIO(text)))
    values = len(report["breakdowns"][0]["rows"])
    assert len(lines) == len(report["metrics"]) * (1 + values)
    for line, metric in zip(lines, report["metrics"]):
        assert line["metric"] == metric["name"] and line["value"] == ""
        found = metric["comparisons"][0]
        assert float(line["lift"]) == found["relative"]["value"]
        assert float(line["p_adjusted"]) == found["p_adjusted"]
        assert line["method"] == found["method"]


def formulas_stay_text_if_asked_for(lake, folder, shop):
    name = "=HYPERLINK(1)"
    lake.run("sql", "-c", "INSERT INTO exposures SELECT user_id || 'x', variant, '-1+1', shop, ts FROM exposures")
    _report(lake, folder, {name: TYPES["revenue"]}, "--dimension", "country")
    asked = ["report", folder / "experiment.toml", "--dimension", "country", "--format", "csv"]
    plain, escaped = lake.run(*asked).out, lake.run(*asked, "--escape-formulas").out
    rows = list(csv.DictReader(io.StringIO(escaped)))
    assert {row["metric"] for row in rows} == {"'" + name}
    assert "'-1+1" in {row["value"] for row in rows} and "DE" in {row["value"] for row in rows}
    assert any(float(row["difference_low"]) < 0 for row in rows), "numbers are numbers"
    assert escaped.replace("'=", "=").replace("'-", "-") == plain
    lake.refused("report", folder / "experiment.toml", "--escape-formulas", says=["--format csv"])
    statement = """SELECT -1 AS n, '=1+1' AS "@sum", 'x=1' AS b, NULL AS c, ['-1'] AS list"""
    lines = lake.run("sql", "-c", statement, "--format", "csv", "--escape-formulas").out.splitlines()
    assert lines == ["n,'@sum,b,c,list", "-1,'=1+1,x=1,,[-1]"]
    assert lake.run("sql", "-c", statement, "--format", "csv").out.splitlines()[1] == "-1,=1+1,x=1,,[-1]"
    lake.refused("sql", "-c", statement, "--escape-formulas", says=["--format csv"])


def what_misleads_is_said(lake, folder, shop):
    """A condition that no row passes, exposures without user or time, users who were there before."""
    users = len(shop.users()[0])
    lake.run("sql", "-c", """
        INSERT INTO exposures SELECT NULL, variant, country, shop, ts FROM exposures
        WHERE ts >= '2026-11-01' AND ts < '2026-11-07' LIMIT 5;
        INSERT INTO exposures SELECT user_id, variant, country, shop, NULL FROM exposures LIMIT 7""")
    metrics = {"typo": 'type = "count"\nwhere = "event = \'payed\'"', "fine": TYPES["revenue"]}
    before = _report(lake, folder, metrics)["health"]
    assert (before["exposures_without_user"], before["exposures_without_time"]) == (5, 7)
    assert before["unmatched"] == [{"metric": "typo", "table": "events", "where": "event = 'payed'"}]
    lake.run("sql", "-c", """
        INSERT INTO exposures SELECT user_id, variant, country, shop, TIMESTAMP '2026-10-31 00:00:00'
        FROM exposures WHERE user_id IS NOT NULL""")
    for options in [(), ("--no-index",), ("--remember",)]:
        health = _report(lake, folder, metrics, *options)["health"]
        assert health["users_exposed_before"] == users, options
        assert health["no_exposures"] is None
    text = lake.run("report", folder / "experiment.toml").out
    for words in ["5 exposures without a user", "7 exposures without a time", f"{users:,} users were exposed before",
                  "condition of: typo", "no row of events passes event = 'payed'", "p tests the difference"]:
        assert words in text, text
    nobody = _report(lake, folder, metrics, exposures='where = "country = \'Atlantis\'"')
    assert nobody["health"]["no_exposures"] == "where_passes_nothing"
    assert nobody["health"]["unmatched"] == []


def a_report_says_how_to_make_it_again(lake, folder, shop):
    report = _report(lake, folder, {"revenue": TYPES["revenue"]})
    again = report["reproduce"]
    assert again["tables"] == [["events", lake.version("events")], ["exposures", lake.version("exposures")]]
    assert again["definition"] == (folder / "experiment.toml").read_text()
    rows = lake.run("sql", "--format", "json", "-c", f"SELECT count(*) AS n FROM ({again['sql']})").out
    assert json.loads(rows)["n"] >= sum(arm["users"] for arm in report["arms"])


def _power(*args):
    command = [support.BINARY, "power", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def _users(done):
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split(": ")[1].split(" users")[0].replace(",", ""))


def users_are_planned_before_there_is_an_experiment():
    share, lifted = 0.1, 0.105
    variance = (share * (1 - share) + lifted * (1 - lifted)) / 2
    z = statistics.NormalDist().inv_cdf
    users = 2 * (z(0.975) + z(0.8)) ** 2 * variance / (lifted - share) ** 2
    done = _power("--share", 0.1, "--lift", 0.05, "--per-day", 1000)
    found = _users(done)
    assert abs(found - users) < 5, done.stdout
    assert f"{math.ceil(2 * found / 1000)} days" in done.stdout
    per_user = ["--mean", 10, "--deviation", 30, "--lift", 0.05]
    assert abs(_users(_power(*per_user)) / _users(_power(*per_user, "--cuped", 0.5)) - 2) < 0.01
    for args, says in [
        (["--lift", 0.05], "--share"),
        (["--share", 0.9, "--lift", 0.5], "between 0 and 1"),
        (["--share", 0.1, "--lift", 0], "effect"),
        (["--share", 0.1, "--lift", 0.05, "--power", 2], "power"),
    ]:
        done = _power(*args)
        assert done.returncode == 1 and says in done.stderr, done.stderr


def test_several_reports_are_those_made_one_by_one(lake, shop, tmp_path):
    """One scan of each table for all; a definition that cannot be used does not keep the others back."""
    metrics = {
        "gmv": 'type = "mean"\nvalue = "amount"\nwhere = "event = \'buy\'"',
        "items": 'type = "distinct"\nvalue = "item"',
        "way": 'type = "funnel"\nsteps = [{ name = "a", where = "event = \'view\'" }, '
        '{ name = "b", where = "event = \'buy\'" }]',
    }
    for name, where in [("all", ""), ("german", "where = \"country = 'DE'\""), ("wrong", 'where = "colour = 1"')]:
        text = HEAD.format(top="", exposures=where).replace('name = "shop"', f'name = "{name}"')
        for metric, body in metrics.items():
            text += f'\n[[metric]]\nname = "{metric}"\ntable = "events"\n{body}\n'
        (tmp_path / f"{name}.toml").write_text(text)
    paths = {name: tmp_path / f"{name}.toml" for name in ["all", "german", "wrong"]}
    options = ["--dimension", "country", "--format"]
    alone = [json.loads(lake.run("report", paths[n], *options, "json").out) for n in ["all", "german"]]
    together = lake.run("report", paths["all"], paths["wrong"], paths["german"], *options, "json", code=1)
    assert json.loads(together.out) == alone, "each is what it is by itself"
    assert "experiment `wrong`" in together.err and "colour" in together.err, together.err
    assert "1 of 3 reports could not be made" in together.err, together.err
    (tmp_path / "unreadable.toml").write_text("name = ")
    some = lake.run("report", tmp_path / "unreadable.toml", paths["all"], *options, "json", code=1)
    assert json.loads(some.out) == alone[:1] and "unreadable.toml" in some.err, some
    lake.run("sql", "-c", "CREATE TABLE copied AS SELECT * FROM events")
    for commit in (lake.folder("copied") / "_delta_log").glob("*.json"):
        commit.write_text("")
    text = paths["all"].read_text().replace('table = "events"', 'table = "copied"').replace('"all"', '"copied"')
    (tmp_path / "copied.toml").write_text(text)
    some = lake.run("report", tmp_path / "copied.toml", paths["german"], *options, "json", code=1)
    assert json.loads(some.out) == alone[1:], some
    assert "experiment `copied`" in some.err and "is damaged" in some.err, some.err
    shutil.rmtree(lake.folder("copied"))
    both = [paths["all"], paths["german"]]
    rows = list(csv.DictReader(io.StringIO(lake.run("report", *both, *options, "csv").out)))
    assert {row["experiment"] for row in rows} == {"all", "german"}
    assert "several pages need a folder" in lake.run("report", *both, "--format", "html", code=1).err
    made = tmp_path / "made"
    lake.run("report", *both, "--format", "html", "-o", made)
    assert sorted(path.name for path in made.iterdir()) == ["all.html", "german.html"]
    same = lake.run("report", paths["all"], paths["all"], "-o", made, code=1).err
    assert "two experiments are called `all`" in same, same
