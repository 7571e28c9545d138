"""Looking after tables: compact, vacuum, check, history, describe, list; and other writers' tables."""

import datetime
import decimal
import json
import os
import pathlib
import re
import shutil
import subprocess
import urllib.parse

import deltalake
import pyarrow as pa
import pytest

import support
from support import assert_same, is_sorted, ordered_rows_of, rows_of, write_parquet

LAYOUT = ["--partition-by", "day", "--cluster-by", "user_id,ts"]


def _loads(lake, folder, rng, count=6, rows=1500, layout=LAYOUT, days=3):
    parts = []
    for i in range(count):
        part = support.events(rows, rng, days=days, first_id=i * rows)
        lake.load("t", write_parquet(folder / f"{i}.parquet", part), *(layout if i == 0 else []))
        parts.append(part)
    return pa.concat_tables(parts)


LAYOUTS = {
    "plain": [], "partitioned": ["--partition-by", "day"], "clustered": ["--cluster-by", "user_id,ts"],
    "both": LAYOUT, "clustered_by_nullable": ["--cluster-by", "value,event"],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def compaction_keeps_every_row_sorts_and_is_done_once(lake, folder, layout):
    rng = support.seeded(f"compact {layout}")
    data = _loads(lake, folder, rng, layout=LAYOUTS[layout])
    before = lake.live_files("t")
    assert "became" in lake.run("table", "compact", "t").out
    after = lake.live_files("t")
    assert len(after) == (3 if "--partition-by" in LAYOUTS[layout] else 1) < len(before)
    assert not after & before
    assert_same(lake.same_as_deltalake("t"), rows_of(data), "after compaction")
    if "--cluster-by" in LAYOUTS[layout]:
        columns = LAYOUTS[layout][-1].split(",")
        for file in lake.parquet("t"):
            assert is_sorted(ordered_rows_of(file.read()), columns)
            assert file.metadata.row_group(0).sorting_columns
    version = lake.version("t")
    assert "nothing to compact" in lake.run("table", "compact", "t").out
    assert lake.version("t") == version
    files = [str(lake.folder("t") / f) for f in after]
    theirs = support.duck(f"select id, event, value from read_parquet({files}, hive_partitioning=false)")
    assert_same(rows_of(theirs), rows_of(data.select(["id", "event", "value"])), "DuckDB")


def compaction_of_nested_wide_and_odd_columns_keeps_every_row(lake, folder):
    rng = support.seeded("compaction_of_nested")
    parts = []
    for i in range(5):
        n = 400
        part = pa.table({
            "my key": [rng.choice(["a", "b" * 40, "é", "", None]) for _ in range(n)],
            "s": pa.array([None if rng.random() < 0.1 else {"x": rng.randrange(9), "l": ["p"] * rng.randrange(3)} for _ in range(n)],
                          pa.struct([("x", pa.int32()), ("l", pa.list_(pa.string()))])),
            "d": pa.array([support.decimal.Decimal(rng.randrange(10**6)) / 100 for _ in range(n)], pa.decimal128(12, 2)),
            "b": pa.array([rng.choice([b"", b"\xff\x00", None]) for _ in range(n)], pa.binary()),
            "f": [rng.choice([float("nan"), -0.0, 0.0, None, 1.0]) for _ in range(n)],
        })
        parts.append(part)
        lake.load("t", write_parquet(folder / f"{i}.parquet", part), *(["--cluster-by", "my key,f"] if i == 0 else []))
    lake.run("table", "compact", "t")
    assert len(lake.live_files("t")) == 1
    assert_same(lake.same_as_deltalake("t"), rows_of(pa.concat_tables(parts)), "nested")


def compaction_after_columns_were_added_fills_them_with_null(lake, folder):
    lake.create_from("t", pa.table({"k": pa.array([2, 1], pa.int64())}), "--cluster-by", "k")
    write_parquet(folder / "a.parquet", pa.table({"k": pa.array([0, 9], pa.int64()), "new": ["x", None]}))
    lake.load("t", folder / "a.parquet", "--allow-new-columns")
    want = lake.rows("select * from t")
    lake.run("table", "compact", "t")
    assert_same(lake.same_as_deltalake("t"), want, "new column")
    assert [r["k"] for r in lake.json("select k, new from t order by k")] == [0, 1, 2, 9]


def deleted_rows_stay_deleted_and_the_others_stay(lake, folder):
    rng = support.seeded("deleted_rows_stay_deleted")
    data = _loads(lake, folder, rng)
    lake.run("sql", "-c", "delete from t where user_id < 'u00010' or value is null")
    want = [r for r in rows_of(data) if not (dict(r)["user_id"] < "u00010" or dict(r)["value"] is None)]
    assert 0 < len(want) < data.num_rows
    assert_same(lake.same_as_deltalake("t"), want, "after delete")
    for file in lake.parquet("t"):
        assert is_sorted(ordered_rows_of(file.read()), ["user_id", "ts"])
    lake.run("table", "compact", "t")
    assert_same(lake.same_as_deltalake("t"), want, "after delete and compact")
    assert lake.count("t", "--as-of", "0") == 1500
    lake.run("sql", "-c", "delete from t where day = date '2026-11-01'")
    want = [r for r in want if dict(r)["day"] != datetime.date(2026, 11, 1)]
    assert_same(lake.same_as_deltalake("t"), want, "after deleting a partition")
    lake.run("sql", "-c", "delete from t")
    assert lake.same_as_deltalake("t") == []
    lake.load("t", folder / "0.parquet")
    assert lake.count("t") == 1500


def a_delete_keeps_rows_for_which_the_condition_is_null(lake):
    data = pa.table({"k": pa.array([1, 2, 3], pa.int64()), "x": pa.array([1.0, None, 3.0])})
    lake.create_from("t", data)
    lake.run("sql", "-c", "delete from t where x > 2")
    assert [r["k"] for r in lake.json("select k from t order by k")] == [1, 2]
    lake.run("sql", "-c", "delete from t where not (x > 2)")
    assert [r["k"] for r in lake.json("select k from t order by k")] == [2]


def time_travel_works_until_a_vacuum_without_retention_takes_the_files(lake, folder):
    rng = support.seeded("time travel")
    _loads(lake, folder, rng)
    rows = {v: lake.rows("select * from t", "--as-of", str(v)) for v in range(6)}
    assert [len(rows[v]) for v in range(6)] == [1500 * (v + 1) for v in range(6)]
    for v in range(6):
        assert_same(rows[v], rows_of(lake.delta("t", at=v).to_pyarrow_table()), f"version {v}")
    lake.run("table", "compact", "t")
    lake.run("sql", "-c", "delete from t where id % 2 = 0")
    on_disk = lake.files_on_disk("t")
    dry = lake.run("table", "vacuum", "t", "--retain", "0s", "--dry-run").out
    assert "would remove" in dry and lake.files_on_disk("t") == on_disk
    assert "removed 0 files" in lake.run("table", "vacuum", "t").out
    assert lake.files_on_disk("t") == on_disk
    for v in range(6):
        assert_same(lake.rows("select * from t", "--as-of", str(v)), rows[v], f"version {v} after a vacuum")
    now = lake.rows("select * from t")
    gone = lake.run("table", "vacuum", "t", "--retain", "0s").out.splitlines()
    assert set(gone[:-1]) == set(dry.splitlines()[:-1]) == on_disk - lake.live_files("t")
    assert lake.files_on_disk("t") == lake.live_files("t")
    assert_same(lake.rows("select * from t"), now, "now")
    result = lake.refused("sql", "-c", "select sum(value) from t", "--as-of", "0")
    assert ".parquet" in result.err or "vacuum" in result.err, result
    assert "removed 0 files" in lake.run("table", "vacuum", "t", "--retain", "0s").out


def a_version_that_never_was_is_refused(lake):
    lake.create_from("t", pa.table({"k": [1]}))
    lake.refused("sql", "-c", "select * from t", "--as-of", "7", says=["version 7"])
    lake.refused("sql", "-c", "select * from t", "--as-of", "2001-01-01", says=["`t`"])
    assert "yesterday" in lake.run("sql", "-c", "select * from t", "--as-of", "yesterday", code=2).err


DAMAGES = ["cut", "deleted", "emptied", "flipped", "longer"]


@pytest.mark.parametrize("damage", DAMAGES)
def check_names_the_damaged_file(lake, folder, damage):
    rng = support.seeded(f"damage {damage}")
    _loads(lake, folder, rng, count=2)
    assert "the table is sound" in lake.run("table", "check", "t").out
    files = sorted(lake.live_files("t"))
    for name in rng.sample(files, 3):
        path = lake.folder("t") / name
        whole = path.read_bytes()
        if damage == "cut":
            path.write_bytes(whole[: rng.randrange(1, len(whole))])
        elif damage == "emptied":
            path.write_bytes(b"")
        elif damage == "longer":
            path.write_bytes(whole + b"x")
        elif damage == "deleted":
            path.unlink()
        else:
            # Somewhere in the data pages: behind the magic bytes, before the indexes and the footer.
            meta = support.pq.ParquetFile(path).metadata.row_group(0)
            start, end = 4, max(
                (c.dictionary_page_offset or c.data_page_offset) + c.total_compressed_size
                for c in map(meta.column, range(meta.num_columns))
            )
            damaged = bytearray(whole)
            at = rng.randrange(start, end)
            damaged[at] ^= 1 << rng.randrange(8)
            print(f"bit flipped at byte {at} of {len(whole)}")
            path.write_bytes(damaged)
        result = lake.run("table", "check", "t", code=1)
        assert name in result.out + result.err, result
        others = [f for f in files if f != name]
        assert not any(f in result.out for f in others), result
        path.write_bytes(whole)
    lake.run("table", "check", "t")


def check_notices_values_that_changed_within_a_page(lake):
    """One stored number differs: the page checksum must tell."""
    lake.create_from("t", pa.table({"k": pa.array([i * 7919 % 100_003 for i in range(5000)], pa.int64())}))
    (name,) = lake.live_files("t")
    path = lake.folder("t") / name
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 3] ^= 1
    path.write_bytes(whole)
    result = lake.run("table", "check", "t", code=1)
    assert name in result.out


