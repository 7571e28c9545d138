"""What the tests of indexes share: rows and conditions to try them with, and index files."""

import json

import pyarrow as pa

import support

FOLDER = "_uplake_index"
MARK = "-- next --"

WORDS = [
    "alpha", "Alpha", "ALPHA", "beta", "b", "", "naïve", "nai\u0308ve", "straße", "STRASSE", "Σίσυφος",
    "ΣΊΣΥΦΟΣ", "优惠券", "優惠", "优惠", "火锅店", "东京", "カタカナ", "ひらがな", "ｶﾅ", "한국어", "😀", "👩‍👩‍👧", "ﬁn",
    "a_b", "50%", "back\\slash", "it's", "24h", "0042", "x" * 150, "İstanbul", "ısı", "-", "#;/*",
]
INTEGERS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
TYPES = {"i8": pa.int8(), "i16": pa.int16(), "i32": pa.int32(), "i64": pa.int64()}


def all_indexes(*more):
    """Options that index every column of `rows`."""
    specs = [*INTEGERS, "s", "s:words", "s:ngrams", "u:words", "w:ngrams", "w", *more]
    return [part for spec in specs for part in ("--index", spec)]


def rows(rng, count, first=0):
    """Whole numbers of all widths with their bounds, text of many scripts, NULLs, repeats."""
    def number(bits):
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        common = [0, -1, 1, 5, low, high, low + 1, high - 1, None]
        return [rng.choice(common) if rng.random() < 0.2 else rng.randrange(max(low, -200), min(high, 200))
                for _ in range(count)]

    texts = [rng.choice([" ", "", ", "]).join(rng.choices(WORDS, k=rng.randrange(1, 5))) for _ in range(120)]
    texts += [None, "", *WORDS]
    text = [[rng.choice(texts) for _ in range(count)] for _ in range(3)]
    columns = {"k": pa.array(range(first, first + count), pa.int64())}
    columns |= {name: pa.array(number(bits), TYPES[name]) for name, bits in INTEGERS.items()}
    columns |= {"s": text[0], "u": text[1], "w": text[2]}
    columns["p"] = pa.array([rng.randrange(3) for _ in range(count)], pa.int32())
    return pa.table(columns)


class Conditions:
    """Random conditions over `rows`. One that DuckDB takes otherwise is marked `ours`."""

    def __init__(self, rng, data):
        self.rng, self.ours = rng, False
        self.values = {name: data.column(name).to_pylist() for name in data.column_names}

    def next(self, depth=0):
        if depth == 0:
            self.ours = False
        roll = self.rng.random()
        if depth < 3 and roll < 0.45:
            parts = [self.next(depth + 1) for _ in range(self.rng.randrange(2, 4))]
            return "(" + self.rng.choice([" AND ", " AND ", " OR "]).join(parts) + ")"
        if depth < 3 and roll < 0.55:
            return f"NOT ({self.next(depth + 1)})"
        return self.rng.choice([self.number, self.number, self.text, self.text, self.like, self.like, self.other])()

    def value(self, column):
        """Mostly one that is there."""
        if column in INTEGERS and self.rng.random() < 0.2:
            return self.rng.randrange(-(2 ** (INTEGERS[column] - 1)), 2 ** (INTEGERS[column] - 1))
        return next(v for v in iter(lambda: self.rng.choice(self.values[column]), 0.5) if v is not None)

    def number(self):
        return self.equal(self.rng.choice([*INTEGERS]))

    def text(self):
        return self.equal(self.rng.choice(["s", "u", "w"]))

    def equal(self, column):
        form = self.rng.randrange(6)
        if form == 0:
            return f"{column} = {literal(self.value(column))}"
        if form == 1:
            return f"{literal(self.value(column))} = {column}"
        if form == 2:
            return "(" + " OR ".join(f"{column} = {literal(self.value(column))}" for _ in range(3)) + ")"
        count = self.rng.choice([1, 3, 30, 130])
        values = [literal(self.value(column)) for _ in range(count)]
        if self.rng.random() < 0.1:
            values.append("NULL")
            self.ours = True
        return f"{column} {self.rng.choice(['', 'NOT ']) if form == 3 else ''}IN ({', '.join(values)})"

    def like(self):
        column = self.rng.choice(["s", "u", "w"])
        text = self.value(column)
        at = self.rng.randrange(len(text) + 1)
        part = text[at:at + self.rng.randrange(12)]
        form = self.rng.randrange(6)
        if form == 0:
            return f"contains({column}, {literal(part)})"
        if form <= 2:
            self.ours = True
            return f"match({column}, {literal(self.rng.choice([part, part.upper(), text, part[:1]]))})"
        for special in "\\%_":
            if special in part:
                self.ours = True
                part = part.replace(special, "\\" + special)
        if part and self.rng.random() < 0.4:
            hole = self.rng.randrange(len(part))
            part = part[:hole].rstrip("\\") + self.rng.choice("%_") + part[hole + 1:]
        pattern = self.rng.choice(["%{}%", "%{}%", "{}%", "%{}", "{}"]).format(part)
        verb = self.rng.choice(["LIKE", "LIKE", "NOT LIKE", "ILIKE"])
        if verb == "ILIKE":
            self.ours = True
            pattern = self.rng.choice([pattern, pattern.upper(), pattern.lower()])
        return f"{column} {verb} {literal(pattern)}"

    def other(self):
        return self.rng.choice([
            f"i16 BETWEEN {self.rng.randrange(-200, 0)} AND {self.rng.randrange(200)}",
            f"i64 > {self.value('i64')}", "s IS NULL", "i8 IS NOT NULL", f"p = {self.rng.randrange(4)}",
            f"length(s) < {self.rng.randrange(20)}", f"i8 <> {self.value('i8')}", f"s > {literal(self.value('u'))}",
            "s = u", "i8 = i16", f"coalesce(i32, 5) = {self.rng.randrange(10)}",
            f"i8 + 1 = {self.rng.randrange(50)}", f"(i8 IN (1, 2, 3)) = (i16 = {self.rng.randrange(9)})",
            f"i8 IN (SELECT v FROM few WHERE v > {self.rng.randrange(-50, 50)})",
            f"CASE WHEN i8 > 0 THEN i16 = {self.value('i16')} ELSE i16 IN (1, 2, 3) END",
            "CASE p " + " ".join(f"WHEN {n} THEN i8 = {self.value('i8')}" for n in range(5)) + " ELSE i8 = 5 END",
        ])


