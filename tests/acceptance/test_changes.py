"""UPDATE, MERGE, DELETE, ALTER TABLE: the same rows as DuckDB has after the same statements, by every reader."""

import time

import duckdb
import pytest

import support
from support import assert_same, rows_of

SEEDS = 4 * support.SOAK
COLUMNS = "id bigint not null, part text, n int, f double, s text"
COLUMN_NAMES = ["id", "part", "n", "f", "s"]
LAYOUTS = [
    "clustered by (id) indexed by (id, s)", "partitioned by (part) clustered by (n, id) indexed by (id)", "",
    "clustered by (s) id domains (s words)",
]


def _value(rng, kind):
    if rng.random() < 0.15:
        return "null"
    return {
        "part": lambda: f"'{rng.choice('abc')}'", "n": lambda: str(rng.randrange(-5, 20)),
        "f": lambda: f"{rng.randrange(-8, 8) / 4}::double", "s": lambda: f"'{rng.choice(['x', 'yy', '', 'ü', 'zz z'])}'",
    }[kind]()


def _row(rng, number):
    return f"({number}, {_value(rng, 'part')}, {_value(rng, 'n')}, {_value(rng, 'f')}, {_value(rng, 's')})"


def _condition(rng, t="t"):
    chosen = rng.choice([
        f"{t}.n < {rng.randrange(15)}", f"{t}.s = 'x' or {t}.n is null", f"not ({t}.n > {rng.randrange(15)})",
        f"{t}.id between {rng.randrange(100)} and {rng.randrange(100, 200)}", f"{t}.part = 'a'",
        f"{t}.part <> 'b' and {t}.f > 0", f"{t}.id in ({rng.randrange(200)}, {rng.randrange(200)}, null)", "null",
    ])
    return f"({chosen})"


def _sets(rng, t="t", source=None):
    other = [f"{source}.n", f"{source}.n + {t}.n"] if source else []
    chosen = {
        "part": rng.choice([f"{t}.part", "'d'", "null", f"{t}.s"]), "n": rng.choice([f"{t}.n + 1", f"{t}.id % 7", "null", *other]),
        "f": rng.choice([f"{t}.n / 2.0::double", "0", f"{t}.f"]), "s": rng.choice([f"{t}.part", "'new'", f"coalesce({t}.s, '-')"]),
    }
    columns = rng.sample(sorted(chosen), rng.randrange(1, 4))
    return ", ".join(f"{column} = {chosen[column]}" for column in columns)


def _statement(rng, new):
    kind = rng.randrange(8)
    if kind == 0:
        return f"insert into t values {', '.join(_row(rng, new + i) for i in range(rng.randrange(1, 30)))}"
    if kind == 1:
        return f"delete from t where {_condition(rng)}"
    if kind == 2:
        return f"delete from t where id in (select k from s where n > {rng.randrange(10)})"
    if kind == 3:
        return f"update t set {_sets(rng)}"
    if kind == 4:
        return f"update t set {_sets(rng)} where {_condition(rng)}"
    if kind == 5:
        return f"update t set n = s.n from s where t.id = s.k and s.n is not null and ({_condition(rng)})"
    if kind == 6:
        return f"update t set f = (select max(n) from s) where exists (select 1 from s where s.k = t.id) and ({_condition(rng)})"
    clauses = rng.sample([
        f"when matched and {_condition(rng)} then update set {_sets(rng, 't', 's')}", "when matched and s.n > 5 then delete",
        f"when not matched and s.n > {rng.randrange(10)} then insert (id, n, part) values (s.k, s.n, 'm')",
        f"when not matched by source and {_condition(rng)} then update set {_sets(rng)}",
        f"when not matched by source and t.n > {rng.randrange(5, 20)} then delete",
    ], rng.randrange(1, 5))
    return f"merge into t using s on t.id = s.k {' '.join(clauses)}"


@pytest.mark.parametrize("seed", range(SEEDS))
def rows_are_those_of_duckdb_after_each_statement(lake, seed):
    rng = support.seeded(f"changes {seed}")
    theirs = duckdb.connect()
    source = [f"({k}, {rng.choice(['null', str(rng.randrange(12))])})" for k in rng.sample(range(260), 60)]
    both = [f"insert into s values {', '.join(source)}"]
    both += [f"insert into t values {', '.join(_row(rng, 100 * i + j) for j in range(60))}" for i in range(3)]
    lake.run("sql", "-c", f"create table t ({COLUMNS}) {LAYOUTS[seed % len(LAYOUTS)]}; create table s (k bigint, n int)")
    theirs.execute(f"create table t ({COLUMNS}); create table s (k bigint, n int)")
    both += [_statement(rng, 1000 * (i + 1)) for i in range(12)]
    for statement in both:
        lake.run("sql", "-c", statement)
        theirs.execute(statement)
        want = rows_of(theirs.sql("select * from t").to_arrow_table())
        assert_same(lake.rows("select * from t"), want, statement)
    assert_same(lake.rows("select * from t", "--no-index"), want, "without indexes")
    theirs_too = lake.delta("t").to_pyarrow_table().select(COLUMN_NAMES)
    assert_same(rows_of(theirs_too), want, "deltalake")
    for text in ("x", "new", "-"):
        where = f"select * from t where s = '{text}' or id = 42"
        assert_same(lake.rows(where), lake.rows(where, "--no-index"), where)
        assert_same(lake.rows(where), rows_of(theirs.sql(where).to_arrow_table()), where)
    assert "sound" in lake.run("table", "check", "t").out


