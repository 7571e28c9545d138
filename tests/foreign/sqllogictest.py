"""Others' sqllogictest files: reading them, asking uplake, and judging each record.

`parse` reads a file in the dialect of DataFusion or of DuckDB, `expand` unrolls its loops, and
`run_file` asks each record of a shell of its own and gives one `Verdict` a record:

    passed    the rows, or the error, that the file expects
    refused   uplake says no, or another thing, and a rule of the suite says why that is meant
    failed    uplake says no, and no rule says why
    wrong     other rows than the file expects, or rows where it expects an error
    bug       a panic, an internal error, or no answer in time

Invariants:
- A rule looks at one statement and what came of it, never at a file's name or a line.
- Values are compared, not their formats: numbers by value, rows without ORDER BY in any order.

Not here: what the suites' rules are (`datafusion_tests`, `duckdb_tests`), the process (`shell`).
"""

import dataclasses
import hashlib
import math
import pathlib
import re
import tempfile

import display
import shell

# Sums of doubles depend on the order of rows; the suites print 12 digits or more.
RELATIVE_ERROR = 1e-9
ABSOLUTE_ERROR = 1e-12
# Numbers that are given with fewer digits than they have may differ in the last of them.
ROUNDED = 1e-5
LOOP_RECORDS_MAX = 20_000
# More than any file lists; Python takes seconds for a million.
ROWS_MAX = 200_000
SHOWN_ROWS = 50
UNREAD = "answered, but in a type of Arrow that Python does not read"


@dataclasses.dataclass
class Record:
    """One record of a file.

    `kind` is query, statement or the name of a directive; `expects` is ok, error, count or rows.
    `rows` are the lines after ----, None if there is no such line.
    """

    line: int
    kind: str
    words: list
    sql: str = ""
    rows: list | None = None
    expects: str = ""
    types: str = ""
    sort: str = ""
    error: str = ""
    connection: str = ""
    label: str = ""
    body: list | None = None


@dataclasses.dataclass(frozen=True)
class Rule:
    """Why an answer other than the file's is meant. Patterns that are given must all be found, in
    the statement without its comments and strings, in uplake's message, in the rows expected."""

    name: str
    sql: str | None = None
    message: str | None = None
    raw: str | None = None
    expected: str | None = None

    def fits(self, _state, _text):
        """What a rule asks of the file so far; the text is uplake's message, or the statement."""
        return True

    def holds(self, sql, message, expected=""):
        return all(
            pattern is None or re.search(pattern, text, re.IGNORECASE | re.DOTALL)
            for pattern, text in (
                (self.sql, without_strings(sql)),
                (self.raw, sql),
                (self.message, message),
                (self.expected, expected),
            )
        )


@dataclasses.dataclass(frozen=True)
class NoSuchTable(Rule):
    """A table that the file has not made."""

    def fits(self, state, message):
        name = re.search(r"there is no table `([^`]*)`", message)
        return name is not None and name[1].split(".")[-1].lower() not in state.created


@dataclasses.dataclass(frozen=True)
class OfKeyedTable(Rule):
    """A statement about a table that was made with a key."""

    def fits(self, state, message):
        return bool(state.named(state.keyed, message))


@dataclasses.dataclass
class Verdict:
    kind: str
    record: Record
    rule: str = ""
    got: str = ""
    path: str = ""


SORTS = ("rowsort", "valuesort", "nosort", "sort")
DIRECTIVES = {
    "include",
    "require",
    "require-env",
    "mode",
    "halt",
    "hash-threshold",
    "load",
    "restart",
    "reconnect",
    "sleep",
    "unzip",
    "template",
    "tags",
    "test-env",
    "set",
    "control",
    "unload",
    "skipif",
    "onlyif",
    "reset",
    "continue",
    "subtest",
    "connection",
    "user",
}


