"""Index files come and go with their data files; which columns have one can be changed."""

import signal
import subprocess

import pyarrow as pa
import pytest

import indexes
import support
from indexes import assert_index_changes_nothing, counters, index_files
from support import write_parquet

INDEXES = ["--index", "id", "--index", "user_id", "--index", "event:words", "--index", "event:ngrams"]
LAYOUT = ["--partition-by", "day", "--cluster-by", "user_id,ts"]
QUERIES = [
    "SELECT id FROM t WHERE id IN (5, 500, 1500, 2500)",
    "SELECT id FROM t WHERE user_id IN ('u00007', 'u00011') AND event LIKE '%uy'",
    "SELECT id FROM t WHERE match(event, 'naïve') AND user_id = 'u00003'",
    "SELECT count(*) AS n, max(value) AS m FROM t WHERE id NOT IN (1, 2, 3)",
]


def _loads(lake, folder, name, count=3, *options):
    rng = support.seeded(name)
    parts = []
    for n in range(count):
        parts.append(support.events(1500, rng, days=3, first_id=1500 * n))
        lake.load("t", write_parquet(folder / f"{n}.parquet", parts[-1]), *(options if n == 0 else []))
    return pa.concat_tables(parts)


def _sound(lake, table="t"):
    """Every live file has its index and is sound; no query warns."""
    assert set(index_files(lake, table)) >= lake.live_files(table)
    lake.run("table", "check", table)
    assert assert_index_changes_nothing(lake, QUERIES)[1] == []


def _data_files(lake):
    return {name for name in lake.files_on_disk("t") if not name.startswith(indexes.FOLDER)}


def compact_delete_and_vacuum_keep_an_index_for_each_file_and_no_other(lake, folder):
    _loads(lake, folder, "compact and vacuum", 4, *LAYOUT, *INDEXES)
    _sound(lake)
    first = set(index_files(lake, "t"))
    lake.run("table", "compact", "t")
    _sound(lake)
    # The old version can be read until a vacuum, with its indexes.
    assert first <= set(index_files(lake, "t"))
    old = counters(lake, "SELECT id FROM t VERSION AS OF 3 WHERE id = 5")
    assert old["index_rows_selected"] == 1 and "index_missing" not in old
    lake.run("sql", "-c", "DELETE FROM t WHERE user_id IN ('u00001', 'u00002')")
    _sound(lake)
    lake.run("table", "vacuum", "t")
    assert first <= set(index_files(lake, "t"))
    lake.run("table", "vacuum", "t", "--retain", "0s")
    _sound(lake)
    assert set(index_files(lake, "t")) == lake.live_files("t") == _data_files(lake)
    lake.run("sql", "-c", "DELETE FROM t WHERE id >= 0")
    lake.run("table", "vacuum", "t", "--retain", "0s")
    assert index_files(lake, "t") == {} and lake.files_on_disk("t") == set()


def vacuum_without_a_change_counts_nothing_and_takes_leftovers(lake, folder):
    _loads(lake, folder, "leftovers", 1, *INDEXES)
    files = index_files(lake, "t")
    root = lake.folder("t") / indexes.FOLDER
    uuid = "part-00000000-0000-4000-8000-000000000000.parquet"
    for name in [f"{uuid}.idx", f"{uuid}.idx#1", f"day=2026-11-01/{uuid}.idx"]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"half an index")
    (name, path), = files.items()
    shown = lake.run("table", "vacuum", "t", "--retain", "0s", "--dry-run").out
    assert shown.count(uuid) == 3 and name not in shown, shown
    lake.run("table", "vacuum", "t", "--retain", "0s")
    assert lake.files_on_disk("t") == {name, str(path.relative_to(lake.folder("t")))}


def a_dropped_table_takes_its_indexes_with_it(lake, folder):
    _loads(lake, folder, "drop", 2, *INDEXES)
    lake.run("sql", "-c", "DROP TABLE t")
    assert not lake.folder("t").exists()
    _loads(lake, folder, "drop", 1)
    assert index_files(lake, "t") == {}
    assert "index_lookups" not in counters(lake, "SELECT * FROM t WHERE id = 5")


