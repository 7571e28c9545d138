"""Who may what, by every way in: roles, statements, paths, and what each must be answered.

What is expected of reads comes from a model in Python: which rows and columns of the data a role sees, and what a
query is of those. Of writes it is written down.
"""

import base64
import contextlib
import hashlib
import json
import subprocess

import pytest
import support

psycopg = support.module("psycopg", "psycopg")
support.module("adbc_driver_flightsql", "adbc-driver-flightsql")
import adbc_driver_flightsql.dbapi as flight
import pyarrow as pa

# A server looks at who may what every 5 seconds.
SEEN_S = 20


def _password(role):
    return f"secret of {role}"



COLUMNS = ("id", "country", "amount", "email", "owner")
SALES = [
    (1, "DE", 10, "a@x", "olga"), (2, "FR", 20, "b@x", "olga"), (3, "DE", 30, "c@x", "pete"),
    (4, None, 40, "d@x", None), (5, "FR", 50, None, "pete"), (6, "DE", 60, "f@x", "olga"),
]
TABLES = """
create table sales (id bigint, country text, amount bigint, email text, owner text);
insert into sales values (1, 'DE', 10, 'a@x', 'olga'), (2, 'FR', 20, 'b@x', 'olga'), (3, 'DE', 30, 'c@x', 'pete');
insert into sales values (4, null, 40, 'd@x', null), (5, 'FR', 50, null, 'pete'), (6, 'DE', 60, 'f@x', 'olga');
create table plain (id bigint, v text);
insert into plain values (1, 'x'), (2, 'y');
create table "Mixed" ("Id" bigint, "Mail" text);
insert into "Mixed" values (1, 'm1'), (2, 'm2');
create table keyed (user_id text, country text, n bigint) clustered by (user_id) id domains (user_id users);
insert into keyed values ('u1', 'DE', 1), ('u2', 'FR', 2), ('u2', 'DE', 3), ('u3', null, 4);
create id set some as select user_id from keyed;
"""

# Groups have the policies and hidden columns; users are in groups.
GROUPS = ("de", "fr", "own", "nomail", "two", "half")
MEMBERS = {
    "boss": ["admin"], "ann": ["reader", "de"], "abe": ["reader", "de", "fr"], "bob": ["reader"],
    "cat": ["reader", "nomail", "de"], "olga": ["reader", "own"], "dan": ["two", "de"], "eve": [],
    "gus": [], "lee": ["half"], "hal": ["writer"], "kim": ["writer", "de"], "ivy": ["reader", "de", "read_files", "write_files"],
}
DE, FR = (lambda row: row["country"] == "DE"), (lambda row: row["country"] == "FR")
# Of each user: which rows of sales it sees, which columns are hidden, which are granted (None: all).
SEES = {
    "boss": (lambda row: True, set(), None), "ann": (DE, set(), None), "abe": (lambda row: DE(row) or FR(row), set(), None),
    "bob": (lambda row: False, set(), None), "cat": (DE, {"email"}, None),
    "olga": (lambda row: row["owner"] == "olga", set(), None), "dan": (DE, set(), {"id", "country"}),
    "eve": None, "gus": None,
}


def _grant(role, verb, on, columns=()):
    return {"role": role, "verb": verb, "on": on, "columns": list(columns)}


def _policy(table, name, role, condition):
    return {"table": table, "name": name, "role": role, "condition": condition, "made_at": 0}


def _set_up(access):
    """The one place that says how rights come into the lake."""
    table = lambda name: {"table": name}
    access["grants"] = [
        _grant("two", "select", table("sales"), ["country", "id"]), _grant("gus", "insert", table("plain")),
        _grant("half", "insert", table("plain")), _grant("half", "select", table("plain"), ["id"]),
    ]
    access["policies"] = [
        _policy("keyed", "p_de", "de", "country = 'DE'"),
        _policy("mixed", "p_one", "de", "id = 1"),
        _policy("sales", "p_de", "de", "country = 'DE'"),
        _policy("sales", "p_fr", "fr", "country = 'FR' -- and no others"),
        _policy("sales", "p_own", "own", "owner = current_user"),
    ]
    access["hidden"] = [
        {"table": "mixed", "role": "nomail", "columns": ["mail"]},
        {"table": "sales", "role": "nomail", "columns": ["email"]},
    ]


def _change(lake, edit):
    """Writes the next document of who may what."""
    newest = max((lake / "_uplake" / "access").glob("*.json"))
    document = json.loads(newest.read_text())
    number, access = document["number"] + 1, document["access"]
    edit(access)
    body = {"format": 1, "number": number, "at": 0, "by": "test", "access": access}
    rest = json.dumps(body, separators=(",", ":"), ensure_ascii=False)[1:] + "\n"
    checksum = hashlib.sha256(rest.encode()).hexdigest()
    newest.with_name(f"{number:08}.json").write_text(f'{{"checksum":"{checksum}",{rest}')


