"""Every .slt file gives its expected rows, through the command: without indexes and with them."""
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent


@pytest.mark.parametrize("name", sorted(p.name for p in HERE.glob("*.slt")))
def test_every_record_of_the_file_holds(name):
    run = subprocess.run(
        [sys.executable, HERE / "run.py", HERE / name], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
