"""Functions of behaviour, bitmaps and statistics give what ClickHouse and DuckDB give.

ClickHouse runs in the process (chdb); without it those tests are skipped. Times are different for
each row of a user where ClickHouse leaves the order of equal times open or forgets rows.
"""

import datetime
import json
import math

import duckdb
import pyarrow as pa
import pytest

import support

START = datetime.datetime(2026, 11, 1)
KINDS = ["a", "b", "c", "d", "other"]


def _events(rng, users, rows, distinct_times):
    """Rows of users in no order: user, seconds, kind."""
    table = []
    for user in range(users):
        if distinct_times:
            times = rng.sample(range(400), rows)
        else:
            times = [rng.randrange(60) for _ in range(rows)]
        table += [(user, t, rng.choice(KINDS)) for t in times[: rng.randrange(rows + 1)]]
    rng.shuffle(table)
    return table


def _load(lake, table):
    lake.create_from("e", pa.table({
        "u": pa.array([row[0] for row in table], pa.int64()),
        "s": pa.array([row[1] for row in table], pa.int64()),
        "t": pa.array([START + datetime.timedelta(seconds=row[1]) for row in table], pa.timestamp("us")),
        "k": [row[2] for row in table],
    }))


def _clickhouse(query, table):
    chdb = pytest.importorskip("chdb", reason="ClickHouse IS NOT COMPARED; pip install chdb")
    values = ",".join(f"({u},{s},'{k}')" for u, s, k in table)
    source = f"(SELECT * FROM values('u UInt32, s UInt32, k String', {values}))"
    out = str(chdb.query(query.replace("{e}", source), "JSONCompactEachRow"))
    return [tuple(json.loads(line)) for line in out.splitlines()]


def _ours(lake, query):
    rows = lake.json(query)
    return [tuple(int(v) if isinstance(v, bool) else v for v in row.values()) for row in rows]


def test_funnels_are_clickhouses(lake):
    rng = support.seeded("funnels")
    for distinct_times in [True, False]:
        table = _events(rng, 300, 14, distinct_times)
        support.shutil.rmtree(lake.path, ignore_errors=True)
        _load(lake, table)
        modes = [("default", ""), ("strict_order", ", 'strict_order'"), ("strict_dedup", ", 'strict_deduplication'")]
        if distinct_times:
            modes.append(("strict_increase", ", 'strict_increase'"))
        overlapping = "k = 'a', k IN ('b', 'c'), k = 'c', k = 'd'"
        for window in [0, 25, 90, 1000]:
            for mode, theirs in modes:
                # ClickHouse forgets a chain when a row is two steps that may not have one time.
                steps = "k = 'a', k = 'b', k = 'c', k = 'd'" if mode == "strict_increase" else overlapping
                expected = _clickhouse(
                    f"SELECT u, windowFunnel({window}{theirs})(s, {steps}) FROM {{e}} GROUP BY u ORDER BY u", table
                )
                found = _ours(
                    lake, f"SELECT u, window_funnel({window}, '{mode}', t, {steps}) AS f FROM e GROUP BY u ORDER BY u"
                )
                assert found == expected, (mode, window, distinct_times)
                assert len({level for _, level in found}) > 1 or window == 0


def test_funnels_of_many_users_fit_a_small_budget(lake):
    """Too many rows to keep: groups are written to disk and merged, or the statement says so."""
    lake.run("sql", "-c", """
        CREATE TABLE e AS SELECT value % 200000 AS u, to_timestamp_micros(value * 1103515245 % 2147483647 % 864000000) AS t, value * 48271 % 2147483647 % 3 AS k
        FROM generate_series(1, 3000000)""")
    query = """
        SELECT f, n, count(*) AS users FROM (
          SELECT u, window_funnel(INTERVAL '200 seconds', t, k = 0, k = 1, k = 2) AS f, sequence_count('(?1).*(?2)', t, k = 0, k = 1) AS n
          FROM e GROUP BY u) GROUP BY f, n ORDER BY f, n"""
    whole = lake.json(query, "--memory", "4G")
    assert len(whole) > 5
    assert lake.json(query, "--memory", "100M") == whole
    small = lake.run("sql", "-c", query, "--format", "json", "--memory", "12M", code=None)
    assert small.code == 0 or "memory" in small.err, small