def indexes_can_be_added_and_dropped(lake, folder):
    data = _loads(lake, folder, "add and drop", 3, *LAYOUT)
    assert index_files(lake, "t") == {}
    lake.refused("load", "t", folder / "0.parquet", "--index", "id", says=["reindex"])
    lake.run("table", "reindex", "t", "--index", "id", "--index", "event:words")
    assert "id:ids, event:words" in lake.run("table", "describe", "t").out
    _sound(lake)
    by_id, by_user = (f"SELECT id FROM t WHERE {c}" for c in ("id = 5", "user_id = 'u00007'"))
    assert counters(lake, by_id)["index_rows_selected"] == 1
    assert "index_lookups" not in counters(lake, by_user)
    lake.run("table", "reindex", "t", "--index", "user_id", "--drop-index", "id")
    _sound(lake)
    assert "index_lookups" not in counters(lake, by_id)
    assert counters(lake, by_user)["index_lookups"] > 0
    lake.load("t", folder / "0.parquet")
    _sound(lake)
    before = lake.version("t")
    again = lake.run("table", "reindex", "t").out
    assert lake.version("t") == before and "built 0" in again, again
    assert "built" in lake.run("table", "reindex", "t", "--rebuild").out
    lake.run("table", "reindex", "t", "--drop-index", "user_id", "--drop-index", "event:words")
    assert index_files(lake, "t") == {} and "index_lookups" not in counters(lake, by_user)
    lake.run("table", "check", "t")
    assert lake.count("t") == data.num_rows + 1500


def sql_makes_tables_with_indexes(lake):
    lake.run("sql", "-c", """
        CREATE TABLE a (Id bigint, "Name" text, p int) PARTITIONED BY (p) CLUSTERED BY (id) INDEXED BY (ID, "Name" words, name);
        INSERT INTO a SELECT value, 'name ' || value, value % 3 FROM generate_series(1, 3000);
        CREATE TABLE b INDEXED BY (name ngrams, id) AS SELECT * FROM a""")
    assert "id:ids, Name:words, Name:ids" in lake.run("table", "describe", "a").out
    layout = {row["column_name"]: row["layout"] for row in lake.json("DESCRIBE b")}
    assert layout["id"] == "index ids" and layout["Name"] == "index ngrams"
    for query in ["SELECT iD FROM {} WHERE ID IN (5, 7)", "SELECT id FROM {} WHERE NAME = 'name 7' AND id = 7"]:
        for table in "ab":
            found = counters(lake, query.format(table))
            assert 1 <= found["index_rows_selected"] <= 2, (query, table, found)
    assert lake.json("SELECT Id FROM a WHERE match(NAME, '77')") == [{"id": 77}]
    assert lake.json("SELECT Id FROM b WHERE Name LIKE '%me 299_' ORDER BY 1 LIMIT 1") == [{"id": 2990}]
    lake.run("table", "check", "a")
    lake.run("table", "check", "b")


def a_column_that_was_added_later_can_be_indexed(lake, folder):
    _loads(lake, folder, "added later", 2, *INDEXES)
    wider = support.events(1500, support.seeded("wider"), days=3, first_id=9000)
    wider = wider.append_column("Shop", pa.array([f"shop {n % 700}" for n in range(1500)]))
    lake.load("t", write_parquet(folder / "wide.parquet", wider), "--allow-new-columns")
    lake.run("table", "reindex", "t", "--index", "Shop", "--index", "Shop:words")
    _sound(lake)
    queries = ["SELECT id FROM t WHERE shop = 'shop 5'", "SELECT id FROM t WHERE match(Shop, '699')",
               "SELECT count(*) AS n FROM t WHERE shop IS NULL OR shop = 'shop 1'"]
    found, warnings = assert_index_changes_nothing(lake, queries)
    assert warnings == [] and [len(rows) for rows in found[:2]] == [3, 2] and found[2] == [{"n": 3003}]
    lake.run("table", "compact", "t")
    _sound(lake)
    assert_index_changes_nothing(lake, queries)


