"""Views over connections: who sees what by one, how clients list them, and what other processes see of a new one."""

import re
import shutil
import subprocess

import pytest
import support

psycopg = support.module("psycopg", "psycopg")

SETUP = """
CREATE TABLE sales (id BIGINT, country TEXT, amount BIGINT);
INSERT INTO sales VALUES (1, 'DE', 10), (2, 'FR', 20), (3, 'DE', 30);
CREATE TABLE plain (id BIGINT, v TEXT);
INSERT INTO plain VALUES (1, 'x');
CREATE VIEW by_country AS SELECT country, sum(amount) AS total FROM sales GROUP BY country;
CREATE VIEW large AS SELECT * FROM by_country WHERE total > 15;
CREATE VIEW all_sales AS SELECT * FROM sales;
CREATE VIEW of_plain AS SELECT id FROM plain;
"""


@pytest.fixture
def server(fresh, tmp_path):
    made = fresh()
    made.lake = str(tmp_path / "lake")
    with _connect(made, "admin", None) as first:
        first.execute("CREATE USER boss PASSWORD 'boss-secret' IN ROLE admin")
    with _connect(made, "boss") as boss:
        for statement in SETUP.split(";"):
            if statement.strip():
                boss.execute(statement)
        for role, rights in {
            "ann": ["GRANT SELECT ON sales TO ann"],
            "bob": ["GRANT SELECT ON plain TO bob"],
            "cat": ["GRANT SELECT ON sales TO cat", "CREATE POLICY p ON sales TO cat USING (country = 'DE')"],
            "dan": ["GRANT writer TO dan"],
            "eve": [],
        }.items():
            boss.execute(f"CREATE USER {role} PASSWORD '{role}-secret'")
            for right in rights:
                boss.execute(right)
        # Who has no policy of a table that has some sees no row of it.
        boss.execute("CREATE POLICY whole ON sales TO ann USING (true)")
    return made


def _connect(server, user, password=""):
    password = f"{user}-secret" if password == "" else password
    return psycopg.connect(
        host=server.pg[0], port=server.pg[1], user=user, password=password, dbname="lake", autocommit=True
    )


def _rows(server, user, sql, *values):
    with _connect(server, user) as connection:
        return sorted(connection.execute(sql, values or None).fetchall())


def _code(server, user, sql):
    with _connect(server, user) as connection, pytest.raises(psycopg.Error) as failed:
        connection.execute(sql)
    return failed.value.sqlstate


def a_view_is_read_with_the_rights_and_policies_of_who_asks(server):
    everything = [("DE", 40), ("FR", 20)]
    for ask in ("SELECT * FROM by_country", "SELECT * FROM large"):
        assert _rows(server, "ann", ask) == everything, ask
        assert _rows(server, "cat", ask) == [("DE", 40)], ask
        for other in ("bob", "eve"):
            assert _code(server, other, ask) == "42501", (other, ask)
    # Bound and prepared, with a plan that others have kept, in a subquery and in WITH.
    for _ in range(3):
        for user, expected in (("ann", [("FR", 20)]), ("cat", [])):
            assert _rows(server, user, "SELECT * FROM by_country WHERE country = %s", "FR") == expected
            assert _rows(server, user, "WITH v AS (SELECT * FROM by_country) SELECT * FROM v WHERE country = 'FR'") == expected
    assert _code(server, "eve", "SELECT 1 WHERE EXISTS (SELECT * FROM large)") == "42501"
    for about in ("EXPLAIN SELECT * FROM large", "DESCRIBE large", "SHOW CREATE VIEW large", "SUMMARIZE large"):
        assert _code(server, "eve", about) == "42501", about
    # What tells of rows that a role does not see.
    assert _code(server, "cat", "EXPLAIN SELECT * FROM large") == "42501"
    assert _code(server, "cat", "SHOW CREATE VIEW large") == "42501"


def views_of_tables_that_a_role_may_do_nothing_with_are_not_listed(server):
    listed = lambda user: {row[0] for row in _rows(server, user, "SHOW TABLES")}
    of_sales, of_plain = {"sales", "by_country", "large", "all_sales"}, {"plain", "of_plain"}
    views = "SELECT viewname FROM pg_views WHERE schemaname = 'public'"
    for user, sees in {"boss": of_sales | of_plain, "ann": of_sales, "bob": of_plain, "eve": set()}.items():
        assert listed(user) >= sees and not (listed(user) & (of_sales | of_plain)) - sees, user
        expected = sorted((view,) for view in sees - {"sales", "plain"})
        assert _rows(server, user, views) == expected, user
        assert _rows(server, user, "SELECT table_name FROM information_schema.views") == expected, user