def test_sequences_are_clickhouses(lake):
    rng = support.seeded("sequences")
    table = _events(rng, 300, 14, True)
    _load(lake, table)
    patterns = [
        "(?1)", "(?1)(?2)", "(?1).*(?2)", "(?1).(?2)", "(?1).*(?2).*(?3)", "(?1)(?2).*(?3)(?1)",
        "(?1)(?t<=30)(?2)", "(?1)(?t<60)(?2)(?t>=20)(?3)", "(?1)(?t>50)(?2)", "(?1)(?t>=10)(?2).*(?3)",
        "(?1)(?t==7)(?2)", "(?2)(?t<=40)(?2)(?t<=40)(?2)",
    ]
    met = 0
    for pattern in patterns:
        for ours, theirs in [("sequence_match", "sequenceMatch"), ("sequence_count", "sequenceCount")]:
            conditions = "k = 'a', k IN ('b', 'c'), k = 'd'"
            expected = _clickhouse(
                f"SELECT u, {theirs}('{pattern}')(toDateTime(s), {conditions}) FROM {{e}} GROUP BY u ORDER BY u", table
            )
            found = _ours(lake, f"SELECT u, {ours}('{pattern}', t, {conditions}) AS f FROM e GROUP BY u ORDER BY u")
            assert found == expected, (pattern, ours)
            met += sum(count for _, count in found)
    assert met > 1000


# Paths as DuckDB's windows find them: rows in their order, from the first start to the first end after it.
PATHS = """
WITH placed AS (
  SELECT u, s, k, {start} AS starts, {end} AS ends, row_number() OVER (PARTITION BY u ORDER BY s,
    CASE WHEN starts AND NOT ends THEN 0 WHEN starts THEN 1 WHEN NOT ends THEN 2 ELSE 3 END, k) AS n
  FROM e),
begun AS (SELECT u, min(n) AS first, arg_min(s, n) AS since FROM placed WHERE starts GROUP BY u),
within AS (SELECT p.*, first FROM placed p JOIN begun USING (u) WHERE n >= first AND s - since <= {window}),
ended AS (SELECT u, min(n) AS last FROM within WHERE ends AND n > first GROUP BY u),
path AS (
  SELECT u, k, n, last, lag(k) OVER (PARTITION BY u ORDER BY n) AS before
  FROM within LEFT JOIN ended USING (u) WHERE n <= coalesce(last, n))
SELECT u, list(k ORDER BY n)[1:{steps}], bool_or(last IS NOT NULL), count(*) > {steps}
FROM path WHERE {kept} GROUP BY u ORDER BY u
"""


def test_paths_are_those_of_windows_in_duckdb(lake):
    rng = support.seeded("paths")
    conditions = [("k = 'a'", "k = 'd'"), ("k IN ('a', 'b')", "k IN ('b', 'c')"), ("k = 'a'", "k = 'a'"), ("true", "false")]
    for distinct_times in [True, False]:
        table = _events(rng, 300, 14, distinct_times)
        support.shutil.rmtree(lake.path, ignore_errors=True)
        _load(lake, table)
        duck = duckdb.connect()
        duck.execute("CREATE TABLE e (u BIGINT, s BIGINT, k VARCHAR)")
        duck.executemany("INSERT INTO e VALUES (?, ?, ?)", table)
        kinds = set()
        for start, end in conditions:
            for mode, kept in [("", "true"), ("'collapse_repeats', ", "k IS DISTINCT FROM before")]:
                window, steps = rng.choice([0, 25, 90, 1000]), rng.choice([1, 2, 3, 5, 20])
                values = {"start": start, "end": end, "window": window, "steps": steps, "kept": kept}
                expected = duck.execute(PATHS.format(**values)).fetchall()
                found = lake.json(f"""
                    SELECT u, p['events'] AS events, p['reached'] AS reached, p['truncated'] AS truncated FROM (
                      SELECT u, event_path({window}, {steps}, {mode}t, k, {start}, {end}) AS p FROM e GROUP BY u)
                    WHERE p IS NOT NULL ORDER BY u""")
                assert [tuple(row.values()) for row in found] == expected, (values, mode)
                kinds |= {(reached, truncated) for _, _, reached, truncated in expected}
        assert len(kinds) == 4


