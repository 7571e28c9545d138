"""psql of this machine: its backslash commands, timing, copy, exit codes."""

import os
import re
import shutil
import signal
import subprocess

import pytest
import support


@pytest.fixture
def psql(server):
    program = shutil.which("psql")
    if program is None:
        support.missing("psql", "apt-get install postgresql-client")

    def run(*options, stdin="", code=0, words=("-A",)):
        """Standard output; standard error is in run.errors."""
        command = [program, "-X", *words, "-v", "ON_ERROR_STOP=1", *options, server.url]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60)
        run.errors = done.stderr
        assert done.returncode == code, done
        return done.stdout

    return run


def rows_and_null(psql):
    out = psql("-t", "-c", "select id, name from people order by id")
    assert out == "1|Ada\n2|naïve ☃ 😀\n3|\n4|\n"


def aligned_columns(psql):
    out = psql("-c", "select id, score from people where id = 1", words=())
    assert out == " id | score \n----+-------\n  1 |   1.5\n(1 row)\n\n"


def several_statements_of_one_option_and_of_many(psql):
    assert psql("-t", "-c", "select 1 as a; select 2 as a") == "1\n2\n"
    assert psql("-t", "-c", "select 1 as a", "-c", "select 2 as a") == "1\n2\n"


def tables_are_listed(psql):
    out = psql("-c", r"\dt")
    assert "public|people|table|" in out and "public|numbers|table|" in out
    assert "public|people|table|" in psql("-c", r"\dt peo*")
    assert "people" in psql("-c", r"\d")
    # With sizes and descriptions.
    assert "people" in psql("-c", r"\dt+")


def a_table_is_described(psql):
    out = psql("-c", r"\d every_type")
    assert 'Table "public.every_type"' in out
    for column, kind in {
        "b": "boolean", "s": "smallint", "i": "integer", "n": "bigint", "r": "real", "d": "double precision",
        "q": "numeric(38,10)", "x": "text", "y": "bytea", "day": "date", "at": "timestamp without time zone",
        "z": "timestamp with time zone",
    }.items():
        assert re.search(rf"^{column}\|{re.escape(kind)}\|", out, re.MULTILINE), (column, out)
    assert 'Table "public.people"' in psql("-c", r"\d+ people")


def a_table_that_is_not_there_is_told(psql):
    psql("-c", r"\d nowhere", code=1)
    assert 'Did not find any relation named "nowhere"' in psql.errors


@pytest.mark.parametrize(
    "command, word",
    [
        (r"\l", "lake"), (r"\dn", "public"), (r"\du", "admin"), (r"\df", ""), (r"\di", ""), (r"\dv", ""),
        (r"\dT", ""), (r"\dx", ""), (r"\ds", ""), (r"\db", ""), (r"\conninfo", '"lake"'),
        (r"\encoding", "UTF8"), (r"\dm", ""), (r"\dC", ""), (r"\dd", ""), (r"\dd people", ""),
        (r"\dp", "people"), (r"\z people", "people"), (r"\ddp", ""), (r"\df+", ""), (r"\df upper", ""), (r"\l+", "lake"),
        (r"\dn+", "public"), (r"\di+", ""), (r"\dT+", ""), (r"\dt public.*", "people"), (r"\dtS", "pg_class"),
        (r"\d+ people", "born"), (r"\d pg_class", "relname"), (r"\db+", ""), (r"\dD", ""), (r"\dy", ""), (r"\dX", ""),
        (r"\dL", ""), (r"\deu", ""), (r"\da", ""), (r"\dA", "heap"), (r"\do", ""), (r"\drds", ""), (r"\dRp", ""),
        (r"\dRs", ""), (r"\dP", ""), (r"\dl", ""),
    ],
)
def backslash_commands_answer(psql, command, word):
    assert word in psql("-c", command)


def timing_is_shown(psql):
    assert re.search(r"Time: \d+\.\d+ ms", psql(stdin="\\timing on\nselect 1 as a;\n"))


def an_error_points_at_its_place(psql):
    psql("-c", "select nope from people", code=1)
    assert re.search(r"LINE 1: select nope from people\n +\^", psql.errors)
    psql("-c", "select (1", code=1)
    assert re.search(r"LINE 1: select \(1\n +\^", psql.errors)
    psql("-v", "VERBOSITY=verbose", "-c", "select * from nowhere", code=1)
    assert "42P01" in psql.errors


def copy_out_and_in(psql, tmp_path):
    file = tmp_path / "people.csv"
    psql("-c", rf"\copy (select id, name, score from people order by id) to '{file}' with (format csv, header)")
    assert file.read_text().splitlines()[:2] == ["id,name,score", "1,Ada,1.5"]
    psql("-c", "create table copied_by_psql (id bigint, name text, score double precision)")
    try:
        assert psql("-c", rf"\copy copied_by_psql from '{file}' with (format csv, header)") == "COPY 4\n"
        out = psql("-t", stdin="copy copied_by_psql from stdin;\n5\t\\N\t2.5\n6\tx\t\\N\n\\.\nselect count(*) from copied_by_psql;\n")
        assert out.splitlines()[-1] == "6"
    finally:
        psql("-c", "drop table copied_by_psql")


def a_script_in_a_transaction(psql):
    out = psql("-t", "-1", stdin="select count(*) from people;\nselect 2 as a;\n")
    assert out.splitlines() == ["4", "2"]


def rows_in_pieces_by_fetch_count(psql):
    out = psql("-t", "-v", "FETCH_COUNT=1000", "-c", "select 1 as a", stdin="")
    assert out == "1\n"
    out = psql("-t", "-v", "FETCH_COUNT=1000", stdin="select id from numbers order by id;\n")
    assert out.split() == [str(n) for n in range(1, 10_001)]


def gdesc_names_the_types(psql):
    out = psql(stdin="select id, name, born from people \\gdesc\n")
    assert "id|bigint" in out and "name|text" in out and "born|date" in out


def interrupt_cancels_the_statement(server, psql):
    words = ["psql", "-X", "-c", support.LONG, server.url]
    asked = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    server.runs()
    os.killpg(asked.pid, signal.SIGINT)
    _, told = asked.communicate(timeout=10)
    assert "canceling statement due to user request" in told
    server.free()