class _Rights:
    """A server with users, and a connection of each."""

    def __init__(self, folder):
        self.lake = support.make_lake(folder, TABLES)
        for name in (*GROUPS, *MEMBERS):
            command = [support.binary(), "user", "add", name, "--password-file", "-", "--lake", str(self.lake)]
            subprocess.run(command, input=_password(name), text=True, check=True, capture_output=True, timeout=60)

        def members(access):
            for name, of in MEMBERS.items():
                access["roles"][name]["member_of"] = sorted(of)
            for name in GROUPS:
                access["roles"][name]["login"] = False
            _set_up(access)

        _change(self.lake, members)
        self.server = support.Server(folder, self.lake)
        self.connections, self.flights = {}, {}

    def close(self):
        for connection in (*self.connections.values(), *self.flights.values()):
            connection.close()
        self.server.stop()

    def new(self, role):
        host, port = self.server.pg
        return psycopg.connect(
            host=host, port=port, user=role, password=_password(role), dbname="lake", autocommit=True, prepare_threshold=None
        )

    def pg(self, role):
        if role not in self.connections:
            self.connections[role] = self.new(role)
        return self.connections[role]

    def flight(self, role):
        if role not in self.flights:
            address = f"grpc://{self.server.http[0]}:{self.server.http[1]}"
            words = {"username": role, "password": _password(role)}
            self.flights[role] = flight.connect(address, db_kwargs=words, autocommit=True)
        return self.flights[role]

    def http(self, role, method, path, body=b""):
        """The body of an answer; raises _Refused."""
        status, _, answer = self.server.ask(method, path, body, {"Authorization": _basic(role)})
        if status != 200:
            raise _Refused(json.loads(answer)["error"]["code"], answer.decode())
        return answer


class _Refused(Exception):
    """By HTTP: the SQLSTATE, and all that was said."""


def _basic(role):
    return "Basic " + base64.b64encode(f"{role}:{_password(role)}".encode()).decode()


@pytest.fixture(scope="module")
def rights(tmp_path_factory):
    support.only_uplake("rights of a lake")
    made = _Rights(tmp_path_factory.mktemp("rights"))
    yield made
    made.close()


# Ways in. Each gives rows as tuples of texts, or raises.


def _texts(rows):
    return [tuple(None if value is None else str(value) for value in row) for row in rows]


def _simple(rights, role, sql):
    return _texts(rights.pg(role).execute(sql).fetchall())


def _extended(rights, role, sql):
    return _texts(rights.pg(role).execute(sql, binary=True).fetchall())


def _prepared(rights, role, sql):
    found = [_texts(rights.pg(role).execute(sql, prepare=True).fetchall()) for _ in range(2)]
    assert sorted(found[0], key=str) == sorted(found[1], key=str)
    return found[0]


def _sql_prepare(rights, role, sql):
    pg = rights.pg(role)
    pg.execute(f"prepare again as {sql}")
    try:
        return _texts(pg.execute("execute again").fetchall())
    finally:
        pg.execute("deallocate again")


def _cursor(rights, role, sql):
    pg = rights.pg(role)
    pg.execute("begin")
    try:
        pg.execute(f"declare c cursor for {sql}")
        return _texts(pg.execute("fetch all from c").fetchall())
    finally:
        pg.execute("rollback")


def _copy_to(rights, role, sql):
    with rights.pg(role).cursor().copy(f"copy ({sql}) to stdout") as copy:
        text = b"".join(bytes(part) for part in copy).decode()
    return [tuple(None if v == "\\N" else v for v in line.split("\t")) for line in text.splitlines()]


def _http(rights, role, sql):
    lines = rights.http(role, "POST", "/sql?format=jsonl", sql.encode()).splitlines()
    return _texts(json.loads(line).values() for line in lines)


def _flight_rows(table):
    columns = [column.to_pylist() for column in table.columns]
    return _texts(zip(*columns)) if columns else []


def _flight(rights, role, sql):
    with rights.flight(role).cursor() as cursor:
        cursor.execute(sql)
        return _flight_rows(cursor.fetch_arrow_table())


def _flight_prepared(rights, role, sql):
    with rights.flight(role).cursor() as cursor:
        cursor.adbc_prepare(sql)
        cursor.execute(sql)
        return _flight_rows(cursor.fetch_arrow_table())


def _between_admins(rights, role, sql):
    """The same text of an admin before and after, for all that is kept."""
    before = _http(rights, "boss", sql)
    try:
        return _http(rights, role, sql)
    finally:
        assert sorted(_http(rights, "boss", sql), key=str) == sorted(before, key=str), "an admin's rows changed"


def _subquery(rights, role, sql):
    return _simple(rights, role, f"select * from ({sql}) as sub")


def _explain(rights, role, sql):
    return [("plan",)] if rights.pg(role).execute(f"explain {sql}").fetchall() else []


