"""pg8000: a driver in Python alone; sends unnamed statements and leaves types of values to the server."""

import pytest
import support
from cases import PARAMETERS, SCALARS, same

support.module("pg8000", "pg8000")
import pg8000.native

# It gives texts, or structures of its own, for these.
OTHERWISE = {"bytea", "interval", "days", "negative interval", "mixed interval", "difference of timestamps"}


@pytest.fixture
def connection(server):
    words = server.words | {"database": support.DATABASE}
    with pg8000.native.Connection(**words) as connected:
        yield connected


@pytest.mark.parametrize("name", [n for n in SCALARS if n not in OTHERWISE])
def type_comes_as_its_value(connection, name):
    sql, _, _, expected = SCALARS[name]
    ((value,),) = connection.run(f"select {sql} as v")
    assert same(value, expected), (value, expected)


@pytest.mark.parametrize("name", [n for n in PARAMETERS if n not in OTHERWISE])
def parameter_comes_back(connection, name):
    kind, value = PARAMETERS[name]
    ((got,),) = connection.run(f"select cast(:v as {kind}) as v", v=value)
    assert got == value if kind.startswith("decimal") else same(got, value)


def rows_are_found_by_parameters(connection):
    sql = "select name from people where id = :id and score > :score"
    assert connection.run(sql, id=1, score=1.0) == [["Ada"]]
    assert [c["name"] for c in connection.columns] == ["name"]


def statement_is_prepared_and_run_ten_times(connection):
    statement = connection.prepare("select name from numbers where id = :id")
    assert [statement.run(id=n) for n in range(1, 11)] == [[[f"n{n}"]] for n in range(1, 11)]
    statement.close()


def error_has_its_code(connection):
    with pytest.raises(pg8000.native.DatabaseError) as failed:
        connection.run("select * from nowhere")
    assert failed.value.args[0]["C"] == "42P01"
    assert connection.run("select 1 as v") == [[1]]


def transaction_rolls_back_after_an_error(connection):
    connection.run("start transaction")
    with pytest.raises(pg8000.native.DatabaseError):
        connection.run("select nope from people")
    with pytest.raises(pg8000.native.DatabaseError) as failed:
        connection.run("select 1 as v")
    assert failed.value.args[0]["C"] == "25P02"
    connection.run("rollback")
    assert connection.run("select 1 as v") == [[1]]
