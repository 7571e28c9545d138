"""A whole lake: `uplake lake check`, `backup`, `restore`."""

import shutil
import subprocess
import time

import pyarrow as pa
import pytest

import support
from support import BINARY, Lake, write_parquet

DEFINITION = """
name = "e"
[exposures]
table = "t"
user = "user_id"
variant = "n"
[[variant]]
name = "1"
share = 0.5
control = true
[[variant]]
name = "2"
share = 0.5
[[metric]]
name = "m"
type = "mean"
table = "u"
user = "user_id"
value = "n"
"""
QUESTIONS = [
    "SELECT count(*) AS n, count(DISTINCT user_id) AS users, sum(n) AS s FROM t",
    "SELECT count(*) AS n, sum(t.n) AS s FROM t JOIN u USING (user_id)",
    "SELECT count(*) AS n FROM t WHERE user_id IN ID SET vips",
    "SELECT n FROM t WHERE user_id = 'u7' ORDER BY n",
]


def _rows(first, count):
    ns = range(first, first + count)
    return pa.table({"user_id": [f"u{n % 700}" for n in ns], "n": pa.array(ns, pa.int64())})


def _add(lake, folder, first, count=2000, tables=("t", "u")):
    for table in tables:
        path = write_parquet(folder / f"{table}-{first}.parquet", _rows(first, count))
        options = ["--id-domain", "user_id=users", "--index", "user_id"] if first == 0 else []
        lake.load(table, path, *options)


@pytest.fixture
def full(lake, folder):
    """Two tables that share a domain, with indexes, a set and a definition."""
    _add(lake, folder, 0)
    _add(lake, folder, 2000)
    lake.run("sql", "-c", "CREATE ID SET vips AS SELECT user_id FROM t WHERE n < 50")
    (lake.path / "_uplake" / "experiments").mkdir()
    (lake.path / "_uplake" / "experiments" / "e.toml").write_text(DEFINITION)
    return lake


def _answers(lake):
    return [lake.json(question) for question in QUESTIONS]


def _files(lake):
    return {path.relative_to(lake.path): path.read_bytes() for path in lake.path.rglob("*") if path.is_file()}


def _at(lake, folder, name):
    return Lake(folder / name, lake.cwd)