def check_finds_a_row_count_that_the_log_does_not_have(lake):
    lake.create_from("t", pa.table({"k": [1, 2, 3]}))
    commit = lake.folder("t") / "_delta_log" / f"{0:020}.json"
    unsealed = re.sub(',"uplakeSeal":"[0-9a-f]+"', "", commit.read_text())
    commit.write_text(unsealed.replace('\\"numRecords\\":3', '\\"numRecords\\":4'))
    assert lake.delta("t").get_add_actions(flatten=True) is not None
    result = lake.run("table", "check", "t", code=1)
    assert "3 rows" in result.out and "4" in result.out


def a_query_on_a_damaged_file_is_an_error_that_names_the_file(lake):
    lake.create_from("t", pa.table({"k": list(range(1000))}))
    (name,) = lake.live_files("t")
    (lake.folder("t") / name).unlink()
    lake.refused("sql", "-c", "select sum(k) from t", says=[name])


def history_lists_commits_newest_first_as_deltalake_does(lake, folder):
    _loads(lake, folder, support.seeded("history"), count=3)
    lake.run("sql", "-c", "delete from t where id = 3")
    lake.run("table", "compact", "t")
    ours = [json.loads(line) for line in lake.run("table", "history", "t", "--format", "json").out.splitlines()]
    theirs = lake.delta("t").history()
    assert [c["version"] for c in ours] == [h["version"] for h in theirs] == [4, 3, 2, 1, 0]
    shown = lake.run("table", "history", "t").out
    for commit, other in zip(ours, theirs):
        assert commit["operation"] == other["operation"]
        time = datetime.datetime.fromtimestamp(other["timestamp"] / 1000, datetime.timezone.utc)
        assert datetime.datetime.fromisoformat(commit["time"]) == time
        assert time.strftime("%Y-%m-%d %H:%M:%S") in shown
    assert len(lake.run("table", "history", "t", "--limit", "2", "--format", "json").out.splitlines()) == 2