def literal(value):
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    # DuckDB and DataFusion take the lowest bigint for the negative of one that is too high.
    return str(value) if value > -(2 ** 63) else "(-9223372036854775807 - 1)"


def answers(lake, queries, *options):
    """The rows of each query, all asked of one process; and the warnings."""
    path = lake.cwd / "queries.sql"
    path.write_text("".join(f"{q};\nSELECT '{MARK}' AS mark;\n" for q in queries))
    result = lake.run("sql", "-f", path, "--format", "json", *options)
    parts, rows_ = [], []
    for line in result.out.splitlines():
        row = json.loads(line)
        if row == {"mark": MARK}:
            parts.append(rows_)
            rows_ = []
        else:
            rows_.append(row)
    assert len(parts) == len(queries)
    return parts, [line for line in result.err.splitlines() if line.startswith("warning: ")]


def assert_index_changes_nothing(lake, queries, *options):
    """The same rows with indexes and without; returns them and the warnings."""
    with_index, warnings = answers(lake, queries, *options)
    without, silent = answers(lake, queries, "--no-index", *options)
    assert silent == []
    for query, ours, plain in zip(queries, with_index, without):
        assert _sorted(ours) == _sorted(plain), f"with index against without:\n{query[:3000]}"
    return with_index, warnings


def _sorted(found):
    return sorted(json.dumps(row, sort_keys=True) for row in found)


def index_files(lake, table):
    """Index files by the data file they belong to."""
    root = lake.folder(table) / FOLDER
    return {str(p.relative_to(root)).removesuffix(".idx"): p for p in sorted(root.rglob("*.idx"))}


def counters(lake, query, *options):
    """What EXPLAIN ANALYZE says of indexes, summed over all scans."""
    text = "\n".join(row["plan"] for row in lake.json(f"EXPLAIN ANALYZE {query}", *options))
    found = {}
    for name, value in support.re.findall(r"(?<!\w)(index_[a-z_]+)=([0-9.]+(?: [KMB])?)", text):
        number, _, unit = value.partition(" ")
        scale = {"": 1, "K": 1e3, "M": 1e6, "B": 1}[unit]
        found[name] = found.get(name, 0) + round(float(number) * scale)
    return found
