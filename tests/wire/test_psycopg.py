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


@pytest.fixture
def two(connection):
    connection.execute("create table first_of_two (id bigint, name text)")
    connection.execute("create table second_of_two (id bigint)")
    connection.execute("insert into first_of_two values (1, 'a'), (2, 'b')")
    yield connection
    for name in ("first_of_two", "second_of_two"):
        connection.execute(f"drop table {name}")


def _ids(connection, table="first_of_two"):
    return [i for (i,) in connection.execute(f"select id from {table} order by id")]


def a_transaction_reads_what_it_has_written(server, two):
    with _connect(server, autocommit=False) as writer:
        writer.execute("insert into first_of_two values (3, 'c')")
        assert _ids(writer) == [1, 2, 3]
        assert writer.execute("delete from first_of_two where id <> 2").rowcount == 2
        assert _ids(writer) == [2]
        with writer.cursor() as cursor, cursor.copy("copy first_of_two (id) from stdin") as copy:
            copy.write("7\n8\n")
        writer.execute("insert into first_of_two select id + 10, name from first_of_two where id = 7")
        assert _ids(writer) == [2, 7, 8, 17] and _ids(two) == [1, 2]
        writer.commit()
        assert _ids(two) == [2, 7, 8, 17]
        # Another one begins.
        writer.execute("delete from first_of_two")
        writer.rollback()
        assert _ids(writer) == [2, 7, 8, 17]


def savepoints_take_back_what_came_after_them(server, two):
    with _connect(server, autocommit=False) as writer:
        writer.execute("insert into first_of_two values (3, 'c')")
        with pytest.raises(ZeroDivisionError), writer.transaction():
            writer.execute("insert into first_of_two values (4, 'd')")
            writer.execute("delete from first_of_two where id = 1")
            assert _ids(writer) == [2, 3, 4]
            raise ZeroDivisionError
        assert _ids(writer) == [1, 2, 3]
        with writer.transaction():
            writer.execute("insert into first_of_two values (5, 'e')")
        # A statement that fails is taken back, and what was before it stays.
        writer.execute("savepoint a")
        writer.execute("insert into first_of_two values (6, 'f')")
        with pytest.raises(psycopg.errors.UndefinedTable):
            writer.execute("insert into first_of_two select id from nowhere")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            writer.execute("select 1")
        writer.execute("rollback to savepoint a")
        assert _ids(writer) == [1, 2, 3, 5]
        writer.execute("release savepoint a")
        with pytest.raises(psycopg.errors.InvalidSavepointSpecification):
            writer.execute("rollback to a")
        writer.rollback()
        assert _ids(two) == [1, 2]
        writer.execute("insert into first_of_two values (3, 'c')")
        writer.execute("savepoint a")
        writer.execute("insert into first_of_two values (4, 'd')")
        writer.execute("rollback to a")
        writer.execute("insert into first_of_two values (5, 'e')")
        writer.commit()
    assert _ids(two) == [1, 2, 3, 5]


def a_transaction_writes_into_one_table(server, two):
    support.only_uplake("a commit is one table's")
    with _connect(server, autocommit=False) as writer:
        writer.execute("insert into first_of_two values (3, 'c')")
        with pytest.raises(psycopg.errors.FeatureNotSupported) as refused:
            writer.execute("insert into second_of_two values (1)")
        assert "COMMIT" in refused.value.diag.message_hint
        writer.rollback()
        writer.execute("insert into second_of_two values (1)")
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            writer.execute("create table third_of_two (id bigint)")
        writer.rollback()
    assert _ids(two) == [1, 2] and _ids(two, "second_of_two") == []