def _explain_analyze(rights, role, sql):
    return [("plan",)] if rights.pg(role).execute(f"explain analyze {sql}").fetchall() else []


READ_PATHS = (
    _simple, _extended, _prepared, _sql_prepare, _cursor, _copy_to, _http, _flight, _flight_prepared, _between_admins,
    _subquery, _explain, _explain_analyze,
)


def _code(error):
    """The SQLSTATE of a refusal, whichever way it came."""
    if isinstance(error, _Refused):
        return error.args[0]
    if isinstance(error, psycopg.Error):
        return error.sqlstate
    for _, value in getattr(error, "details", None) or []:
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        if len(text) == 5 and text[:2].isdigit():
            return text
    told = {"permission denied": "42501", "No field named": "42703", "no column": "42703", "no table": "42P01"}
    return next((code for words, code in told.items() if words in str(error)), str(error))


def _asked(way, *words):
    """Rows, or the code of what was refused."""
    try:
        return way(*words)
    except (psycopg.Error, _Refused, flight.Error) as error:
        return _code(error)


# Queries: the text, the columns of sales that it uses ("*": all there are), and what it is of rows.


def _values(*names):
    return lambda rows: [tuple(row[name] for name in names) for row in rows]


def _groups(rows):
    counts = {}
    for row in rows:
        counts[row["country"]] = counts.get(row["country"], 0) + 1
    return list(counts.items())


QUERIES = (
    ("select * from sales", "*", None),
    ("select s.* from sales s", "*", None),
    ("select id from sales", "id", _values("id")),
    ("select id, amount from sales where amount > 15", "id amount", lambda rows: [(r["id"], r["amount"]) for r in rows if r["amount"] > 15]),
    ("select count(*) from sales", "", lambda rows: [(len(rows),)]),
    ("select sum(amount), count(*) from sales", "amount", lambda rows: [(sum(r["amount"] for r in rows) if rows else None, len(rows))]),
    ("select max(amount), min(id) from sales", "amount id", lambda rows: [(max((r["amount"] for r in rows), default=None), min((r["id"] for r in rows), default=None))]),
    ("select max(id) from sales", "id", lambda rows: [(max((r["id"] for r in rows), default=None),)]),
    ("select count(email) from sales", "email", lambda rows: [(sum(r["email"] is not None for r in rows),)]),
    ("select id from sales where email = 'c@x'", "id email", lambda rows: [(r["id"],) for r in rows if r["email"] == "c@x"]),
    ("select id from sales order by email, id limit 9", "id email", lambda rows: [(r["id"],) for r in rows]),
    ("select country, count(*) from sales group by country", "country", _groups),
    ("select distinct country from sales", "country", lambda rows: list({(r["country"],) for r in rows})),
    ("select a.id, b.id as other from sales a join sales b on a.country = b.country and a.id < b.id", "id country", lambda rows: [(a["id"], b["id"]) for a in rows for b in rows if a["country"] == b["country"] is not None and a["id"] < b["id"]]),
    ("select p.id, s.amount from plain p left join sales s on p.id = s.id", "id amount", lambda rows: [(i, next((r["amount"] for r in rows if r["id"] == i), None)) for i in (1, 2)]),
    ("select id from sales where id in (select id from sales where amount >= 30)", "id amount", lambda rows: [(r["id"],) for r in rows if r["amount"] >= 30]),
    ("select id from plain where id not in (select id from sales)", "id", lambda rows: [(i,) for i in (1, 2) if i not in [r["id"] for r in rows]]),
    ("select id from plain where exists (select 1 from sales where amount > 45)", "amount", lambda rows: [(1,), (2,)] if any(r["amount"] > 45 for r in rows) else []),
    ("with c as (select * from sales) select count(*) from c", "", lambda rows: [(len(rows),)]),
    ("select (select count(*) from sales) as n", "", lambda rows: [(len(rows),)]),
    ("select id from sales union all select id + 100 as id from sales", "id", lambda rows: [(r["id"] + more,) for r in rows for more in (0, 100)]),
    ("select id, row_number() over (order by id) as place from sales", "id", lambda rows: [(r["id"], n) for n, r in enumerate(rows, 1)]),
    ("select id from sales where amount = 10 or 1 = 1", "id", _values("id")),
    ("select id from sales order by id limit 2", "id", lambda rows: [(r["id"],) for r in rows[:2]]),
    ("select id from sales where country is null", "id country", lambda rows: [(r["id"],) for r in rows if r["country"] is None]),
    ('select ID, "country" from public.sales', "id country", _values("id", "country")),
)
# The table as it was with its first three rows.
OLD = (
    ("select id from sales version as of 1", "id", _values("id")),
    ("select * from sales version as of 1", "*", None),
    ("select count(*) from sales version as of 1 where amount >= 20", "amount", lambda rows: [(sum(r["amount"] >= 20 for r in rows),)]),
)


