"""Stored sets of ids, and long lists of literals: the same as the literals one by one."""

import pyarrow as pa
import pytest

import support
from support import write_parquet

LONG = 150


@pytest.fixture
def numbers(lake, folder):
    """A lake with `t`: whole numbers, text, double, date, boolean; row 0 is all NULL. Indexed."""
    count = 3000
    ids = [None, *range(1, count)]

    def each(make):
        return [None if n is None else make(n) for n in ids]

    data = pa.table({
        "k": pa.array(range(count), pa.int64()),
        "id": pa.array(ids, pa.int64()),
        "i": pa.array(each(lambda n: -n), pa.int32()),
        "small": pa.array(each(lambda n: n % 120 - 60), pa.int8()),
        "s": each(lambda n: f"it's {n}"),
        "digits": each(str),
        "f": pa.array(each(float), pa.float64()),
        "d": pa.array(each(lambda n: n), pa.int32()).cast(pa.date32()),
        "b": each(lambda n: n % 2 == 0),
    })
    path = write_parquet(folder / "t.parquet", data)
    lake.load("t", path, "--index", "id", "--index", "i", "--index", "small", "--index", "s", "--index", "digits")
    return lake


def _keys(lake, condition, *options):
    return lake.arrow(f"SELECT k FROM t WHERE {condition} ORDER BY k", *options).column("k").to_pylist()


def _numbers(first, count=LONG):
    return ", ".join(str(n) for n in range(first, first + count))


def _texts(count=LONG):
    return ", ".join(f"'it''s {n}'" for n in range(1, count + 1))


LISTS = {
    "numbers": _numbers(5),
    "below_zero": _numbers(-80),
    "no_spaces": _numbers(5).replace(" ", ""),
    "many_lines": _numbers(5).replace(" ", "\n\t"),
    "texts": _texts(),
    "digits": ", ".join(f"'{n}'" for n in range(5, 155)),
    "dates": ", ".join(f"'1970-{n % 12 + 1:02}-{n // 12 + 1:02}'" for n in range(LONG)),
    "far": f"{_numbers(5)}, 9223372036854775807, -9223372036854775807",
    "too_far": f"{_numbers(5)}, 99999999999999999999",
    "floats": _numbers(5).replace(",", ".0,"),
    "one_float": f"{_numbers(5)}, 7.5",
    "with_null": f"{_numbers(5)}, NULL",
    "null_first": f"NULL, {_numbers(5)}",
    "mixed": f"{_numbers(5)}, '200'",
    "mixed_other_way": f"'200', {_numbers(5)}",
    "sums": f"{_numbers(5)}, 100 + 100",
    "casts": _numbers(5).replace(",", "::int,"),
    "comment": _numbers(5).replace("60,", "60, -- sixty, (and) 'more\n", 1).replace("80,", "/* IN (1) */ 80,", 1),
    "escapes": "E'it\\'s 7', " + _texts(),
    "repeated": f"{_numbers(5)}, {_numbers(5)}",
    "empty_texts": ", ".join(["''"] * LONG + ["'it''s 9'"]),
}
COLUMNS = ["id", "small", "s", "digits", "f", "d", "b"]
# Entries of several types are converted to one type; alone, each would be converted for itself.
ONLY = {"mixed": ["id", "f"], "mixed_other_way": ["id", "f"]}
# Lists that stay with DataFusion need no more than a look.
ONLY |= dict.fromkeys(["floats", "one_float", "sums", "casts", "comment", "escapes", "too_far", "null_first"], ["id", "s"])


def _entries(name):
    if name == "comment":
        return [str(n) for n in range(5, 5 + LONG)]
    return [part.strip() for part in LISTS[name].split(",")]


def _outcome(lake, condition, *options):
    """The keys of rows for which it is true, and for which it is false; or that it is refused."""
    query = f"SELECT k FROM t WHERE {condition}; SELECT k FROM t WHERE NOT ({condition})"
    path = lake.cwd / "condition.sql"
    path.write_text(query)
    process = lake.start("sql", "-f", path, "--format", "csv", *options)
    out, _ = process.communicate(timeout=support.TIMEOUT_SECONDS)
    if process.returncode != 0:
        return "refused"
    return [sorted(map(int, part.split())) for part in out.decode().split("k\n")[1:]]


@pytest.mark.parametrize("name", LISTS)
def a_long_list_finds_what_its_entries_find_one_by_one(numbers, name):
    """`x = 1 OR x = 2 …` is never made a set."""
    outcomes = []
    for column in ONLY.get(name, COLUMNS):
        one_by_one = " OR ".join(f"{column} = {entry}" for entry in _entries(name))
        want = _outcome(numbers, one_by_one, "--no-index")
        assert _outcome(numbers, f"{column} IN ({LISTS[name]})") == want, f"{column} IN {name}"
        outcomes.append(want)
    assert any(outcome != "refused" and outcome[0] for outcome in outcomes)


