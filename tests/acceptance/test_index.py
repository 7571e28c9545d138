"""An index changes the speed of an answer, never its rows."""

import pyarrow as pa
import pytest

import indexes
import support
from indexes import Conditions, all_indexes, assert_index_changes_nothing, counters, index_files
from support import write_parquet

LAYOUTS = {
    "unsorted": [],
    "clustered": ["--cluster-by", "i16,s"],
    "partitioned": ["--partition-by", "p"],
    "partitioned_and_clustered": ["--partition-by", "p", "--cluster-by", "s,i8"],
}
CONDITIONS = 80  # for each layout


def _lake_of_rows(lake, folder, rng, *options):
    """Table `t` of three loads with every index, and `few`, a table of few numbers; its rows."""
    parts = [indexes.rows(rng, 1500, first=1500 * n) for n in range(3)]
    for number, part in enumerate(parts):
        path = write_parquet(folder / f"{number}.parquet", part)
        lake.load("t", path, *(all_indexes() + list(options) if number == 0 else []))
    few = pa.table({"v": pa.array([5, 7, -1, None, 100, 5], pa.int64()), "name": ["alpha", "优惠券", "", None, "b", "b"]})
    lake.load("few", write_parquet(folder / "few.parquet", few))
    return pa.concat_tables(parts), few


def _in_duckdb(queries, data, few):
    connection = support.duckdb.connect()
    connection.register("t", data)
    connection.register("few", few)
    return [[row[0] for row in connection.sql(query).fetchall()] for query in queries]


@pytest.mark.parametrize("layout", LAYOUTS)
def random_conditions_find_the_rows_that_duckdb_finds(lake, folder, layout):
    rng = support.seeded(f"random conditions {layout}")
    data, few = _lake_of_rows(lake, folder, rng, *LAYOUTS[layout])
    conditions = Conditions(rng, data)
    queries, ours = [], []
    for _ in range(CONDITIONS):
        condition = conditions.next()
        limit = rng.choice(["", "", f" LIMIT {rng.randrange(20)}"])
        queries.append(f"SELECT k FROM t WHERE {condition} ORDER BY k{limit}")
        ours.append(conditions.ours)
    found, warnings = assert_index_changes_nothing(lake, queries)
    assert warnings == []
    comparable = [query for query, only_ours in zip(queries, ours) if not only_ours]
    theirs = dict(zip(comparable, _in_duckdb(comparable, data, few)))
    for query, rows in zip(queries, found):
        if query in theirs:
            assert [row["k"] for row in rows] == theirs[query], query
    assert len(theirs) > CONDITIONS // 4
    assert sum(0 < len(rows) < data.num_rows for rows in found) > CONDITIONS // 2


def conditions_in_larger_queries_find_the_same_rows(lake, folder):
    rng = support.seeded("larger queries")
    data, few = _lake_of_rows(lake, folder, rng, "--cluster-by", "i32")
    conditions = Conditions(rng, data)
    shapes = [
        "SELECT t.k FROM t JOIN few ON t.i8 = few.v WHERE {}",
        "SELECT t.k FROM t JOIN few ON t.s = few.name WHERE {}",
        "SELECT t.k FROM few LEFT JOIN t ON t.i64 = few.v AND {} ORDER BY t.k",
        "SELECT a.k FROM t a JOIN t b ON a.i16 = b.i16 WHERE b.k < 20 AND a.k IN (SELECT k FROM t WHERE {})",
        "SELECT k FROM t WHERE k IN (SELECT k FROM t WHERE {}) AND i8 = 5",
        "SELECT k FROM t WHERE NOT EXISTS (SELECT 1 FROM few WHERE few.v = t.i8) AND {}",
        "WITH some AS (SELECT * FROM t WHERE {}) SELECT k FROM some WHERE i16 > 0 UNION ALL SELECT count(*) FROM some",
        "SELECT i8, count(*) AS n, min(s) AS s FROM t WHERE {} GROUP BY i8",
        "SELECT k FROM (SELECT k, row_number() OVER (PARTITION BY i8 ORDER BY k) AS r FROM t WHERE {}) WHERE r = 2",
        "WITH RECURSIVE walk AS (SELECT 5 AS n, 0 AS step UNION ALL SELECT t.i16, step + 1 FROM walk JOIN t "
        "ON t.i32 = walk.n WHERE step < 3 AND t.k < 900 AND ({})) SELECT n, step, count(*) AS c FROM walk GROUP BY n, step",
        "SELECT count(*) AS n FROM t WHERE {} UNION ALL SELECT count(*) FROM t VERSION AS OF 1 WHERE i8 = 5",
    ]
    queries = [shape.format(conditions.next()) for shape in shapes for _ in range(5)]
    _, warnings = assert_index_changes_nothing(lake, queries)
    assert warnings == []
    assert_index_changes_nothing(lake, queries[::3], "--threads", "5")


