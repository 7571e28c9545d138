"""Vacuum and DROP TABLE remove what is a table's and nothing else, and name it."""

import os

import support
from support import assert_same


def _made(lake):
    data = support.events(500, support.seeded("vacuum"), days=2).rename_columns(
        ["id", "user_id", "ts", "_day", "event", "value"])
    lake.create_from("t", data, "--partition-by", "_day")


def _strangers(lake, folder):
    """A folder and a file by links, and files that nobody's writer made."""
    outside = folder / "outside"
    outside.mkdir()
    part = "part-00000000-0000-4000-8000-000000000000.parquet"
    (outside / part).write_text("mine")
    table = lake.folder("t")
    (table / "old").symlink_to(outside)
    (table / "_day=2026-11-01" / "loop").symlink_to(table)
    (table / part.replace("-0000", "-1111")).symlink_to(outside / part)
    names = ["notes.txt", "mine.parquet", "notes#1", "_backup/" + part]
    for name in names:
        (table / name).parent.mkdir(exist_ok=True)
        (table / name).write_text("mine")
        os.utime(table / name, (1, 1))
    return outside / part, [table / name for name in names], [table / "old", table / "_day=2026-11-01" / "loop"]


def vacuum_follows_no_link_and_removes_no_stranger(lake, folder):
    _made(lake)
    outside, mine, links = _strangers(lake, folder)
    os.utime(outside, (1, 1))
    lake.run("sql", "-c", "DELETE FROM t WHERE id < 100")
    left = lake.rows("select * from t")
    shown = lake.run("table", "vacuum", "t", "--retain", "0s", "--dry-run").out.splitlines()
    done = lake.run("table", "vacuum", "t", "--retain", "0s").out.splitlines()
    assert shown[:-1] == done[:-1] and len(done) > 1, (shown, done)
    assert all((lake.folder("t") / name).exists() is False for name in done[:-1])
    assert "old/" not in "".join(done) and "loop" not in "".join(done)
    assert outside.read_text() == "mine"
    assert all(path.read_text() == "mine" for path in mine)
    assert all(path.is_symlink() for path in links)
    assert_same(lake.rows("select * from t"), left, "after vacuum")


def a_dropped_table_leaves_what_is_not_its_own(lake, folder):
    _made(lake)
    outside, mine, links = _strangers(lake, folder)
    lake.run("sql", "-c", "DROP TABLE t")
    assert outside.read_text() == "mine"
    assert all(path.read_text() == "mine" for path in mine)
    assert all(path.is_symlink() for path in links)
    left = [path.name for path in lake.folder("t").rglob("*") if path.is_file() and not path.is_symlink()]
    assert sorted(left) == sorted(path.name for path in mine)
    assert "there is no table" in lake.refused("sql", "-c", "SELECT * FROM t").err
