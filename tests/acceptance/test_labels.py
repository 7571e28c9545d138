"""Loads that are tried twice, or at the same time as others."""

import pyarrow as pa
import pytest

import support
from support import assert_same, rows_of, write_parquet


def _finish(process):
    out, err = process.communicate(timeout=support.TIMEOUT_SECONDS)
    err = err.decode(errors="replace")
    dump = support.RUST_DUMP.search(err)
    assert not dump, f"a Rust value or panic in a message ({dump.group(0)!r}): {err}"
    return process.returncode, err


def a_label_is_loaded_once_and_a_second_try_says_so(lake, folder):
    path = folder / "d.csv"
    path.write_text("n\n1\n2\n")
    lake.load("t", path, "--label", "day 1 ☃")
    before = lake.files_on_disk("t")
    result = lake.load("t", path, "--label", "day 1 ☃")
    assert "day 1 ☃ is loaded already" in result.err and "unchanged" in result.err
    assert lake.version("t") == 0 and lake.files_on_disk("t") == before and lake.count("t") == 2
    lake.load("t", path, "--label", "day 2")
    assert lake.version("t") == 1 and lake.count("t") == 4


def a_label_belongs_to_one_table(lake, folder):
    path = folder / "d.csv"
    path.write_text("n\n1\n")
    lake.load("t", path, "--label", "x")
    lake.load("u", path, "--label", "x")
    assert lake.count("t") == lake.count("u") == 1


def a_label_of_a_failed_load_is_free(lake, folder):
    path = folder / "d.csv"
    path.write_text("n\noops\n")
    lake.refused("load", "t", path, "--schema", "n int", "--label", "x")
    path.write_text("n\n1\n")
    lake.load("t", path, "--schema", "n int", "--label", "x")
    assert lake.count("t") == 1


def a_label_survives_compaction_deletes_and_a_vacuum(lake, folder):
    path = folder / "d.csv"
    path.write_text("n\n1\n2\n")
    lake.load("t", path, "--label", "x")
    lake.load("t", path)
    lake.run("table", "compact", "t")
    lake.run("sql", "-c", "delete from t where n = 1")
    lake.run("table", "vacuum", "t", "--retain", "0s")
    assert "already" in lake.load("t", path, "--label", "x").err
    assert lake.count("t") == 2


def a_label_is_remembered_through_many_commits(lake, folder):
    """Past the checkpoints that Delta writers make."""
    path = folder / "d.csv"
    path.write_text("n\n1\n")
    lake.load("t", path, "--label", "first")
    for i in range(25):
        lake.load("t", path, "--label", f"l{i}")
    assert "already" in lake.load("t", path, "--label", "first").err
    assert lake.count("t") == 26
    lake.same_as_deltalake("t")


@pytest.mark.parametrize("fresh", [True, False], ids=["new", "existing"])
def processes_racing_with_one_label_load_it_once(lake, folder, fresh):
    path = write_parquet(folder / "d.parquet", support.events(20_000, support.seeded("one label")))
    for attempt in range(4):
        table = f"t{attempt}"
        if not fresh:
            lake.load(table, path, "--partition-by", "day")
        options = ["--label", "x", *(["--partition-by", "day"] if fresh else [])]
        racers = [lake.start("load", table, path, *options) for _ in range(4)]
        results = [_finish(r) for r in racers]
        assert [err for code, err in results if code] == []
        assert sum("is loaded already" in err for _, err in results) == 3, results
        assert lake.count(table) == (20_000 if fresh else 40_000)
        lake.run("table", "check", table)
        lake.run("table", "vacuum", table, "--retain", "0s")
        assert lake.files_on_disk(table) == lake.live_files(table)


