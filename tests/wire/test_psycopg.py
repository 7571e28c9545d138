"""psycopg 3: text and binary, statements that it prepares, cursors, cancel, COPY, transactions."""

import concurrent.futures
import datetime as dt
import decimal
import threading
import time

import pytest
import support
from cases import ALL, ERRORS, LIST_PARAMETERS, PARAMETERS, same

psycopg = support.module("psycopg", "psycopg[binary]")
from psycopg import sql as sqls


def _connect(server, **more):
    return psycopg.connect(**server.words, dbname=support.DATABASE, **({"autocommit": True} | more))


@pytest.fixture
def connection(server):
    with _connect(server) as connected:
        yield connected


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize("name", ALL)
def type_comes_as_its_value(connection, name, binary):
    sql, oid, _, expected = ALL[name]
    cursor = connection.execute(f"select {sql} as v", binary=binary)
    assert cursor.description[0].name == "v" and cursor.description[0].type_code == oid
    (value,) = cursor.fetchone()
    assert same(value, expected), (value, expected)


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def a_row_of_every_type_at_once(connection, binary):
    columns = ", ".join(f"{ALL[name][0]} as c{n}" for n, name in enumerate(ALL))
    row = connection.execute(f"select {columns}", binary=binary).fetchone()
    wrong = {name: value for name, value in zip(ALL, row) if not same(value, ALL[name][3])}
    assert not wrong


@pytest.mark.parametrize("form", ["%t", "%b"], ids=["text", "binary"])
@pytest.mark.parametrize("name", PARAMETERS)
def parameter_comes_back(connection, name, form):
    kind, value = PARAMETERS[name]
    (got,) = connection.execute(f"select {form}::{kind} as v", [value]).fetchone()
    if isinstance(value, decimal.Decimal):
        assert got == value
    else:
        assert same(got, value), (got, value)


@pytest.mark.parametrize("form", ["%t", "%b"], ids=["text", "binary"])
@pytest.mark.parametrize("name", LIST_PARAMETERS)
def list_comes_back(connection, name, form):
    kind, value = LIST_PARAMETERS[name]
    (got,) = connection.execute(f"select {form}::{kind} as v", [value]).fetchone()
    assert same(got, value), (got, value)


def a_cursor_is_declared_with_values(server):
    with _connect(server, autocommit=False) as connection, connection.cursor("found", binary=True) as cursor:
        cursor.execute("select id, name from people where name = %s or id = any(%s) order by id", ["Ada", [2]])
        assert cursor.fetchall() == [(1, "Ada"), (2, "naïve ☃ 😀")]
    with _connect(server) as connection, pytest.raises(psycopg.errors.NoActiveSqlTransaction):
        connection.execute("declare c cursor for select id from people where id = %s", [1])


def parameters_find_rows(connection):
    def ids(where, *values):
        return [i for (i,) in connection.execute(f"select id from people where {where} order by id", values)]

    assert ids("id = %s", 2) == [2]
    assert ids("name = %s", "naïve ☃ 😀") == [2]
    assert ids("name = %s", "") == [3]
    assert ids("born > %s", dt.date(2000, 1, 1)) == [2, 4]
    assert ids("seen = %s", dt.datetime(2026, 11, 1, 10, 0, 0, 1)) == [1]
    assert ids("score < %s", 0.0) == [2]
    assert ids("id = any(%s)", [1, 3, 99]) == [1, 3]
    assert ids("name = any(%s)", ["Ada", "nobody"]) == [1]
    assert ids("name = %s", "'; drop table people; --") == []


def statement_run_ten_times_is_prepared_and_answers_alike(connection):
    for n in range(10):
        rows = connection.execute("select id, name from numbers where id = %s", [n + 1]).fetchall()
        assert rows == [(n + 1, f"n{n + 1}")]
    # Prepared at the sixth: from then on the answer's form is the one of before.
    for n in range(10):
        assert connection.execute("select count(*) as n from numbers where digit = %s", [n]).fetchone() == (1000,)


def prepared_statements_are_many(connection):
    connection.prepare_threshold = 0
    for n in range(150):  # psycopg keeps 100 and deallocates the rest
        assert connection.execute(f"select {n} + %s::bigint as v", [1]).fetchone() == (n + 1,)


def many_rows_at_once_by_executemany(connection):
    with connection.cursor() as cursor:
        cursor.executemany("select %s::bigint as v", [(n,) for n in range(50)], returning=True)
        found = [cursor.fetchone()[0]]
        while cursor.nextset():
            found.append(cursor.fetchone()[0])
    assert found == list(range(50))