def what_cannot_be_changed_leaves_the_table_as_it_is(lake):
    lake.run("sql", "-c", "create table t (id bigint not null, n int) indexed by (id); insert into t values (1, 1), (2, 2)")
    version, files = lake.version("t"), lake.files_on_disk("t")
    for statement, says in [
        ("update t set id = null where n = 2", "id"), ("update t set n = 'many'", "many"),
        ("update t set n = s.n from (values (1), (1)) s (n) where t.n = s.n", "more than one row"),
        ("merge into t using (values (1), (1)) s (n) on t.n = s.n when matched then delete", "more than one row"),
    ]:
        lake.refused("sql", "-c", statement, says=[says])
        assert (lake.version("t"), lake.files_on_disk("t")) == (version, files), statement
    assert lake.json("select * from t order by id") == [{"id": 1, "n": 1}, {"id": 2, "n": 2}]


def a_column_that_is_added_is_null_in_rows_from_before(lake):
    lake.run("sql", "-c", "create table t (id bigint) indexed by (id); insert into t values (1), (2)")
    files = lake.files_on_disk("t")
    lake.run("sql", "-c", "alter table t add column c text, add column if not exists d decimal(10, 2)")
    assert lake.files_on_disk("t") == files
    lake.run("sql", "-c", "insert into t values (3, 'x', 1.5); update t set d = 2 where id = 1")
    rows = [{"id": 1, "c": None, "d": 2}, {"id": 2, "c": None, "d": None}, {"id": 3, "c": "x", "d": 1.5}]
    assert lake.json("select * from t order by id") == rows
    assert lake.json("select * from t where c is null order by id", "--no-index") == rows[:2]
    lake.same_as_deltalake("t")
    assert lake.json("select * from t version as of 1 order by id") == [{"id": 1}, {"id": 2}]
    lake.refused("sql", "-c", "alter table t add column C int", says=["already"])
    lake.refused("sql", "-c", "alter table t add column e int not null", says=["NULL"])
    lake.refused("sql", "-c", "alter table t add column e int default 1", says=["not supported"])


@pytest.mark.parametrize("seed", range(SEEDS))
def columns_go_and_get_other_names_for_every_reader(lake, seed):
    rng = support.seeded(f"columns {seed}")
    theirs = duckdb.connect()
    lake.run("sql", "-c", f"create table t ({COLUMNS}) {LAYOUTS[seed % len(LAYOUTS)]}")
    theirs.execute(f"create table t ({COLUMNS})")
    rows = ", ".join(_row(rng, i) for i in range(200))
    for into in (lambda sql: lake.run("sql", "-c", sql), theirs.execute):
        into(f"insert into t values {rows}")
    before, old = lake.version("t"), rows_of(theirs.sql("select * from t").to_arrow_table())
    statements = ["alter table t rename column f to g", "alter table t rename column s to f", "alter table t drop column g",
                  "insert into t (id, f) values (1000, 'new')", "alter table t add column g int", "update t set g = id where id < 5",
                  "alter table t rename g to s"]
    for statement in statements:
        lake.run("sql", "-c", statement)
        theirs.execute(statement)
        want = rows_of(theirs.sql("select * from t").to_arrow_table())
        assert_same(lake.same_as_deltalake("t"), want, statement)
    for where in ("f = 'x'", "f = 'new' or id = 42", "s = 3", "id > 150 and f is null"):
        sql = f"select * from t where {where}"
        want = rows_of(theirs.sql(sql).to_arrow_table())
        assert_same(lake.rows(sql), want, where)
        assert_same(lake.rows(sql, "--no-index"), want, where)
    assert_same(lake.rows(f"select * from t version as of {before}"), old, "the version from before")
    assert_same(rows_of(lake.delta("t", before).to_pyarrow_table().select(COLUMN_NAMES)), old, "deltalake's")
    names = {name for file in lake.parquet("t") for name in file.schema_arrow.names if not name.startswith("__id_")}
    assert names <= {"id", "part", "n", "f", "s"}
    log = [commit["operation"] for commit in reversed(lake.delta("t").history())]
    assert log[before + 1:before + 4] == ["RENAME COLUMN", "RENAME COLUMN", "DROP COLUMNS"]
    assert "sound" in lake.run("table", "check", "t").out