def _expected(role, sql, used, of_rows, data):
    """What the model says: rows, or a SQLSTATE."""
    if SEES[role] is None or (role == "dan" and " plain" in sql):
        return "42501"
    sees, hidden, granted = SEES[role]
    rows = [row for row in (dict(zip(COLUMNS, values)) for values in data) if sees(row)]
    names = set(COLUMNS) - hidden if used == "*" else set(used.split())
    if names & hidden:
        return "42703"
    if granted is not None and names - granted:
        return "42501"
    if of_rows is None:
        of_rows = _values(*(name for name in COLUMNS if name not in hidden))
    return _texts(of_rows(rows))


def _read_rows():
    found = []
    for queries, data in ((QUERIES, SALES), (OLD, SALES[:3])):
        for sql, used, of_rows in queries:
            for role in SEES:
                for way in READ_PATHS:
                    # What a needless column is, as in count(*), is nobody's business.
                    expected = _expected(role, sql, used, of_rows, data)
                    if way in (_explain, _explain_analyze):
                        # It would tell of rows that are not there for the role.
                        expected = [("plan",)] if role == "boss" else "42501"
                    found.append((role, way, sql, expected))
    return found


READS = _read_rows()


@pytest.mark.parametrize("way", READ_PATHS, ids=lambda way: way.__name__.strip("_"))
def reads_are_of_what_a_role_sees(rights, way):
    assert len(READS) >= 400
    wrong = []
    for role, of, sql, expected in READS:
        if of is not way:
            continue
        if way is _explain_analyze and sql != "select * from sales" and role != "boss":
            continue
        found = _asked(way, rights, role, sql)
        same = sorted(found, key=str) == sorted(expected, key=str) if isinstance(found, list) and isinstance(expected, list) else found == expected
        if not same:
            wrong.append(f"{role}: {sql}: {found}, not {expected}")
    assert not wrong, "\n" + "\n".join(wrong)


# Other statements: the role, the way, the statement, and rows, "done" or a SQLSTATE.


def _done(rights, role, sql):
    rights.pg(role).execute(sql)
    return "done"


def _http_done(rights, role, sql):
    rights.http(role, "POST", "/sql", sql.encode())
    return "done"


def _flight_done(rights, role, sql):
    with rights.flight(role).cursor() as cursor:
        cursor.adbc_statement.set_sql_query(sql)
        cursor.adbc_statement.execute_update()
    return "done"


def _prepared_done(rights, role, sql):
    rights.pg(role).execute(sql, prepare=True)
    return "done"


def _copy_from(rights, role, table):
    with rights.pg(role).cursor().copy(f"copy {table} from stdin") as copy:
        copy.write(b"\\N\t\\N" + (b"\t\\N" * 3 if "sales" in table else b"") + b"\n")
    return "done"


def _load(rights, role, table):
    names = "id,v" if table == "plain" else "id,country"
    rights.http(role, "POST", f"/load/{table}", f"{names}\n,\n".encode())
    return "done"


def _ingest(rights, role, table):
    second = "v" if table == "plain" else "country"
    with rights.flight(role).cursor() as cursor:
        cursor.adbc_ingest(table, pa.table({"id": pa.array([None], pa.int64()), second: pa.array([None], pa.string())}), mode="append")
    return "done"


def _names(rights, role, sql):
    return sorted(row[0] for row in _simple(rights, role, sql))


def _objects(rights, role, table):
    found = rights.flight(role).adbc_get_objects(depth="columns").read_all().to_pylist()
    tables = [t for c in found for s in c["catalog_db_schemas"] or [] for t in s["db_schema_tables"] or []]
    return [c["column_name"] for t in tables if t["table_name"] == table for c in t["table_columns"]]


