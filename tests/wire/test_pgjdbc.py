"""pgJDBC, as Metabase and DBeaver use it: foreign/Jdbc.java asks, and tells what it got."""

import glob
import os
import pathlib
import shutil
import subprocess

import pytest
import support

HERE = pathlib.Path(__file__).parent
HOW = (
    "make wire-tools (needs maven: apt-get install maven), "
    "or set UPLAKE_PGJDBC to the jar"
)


def _jar():
    places = [os.environ.get("UPLAKE_PGJDBC", "")] + sorted(glob.glob(str(support.tools() / "postgresql-*.jar")))
    return next((p for p in places if p and os.path.exists(p)), None)


@pytest.fixture(scope="module")
def found(shared):
    if shutil.which("java") is None:
        support.missing("java", "apt-get install default-jdk-headless (17 or later)")
    if _jar() is None:
        support.missing("pgJDBC", HOW)
    url = f"jdbc:postgresql://{shared.pg[0]}:{shared.pg[1]}/{support.DATABASE}?sslmode=disable&gssEncMode=disable"
    command = ["java", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", _jar(), str(HERE / "foreign/Jdbc.java")]
    done = subprocess.run([*command, url, support.LONG], capture_output=True, timeout=180)
    lines = [line.split("=", 1) for line in done.stdout.decode().splitlines()]
    told = {name: value for name, value in lines}
    told["?"] = done.stderr.decode()[-3000:]
    return told


def all_of_it_is_done(found):
    assert found.get("done") == "true", found["?"]


def metadata_is_that_of_postgres(found):
    assert found["product"] == "PostgreSQL"
    assert "public" in found["schemas"].split(",")
    assert "lake" in found["catalogs"].split(",")
    assert found["types"] == found["type_info"] == found["isolation"] == found["valid"] == "true"
    assert {"people:TABLE", "numbers:TABLE", "every_type:TABLE"} <= set(found["tables"].split(","))
    assert found["columns"] == (
        "id:int4:4,b:bool:-7,s:int2:5,i:int4:4,n:int8:-5,r:float4:7,d:float8:8,q:numeric:2,x:text:12,"
        "y:bytea:-2,day:date:91,at:timestamp:93,z:timestamptz:93"
    )
    assert found["keys"] == found["foreign"] == found["indexes"] == ""


def statement_is_named_after_five_runs_and_answers_alike(found):
    assert found["prepared"].split() == [f"n{n}" for n in range(1, 11)]
    assert found["parameters"] == "int8"
    assert found["answers"] == "name:text"


def values_go_and_come_back_as_text_and_as_binary(found):
    expected = (
        "[true, -7, 2147483647, -9223372036854775808, 1.5, -0.1, 12345678901234567890123456.1234567890, "
        "naïve ☃, 00ff, 1999-12-31, 2026-01-31 10:00:00.000001, null]"
    )
    assert [found[f"values{turn}"] for turn in range(7)] == [expected] * 7
    assert found["list"] == "[1, null, 3]"


def rows_come_in_pieces(found):
    assert found["fetched"] == "10000:50005000"


def errors_and_time_outs(found):
    assert found["error"] == "42703"
    assert found["failed"] == "25P02"
    assert found["timeout"] == "57014"


def writes_are_counted(found):
    assert found["batch"] == "[1, 1, 1, 1, 1]"
    assert found["deleted"] == "2"