BAD = {
    "unknown": (["nosuch"], ["nosuch", "id, user_id"]),
    "double": (["value"], ["value", "double", "text or whole numbers"]),
    "date": (["day"], ["day"]),
    "timestamp": (["ts"], ["ts", "timestamp"]),
    "words_of_numbers": (["id:words"], ["id", "bigint", "text"]),
    "ngrams_of_numbers": (["id:ngrams"], ["id", "bigint", "text"]),
    "twice": (["id", "id"], ["id", "twice"]),
    "twice_in_two_ways": (["id", "id:ids"], ["id", "twice"]),
    "other_case": (["ID"], ["ID", "id, user_id"]),
}
UNREADABLE = ["id:btree", "id:", ":ids", "", "id:IDS"]


@pytest.mark.parametrize("name", BAD)
def an_index_that_cannot_be_is_refused_and_nothing_is_written(lake, folder, name):
    specs, says = BAD[name]
    path = write_parquet(folder / "d.parquet", support.events(100, support.seeded("bad index")))
    options = [part for spec in specs for part in ("--index", spec)]
    lake.refused("load", "t", path, *options, says=says)
    assert lake.version("t") is None and not (lake.folder("t") / indexes.FOLDER).exists()
    lake.load("t", path, "--index", "user_id")
    files = index_files(lake, "t")
    before = [file.read_bytes() for file in files.values()]
    lake.refused("load", "t", path, *options, says=["other indexes", "reindex"])
    lake.refused("table", "reindex", "t", *options, says=says)
    assert lake.version("t") == 0 and index_files(lake, "t") == files
    assert [file.read_bytes() for file in files.values()] == before


def a_partition_column_cannot_be_indexed(lake, folder):
    path = write_parquet(folder / "d.parquet", support.events(100, support.seeded("partition")))
    lake.refused("load", "t", path, "--partition-by", "user_id", "--index", "user_id", says=["user_id", "partition"])
    assert lake.version("t") is None


@pytest.mark.parametrize("spec", UNREADABLE)
def an_index_that_cannot_be_read_is_a_wrong_use(lake, folder, spec):
    path = write_parquet(folder / "d.parquet", support.events(10, support.seeded("spec")))
    assert "--index" in lake.load("t", path, "--index", spec, code=2).err
    assert lake.version("t") is None


def an_index_that_is_not_there_cannot_be_dropped(lake, folder):
    _loads(lake, folder, "drop what is not there", 1, "--index", "id")
    for spec in ["user_id", "id:words", "nosuch"]:
        lake.refused("table", "reindex", "t", "--drop-index", spec, says=[spec, "it has id:ids"])
    lake.refused("table", "reindex", "nosuch", says=["nosuch"])
    assert lake.version("t") == 0


def a_column_whose_name_has_spaces_at_its_ends_is_indexed_or_refused(lake):
    made = lake.run("sql", "-c", 'CREATE TABLE t (" a" bigint, b bigint) INDEXED BY (" a", b)', code=None)
    if made.code == 0:
        lake.run("sql", "-c", "INSERT INTO t VALUES (1, 2)")
        lake.run("table", "check", "t")
        lake.run("table", "reindex", "t")


# Loads


def a_label_that_is_loaded_already_writes_no_index(lake, folder):
    path = write_parquet(folder / "d.parquet", support.events(500, support.seeded("label")))
    lake.load("t", path, *INDEXES, "--label", "L")
    before = lake.files_on_disk("t")
    lake.load("t", path, "--label", "L")
    assert lake.files_on_disk("t") == before
    lake.refused("load", "t", folder / "nosuch.parquet")
    assert lake.files_on_disk("t") == before


def loads_at_once_each_write_their_indexes(lake, folder):
    path = write_parquet(folder / "d.parquet", support.events(20_000, support.seeded("at once"), days=3))
    processes = [lake.start("load", "t", path, *LAYOUT, *INDEXES) for _ in range(3)]
    for process in processes:
        _, err = process.communicate(timeout=support.TIMEOUT_SECONDS)
        assert process.returncode == 0, err
    assert lake.count("t") == 60_000
    _sound(lake)


