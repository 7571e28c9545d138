"""Random reports are what a plain model says, and the comparison notices what is not.

How long: UPLAKE_REPORT_SECONDS (20). Which worlds: UPLAKE_REPORT_SEED (`seeds`).
"""
import copy
import json
import math
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import seeds
from reports import assigned
from reports import command
from reports import data
from reports import definitions
from reports import expressions as ex
from reports import expected
from reports import run
from reports import statistics_of_arms as st
from reports.compare import Near, compare
from reports.reduction import Reduction, kind_of
from reports.tester import Tester
from reports.units import furthest

SECONDS = float(os.environ.get("UPLAKE_REPORT_SECONDS", "20"))


@pytest.fixture(scope="module")
def binary():
    found = command.binary()
    if not pathlib.Path(found).exists():
        pytest.skip(f"{found} is not built; `make build`, or name the command in UPLAKE_BIN")
    return found


@pytest.fixture(scope="module")
def asked(binary, tmp_path_factory):
    """A lake with a good number of users, a definition and its report."""
    world = next(world for world in map(data.make, range(1000)) if is_good(world))
    lake = command.Lake(binary, tmp_path_factory.mktemp("lake"), world)
    lake.load()
    definition = plain_definition(world)
    report, = lake.reports([definition], ["country"])
    return world, lake, definition, report


def is_good(world):
    """50 users or more in two arms named A and B, amounts that differ, no NaN."""
    amounts = {row["amount"] for row in world.tables["events"].rows}
    return (world.arms == ["A", "B"] and not world.has_nan and world.days > 3
            and len(world.tables["players"].rows) > 50 and len(amounts) > 10)


def plain_definition(world):
    start, start_us = definitions.instant(world, 0, 0)
    end, end_us = definitions.instant(world, world.days, 0)
    pay = {"table": "events", "where": ex.EVENT_FILTERS[0]}
    return {
        "name": "planted", "start": start, "start_us": start_us, "end": end, "end_us": end_us,
        "time_zone": world.zone,
        "exposures": {"table": "exposures", "user": ex.column("user_id"),
                      "variant": ex.column("variant"), "time": ex.column("ts")},
        "variant": [{"name": "A", "share": 0.5}, {"name": "B", "share": 0.5}],
        "dimension": [{"name": "country"}],
        "metric": [
            {"name": "revenue", "type": "mean", "value": ex.column("amount"),
             "cuped": {"pre": "4 days"}, **pay},
            {"name": "paid", "type": "proportion", **pay},
            {"name": "half", "type": "quantile", "table": "events", "level": 0.5, "per": "row",
             "value": ex.column("amount")},
        ],
    }


def test_random_reports_are_what_the_model_says(binary, tmp_path):
    """Worlds of seeds of their own for each checkout; a failure prints a script to paste."""
    seed = seeds.first("UPLAKE_REPORT_SEED")
    tally = Tester(binary, tmp_path).run(seed, seconds=SECONDS)
    print(f"first world: {seed}", run.summary(tally), sep="\n")
    assert tally.reports > 0 and tally.numbers > 0
    assert not tally.failures, "\n".join(failure.text for failure in tally.failures[:5])


def test_a_report_is_the_same_as_the_model(asked):
    world, _, definition, report = asked
    found = compare(expected.report(world, definition, ["country"]), report)
    assert found.numbers > 200 and found.unsure < 10
    assert found.differences == []


def test_every_number_of_a_report_is_looked_at(asked):
    """Each number, moved by 1e-6 of its size, is noticed: but for those the model leaves out."""
    world, _, definition, report = asked
    wanted = expected.report(world, definition, ["country"])
    moved = noticed = 0
    left_out = set()
    for path in paths(report):
        planted = copy.deepcopy(report)
        if not move(planted, path):
            continue
        moved += 1
        if compare(wanted, planted).differences:
            noticed += 1
        else:
            left_out.add(path[-1])
    assert moved > 300
    assert noticed > 0.97 * moved, left_out