ALL, NO_MAIL = sorted(COLUMNS), sorted(set(COLUMNS) - {"email"})
INSERTS = ("insert into sales values (7, 'DE', 70, null, null)", "insert into sales (id) values (7)", "insert into sales select * from sales")
WRITES = (_done, _http_done, _flight_done, _prepared_done)
READERS = ("ann", "abe", "bob", "cat", "olga", "dan", "eve", "gus", "hal", "kim")
OTHERS = [
    # Rows are added and removed by those alone who see all; nobody but an admin does where there is a policy.
    *((role, way, sql, "42501") for role in READERS for way in WRITES for sql in (*INSERTS[:2], "delete from sales", "delete from sales where id = 1")),
    *((role, way, INSERTS[2], "42501") for role in READERS for way in WRITES),
    *((role, way, "sales", "42501") for role in READERS for way in (_copy_from, _load, _ingest)),
    *((role, _done, sql, "42501") for role in READERS for sql in ("drop table sales", "drop table if exists sales", "create table sales (id bigint)")),
    *((role, _done, sql, "42501") for role in READERS for sql in ("alter table sales drop column email", "alter table sales rename column email to mail", "alter table sales set (clustered_by = 'id')", "alter table sales reset (clustered_by)")),
    *((role, _done, "alter table plain rename column v to w", "42501") for role in ("ann", "eve", "gus")),
    *((role, way, sql, "42501") for role in ("hal", "kim") for way in WRITES for sql in ('insert into "Mixed" values (3, null)', "insert into mixed values (3, null)", "delete from mixed", "update mixed set mail = 'x'", "update mixed set mail = 'x' from plain where mixed.id = plain.id", "merge into mixed using plain on mixed.id = plain.id when matched then delete")),
    *((role, _copy_from, "mixed", "42501") for role in ("hal", "kim")),
    *((role, way, "insert into plain values (null, null)", code) for way in WRITES for role, code in (("gus", "done"), ("hal", "done"), ("kim", "done"), ("ann", "42501"), ("eve", "42501"), ("dan", "42501"))),
    *((role, way, "plain", code) for way in (_copy_from, _load, _ingest) for role, code in (("gus", "done"), ("hal", "done"), ("kim", "done"), ("ann", "42501"), ("eve", "42501"), ("dan", "42501"))),
    *((role, way, sql, code) for way in WRITES for sql in ("update plain set v = 'z' where id is null", "merge into plain using (select null as id) s on plain.id = s.id when matched then update set v = 'z'") for role, code in (("hal", "done"), ("kim", "done"), ("gus", "42501"), ("ann", "42501"), ("eve", "42501"))),
    *((role, way, "delete from plain where id is null", code) for way in WRITES for role, code in (("hal", "done"), ("kim", "done"), ("gus", "42501"), ("ann", "42501"), ("eve", "42501"))),
    ("gus", _done, "insert into plain select * from plain", "42501"),
    # What is given back is read.
    *((role, way, sql, expected) for way in (_simple, _extended, _http, _flight) for role, sql, expected in (
        ("gus", "insert into plain values (null, 'r') returning id", "42501"),
        ("gus", "insert into plain values (null, 'r') returning 1 as one", "42501"),
        ("lee", "insert into plain values (null, 'r') returning v", "42501"),
        ("lee", "insert into plain values (null, 'r') returning *", "42501"),
        ("lee", "insert into plain values (null, 'r') returning (select count(*) from sales)", "42501"),
        ("hal", "delete from plain where id is null returning id", []),
        ("lee", "insert into plain values (null, 'r') returning id", [(None,)]),
        ("lee", "update plain set v = 'w' returning id", "42501"),
        ("lee", "delete from plain returning id", "42501"),
        ("hal", "insert into plain values (null, 's') returning v, (select count(*) from plain)", [("s", "3")]),
        ("hal", "update plain set v = 'w' || v where id is null returning id, v", [(None, "wr"), (None, "ws")]),
        ("hal", "delete from plain where id is null returning v", [("wr",), ("ws",)]))),
    # What is made of what a role sees has what it sees.
    ("kim", _done, "create table of_kim as select * from sales", "done"),
    ("boss", _simple, "select id from of_kim", [("1",), ("3",), ("6",)]),
    ("kim", _done, "insert into of_kim select * from sales where amount > 45", "done"),
    ("boss", _simple, "select count(*) from of_kim", [("4",)]),
    ("kim", _done, "drop table of_kim", "done"),
    ("ann", _done, "create table of_ann as select * from sales", "42501"),
    ("eve", _done, "create table of_eve as select 1 as k", "42501"),
    # Names that differ in case alone are one table.
    *((role, way, sql, expected) for way in (_simple, _http, _flight) for sql in ('select "Id" from "Mixed"', "select id from mixed", "select id from MIXED") for role, expected in (("boss", [("1",), ("2",)]), ("ann", [("1",)]), ("cat", [("1",)]), ("bob", []), ("eve", "42501"), ("gus", "42501"))),
    *(("cat", way, sql, "42703") for way in (_simple, _http, _flight) for sql in ('select "Mail" from "Mixed"', "select mail from mixed", "select id from mixed where mail = 'm1'")),
    ("cat", _simple, "select * from mixed", [("1",)]), ("ann", _simple, "select * from mixed", [("1", "m1")]),
    # The catalogs.
    *((role, _names, sql, names) for role, names in (("boss", ALL), ("ann", ALL), ("cat", NO_MAIL), ("dan", ALL)) for sql in (
        "select column_name from information_schema.columns where table_name = 'sales'",
        "select attname from pg_attribute where attrelid = 'sales'::regclass and attnum > 0",
        "select a.attname from pg_catalog.pg_attribute a join pg_class c on a.attrelid = c.oid where c.relname = 'sales' and a.attnum > 0",
        "describe sales")),
    *((role, _simple, sql, [("0",)]) for role in ("cat",) for sql in (
        "select count(*) from pg_class where relname like '%mail%'", "select count(*) from information_schema.columns where column_name ilike '%mail%'")),
    *((role, _objects, "sales", list(names)) for role, names in (("boss", COLUMNS), ("ann", COLUMNS), ("cat", [c for c in COLUMNS if c != "email"]))),
    ("eve", _simple, "describe sales", "42501"), ("gus", _simple, "describe plain", "42501"),
    ("cat", _names, "describe mixed", ["Id"]),
    # Sets of ids and id domains: who has policies has none of others.
    *((role, way, "select count(*) from keyed where user_id in id set some", expected) for way in (_simple, _http, _flight) for role, expected in (("boss", [("4",)]), ("ann", "42501"), ("bob", "42501"), ("eve", "42501"))),
    *((role, way, sql, expected) for way in (_simple, _extended, _http, _flight) for sql in ("select key_of('users', 0) is null as no", "select id_of('users', 'u1') is null as no") for role, expected in (("boss", "rows"), ("ann", "42501"), ("bob", "42501"), ("eve", "42501"))),
    *((role, way, "select user_id, sum(n) from keyed group by user_id", expected) for way in (_simple, _between_admins, _flight) for role, expected in (("boss", [("u1", "1"), ("u2", "5"), ("u3", "4")]), ("ann", [("u1", "1"), ("u2", "3")]), ("bob", []), ("eve", "42501"))),
    *((role, way, "select count(distinct user_id) from keyed", expected) for way in (_simple, _between_admins, _flight) for role, expected in (("boss", [("3",)]), ("ann", [("2",)]), ("bob", [("0",)]), ("eve", "42501"))),
    *((role, way, "select sum(k.n) from keyed k join (select user_id, min(n) as first from keyed group by user_id) f on k.user_id = f.user_id where k.n > f.first", expected) for way in (_simple, _between_admins, _flight) for role, expected in (("boss", [("3",)]), ("ann", [(None,)]), ("bob", [(None,)]))),
    *((role, _simple, "select n from keyed where user_id = 'u2'", expected) for role, expected in (("boss", [("2",), ("3",)]), ("ann", [("3",)]), ("bob", []))),
    *((role, _done, "warm up table sales", "42501") for role in ("ann", "cat", "dan", "eve")),
    # Who somebody is, is not for a statement to say.
    ("ann", _done, "set uplake_facts.user = 'boss'", "42704"), ("ann", _done, "set role boss", "42501"),
    ("ann", _done, "set session authorization boss", "42501"), ("ann", _simple, "select current_user", [("ann",)]),
    # What is nobody's.
    *(("eve", way, "select count(*) from generate_series(1, 3)", [("3",)]) for way in (_simple, _http, _flight)),
    *(("eve", way, sql, "42P01") for way in (_simple, _http, _flight) for sql in ("select * from nothing", "select * from generate_series")),
    # Other spellings of the same table.
    *((role, _simple, sql, expected) for sql in ("select id from lake.public.sales", 'select id from "public"."sales"', 'select id from "sales@2"', "select id from sales timestamp as of '2099-01-01'", "from sales select id") for role, expected in (("boss", [(str(i),) for i in range(1, 7)]), ("ann", [("1",), ("3",), ("6",)]), ("bob", []), ("eve", "42501"))),
    *(("cat", _simple, sql, "42703") for sql in ("select * exclude (email) from sales", "select * replace (email as country) from sales", "select * from sales join (select 'a@x' as email) e using (email)")),
    ("cat", _simple, "select id from sales natural join (select 'a@x' as email) e", [("1",), ("3",), ("6",)]),
    ("ann", _simple, "select count(*) from sales", [("3",)]),
]


