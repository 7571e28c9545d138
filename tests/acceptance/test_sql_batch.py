"""`uplake sql --batch`: the answers of `sql -f`, in the file's order, each with its own errors."""

import pyarrow as pa
import pytest

from support import write_parquet

KINDS = ["pay", "click", None]


@pytest.fixture
def shop(lake, folder):
    rows = range(6000)
    data = pa.table({
        "user_id": [f"u{n * 7919 % 501}" for n in rows],
        "kind": [KINDS[n % 3] for n in rows],
        "City": [f"c{n % 5}" for n in rows],
        "value": [n % 100 / 4 for n in rows],
    })
    lake.load("events", write_parquet(folder / "events.parquet", data), "--id-domain", "user_id=users")
    return lake


def _statements():
    first = "WITH u AS (SELECT user_id, min(value) AS first FROM events WHERE kind = 'click' GROUP BY user_id) "
    for kind in ["pay", "click"]:
        yield f"SELECT City, count(*) AS n, sum(value) AS s FROM events WHERE kind = '{kind}' GROUP BY City ORDER BY City"
        yield f"SELECT count(DISTINCT user_id) AS users FROM events WHERE kind = '{kind}'"
        yield f"{first} SELECT count(*) AS n, sum(e.value) AS s FROM events e JOIN u USING (user_id) WHERE e.kind = '{kind}'"
    yield "SELECT count(DISTINCT user_id) AS users FROM events WHERE kind = 'pay'"
    yield "SELECT * FROM events WHERE value < 0"


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_a_batch_prints_what_the_statements_print_one_by_one(shop, folder, form):
    file = folder / "all.sql"
    file.write_text(";\n".join(_statements()))
    one_by_one = shop.run("sql", "-f", file, "--format", form)
    batch = shop.run("sql", "--batch", file, "--format", form)
    assert batch.out == one_by_one.out
    assert shop.run("sql", "--batch", file, "--format", form, "--at-once", "1").out == one_by_one.out
    given = shop.run("sql", "--batch", "-", "--format", form, stdin=file.read_bytes())
    assert given.out == one_by_one.out


def test_statements_that_fail_say_which_they_are_and_the_others_answer(shop, folder):
    file = folder / "some.sql"
    file.write_text(
        "SELECT 1 AS a;\nSELECT nothing FROM events;\n\nSELEC 2;\n"
        "INSERT INTO events VALUES ('u', 'pay', 'c', 1.0); SELECT count(*) AS n FROM events;\n"
        "SELECT 1 / (count(*) - count(*)) AS z FROM events"
    )
    result = shop.run("sql", "--batch", file, "--format", "csv", code=1)
    assert result.out == "a\n1\nn\n6000\n"
    errors = [line for line in result.err.splitlines() if line.startswith("error")]
    assert [line.split(":")[0] for line in errors] == [
        "error in statement 2 (line 2)",
        "error in statement 3 (line 4)",
        "error in statement 4 (line 5)",
        "error in statement 6 (line 6)",
        "error",
    ], result
    assert "a batch only reads" in result.err and errors[-1] == "error: 4 of 6 statements failed"


def test_a_batch_says_what_it_shared(shop, folder):
    file = folder / "all.sql"
    file.write_text(";".join(_statements()))
    result = shop.run("sql", "--batch", file, "--timing")
    said = next(line for line in result.err.splitlines() if line.startswith("batch:"))
    assert said.startswith("batch: 8 statements, 7 different, 7 share 4 parts"), said
    shop.run("sql", "--batch", file, "-c", "SELECT 1", code=2)
    shop.run("sql", "-c", "SELECT 1", "--at-once", "3", code=2)
