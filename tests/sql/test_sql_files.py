"""Every .slt file gives its expected rows, through the command: without indexes, with them, and in a
bucket of an S3 server."""
import importlib.util
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


@pytest.mark.skipif(
    importlib.util.find_spec("moto") is None,
    reason="LOUD: moto IS MISSING: NO SQL FILE WAS RUN ON S3; pip install -r tests/requirements.txt",
)
def test_every_record_holds_in_a_bucket():
    run = subprocess.run(
        [sys.executable, HERE / "run.py", "--way", "s3"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
