"""Paths and conversion times of a report, against figures counted here user by user.

The model shares nothing with Uplake but what docs/experiments.md says of `[[path]]` and `conversion_time`.
"""

import collections
import csv
import datetime
import io
import json
import statistics

import pyarrow as pa

import support

START = datetime.datetime(2026, 11, 1)
END = START + datetime.timedelta(days=5)
ARMS = ["A", "B", "C"]
EVENTS = ["open", "view", "cart", "pay", "<b>", None]
UNITS = {"user": "", "cluster": 'cluster = "shop"\n'}

DEFINITION = """
name = "paths"
start = "2026-11-01"
end = "2026-11-06"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
{unit}[[variant]]
name = "A"
share = 0.4
[[variant]]
name = "B"
share = 0.3
[[variant]]
name = "third"
value = "C"
share = 0.3
[[metric]]
name = "buying"
type = "funnel"
table = "events"
user = "who"
time = "at"
steps = [{{ name = "open", where = "event = 'open'" }}, {{ name = "cart", where = "event = 'cart'" }}, {{ name = "pay", where = "event = 'pay'" }}]
conversion_time = true
{window}
[[path]]
name = "to payment"
table = "events"
user = "who"
time = "at"
event = "event"
from = "{start}"
to = "{end}"
{more}
"""


class _Shop:
    """900 users in three arms: some in two, with rows before exposure and after the end, rows of one time and NULLs."""

    def __init__(self, rng):
        self.exposures, self.events = [], []
        for i in range(900):
            user, arm = f"u{i}", rng.choice(ARMS)
            shown = START + datetime.timedelta(minutes=rng.randrange(4 * 24 * 60))
            self.exposures.append((user, arm, f"shop{i % 30}", shown))
            if rng.random() < 0.05:
                self.exposures.append((user, rng.choice(ARMS), f"shop{i % 30}", shown + datetime.timedelta(hours=1)))
            at = shown - datetime.timedelta(hours=3)
            for _ in range(rng.randrange(14)):
                at += datetime.timedelta(minutes=rng.choice([0, 0, 7, 60, 300, 1500]))
                event = rng.choices(EVENTS, [5, 5, 3, 3, 1, 1])[0]
                self.events.append((user, event, at if rng.random() > 0.02 else None))
        rng.shuffle(self.events)

    def load(self, lake):
        names = ["user_id", "variant", "shop", "ts"]
        lake.create_from("exposures", pa.table(dict(zip(names, map(list, zip(*self.exposures))))))
        names = ["who", "event", "at"]
        lake.create_from("events", pa.table(dict(zip(names, map(list, zip(*self.events))))), "--cluster-by", "who,at")

    def users(self):
        """Per arm, the rows of each user that count: time and event."""
        first, arms = {}, collections.defaultdict(set)
        for user, arm, _, shown in self.exposures:
            if START <= shown < END:
                first[user] = min(first.get(user, shown), shown)
                arms[user].add(arm)
        rows = collections.defaultdict(list)
        for user, event, at in self.events:
            if user in first and at is not None and first[user] <= at < END:
                rows[user].append((at, event))
        found = {arm: [] for arm in ARMS}
        for user, own in arms.items():
            if len(own) == 1:
                found[own.pop()].append((first[user], rows[user]))
        return found


def _path(rows, start, end, within, steps, collapse):
    """Events told, reached, truncated; None without a start."""
    place = {(True, False): 0, (True, True): 1, (False, False): 2, (False, True): 3}
    rows = [row for row in rows if row[1] is not None]
    rows.sort(key=lambda row: (row[0], place[row[1] in start, row[1] in end], row[1]))
    begin = next((i for i, row in enumerate(rows) if row[1] in start), None)
    if begin is None:
        return None
    rows = [row for row in rows[begin:] if within is None or row[0] <= rows[begin][0] + within]
    last = next((i for i, row in enumerate(rows) if i > 0 and row[1] in end), None)
    names = [event for _, event in rows[: len(rows) if last is None else last + 1]]
    if collapse:
        names = [name for i, name in enumerate(names) if i == 0 or names[i - 1] != name]
    return tuple(names[:steps]), last is not None, len(names) > steps


