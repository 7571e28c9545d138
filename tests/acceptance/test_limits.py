"""What is larger than the memory, the open files or the planner's patience: done, or refused within them."""

import gzip
import subprocess
import sys

import pytest
import zstandard

from support import BINARY, TIMEOUT_SECONDS

BUDGET = "256M"
# What a process takes beside its budget.
BESIDE_MIB = 128
MIB = 1 << 20
# Of a budget of 64 MiB: five scans beside each other, and what the allocator has not given back.
SPILLING_MIB = 448


# In a process of its own: what this one has would count as its child's.
WATCHED = """
import os, resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
process = subprocess.Popen(sys.argv[1:], stderr=subprocess.STDOUT)
_, status, used = os.wait4(process.pid, 0)
print(f"\\nended {os.waitstatus_to_exitcode(status)} {used.ru_maxrss // 1024}")
"""


def _peak(*args, cwd, stdin=b"", code=0):
    """The process' output or error, and the most memory it had, in MiB. It may open 256 files."""
    done = subprocess.run([sys.executable, "-c", WATCHED, BINARY, *map(str, args)], cwd=cwd, input=stdin,
                          capture_output=True, timeout=TIMEOUT_SECONDS)
    said, _, ended = done.stdout.decode(errors="replace").rpartition("\nended ")
    status, peak = map(int, ended.split())
    assert status == code, (status, said[:2000], done.stderr[:2000])
    assert "panicked" not in said, said[:2000]
    return said, peak


def _bounded(said_and_peak, mib=int(BUDGET[:-1]) + BESIDE_MIB):
    said, most = said_and_peak
    assert most <= mib, f"{most} MiB: {said[:300]}"
    return said


def _endless(path, head, piece, pieces):
    if path.suffix == ".gz":
        with gzip.open(path, "wb", 1) as out:
            out.write(head)
            for _ in range(pieces):
                out.write(piece)
    else:
        with path.open("wb") as file, zstandard.ZstdCompressor().stream_writer(file) as out:
            out.write(head)
            for _ in range(pieces):
                out.write(piece)
    return path