def describe_and_list_tell_rows_files_and_layout(lake, folder):
    assert lake.run("table", "list").out.startswith("no tables")
    _loads(lake, folder, support.seeded("describe"), count=2, layout=LAYOUT)
    lake.create_from("empty", pa.table({"k": pa.array([], pa.int64())}))
    lines = lake.run("table", "list").out.splitlines()
    assert [line.split()[0] for line in lines] == ["empty", "t"]
    assert "3000 rows" in lines[1] and "6 files" in lines[1]
    described = lake.run("table", "describe", "t").out
    for text in ["version 1", "3000 rows in 6 files", "partitioned by: day", "clustered by:   user_id, ts", "value"]:
        assert text in described, described


@pytest.mark.parametrize("verb", ["describe", "compact", "vacuum", "check", "history"])
def a_table_that_is_not_there_is_named_with_those_that_are(lake, verb):
    lake.create_from("events", pa.table({"k": [1]}))
    lake.refused("table", verb, "evnts", says=["evnts", "events"])


@pytest.mark.parametrize("name", ["../x", "a/b", "_x", "1a", "a b", "a.b", "x" * 500, "a;b"])
def a_table_name_that_is_no_identifier_is_refused(lake, folder, name):
    (folder / "d.csv").write_text("n\n1\n")
    lake.refused("load", name, folder / "d.csv", says=[name[:50]])
    assert not lake.path.exists() or not any(p.name not in ("_uplake",) for p in lake.path.iterdir())