def check_names_every_part_that_is_not_sound(full, folder):
    said = full.run("lake", "check").out
    for part in ["table t is sound", "table u is sound", "id domain users is sound", "id set vips is sound",
                 "2 tables, 1 id domains, 1 id sets, 1 definitions", "the lake is sound"]:
        assert part in said, said
    full.run("sql", "-c", "DELETE FROM u WHERE n < 1000")

    flipped = sorted(full.folder("t").glob("*.parquet"))[0]
    damaged = bytearray(flipped.read_bytes())
    damaged[len(damaged) // 2] ^= 16
    flipped.write_bytes(damaged)
    commit = full.folder("u") / "_delta_log" / f"{1:020}.json"
    commit.write_bytes(commit.read_bytes()[:-200])
    [vips] = (full.path / "_uplake" / "id_sets").iterdir()
    vips.write_bytes(vips.read_bytes()[:-30])
    (full.path / "_uplake" / "experiments" / "bad.toml").write_text("[experiment\n")
    run = sorted((full.path / "_uplake" / "domains" / "users").glob("*.run"))[-1]
    run.write_bytes(run.read_bytes()[:-1])
    done = full.run("lake", "check", code=1)
    for part in [flipped.name, f"{1:020}.json", "vips", "bad", "users"]:
        assert part in done.out, done
    assert "5 parts of" in done.err, done


def what_a_vacuum_would_remove_is_told(lake, folder):
    lake.create_from("t", _rows(0, 10))
    left = lake.folder("t") / "part-00000000-0000-4000-8000-000000000000.parquet"
    left.write_bytes(b"left")
    support.os.utime(left, (0, 0))
    said = lake.run("lake", "check").out
    assert "table t has 1 files that no version of the last week needs" in said, said
    assert left.exists()


def an_empty_lake_is_sound_and_none_is_too(lake, folder):
    assert "0 tables" in lake.run("lake", "check").out
    lake.run("sql", "-c", "CREATE TABLE t (a INT)")
    assert "1 tables" in lake.run("lake", "check").out


def a_backup_is_brought_up_to_date_and_restored(full, folder):
    backup, restored = _at(full, folder, "backup"), _at(full, folder, "restored")
    said = full.run("lake", "backup", backup.path).out
    assert "2 tables; 0 were there already" in said, said
    first = _files(backup)
    assert _answers(backup) == _answers(full)

    _add(full, folder, 4000)
    full.run("sql", "-c", "DELETE FROM t WHERE n BETWEEN 100 AND 200")
    full.run("sql", "-c", "CREATE TABLE later (a INT); INSERT INTO later VALUES (1)")
    full.run("table", "compact", "u")
    full.run("domain", "compact", "users")
    said = full.run("lake", "backup", backup.path).out
    assert "3 tables" in said and f"{len(first) - 1} were there already" in said, said
    now = _files(backup)
    changed = [path for path, content in first.items() if now[path] != content]
    assert changed == [], "what was copied stays as it is"
    assert "copied 0 objects" in full.run("lake", "backup", backup.path).out

    expected = _answers(full)
    shutil.rmtree(full.path)
    restored.run("lake", "restore", backup.path)
    assert _answers(restored) == expected
    assert "the lake is sound" in restored.run("lake", "check").out
    # Numbers go on where they were.
    path = write_parquet(folder / "new.parquet", pa.table({"user_id": ["new1", "u3"], "n": [1, 2]}))
    restored.load("t", path)
    users = "SELECT count(DISTINCT user_id) AS users FROM t"
    assert restored.json(users) == [{"users": 702 - 1}]
    # Versions from before are there, too.
    assert restored.count("t", "--as-of", "0") == 2000
    assert restored.delta("t").version() == restored.version("t")


def a_copy_that_is_newer_or_of_another_table_is_refused(full, folder):
    backup = _at(full, folder, "backup")
    full.run("lake", "backup", backup.path)
    before = _files(backup)
    backup.run("sql", "-c", "INSERT INTO t SELECT * FROM t WHERE n = 1")
    full.refused("lake", "backup", backup.path, says=["table `t`", "is newer"])
    shutil.rmtree(backup.path)
    full.run("lake", "backup", backup.path)
    full.run("sql", "-c", "DROP TABLE t")
    _add(full, folder, 0, tables=["t"])
    full.refused("lake", "backup", backup.path, says=["table `t`", "another one of that name"])
    assert {path: len(content) for path, content in _files(backup).items()}.keys() == before.keys()
    full.run("sql", "-c", "DROP TABLE t")
    said = full.run("lake", "backup", backup.path).out
    assert "keeps what" in said and said.rstrip().endswith(": t"), said
    assert backup.count("t") == 4000

    # A domain that was begun anew has given its numbers to others.
    full.run("sql", "-c", "DROP TABLE u")
    shutil.rmtree(full.path / "_uplake" / "domains")
    path = write_parquet(folder / "v.parquet", pa.table({"user_id": ["x", "y"], "n": [1, 2]}))
    full.load("v", path, "--id-domain", "user_id=users")
    full.refused("lake", "backup", backup.path, says=["id domain", "users"])


def places_that_are_no_place_for_a_copy_are_refused(full, folder):
    full.refused("lake", "backup", full.path, says=["within each other"])
    full.refused("lake", "backup", full.path / "t" / "deeper", says=["within each other"])
    full.refused("lake", "restore", folder / "nothing", says=["no lake"])
    full.refused("lake", "restore", full.path.parent, says=["within each other"])
    (folder / "file").write_text("")
    full.refused("lake", "backup", folder / "file", says=["file"])


def damage_is_not_copied_and_the_rest_is(full, folder):
    backup = _at(full, folder, "backup")
    full.run("lake", "backup", backup.path)
    expected = _answers(backup)
    _add(full, folder, 4000)
    new = [path for path in full.folder("t").glob("*.parquet") if not (backup.folder("t") / path.name).exists()]
    damaged = bytearray(new[0].read_bytes())
    damaged[100] ^= 1
    new[0].write_bytes(damaged)
    done = full.run("lake", "backup", backup.path, code=1)
    assert new[0].name in done.out and "one" not in done.err, done
    assert not (backup.folder("t") / new[0].name).exists()
    assert backup.json(QUESTIONS[0]) == expected[0], "its version before the damage"
    assert backup.count("u") == 6000
    assert "the lake is sound" in backup.run("lake", "check").out


def a_damaged_lake_is_mended_from_its_backup(full, folder):
    backup = _at(full, folder, "backup")
    full.run("lake", "backup", backup.path)
    expected, rng = _answers(full), support.seeded("mended")
    for _ in range(3 * support.SOAK):
        # A lake.json that says nothing is an error that says what it should hold.
        files = sorted(path for path in full.path.rglob("*") if path.is_file() and path.name != "lake.json"
                       and "locks" not in path.parts)
        for path in rng.sample(files, 5):
            content = bytearray(path.read_bytes())
            match rng.randrange(3):
                case 0:
                    path.unlink()
                case 1:
                    path.write_bytes(content[: len(content) // 2])
                case _:
                    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
                    path.write_bytes(content)
        full.run("lake", "restore", backup.path)
        assert "the lake is sound" in full.run("lake", "check").out
        assert _answers(full) == expected


def a_copy_that_is_killed_is_whole_or_older_and_goes_on(full, folder):
    rng = support.seeded("killed copies")
    expected = _answers(full)
    began = time.monotonic()
    full.run("lake", "backup", folder / "timed")
    takes = time.monotonic() - began
    for number in range(8 * support.SOAK):
        backup = _at(full, folder, f"backup-{number}")
        for _ in range(3):
            process = subprocess.Popen([BINARY, "lake", "backup", str(backup.path), "--lake", str(full.path)],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(rng.random() * takes)
            process.kill()
            process.wait()
            for table in ["t", "u"]:
                if backup.version(table) is not None:
                    assert backup.count(table) in (2000, 4000)
        full.run("lake", "backup", backup.path)
        assert _answers(backup) == expected
        assert "the lake is sound" in backup.run("lake", "check").out
        shutil.rmtree(backup.path)