def _conversion(first, rows, window):
    """Seconds from the first step to the last, each as early as it can be."""
    passed = []
    for step in ["open", "cart", "pay"]:
        after = passed[-1] if passed else first
        times = [at for at, event in rows if event == step and at >= after and (window is None or at < first + window)]
        if not times:
            return None
        passed.append(min(times))
    return (passed[-1] - passed[0]).total_seconds()


def _quantile(values, level):
    """By linear interpolation, as NumPy does."""
    values = sorted(values)
    place = level * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def _expected_path(users, top, how):
    """The JSON of a path."""
    paths = {arm: [_path(list(rows), *how) for _, rows in users[arm]] for arm in ARMS}
    count = lambda test: [sum(p is not None and test(*p) for p in paths[arm]) for arm in ARMS]  # noqa: E731
    longest = max(len(p[0]) for arm in ARMS for p in paths[arm] if p)
    steps = [
        {
            "users": count(lambda events, reached, truncated: len(events) >= n),
            "reached": count(lambda events, reached, truncated: len(events) == n and reached and not truncated),
            "dropped_off": count(lambda events, reached, truncated: len(events) == n and not reached and not truncated),
        }
        for n in range(1, longest + 1)
    ]
    sequences = {p for arm in ARMS for p in paths[arm] if p}
    in_order = sorted(sequences, key=lambda p: (-sum(count(lambda *q: q == p)), p[0], not p[1], p[2]))
    told = []
    for p in in_order[:top]:
        n = count(lambda *q: q == p)
        shares = [k / len(users[arm]) for k, arm in zip(n, ARMS)]
        told.append({"events": list(p[0]), "reached": p[1], "truncated": p[2], "users": n, "shares": shares})
    return {
        "name": "to payment",
        "started": count(lambda *_: True),
        "reached": count(lambda events, reached, truncated: reached),
        "steps": steps,
        "sequences": told,
        "different_sequences": len(sequences),
    }


def _report(lake, folder, *options, **values):
    defaults = {"unit": "", "window": "", "more": "", "start": "event = 'open'", "end": "event = 'pay'"}
    (folder / "e.toml").write_text(DEFINITION.format(**{**defaults, **values}))
    return lake.run("report", folder / "e.toml", *options).out


def paths_are_those_of_users_one_by_one(lake, folder):
    shop = _Shop(support.seeded("paths of a report"))
    shop.load(lake)
    users = shop.users()
    cases = [
        ("user", "", {"open"}, {"pay"}, None, 5, False, 10),
        ("cluster", 'within = "6 hours"\nsteps = 3\ntop = 4', {"open"}, {"pay"}, 360, 3, False, 4),
        ("user", "collapse_repeats = true\nsteps = 20\ntop = 50", {"open", "view"}, {"pay"}, None, 20, True, 50),
        ("user", 'within = "1 day"\nsteps = 1', {"open"}, {"open"}, 1440, 1, False, 10),
        ("user", "where = \"event <> 'view'\"", {"open"}, {"cart", "pay"}, None, 5, False, 10),
    ]
    outcomes = set()
    for unit, more, start, end, minutes, steps, collapse, top in cases:
        within = minutes and datetime.timedelta(minutes=minutes)
        chosen = users
        if "where" in more:
            chosen = {arm: [(first, [r for r in rows if r[1] not in ("view", None)]) for first, rows in all_of]
                      for arm, all_of in users.items()}
        names = lambda events: "event IN (%s)" % ", ".join(f"'{event}'" for event in sorted(events))  # noqa: E731
        text = _report(
            lake, folder, "--format", "json", unit=UNITS[unit], more=more, start=names(start), end=names(end)
        )
        found = json.loads(text)
        assert [arm["users"] for arm in found["arms"]] == [len(users[arm]) for arm in ARMS]
        expected = _expected_path(chosen, top, (start, end, within, steps, collapse))
        assert found["paths"] == [expected], more
        outcomes |= {(s["reached"], s["truncated"]) for s in expected["sequences"]}
    assert len(outcomes) == 4