def pipeline_of_statements(connection):
    with connection.pipeline():
        cursors = [connection.execute("select %s::bigint as v", [n]) for n in range(20)]
    assert [c.fetchone()[0] for c in cursors] == list(range(20))


def named_cursor_fetches_piece_by_piece(server):
    with _connect(server, autocommit=False) as connection:
        with connection.cursor("pieces") as cursor:
            cursor.itersize = 1000
            cursor.execute("select id from numbers where id > %s order by id", [10])
            assert [i for (i,) in cursor] == list(range(11, 10_001))
        with connection.cursor("part") as cursor:
            cursor.execute("select id from numbers order by id")
            assert cursor.fetchmany(3) == [(1,), (2,), (3,)]
            assert cursor.fetchone() == (4,)
            cursor.scroll(5)
            assert cursor.fetchone() == (10,)
        # Closed before its end; the connection is good for more.
        assert connection.execute("select 1 as v").fetchone() == (1,)


def rows_come_one_by_one_by_stream(connection):
    with connection.cursor() as cursor:
        rows = cursor.stream("select id from numbers order by id")
        assert [next(rows) for _ in range(3)] == [(1,), (2,), (3,)]
        assert sum(1 for _ in rows) == 9997


def cancel_ends_the_statement_and_frees_the_slot(server, connection):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(connection.execute, support.LONG)
        server.runs()
        connection.cancel_safe()
        with pytest.raises(psycopg.errors.QueryCanceled):
            asked.result(10)
    server.free()
    assert connection.execute("select 1 as v").fetchone() == (1,)


def cancel_of_a_connection_that_runs_nothing_does_nothing(connection):
    connection.cancel_safe()
    assert connection.execute("select 1 as v").fetchone() == (1,)


def cancel_stops_no_other(server, connection):
    with _connect(server) as other, concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(connection.execute, support.LONG)
        server.runs()
        other.cancel_safe()
        time.sleep(0.2)
        assert not asked.done()
        connection.cancel_safe()
        with pytest.raises(psycopg.errors.QueryCanceled):
            asked.result(10)


def statement_timeout_ends_a_statement(server, connection):
    connection.execute("set statement_timeout = '200ms'")
    began = time.monotonic()
    with pytest.raises(psycopg.errors.QueryCanceled) as stopped:
        connection.execute(support.LONG)
    assert stopped.value.sqlstate == "57014" and time.monotonic() - began < 5
    server.free()
    connection.execute("set statement_timeout = 0")
    assert connection.execute("select 1 as v").fetchone() == (1,)


@pytest.mark.parametrize("name", ERRORS)
def error_is_the_drivers_class_for_its_code(connection, name):
    sql, code, position = ERRORS[name]
    with pytest.raises(psycopg.Error) as failed:
        connection.execute(sql)
    assert failed.value.sqlstate == code
    if position:
        assert failed.value.diag.statement_position == str(position)


def a_transaction_that_failed_takes_nothing_until_rollback(server):
    with _connect(server, autocommit=False) as connection:
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("select * from nowhere")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("select 1 as v")
        connection.rollback()
        assert connection.execute("select 1 as v").fetchone() == (1,)


def a_transaction_sees_one_version_of_a_table(server, connection):
    connection.execute("create table seen_once (id bigint)")
    try:
        with _connect(server, autocommit=False) as reader:
            reader.execute("set transaction isolation level repeatable read")
            assert reader.execute("select count(*) from seen_once").fetchone() == (0,)
            connection.execute("insert into seen_once values (1)")
            assert reader.execute("select count(*) from seen_once").fetchone() == (0,)
            reader.commit()
            assert reader.execute("select count(*) from seen_once").fetchone() == (1,)
    finally:
        connection.execute("drop table seen_once")


@pytest.mark.parametrize("end, rows", [("commit", 3), ("rollback", 0)])
def writes_of_a_transaction_are_seen_after_commit_alone(server, connection, end, rows):
    connection.execute("create table written (id bigint)")
    try:
        with _connect(server, autocommit=False) as writer:
            writer.execute("insert into written values (1)")
            writer.execute("insert into written values (%s), (%s)", [2, 3])
            assert connection.execute("select count(*) from written").fetchone() == (0,)
            getattr(writer, end)()
        assert connection.execute("select count(*) from written").fetchone() == (rows,)
    finally:
        connection.execute("drop table written")


