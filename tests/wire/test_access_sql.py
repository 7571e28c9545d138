"""Statements that change who may what: over every protocol, by whom, and what is seen of them."""

import base64
import contextlib
import json
import shutil
import subprocess

import pytest
import support

psycopg = support.module("psycopg", "psycopg")


@pytest.fixture
def server(fresh):
    """A server with the users ann, who is an admin, and bob, who is nobody; made by SQL."""
    made = fresh()
    with _connect(made, "admin", None) as first:
        first.execute("CREATE USER ann PASSWORD 'ann-secret' IN ROLE admin")
        # The session of whoever made the first user goes on.
        first.execute("CREATE USER bob PASSWORD 'bob-secret'")
    return made


def _connect(server, user, password):
    return psycopg.connect(
        host=server.pg[0], port=server.pg[1], user=user, password=password, dbname="lake", autocommit=True
    )


@pytest.fixture
def ann(server):
    with _connect(server, "ann", "ann-secret") as connection:
        yield connection


@pytest.fixture
def bob(server):
    with _connect(server, "bob", "bob-secret") as connection:
        yield connection


def _http(server, sql, user="ann", token=None, method="POST"):
    """(status, body) of a statement over HTTP."""
    basic = base64.b64encode(f"{user}:{user}-secret".encode()).decode()
    who = {"Authorization": f"Bearer {token}" if token else f"Basic {basic}"}
    status, _, body = server.ask(method, "/sql", sql.encode(), who)
    return status, json.loads(body)


def _code_of(connection, sql):
    with pytest.raises(psycopg.Error) as failed:
        connection.execute(sql)
    return failed.value.sqlstate


def _rows(connection, sql):
    return connection.execute(sql).fetchall()


def an_open_session_has_new_rights_for_its_next_statement(ann, bob):
    ask = "SELECT count(*) FROM people"
    assert _code_of(bob, ask) == "42501"
    done = ann.execute("GRANT SELECT ON people TO bob")
    assert done.statusmessage == "GRANT"
    assert _rows(bob, ask) == [(4,)]
    assert _code_of(bob, "INSERT INTO people (id) VALUES (9)") == "42501"
    ann.execute("REVOKE SELECT ON people FROM bob")
    assert _code_of(bob, ask) == "42501"
    assert ann.execute("GRANT reader TO bob").statusmessage == "GRANT ROLE"
    assert _rows(bob, ask) == [(4,)]
    ann.execute("REVOKE reader FROM bob")
    for on in ("ALL TABLES IN SCHEMA public", "SCHEMA public", "LAKE"):
        ann.execute(f"GRANT ALL ON {on} TO PUBLIC")
        assert _rows(bob, ask) == [(4,)], on
        ann.execute(f"REVOKE ALL PRIVILEGES ON {on} FROM PUBLIC")
        assert _code_of(bob, ask) == "42501", on


def only_admins_change_access_and_everybody_their_password(server, ann, bob):
    for sql in (
        "CREATE ROLE x", "ALTER USER ann PASSWORD 'x'", "ALTER USER bob PASSWORD 'x' IN ROLE admin",
        "ALTER USER bob VALID UNTIL 'infinity'", "DROP USER ann", "GRANT admin TO bob",
        "GRANT SELECT ON people TO bob", "GRANT SELECT ON nothing TO bob", "CREATE POLICY p ON people USING (true)",
        "ALTER TABLE people HIDE COLUMN name FROM ann", "CREATE TENANT t", "CREATE TOKEN FOR bob",
    ):
        assert _code_of(bob, sql) == "42501", sql
    bob.execute("ALTER USER CURRENT_USER PASSWORD 'another'")
    with pytest.raises(psycopg.OperationalError):
        _connect(server, "bob", "bob-secret")
    _connect(server, "bob", "another").close()
    ann.execute("ALTER ROLE bob NOLOGIN")
    with pytest.raises(psycopg.OperationalError):
        _connect(server, "bob", "another")
    ann.execute("DROP ROLE bob")
    assert _code_of(bob, "SELECT count(*) FROM people") == "42501"


