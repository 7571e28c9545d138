"""Damaged files: an error that names them, never a wrong answer, never a panic."""

import os
import shutil

import pyarrow as pa
import pytest

import support
from support import write_parquet

FLIPS = 40 * int(os.environ.get("UPLAKE_SOAK", "1"))


@pytest.fixture(autouse=True)
def users_see(monkeypatch):
    """What a user sees, who has not asked where a panic was."""
    monkeypatch.setenv("RUST_BACKTRACE", "0")


def _rows():
    return pa.table({
        "user_id": [f"u{n % 70}" for n in range(500)],
        "n": pa.array(range(500), pa.int64()),
        "x": [n / 7 for n in range(500)],
        "t": pa.array([None if n % 5 == 0 else n for n in range(500)], pa.timestamp("us")),
        "l": [[n, n + 1] for n in range(500)],
    })


SUMS = "SELECT count(*), sum(n), sum(length(user_id)), round(sum(x), 3), max(t), sum(l[1]) FROM t"


def _footers_with_one_bit_flipped(whole, rng):
    begin = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for _ in range(FLIPS):
        damaged = bytearray(whole)
        damaged[rng.randrange(begin, len(whole))] ^= 1 << rng.randrange(8)
        yield bytes(damaged)


def a_flipped_bit_of_a_footer_is_an_error_or_changes_nothing(lake, folder):
    lake.create_from("t", _rows())
    expected = lake.run("sql", "-c", SUMS, "--format", "json").out
    [path] = lake.folder("t").glob("*.parquet")
    whole = path.read_bytes()
    errors = 0
    for damaged in _footers_with_one_bit_flipped(whole, support.seeded("footers")):
        path.write_bytes(damaged)
        done = lake.run("sql", "-c", SUMS, "--format", "json", code=None)
        assert done.code in (0, 1), done
        errors += done.code
        assert done.code == 1 or done.out == expected, done
    assert errors > FLIPS / 4
    path.write_bytes(damaged)
    assert path.name in lake.run("table", "check", "t", code=1).out


def a_flipped_bit_of_a_footer_loads_nothing_or_what_was_there(lake, folder):
    path = write_parquet(folder / "t.parquet", _rows())
    lake.load("t", path)
    expected = lake.json(SUMS)
    for damaged in _footers_with_one_bit_flipped(path.read_bytes(), support.seeded("footers to load")):
        shutil.rmtree(lake.path)
        path.write_bytes(damaged)
        done = lake.run("load", "t", path, code=None)
        if done.code == 0:
            assert lake.json(SUMS) == expected, done
        else:
            assert done.code == 1 and path.name in done.err, done


def a_flipped_bit_of_a_footer_in_place_is_an_error_or_changes_nothing(lake, folder):
    path = write_parquet(folder / "t.parquet", _rows())
    sums = SUMS.replace(" t", f" '{path}'")
    whole = path.read_bytes()
    expected = lake.run("sql", "-c", sums, "--format", "json").out
    # The type of `x`, a DOUBLE (5, as zigzag) in the schema and in its chunk: integers of half its length instead.
    begin = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    at = whole.index(b"\x15\x0a\x25\x02\x18\x01x", begin)
    as_integers = whole[:at + 1] + b"\x02" + whole[at + 2:]
    for damaged in _footers_with_one_bit_flipped(whole, support.seeded("footers in place")):
        path.write_bytes(damaged)
        done = lake.run("sql", "-c", sums, "--format", "json", code=None)
        assert done.code in (0, 1), done
        assert done.code == 1 or done.out == expected, done
    path.write_bytes(as_integers)
    for command in [("sql", "-c", sums), ("load", "t", path)]:
        lake.refused(*command, says=[path.name, "column x has another type"])