# Tables that others wrote.

def _foreign(lake, data, **options):
    lake.path.mkdir(exist_ok=True)
    deltalake.write_deltalake(str(lake.folder("t")), data, **options)


def tables_that_deltalake_wrote_are_read_loaded_into_compacted_and_vacuumed(lake, folder):
    rng = support.seeded("foreign")
    data = support.events(3000, rng, days=3)
    _foreign(lake, data, partition_by=["day"])
    _foreign(lake, data, mode="append")
    assert_same(lake.same_as_deltalake("t"), rows_of(pa.concat_tables([data, data])), "foreign")
    lake.load("t", write_parquet(folder / "d.parquet", data), "--label", "x")
    lake.run("table", "compact", "t")
    lake.delta("t").delete("id = 5")
    lake.run("table", "vacuum", "t", "--retain", "0s")
    want = [r for r in rows_of(pa.concat_tables([data] * 3)) if dict(r)["id"] != 5]
    assert_same(lake.same_as_deltalake("t"), want, "foreign, after everything")
    assert lake.files_on_disk("t") == lake.live_files("t")


def bounds_that_others_cut_leave_out_no_row(lake):
    instant = datetime.datetime(2026, 11, 1, 10, 0, 0, 500)
    price = decimal.Decimal("1234567890123456.85")
    data = pa.table({
        "ts": pa.array([instant], pa.timestamp("us")),
        "d": pa.array([price], pa.decimal128(18, 2)),
        "k": [1],
    })
    _foreign(lake, data)
    assert lake.json("select k from t where ts > timestamp '2026-11-01 10:00:00.000400'") == [{"k": 1}]
    assert lake.json(f"select k from t where d = cast('{price}' as decimal(18, 2))") == [{"k": 1}]
    lake.run("sql", "-c", "delete from t where ts > timestamp '2026-11-01 10:00:00.000400'")
    assert lake.count("t") == 0