def codes_are_those_of_access_md(ann):
    ann.execute("CREATE ROLE team")
    ann.execute("CREATE POLICY p ON people TO team USING (id > 1)")
    ann.execute("CREATE TENANT growth")
    ann.execute("CREATE ROLE grown TENANT growth")
    for sql, code in (
        ("CREATE ROLE team", "42710"), ("DROP ROLE nobody", "42704"), ("CREATE ROLE admin", "42939"),
        ("DROP ROLE reader", "42939"), ("GRANT team TO team", "0LP01"), ("DROP ROLE team", "2BP01"),
        ("DROP TENANT growth", "2BP01"), ("CREATE ROLE pg_x", "42602"), ("GRANT CREATE ON people TO team", "22023"),
        ("CREATE USER x PASSWORD ''", "22023"), ("ALTER TENANT growth WITH (weight 5000)", "22023"),
        ("REVOKE SELECT ON people FROM team", "42704"), ("GRANT SELECT ON nothing TO team", "42P01"),
        ("GRANT SELECT (nothing) ON people TO team", "42703"), ("GRANT TRUNCATE ON people TO team", "0A000"),
        ("CREATE POLICY p ON people USING (true)", "42710"), ("DROP POLICY q ON people", "42704"),
        ("CREATE USER x LOGIN LOGIN", "42601"), ("DROP TOKEN x FOR ann", "42704"),
    ):
        assert _code_of(ann, sql) == code, sql
    ann.execute("DROP ROLE IF EXISTS nobody; DROP POLICY IF EXISTS q ON people; DROP TENANT IF EXISTS nothing")
    ann.execute("DROP POLICY p ON people")
    ann.execute("DROP ROLE team, grown")
    ann.execute("DROP TENANT growth")


def a_name_is_the_table_that_a_query_means(server, ann, bob):
    ann.execute('CREATE TABLE "Mixed" (id bigint, note text); INSERT INTO "Mixed" VALUES (1, \'x\'), (2, \'y\')')
    for name, table in (
        ("PEOPLE", "people"), ('"PEOPLE"', "people"), ("public.People", "people"), ("lake.public.people", "people"),
        ("mixed", "Mixed"), ('"mixed"', "Mixed"), ('"Mixed"', "Mixed"), ("MIXED", "Mixed"),
    ):
        ask = f"SELECT count(*) FROM {name}"
        assert _code_of(bob, ask) == "42501", name
        status, answer = _http(server, f"GRANT SELECT ON {name} TO bob")
        assert status == 200 and f"SELECT on table `{table}` to bob" in json.dumps(answer), answer
        bob.execute(ask)
        granted = _rows(ann, "SELECT object FROM system.grants WHERE role = 'bob'")
        assert granted == [(table,)], name
        assert _rows(bob, f"SELECT has_table_privilege('{name}', 'SELECT')") == [(True,)], name
        ann.execute(f"REVOKE SELECT ON {name} FROM bob")
        ann.execute(f"CREATE POLICY p ON {name} TO bob USING (id > 1)")
        assert _rows(ann, "SELECT table_name FROM system.policies") == [(table,)], name
        ann.execute(f"ALTER POLICY p ON {name} USING (id > 0); DROP POLICY p ON {name}")
        ann.execute(f"ALTER TABLE {name} HIDE COLUMN id FROM bob")
        assert _rows(ann, "SELECT table_name FROM system.hidden_columns") == [(table,)], name
        ann.execute(f"ALTER TABLE {name} SHOW COLUMN id TO bob")
        assert _rows(ann, "SELECT table_name FROM system.hidden_columns") == [], name
    for name, hint in (
        ("peeple", "the lake has Mixed, every_type"),
        ("people*", None), ('"people%"', "the lake has Mixed"), ("other.people", None), ("shop.public.people", None),
    ):
        for sql in (f"GRANT SELECT ON {name} TO bob", f"CREATE POLICY p ON {name} USING (true)",
                    f"ALTER TABLE {name} HIDE COLUMN id FROM bob"):
            with pytest.raises(psycopg.Error) as failed:
                ann.execute(sql)
            assert failed.value.sqlstate in ("42601",) if "*" in name else failed.value.sqlstate == "42P01", sql
            assert hint is None or hint in failed.value.diag.message_hint, (sql, failed.value.diag.message_hint)
    # What is gone is called as it was.
    ann.execute("GRANT SELECT ON Mixed TO bob; CREATE POLICY p ON mixed TO bob USING (id > 1); DROP TABLE mixed")
    ann.execute("REVOKE SELECT ON MIXED FROM bob; DROP POLICY p ON mixed")
    assert _rows(ann, "SELECT count(*) FROM system.grants") == [(0,)]
    assert _rows(ann, "SELECT count(*) FROM system.policies") == [(0,)]


