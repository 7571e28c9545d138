"""UPDATE, MERGE, DELETE, ALTER TABLE and COMMENT over the wire: counts as Postgres tells them, parameters, transactions."""

import pytest
import support

psycopg = support.module("psycopg", "psycopg")
deltalake = support.module("deltalake", "deltalake")


@pytest.fixture
def connection(fresh):
    server = fresh()
    host, port = server.pg
    with psycopg.connect(host=host, port=port, user="admin", dbname="lake", autocommit=True) as connection:
        connection.execute("create table t (id bigint not null, v text, n int)")
        connection.execute("insert into t values (1, 'a', 1), (2, 'b', 2), (3, null, null)")
        yield connection


def _rows(connection, sql="select * from t order by id"):
    return connection.execute(sql).fetchall()


def counts_are_those_of_postgres(connection):
    for sql, status in [
        ("update t set n = n + 1 where id < 3", "UPDATE 2"), ("update t set n = 0 where false", "UPDATE 0"),
        ("update t set v = s.v from (values (1, 'z')) s (k, v) where s.k = t.id", "UPDATE 1"),
        ("merge into t using (values (3, 'c'), (4, 'd')) s (k, v) on s.k = t.id when matched then update set v = s.v "
         "when not matched then insert (id, v) values (s.k, s.v)", "MERGE 2"),
        ("delete from t x where x.id = 2", "DELETE 1"), ("alter table t add column m int", "ALTER TABLE"),
        ("comment on table t is 'x'", "COMMENT"),
    ]:
        assert connection.execute(sql).statusmessage == status, sql
    assert _rows(connection) == [(1, "z", 2, None), (3, "c", None, None), (4, "d", None, None)]


def values_may_be_parameters(connection):
    for prepare in (False, True):
        for k, v in ((1, "p"), (2, None)):
            done = connection.execute("update t set v = %s, n = %s where id = %s", (v, k * 7, k), prepare=prepare)
            assert done.rowcount == 1
        done = connection.execute(
            "merge into t using (select %s::bigint as k, %s::text as v) s on s.k = t.id when matched then update set v = s.v "
            "when not matched then insert (id, v) values (s.k, s.v)", (9, "q"), prepare=prepare,
        )
        assert done.rowcount == 1
    assert _rows(connection) == [(1, "p", 7), (2, None, 14), (3, None, None), (9, "q", None)]


def what_returning_gives_comes_as_rows(connection):
    for sql, status, columns, rows in [
        ("insert into t (id, n) values (4, 4), (5, null) returning *", "INSERT 0 2", "id v n", [(4, None, 4), (5, None, None)]),
        ("insert into t (id) select 6 returning t.id + 1 as next, upper(coalesce(v, 'none')), n::bigint", "INSERT 0 1", "next upper n", [(7, "NONE", None)]),
        ("update t set n = n * 2 where id < 3 returning id, n", "UPDATE 2", "id n", [(1, 2), (2, 4)]),
        ("update t set v = s.v from (values (1, 'z')) s (k, v) where s.k = t.id returning s.*, t.v", "UPDATE 1", "k v v", [(1, "z", "z")]),
        ("update t set n = 0 where false returning id", "UPDATE 0", "id", []),
        ("delete from t x where x.id > 3 returning x.id", "DELETE 3", "id", [(4,), (5,), (6,)]),
        ("delete from t where false returning *", "DELETE 0", "id v n", []),
    ]:
        with connection.transaction(force_rollback=True):
            for binary in (False, True):
                with connection.transaction(force_rollback=True):
                    done = connection.execute(sql, binary=binary, prepare=binary)
                    assert [column.name for column in done.description] == columns.split(), sql
                    assert sorted(done.fetchall()) == sorted(rows) and done.statusmessage == status, sql
        connection.execute(sql)
    assert _rows(connection) == [(1, "z", 2), (2, "b", 4), (3, None, None)]


def what_returning_gives_takes_parameters_and_is_of_its_transaction(connection):
    with connection.transaction():
        for n in range(10, 14):
            asked = "insert into t (id, v) values (%s, %s) returning id, v || %s, (select count(*) from t)"
            # Each reads the rows of those before it.
            assert connection.execute(asked, (n, f"v{n}", "!")).fetchall() == [(n, f"v{n}!", n - 7)]
        done = connection.execute("update t set n = id where id >= %s returning id - %s", (12, 10))
        assert sorted(done.fetchall()) == [(2,), (3,)]
        assert connection.execute("delete from t where id = 10 returning v").fetchall() == [("v10",)]
    assert [row[0] for row in _rows(connection)] == [1, 2, 3, 11, 12, 13]
    with connection.cursor() as cursor:
        cursor.executemany("insert into t (id) values (%s) returning id", [(20,), (21,)], returning=True)
        assert [cursor.fetchone(), cursor.nextset(), cursor.fetchone()] == [(20,), True, (21,)]
        cursor.execute("select 1; delete from t where id >= 20 returning id")
        assert cursor.nextset() and sorted(cursor.fetchall()) == [(20,), (21,)] and cursor.statusmessage == "DELETE 2"
    # What cannot be given back is not done.
    for sql, code in [
        ("delete from t returning 1 / (id - 1)", "22012"), ("insert into t (id) values (1) returning nothing", "42703"),
        ("delete from t returning count(*)", "42803"), ("update t set n = 1 returning rank() over ()", "42P20"),
    ]:
        with pytest.raises(psycopg.Error) as raised:
            connection.execute(sql)
        assert raised.value.sqlstate == code, (sql, raised.value)
    assert [row[0] for row in _rows(connection)] == [1, 2, 3, 11, 12, 13]