def of_two_transactions_that_replace_the_same_rows_one_commits(server, two):
    support.only_uplake("Postgres lets the second wait for the first")
    with _connect(server, autocommit=False) as one, _connect(server, autocommit=False) as other:
        one.execute("delete from first_of_two where id = 1")
        other.execute("delete from first_of_two where id = 2")
        # Rows that others add are in nobody's way.
        two.execute("insert into first_of_two values (3, 'c')")
        one.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            other.commit()
        assert other.execute("select 1 as v").fetchone() == (1,)
    assert _ids(two) == [2, 3]


def a_setting_leaves_a_transaction_as_it_is(server, two):
    with _connect(server, autocommit=False) as writer:
        writer.execute("insert into first_of_two values (3, 'c')")
        writer.execute("set statement_timeout = '1h'")
        if not support.PEER:
            writer.execute("set uplake.timeout = '1h'")
        assert _ids(writer) == [1, 2, 3]
        writer.commit()
    assert _ids(two) == [1, 2, 3]


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


BAD_COPIES = {
    # name: (options, bytes, code, context)
    "text that is no number": ("", b"1\ta\t1.5\ntwo\tb\t2\n", "22P02", 'COPY copied, line 2, column id: "two"'),
    "text of too few": ("", b"1\ta\t1\n2\tb\n", "22P04", 'COPY copied, line 2: "2\tb"'),
    "text of too many": ("", b"1\ta\t1\t2\n", "22P04", 'COPY copied, line 1: "1\ta\t1\t2"'),
    "the letters of NULL": ("", b"NULL\ta\t1\n", "22P02", 'COPY copied, line 1, column id: "NULL"'),
    "an empty number": ("", b"1\ta\t\n", "22P02", 'COPY copied, line 1, column score: ""'),
    "a number that is too large": ("", b"9223372036854775808\ta\t1\n", "22003", 'COPY copied, line 1, column id: "9223372036854775808"'),
    "bytes that are no UTF-8": ("", b"1\tab\xff\t1\n", "22021", None),
    "a zero byte": ("", b"1\ta\0\t1\n", "22021", None),
    "lines that end otherwise": ("", b"1\ta\t1\r\n2\tb\t2\n", "22P04", None),
    "a quote without end": ("(format csv)", b'1,"a,1\n2,b,2\n', "22P04", None),
    "csv that is no number": ("(format csv)", b"1,a,1.5\ntwo,b,2.5\n", "22P02", 'COPY copied, line 2, column id: "two"'),
    "csv behind a line of two": ("(format csv)", b'0,a,1\n1,"a\nb",1\nx,b,2\n', "22P02", 'COPY copied, line 4, column id: "x"'),
    "csv of too few": ("(format csv)", b"1,a,1.5\n2,b\n", "22P04", 'COPY copied, line 2: "2,b"'),
    "csv of too many": ("(format csv)", b"1,a,1,\n", "22P04", 'COPY copied, line 1: "1,a,1,"'),
    "a header of other names": ("(format csv, header match)", b"id,nme,score\n1,a,1\n", "22P04", 'COPY copied, line 1: "id,nme,score"'),
    "a header of fewer names": ("(format csv, header match)", b"id,name\n1,a,1\n", "22P04", 'COPY copied, line 1: "id,name"'),
    "text for binary": ("(format binary)", b"1\ta\t1.5\nand so on\n", "22P04", None),
}


@pytest.mark.parametrize("name", BAD_COPIES)
def copy_in_with_a_bad_row_writes_nothing_and_names_it(filled, name):
    options, data, code, context = BAD_COPIES[name]
    with pytest.raises(psycopg.Error) as failed, filled.cursor() as cursor:
        with cursor.copy(f"copy copied from stdin {options}") as copy:
            copy.write(data)
    diag = failed.value.diag
    assert diag.sqlstate == code, str(failed.value)
    assert context is None or diag.context == context, diag.context
    assert _copied(filled) == []


