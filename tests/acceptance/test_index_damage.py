"""Index files that are missing, damaged or foreign: right rows, a warning, a repair."""

import json
import os
import pty
import shutil
import time

import deltalake
import pyarrow as pa
import pytest

import indexes
import support
from indexes import index_files
from support import write_parquet

INDEXES = ["--index", "k", "--index", "s", "--index", "s:words", "--index", "s:ngrams"]
QUERIES = [
    "SELECT k FROM t WHERE k IN (17, 1017, 2017)",
    "SELECT k FROM t WHERE s = 'name 41 beta'",
    "SELECT k FROM t WHERE s LIKE '%e 99%' AND s LIKE '%alpha'",
    "SELECT k FROM t WHERE match(s, 'alpha 700')",
]


def _rows(first, count=1000):
    words = ["alpha", "beta", "优惠券", "Straße"]
    return pa.table({
        "k": pa.array(range(first, first + count), pa.int64()),
        "s": [f"name {n} {words[n % 4]}" for n in range(first, first + count)],
    })


def _three_files(lake, folder):
    for n in range(3):
        path = write_parquet(folder / f"{n}.parquet", _rows(1000 * n))
        lake.load("t", path, *(INDEXES if n == 0 else []))
    expected = [[17, 1017, 2017], [41], [992, 996], [700]]
    assert _answer(lake) == (expected, [])
    return expected


def _answer(lake):
    """The keys of each query, and the warnings: each query warns once at most."""
    found, warnings = indexes.answers(lake, QUERIES)
    assert len(warnings) <= len(QUERIES)
    assert all("uplake table reindex t" in warning for warning in warnings), warnings
    return [sorted(row["k"] for row in rows) for rows in found], warnings


def _assert_mended(lake, expected, *options):
    lake.run("table", "reindex", "t", *options)
    assert _answer(lake) == (expected, [])
    lake.run("table", "check", "t")
    assert set(index_files(lake, "t")) == lake.live_files("t")


def _change(data, at):
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1:]



