"""Fixtures of the tests over connections.

One server serves all tests of a process, so that what one leaves is seen by the next: after each test
nothing may run. `fresh` is a server of the test's own.
"""

import pathlib
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import support


def pytest_collection_modifyitems(items):
    """What is not there yet is named in not_yet.txt, and told of as `xfailed`."""
    lines = (pathlib.Path(__file__).parent / "not_yet.txt").read_text().splitlines()
    missing = dict(line.split("\t") for line in lines if line and not line.startswith("#"))
    for item in items:
        reason = missing.get(item.nodeid.rsplit("/", 1)[-1])
        if reason and not support.PEER:
            item.add_marker(pytest.mark.xfail(reason=reason, run=not reason.startswith("the end")))


def pytest_report_header():
    return f"asked: {support.PEER or support.binary()}"


@pytest.fixture(scope="session")
def shared():
    """A lake with a few tables, and its server. At its end it must leave nothing."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="uplake-wire-"))
    if support.PEER:
        peer = support.Postgres(folder)
        with peer.raw() as first:
            first.rows(support.TABLES)
        yield peer
        peer.stop()
    else:
        lake = support.make_lake(folder)
        before = support.locks(lake)
        server = support.Server(folder, lake)
        yield server
        server.stop()
        left = set(support.locks(lake)) - set(before)
        assert not left, f"locks and half-written files are left: {left}"
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def server(shared):
    yield shared
    if not support.PEER:
        assert shared.process.poll() is None, f"the server is gone: {shared.said()}"
    shared.free(5)


@pytest.fixture
def fresh(tmp_path):
    """Makes servers of the test's own: fresh(*options)."""
    support.only_uplake("it is about the server's start and end")
    lake = support.make_lake(tmp_path)
    made = []

    def start(*options, **more):
        folder = tmp_path / f"server-{len(made)}"
        folder.mkdir()
        made.append(support.Server(folder, lake, *options, **more))
        return made[-1]

    yield start
    for server in made:
        server.stop()


def pytest_pycollect_makeitem(collector, name, obj):
    """Only functions that a test file defines itself are tests, not those it imports."""
    if getattr(obj, "__module__", collector.module.__name__) != collector.module.__name__:
        return []
    return None