def a_connection_lost_in_a_transaction_writes_nothing(server, connection):
    connection.execute("create table lost (id bigint)")
    try:
        writer = _connect(server, autocommit=False)
        writer.execute("insert into lost values (1)")
        writer.pgconn.finish()
        server.free()
        assert connection.execute("select count(*) from lost").fetchone() == (0,)
    finally:
        connection.execute("drop table lost")


def rows_written_are_counted(connection):
    connection.execute("create table counted (id bigint, name text)")
    try:
        assert connection.execute("insert into counted values (1, 'a'), (2, null)").rowcount == 2
        assert connection.execute("delete from counted where id = %s", [1]).rowcount == 1
        assert connection.execute("select * from counted").fetchall() == [(2, None)]
    finally:
        connection.execute("drop table counted")


def settings_are_set_shown_and_reset(connection):
    def shown(name):
        return connection.execute(f"show {name}").fetchone()[0]

    connection.execute("set application_name = 'told'")
    assert shown("application_name") == "told"
    assert connection.info.parameter_status("application_name") == "told"
    connection.execute("set time zone 'Europe/Berlin'")
    assert shown("timezone") == "Europe/Berlin"
    # Postgres gives the timestamp in the zone; the moment is the same.
    (seen,) = connection.execute("select '2026-07-01 12:00:00+00'::timestamp with time zone as v").fetchone()
    assert seen == dt.datetime(2026, 7, 1, 12, tzinfo=dt.timezone.utc)
    connection.execute("reset all")
    assert shown("timezone") == "UTC"
    assert connection.execute("select set_config('application_name', 'x', false)").fetchone() == ("x",)
    assert connection.execute("select current_setting('application_name')").fetchone() == ("x",)
    with pytest.raises(psycopg.errors.UndefinedObject):
        connection.execute("set no_such_setting = 1")
    with pytest.raises(psycopg.errors.UndefinedObject):
        connection.execute("show no_such_setting")


def a_setting_is_its_connections_alone(server, connection):
    with _connect(server) as other:
        connection.execute("set statement_timeout = '1h'")
        assert other.execute("show statement_timeout").fetchone() != ("1h",)


def set_local_ends_with_its_transaction(server):
    with _connect(server, autocommit=False) as connection:
        connection.execute("set local statement_timeout = '77s'")
        assert connection.execute("show statement_timeout").fetchone() == ("77s",)
        connection.commit()
        assert connection.execute("show statement_timeout").fetchone() != ("77s",)


def options_of_the_connection_are_settings(server):
    with _connect(server, options="-c statement_timeout=55s", application_name="named") as connection:
        assert connection.execute("show statement_timeout").fetchone() == ("55s",)
        assert connection.execute("show application_name").fetchone() == ("named",)


def several_statements_in_one_text_give_several_answers(connection):
    cursor = connection.execute("select 1 as a; select id from people order by id limit 2")
    assert cursor.fetchall() == [(1,)]
    assert cursor.nextset() and cursor.fetchall() == [(1,), (2,)]
    assert not cursor.nextset()


# COPY

PEOPLE = "select id, name, score from people order by id"


def copy_out_as_text(connection):
    with connection.cursor() as cursor, cursor.copy(f"copy ({PEOPLE}) to stdout") as copy:
        text = b"".join(bytes(part) for part in copy).decode()
    assert text.splitlines() == ["1\tAda\t1.5", "2\tnaïve ☃ 😀\t-0.25", "3\t\t0", "4\t\\N\t\\N"]


def copy_out_as_csv(connection):
    with connection.cursor() as cursor, cursor.copy(f"copy ({PEOPLE}) to stdout (format csv, header)") as copy:
        text = b"".join(bytes(part) for part in copy).decode()
    assert text.splitlines() == ["id,name,score", "1,Ada,1.5", "2,naïve ☃ 😀,-0.25", '3,"",0', "4,,"]


def copy_out_as_binary(connection):
    with connection.cursor() as cursor, cursor.copy(f"copy ({PEOPLE}) to stdout (format binary)") as copy:
        copy.set_types(["int8", "text", "float8"])
        assert list(copy.rows()) == [(1, "Ada", 1.5), (2, "naïve ☃ 😀", -0.25), (3, "", 0.0), (4, None, None)]


def copy_out_of_a_whole_table(connection):
    with connection.cursor() as cursor, cursor.copy("copy numbers to stdout") as copy:
        assert b"".join(bytes(part) for part in copy).count(b"\n") == 10_000


@pytest.fixture
def filled(connection):
    connection.execute("create table copied (id bigint, name text, score double precision)")
    yield connection
    connection.rollback()
    connection.execute("drop table copied")


