"""Tables with a primary key: one row of each key, whatever is loaded, in what order and by how many."""

import signal
import subprocess
import time

import deltalake
import pyarrow as pa

import support
from support import write_parquet


def _same(found, expected):
    order = lambda row: tuple((value is None, str(value)) for value in row)
    assert sorted(map(tuple, found), key=order) == sorted(expected, key=order)


def _csv(path, rows, header="user,dt,variant,n"):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def _model(loads, replace=True):
    rows = {}
    for load in loads:
        for row in load:
            if replace or row[:2] not in rows:
                rows[row[:2]] = row
    return sorted(rows.values())


def _made(chance, users=60, days=3, rows=200):
    return [
        (f"u{chance.randrange(users)}", f"2026-11-0{1 + chance.randrange(days)}", chance.choice("ab"), chance.randrange(1000))
        for _ in range(rows)
    ]


def _select(lake, query):
    return [tuple(row.values()) for row in lake.arrow(query).to_pylist()]


def _rows(lake, table="t"):
    return _select(lake, f"select user, cast(dt as text) as dt, variant, n from {table}")


KEYED = ("--primary-key", "user,dt", "--partition-by", "dt")


def the_last_row_of_a_key_wins_within_a_load_and_among_loads(lake, folder):
    chance = support.seeded("primary_key")
    loads = [_made(chance) for _ in range(5)]
    for number, load in enumerate(loads):
        lake.load("t", _csv(folder / f"{number}.csv", load), *(KEYED if number == 0 else ()))
        _same(_rows(lake), _model(loads[: number + 1]))
    table = deltalake.DeltaTable(lake.path / "t").to_pyarrow_table()
    assert table.num_rows == len(_model(loads)), "any Delta reader gets one row of each key"
    lake.run("table", "compact", "t")
    _same(_rows(lake), _model(loads))
    lake.run("table", "check", "t")


def the_first_row_of_a_key_stays_if_conflicts_are_ignored(lake, folder):
    chance = support.seeded("primary_key_ignore")
    loads = [_made(chance) for _ in range(4)]
    for number, load in enumerate(loads):
        path = _csv(folder / f"{number}.csv", load)
        said = lake.load("t", path, *(KEYED if number == 0 else ()), "--on-conflict", "ignore").err
        assert "left out, the keys being there" in said
        _same(_rows(lake), _model(loads[: number + 1], replace=False))


def several_files_of_one_load_count_in_their_order(lake, folder):
    chance = support.seeded("primary_key_files")
    loads = [_made(chance, rows=3000, users=900) for _ in range(6)]
    paths = [_csv(folder / f"{number}.csv", load) for number, load in enumerate(loads)]
    # Little memory cuts the load into several files of a partition.
    lake.load("t", *paths, *KEYED, "--memory", "1M")
    _same(_rows(lake), _model(loads))
    lake.load("u", *paths, *KEYED, "--memory", "1M", "--on-conflict", "ignore")
    _same(_rows(lake, "u"), _model(loads, replace=False))


def sql_inserts_replace_or_do_nothing(lake):
    lake.run("sql", "-c", "create table t (name text, dt date, n bigint, primary key (name, dt)) partitioned by (dt)")
    lake.run("sql", "-c", "insert into t values ('a', '2026-11-01', 1), ('b', '2026-11-01', 1), ('a', '2026-11-02', 1)")
    lake.run("sql", "-c", "insert into t select name, dt, n + 10 from t where name = 'a'")
    lake.run("sql", "-c", "insert into t values ('a', '2026-11-01', 99), ('c', '2026-11-01', 5) on conflict do nothing")
    rows = _select(lake, "select name, cast(dt as text), n from t")
    _same(rows, [("a", "2026-11-01", 11), ("a", "2026-11-02", 11), ("b", "2026-11-01", 1), ("c", "2026-11-01", 5)])
    lake.run("sql", "-c", "delete from t where name = 'b'; insert into t values ('b', '2026-11-01', 2)")
    _same(_select(lake, "select n from t where name = 'b'"), [(2,)])
    assert "primary key" in lake.run("sql", "-c", "describe t").out
    assert "primary key:    name, dt" in lake.run("table", "describe", "t").out


def keys_of_one_column_and_of_numbers(lake, folder):
    path = _csv(folder / "a.csv", [(1, "x"), (2, "y"), (1, "z"), (-5, "")], header="k,v")
    lake.load("t", path, "--primary-key", "k", "--index", "k")
    _same(_select(lake, "select k, v from t"), [(1, "z"), (2, "y"), (-5, None)])
    lake.load("t", _csv(folder / "b.csv", [(2, "new")], header="k,v"))
    _same(_select(lake, "select k, v from t where k in (1, 2)"), [(1, "z"), (2, "new")])


