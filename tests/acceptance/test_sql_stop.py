"""Time-outs and signals: a statement that is stopped says so, and leaves nothing on disk."""

import os
import re
import signal
import time

import pytest

# So slow that it is always stopped, and it spills: 40 million texts under 200 MB.
SPILLING = (
    "SELECT s, row_number() OVER (ORDER BY s) AS n FROM (SELECT concat('a text of some length ',"
    " CAST((value * 7919) % 40000003 AS VARCHAR)) AS s FROM generate_series(1, 40000000) AS g(value))"
)
ENDLESS = "SELECT max(value % 7) AS m FROM generate_series(1, 1000000000000) AS g(value)"
PATIENCE_SECONDS = 60
# What was stopped, and after how long.
SAID = re.compile(r"error: cancelled after [\d.]+ s: SELECT .+\n")


def _files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("sent, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def a_signal_removes_what_a_statement_has_spilled(lake, tmp_path, sent, code):
    spill = tmp_path / "spill"
    spill.mkdir()
    process = lake.start(
        "sql", "--memory", "200M", "--threads", "2", "-c", SPILLING, env={**os.environ, "TMPDIR": str(spill)}
    )
    until = time.monotonic() + PATIENCE_SECONDS
    while not [path for path in _files(spill) if path.name != "lock"]:
        assert process.poll() is None and time.monotonic() < until, "it does not spill"
        time.sleep(0.01)
    process.send_signal(sent)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == code, err
    assert SAID.fullmatch(err.decode()) and "SELECT s, row_number() OVER" in err.decode(), err
    assert _files(spill) == []


# No thread of these comes by to look whether it should stop: joins whose pairs all fail the condition, one
# group's values in order, one call of a function.
STUBBORN = [
    "SELECT count(*) AS n FROM generate_series(1, 3000000) a(v) JOIN generate_series(1, 100000) b(w) ON v + w < 0",
    "SELECT sum(a.v * b.w) AS s FROM generate_series(1, 3000000) a(v) CROSS JOIN generate_series(1, 100000) b(w)",
    "SELECT length(string_agg(CAST(v AS TEXT), ',' ORDER BY v % 1000)) AS n FROM generate_series(1, 5000000) a(v)",
    "SELECT sum(levenshtein(repeat(CAST(v AS TEXT), 300), repeat('0123', 300))) AS n FROM generate_series(1, 1000000) a(v)",
]


@pytest.mark.parametrize("sql", STUBBORN)
def a_statement_that_looks_at_nothing_stops_all_the_same(lake, tmp_path, sql):
    env = {**os.environ, "TMPDIR": str(tmp_path / "spill")}
    (tmp_path / "spill").mkdir()
    for sent in [[signal.SIGINT], [signal.SIGINT, signal.SIGINT], [signal.SIGTERM]]:
        process = lake.start("sql", "--threads", "2", "-c", sql, env=env)
        time.sleep(0.7)
        assert process.poll() is None, process.communicate()
        for each in sent:
            process.send_signal(each)
        # Far from what a busy machine needs, and from what such a statement takes.
        _, err = process.communicate(timeout=5)
        assert process.returncode == 128 + sent[0] and SAID.fullmatch(err.decode()), err
        assert _files(tmp_path / "spill") == []
    began = time.monotonic()
    lake.refused("sql", "--timeout", "300ms", "-c", sql, says=["time-out of 0.3 s"], env=env)
    assert time.monotonic() - began < 5


def what_killed_processes_have_spilled_is_removed_by_the_next(lake, tmp_path):
    spill = tmp_path / "spill"
    spill.mkdir()
    env = {**os.environ, "TMPDIR": str(spill)}
    start = lambda: lake.start("sql", "--memory", "200M", "--threads", "2", "-c", SPILLING, env=env)
    killed, alive = start(), start()
    until = time.monotonic() + PATIENCE_SECONDS
    spilled = lambda process: [path for path in _files(spill) if f"spill-{process.pid}-" in str(path)]
    while len(spilled(killed)) < 2 or len(spilled(alive)) < 2:
        assert killed.poll() is None and alive.poll() is None and time.monotonic() < until, "it does not spill"
        time.sleep(0.01)
    [folder] = {path.relative_to(spill).parts[0] for path in spilled(killed)}
    assert (spill / folder).stat().st_mode & 0o777 == 0o700
    killed.kill()
    killed.communicate()
    assert spilled(killed)
    while spilled(killed):
        assert time.monotonic() < until, spilled(killed)
        # In the background of a process that lives long enough.
        lake.run("sql", "-c", "SELECT count(*) AS n FROM generate_series(1, 30000000)", env=env)
    assert spilled(alive), "those of a process that lives stay"
    alive.send_signal(signal.SIGINT)
    alive.communicate(timeout=PATIENCE_SECONDS)
    assert _files(spill) == []


def a_reader_that_goes_away_is_no_fault(lake):
    lake.run("sql", "-c", "CREATE TABLE t (a INT); INSERT INTO t VALUES (1)")
    for words in (["table", "list"], ["table", "describe", "t"], ["table", "check", "t"], ["lake", "check"],
                  ["table", "history", "t"], ["domain", "list"], ["sql", "-c", "SELECT 1"]):
        for closed in ("stdout", "both"):
            process = lake.start(*words)
            process.stdout.close()
            if closed == "both":
                process.stderr.close()
                assert process.wait(PATIENCE_SECONDS) == 0, words
            else:
                err = process.stderr.read().decode()
                assert process.wait(PATIENCE_SECONDS) == 0 and err == "", (words, err)


def a_time_out_ends_a_statement_and_says_what_ran_out(lake):
    for words in (["--timeout", "200ms", "-c", ENDLESS], ["-c", f"SET uplake.timeout = '200ms'; {ENDLESS}"]):
        lake.refused("sql", *words, says=["time-out of 0.2 s", "of execution", "--timeout"])


def a_time_out_is_a_time(lake):
    assert "30s" in lake.run("sql", "--timeout", "soon", "-c", "SELECT 1", code=2).err
    assert lake.run("sql", "--timeout", "0", "-c", "SELECT 1 AS a", "--format", "csv").out == "a\n1\n"


def the_setting_is_shown(lake):
    shown = lake.run("sql", "--timeout", "90s", "--format", "csv", "-c", "SHOW uplake.timeout").out
    assert "uplake.timeout,90 s" in shown


def results_of_functions_are_bounded_by_the_memory(lake):
    asked = [
        "SELECT sum(length(repeat(CAST(v AS TEXT), 20000))) AS n FROM generate_series(1, 90000) AS g(v)",
        "SELECT sum(array_length(range(0, 20000 + v % 2))) AS n FROM generate_series(1, 90000) AS g(v)",
        # A constant is copied while it is planned with.
        "SELECT array_length(range(0, 30000000)) AS n",
        "SELECT length(repeat('abc', 100000000)) AS n",
    ]
    for sql, most in zip(asked, [32, 32, 8, 8]):
        lake.refused("sql", "--memory", "256M", "-c", sql, says=["would make", f"may make {most} MiB"])
    assert lake.json("SELECT array_length(range(0, 30000000)) AS n", "--memory", "8G") == [{"n": 30000000}]
