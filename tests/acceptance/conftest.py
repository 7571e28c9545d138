"""Fixtures of the acceptance tests. Every test gets a lake of its own in a fresh folder."""

import pytest

import support


def pytest_report_header():
    return f"uplake: {support.BINARY} ({support.version()})"


@pytest.fixture
def lake(tmp_path):
    return support.Lake(tmp_path / "lake", tmp_path)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "in"
    path.mkdir()
    return path


def pytest_pycollect_makeitem(collector, name, obj):
    """Only functions that a test file defines itself are tests, not those it imports."""
    if getattr(obj, "__module__", collector.module.__name__) != collector.module.__name__:
        return []
    return None
