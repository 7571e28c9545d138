"""How rows lie in files: partitions, clustering, statistics, page index, bloom filters."""

import datetime
import json

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import support
from support import assert_same, is_sorted, ordered_rows_of, rows_of, write_parquet

ODD = ["a b", "a/b", "a=b", "a%20b", "ü☃", "x" * 300, "..", ".", "#1", "?q", "'", '"', "\\", "\n", "a:b", "*", "%", " ", "NULL", "null", "__HIVE_DEFAULT_PARTITION__", "+", "&"]


def odd_partition_values_come_back_as_they_were(lake):
    values = ODD + [None]
    data = pa.table({
        "k": pa.array(range(len(values) * 2), pa.int64()),
        "p": [v for v in values for _ in range(2)],
    })
    lake.create_from("t", data, "--partition-by", "p")
    assert_same(lake.same_as_deltalake("t"), rows_of(data), "odd partition values")
    assert len(lake.live_files("t")) == len(values)
    for number, value in enumerate(values):
        predicate = "p is null" if value is None else "p = '" + value.replace("'", "''") + "'"
        got = lake.arrow(f"select k from t where {predicate} order by k").column("k").to_pylist()
        assert got == [2 * number, 2 * number + 1], repr(value)
    lake.run("table", "check", "t")
    lake.run("table", "vacuum", "t", "--retain", "0s")
    assert lake.files_on_disk("t") == lake.live_files("t")
    assert_same(lake.rows("select * from t"), rows_of(data), "after vacuum")


PARTITION_TYPES = {
    "text": pa.array(["a", "b", None, "a"]),
    "tinyint": pa.array([1, -1, None, 1], pa.int8()),
    "smallint": pa.array([300, -300, None, 300], pa.int16()),
    "integer": pa.array([1, -1, None, 1], pa.int32()),
    "bigint": pa.array([2**62, -(2**62), None, 2**62], pa.int64()),
    "boolean": pa.array([True, False, None, True]),
    "date": pa.array([datetime.date(2026, 11, 1), datetime.date(1969, 1, 1), None, datetime.date(2026, 11, 1)]),
}


@pytest.mark.parametrize("kind", PARTITION_TYPES)
def each_partition_type_reads_back_and_splits_the_files(lake, kind):
    data = pa.table({"k": pa.array(range(4), pa.int64()), "p": PARTITION_TYPES[kind]})
    lake.create_from("t", data, "--partition-by", "p")
    assert_same(lake.same_as_deltalake("t"), rows_of(data), kind)
    assert len(lake.live_files("t")) == 3
    assert all("p" not in f.schema_arrow.names for f in lake.parquet("t"))
    assert sorted(lake.arrow("select p, count(*) n from t group by p").column("n").to_pylist()) == [1, 1, 2]


@pytest.mark.parametrize("kind", ["double", "timestamp", "list"])
def a_type_whose_text_is_not_exact_cannot_partition(lake, folder, kind):
    columns = {
        "double": pa.array([0.1]), "timestamp": pa.array([1], pa.timestamp("us")), "list": pa.array([[1]]),
    }
    path = write_parquet(folder / "d.parquet", pa.table({"k": [1], "p": columns[kind]}))
    lake.refused("load", "t", path, "--partition-by", "p", says=["`p`", "partition"])
    assert lake.version("t") is None


def an_empty_text_as_partition_value_is_refused_not_made_null(lake, folder):
    path = write_parquet(folder / "d.parquet", pa.table({"k": [1, 2], "p": ["x", ""]}))
    lake.refused("load", "t", path, "--partition-by", "p", says=["`p`", "empty"])
    assert lake.version("t") is None


def several_partition_columns_nest(lake):
    rng = support.seeded("several_partition_columns_nest")
    data = support.events(2000, rng, days=5).drop_columns(["event"]).append_column(
        "arm", pa.array([rng.choice(["control", "treatment", None]) for _ in range(2000)])
    )
    lake.create_from("t", data, "--partition-by", "day,arm", "--cluster-by", "user_id,ts")
    assert len(lake.live_files("t")) == 15
    assert_same(lake.same_as_deltalake("t"), rows_of(data), "two partition columns")
    for file in lake.parquet("t"):
        assert is_sorted(ordered_rows_of(file.read()), ["user_id", "ts"])


def hundreds_of_partitions_get_one_file_each(lake):
    count = 400
    data = pa.table({
        "k": pa.array(range(count * 5), pa.int64()),
        "p": pa.array([i % count for i in range(count * 5)], pa.int64()),
    })
    lake.create_from("t", data, "--partition-by", "p")
    assert len(lake.live_files("t")) == count
    assert_same(lake.same_as_deltalake("t"), rows_of(data), "400 partitions")