def a_reindex_beside_a_load_leaves_an_index_for_each_file(lake, folder):
    path = write_parquet(folder / "d.parquet", support.events(20_000, support.seeded("beside"), days=3))
    lake.load("t", path, *LAYOUT)
    processes = [lake.start("load", "t", path), lake.start("table", "reindex", "t", "--index", "id"),
                 lake.start("table", "compact", "t"), lake.start("load", "t", path)]
    codes = []
    for process in processes:
        _, err = process.communicate(timeout=support.TIMEOUT_SECONDS)
        assert not support.RUST_DUMP.search(err.decode()), err
        codes.append(process.returncode)
    assert codes[0] == codes[3] == 0
    lake.run("table", "reindex", "t", *(["--index", "id"] if codes[1] else []))
    _sound(lake)
    assert lake.count("t") == 60_000


def a_killed_load_leaves_nothing_that_a_vacuum_does_not_take(lake, folder):
    rng = support.seeded("killed load with indexes")
    data = support.events(60_000, rng, days=6, users=3000)
    path = write_parquet(folder / "big.parquet", data, row_group_size=10_000)
    lake.load("t", path, *LAYOUT, *INDEXES)
    killed = half = 0
    for _ in range(5):
        version = lake.version("t")
        process = lake.start("load", "t", path)
        try:
            process.wait(timeout=rng.uniform(0.02, 0.9))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            killed += 1
        process.communicate()
        _sound(lake)
        left = set(index_files(lake, "t")) != lake.live_files("t")
        half += left and lake.version("t") == version
        lake.run("table", "vacuum", "t", "--retain", "0s")
        assert set(index_files(lake, "t")) == lake.live_files("t") == _data_files(lake)
        _sound(lake)
    print(f"{killed} killed, {half} left index files behind")
    assert killed > 0


@pytest.mark.parametrize("verb", ["reindex", "compact"])
def a_killed_maintenance_can_be_repeated(lake, folder, verb):
    rng = support.seeded(f"killed {verb}")
    _loads(lake, folder, f"killed {verb}", 6, *LAYOUT, *INDEXES)
    options = ["--rebuild"] if verb == "reindex" else []
    for _ in range(4):
        process = lake.start("table", verb, "t", *options)
        try:
            process.wait(timeout=rng.uniform(0.005, 0.25))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.communicate()
        _sound(lake)
    lake.run("table", verb, "t", *options)
    lake.run("table", "vacuum", "t", "--retain", "0s")
    _sound(lake)
    assert set(index_files(lake, "t")) == lake.live_files("t") == _data_files(lake)


def a_load_for_which_the_disk_has_no_room_commits_nothing(lake, folder):
    """Room for the data, but not for the indexes beside it."""
    lake.path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(lake.path)], capture_output=True)
    if done.returncode != 0:
        pytest.skip(f"LOUD: THE FULL DISK IS NOT TESTED: no tmpfs mount here ({done.stderr.decode().strip()})")
    try:
        rng = support.seeded("full disk")
        rows = 60_000
        data = pa.table({"id": pa.array(range(rows), pa.int64()), "s": [f"{rng.getrandbits(60):x}" for _ in range(rows)]})
        path = write_parquet(folder / "d.parquet", data)
        small = write_parquet(folder / "small.parquet", data.slice(0, 100))
        lake.load("t", small, "--index", "id", "--index", "s:ngrams", "--index", "s")
        lake.refused("load", "t", path, says=["No space left"])
        assert lake.version("t") == 0 and lake.count("t WHERE id = 7") == 1
        lake.run("table", "vacuum", "t", "--retain", "0s")
        assert set(index_files(lake, "t")) == lake.live_files("t") == _data_files(lake)
        lake.run("table", "check", "t")
    finally:
        subprocess.run(["umount", str(lake.path)], check=True)
