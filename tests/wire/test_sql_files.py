"""Every file of tests/sql over the Postgres wire: what it answers is what the command answers."""

import os
import pathlib
import subprocess
import sys

import support

SQL = pathlib.Path(__file__).resolve().parents[1] / "sql"


def every_record_of_every_file_holds():
    support.only_uplake("the files are in Uplake's words")
    # In one call, which asks several servers at once: 35 s for 2,171 records, a file after the other takes twice as long.
    done = subprocess.run(
        [sys.executable, SQL / "run.py", "--wire"], capture_output=True, text=True,
        env=os.environ | {"UPLAKE_BIN": support.binary()}, timeout=600,
    )
    failed = [line for line in done.stdout.splitlines() if " wire: " not in line or "FAILED" in line]
    assert done.returncode == 0, "\n".join(failed) + done.stderr