def partitions_get_one_file_each_whatever_the_number_of_threads(lake, folder):
    """A few MB of CSV are several chunks that threads share; a partition is still one file."""
    path = folder / "d.csv"
    path.write_text("i,p,t\n" + "".join(f"{i},{i % 3},text {i} of some length\n" for i in range(300_000)))
    lake.load("t", path, "--partition-by", "p")
    assert len(lake.live_files("t")) == 3


@pytest.mark.parametrize("columns", ["k", "s", "s,k", "f", "d,k", "ts,s"])
def rows_of_each_file_are_sorted_by_the_clustering_columns(lake, columns):
    rng = support.seeded(f"rows_of_each_file_are_sorted {columns}")
    n = 5000
    base = datetime.datetime(2026, 11, 1)
    texts = ["", "a", "a\0", "b" * 15, "b" * 16, "b" * 17, "b" * 16 + "\0", "é", "z", None]
    data = pa.table({
        "k": pa.array([rng.randrange(-100, 100) for _ in range(n)], pa.int64()),
        "s": [rng.choice(texts) for _ in range(n)],
        "f": [rng.choice([None, 0.0, 1.5, -2.5, 1e300, -1e300]) for _ in range(n)],
        "d": [None if rng.random() < 0.1 else base.date() + datetime.timedelta(rng.randrange(40)) for _ in range(n)],
        "ts": [base + datetime.timedelta(microseconds=rng.randrange(1000)) for _ in range(n)],
        "seq": pa.array(range(n), pa.int64()),
    })
    lake.create_from("t", data, "--cluster-by", columns)
    wanted = columns.split(",")
    for file in lake.parquet("t"):
        rows = ordered_rows_of(file.read())
        assert is_sorted(rows, wanted + ["seq"]), "sorted, ties in arrival order"
        group = file.metadata.row_group(0)
        names = [group.column(c.column_index).path_in_schema for c in group.sorting_columns]
        assert names == wanted
        assert not any(c.descending or c.nulls_first for c in group.sorting_columns)
    assert_same(lake.same_as_deltalake("t"), rows_of(data), columns)


def clustering_by_a_nested_table_works_too(lake):
    rng = support.seeded("clustering_by_a_nested_table_works_too")
    data = pa.table({
        "s": pa.array([{"x": i} for i in range(1000)], pa.struct([("x", pa.int64())])),
        "k": pa.array([rng.randrange(50) for _ in range(1000)], pa.int64()),
        "l": pa.array([[i] * (i % 3) for i in range(1000)], pa.list_(pa.int64())),
    })
    lake.create_from("t", data, "--cluster-by", "k")
    assert is_sorted([(("k", v),) for v in lake.parquet("t")[0].read().column("k").to_pylist()], ["k"])
    assert_same(lake.same_as_deltalake("t"), rows_of(data), "nested and clustered")


LAYOUT_ERRORS = [
    (["--partition-by", "nope"], ["`nope`", "k"]),
    (["--cluster-by", "nope"], ["`nope`", "k"]),
    (["--partition-by", "p", "--cluster-by", "p"], ["`p`"]),
    (["--partition-by", "k,p,l"], []),
    (["--cluster-by", "l"], ["`l`", "nested"]),
]


@pytest.mark.parametrize("options,says", LAYOUT_ERRORS)
def a_layout_that_cannot_be_is_refused_before_loading(lake, folder, options, says):
    path = write_parquet(folder / "d.parquet", pa.table({"k": [1], "p": ["x"], "l": [[1]]}))
    lake.refused("load", "t", path, *options, says=says)
    assert lake.version("t") is None


def the_layout_of_a_table_stays_and_contradicting_it_is_refused(lake, folder):
    data = pa.table({"k": pa.array([3, 1, 2], pa.int64()), "p": ["x", "x", "y"]})
    lake.create_from("t", data, "--partition-by", "p", "--cluster-by", "k")
    path = write_parquet(folder / "d.parquet", data)
    lake.load("t", path)
    assert len(lake.live_files("t")) == 4
    lake.refused("load", "t", path, "--cluster-by", "p", says=["--cluster-by k"])
    lake.refused("load", "t", path, "--partition-by", "k", says=["--partition-by p"])
    described = lake.run("table", "describe", "t").out
    assert "partitioned by: p" in described and "clustered by:   k" in described