def statements(sql):
    """The statements of a text, cut at the semicolons outside of quotes and comments."""
    parts = re.split(r"('(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/|;)", sql, flags=re.DOTALL)
    found = [""]
    for part in parts:
        if part == ";":
            found.append("")
        elif not part.startswith("--"):
            found[-1] += part
    return [statement.strip() for statement in found if statement.strip()]


def without_strings(sql):
    sql = re.sub(r"--[^\n]*|/\*.*?\*/", " ", sql, flags=re.DOTALL)
    return re.sub(r"'(?:[^']|'')*'", "''", sql)


def parse(text, long_errors=False):
    """The records of a file, loops with their bodies.

    `long_errors`: the text of an expected error ends at two blank lines, not at one.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    records, _ = block(lines, 0, False, long_errors)
    return records


def block(lines, at, inner, long_errors):
    found = []
    while at < len(lines):
        words = lines[at].split()
        if not words or words[0].startswith("#"):
            at += 1
        elif words[0] in ("endloop", "endif"):
            at += 1
            if inner:
                return found, at
        elif words[0] in ("loop", "foreach", "concurrentloop", "concurrentforeach"):
            head = Record(at + 1, words[0], words[1:])
            head.body, at = block(lines, at + 1, True, long_errors)
            found.append(head)
        elif words[0] in ("statement", "query"):
            record, at = one_record(lines, at, long_errors)
            found.append(record)
        elif words[0] in DIRECTIVES:
            found.append(Record(at + 1, words[0], words[1:]))
            at += 1
        else:
            raise ValueError(f"line {at + 1}: `{lines[at]}` begins no record")
    return found, at


def one_record(lines, at, long_errors):
    words = lines[at].split()
    record = Record(at + 1, words[0], words[1:])
    head(record)
    sql, at = [], at + 1
    while at < len(lines) and (
        lines[at]
        or not sql
        and record.rows is None
        or long_errors
        and goes_on(record, lines[at + 1 : at + 2])
    ):
        if record.rows is None and lines[at].strip() == "----":
            record.rows = []
        elif record.rows is None:
            sql.append(lines[at])
        else:
            record.rows.append(lines[at])
        at += 1
    record.sql = "\n".join(line for line in sql if not line.startswith("#")).strip()
    if record.expects == "error" and record.rows:
        record.error = "\n".join(record.rows)
    return record, at


def goes_on(record, following):
    """A blank line ends a record; the text of an error ends at two."""
    return record.expects == "error" and record.rows is not None and following not in ([], [""])


def head(record):
    words = record.words
    first = words[0] if words else ""
    record.expects = "rows" if record.kind == "query" else first
    if first == "error":
        record.expects, record.error = "error", " ".join(words[1:])
        if re.fullmatch(r"con\d+", record.error):
            record.connection, record.error = record.error, ""
        return
    if record.kind == "query":
        record.types = first
    for word in words[1:]:
        if word in SORTS:
            record.sort = {"sort": "nosort"}.get(word, word)
        elif record.expects == "count":
            record.error = word
        elif re.fullmatch(r"con\d+|old|updater", word):
            record.connection = word
        elif record.kind == "query":
            record.label = word


def expand(records, names=None):
    """Records with loops unrolled and `${name}` replaced."""
    names = names or {}
    for record in records:
        if record.body is None:
            yield replaced(record, names)
            continue
        for value in loop_values(record, names):
            inner = names | dict(zip(record.words[0].split(","), value))
            yield from expand(record.body, inner)


def loop_values(record, names):
    words = [fill(word, names) for word in record.words]
    if record.kind.endswith("loop"):
        return [(str(n),) for n in range(int(words[1]), int(words[2]))]
    return [tuple(word.split(",")) for group in words[1:] for word in loop_group(group)]


GROUPS = {
    "<compression>": ["none"],
    "<signed>": ["tinyint", "smallint", "integer", "bigint", "hugeint"],
    "<unsigned>": ["utinyint", "usmallint", "uinteger", "ubigint", "uhugeint"],
}
GROUPS["<integral>"] = GROUPS["<signed>"] + GROUPS["<unsigned>"]
GROUPS["<numeric>"] = GROUPS["<integral>"] + ["float", "double"]
GROUPS["<alltypes>"] = GROUPS["<numeric>"] + ["bool", "interval", "varchar"]


def loop_group(word):
    return GROUPS.get(word.lower(), [word])


def fill(text, names):
    for name, value in names.items():
        text = text.replace("${" + name + "}", value).replace("{" + name + "}", value)
    return text


def replaced(record, names):
    if not names:
        return record
    rows = None if record.rows is None else [fill(row, names) for row in record.rows]
    words = [fill(word, names) for word in record.words]
    return dataclasses.replace(record, sql=fill(record.sql, names), rows=rows, words=words)


# Comparing ---------------------------------------------------------------------------------------

WHOLE = re.compile(r"[+-]?\d+")


def same_text(a, b):
    """Whether two values are the same, numbers by value, to the digits that both are given in."""
    if a == b:
        return True
    if WHOLE.fullmatch(a) and WHOLE.fullmatch(b):
        return int(a) == int(b)
    try:
        x, y = float(a), float(b)
    except ValueError:
        return False
    if x == y or x != x and y != y:
        return True
    if not (math.isfinite(x) and math.isfinite(y)):
        return False
    error = max(ABSOLUTE_ERROR, RELATIVE_ERROR * max(abs(x), abs(y)))
    return abs(x - y) <= max(error, min(max(unit_of(a), unit_of(b)), ROUNDED * abs(x)))


def unit_of(text):
    """The last place of a number that is given with a point; 0 for the others."""
    digits = re.fullmatch(r"-?\d+\.(\d+)(?:e([+-]?\d+))?", text, re.IGNORECASE)
    return 10.0 ** (int(digits[2] or 0) - len(digits[1])) if digits else 0.0


WORDS = re.compile(r"[\s,\[\]{}()=:]+")


def same_row(got, want, same=same_text):
    """Rows as lists of text."""
    return len(got) == len(want) and all(same(a, b) or same_parts(a, b) for a, b in zip(got, want))


def same_parts(a, b):
    """Lists and structs: the same words between the same marks."""
    if WORDS.search(a.strip()) is None:
        return False
    return WORDS.findall(a) == WORDS.findall(b) and all(
        map(same_text, WORDS.split(a), WORDS.split(b))
    )


def same_rows(got, want, same=same_text):
    return len(got) == len(want) and all(same_row(a, b, same) for a, b in zip(got, want))


def any_order(rows):
    """Rows in an order that small errors of numbers hardly change."""

    def rough(value):
        try:
            return f"{float(value):.6e}"
        except ValueError:
            return value

    return sorted(rows, key=lambda row: [rough(value) for value in row])


ORDERED = re.compile(r"\border\s+by\b(?!.*\border\s+by\b)(.*)", re.IGNORECASE | re.DOTALL)


def outer_order(sql):
    """The text after the statement's own ORDER BY, or None."""
    text = without_strings(sql)
    while re.search(r"\([^()]*\)", text):
        text = re.sub(r"\([^()]*\)", " ", text)
    found = ORDERED.search(text)
    return found[1] if found else None