def test_the_event_after_the_first_is_clickhouses(lake):
    rng = support.seeded("next nodes")
    table = _events(rng, 300, 14, True)
    _load(lake, table)
    expected = _clickhouse(
        "SELECT u, sequenceNextNode('forward', 'first_match')(s, toNullable(k), k = 'a', k = 'a') FROM {e} "
        "GROUP BY u ORDER BY u SETTINGS allow_experimental_funnel_functions = 1", table
    )
    found = _ours(lake, "SELECT u, event_path(1000, 2, t, k, k = 'a', false)['events'][2] AS f FROM e GROUP BY u ORDER BY u")
    assert found == expected
    assert len({event for _, event in found}) == len(KINDS) + 1


# Every chain of events of steps in their order, the longest first, then what docs/functions.md says.
CHAINS = """
WITH a AS (SELECT u, s FROM e WHERE {one}), b AS (SELECT u, s FROM e WHERE {two}), c AS (SELECT u, s FROM e WHERE {three}),
chains AS (
  SELECT u, [a.s] AS times FROM a
  UNION ALL SELECT u, [a.s, b.s] FROM a JOIN b USING (u) WHERE b.s {later} a.s AND b.s - a.s <= {window}
  UNION ALL SELECT u, [a.s, b.s, c.s] FROM a JOIN b USING (u) JOIN c USING (u)
    WHERE b.s {later} a.s AND c.s {later} b.s AND c.s - a.s <= {window}),
best AS (SELECT DISTINCT ON (u) u, times FROM chains ORDER BY u, len(times) DESC, times[-1], times[1] DESC, times)
SELECT u, list_transform(coalesce(times, []), lambda x: x - times[1]) FROM (SELECT DISTINCT u FROM e) LEFT JOIN best USING (u) ORDER BY u
"""


def test_conversion_times_are_those_of_the_best_of_all_chains(lake):
    rng = support.seeded("conversion times")
    for distinct_times in [True, False]:
        table = _events(rng, 300, 14, distinct_times)
        support.shutil.rmtree(lake.path, ignore_errors=True)
        _load(lake, table)
        duck = duckdb.connect()
        duck.execute("CREATE TABLE e (u BIGINT, s BIGINT, k VARCHAR)")
        duck.executemany("INSERT INTO e VALUES (?, ?, ?)", table)
        lengths = set()
        for mode, later in [("default", ">="), ("strict_increase", ">")]:
            for steps in [("k = 'a'", "k = 'b'", "k = 'c'"), ("k = 'a'", "k IN ('a', 'b')", "k IN ('b', 'c')")]:
                for window in [0, 25, 90, 1000]:
                    one, two, three = steps
                    values = {"one": one, "two": two, "three": three, "later": later, "window": window}
                    expected = duck.execute(CHAINS.format(**values)).fetchall()
                    found = lake.json(
                        f"SELECT u, conversion_times({window}, '{mode}', t, {one}, {two}, {three}) AS f FROM e GROUP BY u ORDER BY u"
                    )
                    assert [(row["u"], row["f"]) for row in found] == expected, values
                    lengths |= {len(times) for _, times in expected}
        assert lengths == {0, 1, 2, 3}