@pytest.mark.parametrize("fresh", [True, False], ids=["new", "existing"])
def processes_loading_different_files_at_once_all_succeed(lake, folder, fresh):
    rng = support.seeded("different files")
    parts = [support.events(5000, rng, first_id=i * 5000) for i in range(6)]
    paths = [write_parquet(folder / f"{i}.parquet", p) for i, p in enumerate(parts)]
    for attempt in range(3):
        table, want = f"t{attempt}", list(parts)
        if not fresh:
            lake.load(table, paths[0], "--cluster-by", "user_id,ts")
            want.append(parts[0])
        racers = [lake.start("load", table, p, *(["--cluster-by", "user_id,ts"] if fresh else [])) for p in paths]
        results = [_finish(r) for r in racers]
        assert [err for code, err in results if code] == []
        assert_same(lake.same_as_deltalake(table), rows_of(pa.concat_tables(want)), "six loads at once")


def two_processes_that_make_one_table_differently_end_with_one_of_them(lake, folder):
    one = write_parquet(folder / "1.parquet", pa.table({"a": ["x"] * 1000}))
    two = write_parquet(folder / "2.parquet", pa.table({"a": pa.array(range(1000), pa.int64())}))
    for attempt in range(5):
        table = f"t{attempt}"
        results = [_finish(r) for r in [lake.start("load", table, p) for p in (one, two)]]
        assert sorted(code for code, _ in results) == [0, 1], results
        (message,) = [err for code, err in results if code == 1]
        assert "`a`" in message and "bigint" in message and "text" in message
        assert lake.count(table) == 1000
        lake.run("table", "check", table)


def new_columns_of_two_loads_at_once_are_both_added(lake, folder):
    write_parquet(folder / "0.parquet", pa.table({"k": [0]}))
    for attempt in range(4):
        table = f"t{attempt}"
        lake.load(table, folder / "0.parquet")
        for name in "ab":
            write_parquet(folder / f"{name}.parquet", pa.table({"k": [1], name: [name]}))
        racers = [lake.start("load", table, folder / f"{n}.parquet", "--allow-new-columns") for n in "ab"]
        results = [_finish(r) for r in racers]
        assert [err for code, err in results if code] == []
        got = lake.json(f"select k, a, b from {table}")
        assert sorted(map(str, got)) == sorted(map(str, [
            {"k": 0, "a": None, "b": None}, {"k": 1, "a": "a", "b": None}, {"k": 1, "a": None, "b": "b"}]))
        lake.same_as_deltalake(table)


def _many_small(lake, folder, rng, count=8, rows=2000):
    parts = [support.events(rows, rng, days=2, first_id=i * rows) for i in range(count)]
    for i, part in enumerate(parts):
        path = write_parquet(folder / f"s{i}.parquet", part)
        lake.load("t", path, *(["--partition-by", "day", "--cluster-by", "user_id,ts"] if i == 0 else []))
    return pa.concat_tables(parts)


def loads_during_a_compaction_are_kept(lake, folder):
    rng = support.seeded("loads_during_a_compaction_are_kept")
    want = [_many_small(lake, folder, rng)]
    for attempt in range(5):
        more = support.events(500, rng, days=2, first_id=10**6 * (attempt + 1))
        path = write_parquet(folder / f"m{attempt}.parquet", more)
        racers = [lake.start("table", "compact", "t"), lake.start("load", "t", path)]
        results = [_finish(r) for r in racers]
        assert [err for code, err in results if code] == []
        want.append(more)
        assert_same(lake.rows("select * from t"), rows_of(pa.concat_tables(want)), f"attempt {attempt}")
    lake.same_as_deltalake("t")


def a_delete_beside_loads_deletes_only_what_was_there_or_tells_of_the_conflict(lake, folder):
    """A row that is committed after the delete's snapshot stays or goes whole: never half a file."""
    rng = support.seeded("a_delete_beside_loads")
    base = _many_small(lake, folder, rng, count=3)
    ids = base["id"].to_pylist()
    for attempt in range(5):
        first = 10**6 * (attempt + 1)
        more = support.events(500, rng, days=2, first_id=first)
        path = write_parquet(folder / f"m{attempt}.parquet", more)
        racers = [lake.start("sql", "-c", f"delete from t where id % 10 = {attempt}"), lake.start("load", "t", path)]
        (deleted, delete_error), (loaded, load_error) = map(_finish, racers)
        assert loaded == 0, load_error
        assert deleted == 0 or "run it again" in delete_error, delete_error
        if deleted == 0:
            ids = [i for i in ids if i % 10 != attempt]
        got = [r["id"] for r in lake.json("select id from t")]
        new = sorted(i for i in got if i >= first)
        every = list(range(first, first + 500))
        assert new in (every, [i for i in every if i % 10 != attempt])
        assert sorted(i for i in got if i < first) == sorted(ids)
        ids = got
    lake.same_as_deltalake("t")