def keys_of_order(sql, names):
    """Columns of the answer that the leading keys of ORDER BY name."""
    text = re.split(r"\b(?:limit|offset|fetch)\b", outer_order(sql), flags=re.IGNORECASE)[0]
    keys = []
    for part in text.split(","):
        key = re.sub(r"\b(asc|desc|nulls|first|last)\b", " ", part, flags=re.IGNORECASE).strip(
            ' ;\n"'
        )
        key = key.split(".")[-1].strip('"')
        lower = [name.lower() for name in names]
        if key.isdigit() and 0 < int(key) <= len(names):
            keys.append(int(key) - 1)
        elif key.lower() in lower:
            keys.append(lower.index(key.lower()))
        else:
            return None
    return keys


def compared(sql, got, want, sort, names, same=same_text):
    """`same`, `ties` (another order, or choice by LIMIT, of rows with one key), or `other`."""
    if sort == "valuesort":
        got, want = ([[v] for row in rows for v in row] for rows in (got, want))
    if sort in ("rowsort", "valuesort") or outer_order(sql) is None:
        got, want = any_order(got), any_order(want)
        return "same" if same_rows(got, want, same) else "other"
    if same_rows(got, want, same):
        return "same"
    limited = re.search(r"\blimit\b", without_strings(sql), re.IGNORECASE)
    if not limited and not same_rows(any_order(got), any_order(want), same):
        return "other"
    keys = keys_of_order(sql, names)
    if keys is None or len(got) != len(want):
        return "other"
    pick = [
        [[row[k] for k in keys] for row in rows if len(row) > max(keys)] for rows in (got, want)
    ]
    return "ties" if same_rows(*pick, same) else "other"


