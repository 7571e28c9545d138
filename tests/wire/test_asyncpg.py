"""asyncpg: binary values both ways, statements described before they are bound, pools."""

import asyncio
import decimal
import time

import pytest
import support
from cases import ALL, ERRORS, LIST_PARAMETERS, PARAMETERS, same

asyncpg = support.module("asyncpg", "asyncpg")


def _run(server, work, **more):
    """Runs work(connection) to its end."""

    async def connected():
        connection = await asyncpg.connect(**server.words, database=support.DATABASE, ssl=False, **more)
        try:
            return await work(connection)
        finally:
            await connection.close(timeout=5)

    return asyncio.run(asyncio.wait_for(connected(), 90))


@pytest.mark.parametrize("name", ALL)
def type_comes_as_its_value(server, name):
    sql, _, _, expected = ALL[name]
    value = _run(server, lambda c: c.fetchval(f"select {sql} as v"))
    assert same(value, expected), (value, expected)


@pytest.mark.parametrize("name", PARAMETERS)
def parameter_comes_back(server, name):
    kind, value = PARAMETERS[name]
    got = _run(server, lambda c: c.fetchval(f"select $1::{kind} as v", value))
    assert got == value if kind.startswith("decimal") else same(got, value)


@pytest.mark.parametrize("name", LIST_PARAMETERS)
def list_comes_back(server, name):
    kind, value = LIST_PARAMETERS[name]
    got = _run(server, lambda c: c.fetchval(f"select $1::{kind} as v", value))
    assert same(got, value), (got, value)


def lists_are_parameters(server):
    async def work(connection):
        sql = "select id from people where id = any($1::bigint[]) order by id"
        assert [r["id"] for r in await connection.fetch(sql, [1, 3, 99, None])] == [1, 3]
        sql = "select id from people where name = any($1::text[])"
        assert [r["id"] for r in await connection.fetch(sql, ["Ada", None])] == [1]

    _run(server, work)


def types_of_parameters_are_inferred(server):
    async def work(connection):
        sql = "select name from people where id = $1 and score > $2 and born < $3 and seen > $4"
        statement = await connection.prepare(sql)
        assert [p.name for p in statement.get_parameters()] == ["int8", "float8", "date", "timestamp"]
        assert [(a.name, a.type.name) for a in statement.get_attributes()] == [("name", "text")]

    _run(server, work)


def types_of_parameters_are_those_of_casts_lists_and_limits(server):
    async def types(connection, sql):
        return [p.name for p in (await connection.prepare(sql)).get_parameters()]

    async def work(connection):
        for sql, expected in (
            ("select $1::int, cast($2 as date)", ["int4", "date"]),
            ("select id from people where id = any($1) and name <> all($2)", ["int8[]", "text[]"]),
            ("select id from people where $1 in (id) and born between $2 and $3", ["int8", "date", "date"]),
            ("select id from people where name like $1 limit $2 offset $3", ["text", "int8", "int8"]),
            ("select upper($1), seen + $2 from people", ["text", "interval"]),
            ("insert into filled (name, id) values ($1, $2)", ["text", "int8"]),
            ("insert into filled (name, id) select $1, $2", ["text", "int8"]),
            ("delete from filled where score > $1", ["float8"]),
            ("select $1 as v", ["text"]),
        ):
            assert await types(connection, sql) == expected, sql

    _run(server, work)


def a_decimal_is_rounded_by_its_cast_and_compared_as_it_is(server):
    async def work(connection):
        value = decimal.Decimal("1.005")
        assert await connection.fetchval("select $1::decimal(10,2)", value) == decimal.Decimal("1.01")
        sql = "select count(*) from (select 1.01::decimal(10,2) as q) t where q = $1"
        assert await connection.fetchval(sql, value) == 0
        assert await connection.fetchval(sql, decimal.Decimal("1.010")) == 1

    _run(server, work)


def statement_runs_ten_times_prepared(server):
    async def work(connection):
        statement = await connection.prepare("select name from numbers where id = $1")
        for n in range(1, 11):
            assert await statement.fetchval(n) == f"n{n}"
        for n in range(1, 11):  # from its own cache of statements
            assert await connection.fetchval("select digit from numbers where id = $1", n) == n % 10

    _run(server, work)