def lists_of_100_000_entries_are_read(lake, folder):
    count = 300_000
    data = pa.table({"k": pa.array(range(count), pa.int64()), "s": [f"o'{n}" for n in range(count)]})
    lake.load("t", write_parquet(folder / "t.parquet", data), "--index", "k", "--index", "s")
    wanted = sorted(support.seeded("100 000").sample(range(-count, 2 * count), 100_000))
    there = [n for n in wanted if 0 <= n < count]
    path = folder / "q.sql"
    texts = ",".join(f"'o''{n}'" for n in wanted)
    numbers = ",".join(map(str, wanted))
    path.write_text(
        f"SELECT count(*) AS n, sum(k) AS s FROM t WHERE k IN ({numbers});\n"
        f"SELECT count(*) AS n, sum(k) AS s FROM t WHERE s IN ({texts});\n"
        f"SELECT count(*) AS n, sum(k) AS s FROM t WHERE k NOT IN ({numbers}) AND s NOT IN ({texts});\n"
    )
    rest = {"n": count - len(there), "s": count * (count - 1) // 2 - sum(there)}
    for options in ([], ["--no-index"]):
        result = lake.run("sql", "-f", path, "--format", "json", *options)
        found = [support.json.loads(line) for line in result.out.splitlines()]
        assert found == [{"n": len(there), "s": sum(there)}] * 2 + [rest]


LIST = f"({_numbers(5)})"
PLACES = [
    "SELECT count(*) FILTER (WHERE id IN {}) AS n FROM t",
    "SELECT sum(CASE WHEN id IN {} THEN 1 ELSE 0 END) AS n FROM t",
    "SELECT id IN {} AS x, count(*) AS n FROM t GROUP BY 1",
    "SELECT id IN {} AS x, count(*) AS n FROM t GROUP BY id IN {}",
    "SELECT k FROM t ORDER BY id IN {} DESC, k LIMIT 160",
    "SELECT k, row_number() OVER (PARTITION BY id IN {} ORDER BY k) AS r FROM t",
    "SELECT small, max(id) AS m FROM t GROUP BY small HAVING max(id) IN {} OR max(id) IN (2990, 2980)",
    "SELECT a.k FROM t a LEFT JOIN t b ON a.id = b.id AND a.id IN {} WHERE b.id IS NULL",
    "SELECT a.k FROM t a JOIN t b ON a.id = -b.i WHERE a.id NOT IN {} AND b.id IN (1, 7, 2999)",
    "SELECT (SELECT count(*) FROM t WHERE id IN {}) AS n, 7 IN {} AS x, 3 IN {} AS y",
    "WITH a AS (SELECT k, id IN {} AS x FROM t) SELECT x, count(*) AS n FROM a GROUP BY x",
    "SELECT k FROM t WHERE id IN {} UNION ALL SELECT k FROM t WHERE -i IN {} AND small NOT IN {}",
    "WITH RECURSIVE r AS (SELECT 5 AS n UNION ALL SELECT n + 7 FROM r WHERE n IN {}) SELECT n FROM r",
    "SELECT k FROM t WHERE (id IN {}) IS NOT TRUE AND coalesce(id IN {}, true)",
    "SELECT k FROM t WHERE id IN {} AND id IN (SELECT id FROM t WHERE id IN {} AND small > 0)",
    "SELECT k FROM (VALUES (1 IN {}, 3), (5 IN {}, 5)) v(x, k) WHERE x",
    "SELECT DISTINCT id IN {} AS x FROM t WHERE EXISTS (SELECT 1 FROM t u WHERE u.id = t.id AND u.id IN {})",
]


@pytest.mark.parametrize("place", PLACES)
def a_list_may_stand_wherever_a_condition_may(numbers, place):
    """Long lists and stored sets, against the same entries in lists that are too short to be sets."""
    numbers.run("sql", "-c", f"CREATE ID SET some AS SELECT id FROM t WHERE id IN {LIST}")
    # A sum is no literal, so this list is left to DataFusion.
    plain = LIST.replace("(5,", "(4 + 1,")
    want = numbers.rows(place.replace("{}", plain), "--no-index")
    assert want
    for options in ([], ["--no-index"]):
        assert numbers.rows(place.replace("{}", LIST), *options) == want
        assert numbers.rows(place.replace("{}", "ID SET some"), *options) == want


def statements_with_long_lists_write_the_right_rows(numbers):
    lake = numbers
    path = lake.cwd / "writes.sql"
    path.write_text(f"""
        CREATE TABLE copy INDEXED BY (id) AS SELECT * FROM t WHERE id IN {LIST};
        INSERT INTO copy SELECT * FROM t WHERE id > 100 AND id NOT IN ({_numbers(155, 2800)});
        DELETE FROM copy WHERE id IN ({_numbers(1, 130)});
        COPY (SELECT id FROM t WHERE s IN ({_texts()})) TO '{lake.cwd / "out.csv"}';
    """)
    lake.run("sql", "-f", path)
    want = sorted([*range(131, 155), *range(131, 155), *range(2955, 3000)])
    assert sorted(lake.arrow("SELECT id FROM copy").column("id").to_pylist()) == want
    assert len((lake.cwd / "out.csv").read_text().splitlines()) == LONG + 1


def an_error_after_a_long_list_points_at_its_place(numbers):
    lines = LIST.replace(", ", ",\n")
    result = numbers.refused("sql", "-c", f"SELECT 1;\nSELECT k FROM t WHERE id IN {lines} AND nosuch = 1")
    assert f"\n{LONG + 1} | " in result.err, result
    last = result.err.rstrip().splitlines()[-2:]
    assert last[1].index("^") == last[0].index("nosuch"), result


def text_that_only_looks_like_a_list_is_left_alone(numbers):
    text = f"id IN {LIST}"
    query = f"""SELECT '{text}' AS a, "in" AS b, $q$ {text} $q$ AS c, 'back\\' AS d, 1 /* {text} */ AS e -- {text}
        FROM (SELECT 1 AS "in") x WHERE 'it''s' LIKE'%s' AND 'x' NOT LIKE'a\\' AND 'x IN ({_numbers(1)})' <> 'a'"""
    (row,) = numbers.json(query)
    assert row["a"] == text and row["b"] == 1 and row["c"] == f" {text} " and row["e"] == 1


# Stored sets


def an_id_set_is_made_shown_used_replaced_and_dropped(numbers):
    lake = numbers
    made = lake.run("sql", "-c", "CREATE ID SET vips AS SELECT id FROM t WHERE id % 1000 = 0")
    assert "2 ids" in made.out + made.err
    assert _keys(lake, "id IN ID SET vips") == [1000, 2000]
    assert _keys(lake, "id IN id set VIPS AND small > 0") == [k for k in (1000, 2000) if k % 120 > 60]
    assert len(_keys(lake, "id NOT IN ID SET vips")) == 2997
    assert [row["id_set_name"] for row in lake.json("SHOW ID SETS")] == ["vips"]
    lake.refused("sql", "-c", "CREATE ID SET vips AS SELECT 1", says=["vips", "CREATE OR REPLACE ID SET"])
    assert _keys(lake, "id IN ID SET vips") == [1000, 2000]
    lake.run("sql", "-c", "CREATE OR REPLACE ID SET vips AS SELECT 7 UNION ALL SELECT 7")
    assert _keys(lake, "id IN ID SET vips") == [7]
    lake.run("sql", "-c", "CREATE OR REPLACE ID SET other AS SELECT id + 1 FROM t WHERE id IN ID SET vips")
    assert _keys(lake, "id IN ID SET other OR id IN ID SET vips") == [7, 8]
    lake.run("sql", "-c", "DROP ID SET vips")
    lake.refused("sql", "-c", "DROP ID SET vips", says=["vips", "SHOW ID SETS"])
    lake.run("sql", "-c", "DROP ID SET IF EXISTS vips")
    lake.refused("sql", "-c", "SELECT k FROM t WHERE id IN ID SET vips", says=["vips", "SHOW ID SETS"])
    assert [row["id_set_name"] for row in lake.json("SHOW ID SETS")] == ["other"]
    assert lake.run("table", "list").out.count("other") == 0


SETS = {
    "numbers": ("SELECT id FROM t WHERE id BETWEEN 5 AND 30", [str(n) for n in range(5, 31)]),
    "one": ("SELECT 7", ["7"]),
    "repeated_with_null": ("SELECT CASE WHEN id < 9 THEN id % 4 END FROM t", ["0", "1", "2", "3"]),
    "below_zero": ("SELECT small FROM t WHERE small < -50", [str(n) for n in range(-60, -50)]),
    "bounds": ("VALUES (9223372036854775807), (-9223372036854775807 - 1), (3)", ["9223372036854775807", "3"]),
    "texts": ("SELECT s FROM t WHERE id < 5", [f"'it''s {n}'" for n in range(1, 5)]),
    "digits": ("SELECT digits FROM t WHERE id < 5", ["'1'", "'2'", "'3'", "'4'"]),
    "empty_text": ("SELECT ''", ["''"]),
}


@pytest.mark.parametrize("name", SETS)
def an_id_set_is_like_the_list_of_its_ids(numbers, name):
    query, entries = SETS[name]
    numbers.run("sql", "-c", f"CREATE ID SET one AS {query}")
    for column in COLUMNS:
        want = _outcome(numbers, f"{column} IN ({', '.join(entries)})", "--no-index")
        for options in ([], ["--no-index"]):
            assert _outcome(numbers, f"{column} IN ID SET one", *options) == want, column


@pytest.mark.parametrize("kind", ["id", "s"])
def nothing_is_in_an_empty_set_and_everything_is_outside(numbers, kind):
    """As of a subquery without rows: NULL, too, is not in it."""
    numbers.run("sql", "-c", f"CREATE ID SET empty AS SELECT {kind} FROM t WHERE id < 0")
    for column in COLUMNS:
        assert _outcome(numbers, f"{column} IN ID SET empty") == [[], list(range(3000))], column
        assert len(_keys(numbers, f"{column} NOT IN ID SET empty")) == 3000, column


REFUSED = {
    "SELECT f FROM t": ["whole numbers", "double"],
    "SELECT id, i FROM t": ["one column"],
    "SELECT d FROM t": ["whole numbers", "date"],
    "SELECT nosuch FROM t": ["nosuch"],
    "SELECT id FROM nosuch": ["nosuch"],
    "SELECT id FROM t WHERE id IN ID SET nosuch": ["nosuch", "SHOW ID SETS"],
    "INSERT INTO t SELECT * FROM t": [],
    "DELETE FROM t": [],
    "SELECT cast(18446744073709551615 AS bigint unsigned) AS id": [],
    "": [],
}


@pytest.mark.parametrize("query", REFUSED)
def what_is_no_query_of_one_column_of_ids_makes_no_set(numbers, query):
    numbers.refused("sql", "-c", f"CREATE ID SET fresh AS {query}", says=REFUSED[query])
    assert numbers.json("SHOW ID SETS") == []
    assert numbers.count("t") == 3000


@pytest.mark.parametrize("name", ["'x'", "a.b", "../x", '"a b"', '"a/b"', "_x", '""', "", "7"])
def a_bad_name_makes_no_set(numbers, name):
    result = numbers.refused("sql", "-c", f"CREATE ID SET {name} AS SELECT 1", says=[])
    assert "table" not in result.err, result
    assert numbers.json("SHOW ID SETS") == []


def sets_belong_to_the_lake_and_survive_their_table(numbers):
    numbers.run("sql", "-c", "CREATE ID SET some AS SELECT id FROM t WHERE id < 3")
    numbers.run("sql", "-c", "CREATE TABLE u AS SELECT id FROM t; DROP TABLE t")
    assert numbers.json("SELECT id FROM u WHERE id IN ID SET some ORDER BY id") == [{"id": 1}, {"id": 2}]
    numbers.run("table", "vacuum", "u", "--retain", "0s")
    assert numbers.count("u WHERE id IN ID SET some") == 2


def a_set_that_is_replaced_while_it_is_read_is_the_old_one_or_the_new_one(numbers):
    lake = numbers
    lake.run("sql", "-c", "CREATE ID SET moving AS SELECT id FROM t WHERE id <= 1000")
    statements = "".join(
        f"CREATE OR REPLACE ID SET moving AS SELECT id FROM t WHERE id <= {1000 * (n % 2 + 1)};\n" for n in range(60)
    )
    (lake.cwd / "replace.sql").write_text(statements)
    writers = [lake.start("sql", "-f", lake.cwd / "replace.sql") for _ in range(2)]
    count = "SELECT count(*) AS n FROM t WHERE id IN ID SET moving;\n"
    (lake.cwd / "read.sql").write_text(count * 30)
    seen = set()
    while any(writer.poll() is None for writer in writers):
        out = lake.run("sql", "-f", lake.cwd / "read.sql", "--format", "json").out
        seen |= {support.json.loads(line)["n"] for line in out.splitlines()}
    assert [writer.wait() for writer in writers] == [0, 0]
    for writer in writers:
        writer.communicate()
    assert seen <= {1000, 2000} and seen


def a_damaged_set_is_an_error_that_names_it(numbers):
    numbers.run("sql", "-c", "CREATE ID SET vips AS SELECT 1")
    (path,) = numbers.path.glob("_uplake/id_sets/*")
    for data in [b"", b"text", path.read_bytes()[:-5]]:
        path.write_bytes(data)
        numbers.refused("sql", "-c", "SELECT k FROM t WHERE id IN ID SET vips", says=["vips"])
    numbers.run("sql", "-c", "CREATE OR REPLACE ID SET vips AS SELECT 1")
    assert _keys(numbers, "id IN ID SET vips") == [1]