def spaced(rows):
    """Rows as one line of words each, as DataFusion's files have them."""
    return [" ".join(row).split() for row in rows]


def lines_to_rows(lines, columns):
    """DuckDB's rows: values between tabs, or a value a line."""
    tabbed = [line.split("\t") for line in lines]
    if any(len(row) != columns for row in tabbed):
        tabbed = [[value for value in row if value.strip()] for row in tabbed]
    if columns > 1 and all(len(row) == columns for row in tabbed):
        return tabbed
    if columns and len(lines) % columns == 0:
        return [lines[at : at + columns] for at in range(0, len(lines), columns)]
    return tabbed


HASHED = re.compile(r"(\d+) values hashing to ([0-9a-f]{32})")


def hash_of(rows, sort):
    if sort == "rowsort":
        rows = sorted(rows)
    flat = [value for row in rows for value in row]
    if sort == "valuesort":
        flat.sort()
    return hashlib.md5("".join(value + "\n" for value in flat).encode()).hexdigest()


# Running -----------------------------------------------------------------------------------------

CREATED = re.compile(
    r"\s*create\s+(?:or\s+replace\s+)?(?:\w+\s+)*?(?:table|view|schema|type|macro|function|index|"
    r"sequence)\s+(?:if\s+not\s+exists\s+)?((?:\"[^\"]+\"|[\w.$])+)",
    re.IGNORECASE,
)
DROPPED = re.compile(
    r"\s*drop\s+table\s+(?:if\s+exists\s+)?((?:\"[^\"]+\"|[\w.$])+)", re.IGNORECASE
)
PREPARED = re.compile(r"\s*prepare\s+(\w+)", re.IGNORECASE)
INTO = re.compile(r"\s*select\b.*?\binto\s+(\w+)", re.IGNORECASE | re.DOTALL)
CHANGED = re.compile(
    r"\b(?:insert\s+(?:or\s+\w+\s+)?into|update|delete\s+from|merge\s+into|truncate(?:\s+table)?|"
    r"alter\s+(?:table|view)(?:\s+if\s+exists)?|copy|drop\s+(?:table|view)(?:\s+if\s+exists)?|"
    r"create\s+(?:unique\s+)?index\b.*?\bon)\s+((?:\"[^\"]+\"|[\w.$])+)",
    re.IGNORECASE | re.DOTALL,
)


# What stands behind a word that tables follow, up to what ends their list.
TABLES = re.compile(
    r"\b(?:from|join|into|update|table|view|using|describe|copy|execute|deallocate)\b\s*"
    r"([^();]*?)(?=\b(?:where|group|order|limit|having|union|except|intersect|on|set|values|select|"
    r"join|left|right|full|cross|inner|from)\b|[();]|$)",
    re.IGNORECASE | re.DOTALL,
)


