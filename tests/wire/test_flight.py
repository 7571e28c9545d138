"""Flight SQL by ADBC's driver: rows as Arrow, parameters, prepared statements, names, ingest."""

import concurrent.futures
import datetime as dt

import pyarrow as pa
import pytest
import support

support.module("adbc_driver_flightsql", "adbc-driver-flightsql")
import adbc_driver_flightsql.dbapi as flight


@pytest.fixture
def connection(server):
    support.only_uplake("it has no Flight SQL")
    address = f"grpc://{server.http[0]}:{server.http[1]}"
    with flight.connect(address, autocommit=True) as connected:
        yield connected


def _table(connection, sql, parameters=None):
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetch_arrow_table()


def rows_come_as_arrow(connection):
    found = _table(connection, "select id, name, score, born, seen from people order by id")
    assert found.column("id").to_pylist() == [1, 2, 3, 4]
    assert found.column("name").to_pylist() == ["Ada", "naïve ☃ 😀", "", None]
    assert found.column("score").to_pylist() == [1.5, -0.25, 0.0, None]
    assert found.column("born").to_pylist()[0] == dt.date(1815, 12, 10)
    assert found.column("seen").to_pylist()[1] == dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)
    assert found.schema.field("id").type == pa.int64()
    assert found.schema.field("seen").type == pa.timestamp("us")


def no_rows_have_a_schema(connection):
    found = _table(connection, "select id, name from people where id < 0")
    assert found.num_rows == 0 and found.column_names == ["id", "name"]


def many_rows_come_in_batches(connection):
    with connection.cursor() as cursor:
        cursor.execute("select x, repeat('abcdefghij', 20) as filler from generate_series(1, 300000) g(x)")
        rows = batches = 0
        for batch in cursor.fetch_record_batch():
            rows, batches = rows + batch.num_rows, batches + 1
    assert rows == 300_000 and batches > 1


def rows_by_the_database_api(connection):
    with connection.cursor() as cursor:
        cursor.execute("select id, name from people order by id")
        assert cursor.fetchone() == (1, "Ada")
        assert cursor.fetchall()[-1] == (4, None)


def parameters_are_bound(connection):
    sql = "select name from people where id = $1"
    for user, name in ((1, "Ada"), (3, ""), (4, None), (1, "Ada")):
        assert _table(connection, sql, [user]).column(0).to_pylist() == [name]
    assert _table(connection, "select id from people where name = $1 and born > $2", ["naïve ☃ 😀", dt.date(1999, 1, 1)]).num_rows == 1


def prepared_statement_runs_ten_times(connection):
    with connection.cursor() as cursor:
        for n in range(1, 11):
            cursor.execute("select name from numbers where id = $1", [n])
            assert cursor.fetchone() == (f"n{n}",)


def ingest_makes_appends_and_reads_back(connection):
    data = pa.table({
        "id": pa.array([1, 2, 3], pa.int64()), "name": ["a", None, "naïve ☃"],
        "seen": pa.array([dt.datetime(2026, 1, 1), None, dt.datetime(1969, 1, 1)], pa.timestamp("us")),
    })
    with connection.cursor() as cursor:
        try:
            assert cursor.adbc_ingest("ingested", data, mode="create") in (3, -1)
            assert cursor.adbc_ingest("ingested", data, mode="append") in (3, -1)
            cursor.execute("select id, name, seen from ingested order by id")
            found = cursor.fetch_arrow_table()
            assert found.num_rows == 6
            assert found.column("name").to_pylist() == ["a", "a", None, None, "naïve ☃", "naïve ☃"]
            with pytest.raises(flight.Error):
                cursor.adbc_ingest("ingested", data, mode="create")
        finally:
            cursor.execute("drop table if exists ingested")


def names_are_listed(connection):
    found = connection.adbc_get_objects(depth="columns").read_all().to_pylist()
    schemas = [s for c in found for s in c["catalog_db_schemas"] or []]
    tables = {t["table_name"]: t for s in schemas for t in s["db_schema_tables"] or []}
    assert {"people", "numbers", "every_type"} <= set(tables)
    assert [c["column_name"] for c in tables["people"]["table_columns"]] == ["id", "name", "score", "born", "seen"]
    assert connection.adbc_get_table_schema("people").names == ["id", "name", "score", "born", "seen"]
    assert "table" in [t.lower() for t in connection.adbc_get_table_types()]


def errors_have_a_code_and_the_connection_goes_on(connection):
    for sql in ("select * from nowhere", "select nope from people", "select 1 fromm people"):
        with pytest.raises(flight.Error) as failed:
            _table(connection, sql)
        assert "nowhere" in str(failed.value) or "nope" in str(failed.value) or "fromm" in str(failed.value) or "people" in str(failed.value)
    with pytest.raises(flight.Error):
        _table(connection, "select 1 / (id - id) as v from people")
    assert _table(connection, "select 1::bigint as v").to_pylist() == [{"v": 1}]


def cancel_frees_the_slot(server, connection):
    with connection.cursor() as cursor, concurrent.futures.ThreadPoolExecutor(1) as pool:

        def ask():
            cursor.execute(support.LONG)
            return cursor.fetch_arrow_table()

        asked = pool.submit(ask)
        server.runs()
        cursor.adbc_cancel()
        with pytest.raises(Exception):
            asked.result(10)
    server.free()


def a_reader_that_goes_frees_the_slot(server, connection):
    with connection.cursor() as cursor:
        cursor.execute(support.WIDE)
        reader = cursor.fetch_record_batch()
        assert reader.read_next_batch().num_rows
        reader.close()
    server.free(5)


def ten_connections_at_once(server, connection):
    address = f"grpc://{server.http[0]}:{server.http[1]}"

    def ask(n):
        with flight.connect(address, autocommit=True) as other:
            return _table(other, f"select count(*) as n from numbers where digit = {n}").to_pylist()

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        assert list(pool.map(ask, range(10))) == [[{"n": 1000}]] * 10