DAMAGES = {
    "removed": lambda path, other: path.unlink(),
    "empty": lambda path, other: path.write_bytes(b""),
    "text": lambda path, other: path.write_text("this is not an index\n" * 50),
    "a_parquet_file": lambda path, other: shutil.copy(path.parents[1] / path.stem, path),
    "of_another_file": lambda path, other: shutil.copy(other, path),
    "cut_by_a_byte": lambda path, other: os.truncate(path, path.stat().st_size - 1),
    "cut_in_the_middle": lambda path, other: os.truncate(path, path.stat().st_size // 2),
    "longer": lambda path, other: path.write_bytes(path.read_bytes() + b"\0"),
    "twice": lambda path, other: path.write_bytes(path.read_bytes() * 2),
    "zeros": lambda path, other: path.write_bytes(bytes(path.stat().st_size)),
    # FORMAT.md: the trailer's last 16 bytes begin with the number of the format.
    "a_newer_format": lambda path, other: path.write_bytes(path.read_bytes()[:-16] + b"\2" + path.read_bytes()[-15:]),
    "a_dangling_link": lambda path, other: (path.unlink(), path.symlink_to("/nowhere/at/all")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def a_damaged_index_is_told_and_mended_and_the_rows_are_right(lake, folder, damage):
    expected = _three_files(lake, folder)
    files = index_files(lake, "t")
    assert set(files) == lake.live_files("t")
    (name, path), (_, other), _ = files.items()
    DAMAGES[damage](path, other)
    found, warnings = _answer(lake)
    assert found == expected
    assert warnings and all(name in warning for warning in warnings), warnings
    checked = lake.run("table", "check", "t", code=1)
    assert name in checked.out + checked.err, checked
    _assert_mended(lake, expected)


def swapped_indexes_are_noticed(lake, folder):
    expected = _three_files(lake, folder)
    one, two, _ = index_files(lake, "t").values()
    bytes_of_one = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(bytes_of_one)
    found, warnings = _answer(lake)
    assert found == expected and "(and 1 more like it)" in warnings[0], warnings
    _assert_mended(lake, expected)


def an_unreadable_index_is_noticed(lake, folder):
    if os.geteuid() == 0:
        pytest.skip("root reads every file")
    expected = _three_files(lake, folder)
    next(iter(index_files(lake, "t").values())).chmod(0)
    found, warnings = _answer(lake)
    assert found == expected and warnings


def a_shell_builds_a_missing_index_again(lake, folder):
    expected = _three_files(lake, folder)
    path = next(iter(index_files(lake, "t").values()))
    whole = path.read_bytes()
    path.unlink()
    keyboard, terminal = pty.openpty()
    shell = lake.start("sql", stdin=terminal)
    os.close(terminal)
    os.write(keyboard, f"{QUERIES[0]};\n".encode())
    deadline = time.monotonic() + support.TIMEOUT_SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, "nothing was built"
        time.sleep(0.01)
    os.write(keyboard, b"\\q\n")
    _, err = shell.communicate(timeout=support.TIMEOUT_SECONDS)
    os.close(keyboard)
    assert shell.returncode == 0 and "it is being built again" in err.decode(), err
    assert path.read_bytes() == whole
    assert _answer(lake) == (expected, [])


def a_folder_in_place_of_an_index_is_named_until_it_is_removed(lake, folder):
    expected = _three_files(lake, folder)
    path = next(iter(index_files(lake, "t").values()))
    path.unlink()
    path.mkdir()
    found, warnings = _answer(lake)
    assert found == expected and warnings
    lake.run("table", "check", "t", code=1)
    lake.refused("table", "reindex", "t", says=[path.name])
    path.rmdir()
    _assert_mended(lake, expected)


def no_index_at_all_is_told_once_for_the_table(lake, folder):
    expected = _three_files(lake, folder)
    shutil.rmtree(lake.folder("t") / indexes.FOLDER)
    found, warnings = _answer(lake)
    assert found == expected and warnings
    lake.run("table", "check", "t", code=1)
    _assert_mended(lake, expected)


def a_file_in_place_of_the_folder_of_indexes_is_noticed(lake, folder):
    expected = _three_files(lake, folder)
    shutil.rmtree(lake.folder("t") / indexes.FOLDER)
    (lake.folder("t") / indexes.FOLDER).write_text("in the way")
    found, warnings = _answer(lake)
    assert found == expected and warnings
    lake.run("table", "check", "t", code=1)
    lake.refused("table", "reindex", "t", says=[indexes.FOLDER])
    lake.refused("load", "t", folder / "0.parquet", says=[indexes.FOLDER])
    assert lake.count("t") == 3000


def every_cut_and_every_changed_byte_leaves_the_rows_right(lake, folder):
    """One table; its index damaged at many places, one after another."""
    rng = support.seeded("damage at many places")
    lake.load("t", write_parquet(folder / "0.parquet", _rows(0, 400)), *INDEXES)
    expected = _answer(lake)[0]
    (path,) = index_files(lake, "t").values()
    whole = path.read_bytes()
    size = len(whole)
    lengths = [*range(0, 40, 7), *(size - n for n in (1, 2, 8, 16, 33, 64, 100)), *rng.sample(range(size), 12)]
    places = [*range(0, 24, 3), *range(size - 60, size, 5), *rng.sample(range(size), 40)]
    damaged = [whole[:n] for n in lengths] + [_change(whole, at) for at in places]
    noticed = 0
    for number, data in enumerate(damaged):
        path.write_bytes(data)
        found, warnings = _answer(lake)
        assert found == expected, f"damage {number}"
        noticed += bool(warnings)
        lake.run("table", "check", "t", code=1)
    # A byte of padding, or of a part that none of the queries reads, harms no answer.
    assert noticed > len(damaged) // 2
    _assert_mended(lake, expected)
    assert path.read_bytes() == whole, "reindex writes what the load wrote"


def an_index_of_another_version_of_the_file_is_noticed(lake, folder):
    """The index of a file with the same name and other rows: two tables whose files trade names."""
    expected = _three_files(lake, folder)
    lake.load("u", folder / "1.parquet", *INDEXES)
    (_, theirs), = index_files(lake, "u").items()
    name, ours = next(iter(index_files(lake, "t").items()))
    shutil.copy(theirs, ours)
    found, warnings = _answer(lake)
    assert found == expected and warnings and name in warnings[0]
    _assert_mended(lake, expected)


def files_of_another_delta_writer_have_no_index_until_reindex(lake, folder):
    expected = _three_files(lake, folder)
    deltalake.write_deltalake(lake.folder("t"), _rows(3000), mode="append")
    lake.load("t", write_parquet(folder / "4.parquet", _rows(4000)))
    found, warnings = _answer(lake)
    (name,) = lake.live_files("t") - set(index_files(lake, "t"))
    assert found == expected and warnings and name in warnings[0], warnings
    assert name in lake.run("table", "check", "t", code=1).out
    _assert_mended(lake, expected)
    assert lake.count("t where k in (3017, 4017)") == 2


def a_file_whose_row_count_the_log_lacks_is_read_right_and_can_be_indexed(lake, folder):
    """Other writers may leave statistics out of the log."""
    expected = _three_files(lake, folder)
    log = lake.folder("t") / "_delta_log" / f"{lake.version('t'):020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        action.get("add", {}).pop("stats", None)
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    assert _answer(lake)[0] == expected
    _assert_mended(lake, expected)


def a_column_whose_type_another_writer_changed_is_looked_up_no_more(lake, folder):
    _three_files(lake, folder)
    changed = pa.table({"k": [17.0, 1.5], "s": [1, 2]})
    deltalake.write_deltalake(lake.folder("t"), changed, mode="overwrite", schema_mode="overwrite")
    assert lake.rows("SELECT s FROM t WHERE k = 17") == [(("s", 1),)]
    assert lake.rows("SELECT k FROM t WHERE s IN (2, 3)") == [(("k", 1.5),)]
    lake.load("t", write_parquet(folder / "more.parquet", changed))
    lake.run("sql", "-c", "INSERT INTO t SELECT * FROM t; DELETE FROM t WHERE k = 17")
    assert lake.json("SELECT k, count(*) AS n FROM t GROUP BY k") == [{"k": 1.5, "n": 4}]
    lake.run("table", "reindex", "t", "--drop-index", "s")
    lake.run("table", "check", "t")


def a_column_that_another_writer_removed_stops_nothing(lake, folder):
    _three_files(lake, folder)
    left = pa.table({"k": [17, 18]})
    deltalake.write_deltalake(lake.folder("t"), left, mode="overwrite", schema_mode="overwrite")
    assert lake.rows("SELECT k FROM t WHERE k = 17") == [(("k", 17),)]
    lake.load("t", write_parquet(folder / "more.parquet", pa.table({"k": [19]})))
    lake.run("table", "compact", "t")
    assert lake.count("t where k in (17, 19)") == 2