class Suite:
    """What differs from one project's files to another's. Subclasses name the rules."""

    name = ""
    style = display.DataFusion
    # Statements outside of what docs/sql.md promises, by what they say or by uplake's message.
    refused = []
    # Rows that differ and are meant to.
    differs = []

    def prepare(self, _record, sql, _state):
        """The statements to ask instead of `sql`; the last one's answer is judged."""
        return [sql]

    def parse(self, path):
        """The records of a file, those it includes with them."""
        return parse(path.read_text(errors="replace"))

    def lay_out(self, folder, _path):
        """The folder to work in."""
        return folder

    def directive(self, _record, _state):
        """The name of a rule if the rest of the file is not for us; `skip_next` is for a record."""
        return None

    def created(self, record, state, name):
        """Called when a statement has made something."""

    def verify(self, record, answer, rows, _state):
        """`same`, `ties`, `other`, or the name of the rule by which the rows are the same."""
        raise NotImplementedError


class State:
    """What a file has done so far: names that are missing or hold other rows than it expects."""

    def __init__(self, path, folder):
        self.path, self.folder = path, folder
        self.cwd = folder
        # Names that could not be made; tables whose rows are not those of the file, and why;
        # settings that are active and why they change answers.
        self.missing, self.changed, self.settings = set(), {}, {}
        self.created = set()
        # Tables with a key.
        self.keyed = set()
        # Tables that prepared statements change; their texts.
        self.prepared, self.preparations = set(), []
        # Rows by the label that several queries of DuckDB's files share.
        self.labels = {}
        # What directives and connections of DuckDB's files have set.
        self.begun = self.skipping = self.several = False
        # Stand-ins and the files they were made of; files whose rows tables cannot keep, and why.
        self.sources, self.other_files, self.zoned = {}, {}, False
        # Why the next record is not for us, if it is not.
        self.skip_next = None

    def note_failure(self, sql):
        created = CREATED.match(sql) or INTO.match(sql) or PREPARED.match(sql)
        if created:
            self.missing.add(plain_name(created[1]))
        names = {plain_name(changed[1]) for changed in CHANGED.finditer(sql)}
        if re.match(r"\s*execute\b", sql, re.IGNORECASE):
            names |= self.prepared
        for name in names:
            self.changed.setdefault(name, "reads what a refused statement would have changed")

    def note_success(self, sql):
        dropped = DROPPED.match(sql)
        if dropped:
            self.created.discard(plain_name(dropped[1]))
        prepared = PREPARED.match(sql)
        if prepared:
            self.missing.discard(plain_name(prepared[1]))
            self.preparations.append(sql)
            self.prepared |= {plain_name(changed[1]) for changed in CHANGED.finditer(sql)}
        created = CREATED.match(sql)
        if created:
            name = plain_name(created[1])
            self.created.add(name)
            if re.search(r"\bprimary\s+key\b", sql, re.IGNORECASE):
                self.keyed.add(name)
            self.missing.discard(name)
            self.changed.pop(name, None)
            # A table made of one with other rows has other rows.
            sources = [source for source in self.named(self.changed, sql) if source != name]
            if sources:
                self.changed[name] = self.changed[sources[0]]
            return name
        return None

    def named(self, names, sql):
        """Those of the names that a statement has where tables stand."""
        places = " ".join(TABLES.findall(without_strings(sql)))
        words = {plain_name(word) for word in re.findall(r"\"[^\"]+\"|[\w.$]+", places)}
        return sorted(words & set(names))

    def excuse(self, sql):
        """Why a statement's rows may differ from the file's, or None."""
        if self.settings:
            return next(iter(self.settings.values()))
        if re.match(r"\s*execute\b", sql, re.IGNORECASE):
            sql = " ".join(self.preparations)
        changed = self.named(self.changed, sql)
        if self.changed and "{TEST_DIR}" in sql:
            changed = changed or sorted(self.changed)
        if changed:
            return self.changed[changed[0]]
        return "reads what was refused before" if self.named(self.missing, sql) else None


def made_name(sql):
    """What a CREATE makes; empty for other statements."""
    created = CREATED.match(sql)
    return created[1] if created else ""


def plain_name(name):
    return name.split(".")[-1].strip('"').lower()