def conversion_times_are_those_of_users_one_by_one(lake, folder):
    shop = _Shop(support.seeded("conversion times of a report"))
    shop.load(lake)
    users = shop.users()
    for unit in UNITS:
        for window, limit in [("", None), ('window = "1 day"', datetime.timedelta(days=1))]:
            found = json.loads(_report(lake, folder, "--format", "json", unit=UNITS[unit], window=window))
            [funnel] = found["funnels"]
            last = found["metrics"][funnel["steps"][-1]["metric"]]
            for arm, values, time in zip(ARMS, last["values"], funnel["conversion_time"]):
                seconds = [_conversion(first, rows, limit) for first, rows in users[arm]]
                seconds = [s for s in seconds if s is not None]
                assert time["users"] == len(seconds) > 5
                # Those of the funnel's last step.
                assert unit != "user" or values["numerator"] == len(seconds)
                assert abs(time["median"] - statistics.median(seconds)) < 1e-6
                assert abs(time["p90"] - _quantile(seconds, 0.9)) < 1e-6


def the_statements_that_are_shown_give_the_same(lake, folder):
    shop = _Shop(support.seeded("statements of paths"))
    shop.load(lake)
    found = json.loads(_report(lake, folder, "--format", "json"))
    shown = _report(lake, folder, "--show-sql")
    statements = [text for text in shown.split("-- ") if text.startswith(("Sequences", "Seconds"))]
    [path, seconds] = [text.split("\n", 1)[1].rstrip().rstrip(";") for text in statements]
    rows = lake.json(path)
    assert len(rows) == found["paths"][0]["different_sequences"]
    by_arm = [sum(row[f"users{arm}"] for row in rows) for arm in range(3)]
    assert by_arm == found["paths"][0]["started"]
    rows = {row["variant"]: row for row in lake.json(seconds)}
    of_arms = [{key: float(rows[arm][key]) for key in ("users", "median", "p90")} for arm in ARMS]
    assert of_arms == found["funnels"][0]["conversion_time"]


def text_page_and_csv_go_with_paths(lake, folder):
    _Shop(support.seeded("pages of paths")).load(lake)
    text = _report(lake, folder)
    assert "Path to payment" in text and "From the first step of buying to the last" in text
    page = _report(lake, folder, "--format", "html", more="steps = 3\ntop = 50")
    assert '<section id="paths"' in page and "→ &lt;b&gt; →" in page and "→ <b>" not in page
    rows = list(csv.DictReader(io.StringIO(_report(lake, folder, "--format", "csv"))))
    assert {row["metric"] for row in rows} == {"buying: open", "buying: cart", "buying: pay"}
    some = json.loads(_report(lake, folder, "--format", "json", "--metric", "buying: open"))
    assert "paths" not in some and len(some["funnels"][0]["conversion_time"]) == 3
    assert len({_report(lake, folder, "--format", "json", "--threads", n) for n in (1, 2, 5)}) == 1


def a_path_that_cannot_be_read_says_why(lake, folder):
    _Shop(support.seeded("wrong paths")).load(lake)
    for more, says in [
        ({"start": "evnt = 'open'"}, ["evnt"]),
        ({"end": "event"}, ["path `to payment`: `to`", "neither true nor false"]),
        ({"more": 'stepz = 5'}, ["e.toml:37", "`stepz`", "did you mean `steps`"]),
        ({"start": "event IN (SELECT k FROM 'x.csv')"}, ["may not read the file"]),
    ]:
        defaults = {"unit": "", "window": "", "more": "", "start": "event = 'open'", "end": "event = 'pay'"}
        (folder / "e.toml").write_text(DEFINITION.format(**{**defaults, **more}))
        refused = lake.run("report", folder / "e.toml", code=1)
        assert refused.err.startswith("error: "), refused
        for words in says:
            assert words in refused.err, refused
