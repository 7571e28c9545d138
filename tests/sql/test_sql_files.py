"""A few .slt files through the command: without indexes, with them, and in a bucket of an S3 server.

All files run in one process in crates/engine/tests/it/sql_records, in the same ways. Here are those
that meet what the command adds: errors with their place, files beside the lake, versions by its
clock, warnings, a process for each statement. `make soak` runs all of them through the command.
"""
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
THROUGH_THE_COMMAND = ["errors", "files_in_place", "insert", "show_describe", "time_travel"]
IN_A_BUCKET = ["delete", "insert", "time_travel"]


def run(names, *options):
    files = [HERE / f"{name}.slt" for name in names]
    done = subprocess.run(
        [sys.executable, HERE / "run.py", *options, *files], capture_output=True, text=True
    )
    if "no S3 server" in done.stderr:
        pytest.skip(f"NO SQL FILE WAS RUN ON S3: {done.stderr.strip()}")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", THROUGH_THE_COMMAND)
def test_every_record_of_the_file_holds(name):
    run([name])


def test_every_record_holds_in_a_bucket():
    run(IN_A_BUCKET, "--way", "s3")