def judge(suite, record, answer, state):
    """The verdict on one record that was asked."""
    sql, message = record.sql, answer.error or ""
    if answer.error is not None:
        named = record.expects == "error" and re.search("Internal|Assertion", record.error)
        if answer.bug and not named:
            return Verdict("bug", record, got=message)
        if record.expects in ("error", "maybe"):
            return Verdict("passed", record)
        # Before what the statement itself leaves undone counts.
        excuse = state.excuse(sql)
        state.note_failure(sql)
        if set(state.named(state.missing, sql)) - {plain_name(made_name(sql))}:
            return Verdict("refused", record, "reads what was refused before", message)
        for rule in suite.refused:
            if rule.holds(sql, message) and rule.fits(state, message):
                return Verdict("refused", record, rule.name, message)
        if excuse:
            return Verdict("refused", record, excuse, message)
        return Verdict("failed", record, got=message)
    created = state.note_success(sql)
    if created:
        suite.created(record, state, created)
    if record.expects == "error":
        got = "no error" if answer.table is None else f"rows\n{shown(suite.style, answer.table)}"
        return differing(suite, record, got, state)
    if record.expects != "rows":
        return Verdict("passed", record)
    if answer.table is None:
        count = re.search(r"(\d+) rows", answer.message)
        same = not record.rows or count and [count[1]] == record.rows
        return (
            Verdict("passed", record) if same else differing(suite, record, answer.message, state)
        )
    if answer.table.num_rows > ROWS_MAX:
        return differing(suite, record, f"{answer.table.num_rows} rows", state)
    rows = display.rows(answer.table, suite.style)
    if rows is None:
        return Verdict("refused", record, UNREAD, str(answer.table.schema))
    outcome = suite.verify(record, answer, rows, state)
    if outcome in ("same", "ties"):
        return Verdict("passed", record)
    if outcome != "other":
        return Verdict("refused", record, outcome, "\n".join(map("\t".join, rows)))
    return differing(suite, record, "\n".join(map("\t".join, rows)), state)


def differing(suite, record, got, state):
    expected = "\n".join(record.rows or []) or record.error
    for rule in suite.differs:
        if rule.holds(record.sql, got, expected) and rule.fits(state, record.sql):
            return Verdict("refused", record, rule.name, got)
    excuse = state.excuse(record.sql)
    if excuse:
        return Verdict("refused", record, excuse, got)
    return Verdict("wrong", record, got=got)


def shown(style, table):
    rows = display.rows(table.slice(0, SHOWN_ROWS), style)
    return str(table.schema) if rows is None else "\n".join(map("\t".join, rows))


def run_records(suite, records, asker, state):
    """Verdicts of a file's records, in order."""
    verdicts, over = [], None
    for record in records:
        if record.body is None and record.kind not in ("statement", "query"):
            over = over or suite.directive(record, state)
            continue
        skipped, state.skip_next = over or state.skip_next, None
        if skipped:
            verdicts.append(Verdict("refused", record, skipped))
            continue
        prepared = suite.prepare(record, record.sql, state)
        if isinstance(prepared, str):
            state.note_failure(record.sql)
            verdicts.append(Verdict("refused", record, prepared))
            continue
        answer = None
        for sql in prepared or [record.sql]:
            answer = asker.ask(sql)
            if answer.error is not None:
                break
        verdicts.append(judge(suite, record, answer, state))
    return verdicts


def run_file(suite, path, binary):
    """The verdicts of one file, on a lake of its own."""
    path = pathlib.Path(path)
    with tempfile.TemporaryDirectory(prefix="foreign-") as folder:
        state = State(path, folder)
        try:
            records = list(expand(suite.parse(path)))
        except (ValueError, OSError, IndexError) as error:
            raise ValueError(f"{path}: {error}") from error
        if len(records) > LOOP_RECORDS_MAX:
            records = records[:LOOP_RECORDS_MAX]
        state.cwd = str(suite.lay_out(folder, path))
        with shell.Shell(binary, f"{folder}/lake", state.cwd) as asker:
            verdicts = run_records(suite, records, asker, state)
    for verdict in verdicts:
        verdict.path = str(path)
    return verdicts