def a_flipped_bit_of_a_data_file_is_an_error(lake, folder):
    lake.create_from("t", _rows())
    lake.run("sql", "-c", "CREATE TABLE c (user_id TEXT, n BIGINT) CLUSTERED BY (user_id)")
    lake.run("sql", "-c", "INSERT INTO c SELECT user_id, n FROM t")
    lake.run("table", "reindex", "c", "--index", "user_id")
    rng = support.seeded("data files")
    asked = {
        "t": [SUMS, "SELECT * FROM t ORDER BY n", "SELECT n FROM t WHERE x > 70 ORDER BY 1"],
        "c": ["SELECT sum(n), count(DISTINCT user_id) FROM c", "SELECT n FROM c WHERE user_id = 'u7' ORDER BY n"],
    }
    errors = 0
    for table, statements in asked.items():
        expected = [lake.run("sql", "-c", sql, "--format", "json").out for sql in statements]
        [path] = lake.folder(table).glob("*.parquet")
        whole = path.read_bytes()
        for flip in range(2 * FLIPS):
            damaged = bytearray(whole)
            damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
            path.write_bytes(damaged)
            which = flip % len(statements)
            done = lake.run("sql", "-c", statements[which], "--format", "json", code=None)
            if done.code:
                assert done.code == 1 and path.name in done.err and "damaged" in done.err, done
                errors += 1
            else:
                assert done.out == expected[which], done
        # What copies rows must not copy damaged ones, under a checksum of theirs: a page of the first column.
        damaged = bytearray(whole)
        damaged[20] ^= 1
        path.write_bytes(damaged)
        done = lake.run("sql", "-c", f"DELETE FROM {table} WHERE n = 3", code=None)
        assert done.code == 1 and path.name in done.err, done
        assert path.name in lake.run("table", "check", table, code=1).out
        path.write_bytes(whole)
        lake.run("table", "check", table)
    assert errors > FLIPS


def a_parquet_file_that_is_none_is_not_taken_for_text(lake, folder):
    for name, content in [("a.parquet", b"\x00\x01\x02"), ("b.PARQUET", b"a,b\n1,2\n"), ("c.pq", b"")]:
        (folder / name).write_bytes(content)
        lake.refused("load", "t", folder / name, says=[name, "Parquet"])
    lake.refused("sql", "-c", "SELECT count(*) FROM t", says=["no table"])


def bytes_that_are_no_text_are_refused(lake, folder):
    for name, content in [("zeros.csv", bytes(5000)), ("three.csv", b"\x00\x01\x02"),
                          ("utf16.csv", "a,b\n1,2\n".encode("utf-16")), ("zeros.json", b"{" + bytes(100))]:
        (folder / name).write_bytes(content)
        lake.refused("load", "t", folder / name, says=[name, "NUL"])
        lake.refused("load", "t", "-", stdin=content, says=["standard input", "NUL"])
    (folder / "later.csv").write_bytes(b"a,b\n1,x\x00y\n")
    lake.load("t", folder / "later.csv")
    assert lake.json("SELECT length(b) AS n FROM t") == [{"n": 3}]


def a_flipped_bit_of_a_checkpoint_is_an_error_and_others_read_it_as_before(lake, folder):
    path = folder / "t.csv"
    for n in range(102):
        path.write_text(f"n\n{n}\n")
        lake.load("t", path, "--quiet")
    [checkpoint] = lake.folder("t").glob("_delta_log/*.checkpoint.parquet")
    whole = checkpoint.read_bytes()
    rng = support.seeded("checkpoints")
    for _ in range(FLIPS // 4):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        checkpoint.write_bytes(damaged)
        lake.refused("sql", "-c", "SELECT sum(n) FROM t", says=[checkpoint.name, "is damaged"])
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        checkpoint.write_bytes(whole[:length])
        lake.refused("sql", "-c", "SELECT sum(n) FROM t", says=[checkpoint.name, "is damaged"])
    assert checkpoint.name in lake.run("lake", "check", code=1).out
    checkpoint.write_bytes(whole)
    assert lake.json("SELECT sum(n) AS s FROM t") == [{"s": 101 * 102 // 2}]
    assert sum(lake.delta("t").to_pyarrow_table()["n"].to_pylist()) == 101 * 102 // 2
    lake.run("lake", "check")
