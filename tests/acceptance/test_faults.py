"""Faults that once were in the command rather than in an answer's rows: batches, scripts, settings,
formats, and statements that ended the process. Those of rows are in tests/sql."""

import itertools
import json
import math

import pytest

# What stays refused, each for a reason of its own: while parsing, reading, planning and computing.
REFUSED = [
    "SELEC 2",
    "SELECT 'a' SIMILAR TO 'a' || 'b'",
    "ALTER TABLE t ALTER COLUMN x TYPE TEXT",
    "SELECT nothing FROM t",
    "SELECT * FROM nowhere",
    "SELECT 1 / (x - x) FROM t",
]

# Groupings with one column twice, each of which two statements or two sides of a join share.
GROUPED_TWICE = [
    "WITH w AS (SELECT DISTINCT k AS a, k AS b FROM t) "
    "SELECT l.a FROM w l JOIN w r ON l.a = r.b ORDER BY 1",
    "WITH w AS (SELECT DISTINCT k AS a, k AS b, x AS c FROM t) "
    "SELECT l.a, l.c, r.b FROM w l JOIN w r ON l.a = r.b AND l.c = r.c ORDER BY 1, 2",
    "SELECT k AS a, k AS b, count(*) AS n FROM t GROUP BY 1, 2 ORDER BY 1",
    "SELECT k AS a, k AS b, sum(x) AS s FROM t GROUP BY 1, 2 ORDER BY 1",
    "SELECT upper(k) AS a, upper(k) AS b, max(x) AS s FROM t GROUP BY 1, 2 ORDER BY 1",
    "SELECT upper(k) AS a, upper(k) AS b, max(x) AS s, max(x) AS again FROM t "
    "GROUP BY 1, 2 ORDER BY 1",
    "SELECT k AS a, k AS b, k AS c FROM t GROUP BY 1, 2, 3 ORDER BY 1",
    "SELECT DISTINCT x AS a, k AS b, x AS c FROM t ORDER BY 1, 2",
    "SELECT DISTINCT x AS a, k AS b, x AS c FROM t ORDER BY 1 DESC, 2",
]


@pytest.fixture
def shop(lake):
    rows = "VALUES ('a', 1), ('b', 2), ('b', 3), (NULL, 4)"
    lake.run("sql", "-c", f"CREATE TABLE t AS SELECT * FROM ({rows}) AS v(k, x)")
    return lake


def _script(folder, *statements):
    """A file with a statement in each line."""
    file = folder / "script.sql"
    file.write_text(";\n".join(statements) + "\n")
    return file


@pytest.mark.parametrize("threads", [1, 3])
def test_a_batch_shares_groupings_that_have_a_column_twice(shop, folder, threads):
    file = _script(folder, "SELECT 1 AS innocent", *GROUPED_TWICE)
    alone = shop.run("sql", "-f", file, "--format", "json")
    batch = shop.run("sql", "--batch", file, "--format", "json", "--threads", threads)
    assert batch.out == alone.out
    assert json.loads(batch.out.splitlines()[0]) == {"innocent": 1}


def test_a_batch_of_two_such_statements_answers_both(shop, folder):
    for two in itertools.combinations(GROUPED_TWICE, 2):
        file = _script(folder, *two)
        batch = shop.run("sql", "--batch", file, "--format", "json")
        assert batch.out == shop.run("sql", "-f", file, "--format", "json").out


@pytest.mark.parametrize("refused", REFUSED)
def test_a_script_answers_what_comes_before_a_refused_statement(shop, folder, refused):
    file = _script(folder, "SELECT 1 AS a", refused, "SELECT 2 AS b")
    result = shop.refused("sql", "-f", file, "--format", "csv", says=["statement 2 (line 2): "])
    assert result.out == "a\n1\n"
    given = shop.refused("sql", "--format", "csv", stdin=file.read_bytes(), says=["statement 2"])
    assert given.out == "a\n1\n"