def an_empty_partition_value_is_null(lake):
    lake.create_from("t", pa.table({"k": [1, 2], "p": [7, 8]}), "--partition-by", "p")

    def empty(action):
        if action.get("add", {}).get("partitionValues") == {"p": "8"}:
            action["add"]["partitionValues"]["p"] = ""

    _edit_log(lake, empty)
    assert lake.json("select k from t where p is null") == [{"k": 2}]
    assert lake.json("select k from t where p = 7") == [{"k": 1}]
    assert lake.json("select k, p from t order by k") == [{"k": 1, "p": 7}, {"k": 2, "p": None}]


def files_of_other_writers_with_names_of_several_spellings_are_not_rewritten(lake):
    for _ in range(2):
        _foreign(lake, pa.table({"id": [5, 6], "city": ["北京", "北京"]}), partition_by=["city"], mode="append")

    def raw(action):
        if "add" in action:
            action["add"]["path"] = urllib.parse.unquote(action["add"]["path"])

    _edit_log(lake, raw)
    [escaped] = lake.folder("t").glob("city=*")
    shutil.copytree(escaped, lake.folder("t") / "city=北京")
    assert len(lake.json("select id from t")) == 4
    before = lake.version("t")
    lake.refused("table", "compact", "t", says=["another writer", "北京"])
    lake.refused("sql", "-c", "delete from t", says=["another writer", "北京"])
    assert (lake.version("t"), lake.count("t")) == (before, 4)


def a_load_into_a_table_made_again_is_a_conflict(lake, folder):
    lake.run("sql", "-c", "create table t (a bigint)")
    load = lake.start("load", "t", "-", stdin=subprocess.PIPE)
    # A pipe holds less: when this is written, the load reads, and so has seen the table.
    load.stdin.write(b"a\n" + b"1234567\n" * (1 << 17))
    load.stdin.flush()
    lake.run("sql", "-c", "drop table t")
    lake.run("sql", "-c", "create table t (b text)")
    load.stdin.close()
    load.wait()
    assert load.returncode == 1 and b"dropped and made again" in load.stderr.read()
    assert lake.count("t") == 0


def a_table_read_from_a_checkpoint_is_the_same(lake, folder):
    for i in range(4):
        lake.load("t", write_parquet(folder / "d.parquet", pa.table({"k": [i], "s": [str(i)]})), "--label", str(i))
    lake.delta("t").create_checkpoint()
    for commit in (lake.folder("t") / "_delta_log").glob("*.json"):
        if int(commit.stem) < 3:
            commit.unlink()
    assert sorted(r["k"] for r in lake.json("select k from t")) == [0, 1, 2, 3]
    assert "already" in lake.load("t", folder / "d.parquet", "--label", "0").err
    lake.load("t", folder / "d.parquet")
    assert lake.count("t") == 5


def deltalake_can_write_to_our_tables_too(lake):
    data = support.events(500, support.seeded("deltalake writes"), days=2)
    lake.create_from("t", data, *LAYOUT)
    deltalake.write_deltalake(str(lake.folder("t")), data, mode="append")
    assert_same(lake.same_as_deltalake("t"), rows_of(pa.concat_tables([data, data])), "both wrote")
    lake.run("table", "compact", "t")
    for file in lake.parquet("t"):
        assert is_sorted(ordered_rows_of(file.read()), ["user_id", "ts"]), "deltalake's unsorted file was sorted in"


def a_nan_that_bounds_of_others_leave_out_is_found(lake):
    nan = float("nan")
    for n, x in enumerate([[5.0, nan, 5.0], [7.0, 8.0, nan], [1.0, 2.0], [nan, nan]]):
        numbers = range(10 * n, 10 * n + len(x))
        _foreign(lake, pa.table({"n": list(numbers), "x": x, "f": pa.array(x, pa.float32())}), mode="append")
    found = {
        "x > 6": [1, 10, 11, 12, 30, 31],
        "f > 100": [1, 12, 30, 31],
        "x = cast('NaN' as double)": [1, 12, 30, 31],
        "f in (cast('NaN' as real), 2)": [1, 12, 21, 30, 31],
        "x <> 5": [1, 10, 11, 12, 20, 21, 30, 31],
        "x < 6": [0, 2, 20, 21],
    }
    for where, want in found.items():
        rows = lake.json(f"select n from t where {where} order by n")
        assert [row["n"] for row in rows] == want, where
    assert [row["n"] for row in lake.json("select n from t order by x desc, n limit 5")] == [1, 12, 30, 31, 11]
    assert lake.json("select max(x) as x, count(distinct f) as f from t") == [{"x": "NaN", "f": 6}]