def deleting_by_a_condition_removes_the_rows_that_duckdb_removes(lake, folder):
    rng = support.seeded("deletes")
    data, few = _lake_of_rows(lake, folder, rng, "--partition-by", "p")
    conditions = Conditions(rng, data)
    duck = support.duckdb.connect()
    duck.register("source", data)
    duck.register("few", few)
    duck.execute("CREATE TABLE t AS SELECT * FROM source")
    deleted = 0
    while deleted < 8:
        condition = conditions.next()
        if conditions.ours or "SELECT" in condition:
            continue
        if duck.sql(f"SELECT count(*) FROM t WHERE {condition}").fetchall()[0][0] > 600:
            continue
        lake.run("sql", "-c", f"DELETE FROM t WHERE {condition}")
        duck.execute(f"DELETE FROM t WHERE {condition}")
        left = [row[0] for row in duck.sql("SELECT k FROM t ORDER BY k").fetchall()]
        assert lake.arrow("SELECT k FROM t ORDER BY k").column("k").to_pylist() == left, condition
        deleted += 1
    assert len(left) < data.num_rows
    assert set(index_files(lake, "t")) >= lake.live_files("t")
    lake.run("table", "check", "t")
    queries = [f"SELECT k FROM t WHERE {conditions.next()}" for _ in range(30)]
    assert assert_index_changes_nothing(lake, queries)[1] == []


# Which queries use an index, by the counters of EXPLAIN ANALYZE

ROWS = 150_000


@pytest.fixture
def orders(lake, folder):
    data = pa.table({
        "Id": pa.array(range(ROWS), pa.int64()),
        "shop": pa.array([n // 100 for n in range(ROWS)], pa.int32()),
        "odd": pa.array([n % 2 for n in range(ROWS)], pa.int8()),
        "city": [f"city {n % 50}" for n in range(ROWS)],
        "Name": [f"order {n} 火锅店{n // 1000}" for n in range(ROWS)],
    })
    specs = ["Id", "shop", "odd", "Name:words", "Name:ngrams"]
    options = [part for spec in specs for part in ("--index", spec)]
    lake.load("t", write_parquet(folder / "t.parquet", data), *options)
    lake.load("few", write_parquet(folder / "few.parquet", pa.table({"n": [7, 70_007, None]})))
    return lake


USED = {
    "id = 5": 1,
    "ID IN (5, 7, 149999, -1)": 3,
    "id = 5 OR 7 = id OR id IN (8, 9)": 4,
    "shop IN (3, 1499)": 200,
    "shop = 3 AND id IN (301, 302, 500)": 2,
    f"shop IN ({', '.join(map(str, range(0, 1500, 10)))})": 15_000,
    "id IN ID SET some": 3,
        "match(name, '14999')": 1,
    "match(NAME, 'order 火锅') AND shop = 700": 100,
}


def conditions_on_indexed_columns_read_just_their_rows(orders):
    lake = orders
    lake.run("sql", "-c", "CREATE ID SET some AS VALUES (5), (10), (15)")
    for condition, rows in USED.items():
        found = counters(lake, f"SELECT city FROM t WHERE {condition}")
        assert found["index_lookups"] > 0, condition
        # Of thousands the plan shows three digits.
        assert found["index_rows_selected"] == pytest.approx(rows, rel=0.01), condition
        assert found["index_rows_skipped"] == pytest.approx(ROWS - rows, rel=0.01), condition
        assert len(lake.json(f"SELECT city FROM t WHERE {condition}")) == rows, condition
    found = counters(lake, "SELECT * FROM t WHERE id = 77777")
    assert found["index_pages_skipped"] > 1 and found["index_page_bytes_skipped"] > 10_000
    assert found["index_bytes_read"] > 0 and found["index_runs"] == 1


def a_pattern_reads_the_blocks_that_may_match(orders):
    found = counters(orders, "SELECT city FROM t WHERE name LIKE '%火锅店77%'")
    assert 1000 <= found["index_rows_selected"] < 5000
    assert orders.count("t WHERE name LIKE '%火锅店77%'") == 1000
    found = counters(orders, "SELECT city FROM t WHERE name ILIKE 'ORDER 12345 %'")
    assert 1 <= found["index_rows_selected"] < 5000
    assert counters(orders, "SELECT city FROM t WHERE contains(name, '99 火锅店1')")["index_rows_selected"] < 70_000


def a_join_with_a_small_side_asks_the_index(orders):
    for query in ["SELECT t.city FROM t JOIN few ON t.id = few.n", "SELECT city FROM few, t WHERE n = id",
                  "SELECT city FROM t WHERE id IN (SELECT n FROM few)"]:
        # Each part of a file that is read for itself asks for itself.
        assert 2 <= counters(orders, query)["index_rows_selected"] <= 8, query
        assert len(orders.json(query)) == 2


def an_index_is_not_used_where_it_is_no_help(orders):
    for query in ["SELECT city FROM t WHERE odd = 1", "SELECT sum(id) FROM t WHERE odd IN (0, 1) AND odd <> 0"]:
        found = counters(orders, query)
        assert found["index_not_worth_it"] == 1 and "index_rows_selected" not in found, query
    found = counters(orders, "SELECT city FROM t WHERE name LIKE '%9%'")
    assert found["index_pattern_too_vague"] >= 1 and "index_rows_selected" not in found
    for condition in ["city = 'city 5'", "id > 149990", "id NOT IN (1, 2)", "id + 1 = 5", "name NOT LIKE '%77%'", "true"]:
        assert "index_lookups" not in counters(orders, f"SELECT shop FROM t WHERE {condition}"), condition


def no_index_is_asked_when_told_so(orders, monkeypatch):
    query = "SELECT city FROM t WHERE id = 5"
    assert counters(orders, query)["index_rows_selected"] == 1
    assert counters(orders, query, "--no-index") == {}
    monkeypatch.setenv("UPLAKE_NO_INDEX", "1")
    assert counters(orders, query) == {}
    assert orders.json(query) == [{"city": "city 5"}]