def tables_that_a_role_may_do_nothing_with_are_listed_to_it_nowhere(server, ann, bob):
    ann.execute("CREATE POLICY p ON people USING (id > 1)")
    lists = (
        "SHOW TABLES", "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 2200",
        "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'",
        "SELECT DISTINCT table_name FROM information_schema.columns WHERE table_schema = 'public'",
        "SELECT relname FROM pg_stat_user_tables",
    )

    def listed(who):
        found = {sql: sorted(row[0] for row in _rows(who, sql)) for sql in lists}
        assert len({tuple(names) for names in found.values()}) == 1, found
        return found[lists[0]]

    everything = ["every_type", "filled", "numbers", "people"]
    assert listed(ann) == everything
    assert listed(bob) == []
    # Their policies are not either, but that there is such a table is heard by who names it.
    assert _rows(bob, "SELECT polname FROM pg_policy") == [] and len(_rows(ann, "SELECT polname FROM pg_policy")) == 1
    assert _code_of(bob, "SELECT count(*) FROM people") == "42501"
    assert _code_of(bob, "SELECT count(*) FROM peeple") == "42P01"
    ann.execute("GRANT SELECT (id) ON people TO bob; GRANT INSERT ON numbers TO bob")
    assert listed(bob) == ["numbers", "people"]
    assert len(_rows(bob, "SELECT polname FROM pg_policy")) == 1
    ann.execute("REVOKE ALL ON people, numbers FROM bob; GRANT CREATE ON SCHEMA public TO bob")
    assert listed(bob) == everything
    ann.execute("REVOKE CREATE ON SCHEMA public FROM bob; GRANT reader TO bob")
    assert listed(bob) == everything
    assert listed(ann) == everything


def a_condition_is_checked_when_it_is_made(ann):
    for condition, code, at in (
        ("id >", "42601", None), ("nothing = 1", "42703", "nothing"), ("id", "42804", "id)"),
        ("id > (SELECT 1)", "0A000", "id"), ("random() > 0.5", "0A000", "random"), ("sum(id) > 1", "42803", "sum"),
    ):
        sql = f"CREATE POLICY p ON people\n  USING ({condition})"
        with pytest.raises(psycopg.Error) as failed:
            ann.execute(sql)
        assert failed.value.sqlstate == code, condition
        if at:
            assert int(failed.value.diag.statement_position) == sql.index(at) + 1, condition
    ann.execute("CREATE ROLE team; CREATE ROLE other")
    ann.execute("CREATE POLICY p ON people FOR SELECT TO team, other USING (id > 1 AND name <> 'it''s')")
    ann.execute("ALTER POLICY p ON people TO other USING (score > 0)")
    assert _rows(ann, "SELECT table_name, name, role, condition FROM system.policies") == [
        ("people", "p", "other", "score > 0")
    ]
    ann.execute("ALTER TABLE people HIDE COLUMN name, SCORE FROM team, other")
    ann.execute("ALTER TABLE people SHOW COLUMN score TO team")
    assert _rows(ann, "SELECT role, columns FROM system.hidden_columns ORDER BY role") == [
        ("other", "name, score"), ("team", "name")
    ]
    # What is hidden by its name would be seen by another.
    with pytest.raises(psycopg.Error) as refused:
        ann.execute("ALTER TABLE people RENAME COLUMN name TO called")
    assert refused.value.sqlstate == "0A000" and "SHOW COLUMN" in refused.value.diag.message_hint