GOOD_COPIES = {
    # name: (options, bytes, rows of id and name)
    "escapes": ("", rb"1	a\tb\nc\\d\101\x41\q" b"\n2\t\\N\n3\t\\\\N\n4\t\n", [
        (1, "a\tb\nc\\dAAq"), (2, None), (3, "\\N"), (4, "")]),
    "a tab and a line's end behind backslashes": ("", b"1\ta\\\tb\\\nc\n", [(1, "a\tb\nc")]),
    "the end": ("", b"1\ta\n\\.\nwhat comes is not read", [(1, "a")]),
    "no end of the last line": ("", b"1\ta\n2\tb", [(1, "a"), (2, "b")]),
    "lines that end as Windows' do": ("", b"1\ta\r\n2\tb\r\n", [(1, "a"), (2, "b")]),
    "lines that end as old Macs' do": ("", b"1\ta\r2\tb\r", [(1, "a"), (2, "b")]),
    "another null and delimiter": ("(delimiter '|', null '')", b"1|\n2|x\n", [(1, None), (2, "x")]),
    "text with a header": ("(header)", b"a\tb\n1\tx\n", [(1, "x")]),
    "csv": ("(format csv)", b'1,a\n2,\n3,""\n4,"a ""b"", c"\n5,"x\ny"\n6, z\n7,p"q,r"s\n', [
        (1, "a"), (2, None), (3, ""), (4, 'a "b", c'), (5, "x\ny"), (6, " z"), (7, "pq,rs")]),
    "csv with other signs": (
        "(format csv, delimiter ';', quote '|', escape '!', null 'nil')", b"1;|a!|b;!!|\n2;nil\n3;|nil|\n",
        [(1, "a|b;!"), (2, None), (3, "nil")]),
    "forced nulls": (
        "(format csv, null 'x', force_null (name))", b'1,x\n2,"x"\n3,\n', [(1, None), (2, None), (3, "")]),
    "forced texts": ("(format csv, null 'x', force_not_null (name))", b'1,x\n2,"x"\n', [(1, "x"), (2, "x")]),
    "a header that matches": ("(format csv, header match)", b"id,name\n1,a\n", [(1, "a")]),
    "the old form": ("with csv header quote as '!'", b"id,name\n1,!a,b!\n", [(1, "a,b")]),
    "nothing": ("(format csv, header)", b"", []),
}


@pytest.mark.parametrize("name", GOOD_COPIES)
def copy_in_is_read_as_it_is_written(filled, name):
    options, data, rows = GOOD_COPIES[name]
    with filled.cursor() as cursor:
        with cursor.copy(f"copy copied (id, name) from stdin {options}") as copy:
            for at in range(0, len(data), 3):
                copy.write(data[at : at + 3])
        assert cursor.rowcount == len(rows)
    assert filled.execute("select id, name from copied order by id").fetchall() == rows


FORMS = (
    r"1	t	-32768	2147483647	-9223372036854775808	1e-05	NaN	12345.6789	text	\\xdeadbeef"
    "	2026-11-26	2026-11-26 10:00:00.5	2026-07-01 12:00:00+02\n"
    r"2	no	 7 	+7	0	infinity	-1.5e300	-0.5		\\x"
    "	20260102	1969-12-31T23:59:59.999999	2026-07-01 12:00:00\n"
    "3" + r"	\N" * 12 + "\n"
)


