"""Pages of README and docs as what they tell a reader to type, and what they say comes out.

    python tests/docs/pages.py        counts what a test runs, and lists what it does not and why

A block ``` of `bash` or `sh` is a list of commands, one a line; `sql` is statements; `text` that begins
with `$ ` is commands with their output. What follows the language in the opening line is not shown when
the page is rendered, and is for us:
    ```text output          what the block before wrote
    ```sql fails            the statement is refused, as it should be; commands likewise
    ```sql served           the statement is the server's that the page has started, by psql
    ```toml file=NAME       the block is this file for what comes later
    ```toml in=NAME         the block is laid over the definition NAME and reported
    ```toml in=NAME metric=METRIC each    keys of that metric and not of the first; each line by itself
    ```bash no-run REASON   nobody can run this here
`<!-- run: … -->` is commands that make what a page takes for granted; of them `load-shop` makes the tables
`events` and `exposures`, and `bucket` starts an S3 server with a bucket of that name.
In output `…` stands for what varies within a line, and on a line of its own for any lines.
"""
import collections
import dataclasses
import pathlib
import re
import shlex

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHELL = ("bash", "sh")


@dataclasses.dataclass
class Step:
    """Something to do: `kind` is command, hidden, sql, served, python, file or merge."""

    kind: str
    text: str
    line: int
    expected: str | None = None
    name: str | None = None
    metric: str | None = None
    fails: bool = False


@dataclasses.dataclass
class NotRun:
    text: str
    line: int
    reason: str


def pages():
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands(text, first):
    """(line, command) of a block: comments left out, lines that end with a backslash joined."""
    joined, start = [], first
    for number, line in enumerate(text.splitlines(), first):
        if not joined:
            start = number
        joined.append(line)
        if line.endswith("\\"):
            continue
        command, joined = "\n".join(joined), []
        if command.strip() and not command.lstrip().startswith("#"):
            yield start, command


def blocks(path):
    """(line, language, the rest of the opening line, text), hidden commands as language `hidden`."""
    lines = path.read_text().splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        opened = re.match(r"( *)```(\S*) *(.*)$", line)
        hidden = line.startswith("<!-- run:")
        number += 1
        if hidden and line.endswith("-->"):
            yield number, "hidden", "", line.removeprefix("<!-- run:").removesuffix("-->").strip()
            continue
        if not opened and not hidden:
            continue
        start, body = number + 1, []
        while lines[number].strip() != ("-->" if hidden else "```"):
            body.append(lines[number][len(opened[1]) if opened else 0:])
            number += 1
        number += 1
        text = "\n".join(body)
        yield (start, "hidden", "", text) if hidden else (start, opened[2], opened[3], text)


def steps(path):
    """What a page has to be done, in order: `Step`s and `NotRun`s."""
    found = []
    for line, language, info, text in blocks(path):
        words = shlex.split(info)
        named = dict(word.split("=", 1) for word in words if "=" in word)
        if "no-run" in words:
            reason = " ".join(words[words.index("no-run") + 1:])
            assert reason, f"{path}:{line}: no-run without a reason"
            of_shell = list(commands(text, line)) if language in SHELL else [(line, text)]
            found += [NotRun(command, at, reason) for at, command in of_shell]
        elif language == "hidden":
            found += [Step("hidden", command, at) for at, command in commands(text, line)]
        elif language in SHELL:
            found += [Step("command", command, at, fails="fails" in words) for at, command in commands(text, line)]
        elif language == "sql":
            found.append(Step("served" if "served" in words else "sql", text, line, fails="fails" in words))
        elif language == "python":
            found.append(Step("python", text, line))
        elif language == "toml" and "file" in named:
            found.append(Step("file", text, line, name=named["file"]))
        elif language == "toml" and "in" in named:
            parts = text.splitlines() if "each" in words else [text]
            found += [Step("merge", part, line + number, name=named["in"], metric=named.get("metric")) for number, part in enumerate(parts)]
        elif language == "text" and text.startswith("$ "):
            for part in re.split(r"^(?=\$ )", text, flags=re.M)[1:]:
                command, _, output = part.partition("\n")
                found.append(Step("command", command[2:], line, output.strip("\n"), fails="fails" in words))
                line += part.count("\n")
        elif "output" in words:
            assert isinstance(found[-1], Step), f"{path}:{line}: output of what is not run"
            found[-1].expected = text
    return found


def is_as_shown(shown, output):
    """Is `output` what a page shows, but for `…`?"""
    pattern = []
    for line in shown.strip("\n").splitlines():
        line = line.rstrip()
        if line.strip() == "…":
            pattern.append(r"(?:[^\n]*\n)*")
        else:
            pattern.append(r"[^\n]*".join(re.escape(part) for part in line.split("…")) + r" *\n")
    lines = "".join(line.rstrip() + "\n" for line in output.strip("\n").splitlines())
    return re.fullmatch("".join(pattern), lines) is not None


def count():
    """How many steps there are of each kind, and what is not run."""
    kinds, not_run = collections.Counter(), []
    for path in pages():
        for _, language, info, _ in blocks(path):
            # Fragments of definitions and of Rust, figures of files; Rust tests read some of them.
            if language in ("rust", "toml") and not info:
                kinds[f"blocks of {language} alone"] += 1
        for step in steps(path):
            if isinstance(step, NotRun):
                kinds["not run"] += 1
                not_run.append((path, step))
            elif step.kind != "hidden":
                kinds[step.kind] += 1
                kinds["with output"] += step.expected is not None
    return kinds, not_run


if __name__ == "__main__":
    kinds, not_run = count()
    print(", ".join(f"{number} {kind}" for kind, number in kinds.items()))
    for path, step in not_run:
        print(f"{path.relative_to(ROOT)}:{step.line}: {step.text.splitlines()[0]}  [{step.reason}]")