def passwords_are_listed_nowhere(server, ann):
    for sql in (
        "CREATE USER carl PASSWORD 'hush-hush'", "CREATE USER carl PASSWORD 'hush-hush'",
        "ALTER USER carl PASSWRD 'hush-hush'", "ALTER USR carl PASSWORD 'hush-hush'", "ALTER USER carl PASSWORD hush_hush",
    ):
        with contextlib.suppress(psycopg.Error):
            ann.execute(sql)
    status, answer = _http(server, "ALTER USER carl PASSWORD 'hush-hush'; ALTER USER carl PASSWORD 'hush-hush' x")
    assert status == 400 and "hush" not in json.dumps(answer)
    listed = _rows(ann, "SELECT text, error FROM system.queries WHERE text LIKE '%carl%'")
    assert len(listed) == 6
    assert "hush" not in str(listed) and "hush" not in server.said()
    assert "'***'" in str(listed)
    _connect(server, "carl", "hush-hush").close()


def tokens_are_shown_once(server, ann):
    [(token,)] = _rows(ann, "CREATE TOKEN ci FOR bob VALID UNTIL '2100-01-01'")
    assert token.startswith("uplake_")
    assert _http(server, "SELECT 1 AS x", token=token)[0] == 200
    # By the extended protocol, which describes it first, one is made.
    cursor = ann.execute("CREATE TOKEN FOR bob", prepare=True)
    assert cursor.description[0].name == "token" and len(cursor.fetchall()) == 1
    with psycopg.RawCursor(ann) as raw:
        assert len(raw.execute("CREATE TOKEN FOR bob", [], binary=True).fetchall()) == 1
    assert _rows(ann, "SELECT name, role FROM system.tokens ORDER BY name") == [
        ("ci", "bob"), ("token_1", "bob"), ("token_2", "bob")
    ]
    status, answer = _http(server, "CREATE TOKEN FOR bob")
    assert status == 200 and "uplake_" in json.dumps(answer)
    assert token not in str(_rows(ann, "SELECT * FROM system.queries"))
    ann.execute("DROP TOKEN ci FOR bob")
    assert _http(server, "SELECT 1 AS x", token=token)[0] == 401