@pytest.mark.parametrize("refused", REFUSED)
def test_what_a_script_wrote_before_a_refused_statement_stays(shop, folder, refused):
    first, last = "INSERT INTO t VALUES ('c', 9)", "INSERT INTO t VALUES ('d', 10)"
    file = _script(folder, first, refused, last)
    shop.refused("sql", "-f", file)
    assert shop.json("SELECT sum(x) AS n FROM t WHERE x > 4") == [{"n": 9}]


def test_text_too_long_for_a_column_is_the_statements_error_alone(shop, folder):
    long = "SELECT length({}(k, 2000000000, 'x')) AS n FROM t"
    file = _script(folder, "SELECT 1 AS a", long.format("lpad"), "SELECT 2 AS b")
    assert shop.refused("sql", "-f", file, "--format", "csv").out == "a\n1\n"
    file = _script(folder, "SELECT 1 AS a", long.format("rpad"), "SELECT 2 AS b")
    batch = shop.run("sql", "--batch", file, "--format", "csv", code=1)
    assert batch.out == "a\n1\nb\n2\n"
    assert "error in statement 2 (line 2): " in batch.err, batch


# Each with what asks for an answer that the setting could change, and the right one.
SETTINGS = [
    ("datafusion.sql_parser.dialect = 'PostgreSQL'", "SELECT 6 # 2 AS n", None),
    ("datafusion.sql_parser.recursion_limit = 1", "SELECT ((1 + 2) * 3) AS n", [{"n": 9}]),
    (
        "datafusion.execution.parquet.pushdown_filters = true",
        "SELECT x AS n FROM t WHERE k = 'b'",
        [{"n": 2}, {"n": 3}],
    ),
    (
        "datafusion.optimizer.enable_aggregate_dynamic_filter_pushdown = true",
        "SELECT min(x) AS n, max(x) AS m FROM t WHERE k IS NOT NULL",
        [{"n": 1, "m": 3}],
    ),
]


@pytest.mark.parametrize("setting, query, rows", SETTINGS, ids=lambda value: str(value)[:40])
def test_a_setting_is_refused_or_has_its_effect_and_right_answers(
    shop, folder, setting, query, rows
):
    file = _script(folder, f"SET {setting}", query)
    result = shop.run("sql", "-f", file, "--format", "json", code=None)
    if result.code == 0:
        assert rows is not None, f"SET {setting} is taken and does nothing:\n{result}"
        assert [json.loads(line) for line in result.out.splitlines()] == rows, result
    else:
        assert result.out == "" and setting.split(" ")[0] in result.err, result


FLOATS = """
SELECT CAST('{0}' AS DOUBLE) AS d, CAST('{0}' AS REAL) AS f, [CAST('{0}' AS DOUBLE), 1.5] AS l
"""


@pytest.mark.parametrize(
    "written, read", [("NaN", math.nan), ("inf", math.inf), ("-inf", -math.inf)]
)
def test_json_tells_numbers_that_are_none_from_null(shop, written, read):
    (line,) = shop.run("sql", "-c", FLOATS.format(written), "--format", "json").out.splitlines()
    row = json.loads(line)
    for value in [row["d"], row["f"], row["l"][0]]:
        assert value is not None, line
        assert float(value) == read or math.isnan(float(value)) and math.isnan(read), line
    assert row["l"][1] == 1.5


def test_json_keeps_null_and_finite_numbers_beside_them(shop):
    values = "VALUES (1.5e0), (NULL), (CAST('NaN' AS DOUBLE)), (1e300), (-0.0e0)"
    query = f"SELECT x FROM ({values}) AS v(x)"
    lines = shop.run("sql", "-c", query, "--format", "json").out.splitlines()
    values = [json.loads(line)["x"] for line in lines]
    assert values[:2] == [1.5, None] and values[3:] == [1e300, 0.0]
    assert math.isnan(float(values[2]))


def test_csv_writes_maps_structs_and_lists_or_nothing_at_all(shop):
    nested = "SELECT k, map(['a'], [x]) AS m, [x, NULL] AS l FROM t WHERE x < 3 ORDER BY x"
    result = shop.run("sql", "-c", nested, "--format", "csv", code=None)
    if result.code:
        assert result.out == "" and result.err.startswith("error: "), result
    else:
        assert len(result.out.splitlines()) == 3 and "\na,{a: 1}," in result.out, result
    none = nested.replace("x < 3", "x < 0")
    empty = shop.run("sql", "-c", none, "--format", "csv", code=result.code)
    assert empty.out == ("" if result.code else "k,m,l\n")


