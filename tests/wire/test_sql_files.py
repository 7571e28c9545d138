"""Every file of tests/sql over the Postgres wire: what it answers is what the command answers."""

import os
import pathlib
import subprocess
import sys

import pytest
import support

SQL = pathlib.Path(__file__).resolve().parents[1] / "sql"
FILES = sorted(path.stem for path in SQL.glob("*.slt"))


@pytest.mark.parametrize("name", FILES)
def every_record_of_the_file_holds(name):
    support.only_uplake("the files are in Uplake's words")
    done = subprocess.run(
        [sys.executable, SQL / "run.py", "--wire", SQL / f"{name}.slt"], capture_output=True, text=True,
        env=os.environ | {"UPLAKE_BIN": support.binary()}, timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