def paths(value, path=()):
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in ("reproduce", "method", "notes"):
                yield from paths(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from paths(inner, (*path, number))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path


def move(report, path):
    *outer, last = path
    for key in outer:
        report = report[key]
    if report[last] == 0:
        return False
    report[last] = report[last] + 1 if isinstance(report[last], int) else report[last] * (1 + 1e-6)
    return True


@pytest.mark.parametrize("change", ["call", "decision", "missing", "row"])
def test_a_planted_word_is_noticed(asked, change):
    world, _, definition, report = asked
    planted = copy.deepcopy(report)
    if change == "call":
        planted["metrics"][0]["comparisons"][0]["call"] = "worse!"
    elif change == "decision":
        planted["verdict"]["decision"] = "ship!"
    elif change == "missing":
        del planted["metrics"][1]["values"][0]["value"]
    else:
        planted["breakdowns"][0]["rows"].pop()
    assert compare(expected.report(world, definition, ["country"]), planted).differences


def test_a_wrong_answer_is_reduced_to_a_script(binary, asked, tmp_path):
    """A model that counts payers twice stands for a fault of the command."""
    world, _, definition, _ = asked

    def check(lake, smaller, dimensions):
        report, = lake.reports([smaller], dimensions)
        wanted = expected.report(lake.world, smaller, dimensions)
        paid = [m for m in wanted["metrics"] if m["name"] == "paid"]
        if isinstance(report, str) or not paid or not paid[0]["values"][0]["value"]:
            return []
        paid[0]["values"][0]["value"] *= 2
        return compare(wanted, report).differences

    kind = ".metrics.values.value"
    small = Reduction(binary, tmp_path, check, world, definition, ["country"], kind,
                      seconds=120, attempts=40)
    assert small.run()
    assert kind_of(small.differences) == kind
    assert [metric["name"] for metric in small.definition["metric"]] == ["paid"]
    assert small.asked == []
    rows = sum(len(table.rows) for table in small.world.tables.values())
    assert rows < sum(len(table.rows) for table in world.tables.values()) / 2


def test_a_definition_is_read_as_it_is_meant(tmp_path):
    """TOML's own reader gets back what the generator had."""
    tomllib = pytest.importorskip("tomllib")
    for seed in range(20):
        world = data.make(seed)
        for definition in definitions.batch(world, 0)[0]:
            read = tomllib.loads(definitions.to_toml(definition))
            assert read["name"] == definition["name"]
            assert [m["type"] for m in read["metric"]] == [m["type"] for m in definition["metric"]]
            assert [v["share"] for v in read["variant"]] == [
                v["share"] for v in definition["variant"]]
            assert read.get("hypothesis") == definition.get("hypothesis")


def test_worlds_are_functions_of_their_seeds():
    one, two = data.make(11), data.make(11)
    # repr, because NaN is not itself.
    for name, table in one.tables.items():
        assert repr(table.rows) == repr(two.tables[name].rows)
        assert table.options == two.tables[name].options


# The model's own formulas, against figures from elsewhere.


def golden(name):
    root = pathlib.Path(os.environ.get(
        "UPLAKE_DATA", pathlib.Path(__file__).resolve().parents[4] / "shared" / "data"))
    path = root / "golden" / name
    if not path.exists():
        pytest.skip(f"{path} is not here; UPLAKE_DATA names the folder of shared data")
    return json.loads(path.read_text())


def test_a_two_look_bound_is_the_exact_one():
    """mpmath at 25 digits."""
    assert math.isclose(st.critical_values((0.2, 0.4), 0.05)[1], 2.714111575530733, rel_tol=1e-13)


def test_hashes_are_those_of_the_systems():
    vectors = golden("assignment_vectors.json")
    for seed, user, version, expected in vectors["growthbook"]["hash"]:
        if version in (1, 2):
            assert assigned.growthbook(seed, user, version) == expected
    for text, expected in vectors["eppo"]["vectors"]:
        assert assigned.eppo_of(text) == expected


@pytest.mark.parametrize("rows, steps, expected", [
    ([(1, [True, False]), (2, [False, True])], 2, 2),
    ([(2, [True, False]), (1, [False, True])], 2, 1),
    ([(1, [True, True])], 2, 1),  # a row is one step
    ([(1, [True, True]), (1, [True, False])], 2, 2),  # at one instant rows come in any order
    ([(1, [True, True, False]), (1, [True, False, True]), (2, [False, False, True])], 3, 3),
    ([], 2, 0),
])
def test_rows_make_so_many_steps(rows, steps, expected):
    assert furthest(sorted(rows, key=lambda row: row[0]), steps) == expected


def test_fisher_agrees_with_scipy():
    from scipy import stats
    for a, n, b, m in [(0, 5, 5, 5), (3, 10, 7, 12), (1, 40, 9, 35), (2, 2, 0, 3)]:
        expected = stats.fisher_exact([[a, n - a], [b, m - b]]).pvalue
        assert math.isclose(st.fisher_p(a, n, b, m), expected, rel_tol=1e-9)


def test_welch_agrees_with_scipy():
    from scipy import stats
    a, b = [1.0, 4.0, 2.5, 9.0, 3.0], [2.0, 8.0, 7.5, 6.0, 11.0, 0.5]
    pair = [st.figure("mean", st.Moments([[x] for x in arm])) for arm in (a, b)]
    found = st.difference(*pair, 0.05)
    expected = stats.ttest_ind(b, a, equal_var=False)
    assert math.isclose(found.p, expected.pvalue, rel_tol=1e-12)
    interval = expected.confidence_interval(0.95)
    assert math.isclose(found.low, interval.low, rel_tol=1e-12)
    assert math.isclose(found.high, interval.high, rel_tol=1e-12)


def test_a_tiny_t_has_a_p_value_of_its_own():
    """1 - 2 f(0) t, where f is the density."""
    from scipy import stats
    for t in (0.0, 1e-12, 2.46e-9, 1e-3):
        expected = 1 - 2 * stats.t.pdf(0.0, 5.9) * t
        assert math.isclose(st.t_two_sided(t, 5.9), expected, rel_tol=1e-9)
    for t in (0.3, 2.428, 2.43, 40.0):
        assert math.isclose(st.t_two_sided(t, 5.9), 2 * stats.t.sf(t, 5.9), rel_tol=1e-12)


def test_near_is_no_wider_than_it_says():
    assert compare({"a": Near(1.0, 1e-12)}, {"a": 1.0 + 1e-10}).differences == []
    assert compare({"a": Near(1.0, 1e-12)}, {"a": 1.0 + 1e-8}).differences
    assert compare({"a": 1}, {"a": True}).differences
    assert compare({"a": None}, {"a": 0.0}).differences