def keys_ids_indexes_and_comments_go_with_their_columns(lake):
    lake.run("sql", "-c", "create table t (k text, u text, n int, gone text, primary key (k)) clustered by (u) "
             "indexed by (n, gone) id domains (u users, gone things)")
    rows = ", ".join(f"('k{i}', 'u{i % 7}', {i}, 'g{i}')" for i in range(100))
    lake.run("sql", "-c", f"insert into t values {rows}; comment on column t.n is 'how many'; comment on column t.gone is 'x'")
    lake.run("sql", "-c", "alter table t rename k to key, rename u to who, rename n to \"Count\", drop column gone")
    shown = {row["column_name"]: (row["layout"], row["comment"]) for row in lake.json("describe t")}
    assert shown == {
        "key": ("primary key", None), "who": ("cluster 1, ids of users", None), "Count": ("index ids", "how many"),
    }
    assert {f.name: f.metadata.get("comment") for f in lake.delta("t").schema().fields} == {
        "key": None, "who": None, "Count": "how many", "__id_who": None,
    }
    lake.run("sql", "-c", "insert into t values ('k5', 'u100', -5), ('new', 'u0', 1)")
    assert lake.json("select who, count from t where key = 'k5'") == [{"who": "u100", "Count": -5}]
    assert lake.count("t") == 101 and "sound" in lake.run("table", "check", "t").out
    groups = {row["who"]: row["n"] for row in lake.json("select who, count(*) n from t group by who")}
    assert groups == {"u0": 16, "u1": 15, "u2": 14, "u3": 14, "u4": 14, "u5": 13, "u6": 14, "u100": 1}
    assert lake.json("select key from t where count = 42") == lake.json("select key from t where count = 42", "--no-index")
    lake.refused("sql", "-c", "alter table t drop column who", says=["sorted by"])
    lake.run("sql", "-c", "alter table t set (clustered_by = 'count')")
    lake.run("sql", "-c", "alter table t drop column who")
    assert lake.same_as_deltalake("t") and lake.count("t") == 101


def a_column_that_changes_meanwhile_is_a_conflict_and_loses_nothing(lake, folder):
    lake.run("sql", "-c", "create table t (a int, b int); insert into t select v, v from range(1, 100001) r(v)")
    slow = folder / "slow.csv"
    slow.write_text("a,b\n" + "".join(f"{i},{i}\n" for i in range(400_000)))
    load = lake.start("load", "t", slow)
    version, tries = lake.version("t"), 0
    while load.poll() is None and tries < 50:
        lake.run("sql", "-c", f"alter table t rename column {'a to c' if tries % 2 == 0 else 'c to a'}", code=None)
        tries += 1
    err = load.communicate()[1].decode()
    columns = {row["column_name"] for row in lake.json("describe t")}
    assert columns in ({"a", "b"}, {"c", "b"}), columns
    rows = 100_000 + (400_000 if load.returncode == 0 else 0)
    assert lake.count("t") == rows and lake.version("t") > version, err
    assert load.returncode == 0 or "same time" in err or "no column" in err or "not in the table" in err, err
    lake.same_as_deltalake("t")


def a_rename_that_is_killed_leaves_the_old_table_or_the_new_one(lake):
    lake.run("sql", "-c", "create table t as select v as a, v * 2 as b, 'text ' || v as c from range(1, 300001) r(v)")
    sums = lake.json("select count(*) n, sum(a) s, max(c) c from t")
    rng, old, new = support.seeded("killed rename"), 0, 0
    name = "a"
    for _ in range(6 * support.SOAK):
        other = "z" if name == "a" else "a"
        version = lake.version("t")
        process = lake.start("sql", "-c", f"alter table t rename column {name} to {other}")
        time.sleep(rng.uniform(0.01, 0.6))
        process.kill()
        process.communicate()
        if lake.version("t") == version:
            old += 1
        else:
            assert lake.version("t") == version + 1
            new, name = new + 1, other
        assert lake.json(f"select count(*) n, sum({name}) s, max(c) c from t") == sums
        lake.refused("sql", "-c", f"select {'z' if name == 'a' else 'a'} from t")
    assert old + new > 0 and "sound" in lake.run("table", "check", "t").out
    lake.same_as_deltalake("t")


def comments_are_kept_where_delta_keeps_them(lake):
    lake.run("sql", "-c", "create table t (\"Id\" bigint, n int); insert into t values (1, 2)")
    lake.run("sql", "-c", "comment on table t is 'who''s who'; comment on column t.\"Id\" is 'a number'; comment on column t.n is 'x'")
    lake.run("sql", "-c", "comment on column t.n is null; alter table t add column m int; insert into t values (3, 4, 5)")
    delta = lake.delta("t")
    assert delta.metadata().description == "who's who"
    assert {f.name: f.metadata.get("comment") for f in delta.schema().fields} == {"Id": "a number", "n": None, "m": None}
    shown = {row["column_name"]: row["comment"] for row in lake.json("describe t")}
    assert shown == {"Id": "a number", "n": None, "m": None}
    assert lake.json("select sum(n) s from t") == [{"s": 6}]
    lake.refused("sql", "-c", "comment on column t.q is 'x'", says=["q"])