def statistics_page_index_and_bloom_filters_are_in_every_file(lake):
    rng = support.seeded("statistics_page_index_and_bloom_filters_are_in_every_file")
    data = support.events(60_000, rng, users=5000)
    lake.create_from("t", data, "--cluster-by", "user_id,ts")
    (file,) = lake.parquet("t")
    group = file.metadata.row_group(0)
    for i in range(group.num_columns):
        column = group.column(i)
        if column.physical_type in ("DOUBLE", "FLOAT"):
            continue  # NaN is in no Parquet statistics: bounds of floats would lose rows.
        assert column.has_column_index and column.has_offset_index, column.path_in_schema
        assert column.statistics is not None and column.statistics.has_null_count
        has_bloom = getattr(column, "bloom_filter_offset", "unknown")
        if has_bloom != "unknown":
            assert (has_bloom is not None) == (column.path_in_schema in ("id", "user_id")), column.path_in_schema
    found = support.duck(
        f"select path_in_schema as c, bloom_filter_offset as o from parquet_metadata('{_file_path(lake)}')"
    ).to_pylist()
    assert {r["c"] for r in found if r["o"] is not None} == {"id", "user_id"}
    stats = json.loads(_adds(lake, "t")[0]["stats"])
    assert stats["numRecords"] == 60_000
    assert stats["minValues"]["user_id"] == pc.min(data["user_id"]).as_py()
    assert stats["maxValues"]["id"] == 59_999
    assert stats["nullCount"]["event"] == data["event"].null_count
    excluded = support.duckdb.connect().execute(
        f"select count(*) from parquet_bloom_probe('{_file_path(lake)}', 'user_id', 'nobody') where bloom_filter_excludes"
    ).fetchall()
    assert excluded == [(1,)]


def _file_path(lake):
    (path,) = lake.live_files("t")
    return lake.folder("t") / path


def _adds(lake, table):
    adds = []
    for commit in sorted((lake.folder(table) / "_delta_log").glob("*.json")):
        actions = map(json.loads, commit.read_text().splitlines())
        adds += [a["add"] for a in actions if "add" in a]
    return adds


def bounds_in_the_log_hold_for_every_value(lake, folder):
    """Delta readers skip files by these: a wrong bound is a lost row."""
    rng = support.seeded("bounds_in_the_log_hold_for_every_value")
    for part in range(10):
        data = support.events(300, rng, days=3, first_id=part * 300)
        suffix = pa.array([rng.choice(["☃", "\U0010ffff", "z"]) * rng.randrange(0, 70) for _ in range(300)])
        path = write_parquet(folder / f"{part}.parquet", data.append_column("long", suffix))
        lake.load("t", path)
    adds = _adds(lake, "t")
    assert len(adds) == 10
    for add in adds:
        rows = support.pq.read_table(lake.folder("t") / add["path"])
        stats = json.loads(add["stats"])
        assert stats["numRecords"] == rows.num_rows
        assert add["size"] == (lake.folder("t") / add["path"]).stat().st_size
        for column, low in stats["minValues"].items():
            high, values = stats["maxValues"][column], rows[column].drop_null()
            assert stats["nullCount"][column] == rows[column].null_count
            parse = (lambda t: datetime.datetime.fromisoformat(t)) if column == "ts" else (
                datetime.date.fromisoformat if column == "day" else lambda t: t)
            real_low, real_high = pc.min(values).as_py(), pc.max(values).as_py()
            assert parse(low) <= real_low and real_high <= parse(high), (column, low, high, real_low, real_high)


def a_load_beyond_the_memory_budget_cuts_files_and_loses_nothing(lake, folder):
    path = folder / "d.csv"
    count = 700_000
    path.write_text("i,p,t\n" + "".join(f"{i},{i % 7},text {i * 7919 % count} of some length\n" for i in range(count)))
    lake.load("t", path, "--partition-by", "p", "--cluster-by", "t", "--memory", "64M")
    row = lake.json("select count(*) n, sum(i) s, count(distinct i) d, min(i) lo, max(i) hi from t")[0]
    assert row == {"n": count, "s": count * (count - 1) // 2, "d": count, "lo": 0, "hi": count - 1}
    assert 7 <= len(lake.live_files("t")) < 60
    for file in lake.parquet("t"):
        texts = file.read(columns=["t"]).column("t").to_pylist()
        assert texts == sorted(texts)
    before = lake.json("select p, count(*) n, sum(i) s from t group by p order by p")
    lake.run("table", "compact", "t")
    assert len(lake.live_files("t")) == 7
    assert lake.json("select p, count(*) n, sum(i) s from t group by p order by p") == before