def a_transaction_changes_rows_together(connection):
    with pytest.raises(ZeroDivisionError), connection.transaction():
        connection.execute("update t set n = 100")
        assert _rows(connection, "select distinct n from t") == [(100,)]
        raise ZeroDivisionError
    assert _rows(connection, "select sum(n) from t") == [(3,)]
    with connection.transaction():
        connection.execute("insert into t values (4, 'd', 4)")
        connection.execute("update t set n = n * 10 where n is not null")
        connection.execute("delete from t where id = 1")
        connection.execute(
            "merge into t using (values (2, 5), (7, 7)) s (k, n) on s.k = t.id when matched then update set n = s.n "
            "when not matched then insert (id, n) values (s.k, s.n)"
        )
        assert _rows(connection) == [(2, "b", 5), (3, None, None), (4, "d", 40), (7, None, 7)]
    assert _rows(connection) == [(2, "b", 5), (3, None, None), (4, "d", 40), (7, None, 7)]


def the_log_says_what_was_done_by_whom(connection, tmp_path):
    connection.execute("update t set n = 7 where id < 3")
    with connection.transaction():
        connection.execute("update t set n = 8 where id = 1")
        connection.execute("update t set n = 9 where id = 2")
    with connection.transaction():
        connection.execute("insert into t values (4, 'd', 4), (5, 'e', 5)")
        connection.execute("update t set n = 10 where id = 3")
        connection.execute("delete from t where id = 1")
    with connection.transaction():
        connection.execute("delete from t where id = 2")
    with connection.cursor().copy("copy t (id) from stdin") as copy:
        copy.write(b"6\n7\n8\n")
    connection.execute("alter table t rename column v to w")
    commits = deltalake.DeltaTable(str(tmp_path / "lake" / "t")).history()
    told = [(c["operation"], c.get("userName"), c.get("operationMetrics")) for c in reversed(commits)][2:]
    assert told == [
        ("UPDATE", "admin", {"numUpdatedRows": "2"}), ("UPDATE", "admin", {"numUpdatedRows": "2"}),
        ("MERGE", "admin", {"numTargetRowsInserted": "2", "numTargetRowsUpdated": "1", "numTargetRowsDeleted": "1"}),
        ("DELETE", "admin", {"numDeletedRows": "1"}), ("WRITE", "admin", {"numOutputRows": "3"}), ("RENAME COLUMN", "admin", None),
    ]


def errors_have_their_codes_and_change_nothing(connection):
    connection.execute("create table k (id int primary key, v text)")
    connection.execute("insert into k values (1, 'a')")
    for sql, code in [
        ("update t set n = s.n from (values (1), (1)) s (n) where s.n = t.n", "21000"), ("update t set id = null", "23502"),
        ("update t set nothing = 1", "42703"), ("update nothing set n = 1", "42P01"), ("update k set id = 2", "0A000"),
        ("merge into k using (values (5), (5)) s (n) on s.n = k.id when not matched then insert (id) values (s.n)", "23505"),
        ("alter table t add column N text", "42701"), ("alter table t drop column q", "42703"),
        ("alter table t rename to u", "0A000"), ("alter table t set (color = 'red')", "22023"), ("alter table k drop column id", "0A000"),
    ]:
        with pytest.raises(psycopg.Error) as raised:
            connection.execute(sql)
        assert raised.value.sqlstate == code, (sql, raised.value)
    assert _rows(connection) == [(1, "a", 1), (2, "b", 2), (3, None, None)] and _rows(connection, "select * from k") == [(1, "a")]


def comments_are_in_the_catalogs(connection):
    connection.execute("comment on table t is 'things'")
    connection.execute("comment on column t.n is 'how many'")

    def seen():
        return _rows(connection, "select obj_description('t'::regclass, 'pg_class'), col_description('t'::regclass, 3)")

    support.within(20, lambda: seen() == [("things", "how many")], seen)
    described = "select objsubid, description from pg_description where objoid = 't'::regclass order by objsubid"
    assert _rows(connection, described) == [(0, "things"), (3, "how many")]
