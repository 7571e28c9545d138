"""kill -9 at seeded random moments: the previous snapshot or the whole load, never a part."""

import signal
import subprocess
import time

import pyarrow as pa
import pytest

import support
from support import assert_same, rows_of, write_parquet

KILLS = 8 * support.SOAK  # of fresh tables, and as many of existing ones


def _big_load(folder, rng):
    """Several partitions, so several files and uploads."""
    data = support.events(80_000, rng, days=6, users=3000, first_id=1_000_000)
    data = data.append_column("noise", pa.array([f"{rng.getrandbits(200):x}" for _ in range(data.num_rows)]))
    return write_parquet(folder / "big.parquet", data, row_group_size=20_000), data


LAYOUT = ["--partition-by", "day", "--cluster-by", "user_id,ts"]


def _kill_after(process, seconds):
    """Kills by the clock; the seconds it took if it was not running any more."""
    started = time.monotonic()
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return None
    taken = time.monotonic() - started
    process.communicate()
    return taken


def _seconds(work):
    started = time.monotonic()
    work()
    return time.monotonic() - started


@pytest.mark.parametrize("fresh", [True, False], ids=["new", "existing"])
def a_killed_load_leaves_the_old_snapshot_or_the_whole_load(lake, folder, fresh):
    rng = support.seeded(f"kill fresh={fresh}")
    path, data = _big_load(folder, rng)
    old = support.events(3000, rng, days=6).append_column("noise", pa.array(["old"] * 3000))
    duration = min(_seconds(lambda: lake.load(f"measure{attempt}", path, *LAYOUT)) for attempt in range(3))
    sums = "select count(*) n, sum(id) s, count(distinct noise) d, min(ts) lo, max(ts) hi from "
    whole_sums = support.duck(f"select count(*) n, sum(id) s from '{path}'").to_pylist()[0]
    killed, committed, leftovers = 0, 0, 0
    for number in range(KILLS):
        table = f"t{number}"
        before = None
        if not fresh:
            lake.create_from(table, old, *LAYOUT)
            before = lake.json(sums + table)
        # More weight on the end, where files are finished and the commit is made.
        fraction = rng.uniform(0.02, 1.0) if number % 2 else rng.uniform(0.6, 1.02)
        taken = _kill_after(
            lake.start("load", table, path, "--label", "L", *(LAYOUT if fresh else [])), fraction * duration
        )
        killed += taken is None
        version = lake.version(table)
        base = None if fresh else 0
        what = f"kill {number} after {fraction:.3f} of {duration:.3f} s, version {version}"
        if version == base:
            if fresh:
                lake.refused("sql", "-c", f"select count(*) from {table}", says=["no table"])
            else:
                assert lake.json(sums + table) == before, what
                lake.run("table", "check", table)
        else:
            committed += 1
            assert lake.count(table) == whole_sums["n"] + (0 if fresh else 3000), what
        on_disk = lake.files_on_disk(table) if lake.folder(table).exists() else set()
        live = lake.live_files(table) if version is not None else set()
        assert live <= on_disk, what
        leftovers += on_disk != live
        if version is not None:
            lake.run("table", "vacuum", table, "--retain", "0s")
            assert lake.files_on_disk(table) == lake.live_files(table), what
        # The same load then succeeds, and only once.
        again = _seconds(lambda: lake.load(table, path, "--label", "L", *(LAYOUT if fresh else [])))
        # A machine that others use is faster or slower from load to load.
        duration = taken or (again if version == base else duration)
        now = lake.json(f"select count(*) n, sum(id) s from {table}")[0]
        extra = {"n": 0, "s": 0} if fresh else {"n": 3000, "s": 2999 * 3000 // 2}
        assert now == {k: whole_sums[k] + extra[k] for k in now}, what
        lake.run("table", "vacuum", table, "--retain", "0s")
        assert lake.files_on_disk(table) == lake.live_files(table), what
        assert "sound" in lake.run("table", "check", table).out
        if number % 8 == 0:
            want = data if fresh else pa.concat_tables([data, old])
            assert_same(lake.same_as_deltalake(table), rows_of(want), what)
        subprocess.run(["rm", "-rf", lake.folder(table)], check=True)
    print(f"{killed} of {KILLS} killed while running, {committed} had committed, {leftovers} left files behind")
    assert killed >= KILLS // 2, "the moments miss the load; is the measured duration wrong?"
    assert leftovers > 0, "no kill hit a load that had begun to write"


@pytest.mark.parametrize("verb", ["compact", "delete", "update", "merge", "vacuum"])
def a_killed_maintenance_leaves_the_same_rows(lake, folder, verb):
    rng = support.seeded(f"kill {verb}")
    parts = []
    for i in range(6):
        part = support.events(8000, rng, days=3, first_id=i * 8000)
        parts.append(part)
        lake.load("t", write_parquet(folder / f"{i}.parquet", part), *(LAYOUT if i == 0 else []))
    whole = pa.concat_tables(parts)
    commands = {
        "compact": ["table", "compact"],
        "delete": ["sql", "-c", "delete from COPY where id % 3 = 0"],
        "update": ["sql", "-c", "update COPY set id = id + 1000000 where id % 3 = 0"],
        "merge": [
            "sql", "-c",
            "merge into COPY using (select id from t where id % 3 <> 1) s on COPY.id = s.id "
            "when matched and s.id % 3 = 0 then delete when matched then update set id = COPY.id + 1000000",
        ],
        "vacuum": ["table", "vacuum", "--retain", "0s"],
    }
    if verb == "vacuum":
        lake.run("sql", "-c", "delete from t where id < 0")
        lake.run("table", "compact", "t")

    def command(table):
        words = [w.replace("COPY", table) for w in commands[verb]]
        return words if words[0] == "sql" else [*words, table]

    def copy(table):
        subprocess.run(["cp", "-r", lake.folder("t"), lake.folder(table)], check=True)

    all_rows = [r["id"] for r in lake.json("select id from t order by id")]
    assert all_rows == whole["id"].to_pylist()
    kept = {
        "delete": [i for i in all_rows if i % 3],
        "update": sorted(i if i % 3 else i + 1_000_000 for i in all_rows),
        "merge": sorted(i if i % 3 == 1 else i + 1_000_000 for i in all_rows if i % 3),
    }.get(verb, all_rows)
    copy("measure")
    started = time.monotonic()
    lake.run(*command("measure"))
    duration = time.monotonic() - started
    for number in range(6):
        table = f"c{number}"
        copy(table)
        version = lake.version(table)
        _kill_after(lake.start(*command(table)), rng.uniform(0.05, 1.05) * duration)
        want = kept if lake.version(table) != version else all_rows
        assert [r["id"] for r in lake.json(f"select id from {table} order by id")] == want
        lake.run(*command(table))
        assert [r["id"] for r in lake.json(f"select id from {table} order by id")] == kept
        lake.run("table", "vacuum", table, "--retain", "0s")
        assert lake.files_on_disk(table) == lake.live_files(table)
        lake.run("table", "check", table)


def _made(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("left", [
    [], ["00000000000000000000.json#1"], ["_commit_5d0e.json.tmp"], ["00000000000000000000.json#1", "_commit_5d0e.json.tmp#1"],
], ids=["empty", "staged", "temporary", "both"])
def a_log_folder_without_a_commit_is_no_table_and_in_nobodys_way(lake, folder, left):
    """What a kill between making the folder and the first commit leaves, made by hand."""
    path = folder / "d.csv"
    path.write_text("n\n1\n")
    (lake.folder("t") / "_delta_log").mkdir(parents=True)
    for name in left:
        _made(lake.folder("t") / "_delta_log" / name, '{"half":')
    assert lake.run("table", "list").out.startswith("no tables")
    lake.refused("sql", "-c", "select * from t", says=["no table"])
    lake.load("t", path)
    assert lake.count("t") == 1
    lake.run("table", "check", "t")


def vacuum_removes_every_kind_of_leftover_and_nothing_else(lake, folder):
    rng = support.seeded("vacuum_removes_every_kind_of_leftover")
    data = support.events(500, rng, days=2).rename_columns(["id", "user_id", "ts", "_day", "event", "value"])
    lake.create_from("t", data, "--partition-by", "_day")
    live = lake.live_files("t")
    uuid = "part-00000000-0000-4000-8000-000000000000.parquet"
    for name in [uuid, uuid + "#1", f"_day=2026-11-01/{uuid}", f"_day=2026-11-01/{uuid}#12", f"_day=2030-01-01/{uuid}"]:
        _made(lake.folder("t") / name, "half a file")
    shown = lake.run("table", "vacuum", "t", "--retain", "0s", "--dry-run").out
    assert shown.count(uuid) == 5 and len(lake.files_on_disk("t")) == len(live) + 5
    assert lake.run("table", "vacuum", "t", "--retain", "0s").out.count(uuid) == 5
    assert lake.files_on_disk("t") == live
    assert_same(lake.rows("select * from t"), rows_of(data), "after vacuum")


def vacuum_spares_the_files_of_a_load_that_may_be_running(lake, folder):
    path = folder / "d.csv"
    path.write_text("n\n1\n")
    lake.load("t", path)
    leftover = lake.folder("t") / "part-00000000-0000-4000-8000-000000000000.parquet#1"
    _made(leftover, "half")
    lake.run("table", "vacuum", "t")
    assert leftover.exists()