@pytest.mark.parametrize("way", sorted({way for _, way, _, _ in OTHERS}, key=lambda way: way.__name__), ids=lambda way: way.__name__.strip("_"))
def other_statements_are_what_a_role_may(rights, way):
    wrong = []
    for role, of, sql, expected in OTHERS:
        if of is not way and not (of is _simple and way is _done) and not (of is _done and way is _simple):
            continue
        found = _asked(of, rights, role, sql)
        if expected == "rows":
            same = isinstance(found, list)
        elif isinstance(expected, list) and isinstance(found, list):
            same = sorted(found, key=str) == sorted(expected, key=str)
        else:
            same = found == expected
        if not same:
            wrong.append(f"{role} {of.__name__}: {sql}: {found}, not {expected}")
    assert not wrong, "\n" + "\n".join(wrong)
    assert _simple(rights, "boss", "select count(*), sum(id) from sales") == [("6", "21")]
    assert _simple(rights, "boss", "select count(*) from mixed") == [("2",)]


def files_of_the_servers_disk_need_their_roles(rights, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("k,v\n1,a\n")
    for role, expected in (("boss", [("1", "a")]), ("ivy", [("1", "a")]), ("ann", "42501"), ("hal", "42501"), ("eve", "42501")):
        for way in (_simple, _extended, _http, _flight):
            assert _asked(way, rights, role, f"select k, v from '{path}'") == expected, (role, way)
        assert (_asked(_simple, rights, role, f"describe '{path}'") == "42501") == (expected == "42501"), role
    for role, expected in (("ivy", "done"), ("ann", "42501"), ("hal", "42501"), ("eve", "42501")):
        out = tmp_path / f"{role}.csv"
        found = _asked(_http_done, rights, role, f"copy (select id from sales order by id) to '{out}' stored as csv")
        assert found == expected, role
        assert out.exists() == (expected == "done")
    assert (tmp_path / "ivy.csv").read_text().split() == ["id", "1", "3", "6"]


def copies_from_the_servers_files_need_both_rights(rights, tmp_path):
    path = tmp_path / "more.csv"
    path.write_text("id,v\n70,seventy\n71,x\n")
    copy = f"copy plain from '{path}' with (header true)"
    for role, expected in (("hal", "42501"), ("ivy", "42501"), ("ann", "42501"), ("eve", "42501")):
        for way in WRITES:
            assert _asked(way, rights, role, copy) == expected, (role, way)
    rights.pg("boss").execute("grant insert on plain to ivy")
    done = rights.pg("ivy").execute(copy)
    assert done.statusmessage == "COPY 2"
    # Files of the lake are for admins, however they are named.
    data = next((rights.lake / "plain").rglob("*.parquet"))
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "one.parquet").symlink_to(data)
    for named in (data, f"{data.parent}/*.parquet", tmp_path / "links" / "one.parquet", tmp_path / "links", f"{tmp_path}/links/*"):
        assert _asked(_done, rights, "ivy", f"copy plain from '{named}'") == "42501", named
    rights.pg("boss").execute("revoke insert on plain from ivy")
    assert _asked(_done, rights, "ivy", copy) == "42501"
    with pytest.raises(psycopg.Error) as failed, rights.pg("boss").transaction():
        rights.pg("boss").execute(copy)
    assert failed.value.sqlstate == "0A000"
    assert _simple(rights, "boss", "select count(*) from plain where id >= 70") == [("2",)]
    rights.pg("boss").execute("delete from plain where id >= 70")