def a_key_with_ids_keeps_them(lake, folder):
    first = [(f"u{n}", "2026-11-01", "a", n) for n in range(40)]
    second = [(f"u{n}", "2026-11-01", "b", n) for n in range(20, 60)]
    lake.load("t", _csv(folder / "a.csv", first), *KEYED, "--cluster-by", "user", "--id-domain", "user=users")
    lake.load("t", _csv(folder / "b.csv", second))
    _same(_rows(lake), _model([first, second]))
    table = deltalake.DeltaTable(lake.path / "t").to_pyarrow_table()
    ids = dict(zip(table["user"].to_pylist(), table["__id_user"].to_pylist()))
    assert len(set(ids.values())) == 60 and None not in ids.values()
    known = _select(lake, "select distinct user, id_of('users', user) from t")
    assert dict(known) == ids
    assert _select(lake, "select count(distinct user), count(*) from t") == [(60, 60)]


def wrong_keys_are_refused_and_nothing_is_written(lake, folder):
    path = _csv(folder / "a.csv", [("a", "2026-11-01", "a", 1)])
    for options, says in [
        (("--primary-key", "nobody"), "nobody"),
        (("--primary-key", "user", "--partition-by", "dt"), "must hold the partition column `dt`"),
        (("--primary-key", "dt", "--partition-by", "dt"), "not a partition column"),
        (("--on-conflict", "ignore"), "no primary key"),
    ]:
        lake.refused("load", "t", path, *options, says=[says])
        assert not (lake.path / "t/_delta_log").exists()
    floats = write_parquet(folder / "f.parquet", pa.table({"x": [1.5], "y": [1]}))
    lake.refused("load", "t", floats, "--primary-key", "x", says=["cannot be in a primary key"])
    hole = _csv(folder / "hole.csv", [("", "2026-11-01", "a", 7), ("b", "2026-11-01", "a", 7)])
    lake.refused("load", "t", hole, *KEYED, says=[str(hole), "line 2", "user"])
    no_key = folder / "no_key.json"
    no_key.write_text('{"dt": "2026-11-01", "event": "a", "n": 1}\n{"user": "b", "dt": "2026-11-01", "event": "a", "n": 1}\n')
    lake.refused("load", "t", no_key, *KEYED, says=[str(no_key), "line 1", "user"])
    assert not (lake.path / "t/_delta_log").exists()
    lake.load("t", path, *KEYED)
    lake.refused("load", "t", path, "--primary-key", "user", says=["--primary-key user, dt"])
    holes = _csv(folder / "holes.csv", [("", "2026-11-01", "a", 7)])
    before = lake.version("t")
    lake.refused("load", "t", holes, says=["user"])
    lake.refused("sql", "-c", "insert into t values (NULL, '2026-11-01', 'a', 1)", says=["user"])
    assert lake.version("t") == before
    lake.load("plain", path)
    lake.refused("sql", "-c", "insert into plain select * from plain on conflict do nothing", says=["no primary key"])
    lake.refused("sql", "-c", "create table x (a int unique)", says=["UNIQUE"])


def loads_at_once_leave_one_row_of_each_key(lake, folder):
    lake.load("t", _csv(folder / "0.csv", [(f"u{n}", "2026-11-01", "a", -1) for n in range(50)]), *KEYED)
    paths = [
        _csv(folder / f"c{number}.csv", [(f"u{n}", "2026-11-01", "b", number) for n in range(0, 80, number + 1)])
        for number in range(6)
    ]
    running = [lake.start("load", "t", path) for path in paths]
    for process in running:
        out, err = process.communicate(timeout=support.TIMEOUT_SECONDS)
        assert process.returncode == 0, err.decode()
    rows = _rows(lake)
    assert len({row[0] for row in rows}) == len(rows) == 80
    # Each key has the row of one of the loads that brought it.
    for user, _, _, n in rows:
        number = int(user[1:])
        assert number % (n + 1) == 0 if n >= 0 else False, (user, n)


def a_load_that_is_killed_changes_nothing(lake, folder):
    chance = support.seeded("primary_key_kill")
    first = _made(chance, users=5000, rows=20_000)
    lake.load("t", _csv(folder / "a.csv", first), *KEYED)
    expected = _model([first])
    second = _csv(folder / "b.csv", _made(chance, users=5000, rows=200_000))
    started = time.monotonic()
    lake.load("rehearsal", second, *KEYED)
    whole = time.monotonic() - started
    for share in (0.1, 0.3, 0.5, 0.7, 0.9):
        process = lake.start("load", "t", second, "--label", "second")
        try:
            process.wait(timeout=share * whole)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.communicate()
        if lake.version("t") > 0:
            return  # It was through.
        _same(_rows(lake), expected)
    lake.load("t", second, "--label", "second")
    lake.run("table", "vacuum", "t", "--retain", "0s")
    lake.run("table", "check", "t")
    rows = _rows(lake)
    assert len({row[:2] for row in rows}) == len(rows)