@pytest.mark.parametrize("name, head, piece", [
    ("field.csv.gz", b'a,b\n1,"', b"x" * MIB),
    ("lines.csv.gz", b'a,b\n1,"', b"\n" * MIB),
    ("field.json.zst", b'{"a": 1, "b": "', b"x" * MIB),
    ("list.json.zst", b'{"a": 1, "b": [', b"1,\n" * (MIB // 3)),
])
def a_record_without_end_is_an_error_in_place_as_it_is_in_a_load(folder, name, head, piece):
    path = _endless(folder / name, head, piece, 1000)
    said = _bounded(_peak("sql", "--memory", BUDGET, "-c", f"SELECT count(b) FROM '{path}'", cwd=folder, code=1))
    assert name in said and ("within 64 MiB" in said or "no JSON object" in said or "more than 64 MiB" in said), said


def long_records_are_read_a_few_at_a_time(folder):
    path = _endless(folder / "rows.csv.gz", b"a,b\n", b"1," + b"x" * (MIB - 3) + b"\n", 1000)
    said = _bounded(_peak("sql", "--memory", BUDGET, "--format", "csv", "-c", f"SELECT count(b) FROM '{path}'", cwd=folder))
    assert said.split()[-1] == "1000", said


def records_are_told_apart_as_the_format_says(lake, folder):
    rows = 30_000
    (folder / "q.csv").write_text("a,b\n" + "".join(f'{n},"x\ny ""{n}"""\n' for n in range(rows)))
    (folder / "late.json").write_text('{"a": 1}\n' * 5_000 + '{"a": 1, "z": {"k": "}"}}\n')
    with gzip.open(folder / "q.csv.gz", "wb") as out:
        out.write((folder / "q.csv").read_bytes())
    for name in ("q.csv", "q.csv.gz"):
        got = lake.json(f"SELECT count(*) AS n, sum(a) AS s, max(length(b)) AS l FROM '{folder / name}'")
        assert got == [{"n": rows, "s": rows * (rows - 1) // 2, "l": 11}], name
    # A column that only a later record has.
    assert lake.json(f"SELECT sum(a) AS s, count(z) AS n, max(z['k']) AS k FROM '{folder / 'late.json'}'") == [
        {"s": 5_001, "n": 1, "k": "}"}]
    (folder / "empty.csv").write_text("")
    lake.run("sql", "-c", f"SELECT * FROM '{folder / 'empty.csv'}'", code=None)


def _nested(head, tail, times=10_000):
    return f"SELECT {head * times}x{tail * times} FROM generate_series(1, 3) t(x)"


@pytest.mark.parametrize("statement, says", [
    ("SELECT " + " + ".join(["x"] * 10_000) + " FROM generate_series(1, 3) t(x)", "more than 1000 operators"),
    ("SELECT " + " || ".join(["'a'"] * 10_000), "more than 1000 operators"),
    ("SELECT 1 WHERE " + " OR ".join(f"1 = {n}" for n in range(100_000)), "more than 20000 operators"),
    (_nested("(", ")"), "nests more than 250 deep"),
    (_nested("abs(", ")"), "nests more than 250 deep"),
    (_nested("CAST(", " AS BIGINT)"), "nests more than 250 deep"),
    (_nested("CASE WHEN x > 0 THEN ", " END"), "nests more than 250 deep"),
    (_nested("NOT ", ""), "nests more than 250 deep"),
    ("SELECT count(*) FROM (VALUES (1)) t(a) GROUP BY CUBE (" + ", ".join(["a"] * 16) + ")", "4096 grouping sets"),
], ids=["plus", "concat", "or", "brackets", "calls", "casts", "cases", "nots", "cube"])
def a_statement_too_large_to_plan_is_refused_at_once(folder, statement, says):
    said = _bounded(_peak("sql", "--memory", BUDGET, stdin=statement.encode(), cwd=folder, code=1))
    assert says in said, said[:500]


@pytest.mark.parametrize("statement, answer", [
    ("SELECT count(*) FROM generate_series(1, 10) t(x) WHERE " + " OR ".join(f"x * 2 = {n}" for n in range(3_000)), "10"),
    ("SELECT count(*) FROM generate_series(1, 10) t(x) WHERE " + " AND ".join(f"x <> {n}" for n in range(5, 3_000)), "4"),
    ("SELECT max(" + " + ".join(["x"] * 600) + ") FROM generate_series(1, 10) t(x)", "6000"),
    ("SELECT count(*) FROM (" + " UNION ALL ".join(["SELECT 1 AS a"] * 300) + ")", "300"),
], ids=["or", "and", "plus", "union"])
def a_large_statement_is_answered(folder, statement, answer):
    said = _bounded(_peak("sql", "--memory", BUDGET, "--format", "csv", stdin=statement.encode(), cwd=folder))
    assert said.split()[-1] == answer, said[-500:]


def several_counts_of_different_values_spill(folder):
    rows = 1_000_000
    lake = folder / "lake"
    made = f"""CREATE TABLE t AS SELECT value * 7919 % 1000003 AS a, value * 104729 % 500009 AS b,
        CAST(value AS TEXT) AS c, concat('x', CAST(value * 31 % 999983 AS TEXT)) AS d
        FROM generate_series(1, {rows}) AS s(value)"""
    _peak("sql", "--lake", lake, "-c", made, cwd=folder)
    counts = "SELECT count(DISTINCT a), count(DISTINCT b), count(DISTINCT c), count(DISTINCT d), count(*) FROM t"
    said = _bounded(_peak("sql", "--lake", lake, "--memory", "64M", "--format", "csv", "-c", counts, cwd=folder),
                   SPILLING_MIB)
    each = [len({value * 7919 % 1000003 for value in range(1, rows + 1)}),
            len({value * 104729 % 500009 for value in range(1, rows + 1)}),
            rows, len({value * 31 % 999983 for value in range(1, rows + 1)}), rows]
    assert said.splitlines()[-1] == ",".join(map(str, each))


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def more_files_than_may_be_open_are_loaded(lake, folder, suffix):
    files = 1_100
    for n in range(files):
        path = folder / f"{n:04}.{suffix}"
        match suffix:
            case "csv":
                path.write_text(f"id,x\n{n},a\n")
            case "json":
                path.write_text(f'{{"id": {n}, "x": "a"}}\n')
            case _ if n == 0:
                lake.run("sql", "-c", f"COPY (SELECT 1 AS id, 'a' AS x) TO '{path}'")
            case _:
                path.hardlink_to(folder / "0000.parquet")
    _peak("load", "t", folder / f"*.{suffix}", "--lake", lake.path, cwd=folder)
    total = files if suffix == "parquet" else files * (files - 1) // 2
    assert lake.json("SELECT count(*) AS n, sum(id) AS s FROM t") == [{"n": files, "s": total}]
