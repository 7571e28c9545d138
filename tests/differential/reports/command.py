"""The command under test: a lake made by `uplake load`, and reports and SQL asked of it."""
import json
import os
import pathlib
import subprocess

from reports.definitions import to_toml

TIMEOUT_S = 300


class Failed(Exception):
    """The command ended with an error, or not in time."""


class Lake:
    """A world's tables in a folder of their own."""

    def __init__(self, binary, folder, world):
        self.binary, self.folder, self.world = binary, folder, world
        self.path = folder / "lake"

    def run(self, *args, check=True):
        env = {k: v for k, v in os.environ.items() if not k.startswith("UPLAKE_")}
        env |= {"UPLAKE_CACHE": str(self.folder / "cache"), "UPLAKE_LAKE": str(self.path),
                "RUST_BACKTRACE": "0"}
        try:
            done = subprocess.run([self.binary, *map(str, args)], capture_output=True, env=env,
                                  timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            words = " ".join(map(str, args))
            raise Failed(f"no answer within {TIMEOUT_S} s: uplake {words}") from None
        message = done.stderr.decode(errors="replace").strip()
        if "panicked at" in message or done.returncode not in (0, 1):
            raise Failed(f"exit code {done.returncode}: {message}")
        if check and done.returncode != 0:
            raise Failed(message)
        return done.stdout.decode(), message

    def load(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        for table in self.world.tables.values():
            first, *others = table.write(self.folder)
            self.run("load", "-q", table.name, first, *table.options)
            for path in others:
                self.run("load", "-q", table.name, path)

    def reports(self, definitions, dimensions, *options):
        """Per definition its report as a dict, or the message of its error; in one command."""
        out = self.folder / "reports"
        paths = []
        for definition in definitions:
            path = self.folder / f"{definition['name']}.toml"
            path.write_text(to_toml(definition))
            paths.append(path)
            (out / f"{definition['name']}.json").unlink(missing_ok=True)
        out.mkdir(exist_ok=True)
        # One report goes to the file itself, several to the folder.
        to = out if len(paths) > 1 else out / f"{definitions[0]['name']}.json"
        asked = ["--dimension", ",".join(dimensions)] if dimensions else []
        _, message = self.run("report", *paths, "--format", "json", "-o", to, *asked, *options,
                              check=False)
        found = []
        for definition in definitions:
            path = out / f"{definition['name']}.json"
            found.append(json.loads(path.read_text()) if path.exists()
                         else own_message(message, definition["name"]))
        return found

    def sql_of(self, definition, dimensions):
        path = self.folder / f"{definition['name']}.toml"
        path.write_text(to_toml(definition))
        asked = ["--dimension", ",".join(dimensions)] if dimensions else []
        return self.run("report", path, "--show-sql", *asked)[0]

    def sql(self, text, *options):
        path = self.folder / "statement.sql"
        path.write_text(text)
        return self.run("sql", "-f", path, "--format", "json", *options)[0]


def own_message(message, name):
    """What is said of one experiment of several."""
    own = [line for line in message.splitlines() if f"`{name}`" in line]
    return "\n".join(own) or message


def binary():
    """The command that UPLAKE_BIN names, or the release build of this checkout."""
    root = pathlib.Path(__file__).resolve().parents[3]
    return os.environ.get("UPLAKE_BIN") or str(root / "target" / "release" / "uplake")