def a_delete_beside_a_compaction_loses_nothing(lake, folder):
    rng = support.seeded("a_delete_beside_a_compaction")
    want = set(_many_small(lake, folder, rng, count=8)["id"].to_pylist())
    for attempt in range(5):
        path = write_parquet(folder / f"m{attempt}.parquet", support.events(100, rng, days=2, first_id=10**6 * (attempt + 1)))
        lake.load("t", path)
        want |= set(range(10**6 * (attempt + 1), 10**6 * (attempt + 1) + 100))
        racers = [lake.start("table", "compact", "t"), lake.start("sql", "-c", f"delete from t where id % 7 = {attempt}")]
        (compacted, compact_error), (deleted, delete_error) = map(_finish, racers)
        assert compacted == 0 or "run it again" in compact_error, compact_error
        assert deleted == 0 or "run it again" in delete_error, delete_error
        if deleted == 0:
            want = {i for i in want if i % 7 != attempt}
        got = [r["id"] for r in lake.json("select id from t")]
        assert len(got) == len(want) and set(got) == want
    lake.run("table", "check", "t")


def two_compactions_at_once_keep_every_row_once(lake, folder):
    rng = support.seeded("two_compactions_at_once")
    want = rows_of(_many_small(lake, folder, rng, count=8))
    racers = [lake.start("table", "compact", "t") for _ in range(3)]
    results = [_finish(r) for r in racers]
    assert all(code == 0 or "run it again" in err for code, err in results), results
    assert any(code == 0 for code, _ in results)
    assert_same(lake.same_as_deltalake("t"), want, "after three compactions at once")


def two_deletes_at_once_delete_both_or_tell_of_the_conflict(lake, folder):
    rng = support.seeded("two_deletes_at_once")
    want = set(_many_small(lake, folder, rng, count=4)["id"].to_pylist())
    for attempt in range(3):
        rests = [attempt, attempt + 3]
        racers = [lake.start("sql", "-c", f"delete from t where id % 7 = {r}") for r in rests]
        for rest, (code, err) in zip(rests, map(_finish, racers)):
            assert code == 0 or "run it again" in err, err
            if code == 0:
                want = {i for i in want if i % 7 != rest}
        got = [r["id"] for r in lake.json("select id from t")]
        assert len(got) == len(want) and set(got) == want


def a_vacuum_without_retention_beside_loads_never_leaves_a_commit_without_its_files(lake, folder):
    rng = support.seeded("a_vacuum_without_retention_beside_loads")
    data = support.events(100_000, rng, days=8)
    path = write_parquet(folder / "d.parquet", data)
    lake.load("t", path, "--partition-by", "day", "--cluster-by", "user_id,ts")
    loads = 1
    for _ in range(3):
        load = lake.start("load", "t", path)
        while load.poll() is None:
            lake.run("table", "vacuum", "t", "--retain", "0s")
        code, err = _finish(load)
        assert code == 0 or (code == 1 and "gone" in err or "vacuum" in err or "No such file" in err), err
        loads += code == 0
        assert lake.count("t") == loads * 100_000
        lake.run("table", "check", "t")


def readers_see_whole_loads_only(lake, folder):
    path = write_parquet(folder / "d.parquet", support.events(50_000, support.seeded("readers"), days=4))
    lake.load("t", path, "--partition-by", "day")
    load = lake.start("load", "t", path, path, path)
    seen = []
    while load.poll() is None:
        seen.append(lake.count("t"))
    assert _finish(load)[0] == 0
    assert set(seen) <= {50_000, 200_000} and lake.count("t") == 200_000