def test_paths_of_many_users_fit_a_small_budget(lake):
    """Too many rows to keep: groups are written to disk and merged, or the statement says so."""
    lake.run("sql", "-c", """
        CREATE TABLE e AS SELECT value % 200000 AS u, to_timestamp_micros(value * 1103515245 % 2147483647 % 864000000) AS t,
          concat('event number ', value * 48271 % 2147483647 % 30) AS k
        FROM generate_series(1, 3000000)""")
    query = """
        SELECT p, f, count(*) AS users FROM (
          SELECT u, event_path(INTERVAL '200 seconds', 3, t, k, k LIKE '% 1', k LIKE '% 2') AS p,
            array_length(conversion_times(INTERVAL '200 seconds', t, k LIKE '% 1', k LIKE '% 2')) AS f
          FROM e GROUP BY u) GROUP BY p, f ORDER BY users DESC, p['events'], p['reached'], p['truncated'], f"""
    whole = lake.json(query, "--memory", "4G")
    assert len(whole) > 50
    assert lake.json(query, "--memory", "100M") == whole
    small = lake.run("sql", "-c", query, "--format", "json", "--memory", "12M", code=None)
    assert small.code == 0 or "memory" in small.err, small


def test_retention_is_clickhouses(lake):
    table = _events(support.seeded("retention"), 200, 4, False)
    _load(lake, table)
    conditions = "k = 'a', k = 'b', k IN ('c', 'd'), k = 'x'"
    expected = _clickhouse(f"SELECT u, retention({conditions}) FROM {{e}} GROUP BY u ORDER BY u", table)
    rows = lake.json(f"SELECT u, retention({conditions}) AS r FROM e GROUP BY u ORDER BY u")
    assert [(row["u"], [int(met) for met in row["r"]]) for row in rows] == expected


def test_bitmaps_are_clickhouses(lake):
    table = _events(support.seeded("bitmaps"), 500, 6, False)
    _load(lake, table)
    days = "SELECT k, bitmap_agg(u) AS users FROM e GROUP BY k"
    found = lake.json(f"SELECT k, bitmap_to_array(users) AS users, bitmap_count(users) AS n FROM ({days}) ORDER BY k")
    expected = _clickhouse(
        "SELECT k, arraySort(bitmapToArray(groupBitmapState(u))), groupBitmap(u) FROM {e} GROUP BY k ORDER BY k", table
    )
    assert [(row["k"], row["users"], row["n"]) for row in found] == expected
    of = "(SELECT groupBitmapState(u) FROM {e} WHERE k = '%s')"
    a, b = of % "a", of % "b"
    expected = _clickhouse(
        f"SELECT bitmapAndCardinality({a}, {b}), bitmapOrCardinality({a}, {b}), bitmapXorCardinality({a}, {b}), "
        f"bitmapAndnotCardinality({a}, {b}), bitmapToArray(bitmapSubsetInRange({a}, 20, 90)), "
        f"bitmapToArray(bitmapSubsetLimit({a}, 20, 9))", table
    )
    a, b = (f"(SELECT bitmap_agg(u) FROM e WHERE k = '{k}')" for k in "ab")
    found = lake.json(
        f"SELECT bitmap_and_count({a}, {b}) AS a, bitmap_or_count({a}, {b}) AS b, bitmap_xor_count({a}, {b}) AS c, "
        f"bitmap_not_count({a}, {b}) AS d, bitmap_to_array(bitmap_subset_in_range({a}, 20, 90)) AS e, "
        f"bitmap_to_array(bitmap_subset_limit({a}, 20, 9)) AS f"
    )
    assert [tuple(row.values()) for row in found] == expected
    both = lake.json(f"SELECT intersect_count(users, k, 'a', 'b') AS n FROM ({days})")
    assert both[0]["n"] == expected[0][0]


