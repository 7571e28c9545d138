"""The Flight SQL JDBC driver of Apache Arrow: foreign/FlightJdbc.java asks, and tells what it got."""

import glob
import os
import pathlib
import shutil
import subprocess

import pytest
import support

HERE = pathlib.Path(__file__).parent
HOW = "make wire-tools (needs maven: apt-get install maven), or set UPLAKE_FLIGHT_JDBC to the jar"
OPTIONS = ["--add-opens=java.base/java.nio=ALL-UNNAMED", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8"]


def _jar():
    places = [os.environ.get("UPLAKE_FLIGHT_JDBC", "")]
    places += sorted(glob.glob(str(support.tools() / "flight-sql-jdbc-driver-*.jar")))
    return next((p for p in places if p and os.path.exists(p)), None)


@pytest.fixture(scope="module")
def found(shared):
    support.only_uplake("it has no Flight SQL")
    if shutil.which("java") is None:
        support.missing("java", "apt-get install default-jdk-headless (17 or later)")
    if _jar() is None:
        support.missing("the Flight SQL JDBC driver", HOW)
    url = f"jdbc:arrow-flight-sql://{shared.http[0]}:{shared.http[1]}/?useEncryption=false"
    command = ["java", *OPTIONS, "-cp", _jar(), str(HERE / "foreign/FlightJdbc.java"), url, support.LONG]
    done = subprocess.run(command, capture_output=True, timeout=180)
    told = dict(line.split("=", 1) for line in done.stdout.decode().splitlines() if "=" in line)
    told["?"] = done.stderr.decode()[-3000:]
    return told


def all_of_it_is_done(found):
    assert found.get("done") == "true", found["?"]


def metadata_names_what_there_is(found):
    assert found["product"] == "Uplake"
    assert (found["catalogs"], found["schemas"], found["types"]) == ("lake", "public", "TABLE,VIEW")
    assert {"people:TABLE", "numbers:TABLE", "every_type:TABLE"} <= set(found["tables"].split(","))
    assert found["columns"] == "id:4,b:16,s:5,i:4,n:-5,r:6,d:8,q:3,x:12,y:-3,day:91,at:93,z:2014"
    assert (found["keys"], found["valid"]) == ("", "true")


def values_come_as_they_are(found):
    assert found["values"] == (
        "[true, -7, 2147483647, -9223372036854775808, 1.5, NaN, -Infinity, 12345678901234567890123456.1234567890,"
        " naïve ☃, , 00ff, 1999-12-31, 0001-01-01, 2026-01-31 10:00:00.000001, null]"
    )
    assert found["list"] == "[1, null, 3]"
    assert found["fetched"] == "10000:50005000"


def parameters_are_question_marks(found):
    assert found["prepared"].split() == [f"n{n}" for n in range(1, 11)]
    assert (found["parameters"], found["answers"]) == ("-5", "name")
    assert found["bound"] == (
        "[true, -7, 2147483647, -9223372036854775808, 1.5, -0.1, 12345678901234567890123456.1234567890,"
        " naïve ☃, 00ff, 1999-12-31, 2026-01-31 10:00:00.25, null]"
    )


def writes_are_counted(found):
    assert (found["inserted"], found["inserted_prepared"], found["deleted"]) == ("2", "1", "2")
    assert found["left"] == "[3, n3]"


def errors_and_cancel(found):
    assert found["error"] == "true"
    assert found["cancelled"] == "true"
    assert found["after"] == "1"


def nothing_is_left(server, found):
    server.free(5)
