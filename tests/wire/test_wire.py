"""The protocol, frame by frame: what every type looks like, portals, skipping to Sync, errors."""

import struct

import frames
import pytest
import support
from cases import ALL, ERRORS
from frames import bind, describe, errors, execute, kinds, parse, query, values_of


@pytest.fixture
def wire(server):
    with server.raw() as connection:
        yield connection


def start_up_tells_what_drivers_want(wire):
    wanted = {
        "client_encoding": "UTF8", "server_encoding": "UTF8", "DateStyle": "ISO, MDY", "TimeZone": "UTC",
        "integer_datetimes": "on", "standard_conforming_strings": "on", "IntervalStyle": "postgres",
    }
    assert wanted.items() <= wire.settings.items()
    assert int(wire.settings["server_version"].split(".")[0]) >= 14
    assert len(wire.key) == 8


@pytest.mark.parametrize("name", ALL)
def type_as_text(wire, name):
    sql, oid, text, _ = ALL[name]
    (_, row), (_, data), *_ = wire.ask(query(f"select {sql} as v"))
    assert struct.unpack_from("!i", row, 2 + 2 + 6)[0] == oid
    assert values_of(data) == [text.encode()]


@pytest.mark.parametrize("name", ALL)
def null_of_each_type(wire, name):
    sql, oid, *_ = ALL[name]
    (_, row), (_, data), *_ = wire.ask(query(f"select case when 1 = 0 then {sql} end as v"))
    assert struct.unpack_from("!i", row, 2 + 2 + 6)[0] == oid
    assert values_of(data) == [None]


@pytest.mark.parametrize("name", ALL)
def type_as_text_by_the_extended_protocol_equals_the_simple_one(wire, name):
    found = wire.ask(parse(f"select {ALL[name][0]} as v"), bind(), execute(), frames.SYNC)
    assert kinds(found) == "12DCZ"
    assert values_of(found[2][1]) == [ALL[name][2].encode()]


def several_statements_answer_one_after_the_other(wire):
    found = wire.ask(query("select 1 as a; select 2 as a, 3 as b; select id from people where id < 0"))
    assert kinds(found) == "TDCTDCTCZ"
    tags = [body[:-1].decode() for kind, body in found if kind == b"C"]
    assert tags == ["SELECT 1", "SELECT 1", "SELECT 0"]


def an_error_ends_a_message_of_several_statements(wire):
    found = wire.ask(query("select 1 as a; select * from nowhere; select 2 as a"))
    assert kinds(found) == "TDCEZ"
    assert wire.rows("select 3 as a") == [["3"]]


def an_empty_query_is_answered(wire):
    assert kinds(wire.ask(query(""))) == "IZ"
    assert kinds(wire.ask(query(" ; "))) == "IZ"
    assert kinds(wire.ask(parse(""), bind(), describe(b"P"), execute(), frames.SYNC)) == "12nIZ"


def rows_stop_at_the_portals_limit_and_go_on(wire):
    begin = wire.ask(query("begin"))
    assert begin[-1] == (b"Z", b"T")
    sql = "select id from numbers order by id"
    found = wire.ask(parse(sql), bind(portal="p"), execute("p", 3), execute("p", 2), frames.SYNC)
    assert kinds(found) == "12DDDsDDsZ"
    assert [values_of(body)[0] for kind, body in found if kind == b"D"] == [b"1", b"2", b"3", b"4", b"5"]
    rest = wire.ask(execute("p", 0), frames.SYNC)
    assert sum(kind == b"D" for kind, _ in rest) == 9995
    assert wire.ask(query("rollback"))[-1] == (b"Z", b"I")


def a_portal_ends_with_its_transaction(wire):
    sql = "select id from numbers order by id"
    wire.ask(parse(sql, name="s"), bind("s", "p"), execute("p", 1), frames.SYNC)
    assert [e["C"] for e in errors(wire.ask(execute("p", 1), frames.SYNC))] == ["34000"]
    assert sum(k == b"D" for k, _ in wire.ask(bind("s"), execute(), frames.SYNC)) == 10000


def an_error_skips_to_sync(wire):
    found = wire.ask(
        parse("select * from nowhere"), bind(), execute(), parse("select 1 as a"), bind(), execute(), frames.SYNC
    )
    assert kinds(found) == "EZ"
    assert kinds(wire.ask(parse("select 1 as a"), bind(), execute(), frames.SYNC)) == "12DCZ"


def names_that_are_not_there(wire):
    assert [e["C"] for e in errors(wire.ask(bind("nope"), frames.SYNC))] == ["26000"]
    assert [e["C"] for e in errors(wire.ask(execute("nope"), frames.SYNC))] == ["34000"]
    assert [e["C"] for e in errors(wire.ask(describe(b"S", "nope"), frames.SYNC))] == ["26000"]
    assert kinds(wire.ask(frames.close(b"S", "nope"), frames.close(b"P", "nope"), frames.SYNC)) == "33Z"