def the_lakes_own_files_are_for_admins_however_they_are_named(rights, tmp_path):
    """Else the rows and columns that policies leave out would be read in place."""
    lake = rights.lake
    data = next((lake / "sales").rglob("*.parquet"))
    access = max((lake / "_uplake" / "access").glob("*.json"))
    links = tmp_path / "links"
    (links / "under").mkdir(parents=True)
    (links / "one.parquet").symlink_to(data)
    (links / "under" / "sales").symlink_to(lake / "sales")
    (tmp_path / "way").symlink_to(lake)
    beside = lake.parent / "beside.csv"
    beside.write_text("k\n7\n")
    inside = data.relative_to(lake)
    for path in (
        data, tmp_path / "way" / inside, f"{tmp_path}/links/../way/{inside}", f"{links}/../../{tmp_path.name}/way/{inside}",
        f"file://{data}", f"{data.parent}/", f"{data.parent}/*.parquet", access,
        # Links among what is listed.
        links / "one.parquet", f"{links}/*.parquet", f"{links}/under/sales/", f"{links}/under/sales/*.parquet",
    ):
        for way in (_simple, _extended, _http, _flight):
            found = _asked(way, rights, "ivy", f"select count(*) from '{path}'")
            # Among what is listed, a link makes nothing found.
            assert found in ("42501", "58P01" if path == f"{links}/*.parquet" else None), (path, way, found)
        # Not everything in a table's folder is rows.
        if str(path).endswith(".parquet"):
            [(count,)] = _simple(rights, "boss", f"select count(*) from '{path}'")
            assert int(count) > 0, path
    deep = f"select count(*) from '{links}/**/*.parquet'"
    for role, expected in (("ivy", "42501"), ("boss", "rows")):
        with contextlib.closing(rights.new(role)) as connection:
            connection.execute("set datafusion.execution.listing_table_ignore_subdirectory = false")
            found = _asked(lambda: connection.execute(deep).fetchall())
            assert found in (expected, "58P01" if role == "ivy" else None) or (expected == "rows" and found[0][0] > 6), (role, found)
    with pytest.raises(psycopg.Error, match="is in the lake's own folder") as failed:
        rights.pg("ivy").execute(f"select * from '{data}'")
    assert "names of tables" in failed.value.diag.message_hint
    # What lies beside the lake is as any file.
    for path in (beside, f"{lake.parent}/*.csv", f"{lake}/../beside.csv"):
        assert _asked(_simple, rights, "ivy", f"select k from '{path}'") == [("7",)], path
    # Writing.
    (links / "dangling.csv").symlink_to(lake / "dangling.csv")
    for path in (
        lake / "new.csv", tmp_path / "way" / "sales" / "new.csv", f"{links}/under/../../way/new.csv", f"file://{lake}/new.csv",
        links / "dangling.csv", f"{links}/under/sales/deep/new.csv",
    ):
        found = _asked(_http_done, rights, "ivy", f"copy (select id from plain) to '{path}' stored as csv")
        assert found == "42501", (path, found)
    assert not [*lake.rglob("new.csv"), *lake.rglob("dangling.csv")]
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.csv").write_text("k\n1\n")
    for role in ("hal", "ann"):
        assert _asked(_done, rights, role, f'insert into "{outside}/" values (2)') == "42501", role
    for role in ("ivy", "hal"):
        assert _asked(_done, rights, role, f'insert into "{lake}/sales/" values (2)') == "42501", role
    assert len(list(outside.iterdir())) == 1
    assert _simple(rights, "boss", "select count(*), sum(id) from sales") == [("6", "21")]