def test_stored_bitmaps_are_roaring_bitmaps_for_others(lake):
    lake.run("sql", "-c", "CREATE TABLE b AS SELECT bitmap_from_string('1,70000,4294967297') AS x")
    stored = lake.delta("b").to_pyarrow_table()["x"][0].as_py()
    # Two parts; the first holds two containers of one value, the second one container.
    expected = (
        (2).to_bytes(8, "little")
        + bytes([0, 0, 0, 0, 0x3A, 0x30, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 24, 0, 0, 0, 26, 0, 0, 0, 1, 0])
        + (70000 - 65536).to_bytes(2, "little")
        + bytes([1, 0, 0, 0, 0x3A, 0x30, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 1, 0])
    )
    assert stored == expected
    assert lake.json("SELECT bitmap_to_string(x) AS s FROM b")[0]["s"] == "1,70000,4294967297"


def test_values_by_key_are_duckdbs(lake):
    rng = support.seeded("values by key")
    rows = 4000
    data = pa.table({
        "g": [rng.randrange(300) for _ in range(rows)],
        "v": [None if rng.random() < 0.1 else f"v{rng.randrange(10**9)}" for _ in range(rows)],
        # Keys differ: DuckDB leaves ties open.
        "t": [None if rng.random() < 0.1 else t for t in rng.sample(range(10**6), rows)],
    })
    lake.create_from("x", data)
    expected = duckdb.sql(
        "SELECT g, arg_min(v, t) AS a, arg_max(v, t) AS b, arg_max(t, v) AS c FROM data GROUP BY g"
    ).to_arrow_table()
    found = lake.arrow("SELECT g, first_value_by(v, t) AS a, last_value_by(v, t) AS b, max_by(t, v) AS c FROM x GROUP BY g")
    support.assert_same(support.rows_of(found), support.rows_of(expected), "values by key")


def test_approximate_functions_keep_their_stated_errors(lake):
    rng = support.seeded("sketches")
    rows = 200_000
    numbers = [rng.lognormvariate(0, 1) for _ in range(rows)]
    data = pa.table({
        "id": [f"user-{rng.randrange(rows)}" for _ in range(rows)],
        "few": [rng.randrange(900) for _ in range(rows)],
        "x": numbers,
    })
    lake.create_from("x", data)
    exact = duckdb.sql("SELECT count(DISTINCT id) AS ids, count(DISTINCT few) AS few FROM data").fetchall()[0]
    ours = lake.json(
        "SELECT approx_count_distinct(id) AS ids, approx_distinct(few) AS few, "
        "approx_percentile_cont(0.5) WITHIN GROUP (ORDER BY x) AS median, "
        "approx_percentile_cont(0.99) WITHIN GROUP (ORDER BY x) AS high FROM x"
    )[0]
    # Standard error 0.81 %: 16,384 registers. Four of them leave out one seed in 16,000.
    assert abs(ours["ids"] / exact[0] - 1) < 4 * 0.0081, (ours, exact)
    assert abs(ours["few"] / exact[1] - 1) < 4 * 0.0081, (ours, exact)
    # Error in rank, which for the t-digest of 100 centroids is below 1 % in the middle and less at the ends.
    for level, value in [(0.5, ours["median"]), (0.99, ours["high"])]:
        rank = sum(number <= value for number in numbers) / rows
        assert abs(rank - level) < 0.01 * math.sqrt(level * (1 - level)) * 2, (level, rank)


DEFINITION = """
name = "e"
correction = "none"
[exposures]
table = "people"
user = "user_id"
variant = "variant"
[[variant]]
name = "control"
share = 0.5
control = true
[[variant]]
name = "new"
share = 0.5
[[metric]]
name = "spent"
type = "mean"
table = "people"
value = "spent"
[[metric]]
name = "large"
type = "proportion"
table = "people"
value = "large"
[[metric]]
name = "per_order"
type = "ratio"
table = "people"
numerator = { value = "spent" }
denominator = { value = "orders" }
"""


