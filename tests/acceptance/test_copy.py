"""COPY … FROM files and COPY … TO them: what one writes the other reads, with the same options and the errors of a load."""

import pytest

ROWS = [{"id": 1, "name": "a;b", "n": 1.5}, {"id": 2, "name": None, "n": None}, {"id": 3, "name": 'say "x"', "n": -2.0}]


@pytest.fixture
def table(lake):
    lake.run("sql", "-c", "create table t (id bigint, name text, n double); "
             "insert into t values (1, 'a;b', 1.5), (2, null, null), (3, 'say \"x\"', -2)")
    return "t"


@pytest.mark.parametrize("name, options", [
    ("a.csv", ""), ("a.tsv", ""), ("a.json", ""), ("a.jsonl.gz", ""), ("a.parquet", ""), ("a.csv.zst", ""),
    ("a.csv", "with (format csv, header, delimiter ';')"), ("a.csv", "(delimiter '|', null '-')"),
    ("a.txt", "stored as csv options (delimiter tab)"), ("a.txt", "options (format csv, compression gzip)"),
    ("a.dat", "with (format parquet, compression 'zstd(3)')"), ("a.dat", "with (format json)"),
])
def files_are_read_with_the_options_that_they_were_written_with(lake, folder, table, name, options):
    path = folder / name
    lake.run("sql", "-c", f"copy t to '{path}' {options}; create table u as select * from t where false")
    reading = options.replace(", compression 'zstd(3)'", "")
    shown = lake.run("sql", "-c", f"copy u from '{path}' {reading}")
    assert "copied 3 rows into u" in shown.out
    assert lake.json("select * from u order by id") == ROWS


def a_file_without_a_header_and_several_files_are_read_in_the_order_of_the_table(lake, folder, table):
    for part in (1, 2):
        lake.run("sql", "-c", f"copy (select id + {part}0 as id, name, n from t) to '{folder}/p{part}.csv' (header false)")
    assert (folder / "p1.csv").read_text().startswith("11,")
    lake.run("sql", "-c", f"create table u (id bigint, name text, n double); copy u from '{folder}/p*.csv' with (header false)")
    lake.run("sql", "-c", f"copy u from '{folder}/p1.csv', '{folder}/p2.csv' (header off)")
    assert lake.json("select count(*) c, sum(id) s from u") == [{"c": 12, "s": 2 * (6 + 30 + 6 + 60)}]
    lake.same_as_deltalake("u")


def a_bad_row_is_told_with_its_place_and_nothing_is_written(lake, folder, table):
    path = folder / "bad.csv"
    path.write_text("id,name,n\n7,x,1\n8,y,many\n")
    version, files = lake.version("t"), lake.files_on_disk("t")
    lake.refused("sql", "-c", f"copy t from '{path}'", says=["bad.csv", "line 3", "column `n`", "many"])
    for sql, says in [
        (f"copy t from '{folder}/nope.csv'", "nope.csv"), (f"copy nope from '{path}'", "no table `nope`"),
        (f"copy t from '{path}' (nope 1)", "header, delimiter, quote, null and compression"),
        (f"copy t from '{path}' (format parquet)", "is not a Parquet file"), (f"copy t from '{path}' (delimiter '::')", "one ASCII"),
        (f"copy t (id) from '{path}'", "all columns"), ("copy t from stdin", "uplake load"), ("copy t from '-'", "takes files"),
        (f"copy t from {path.name}", "write COPY table FROM"),
    ]:
        lake.refused("sql", "-c", sql, says=[says])
        assert (lake.version("t"), lake.files_on_disk("t")) == (version, files), sql


def options_that_there_are_not_are_told_with_those_that_there_are(lake, folder, table):
    for options, says in [
        ("(heading true)", "format, header, delimiter, quote, null, compression"), ("(header maybe)", "true or false"),
        ("(quote '')", "one ASCII"), ("with header", "write COPY"),
    ]:
        lake.refused("sql", "-c", f"copy t to '{folder}/out.csv' {options}", says=[says])
        assert not (folder / "out.csv").exists()
    lake.refused("sql", "-c", f"copy t to '{folder}/out.parquet' (header true)", says=["Parquet has no option `header`"])
