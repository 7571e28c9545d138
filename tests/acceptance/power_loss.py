"""What a disk may hold after a power cut, from the calls of the programs that wrote to it.

`Recorder` runs programs with `power_loss.c` before their libc, which notes each call that changes a
file or folder below one folder. `Disk` takes the notes up to a moment, and makes up what may be there
when the power comes back:

- a file's bytes as they were when it was last synced, and of each later write all, nothing, some
  pages, or zeros in its place;
- a folder's names as they were when the folder was last synced, and any of the later changes; or,
  as in a file system with a journal, all changes up to some moment that is not before those that a
  sync waited for. A rename is never half done.

Syncing a file says nothing about its name, nor syncing a folder about the bytes in it.
"""

import dataclasses
import os
import pathlib
import random
import shutil
import subprocess

import pytest

SOURCE = pathlib.Path(__file__).with_name("power_loss.c")
PAGE, SECTOR = 4096, 512


@dataclasses.dataclass
class Note:
    """A call. `path` and `to` are below the folder; `file` is the inode."""

    kind: str
    file: int
    offset: int
    path: str
    to: str
    data: bytes

    def __str__(self):
        names = dict(c="create", d="mkdir", l="link", r="rename", u="remove", w="write", t="cut", f="sync", s="say")
        to = f" to {self.to}" if self.to else ""
        data = f" {len(self.data)} bytes at {self.offset}" if self.data else ""
        return f"{names[self.kind]} {self.path}{to}{data}"


class Recorder:
    """Runs programs and has their notes; `folder` is for its own files, not below `root`."""

    def __init__(self, folder, root):
        self.root, self.notes = pathlib.Path(root).resolve(), []
        self._file, self._library = pathlib.Path(folder) / "notes", pathlib.Path(folder) / "power_loss.so"
        compiler = shutil.which("cc")
        if compiler is None or not os.path.exists("/proc/self/fd"):
            pytest.skip("power loss is simulated with a C compiler named `cc` and Linux: install one")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", self._library, SOURCE], check=True)
        self._file.write_bytes(b"")
        self._read = 0

    def environment(self, kill_after=None):
        """For a program; it is killed after a note of this kind (one letter) and with this in its path."""
        kill = {"POWER_LOSS_KILL": kill_after} if kill_after else {}
        return dict(os.environ, LD_PRELOAD=str(self._library), POWER_LOSS_ROOT=str(self.root),
                    POWER_LOSS_NOTES=str(self._file), **kill)

    def take(self):
        """Reads what programs have noted since; the number of all notes."""
        content, at = self._file.read_bytes(), self._read
        while at < len(content):
            end = content.index(b"\n", at)
            kind, *numbers = content[at:end].decode().split(" ")
            file, offset, *lengths = map(int, numbers)
            parts, at = [], end + 1
            for length in lengths:
                parts.append(content[at:at + length])
                at += length
            a, b = (self._relative(part.decode()) for part in parts[:2])
            assert kind != "!", f"a call that the model does not know: {parts[:2]}"
            self.notes.append(Note(kind, file, offset, a, b, parts[2]))
        self._read = at
        return len(self.notes)

    def _relative(self, path):
        return os.path.relpath(path, self.root) if path else ""


@dataclasses.dataclass(eq=False)
class Thing:
    """A file or a folder, whatever its names. A write is (moment, offset, bytes, or None for a cut)."""

    is_folder: bool
    changed: int
    synced: int = -1
    writes: list = dataclasses.field(default_factory=list)

    def content(self, fate=lambda moment, bytes: bytes):
        data = bytearray()
        for moment, offset, new in self.writes:
            kept = new if moment <= self.synced else fate(moment, new)
            if kept is False:
                continue
            if kept is None:
                del data[offset:]
                kept = b""
            data.extend(bytes(max(0, offset + len(kept) - len(data))))
            data[offset:offset + len(kept)] = kept
        return bytes(data)