def test_tests_of_variants_say_what_the_report_says(lake, folder):
    rng = support.seeded("ab_test")
    users = 3000
    variants = [rng.choice(["control", "new"]) for _ in range(users)]
    spent = [round(rng.expovariate(0.2), 2) + (v == "new") for v in variants]
    lake.create_from("people", pa.table({
        "user_id": [f"u{i}" for i in range(users)], "variant": variants, "spent": spent,
        "orders": [rng.randrange(1, 5) for _ in range(users)], "large": [s > 5 for s in spent],
    }))
    (folder / "e.toml").write_text(DEFINITION)
    report = json.loads(lake.run("report", folder / "e.toml", "--format", "json").out)
    found = lake.json(
        "SELECT ab_test_mean(variant, spent) AS spent, ab_test_proportion(variant, large) AS large, "
        "ab_test_ratio(variant, spent, orders) AS per_order, "
        "srm_test(variant, {'control': 0.5, 'new': 0.5}) AS srm FROM people"
    )[0]
    for metric in report["metrics"]:
        [test], [comparison] = found[metric["name"]], metric["comparisons"]
        scales = {"absolute": ["difference", "low", "high", "p_value"],
                  "relative": ["lift", "lift_low", "lift_high", "lift_p_value"]}
        for scale, names in scales.items():
            expected = [comparison[scale][part] for part in ["value", "low", "high", "p"]]
            assert [float(test[name]) for name in names] == expected, (metric["name"], scale)
    assert float(found["srm"]["p_value"]) == report["health"]["sample_ratio"]["p"]


TOPS = {
    "alpha = 0.1": "'alpha': 0.1",
    "inference = \"anytime\"\nplanned_users = 9000": "'inference': 'anytime', 'planned_users': 9000",
    "inference = \"group_sequential\"\nplanned_users = 6000\nlooks = 4":
        "'inference': 'group_sequential', 'planned_users': 6000, 'looks': 4",
}


@pytest.mark.parametrize("top", TOPS)
def test_options_of_tests_say_what_the_report_says(lake, folder, top):
    rng = support.seeded("ab_test options")
    users, shares = 6000, {"control": 0.5, "new": 0.3, "third": 0.2}
    names, weights = list(shares), list(shares.values())
    rows = [(rng.randrange(150), *rng.choices(names, weights)) for _ in range(users)]
    variants = [variant for _, variant in rows]
    spent = [round(rng.expovariate(0.2), 2) + 0.3 * (shop % 7) + 0.1 * (v == "new") for shop, v in rows]
    lake.create_from("people", pa.table({
        "user_id": [f"u{i}" for i in range(users)], "variant": variants, "spent": spent,
        "shop": [f"{variant}{shop}" for shop, variant in rows],
    }))
    arms = "".join(f"[[variant]]\nname = {json.dumps(n)}\nshare = {s}\n" for n, s in shares.items())
    # A plan of users is none of shops.
    for cluster in ["", "cluster = \"shop\""] if "planned" not in top else [""]:
        definition = f"""
name = "e"
{top}
[exposures]
table = "people"
user = "user_id"
variant = "variant"
{cluster}
{arms}
[[metric]]
name = "spent"
type = "mean"
value = "spent"
equivalence = 0.08
"""
        reports = {}
        # Intervals are those of one comparison; Holm's are of both.
        for correction in ("none", "holm"):
            (folder / "e.toml").write_text(f'correction = "{correction}"\n' + definition)
            reports[correction] = json.loads(lake.run("report", folder / "e.toml", "--format", "json").out)
        report = reports["none"]
        options = f"{{{TOPS[top]}, 'shares': {shares}, 'equivalence': 0.08}}"
        sql = f"SELECT ab_test_mean(variant, spent, {options}) AS r FROM people"
        if cluster:
            sql = (f"SELECT ab_test_ratio(variant, spent, users, {options}) AS r FROM (SELECT variant, "
                   "shop, sum(spent) AS spent, count(*) AS users FROM people GROUP BY variant, shop)")
        found = lake.json(sql)[0]["r"]
        for test, comparison in zip(found, report["metrics"][0]["comparisons"], strict=True):
            assert test["variant"] == report["arms"][comparison["arm"]]["name"]
            expected = {"equivalence_p": comparison["equivalence"]["p"]}
            for scale, names in [("absolute", ["difference", "low", "high", "p_value"]),
                                 ("relative", ["lift", "lift_low", "lift_high", "lift_p_value"])]:
                parts = ["value", "low", "high", "p"]
                expected |= {n: comparison[scale][part] for n, part in zip(names, parts)}
            for name, value in expected.items():
                assert math.isclose(float(test[name]), value, rel_tol=1e-12), name
            assert (test["note"] is not None) == comparison["unplanned_look"]
        listed = ", ".join(f"{test['p_value']}" for test in found)
        adjusted = lake.json(f"SELECT p_adjust([{listed}], 'holm') AS p")[0]["p"]
        expected = [c["p_adjusted"] for c in reports["holm"]["metrics"][0]["comparisons"]]
        assert all(math.isclose(float(a), e, rel_tol=1e-12) for a, e in zip(adjusted, expected, strict=True))


