"""Rows and files that cannot be read: named exactly, nothing committed; or skipped and kept aside."""

import csv
import gzip
import os
import re
import subprocess

import pyarrow as pa
import pytest

import support
from support import assert_same, compressed, rows_of, write_parquet

SCHEMA = "n bigint not null, t text, x double"


def _rejects(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _nothing_happened(lake, table, version, before):
    assert lake.version(table) == version
    if version is None:
        assert lake.run("table", "list").out.startswith("no tables")
    else:
        assert_same(lake.rows(f"select * from {table}"), before, "the table after a failed load")


# name -> (bytes, line, texts in the message)
BAD_CSV = {
    "a_wrong_type": (b"n,t,x\n1,a,1\ntwo,b,2\n", 3, ["`n`", '"two"', "bigint"]),
    "a_wrong_type_after_multiline_records": (b'n,t,x\n1,"a\nb\nc",1\n2,"d\r\ne",2\n3,f,oops\n', 7, ["`x`", '"oops"', "double"]),
    "a_wrong_type_after_blank_lines": (b"n,t,x\n\n\n1,a,1\n\ntwo,b,2\n", 6, ["`n`", '"two"']),
    "a_wrong_type_with_crlf": (b"n,t,x\r\n1,a,1\r\ntwo,b,2\r\n", 3, ["`n`", '"two"']),
    "a_wrong_type_after_a_byte_order_mark": (b"\xef\xbb\xbfn,t,x\n1,a,1\ntwo,b,2\n", 3, ["`n`", '"two"']),
    "too_many_fields": (b"n,t,x\n1,a,1\n2,b,2,extra\n", 3, ["4", "3"]),
    "too_few_fields": (b"n,t,x\n1,a,1\n2,b\n", 3, ["2", "3"]),
    "null_in_not_null": (b"n,t,x\n1,a,1\n,b,2\n", 3, ["`n`", "NULL"]),
    "bytes_that_are_not_utf8": (b"n,t,x\n1,a,1\n2,caf\xe9,2\n", 3, ["`t`", "UTF-8"]),
    "a_stray_quote_before_it": (b'n,t,x\n1,5" pipe,1\n2,b,2\ntwo,c,3\n', 4, ["`n`", '"two"']),
    "a_quote_that_is_never_closed": (b'n,t,x\n1,a,1\n2,"b,2\n3,c,3\n', 3, ["quote"]),
    "the_last_line_without_newline": (b"n,t,x\n1,a,1\ntwo,b,2", 3, ["`n`", '"two"']),
}


@pytest.mark.parametrize("case", BAD_CSV)
@pytest.mark.parametrize("packing", ["plain", "gz", "zst"])
@pytest.mark.parametrize("fresh", [True, False], ids=["new", "existing"])
def a_bad_csv_row_is_named_and_nothing_is_loaded(lake, folder, case, packing, fresh):
    data, line, says = BAD_CSV[case]
    path = folder / "bad.csv"
    path.write_bytes(data)
    path = path if packing == "plain" else compressed(path, packing)
    if not fresh:
        lake.load("t", "-", "--schema", SCHEMA, stdin=b"n,t,x\n0,z,0\n")
    before = None if fresh else lake.rows("select * from t")
    lake.refused("load", "t", path, "--schema", SCHEMA, says=[f"{path}, line {line}", *says, "--on-error skip"])
    _nothing_happened(lake, "t", None if fresh else 0, before)


BAD_JSON = {
    "a_wrong_type": (b'{"n":1}\n{"n":"two"}\n', 2, ["`n`", "two", "bigint"]),
    "broken_syntax": (b'{"n":1}\n{"n":2,\n{"n":3}\n', 2, ["JSON"]),
    "not_an_object": (b'{"n":1}\n[2]\n', 2, ["object"]),
    "null_in_not_null": (b'{"n":1}\n\n{"n":null}\n', 3, ["`n`", "NULL"]),
    "a_missing_not_null_key": (b'{"n":1}\n{"t":"x"}\n', 2, ["`n`", "NULL"]),
    "bytes_that_are_not_utf8": (b'{"n":1}\n{"n":2,"t":"caf\xe9"}\n', 2, ["unicode"]),
    "a_cut_last_line": (b'{"n":1}\n{"n":2', 2, ["JSON"]),
}


@pytest.mark.parametrize("case", BAD_JSON)
@pytest.mark.parametrize("packing", ["plain", "gz", "zst"])
def a_bad_json_row_is_named_and_nothing_is_loaded(lake, folder, case, packing):
    data, line, says = BAD_JSON[case]
    path = folder / "bad.json"
    path.write_bytes(data)
    path = path if packing == "plain" else compressed(path, packing)
    lake.refused("load", "t", path, "--schema", SCHEMA, says=[f"{path}, line {line}", *says])
    _nothing_happened(lake, "t", None, None)


def a_key_that_comes_after_the_sample_is_named(lake, folder):
    path = folder / "d.json"
    path.write_text('{"n":1}\n' * 25_000 + '{"n":1,"new":2}\n')
    lake.refused("load", "t", path, says=["line 25001", "`new`"])


def a_null_in_a_not_null_parquet_column_is_named_by_row(lake, folder):
    path = write_parquet(folder / "d.parquet", pa.table({"n": pa.array([1, 2, None], pa.int64())}), row_group_size=1)
    lake.refused("load", "t", path, "--schema", "n bigint not null", says=[f"{path}, row 3", "`n`", "NOT NULL"])
    _nothing_happened(lake, "t", None, None)


def a_long_value_is_shortened_in_the_message(lake, folder):
    path = folder / "d.csv"
    path.write_text("n\n1\n" + "☃" * 5000 + "\n")
    result = lake.refused("load", "t", path, "--schema", "n bigint", says=["line 3", "`n`", "☃☃☃"])
    assert len(result.err) < 600 + len(str(path))


def a_late_bad_row_in_a_large_file_is_named_by_its_line(lake, folder):
    path = folder / "d.csv"
    lines = [f"{i},text number {i}" for i in range(400_000)]
    lines[333_333] = "oops,x"
    path.write_text("n,t\n" + "\n".join(lines) + "\n")
    lake.refused("load", "t", path, says=["line 333335", "`n`", '"oops"'])
    lake.refused("load", "t", compressed(path, "gz"), says=["line 333335"])


def _mixed_file(rng, count):
    """A CSV of good and bad records, and what must become of them."""
    out, good, bad, line = ["n,t,x\n"], [], [], 2
    for i in range(count):
        kind = rng.random()
        text = rng.choice(["plain", "two\nlines", 'a "q" b', "c,d", "x\r\ny", ""])
        shown = '"' + text.replace('"', '""') + '"'
        if kind < 0.9:
            record = f"{i},{shown},{i}.5\n"
            good.append((i, text or None, i + 0.5))
        elif kind < 0.93:
            record = f"bad{i},{shown},1\n"
            bad.append((line, "n"))
        elif kind < 0.96:
            record = f"{i},{shown},{i}x\n"
            bad.append((line, "x"))
        elif kind < 0.98:
            record = f"{i},{shown}\n"
            bad.append((line, ""))
        else:
            record = f",{shown},1\n"
            bad.append((line, "n"))
        out.append(record)
        line += record.count("\n")
    return "".join(out).encode(), good, bad


@pytest.mark.parametrize("packing", ["plain", "gz", "zst"])
def skipping_loads_exactly_the_good_rows_and_keeps_the_bad_ones_with_line_and_reason(lake, folder, packing):
    rng = support.seeded(f"skipping {packing}")
    data, good, bad = _mixed_file(rng, 20_000)
    path = folder / "mixed.csv"
    path.write_bytes(data)
    source = path if packing == "plain" else compressed(path, packing)
    rejects = folder / "rejects.csv"
    result = lake.load("t", source, "--schema", SCHEMA, "--on-error", "skip", "--rejects", rejects)
    assert f"loaded {len(good)} rows" in result.err and f"rejected {len(bad)} bad rows" in result.err
    got = [(r["n"], r["t"], r["x"]) for r in lake.arrow("select * from t order by n").to_pylist()]
    assert got == good
    found = sorted((int(r["line"]), r["column"]) for r in _rejects(rejects))
    assert found == bad
    assert all(r["reason"] and r["record"] and r["file"] == str(source) for r in _rejects(rejects))


def _field(rng):
    """A field as it may stand in a CSV, tidy or loose, and its value."""
    length = rng.choice([0, 1, 5, 30, 3000]) if rng.random() < 0.2 else rng.randrange(1, 20)
    if rng.random() < 0.5:
        value = "".join(rng.choices('ab1 "☃', k=length)).lstrip('"')
        return value, value
    value = "".join(rng.choices('ab1 ",\n\r\t☃', k=length))
    return '"' + value.replace('"', '""') + '"', value


@pytest.mark.parametrize("number", range(3))
def loose_quotes_records_of_many_lines_and_bad_rows_in_any_mix_are_told_apart(lake, folder, number):
    """Some 8 MiB, so that chunks begin and end among them."""
    rng = support.seeded(f"loose quotes {number}")
    out, size, line, good, bad, i = ["n,a,b\n"], 0, 2, [], [], 0
    while size < 8 << 20:
        i += 1
        (a, a_value), (b, b_value) = _field(rng), _field(rng)
        if rng.random() < 0.01:
            record = rng.choice([f"x{i},{a},{b}\n", f"{i},{a},{b},{a}\n", f"{i},{a}\n"])
            bad.append(line)
        else:
            record = f"{i},{a},{b}" + rng.choice(["\n", "\r\n"])
            good.append((i, a_value or None, b_value or None))
        out.append(record)
        size += len(record.encode())
        line += record.count("\n")
    path, rejects = folder / "d.csv", folder / "r.csv"
    path.write_bytes("".join(out).encode())
    lake.load("t", path, "--schema", "n bigint, a text, b text", "--on-error", "skip", "--rejects", rejects)
    assert sorted(int(r["line"]) for r in _rejects(rejects)) == bad
    got = [(r["n"], r["a"], r["b"]) for r in lake.arrow("select n, a, b from t order by n").to_pylist()]
    wrong = [(g, w) for g, w in zip(got, good) if g != w]
    assert len(got) == len(good) and not wrong, wrong[:3]


def bad_json_lines_in_a_large_file_are_told_apart(lake, folder):
    rng = support.seeded("bad_json_lines_in_a_large_file")
    out, good, bad = [], [], []
    for i in range(60_000):
        kind = rng.random()
        if kind < 0.98:
            text = "".join(rng.choices('ab{}[]"\\,:☃\n', k=rng.randrange(60)))
            out.append(support.json.dumps({"n": i, "t": text}, ensure_ascii=rng.random() < 0.5))
            good.append((i, text))
        else:
            out.append(rng.choice(['{"n": "x"}', '{"n": 1', "[]", "7", '{"n": 1} x', '{"n": 1.5}', '"{"', "nul"]))
            bad.append(i + 1)
    path, rejects = folder / "d.json", folder / "r.csv"
    path.write_text("\n".join(out) + "\n")
    lake.load("t", path, "--schema", "n bigint, t text", "--on-error", "skip", "--rejects", rejects)
    assert sorted(int(r["line"]) for r in _rejects(rejects)) == bad
    got = [(r["n"], r["t"]) for r in lake.arrow("select n, t from t order by n").to_pylist()]
    wrong = [(g, w) for g, w in zip(got, good) if g != w]
    assert len(got) == len(good) and not wrong, wrong[:3]


def rejected_records_are_kept_whole(lake, folder):
    path, rejects = folder / "d.csv", folder / "r.csv"
    path.write_text('n,t\n1,a\nx,"multi\nline ""q"""\n2,b\n')
    lake.load("t", path, "--schema", "n int", "--on-error", "skip", "--rejects", rejects)
    (row,) = _rejects(rejects)
    assert (row["line"], row["column"], row["value"]) == ("3", "n", "x")
    assert row["record"] == 'x,"multi\nline ""q"""'
    assert "integer" in row["reason"]


def stray_quotes_do_not_drag_good_rows_into_the_rejects(lake, folder):
    path, rejects = folder / "d.csv", folder / "r.csv"
    path.write_text('n,t\n1,5" a\n2,b\nx,c\n4,7" d\n5,e\n')
    lake.load("t", path, "--schema", "n int", "--on-error", "skip", "--rejects", rejects)
    assert [r["n"] for r in lake.json("select n from t order by n")] == [1, 2, 4, 5]
    assert [(r["line"], r["column"]) for r in _rejects(rejects)] == [("4", "n")]


def skipping_json_and_parquet_rows_works_alike(lake, folder):
    (folder / "d.json").write_text('{"n":1}\n{"n":"x"}\nnonsense\n{"n":2,"zz":1}\n{"n":null}\n{"n":3}\n')
    write_parquet(folder / "d.parquet", pa.table({"n": pa.array([4, None, 5], pa.int64())}))
    rejects = folder / "r.csv"
    result = lake.load("t", folder / "d.json", folder / "d.parquet", "--schema", "n bigint not null",
                       "--on-error", "skip", "--rejects", rejects, "--allow-new-columns", code=0)
    assert sorted(r["n"] for r in lake.json("select n from t")) == [1, 2, 3, 4, 5], result
    assert sorted((r["file"][-4:], int(r["line"])) for r in _rejects(rejects)) == [
        ("json", 2), ("json", 3), ("json", 5), ("quet", 2)
    ]


def skip_without_bad_rows_leaves_a_rejects_file_with_only_its_header(lake, folder):
    path, rejects = folder / "d.csv", folder / "r.csv"
    path.write_text("n\n1\n")
    result = lake.load("t", path, "--on-error", "skip", "--rejects", rejects)
    assert _rejects(rejects) == [] and "rejected" not in result.err


def skip_and_rejects_need_each_other(lake, folder):
    path = folder / "d.csv"
    path.write_text("n\n1\n")
    for options in (["--on-error", "skip"], ["--rejects", folder / "r.csv"]):
        result = lake.run("load", "t", path, *options, code=1)
        assert "--rejects" in result.err and "--on-error skip" in result.err


def a_rejects_file_that_cannot_be_written_stops_the_load(lake, folder):
    path = folder / "d.csv"
    path.write_text("n\n1\n")
    lake.refused("load", "t", path, "--on-error", "skip", "--rejects", folder / "no" / "r.csv", says=["r.csv"])
    assert lake.version("t") is None


def a_rejects_file_that_is_an_input_is_refused_and_the_input_survives(lake, folder):
    path = folder / "d.csv"
    path.write_text("n\n1\n")
    lake.refused("load", "t", path, "--on-error", "skip", "--rejects", path, says=["d.csv"])
    assert path.read_text() == "n\n1\n"


def _good_bytes(kind, rng):
    data = support.events(20_000, rng)
    sink = pa.BufferOutputStream()
    if kind == "parquet":
        support.pq.write_table(data, sink)
        return sink.getvalue().to_pybytes()
    text = "\n".join(["id,t"] + [f"{i},{rng.random()}" for i in range(20_000)]).encode() + b"\n"
    return gzip.compress(text) if kind == "gz" else support.zstd(text)


@pytest.mark.parametrize("kind", ["gz", "zst", "parquet"])
def a_file_that_was_cut_short_is_refused_wherever_it_was_cut(lake, folder, kind):
    rng = support.seeded(f"cut {kind}")
    whole = _good_bytes(kind, rng)
    cuts = [5, len(whole) - 1, len(whole) - 4, len(whole) - 8] + [rng.randrange(12, len(whole)) for _ in range(8)]
    for cut in cuts:
        path = folder / f"cut.{kind}"
        path.write_bytes(whole[:cut])
        lake.refused("load", "t", path, says=[str(path)])
        assert lake.version("t") is None, f"cut at {cut} of {len(whole)}"


def a_damaged_gzip_is_refused(lake, folder):
    rng = support.seeded("a_damaged_gzip_is_refused")
    whole = bytearray(_good_bytes("gz", rng))
    whole[len(whole) // 2] ^= 0x10
    (folder / "d.csv.gz").write_bytes(whole)
    lake.refused("load", "t", folder / "d.csv.gz", says=["d.csv.gz"])
    assert lake.version("t") is None


def a_gzip_of_several_members_is_read_to_its_end(lake, folder):
    path = folder / "d.csv.gz"
    path.write_bytes(gzip.compress(b"n\n1\n") + gzip.compress(b"2\n") + gzip.compress(b"3\n"))
    lake.load("t", path)
    assert sorted(r["n"] for r in lake.json("select n from t")) == [1, 2, 3]
    (folder / "d.csv.zst").write_bytes(support.zstd(b"n\n1\n") + support.zstd(b"2\n"))
    lake.load("u", folder / "d.csv.zst")
    assert sorted(r["n"] for r in lake.json("select n from u")) == [1, 2]


@pytest.mark.parametrize("data", [b"", b"\n\n", b"  \n", gzip.compress(b"")], ids=["none", "newlines", "blanks", "gz"])
def an_empty_file_is_refused(lake, folder, data):
    path = folder / "d.csv"
    path.write_bytes(data)
    lake.refused("load", "t", path, says=[str(path), "empty"])
    assert lake.version("t") is None


def empty_standard_input_is_refused(lake):
    lake.refused("load", "t", "-", says=["standard input", "empty"])


def a_header_without_rows_loads_no_rows(lake, folder):
    path = folder / "d.csv"
    path.write_text("a,b\n")
    lake.load("t", path)
    assert lake.count("t") == 0
    assert lake.arrow("select * from t").column_names == ["a", "b"]
    write_parquet(folder / "d.parquet", pa.table({"a": pa.array([], pa.int64())}))
    lake.load("u", folder / "d.parquet")
    assert lake.count("u") == 0
    lake.same_as_deltalake("u")


INPUTS_THAT_ARE_NONE = {
    "a_folder_without_files": (lambda folder: folder, ["no file"]),
    "a_missing_file": (lambda folder: folder / "nope.csv", ["nope.csv"]),
    "a_binary_file": (lambda folder: _written(folder / "d.bin", bytes(range(256)) * 40), ["d.bin"]),
    "a_short_parquet": (lambda folder: _written(folder / "d.parquet", b"PAR1"), ["d.parquet"]),
    "a_header_with_a_double": (lambda folder: _written(folder / "d.csv", b"a,a\n1,2\n"), ["d.csv", "`a`"]),
    "a_header_with_a_gap": (lambda folder: _written(folder / "d.csv", b"a,,c\n1,2,3\n"), ["d.csv", "--no-header"]),
}


def _written(path, data):
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("case", INPUTS_THAT_ARE_NONE)
def what_is_no_input_is_refused_by_name(lake, folder, case):
    make, says = INPUTS_THAT_ARE_NONE[case]
    lake.refused("load", "t", make(folder), says=says)
    assert lake.version("t") is None


def one_bad_file_among_good_ones_loads_none(lake, folder):
    for i in range(5):
        (folder / f"{i}.csv").write_text("n\n" + ("x" if i == 3 else str(i)) + "\n")
    lake.refused("load", "t", f"{folder}/*.csv", "--schema", "n int", says=["3.csv", "line 2"])
    assert lake.version("t") is None


def a_lake_that_cannot_be_written_is_refused(lake, folder):
    """Tests may run as root, whom permissions do not stop: a file lies where a folder must be."""
    path = folder / "d.csv"
    path.write_text("n\n1\n")
    lake.path.mkdir()
    (lake.path / "t").write_text("in the way")
    lake.refused("load", "t", path, says=["t"])
    assert (lake.path / "t").read_text() == "in the way"
    lake.load("u", path)
    other = support.Lake(lake.path / "t", lake.cwd)
    other.refused("load", "t", path, says=["is a file"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere; a file in the way is tested above")
def a_read_only_lake_is_refused(lake, folder):
    path = folder / "d.csv"
    path.write_text("n\n1\n")
    lake.path.mkdir(mode=0o555)
    lake.refused("load", "t", path, says=["ermission"])


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 3 MiB."""
    target = tmp_path / "disk"
    target.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(target)], capture_output=True)
    if done.returncode:
        pytest.skip(f"LOUD: THE FULL DISK IS NOT TESTED: no tmpfs mount here ({done.stderr.decode().strip()})")
    yield target
    subprocess.run(["umount", "-l", str(target)], check=True)


@pytest.mark.parametrize("fresh", [True, False], ids=["new", "existing"])
def a_full_disk_ends_the_load_with_nothing_committed_and_a_later_load_works(small_disk, tmp_path, fresh):
    lake = support.Lake(small_disk / "lake", tmp_path)
    rng = support.seeded("full disk")
    big, small = tmp_path / "big.csv", tmp_path / "small.csv"
    big.write_text("n,t\n" + "".join(f"{i},{rng.getrandbits(400):x}\n" for i in range(60_000)))
    small.write_text("n,t\n1,x\n")
    before = []
    if not fresh:
        lake.load("t", small)
        before = lake.rows("select * from t")
    result = lake.refused("load", "t", big)
    assert re.search(r"[Nn]o space left|disk.*full|storage full", result.err), result
    _nothing_happened(lake, "t", None if fresh else 0, before)
    lake.load("t", small)
    assert lake.count("t") == (1 if fresh else 2)
    lake.run("table", "vacuum", "t", "--retain", "0s")
    assert lake.files_on_disk("t") == lake.live_files("t")


def standard_output_that_is_full_is_an_error(lake, folder):
    path = folder / "d.csv"
    path.write_text("n\n" + "1\n" * 100)
    lake.load("t", path)
    with open("/dev/full", "w") as full:
        done = subprocess.run([support.BINARY, "sql", "--lake", str(lake.path), "-c", "select * from t", "--format", "csv"],
                              stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "No space left" in done.stderr and "panicked" not in done.stderr


def more_columns_than_a_table_has_are_refused_before_they_take_memory(lake, folder):
    keys = folder / "keys.json"
    keys.write_text("".join(f'{{"key{n}": {n}}}\n' for n in range(20_000)))
    wide = folder / "wide.csv"
    wide.write_text(",".join(f"c{n}" for n in range(50_000)) + "\n" + ",".join(["1"] * 50_000) + "\n")
    for path in (keys, wide):
        lake.refused("load", "t", path, says=[path.name, "columns", "at most 10000"])
    fits = folder / "fits.csv"
    fits.write_text(",".join(f"c{n}" for n in range(2_000)) + "\n" + (",".join(["1"] * 2_000) + "\n") * 2000)
    lake.load("t", fits)
    assert lake.json("SELECT count(*) AS n, sum(c1999) AS s FROM t") == [{"n": 2000, "s": 2000}]