# Rows that do not depend on how many threads compute them. Half of the rows of `b` have a partner.
CONSTANTS = """
CREATE TABLE b AS SELECT value AS k FROM generate_series(1, 30000) AS g(value);
CREATE TABLE kinds AS SELECT value * 2 AS k, 'x' AS kind FROM generate_series(1, 15000) AS g(value)
"""
CONSTANT = "FROM b LEFT JOIN (SELECT k, kind FROM kinds WHERE kind = 'x') q ON q.k = b.k"


@pytest.mark.parametrize("options", [(), ("--no-index",)], ids=["indexed", "no-index"])
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_a_constant_of_a_left_joins_other_side_makes_two_whole_groups(lake, threads, options):
    lake.run("sql", "-c", CONSTANTS)
    options = [*options, "--threads", threads]
    groups = lake.json(f"SELECT q.kind, count(*) AS n {CONSTANT} GROUP BY 1 ORDER BY 1", *options)
    assert groups == [{"kind": "x", "n": 15000}, {"kind": None, "n": 15000}]
    number = "row_number() OVER (PARTITION BY q.kind ORDER BY b.k)"
    numbered = f"(SELECT q.kind, {number} AS n {CONSTANT})"
    by_kind = "SELECT kind, max(n) AS m, count(DISTINCT n) AS d"
    rows = lake.json(f"{by_kind} FROM {numbered} GROUP BY 1 ORDER BY 1", *options)
    assert rows == [{"kind": "x", "m": 15000, "d": 15000}, {"kind": None, "m": 15000, "d": 15000}]
    sorted_by_kind = f"SELECT q.kind, b.k {CONSTANT} ORDER BY 1 NULLS FIRST, 2 LIMIT 1 OFFSET 14999"
    last = lake.json(sorted_by_kind, *options)
    assert last == [{"kind": None, "k": 29999}]


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_users_without_values_have_null_on_any_number_of_threads(lake, folder, threads):
    """Also in a batch, whose statements share the join."""
    lake.run("sql", "-c", """
        CREATE TABLE exposures (user_id TEXT, variant TEXT) ID DOMAINS (user_id users);
        INSERT INTO exposures VALUES ('a', 'x'), ('b', 'y'), ('c', 'y'), ('n', 'y');
        CREATE TABLE events (user_id TEXT, v BIGINT, price DECIMAL(12,2))
        ID DOMAINS (user_id users);
        INSERT INTO events SELECT 'a', 1, 2.5 FROM generate_series(1, 9000);
        INSERT INTO events SELECT 'c', -1, 2.5 FROM generate_series(1, 9000);
        INSERT INTO events (user_id) VALUES ('n')
    """)
    users = "(SELECT user_id, min(variant) AS variant FROM exposures GROUP BY user_id) u"
    joined = f"FROM {users} LEFT JOIN events e ON e.user_id = u.user_id GROUP BY u.user_id ORDER BY 1"
    statements = [
        f"SELECT u.user_id, min(e.v) AS m, sum(e.price) AS s {joined}",
        f"SELECT u.user_id, max(e.v) AS m, bool_or(e.v > 0) AS o {joined}",
    ]
    nothing = {"m": None, "s": None}
    expected = [
        {"user_id": "a", "m": 1, "s": 22500}, {"user_id": "b"} | nothing,
        {"user_id": "c", "m": -1, "s": 22500}, {"user_id": "n"} | nothing,
        {"user_id": "a", "m": 1, "o": True}, {"user_id": "b", "m": None, "o": None},
        {"user_id": "c", "m": -1, "o": False}, {"user_id": "n", "m": None, "o": None},
    ]
    alone = [row for one in statements for row in lake.json(one, "--threads", threads)]
    assert alone == expected
    file = _script(folder, *statements)
    batch = lake.run("sql", "--batch", file, "--format", "json", "--threads", threads)
    assert [json.loads(line) for line in batch.out.splitlines()] == expected