def _edit_log(lake, change):
    """Rewrites the actions of the first commit."""
    commit = lake.folder("t") / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        change(action)
    commit.write_text("".join(json.dumps(a) + "\n" for a in actions))


def _with_feature(feature):
    def change(action):
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7,
                                  "readerFeatures": [feature], "writerFeatures": [feature]}
    return change


def _with_column_mapping(action):
    if "protocol" in action:
        action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
    if "metaData" in action:
        action["metaData"]["configuration"] = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
        schema = json.loads(action["metaData"]["schemaString"])
        for i, field in enumerate(schema["fields"]):
            field["metadata"] = {"delta.columnMapping.id": i + 1, "delta.columnMapping.physicalName": f"col-{i}"}
        action["metaData"]["schemaString"] = json.dumps(schema)


def _with_deletion_vector(action):
    _with_feature("deletionVectors")(action)
    if "add" in action:
        action["add"]["deletionVector"] = {
            "storageType": "u", "pathOrInlineDv": "vBn[lx{q8@P<9BNH/isA", "offset": 1, "sizeInBytes": 36, "cardinality": 2}


REFUSED = {
    "columnMapping": _with_column_mapping,
    "deletionVectors": _with_deletion_vector,
    "someFutureFeature": _with_feature("someFutureFeature"),
    "typeWidening": _with_feature("typeWidening"),
    "variantType": _with_feature("variantType"),
}


@pytest.mark.parametrize("feature", REFUSED)
def a_table_with_a_feature_we_would_misread_is_refused_by_name(lake, folder, feature):
    lake.create_from("t", pa.table({"k": [1, 2, 3]}))
    lake.create_from("fine", pa.table({"k": [1]}))
    _edit_log(lake, REFUSED[feature])
    path = write_parquet(folder / "d.parquet", pa.table({"k": [4]}))
    before = lake.files_on_disk("t")
    for command in (["sql", "-c", "select * from t"], ["load", "t", path], ["table", "compact", "t"],
                    ["table", "vacuum", "t", "--retain", "0s"], ["table", "check", "t"], ["sql", "-c", "delete from t"]):
        lake.refused(*command, says=["`t`", feature])
    assert lake.files_on_disk("t") == before
    assert "fine" in lake.run("table", "list").out


@pytest.mark.parametrize("feature", ["checkConstraints", "generatedColumns", "identityColumns"])
def a_table_with_rules_we_cannot_keep_is_read_but_not_written(lake, folder, feature):
    lake.create_from("t", pa.table({"k": pa.array([1, 2, 3], pa.int64())}))

    def change(action):
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [feature]}
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            if feature == "checkConstraints":
                action["metaData"]["configuration"] = {"delta.constraints.small": "k < 4"}
            elif feature == "generatedColumns":
                schema["fields"][0]["metadata"] = {"delta.generationExpression": "1 + 1"}
            else:
                schema["fields"][0]["metadata"] = {
                    "delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": False}
            action["metaData"]["schemaString"] = json.dumps(schema)

    _edit_log(lake, change)
    assert lake.count("t") == 3
    path = write_parquet(folder / "d.parquet", pa.table({"k": pa.array([9], pa.int64())}))
    lake.refused("load", "t", path, says=["`t`"])
    assert lake.version("t") == 0 and lake.count("t") == 3