@pytest.mark.parametrize("role", ["bob", "ann"])
def who_comes_by_a_token_does_not_change_the_password(server, ann, role):
    [(token,)] = _rows(ann, f"CREATE TOKEN FOR {role}")
    words = {"adbc.flight.sql.authorization_header": f"Bearer {token}"}
    uri = f"grpc://{server.http[0]}:{server.http[1]}"
    for sql in (
        "ALTER USER CURRENT_USER PASSWORD 'mine'", f"ALTER ROLE {role} PASSWORD 'mine'", f"ALTER ROLE {role} PASSWORD NULL",
        f"ALTER ROLE {role} PASSWORD 'mine' VALID UNTIL 'infinity'",
    ):
        status, answer = _http(server, sql, token=token)
        assert (status, answer["error"]["code"]) == (403, "42501"), answer
        assert "by the password" in answer["error"]["hint"] and "mine" not in json.dumps(answer), answer
        flight = pytest.importorskip("adbc_driver_flightsql.dbapi", reason="MISSING: adbc-driver-flightsql")
        with flight.connect(uri, db_kwargs=words, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.adbc_statement.set_sql_query(sql)
            with pytest.raises(Exception, match="by a token"):
                cursor.adbc_statement.execute_update()
    _connect(server, role, f"{role}-secret").close()
    # By the password one does, and a token is good for all else.
    assert _http(server, "SELECT 1 AS x", token=token)[0] == 200
    assert _http(server, "ALTER USER CURRENT_USER PASSWORD 'mine'", user=role)[0] == 200
    _connect(server, role, "mine").close()
    status, answer = _http(server, "ALTER USER bob VALID UNTIL 'infinity'", token=token)
    assert status == (200 if role == "ann" else 403), answer


def over_http_also_several_at_once(server, bob):
    sql = "CREATE ROLE team;\n  GRANT SELECT ON people TO team;\n  GRANT team TO bob"
    status, answer = _http(server, sql)
    assert status == 200, answer
    assert _rows(bob, "SELECT count(*) FROM people") == [(4,)]
    status, answer = _http(server, "SELECT 1;\n  GRANT nobody TO\n bob")
    assert (status, answer["error"]["code"]) == (404, "42704"), answer
    status, answer = _http(server, "SELECT 1;\n  GRANT SELECT ON nothing TO bob")
    assert answer["error"]["code"] == "42P01"
    assert (answer["error"]["line"], answer["error"]["column"]) == (2, 19), answer
    assert _http(server, "CREATE ROLE x", user="bob")[1]["error"]["code"] in ("42501", "28P01")


def over_flight_sql(server, bob):
    flight = pytest.importorskip("adbc_driver_flightsql.dbapi", reason="MISSING: adbc-driver-flightsql")
    basic = base64.b64encode(b"ann:ann-secret").decode()
    words = {"adbc.flight.sql.authorization_header": f"Basic {basic}"}
    uri = f"grpc://{server.http[0]}:{server.http[1]}"
    with flight.connect(uri, db_kwargs=words, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.adbc_statement.set_sql_query("GRANT SELECT ON people TO bob")
        cursor.adbc_statement.execute_update()
        assert _rows(bob, "SELECT count(*) FROM people") == [(4,)]
        cursor.execute("CREATE TOKEN FOR bob")
        assert cursor.fetchone()[0].startswith("uplake_")
        cursor.adbc_statement.set_sql_query("CREATE TOKEN FOR bob")
        with pytest.raises(Exception, match="token"):
            cursor.adbc_statement.execute_update()


def in_a_transaction_it_takes_effect_at_once(ann, bob):
    told = []
    ann.add_notice_handler(lambda notice: told.append(notice.sqlstate))
    ann.execute("BEGIN")
    ann.execute("GRANT SELECT ON people TO bob")
    assert _rows(bob, "SELECT count(*) FROM people") == [(4,)]
    ann.execute("ROLLBACK")
    assert told and _rows(bob, "SELECT count(*) FROM people") == [(4,)]


def catalogs_list_who_may_what(ann, bob):
    ann.execute("CREATE ROLE team CONNECTION LIMIT 3; GRANT team TO bob; GRANT SELECT ON people TO team")
    ann.execute("GRANT SELECT (id, digit), INSERT ON numbers TO bob")
    ann.execute("CREATE TENANT growth WITH (weight 3, slots 8, memory '8GB')")
    ann.execute("ALTER USER bob TENANT growth VALID UNTIL '2100-01-01'")
    assert _rows(ann, "SELECT rolcanlogin, rolsuper, rolconnlimit FROM pg_catalog.pg_roles WHERE rolname = 'team'") == [
        (False, False, 3)
    ]
    members = (
        "SELECT m.rolname, r.rolname FROM pg_catalog.pg_auth_members a JOIN pg_catalog.pg_roles r ON r.oid = a.roleid"
        " JOIN pg_catalog.pg_roles m ON m.oid = a.member ORDER BY 1"
    )
    assert _rows(ann, members) == [("ann", "admin"), ("bob", "team")]
    for ask, who, expected in (
        ("has_table_privilege('people', 'SELECT')", bob, True),
        ("has_table_privilege('people', 'INSERT')", bob, False),
        ("has_table_privilege('people', 'INSERT, SELECT')", bob, True),
        ("has_table_privilege('numbers', 'SELECT')", bob, False),
        ("has_any_column_privilege('numbers', 'SELECT')", bob, True),
        ("has_column_privilege('numbers', 'digit', 'SELECT')", bob, True),
        ("has_column_privilege('numbers', 'name', 'SELECT')", bob, False),
        ("has_table_privilege('bob', 'numbers', 'INSERT')", ann, True),
        ("has_table_privilege('people', 'SELECT, DELETE')", ann, True),
        ("has_table_privilege('pg_class', 'SELECT')", bob, True),
        ("has_schema_privilege('public', 'USAGE')", bob, True),
        ("has_schema_privilege('public', 'CREATE')", bob, False),
        ("pg_has_role('team', 'MEMBER')", bob, True),
        ("pg_has_role('bob', 'admin', 'MEMBER')", ann, False),
    ):
        assert _rows(who, f"SELECT {ask}") == [(expected,)], ask
    assert _code_of(ann, "SELECT has_table_privilege('nobody', 'people', 'SELECT')") == "42704"
    listed = (
        "SELECT grantee, privilege_type FROM information_schema.table_privileges"
        " WHERE table_name = 'numbers' AND grantee NOT IN ('reader', 'writer')"
    )
    assert _rows(ann, listed) == [("bob", "INSERT")]
    assert _rows(ann, "SELECT column_name FROM information_schema.column_privileges ORDER BY 1") == [
        ("digit",), ("id",)
    ]
    assert _rows(ann, "SELECT role, privilege, object, columns FROM system.grants ORDER BY 1, 2") == [
        ("bob", "INSERT", "numbers", None), ("bob", "SELECT", "numbers", "digit, id"), ("team", "SELECT", "people", None)
    ]
    assert _rows(ann, "SELECT name, weight, slots, memory_bytes FROM system.tenants") == [("growth", 3, 8, 8 << 30)]
    assert _rows(bob, "SELECT name, member_of, tenant FROM system.roles ORDER BY 1") == [
        ("bob", "team", "growth"), ("public", None, None), ("team", None, None)
    ]
    assert len(_rows(ann, "SELECT * FROM system.roles")) > 8


@pytest.fixture
def psql(server):
    program = shutil.which("psql")
    if program is None:
        support.missing("psql", "apt-get install postgresql-client")

    def run(*options, user="ann", password=None, stdin=""):
        url = f"postgresql://{user}:{password or user + '-secret'}@{server.pg[0]}:{server.pg[1]}/lake"
        # Without a terminal of its own it asks for passwords on standard input.
        done = subprocess.run(
            [program, "-X", "-A", "-v", "ON_ERROR_STOP=1", *options, url],
            input=stdin, capture_output=True, text=True, timeout=60, start_new_session=True,
        )
        assert done.returncode == 0, done
        return done.stdout

    return run


def psql_lists_roles_rights_and_policies(psql):
    psql("-c", "CREATE ROLE team", "-c", "GRANT team TO bob", "-c", "GRANT SELECT, INSERT ON people TO team")
    psql("-c", "GRANT SELECT (id) ON numbers TO bob")
    psql("-c", "CREATE POLICY p ON people TO team USING (id > 1)")
    out = psql("-c", r"\du")
    assert "bob||{team}" in out and "team|Cannot login|{}" in out and "ann|Superuser" in out
    out = psql("-c", r"\dp people")
    assert "team=ar/admin" in out and "p (r):\n  (u): id > 1\n  to: team" in out, out
    assert "id:\n  bob=r/admin" in psql("-c", r"\dp numbers")
    out = psql("-c", r"\d people")
    assert 'POLICY "p" FOR SELECT' in out and "TO team" in out and "USING (id > 1)" in out, out


def psql_changes_a_password(psql, server):
    psql("-c", r"\password", user="bob", stdin="new-secret\nnew-secret\n")
    _connect(server, "bob", "new-secret").close()
    psql("-c", r"\password bob", stdin="newer-secret\nnewer-secret\n")
    _connect(server, "bob", "newer-secret").close()
    with _connect(server, "ann", "ann-secret") as ann:
        assert "SCRAM-SHA-256$4096" not in str(_rows(ann, "SELECT text FROM system.queries"))


def by_the_command_without_a_server(tmp_path):
    lake = support.make_lake(tmp_path)
    sql = "CREATE USER carl PASSWORD 'x'; GRANT SELECT ON people TO carl; CREATE TOKEN FOR carl"
    command = [support.binary(), "sql", "--lake", str(lake), "-c", sql]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "uplake_" in done.stdout, done
    command = [support.binary(), "user", "list", "--lake", str(lake), "--format", "json"]
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60).stdout)
    assert (listed[0]["name"], listed[0]["tokens"]) == ("carl", 1)
