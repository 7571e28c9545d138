"""Id domains: every key one id, whoever loads, whatever breaks; distinct counts as DuckDB has them."""

import os
import shutil
import signal
import subprocess
import time

import duckdb
import pyarrow as pa
import pytest

import support
from support import write_parquet

DOMAIN = ["--id-domain", "user_id=users"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache folder of the test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("UPLAKE_CACHE", str(folder))
    return folder


def _keys_table(keys, first=0):
    return pa.table({
        "n": pa.array(range(first, first + len(keys)), pa.int64()),
        "user_id": pa.array(keys, pa.string()),
        "city": pa.array([f"c{i % 7}" for i in range(len(keys))]),
    })


def _random_keys(rng, rows, users):
    return [None if rng.random() < 0.05 else f"user-{rng.randrange(users)}" for _ in range(rows)]


def _stored(lake, *tables):
    """(key, id) of every row, as another Delta reader sees them."""
    pairs = []
    for table in tables:
        data = lake.delta(table).to_pyarrow_table(columns=["user_id", "__id_user_id"])
        assert data.schema.field("__id_user_id").type == pa.int32()
        pairs += zip(data["user_id"].to_pylist(), data["__id_user_id"].to_pylist())
    return pairs


def _check_ids(lake, *tables):
    """Each key has one id in all tables, each id one key, NULL has none; uplake agrees."""
    of_key, of_id = {}, {}
    for key, number in _stored(lake, *tables):
        assert (key is None) == (number is None), (key, number)
        if key is not None:
            assert of_key.setdefault(key, number) == number, key
            assert of_id.setdefault(number, key) == key, number
    sample = sorted(of_key.items(), key=lambda pair: pair[1])[:: max(1, len(of_key) // 20)]
    for key, number in sample:
        quoted = key.replace("'", "''")
        row = lake.json(f"select id_of('users', '{quoted}') as i, key_of('users', {number}) as k")[0]
        assert (row["i"], row["k"]) == (number, key)
    return of_key


def _counted_by_duckdb(lake, table, query):
    data = lake.delta(table).to_pyarrow_table()
    connection = duckdb.connect()
    connection.register(table, data)
    return connection.sql(query).fetchall()


def _same_counts(lake, table):
    """Distinct counts and look-ups on ids are those of the keys."""
    for query in [
        f"select count(distinct user_id) as d, count(*) as n from {table}",
        f"select city, count(distinct user_id) as d from {table} where n % 3 = 0 group by city order by city",
        f"select count(distinct t.user_id) as d from {table} t join {table} u on t.n = u.n + 1",
        f"select count(*) as n, sum(n) as s from {table} where user_id = 'user-3'",
        f"select count(*) as n from {table} where user_id in ('user-1', 'user-2', 'nobody')",
        f"select count(*) as n from {table} where user_id = 'nobody' or user_id is null",
    ]:
        ours = [tuple(row.values()) for row in lake.json(query)]
        assert ours == _counted_by_duckdb(lake, table, query), query
        plain = [tuple(row.values()) for row in lake.json(query, "--no-index")]
        assert ours == plain, query


def _uses_ids(lake, query):
    return "__id_user_id" in lake.run("sql", "-c", f"explain {query}").out


def a_domain_numbers_the_keys_of_two_tables(lake, folder):
    rng = support.seeded("domains two tables")
    lake.create_from("events", _keys_table(_random_keys(rng, 5000, 600)), *DOMAIN, "--cluster-by", "user_id,n")
    lake.create_from("visits", _keys_table(_random_keys(rng, 3000, 900)), *DOMAIN)
    lake.load("events", write_parquet(folder / "more.parquet", _keys_table(_random_keys(rng, 4000, 1200), 5000)))
    of_key = _check_ids(lake, "events", "visits")
    assert sorted(of_key.values()) == list(range(len(of_key))), "ids are dense"
    for table in ("events", "visits"):
        _same_counts(lake, table)
        assert _uses_ids(lake, f"select count(distinct user_id) from {table}")
    assert "user" in lake.run("domain", "list").out
    described = lake.run("domain", "describe", "users").out
    assert f"{len(of_key)} keys" in described and "events.user_id, visits.user_id" in described
    assert "sound" in lake.run("domain", "check", "users").out
    lake.run("domain", "compact", "users")
    assert f"{len(of_key)} keys" in lake.run("domain", "rebuild", "users").out
    assert _check_ids(lake, "events", "visits") == of_key
    # What was written less than a week ago stays; then the runs go, and the base has all there was.
    assert "the keys of 0 runs" in lake.run("domain", "vacuum", "users").out
    log = lake.path / "_uplake" / "domains" / "users"
    size = lambda: sum(file.stat().st_size for file in log.iterdir())
    before = size()
    time.sleep(1.1)
    freed = lake.run("domain", "vacuum", "users", "--retain", "0s").out
    assert "the keys of 0 runs" not in freed and size() < before, freed
    assert "sound" in lake.run("domain", "check", "users").out
    assert f"{len(of_key)} keys" in lake.run("domain", "rebuild", "users").out
    assert _check_ids(lake, "events", "visits") == of_key


def ids_are_hidden_from_sql_and_files_are_sorted_by_them(lake):
    rng = support.seeded("domains hidden")
    lake.create_from("t", _keys_table(_random_keys(rng, 3000, 200)), *DOMAIN, "--cluster-by", "user_id,n")
    assert list(lake.json("select * from t limit 1")[0]) == ["n", "user_id", "city"]
    for command in (["sql", "-c", "describe t"], ["table", "describe", "t"]):
        assert "__id_" not in lake.run(*command).out
    assert "user_id=users" in lake.run("table", "describe", "t").out
    for file in lake.parquet("t"):
        rows = file.read(columns=["__id_user_id", "n"]).to_pylist()
        order = [(row["__id_user_id"] is None, row["__id_user_id"] or 0, row["n"]) for row in rows]
        assert order == sorted(order)


def keys_of_every_kind_have_ids(lake):
    keys = ["", " ", "'", "naïve ☃", "日本", "x" * 65_536, None, "a", "A", "a\n", "user-3", None]
    lake.create_from("t", _keys_table(keys), *DOMAIN)
    of_key = _check_ids(lake, "t")
    assert set(of_key) == {k for k in keys if k is not None}
    _same_counts(lake, "t")


def a_key_that_is_too_long_is_refused_with_nothing_written(lake, folder):
    lake.create_from("t", _keys_table(["a", "b"]), *DOMAIN)
    path = write_parquet(folder / "long.parquet", _keys_table(["c", "x" * 65_537]))
    before = lake.version("t"), lake.files_on_disk("t")
    lake.refused("load", "t", path, says=["user_id", "65537 bytes"])
    assert (lake.version("t"), lake.files_on_disk("t")) == before
    assert lake.json("select id_of('users', 'c') is null as none")[0]["none"] is True


def what_cannot_be_is_refused_clearly(lake, folder):
    path = write_parquet(folder / "in.parquet", _keys_table(["a"]))
    lake.refused("load", "t", path, "--id-domain", "n=users", says=["`n`", "text"])
    lake.refused("load", "t", path, "--id-domain", "nothing=users", says=["nothing", "user_id"])
    assert "COLUMN=DOMAIN" in lake.run("load", "t", path, "--id-domain", "user_id", code=2).err
    lake.load("t", path)
    lake.refused("load", "t", path, *DOMAIN, says=["exists", "no id domains"])
    lake.load("u", path, *DOMAIN)
    lake.load("u", path, *DOMAIN)
    lake.refused("load", "u", path, "--id-domain", "user_id=others", says=["user_id=users"])
    with_ids = _keys_table(["a"]).append_column("__id_user_id", pa.array([7], pa.int32()))
    wrong = write_parquet(folder / "ids.parquet", with_ids)
    lake.refused("load", "u", wrong, says=["__id_user_id"])
    lake.refused("load", "u", wrong, "--allow-new-columns", says=["__id_user_id", "kept"])
    lake.refused("load", "new", wrong, says=["__id_user_id"])
    lake.refused("sql", "-c", "select id_of('nosuch', 'x')", says=["nosuch"])


def new_columns_and_deletes_keep_the_ids(lake, folder):
    rng = support.seeded("domains changes")
    lake.create_from("t", _keys_table(_random_keys(rng, 2000, 300)), *DOMAIN, "--cluster-by", "user_id")
    more = _keys_table(_random_keys(rng, 500, 400), 2000).append_column("extra", pa.array(range(500)))
    lake.load("t", write_parquet(folder / "more.parquet", more), "--allow-new-columns")
    before = _check_ids(lake, "t")
    lake.run("sql", "-c", "delete from t where n % 5 = 0")
    lake.run("sql", "-c", "insert into t (n, user_id) values (9999, 'user-3'), (10000, 'somebody new')")
    after = _check_ids(lake, "t")
    assert all(before.get(key, number) == number for key, number in after.items())
    _same_counts(lake, "t")
    assert _uses_ids(lake, "select count(distinct user_id) from t")


def another_writers_rows_count_before_and_after_compaction(lake):
    import deltalake

    rng = support.seeded("domains foreign")
    lake.create_from("t", _keys_table(_random_keys(rng, 2000, 300)), *DOMAIN, "--cluster-by", "user_id,n")
    of_key = _check_ids(lake, "t")
    foreign = _keys_table(_random_keys(rng, 900, 600), 2000)
    # Wrong on purpose: nobody can stop another writer from writing there.
    wrong = foreign.append_column("__id_user_id", pa.array([1] * 900, pa.int32()))
    deltalake.write_deltalake(str(lake.folder("t")), wrong, mode="append")
    without = _keys_table(_random_keys(rng, 900, 600), 2900)
    deltalake.write_deltalake(str(lake.folder("t")), without, mode="append", schema_mode="merge")
    _same_counts(lake, "t")
    assert not _uses_ids(lake, "select count(distinct user_id) from t")
    lake.run("table", "compact", "t")
    assert _uses_ids(lake, "select count(distinct user_id) from t")
    _same_counts(lake, "t")
    after = _check_ids(lake, "t")
    assert all(after[key] == number for key, number in of_key.items())


def a_table_of_another_lake_is_answered_from_its_keys(lake, tmp_path):
    other = support.Lake(tmp_path / "other", tmp_path)
    other.create_from("t", _keys_table(["x", "y", "user-3", "user-3"]), *DOMAIN)
    lake.create_from("mine", _keys_table(["user-3", "y"]), *DOMAIN)
    shutil.copytree(other.folder("t"), lake.folder("t"))
    _same_counts(lake, "t")
    path = write_parquet(tmp_path / "more.parquet", _keys_table(["y", "user-3", "z"], 4))
    lake.load("t", path)
    _same_counts(lake, "t")
    lake.run("table", "compact", "t")
    _check_ids(lake, "t", "mine")
    _same_counts(lake, "t")


def two_loaders_at_once_agree(lake, folder):
    rng = support.seeded("domains at once")
    lake.create_from("t0", _keys_table(["first"]), *DOMAIN)
    running = []
    for number in range(1, 5):
        keys = _random_keys(rng, 20_000, 15_000)
        path = write_parquet(folder / f"{number}.parquet", _keys_table(keys))
        # Two of them have a cache folder each, as if on machines of their own.
        env = dict(os.environ)
        if number % 2:
            env["UPLAKE_CACHE"] = str(folder / f"cache{number}")
        running.append(lake.start("load", f"t{number}", path, *DOMAIN, env=env))
    for process in running:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err.decode()
    _check_ids(lake, *[f"t{n}" for n in range(5)])
    assert "sound" in lake.run("domain", "check", "users").out


def a_killed_loader_leaves_ids_that_others_agree_on(lake, folder):
    rng = support.seeded("domains kill")
    lake.create_from("t", _keys_table(["first"]), *DOMAIN)
    path = write_parquet(folder / "big.parquet", _keys_table(_random_keys(rng, 150_000, 120_000)))
    started = time.monotonic()
    lake.load("measure", path, "--id-domain", "user_id=others")
    duration = time.monotonic() - started
    for attempt in range(10):
        process = lake.start("load", f"k{attempt}", path, *DOMAIN)
        try:
            process.wait(timeout=rng.uniform(0.05, 1.1) * duration)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.communicate()
        some = _keys_table(_random_keys(rng, 500, 120_000))
        lake.load("t", write_parquet(folder / "some.parquet", some))
    tables = [n for n in ["t"] + [f"k{a}" for a in range(10)] if lake.version(n) is not None]
    _check_ids(lake, *tables)
    assert "sound" in lake.run("domain", "check", "users").out
    _same_counts(lake, "t")


def the_cache_folder_may_vanish_or_be_unusable(lake, folder, cache, monkeypatch):
    rng = support.seeded("domains cache")
    lake.create_from("t", _keys_table(_random_keys(rng, 3000, 900)), *DOMAIN)
    before = _check_ids(lake, "t")
    assert cache.is_dir(), "the dictionary is kept"
    shutil.rmtree(cache)
    assert _check_ids(lake, "t") == before
    for file in [p for p in cache.rglob("*") if p.is_file()]:
        file.write_bytes(b"rubbish" * 100)
    lake.load("t", write_parquet(folder / "more.parquet", _keys_table(_random_keys(rng, 900, 1500), 3000)))
    blocked = folder / "blocked"
    blocked.write_text("a file where a folder should be")
    monkeypatch.setenv("UPLAKE_CACHE", str(blocked))
    after = _check_ids(lake, "t")
    assert all(after[key] == number for key, number in before.items())
    assert "warning" in lake.run("domain", "describe", "users").err
    _same_counts(lake, "t")


def vacuum_and_drop_leave_the_domain(lake):
    rng = support.seeded("domains vacuum")
    lake.create_from("t", _keys_table(_random_keys(rng, 500, 90)), *DOMAIN)
    before = _check_ids(lake, "t")
    lake.run("table", "vacuum", "t", "--retain", "0s")
    lake.run("sql", "-c", "drop table t")
    lake.create_from("t", _keys_table(_random_keys(rng, 500, 120)), *DOMAIN)
    after = _check_ids(lake, "t")
    assert all(before.get(key, number) == number for key, number in after.items())


def _three_tables(lake, folder):
    """Two tables of 2,000 users and, on top of them, a third of 1,000 more; and the count of all by keys."""
    for table, first, users in [("a", 0, 1500), ("b", 1000, 1000), ("c", 1800, 1200)]:
        keys = [f"user-{n}" for n in range(first, first + users)]
        lake.load(table, write_parquet(folder / f"{table}.parquet", _keys_table(keys)), *DOMAIN)
    write_parquet(folder / "more.parquet", _keys_table([f"new-{n}" for n in range(500)]))


def _refused_until_mended(lake, folder, tables):
    """Whoever would give ids is refused, and says what to do; answers are right meanwhile."""
    files = {table: lake.live_files(table) for table in ["a", "b", "c"]}
    for table in ["a", "c"]:
        lake.refused("load", table, folder / "more.parquet", says=["users", "copy", "nothing was written"])
        lake.refused("sql", "-c", f"INSERT INTO {table} (user_id) VALUES ('new-1')", says=["nothing was written"])
    assert {table: lake.live_files(table) for table in files} == files
    of_all = " UNION ALL ".join(f"SELECT user_id FROM {table}" for table in files)
    for query in ["SELECT count(*) AS n FROM a JOIN c ON a.user_id = c.user_id",
                  f"SELECT count(DISTINCT user_id) AS n FROM ({of_all})"]:
        assert lake.json(query) == lake.json(query, "--no-index"), query
    warned = lake.run("sql", "-c", "SELECT count(DISTINCT user_id) FROM c").err
    assert "warning: table `c`" in warned and "compact" in warned, warned
    damaged = lake.run("domain", "check", "users", code=1)
    for table in tables:
        assert f"table `{table}`" in damaged.out, damaged
        lake.run("table", "check", table, code=1)


def a_lost_run_is_refused_before_ids_are_given_twice(lake, folder):
    _three_tables(lake, folder)
    runs = sorted((lake.path / "_uplake/domains/users").glob("0*.run"))
    lost = runs[-1].read_bytes()
    runs[-1].unlink()
    _refused_until_mended(lake, folder, ["c"])
    runs[-1].write_bytes(lost)
    lake.load("a", folder / "more.parquet")
    lake.run("domain", "check", "users")
    _check_ids(lake, "a", "b", "c")


def a_domain_from_an_older_copy_is_refused_even_once_it_is_as_long(lake, folder):
    _three_tables(lake, folder)
    domains, older = lake.path / "_uplake/domains", folder / "older"
    shutil.copytree(domains, older)
    (older / "users" / sorted(path.name for path in older.rglob("0*.run"))[-1]).unlink()
    # The copy is restored without the tables, and others load into it: then c is back.
    shutil.move(lake.folder("c"), folder / "c")
    shutil.rmtree(domains)
    shutil.copytree(older, domains)
    lake.load("b", folder / "more.parquet")
    shutil.move(folder / "c", lake.folder("c"))
    _refused_until_mended(lake, folder, ["c"])
    # Without a copy: new numbers for all.
    shutil.rmtree(domains)
    lake.load("a", folder / "more.parquet")
    for table in ["a", "b", "c"]:
        lake.run("table", "compact", table)
        lake.run("table", "check", table)
    lake.run("domain", "check", "users")
    _check_ids(lake, "a", "b", "c")
    plan = lake.run("sql", "-c", "EXPLAIN SELECT count(*) FROM a JOIN c ON a.user_id = c.user_id").out
    assert "__id_user_id" in plan, plan


def compaction_keeps_how_far_a_domain_went(lake, folder):
    _three_tables(lake, folder)
    lake.load("c", folder / "more.parquet")
    lake.run("table", "compact", "c")
    last = sorted((lake.path / "_uplake/domains/users").glob("0*.run"))[-1]
    last.unlink()
    lake.refused("load", "a", folder / "more.parquet", says=["table `c`", "3500 keys"])