def an_append_only_table_takes_loads_and_refuses_deletes(lake, folder):
    data = pa.table({"k": pa.array([1, 2], pa.int64())})
    _foreign(lake, data, configuration={"delta.appendOnly": "true"})
    lake.load("t", write_parquet(folder / "d.parquet", data))
    assert lake.count("t") == 4
    lake.refused("sql", "-c", "delete from t where k = 1", says=["t", "ppend"])
    assert lake.count("t") == 4


def a_broken_log_is_an_error_not_an_empty_table(lake, folder):
    lake.create_from("t", pa.table({"k": [1]}))
    commit = lake.folder("t") / "_delta_log" / f"{0:020}.json"
    whole = commit.read_text()
    for text in ("", "nonsense\n", whole[: len(whole) // 2]):
        commit.write_text(text)
        lake.refused("sql", "-c", "select * from t", says=["t"])
        lake.refused("load", "t", write_parquet(folder / "d.parquet", pa.table({"k": [2]})))
    commit.write_text(whole)
    assert lake.count("t") == 1


def a_lake_of_a_newer_format_is_refused(lake, folder):
    (lake.path / "_uplake").mkdir(parents=True)
    (lake.path / "_uplake" / "lake.json").write_text('{"format": 99}')
    (folder / "d.csv").write_text("n\n1\n")
    lake.refused("load", "t", folder / "d.csv", says=["99", "upgrade"])


# Exit codes and messages.

USAGE = [[], ["nonsense"], ["load"], ["load", "t"], ["table", "vacuum", "t", "--retain", "soon"],
         ["load", "t", "x.csv", "--on-error", "maybe"], ["sql", "--format", "xml", "-c", "select 1"],
         ["table", "history", "t", "--limit", "-1"], ["load", "t", "x", "--memory", "lots"]]


@pytest.mark.parametrize("words", USAGE, ids=" ".join)
def wrong_usage_is_exit_2_with_the_usage(lake, words):
    done = subprocess.run([support.BINARY, *words], cwd=lake.cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 2 and re.search(r"Usage:|--help", done.stderr), done
    assert not support.RUST_DUMP.search(done.stderr)


def help_and_version_are_exit_0(lake):
    for words in (["--help"], ["--version"], ["load", "--help"], ["table", "--help"], ["help", "sql"]):
            assert subprocess.run([support.BINARY, *words], capture_output=True).returncode == 0, words


REQUESTS = ["select", "select * from nope", "select nope from t", "select 1/0", "select * from 'nope.parquet'",
            "drop table nope", "delete from nope", "insert into t values ('x', 'y', 'z')", "create table t (k int)",
            "select cast('x' as bigint)", "select * from t where k = 'x'", "select date '2026-02-30'", "vacuum t"]


@pytest.mark.parametrize("query", REQUESTS)
def a_statement_that_cannot_be_served_is_exit_1_with_a_message_for_people(lake, query):
    lake.create_from("t", pa.table({"k": pa.array([1], pa.int64())}))
    result = lake.refused("sql", "-c", query)
    assert len(result.err) < 1500, result


def quiet_says_nothing_and_a_plain_load_sums_up(lake, folder):
    path = folder / "d.csv"
    path.write_text("n\n1\n2\n")
    assert lake.load("t", path, "--quiet").err == ""
    err = lake.load("t", path).err
    assert "loaded 2 rows into t (version 1)" in err and "1 file" in err


def the_lake_can_come_from_the_environment(lake, folder):
    path = folder / "d.csv"
    path.write_text("n\n1\n")
    environment = {**os.environ, "UPLAKE_LAKE": str(lake.path)}
    assert subprocess.run([support.BINARY, "load", "t", path], env=environment, capture_output=True).returncode == 0
    assert lake.count("t") == 1
    assert pathlib.Path(lake.folder("t")).is_dir()


def a_commit_that_is_empty_cut_or_elsewhere_is_damage(lake, folder):
    for n in range(5):
        lake.load("t", write_parquet(folder / f"{n}.parquet", pa.table({"n": range(n * 10, n * 10 + 10)})))
    log = lake.folder("t") / "_delta_log"
    commits = [log / f"{version:020}.json" for version in range(5)]
    whole = [commit.read_bytes() for commit in commits]
    lines = whole[3].splitlines(keepends=True)
    flipped = bytearray(whole[3])
    flipped[-40] ^= 1
    for damaged in [b"", b"\n", lines[0], whole[3][:100], whole[3][:-1], bytes(flipped), whole[2], whole[4]]:
        commits[3].write_bytes(damaged)
        for command in [["sql", "-c", "SELECT count(*) FROM t"], ["load", "t", folder / "0.parquet"],
                        ["table", "check", "t"], ["sql", "--as-of", "3", "-c", "SELECT count(*) FROM t"]]:
            refused = lake.refused(*command, says=["table `t`", commits[3].name, "damaged", "--as-of"])
            assert "Kernel" not in refused.err, refused
        assert lake.count("t", "--as-of", "2") == 30
        assert [commit.read_bytes() for commit in commits[:3] + commits[4:]] == whole[:3] + whole[4:]
    commits[3].write_bytes(whole[3])
    assert lake.count("t") == 50
    lake.run("table", "check", "t")
    lake.same_as_deltalake("t")


def a_check_reads_the_commits_that_a_checkpoint_stands_for(lake, folder):
    lake.load("t", write_parquet(folder / "0.parquet", pa.table({"n": range(10)})))
    for _ in range(3):
        lake.run("sql", "-c", "INSERT INTO t VALUES (1)")
    lake.delta("t").create_checkpoint()
    assert lake.count("t") == 13
    (lake.folder("t") / "_delta_log" / f"{1:020}.json").write_bytes(b"")
    assert lake.count("t") == 13, "the checkpoint has it"
    checked = lake.run("table", "check", "t", code=1)
    assert f"{1:020}.json: is damaged: it is empty" in checked.out, checked


def the_history_tells_of_rows_and_labels_in_every_format(lake, folder):
    path = folder / "in.csv"
    path.write_text("id,n\n1,1\n2,2\n3,3\n")
    lake.load("t", path, "--label", "monday")
    lake.run("sql", "-c", "insert into t values (4, 4); update t set n = 0 where id < 3; delete from t where id = 4")
    lake.run("sql", "-c", "merge into t using (values (1), (9)) s (k) on t.id = s.k when matched then delete "
             "when not matched then insert values (s.k, 9); comment on table t is 'x'; alter table t drop column n")
    lake.run("table", "compact", "t")
    shown = lake.run("table", "history", "t", "--format", "json").out
    commits = [json.loads(line) for line in shown.splitlines()]
    assert [c["version"] for c in commits] == list(range(len(commits)))[::-1]
    told = {c["operation"]: (c["rows_added"], c["rows_updated"], c["rows_removed"], c["label"]) for c in commits}
    assert told.pop("OPTIMIZE", (None,) * 4) == (None,) * 4
    assert told == {
        "CREATE TABLE": (3, 0, 0, "monday"), "WRITE": (1, 0, 0, None), "UPDATE": (0, 2, 0, None), "DELETE": (0, 0, 1, None),
        "MERGE": (1, 0, 1, None), "SET TBLPROPERTIES": (None, None, None, None), "DROP COLUMNS": (None, None, None, None),
    }
    assert all(c["user"] is None for c in commits)
    assert "monday" in lake.run("table", "history", "t").out and "rows_added" in lake.run("table", "history", "t").out
    csv = lake.run("table", "history", "t", "--format", "csv", "--limit", "2").out.splitlines()
    assert csv[0].startswith("version,time,operation,rows_added") and len(csv) == 3
    lake.load("t2", path, "--label", "a")
    lake.load("t2", path, "--label", "b")
    labels = [json.loads(line)["label"] for line in lake.run("table", "history", "t2", "--format", "json").out.splitlines()]
    assert labels == ["b", "a"]
