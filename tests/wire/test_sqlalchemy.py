"""SQLAlchemy, over psycopg 3 and psycopg2: its dialect's start, reflection, bound values, types."""

import datetime as dt

import pytest
import support

sqlalchemy = support.module("sqlalchemy", "SQLAlchemy")
support.module("psycopg", "psycopg[binary]")
support.module("psycopg2", "psycopg2-binary")
from sqlalchemy import Column, MetaData, Table, func, inspect, select, text, types


@pytest.fixture(params=["psycopg", "psycopg2"])
def engine(server, request):
    made = sqlalchemy.create_engine(server.url.replace("postgresql", f"postgresql+{request.param}"))
    yield made
    made.dispose()


def tables_and_schemas_are_listed(engine):
    seen = inspect(engine)
    assert {"people", "numbers", "filled", "every_type"} <= set(seen.get_table_names())
    assert "public" in seen.get_schema_names()
    assert seen.default_schema_name == "public"
    assert seen.has_table("people") and not seen.has_table("nowhere")
    assert seen.get_view_names() == []


def columns_have_their_types(engine):
    columns = {c["name"]: c for c in inspect(engine).get_columns("every_type")}
    assert list(columns) == ["id", "b", "s", "i", "n", "r", "d", "q", "x", "y", "day", "at", "z"]
    found = {name: c["type"] for name, c in columns.items()}
    expected = {
        "id": types.Integer, "b": types.Boolean, "s": types.SmallInteger, "n": types.BigInteger, "r": types.REAL,
        "d": types.DOUBLE_PRECISION, "q": types.Numeric, "x": types.Text, "y": types.LargeBinary,
        "day": types.Date, "at": types.DateTime, "z": types.DateTime,
    }
    wrong = {name: found[name] for name, kind in expected.items() if not isinstance(found[name], kind)}
    assert not wrong
    assert (found["q"].precision, found["q"].scale) == (38, 10)
    assert found["z"].timezone and not found["at"].timezone
    assert all(c["nullable"] for c in columns.values())


def keys_and_indexes_are_looked_at(engine):
    seen = inspect(engine)
    assert seen.get_pk_constraint("people")["constrained_columns"] == []
    assert seen.get_foreign_keys("people") == []
    assert seen.get_unique_constraints("people") == []
    assert seen.get_check_constraints("people") == []
    assert seen.get_indexes("people") == []


def a_table_is_reflected_and_asked(engine):
    people = Table("people", MetaData(), autoload_with=engine)
    asked = select(people.c.name, people.c.score).where(people.c.id == 1, people.c.born < dt.date(1900, 1, 1))
    with engine.connect() as connection:
        assert connection.execute(asked).all() == [("Ada", 1.5)]


def bound_values_of_select(engine):
    numbers = Table("numbers", MetaData(), Column("id", types.BigInteger), Column("digit", types.BigInteger))
    asked = (
        select(numbers.c.digit, func.count().label("n"))
        .where(numbers.c.id.between(1, 100), numbers.c.digit.in_([1, 2, 3]))
        .group_by(numbers.c.digit).order_by(numbers.c.digit.desc()).limit(2).offset(1)
    )
    with engine.connect() as connection:
        assert connection.execute(asked).all() == [(2, 10), (1, 10)]
        assert connection.execute(text("select name from people where id = :id"), {"id": 2}).scalar() == "naïve ☃ 😀"


def a_streamed_result(engine):
    with engine.connect().execution_options(stream_results=True, yield_per=700) as connection:
        assert sum(1 for _ in connection.execute(text("select id from numbers"))) == 10_000


def tables_are_made_filled_and_dropped(engine):
    made = Table("made_by_alchemy", MetaData(), Column("id", types.BigInteger), Column("name", types.Text))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        made.create(connection)
        try:
            connection.execute(made.insert(), [{"id": 1, "name": "a"}, {"id": 2, "name": None}])
            assert connection.execute(select(made).order_by(made.c.id)).all() == [(1, "a"), (2, None)]
        finally:
            made.drop(connection)


def pandas_reads_a_query(engine):
    pandas = support.module("pandas", "pandas")
    asked = text("select id, name, score, born from people where id <= :most order by id")
    with engine.connect() as connection:
        found = pandas.read_sql(asked, connection, params={"most": 3})
        assert list(found.columns) == ["id", "name", "score", "born"]
        assert found["id"].tolist() == [1, 2, 3] and found["name"].tolist() == ["Ada", "naïve ☃ 😀", ""]
        assert found["born"].tolist() == [dt.date(1815, 12, 10), dt.date(2000, 2, 29), None]
        whole = pandas.read_sql_table("numbers", connection)
        assert len(whole) == 10_000
        chunks = pandas.read_sql(text("select id from numbers"), connection, chunksize=4000)
        assert sum(len(chunk) for chunk in chunks) == 10_000


def a_pool_that_discards_all_forgets_what_was_set(server):
    made = sqlalchemy.create_engine(server.url.replace("postgresql", "postgresql+psycopg"), pool_size=1, max_overflow=0)

    @sqlalchemy.event.listens_for(made, "reset")
    def discard(connection, record, state):
        if not state.terminate_only:
            connection.rollback()
            connection.autocommit = True
            connection.execute("discard all")
            connection.autocommit = False

    try:
        with made.connect() as connection:
            before = connection.execute(text("show statement_timeout")).scalar()
            connection.execute(text("set statement_timeout = '33s'"))
            connection.execute(text("set application_name = 'mine'"))
            connection.commit()
            assert connection.execute(text("select current_setting('application_name')")).scalar() == "mine"
        with made.connect() as connection:
            assert connection.execute(text("show statement_timeout")).scalar() == before
            assert connection.execute(text("select current_setting('application_name')")).scalar() == ""
    finally:
        made.dispose()


def a_failed_statement_does_not_spoil_the_pool(engine):
    with pytest.raises(sqlalchemy.exc.ProgrammingError):
        with engine.connect() as connection:
            connection.execute(text("select * from nowhere"))
    with engine.connect() as connection:
        assert connection.execute(text("select 1 as v")).scalar() == 1
