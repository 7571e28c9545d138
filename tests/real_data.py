"""Files that tests read: the real ones from UPLAKE_DATA (default: ../shared/data beside the
checkout); those that are not there are made up (made_up.py), with the same names and columns.

Tests that hold figures of the real data ask for `is_real`, and are skipped with `reason`.
"""
import atexit
import functools
import os
import pathlib
import shutil
import tempfile

import made_up

BESIDE = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"
FOLDER = pathlib.Path(os.environ.get("UPLAKE_DATA", BESIDE))

# Who gives the files away. Golden figures are computed from them and are not given away yet.
SOURCES = {
    "anonreviews.parquet": "elastic/examples on GitHub",
    "apache_logs.gz": "elastic/examples on GitHub",
    "airports.dat.gz": "airports.dat of jpatokal/openflights on GitHub",
    "routes.dat.gz": "routes.dat of jpatokal/openflights on GitHub",
    "asos_digital_experiments.parquet": "ASOS Digital Experiments Dataset, osf.io/64jsb",
    "online_retail_II_2009_2010.parquet": "UCI Online Retail II, the sheet of 2009-2010",
}


def is_real(name):
    return (FOLDER / name).exists()


def file(name):
    """The real file, or one that is made up."""
    return FOLDER / name if is_real(name) else _made_up() / name


def reason(*names):
    """Why something was not checked on these files, and how to have it checked."""
    gone = ", ".join(name for name in names if not is_real(name))
    return f"NOT CHECKED ON REAL DATA: UPLAKE_DATA lacks {gone}; tests/real_data.py says who has it"


@functools.cache
def _made_up():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="uplake-made-up-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made_up.write(folder)
    return folder