def copy_in_reads_the_forms_of_every_type(connection):
    utc = dt.timezone.utc
    expected = [
        (1, True, -32768, 2147483647, -9223372036854775808, 1e-05, None, decimal.Decimal("12345.6789"), "text",
         b"\xde\xad\xbe\xef", dt.date(2026, 11, 26), dt.datetime(2026, 11, 26, 10, 0, 0, 500_000),
         dt.datetime(2026, 7, 1, 10, tzinfo=utc)),
        (2, False, 7, 7, 0, float("inf"), -1.5e300, decimal.Decimal("-0.5"), "", b"", dt.date(2026, 1, 2),
         dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(2026, 7, 1, 12, tzinfo=utc)),
        (3, *[None] * 12),
    ]
    columns = "id, b, s, i, n, r, nullif(d, 'NaN'::double precision) as d, q, x, y, day, at, z"
    try:
        with connection.cursor() as cursor, cursor.copy("copy every_type from stdin") as copy:
            copy.write(FORMS)
        found = connection.execute(f"select {columns} from every_type order by id").fetchall()
        assert [(*row[:5], row[5] and pytest.approx(row[5]), *row[6:]) for row in found] == expected
        # What comes out goes in again.
        connection.execute("set time zone 'Europe/Berlin'")
        for form in ("binary", "csv", "text"):
            with connection.cursor() as cursor:
                with cursor.copy(f"copy (select * from every_type where id <= 3) to stdout (format {form})") as copy:
                    data = b"".join(bytes(part) for part in copy)
                with cursor.copy(f"copy every_type from stdin (format {form})") as copy:
                    copy.write(data)
            some = "id, b, i, x, q, y, day, at, z"
            same = f"select count(*) from (select {some} from every_type group by {some}) t"
            assert connection.execute(same).fetchone() == (3,), form
    finally:
        connection.execute("reset time zone")
        connection.execute("delete from every_type")


def copy_in_of_arrays_and_of_moments_without_a_zone(connection):
    connection.execute("create table arrays (id bigint, a bigint[], t text[], z timestamp with time zone)")
    try:
        connection.execute("set time zone 'Europe/Berlin'")
        with connection.cursor() as cursor, cursor.copy("copy arrays from stdin") as copy:
            copy.write('1\t{1,NULL,3}\t{a,"b,c",""}\t2026-07-01 12:00:00\n2\t{}\t\\N\t\\N\n')
        rows = connection.execute("select * from arrays order by id").fetchall()
        moment = dt.datetime(2026, 7, 1, 10, tzinfo=dt.timezone.utc)
        assert rows == [(1, [1, None, 3], ["a", "b,c", ""], moment), (2, [], None, None)]
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            with connection.cursor() as cursor, cursor.copy("copy arrays (a) from stdin") as copy:
                copy.write("{1,x}\n")
    finally:
        connection.execute("reset time zone")
        connection.execute("drop table arrays")


def copy_in_of_columns_that_are_not_there(filled):
    for columns, code in (("id, nothing", "42703"), ("id, id", "42701")):
        with pytest.raises(psycopg.Error) as failed, filled.cursor() as cursor:
            with cursor.copy(f"copy copied ({columns}) from stdin"):
                pass
        assert failed.value.sqlstate == code
    with pytest.raises(psycopg.errors.UndefinedTable), filled.cursor() as cursor:
        with cursor.copy("copy nowhere from stdin"):
            pass


def copy_in_of_what_is_never_null(connection):
    connection.execute("create table never_null (id bigint not null, name text)")
    try:
        for columns, text in (("id, name", "1\ta\n\\N\tb\n"), ("name", "a\n")):
            with pytest.raises(psycopg.errors.NotNullViolation) as failed, connection.cursor() as cursor:
                with cursor.copy(f"copy never_null ({columns}) from stdin") as copy:
                    copy.write(text)
            assert failed.value.diag.context.startswith("COPY never_null, line ")
        assert connection.execute("select count(*) from never_null").fetchone() == (0,)
    finally:
        connection.execute("drop table never_null")


def copy_in_of_huge_rows(filled):
    long = "x" * (20 << 20)
    with filled.cursor() as cursor, cursor.copy("copy copied (id, name) from stdin") as copy:
        for n in range(3):
            copy.write(f"{n}\t{long}{n}\n")
    rows = filled.execute("select id, length(name), right(name, 1) from copied order by id").fetchall()
    assert rows == [(n, (20 << 20) + 1, str(n)) for n in range(3)]


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
        runs = lambda: sum(support.LONG in str(one) for one in server.running())
        support.within(20, lambda: runs() == len(stopped), "those to be stopped run")
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
