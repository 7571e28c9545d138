"""psycopg2: what it sends is simple queries with the values written into them."""

import concurrent.futures
import datetime as dt
import io

import pytest
import support
from cases import PARAMETERS, SCALARS, same

psycopg2 = support.module("psycopg2", "psycopg2-binary")
import psycopg2.extras


def _connect(server):
    return psycopg2.connect(**server.words, dbname=support.DATABASE)


@pytest.fixture
def connection(server):
    connected = _connect(server)
    connected.autocommit = True
    yield connected
    connected.close()


def _one(connection, sql, *values):
    with connection.cursor() as cursor:
        cursor.execute(sql, values or None)
        return cursor.fetchone()[0]


@pytest.mark.parametrize("name", SCALARS)
def type_comes_as_its_value(connection, name):
    sql, _, _, expected = SCALARS[name]
    value = _one(connection, f"select {sql} as v")
    assert same(value, expected), (value, expected)


@pytest.mark.parametrize("name", PARAMETERS)
def parameter_comes_back(connection, name):
    kind, value = PARAMETERS[name]
    got = _one(connection, f"select %s::{kind} as v", value)
    assert got == value if kind.startswith("decimal") else same(got, value)


def lists_both_ways(connection):
    assert _one(connection, "select array[1::bigint, null, 3::bigint] as v") == [1, None, 3]
    assert _one(connection, "select count(*) from people where id in %s", (1, 2, 9)) == 2
    assert _one(connection, "select count(*) from people where id = any(%s)", [1, 2, 9]) == 2


def named_cursor_fetches_piece_by_piece(server):
    connection = _connect(server)
    with connection, connection.cursor("pieces") as cursor:
        cursor.itersize = 500
        cursor.execute("select id from numbers order by id")
        assert [i for (i,) in cursor] == list(range(1, 10_001))
    connection.close()


def cancel_ends_the_statement(server, connection):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(_one, connection, support.LONG)
        server.runs()
        connection.cancel()
        with pytest.raises(psycopg2.errors.QueryCanceled):
            asked.result(10)
    server.free()
    assert _one(connection, "select 1 as v") == 1


def a_transaction_ends_by_rollback_after_an_error(server):
    connection = _connect(server)
    with connection.cursor() as cursor:
        with pytest.raises(psycopg2.errors.UndefinedColumn):
            cursor.execute("select nope from people")
        with pytest.raises(psycopg2.errors.InFailedSqlTransaction):
            cursor.execute("select 1")
        connection.rollback()
        cursor.execute("select 1")
        assert cursor.fetchone() == (1,)
    connection.close()


def copy_both_ways(connection):
    with connection.cursor() as cursor:
        cursor.execute("create table copied2 (id bigint, name text, day date)")
        try:
            cursor.copy_expert("copy copied2 from stdin (format csv)", io.StringIO("1,a,2026-01-31\n2,,\n"))
            out = io.StringIO()
            cursor.copy_expert("copy (select * from copied2 order by id) to stdout", out)
            assert out.getvalue() == "1\ta\t2026-01-31\n2\t\\N\t\\N\n"
        finally:
            cursor.execute("drop table copied2")


def execute_values_inserts_many(connection):
    with connection.cursor() as cursor:
        cursor.execute("create table valued (id bigint, name text, day date)")
        try:
            rows = [(n, f"n'{n}", dt.date(2026, 1, 1)) for n in range(250)]
            psycopg2.extras.execute_values(cursor, "insert into valued values %s", rows)
            cursor.execute("select * from valued order by id")
            assert cursor.fetchall() == rows
        finally:
            cursor.execute("drop table valued")


def rows_as_dicts(connection):
    with connection.cursor(cursor_factory=psycopg2.extras.RealDictCursor) as cursor:
        cursor.execute("select id, name from people where id = 1")
        assert dict(cursor.fetchone()) == {"id": 1, "name": "Ada"}