def test_the_bootstrap_of_the_docs_finds_what_drawing_users_again_finds(lake):
    rng = support.seeded("bootstrap")
    rows = []
    for user in range(700):
        slow, variant = rng.lognormvariate(0, 0.5), ["control", "new"][user % 2]
        rows += [(f"u{user}", variant, 100 * slow * rng.lognormvariate(0, 0.3)) for _ in range(1 + user % 3)]
    lake.create_from("loads", pa.table(dict(zip(["user_id", "variant", "ms"], map(list, zip(*rows))))))
    page = (support.ROOT / "docs" / "statistics" / "bootstrap.md").read_text()
    query = page.split("```sql\n")[1].split(";\n```")[0]
    found = lake.json(query)[0]
    users = {v: [[ms for u, _, ms in rows if u == f"u{user}"] for user in range(first, 700, 2)]
             for first, v in enumerate(["control", "new"])}

    def p90(variant):
        drawn = sorted(ms for user in rng.choices(users[variant], k=350) for ms in user)
        return drawn[math.ceil(0.9 * len(drawn)) - 1]

    drawn = sorted(p90("new") - p90("control") for _ in range(1000))
    mean = sum(drawn) / 1000
    error = math.sqrt(sum((d - mean) ** 2 for d in drawn) / 1000)
    # Each error is right to 2.2 %; the ends of an interval to about 5 % of it.
    assert math.isclose(float(found["error"]), error, rel_tol=0.12), (found, error)
    for end, expected in [("low", drawn[24]), ("high", drawn[974])]:
        assert abs(float(found[end]) - expected) < 0.4 * error, (end, found, expected, error)
    as_rows = lake.json(
        "SELECT stddev(m) AS error FROM (SELECT sum(w * ms) / sum(w) AS m FROM (SELECT ms, replicate, "
        "poisson_weight(user_id, replicate) AS w FROM loads CROSS JOIN (SELECT value AS replicate FROM "
        "generate_series(1, 400)) WHERE variant = 'new') GROUP BY replicate)")
    sums = [(sum(user), len(user)) for user in users["new"]]
    ratio = sum(s for s, _ in sums) / sum(n for _, n in sums)
    squares = sum((s - ratio * n) ** 2 for s, n in sums) / (len(sums) - 1)
    formula = math.sqrt(squares / len(sums)) / (sum(n for _, n in sums) / len(sums))
    # 400 replicates: 3.5 %.
    assert math.isclose(float(as_rows[0]["error"]), formula, rel_tol=0.11)
