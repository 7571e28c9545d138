"""node's `pg`, which GrowthBook uses: foreign/pg.mjs asks, and tells what it got."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest
import support

HERE = pathlib.Path(__file__).parent
HOW = "make wire-tools (needs npm), or set UPLAKE_NODE_MODULES to its folder"


def _modules():
    places = [os.environ.get("UPLAKE_NODE_MODULES"), support.tools() / "node_modules"]
    return next((str(pathlib.Path(p).resolve()) for p in places if p and (pathlib.Path(p) / "pg").exists()), None)


@pytest.fixture(scope="module")
def found(shared):
    if shutil.which("node") is None:
        support.missing("node", "apt-get install nodejs npm (20 or later)")
    if _modules() is None:
        support.missing("node's pg", HOW)
    words = [shared.pg[0], str(shared.pg[1]), support.USER, support.DATABASE, _modules(), support.LONG]
    done = subprocess.run(
        ["node", str(HERE / "foreign/pg.mjs"), *words], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def rows_of_simple_queries(found):
    assert found["simple"] == [
        {"id": "1", "name": "Ada", "score": 1.5}, {"id": "2", "name": "naïve ☃ 😀", "score": -0.25},
        {"id": "3", "name": "", "score": 0}, {"id": "4", "name": None, "score": None},
    ]
    assert found["fields"] == [["id", 20], ["name", 25], ["score", 701], ["born", 1082]]
    assert found["array"] == [[1, 1]]
    assert found["several"] == [1, 2]


def parameters_and_named_statements(found):
    assert found["parameters"] == [
        "Ada", "naïve ☃", "9007199254740993", 1.5, True, "00ff", "2026-01-31T10:00:00.250Z", None, 2,
    ]
    assert found["named"] == [f"n{n}" for n in range(1, 11)]


def errors_have_codes_and_the_connection_goes_on(found):
    assert found["error"] == {"code": "42703", "position": "8", "severity": "ERROR"}
    assert found["after"] == 1
    assert found["timeout"] == "57014"


def a_connection_for_each_statement_and_a_pool(found):
    assert found["each"] == ["1000"] * 20
    assert found["pooled"] == [f"n{n}" for n in range(1, 51)]


def nothing_is_left(found, shared):
    shared.free(5)