def _copied(connection):
    return connection.execute("select * from copied order by id").fetchall()


ROWS = [(1, "a\tb\\c", 1.5), (2, "naïve ☃\n2", None), (3, "", 0.0), (4, None, -1e300)]


def copy_in_rows_as_text(filled):
    with filled.cursor() as cursor:
        with cursor.copy("copy copied from stdin") as copy:
            for row in ROWS:
                copy.write_row(row)
        assert cursor.rowcount == 4
    assert _copied(filled) == ROWS


def copy_in_rows_as_binary(filled):
    with filled.cursor() as cursor, cursor.copy("copy copied from stdin (format binary)") as copy:
        copy.set_types(["int8", "text", "float8"])
        for row in ROWS:
            copy.write_row(row)
    assert _copied(filled) == ROWS


def copy_in_csv_of_some_columns(filled):
    with filled.cursor() as cursor:
        with cursor.copy("copy copied (name, id) from stdin (format csv, header)") as copy:
            copy.write('name,id\n"a, ""b""",1\n,2\n"",3\n')
    assert _copied(filled) == [(1, 'a, "b"', None), (2, None, None), (3, "", None)]


def copy_in_cut_anywhere(filled):
    text = "".join(f"{n}\tname {n}\t{n}.5\n" for n in range(2000)).encode()
    with filled.cursor() as cursor, cursor.copy("copy copied from stdin") as copy:
        for at in range(0, len(text), 7):
            copy.write(text[at : at + 7])
    rows = _copied(filled)
    assert len(rows) == 2000 and rows[1234] == (1234, "name 1234", 1234.5)


@pytest.mark.parametrize(
    "options, text",
    [
        ("", "1\ta\t1.5\ntwo\tb\t2.5\n"),
        ("(format csv)", "1,a,1.5\ntwo,b,2.5\n"),
        ("", "1\ta\t1.5\n2\tb\n"),
        ("(format csv)", "1,a,1.5\n2,b\n"),
    ],
    ids=["text that is no number", "csv that is no number", "text of too few", "csv of too few"],
)
def copy_in_with_a_bad_row_writes_nothing_and_names_it(filled, options, text):
    with pytest.raises(psycopg.Error) as failed, filled.cursor() as cursor:
        with cursor.copy(f"copy copied from stdin {options}") as copy:
            copy.write(text)
    # Postgres has 22P02 for the value and 22P04 for the row; the lake says 22P04 to both.
    assert failed.value.sqlstate in ("22P02", "22P04")
    assert "line 2" in f"{failed.value.diag.context} {failed.value}"
    assert _copied(filled) == []


def copy_in_that_the_client_gives_up_writes_nothing(filled):
    with pytest.raises(RuntimeError), filled.cursor() as cursor:
        with cursor.copy("copy copied from stdin") as copy:
            copy.write("1\ta\t1.5\n")
            raise RuntimeError("given up")
    assert _copied(filled) == []


def copy_in_of_a_transaction_is_seen_after_commit(server, filled):
    with _connect(server, autocommit=False) as writer:
        with writer.cursor() as cursor, cursor.copy("copy copied from stdin") as copy:
            copy.write_row((1, "a", 1.5))
        assert _copied(filled) == []
        writer.commit()
    assert _copied(filled) == [(1, "a", 1.5)]


# Many at once

def fifty_connections_ask_at_once(server):
    def ask(n):
        with _connect(server) as connection:
            return [
                connection.execute("select count(*) from numbers where digit = %s", [n % 10]).fetchone()
                for _ in range(5)
            ]

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        assert set(map(tuple, pool.map(ask, range(50)))) == {((1000,),) * 5}


def cancels_at_once_stop_their_own_alone(server):
    connections = [_connect(server) for _ in range(12)]
    stopped = connections[::2]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        sql = "select count(*) from numbers a, numbers b where b.id <= 500 and a.id + b.id = -1"
        asked = {c: pool.submit(c.execute, support.LONG if c in stopped else sql) for c in connections}
        server.runs()
        time.sleep(0.3)
        for connection in stopped:
            threading.Thread(target=connection.cancel_safe).start()
        for connection in stopped:
            with pytest.raises(psycopg.errors.QueryCanceled):
                asked[connection].result(60)
        for connection in connections[1::2]:
            assert asked[connection].result(60).fetchone() == (0,)
    for connection in connections:
        connection.close()


def quoted_names_are_kept(connection):
    name = 'Ab "c" é'
    query = sqls.SQL("select 1 as {}").format(sqls.Identifier(name))
    assert connection.execute(query).description[0].name == name