def a_right_that_is_taken_back_is_gone_from_what_was_prepared_before(rights):
    pg, other = rights.new("ann"), rights.new("abe")
    text = "select id, amount from sales where amount > 5 order by id"
    with contextlib.closing(pg), contextlib.closing(other):
        ask = lambda connection: _texts(connection.execute(text, prepare=True).fetchall())
        assert [row[0] for row in ask(pg)] == ["1", "3", "6"]
        assert [row[0] for row in ask(other)] == ["1", "2", "3", "5", "6"]
        pg.execute("prepare kept as select count(*) from sales")
        pg.execute("begin")
        pg.execute("declare open cursor for select id from sales")
        with rights.flight("ann").cursor() as cursor:
            cursor.adbc_prepare(text)

        def less(access):
            access["roles"]["ann"]["member_of"] = []
            access["policies"] = [p for p in access["policies"] if p["name"] != "p_fr"]
            access["hidden"].append({"table": "sales", "role": "abe", "columns": ["amount"]})

        _change(rights.lake, less)
        support.within(SEEN_S, lambda: _asked(_http, rights, "ann", "select id from sales") == "42501", "it is gone")
        pg.execute("rollback")
        assert _asked(lambda: ask(pg)) == "42501"
        assert _asked(lambda: pg.execute("execute kept").fetchall()) == "42501"
        assert _asked(_flight_prepared, rights, "ann", text) == "42501"
        assert _asked(_flight, rights, "ann", text) == "42501"
        assert _asked(lambda: ask(other)) == "42703"
        assert _asked(_simple, rights, "abe", "select id from sales order by id") == [("1",), ("3",), ("6",)]
        assert [row[0] for row in _simple(rights, "boss", text)] == ["1", "2", "3", "4", "5", "6"]

        def again(access):
            access["roles"]["ann"]["member_of"] = ["de", "reader"]
            access["hidden"] = [h for h in access["hidden"] if h["role"] != "abe"]
            _set_up(access)

        _change(rights.lake, again)
        support.within(SEEN_S, lambda: _asked(_http, rights, "ann", "select id from sales") != "42501", "it is back")
        assert [row[0] for row in ask(pg)] == ["1", "3", "6"]
        assert [row[0] for row in ask(other)] == ["1", "2", "3", "5", "6"]


def a_policy_that_does_not_fit_its_table_shows_nothing(rights):
    _change(rights.lake, lambda access: access["policies"].insert(0, _policy("plain", "wrong", "de", "nothing = 1")))
    support.within(SEEN_S, lambda: _asked(_http, rights, "bob", "select id from plain") == [], "it counts")
    assert _asked(_http, rights, "ann", "select id from plain") == "42501"
    assert len(_http(rights, "boss", "select id from plain")) >= 2
    _change(rights.lake, _set_up)
    support.within(SEEN_S, lambda: _asked(_http, rights, "ann", "select id from plain") != "42501", "it is gone")


def errors_name_no_values_of_rows_that_are_not_seen(rights):
    for way in (_simple, _extended, _http, _flight):
        for sql in ("select id from sales where cast(email as bigint) > 0", "select id from sales where cast(owner as date) > now()"):
            with pytest.raises((psycopg.Error, _Refused, flight.Error)) as failed:
                way(rights, "abe", sql)
            assert not any(value in str(failed.value) for value in ("@x", "olga", "pete")), (way, str(failed.value))
    with pytest.raises(psycopg.Error, match="@x"):
        _simple(rights, "boss", "select id from sales where cast(email as bigint) > 0")


def others_statements_are_not_listed(rights):
    secret = "select 'of boss' as secret, count(*) from sales"
    _simple(rights, "boss", secret)
    for role, sees in (("boss", True), ("ann", False), ("eve", False)):
        texts = [row[0] for row in _http(rights, role, "select text from system.queries")]
        assert any("of boss" in text for text in texts) == sees, role