class Disk:
    """The folder after some notes, and what of it would outlive a power cut."""

    def __init__(self, root=None):
        """From what is in a folder, all of which is durable; None: an empty one."""
        self.root, self.moment, self.forced = Thing(True, -1), -1, -1
        self._now, self._changes, self._things, self._by_number = {self.root: {}}, [], [], {}
        for path in sorted(pathlib.Path(root).rglob("*")) if root else []:
            thing = self._new(path.stat().st_ino, path.is_dir())
            if path.is_file():
                thing.writes.append((-1, 0, path.read_bytes()))
            self._change((str(path.relative_to(root)), thing))

    def _new(self, number, is_folder):
        thing = self._by_number[number] = Thing(is_folder, self.moment)
        self._things.append(thing)
        if is_folder:
            self._now[thing] = {}
        return thing

    def _at(self, path):
        thing = self.root
        for name in pathlib.PurePath(path).parts:
            thing = self._now[thing][name]
        return thing

    def _change(self, *entries):
        """Names that change together; None is no thing."""
        placed = []
        for path, thing in entries:
            folder, name = self._at(os.path.dirname(path)), os.path.basename(path)
            placed.append((folder, name, thing))
            folder.changed = self.moment
        for folder, name, thing in placed:
            if thing is None:
                gone = self._now[folder].pop(name)
                gone.changed = self.moment
            else:
                self._now[folder][name] = thing
                thing.changed = self.moment
        self._changes.append((self.moment, placed))

    def apply(self, note):
        self.moment += 1
        match note.kind:
            case "c" | "d":
                self._change((note.path, self._new(note.file, note.kind == "d")))
            case "l":
                self._change((note.path, self._by_number[note.file]))
            case "r":
                self._change((note.path, None), (note.to, self._by_number[note.file]))
            case "u":
                self._change((note.path, None))
            case "w" | "t":
                thing = self._by_number[note.file]
                thing.writes.append((self.moment, note.offset, note.data if note.kind == "w" else None))
                thing.changed = self.moment
            case "f":
                thing = self.root if note.path == "." else self._by_number[note.file]
                thing.synced, self.forced = self.moment, max(self.forced, thing.changed)
        return self

    def now(self):
        """What programs see: bytes by path, None for folders."""
        return self._tree(self._now, Thing.content)

    def after_loss(self, rng, spared=frozenset()):
        """What may be there after a power cut now, and the moments of the notes that were lost.

        Of those that are spared nothing is: this finds which losses matter.
        """
        lost = set()
        kept_names, kept_bytes = (rng.choice([0, 1, rng.random()]) for _ in range(2))
        in_order, seed = rng.random() < 0.5, rng.random()
        until = self.forced + round((self.moment - self.forced) * kept_names)

        def is_kept(moment, folders):
            if in_order:
                return moment <= until or moment in spared
            is_synced = any(moment <= folder.synced for folder in folders)
            return is_synced or of(moment).random() < kept_names or moment in spared

        # Of each note's own, so that sparing one changes nothing of another.
        def of(moment):
            return random.Random(f"{seed} {moment}")

        def fate(moment, new):
            rng = of(moment)
            if rng.random() < kept_bytes:
                return new
            torn = _torn(new, rng)
            if moment in spared or torn == new:
                return new
            lost.add(moment)
            return torn

        names = {thing: {} for thing in self._now}
        for moment, entries in self._changes:
            if not is_kept(moment, [folder for folder, _, _ in entries]):
                lost.add(moment)
                continue
            for folder, name, thing in entries:
                if thing is None:
                    names[folder].pop(name, None)
                else:
                    names[folder][name] = thing
        contents = {thing: thing.content(fate) for thing in self._things if not thing.is_folder}
        return self._tree(names, contents.get), sorted(lost)

    def _tree(self, names, content):
        found, left = {}, [("", self.root)]
        while left:
            path, folder = left.pop()
            for name, thing in sorted(names[folder].items()):
                at = os.path.join(path, name)
                found[at] = None if thing.is_folder else content(thing)
                if thing.is_folder:
                    left.append((at, thing))
        return found


def _torn(data, rng):
    """What there is of a write: False is nothing. Pages of it may be zeros, and its end may lack."""
    if data is None or rng.random() < 0.5:
        return False
    torn = bytearray(data)
    for at in range(0, len(data), PAGE):
        if rng.random() < 0.5:
            torn[at:at + PAGE] = bytes(len(torn[at:at + PAGE]))
    return bytes(torn[:rng.choice([len(torn), rng.randrange(len(torn) + 1) // SECTOR * SECTOR])])


def tree_of(root):
    """What is in a folder: bytes by path, None for folders."""
    paths = pathlib.Path(root).rglob("*")
    return {str(path.relative_to(root)): None if path.is_dir() else path.read_bytes() for path in paths}


def write_tree(tree, root):
    """The folder anew."""
    shutil.rmtree(root, ignore_errors=True)
    os.makedirs(root)
    for path, content in tree.items():
        at = os.path.join(root, path)
        if content is None:
            os.makedirs(at, exist_ok=True)
        else:
            with open(at, "wb") as file:
                file.write(content)