def views_are_made_and_dropped_by_who_may_make_tables(server):
    for statement in ("CREATE VIEW mine AS SELECT 1 AS x", "CREATE OR REPLACE VIEW large AS SELECT 1 AS x", "DROP VIEW large"):
        assert _code(server, "ann", statement) == "42501", statement
    with _connect(server, "boss") as boss:
        assert boss.execute("CREATE OR REPLACE VIEW large AS SELECT country FROM by_country").statusmessage == "CREATE VIEW"
        assert boss.execute("DROP VIEW large").statusmessage == "DROP VIEW"
    assert _code(server, "boss", "SELECT * FROM large") == "42P01"


def a_column_that_is_hidden_is_not_in_the_lists(server):
    with _connect(server, "boss") as boss:
        boss.execute("CREATE ROLE nomoney")
        boss.execute("GRANT nomoney TO ann")
        boss.execute("ALTER TABLE sales HIDE COLUMN amount FROM nomoney")
    columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'all_sales'"
    assert ("amount",) not in _rows(server, "ann", columns)
    assert _rows(server, "ann", "SELECT * FROM all_sales WHERE id = 1") == [(1, "DE")]
    assert ("amount",) in _rows(server, "boss", columns)


def tools_find_views(server):
    kinds = _rows(server, "boss", "SELECT relname, relkind FROM pg_class WHERE relname IN ('large', 'sales')")
    assert kinds == [("large", "v"), ("sales", "r")]
    columns = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'large'"
    assert _rows(server, "boss", columns) == [("country", "text"), ("total", "bigint")]
    text = "SELECT view_definition FROM information_schema.views WHERE table_name = 'large'"
    assert _rows(server, "boss", text) == [("SELECT * FROM by_country WHERE total > 15",)]
    types = "SELECT table_name, table_type FROM information_schema.tables WHERE table_name IN ('large', 'sales')"
    assert _rows(server, "boss", types) == [("large", "VIEW"), ("sales", "BASE TABLE")]
    program = shutil.which("psql")
    if program is None:
        support.missing("psql", "apt-get install postgresql-client")
    url = f"postgresql://boss:boss-secret@{server.pg[0]}:{server.pg[1]}/lake"
    for command, expected in ((r"\dv", r"public\|large\|view"), (r"\d large", r'View "public.large"'), (r"\d+ large", "total > 15")):
        done = subprocess.run([program, "-X", "-A", "-c", command, url], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and re.search(expected, done.stdout), (command, done)
    tables = subprocess.run([program, "-X", "-A", "-c", r"\dt", url], capture_output=True, text=True, timeout=60)
    assert "|sales|" in tables.stdout and "|large|" not in tables.stdout


def a_view_that_another_process_replaces_is_planned_anew(server):
    with _connect(server, "boss") as boss:
        of_others = boss.cursor()
        named = boss.cursor()
        ask = "SELECT * FROM of_plain"
        for _ in range(6):
            # Prepared by the driver after some runs.
            assert named.execute(ask).fetchall() == [(1,)]
        command = [support.binary(), "sql", "--lake", server.lake, "-c"]
        replace = "CREATE OR REPLACE VIEW of_plain AS SELECT id + 41 AS id FROM plain"
        subprocess.run([*command, replace], check=True, capture_output=True, timeout=60)
        assert of_others.execute(ask).fetchall() == [(42,)]
        assert named.execute(ask).fetchall() == [(42,)]
        assert boss.execute("SELECT sum(id) FROM of_plain WHERE id > %s", (1,)).fetchall() == [(42,)]
        subprocess.run([*command, "DROP VIEW of_plain"], check=True, capture_output=True, timeout=60)
        with pytest.raises(psycopg.Error) as failed:
            boss.execute(ask)
        assert failed.value.sqlstate == "42P01"


def queries_are_described_and_summarized(server):
    described = _rows(server, "boss", "DESCRIBE SELECT id + 1 AS n, country FROM sales")
    assert [row[:2] for row in described] == [("country", "text"), ("n", "bigint")]
    summary = _rows(server, "boss", "SUMMARIZE sales")
    assert [(row[0], row[2], row[3], row[10]) for row in summary] == [
        ("amount", "10", "30", 3), ("country", "DE", "FR", 3), ("id", "1", "3", 3),
    ]