def statement_is_described_before_its_values_are_known(wire):
    found = wire.ask(parse("select id, name from people where id = $1", "s"), describe(b"S", "s"), frames.SYNC)
    assert kinds(found) == "1tTZ"
    assert struct.unpack("!hi", found[1][1]) == (1, 20)
    for user, name in ((1, b"Ada"), (4, None), (3, b"")):
        text = wire.ask(bind("s", values=[str(user).encode()]), execute(), frames.SYNC)
        binary = wire.ask(
            bind("s", values=[struct.pack("!q", user)], formats=[1], results=[1, 0]), execute(), frames.SYNC
        )
        assert values_of(text[1][1]) == [str(user).encode(), name]
        assert values_of(binary[1][1]) == [struct.pack("!q", user), name]


def statement_that_answers_nothing_is_described_so(wire):
    found = wire.ask(parse("set application_name = 'x'"), describe(b"S"), frames.SYNC)
    assert kinds(found) == "1tnZ"


def flush_answers_without_sync(wire):
    wire.send(parse("select 1 as a"), bind(), execute(), frames.FLUSH)
    assert kinds([wire.next() for _ in range(4)]) == "12DC"
    assert kinds(wire.ask(frames.SYNC)) == "Z"


def a_hundred_statements_in_one_write(wire):
    wire.send(*[parse(f"select {n} as a") + bind() + execute() for n in range(100)], frames.SYNC)
    found = wire.until_ready()
    assert [values_of(b)[0] for k, b in found if k == b"D"] == [str(n).encode() for n in range(100)]


def a_value_too_many_or_too_few_is_refused(wire):
    parsed = parse("select id from people where id = $1", "s")
    wire.ask(parsed, frames.SYNC)
    for values in ([], [b"1", b"2"]):
        assert [e["C"] for e in errors(wire.ask(bind("s", values=values), execute(), frames.SYNC))] == ["08P01"]


def a_value_of_the_wrong_form_is_refused(wire):
    wire.ask(parse("select id from people where id = $1", "s"), frames.SYNC)
    assert [e["C"] for e in errors(wire.ask(bind("s", values=[b"one"]), execute(), frames.SYNC))] == ["22P02"]
    wrong = bind("s", values=[b"\0\1"], formats=[1])
    # Postgres 15 says 08P01 to a value that is too short, 22P03 to one that is too long.
    assert errors(wire.ask(wrong, execute(), frames.SYNC))[0]["C"] in ("22P03", "08P01")
    assert wire.rows("select 1 as a") == [["1"]]


def text_that_is_not_utf8_is_refused(wire):
    found = wire.ask(frames.frame(b"Q", b"select '\xff' as a\0"))
    assert [e["C"] for e in errors(found)] == ["22021"]


@pytest.mark.parametrize("name", ERRORS)
def error_has_its_code_and_position(wire, name):
    sql, code, position = ERRORS[name]
    (error,) = errors(wire.ask(query(sql)))
    assert error["C"] == code, error
    assert error["S"] == error["V"] == "ERROR" and error["M"]
    if position:
        assert error.get("P") == str(position), error
    assert wire.rows("select 1 as a") == [["1"]]


def a_database_that_is_not_there(server):
    with pytest.raises(ConnectionRefusedError) as refused:
        server.raw(database="nowhere")
    assert refused.value.args[0]["C"] == "3D000"


def a_role_that_is_not_there(server):
    support.only_uplake("its roles are those of the lake")
    with pytest.raises(ConnectionRefusedError) as refused:
        server.raw(user="nobody")
    assert refused.value.args[0]["C"] in ("28000", "28P01")


def tls_and_gss_are_declined(server):
    for asked in (frames.SSL, frames.SSL + 1):
        with server.raw(login=False) as connection:
            connection.send(struct.pack("!ii", 8, asked))
            answer = connection.take(1)
            if support.PEER and answer == b"G":  # it is built with GSS
                continue
            assert answer == b"N"
            connection.send(frames.startup())
            assert connection.until_ready()[-1][0] == b"Z"


def a_newer_minor_protocol_is_negotiated(server):
    with server.raw(login=False) as connection:
        hello = bytearray(frames.startup())
        hello[4:8] = struct.pack("!hh", 3, 9)
        connection.send(bytes(hello))
        found = connection.until_ready()
        assert kinds(found)[0] == "v" and kinds(found)[-1] == "Z", kinds(found)


def names_of_columns_are_those_of_postgres(wire):
    def names(sql):
        row, at, found = wire.ask(query(sql))[0][1], 2, []
        for _ in range(struct.unpack_from("!h", row)[0]):
            end = row.index(b"\0", at)
            found.append(row[at:end].decode())
            at = end + 19
        return found

    assert names("select 1, 1, 'x', count(*), count(*) from people") == ["?column?"] * 3 + ["count"] * 2
    assert names("select id, id, max(score), upper('a'), id::text from people group by id") == [
        "id", "id", "max", "upper", "id",
    ]