def cursor_of_a_transaction_fetches_pieces(server):
    async def work(connection):
        async with connection.transaction():
            found = []
            async for row in connection.cursor("select id from numbers order by id", prefetch=333):
                found.append(row["id"])
            assert found == list(range(1, 10_001))
            cursor = await connection.cursor("select id from numbers order by id")
            assert await cursor.forward(10) == 10
            assert [r["id"] for r in await cursor.fetch(2)] == [11, 12]

    _run(server, work)


def a_timeout_cancels_and_frees_the_slot(server):
    async def work(connection):
        with pytest.raises(asyncio.TimeoutError):
            await connection.fetch(support.LONG, timeout=0.3)
        began = time.monotonic()
        assert await connection.fetchval("select 1::bigint") == 1
        assert time.monotonic() - began < 2

    _run(server, work)
    server.free()


def a_task_that_is_cancelled_frees_the_slot(server):
    async def work(connection):
        task = asyncio.create_task(connection.fetch(support.LONG))
        await asyncio.to_thread(server.runs)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await connection.fetchval("select 1::bigint") == 1

    _run(server, work)
    server.free()


@pytest.mark.parametrize("name", ERRORS)
def error_is_the_drivers_class_for_its_code(server, name):
    sql, code, position = ERRORS[name]
    with pytest.raises(asyncpg.PostgresError) as failed:
        _run(server, lambda c: c.fetch(sql))
    assert failed.value.sqlstate == code
    if position:
        assert failed.value.position == str(position)


def a_pool_resets_what_a_user_of_it_set(server):
    async def pooled():
        words = server.words | {"database": support.DATABASE, "ssl": False}
        async with asyncpg.create_pool(**words, min_size=1, max_size=1) as pool:
            async with pool.acquire() as connection:
                before = await connection.fetchval("show statement_timeout")
                await connection.execute("set statement_timeout = '33s'")
                assert await connection.fetchval("show statement_timeout") == "33s"
            async with pool.acquire() as connection:  # SELECT pg_advisory_unlock_all(); CLOSE ALL; …
                assert await connection.fetchval("show statement_timeout") == before

    asyncio.run(asyncio.wait_for(pooled(), 60))


def a_pool_of_ten_serves_a_hundred(server):
    async def pooled():
        words = server.words | {"database": support.DATABASE, "ssl": False}
        async with asyncpg.create_pool(**words, min_size=10, max_size=10) as pool:
            asked = [pool.fetchval("select name from numbers where id = $1", n) for n in range(1, 101)]
            assert await asyncio.gather(*asked) == [f"n{n}" for n in range(1, 101)]

    asyncio.run(asyncio.wait_for(pooled(), 60))


def transactions_nest_as_far_as_nothing_is_written(server):
    async def work(connection):
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            async with connection.transaction():
                assert await connection.fetchval("select count(*) from people") == 4
        assert await connection.fetchval("select 1::bigint") == 1

    _run(server, work)


def copy_both_ways(server):
    async def work(connection):
        await connection.execute("create table copied3 (id bigint, name text, score double precision)")
        try:
            rows = [(1, "Ada", 1.5), (2, None, None), (3, "naïve ☃", -0.25)]
            assert await connection.copy_records_to_table("copied3", records=rows) == "COPY 3"
            assert list(map(tuple, await connection.fetch("select * from copied3 order by id"))) == rows
            parts = []

            async def keep(part):
                parts.append(part)

            sql = "select * from copied3 order by id"
            assert await connection.copy_from_query(sql, output=keep, format="csv") == "COPY 3"
            assert b"".join(parts).decode() == "1,Ada,1.5\n2,,\n3,naïve ☃,-0.25\n"
        finally:
            await connection.execute("drop table copied3")

    _run(server, work)


def executemany_inserts_by_parameters(server):
    async def work(connection):
        await connection.execute("create table many3 (id bigint, name text)")
        try:
            rows = [(n, f"n{n}") for n in range(20)]
            await connection.executemany("insert into many3 values ($1, $2)", rows)
            assert list(map(tuple, await connection.fetch("select * from many3 order by id"))) == rows
        finally:
            await connection.execute("drop table many3")

    _run(server, work)
