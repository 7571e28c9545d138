"""Time-outs and signals: a statement that is stopped says so, and leaves nothing on disk."""

import os
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
    while not _files(spill):
        assert process.poll() is None and time.monotonic() < until, "it does not spill"
        time.sleep(0.01)
    process.send_signal(sent)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == code, err
    assert err.decode() == "error: cancelled\n"
    assert _files(spill) == []


def a_time_out_ends_a_statement_and_says_what_ran_out(lake):
    for words in (["--timeout", "200ms", "-c", ENDLESS], ["-c", f"SET uplake.timeout = '200ms'; {ENDLESS}"]):
        lake.refused("sql", *words, says=["time-out of 0.2 s", "of execution", "--timeout"])


def a_time_out_is_a_time(lake):
    assert "30s" in lake.run("sql", "--timeout", "soon", "-c", "SELECT 1", code=2).err
    assert lake.run("sql", "--timeout", "0", "-c", "SELECT 1 AS a", "--format", "csv").out == "a\n1\n"


def the_setting_is_shown(lake):
    shown = lake.run("sql", "--timeout", "90s", "--format", "csv", "-c", "SHOW uplake.timeout").out
    assert "uplake.timeout,90 s" in shown
