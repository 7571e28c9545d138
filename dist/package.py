#!/usr/bin/env python3
"""A tarball of the command that is built, for this platform: `make dist`.

    python dist/package.py [--binary target/release/uplake] [--out target/dist] [--level 19]

Beside the tarball are SHA256SUMS. In it:
    uplake                     stripped: a quarter of its bytes were names of functions
    LICENSE, README.md, docs/, deploy/
    licences.txt               of every package that is linked: its licence's name and its texts
    uplake.cdx.json            the packages, their checksums and who uses whom (SBOM, CycloneDX 1.6)
    platform.txt               the shared libraries and the versions of their symbols that it asks for
    completions/, man/         if the command writes them

What is linked is what `cargo metadata` says of the command's normal dependencies for this platform, with
the workspace's features; macros and build scripts run while it is built and are not in it. Nothing is
fetched. The same binary and commit give the same bytes: times are the commit's (or SOURCE_DATE_EPOCH).
"""
import argparse
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import uuid
from datetime import datetime, timezone

ROOT = pathlib.Path(__file__).resolve().parents[1]
TEXTS = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)", re.I)
SHELLS = {"bash": "uplake.bash", "zsh": "_uplake", "fish": "uplake.fish"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/uplake")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "target/dist")
    parser.add_argument("--level", type=int, default=9, help="of gzip")
    args = parser.parse_args()
    if not args.binary.exists():
        sys.exit(f"{args.binary} is not there; build it: cargo build --release -p uplake")
    target = said("rustc", "-vV").partition("host: ")[2].split()[0]
    linked, edges = packages(target)
    version = linked["uplake"]["version"]
    name = f"uplake-{version}-{target}"
    when = int(os.environ.get("SOURCE_DATE_EPOCH") or said("git", "-C", str(ROOT), "log", "-1", "--format=%ct"))
    files = {"uplake": stripped(args.binary), "platform.txt": platform(args.binary).encode()}
    files["licences.txt"] = licences(linked).encode()
    files["uplake.cdx.json"] = bill(linked, edges, files["uplake"], when).encode()
    for path in [ROOT / "LICENSE", ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        files[str(path.relative_to(ROOT))] = path.read_bytes()
    for path in sorted((ROOT / "deploy").rglob("*")):
        if path.is_file():
            files[str(path.relative_to(ROOT))] = path.read_bytes()
    files |= written_by(args.binary)
    args.out.mkdir(parents=True, exist_ok=True)
    tarball = args.out / f"{name}.tar.gz"
    tarball.write_bytes(packed(name, files, when, args.level))
    sums = args.out / "SHA256SUMS"
    lines = [line for line in sums.read_text().splitlines() if not line.endswith(f"  {tarball.name}")] if sums.exists() else []
    lines.append(f"{hashlib.sha256(tarball.read_bytes()).hexdigest()}  {tarball.name}")
    sums.write_text("\n".join(sorted(lines, key=lambda line: line.split()[1])) + "\n")
    print(files["platform.txt"].decode().rstrip())
    print(f"{tarball}: {tarball.stat().st_size / 2**20:.0f} MiB, {len(files)} files, {len(linked)} packages linked")


def said(*command, ok=(0,)):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in ok:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def packages(target):
    """The packages that are linked, by `name` or `name version` where there are several, and who uses whom."""
    found = json.loads(said(
        "cargo", "metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", target,
        "--manifest-path", str(ROOT / "Cargo.toml")))
    by_id = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}

    def is_macro(identity):
        return any("proc-macro" in target["kind"] for target in by_id[identity]["targets"])

    start = next(p["id"] for p in found["packages"] if p["name"] == "uplake" and p["source"] is None)
    reached, waiting, edges = {start}, [start], {}
    while waiting:
        identity = waiting.pop()
        uses = [
            dependency["pkg"] for dependency in nodes[identity]["deps"]
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]) and not is_macro(dependency["pkg"])
        ]
        edges[identity] = uses
        waiting += [one for one in uses if one not in reached]
        reached.update(uses)
    checksums = {
        (p["name"], p["version"]): p.get("checksum")
        for p in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    }
    names = [by_id[identity]["name"] for identity in reached]
    keys = {
        identity: by_id[identity]["name"] + (f" {by_id[identity]['version']}" if names.count(by_id[identity]["name"]) > 1 else "")
        for identity in reached
    }
    linked = {
        keys[identity]: by_id[identity] | {"checksum": checksums[by_id[identity]["name"], by_id[identity]["version"]]}
        for identity in reached
    }
    return dict(sorted(linked.items())), {keys[of]: sorted({keys[one] for one in uses}) for of, uses in edges.items()}


def licences(linked):
    """Each text once, below the packages that have it."""
    texts, without, head = {}, [], []
    for key, package in linked.items():
        if package["source"] is None:
            continue
        name = package["license"] or package["license_file"]
        assert name, f"{key} has no licence"
        head.append(f"{package['name']} {package['version']}: {name}")
        folder = pathlib.Path(package["manifest_path"]).parent
        found = [path for path in sorted(folder.iterdir()) if path.is_file() and TEXTS.match(path.name)]
        for path in found:
            text = path.read_text(errors="replace").strip()
            texts.setdefault(text, []).append(f"{package['name']} {package['version']}")
        if not found:
            authors = ", ".join(package["authors"]) or package["repository"] or "its authors"
            without.append(f"{package['name']} {package['version']}: {name}; by {authors}")
    parts = [
        "uplake is under the Apache License 2.0 (LICENSE). These packages are linked into it:", "\n".join(head),
        "Packages that come without a text of their licence; the texts of these licences are below, by others:",
        "\n".join(without),
    ]
    parts += [f"{'=' * 80}\n{', '.join(of)}\n{'-' * 80}\n{text}" for text, of in texts.items()]
    return "\n\n".join(parts) + "\n"


def bill(linked, edges, binary, when):
    def purl(package):
        return f"pkg:cargo/{package['name']}@{package['version']}"

    def component(package):
        made = {
            "type": "library", "bom-ref": purl(package), "name": package["name"], "version": package["version"],
            "purl": purl(package), "scope": "required",
        }
        if package["license"]:
            # Before SPDX had operators, Cargo wrote a bar of slashes for OR.
            made["licenses"] = [{"expression": re.sub(r"\s*/\s*", " OR ", package["license"])}]
        if package["checksum"]:
            made["hashes"] = [{"alg": "SHA-256", "content": package["checksum"]}]
        if package["repository"]:
            made["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
        return made

    command = component(linked["uplake"]) | {
        "type": "application", "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(binary).hexdigest()}],
    }
    made = {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(when, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": command,
        },
        "components": [component(package) for key, package in linked.items() if key != "uplake"],
        "dependencies": [
            {"ref": purl(linked[key]), "dependsOn": [purl(linked[one]) for one in uses]} for key, uses in sorted(edges.items())
        ],
    }
    made["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(made, sort_keys=True))}"
    return json.dumps(made, indent=1) + "\n"


def stripped(binary):
    if not shutil.which("strip"):
        return binary.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        said("strip", "-o", f"{folder}/uplake", str(binary))
        return pathlib.Path(folder, "uplake").read_bytes()


def platform(binary):
    """The shared libraries and the newest version of their symbols that the program asks for."""
    if not shutil.which("readelf"):
        return "readelf is not here, so nobody has looked what the program asks for\n"
    libraries = re.findall(r"Shared library: \[(.+?)\]", said("readelf", "--dynamic", "--wide", str(binary)))
    versions = {}
    for name, number in re.findall(r"Name: (\w+)_(\d[\d.]*)", said("readelf", "--version-info", "--wide", str(binary))):
        versions.setdefault(name, set()).add(tuple(map(int, number.split("."))))
    newest = [f"{name} {'.'.join(map(str, max(numbers)))}" for name, numbers in sorted(versions.items())]
    return f"shared libraries: {', '.join(libraries) or 'none'}\nneeds at least: {', '.join(newest) or 'nothing'}\n"


def written_by(binary):
    """Completions and pages of the manual, of a command that writes them."""
    commands = re.findall(r"^  (\S+) ", said(str(binary), "--help"), flags=re.M)
    files = {}
    if "completions" in commands:
        files |= {f"completions/{name}": said(str(binary), "completions", shell).encode() for shell, name in SHELLS.items()}
    if "man" in commands:
        with tempfile.TemporaryDirectory() as folder:
            said(str(binary), "man", "--out", folder)
            files |= {f"man/{page.name}": page.read_bytes() for page in pathlib.Path(folder).iterdir()}
    return files


def packed(name, files, when, level):
    tarred = io.BytesIO()
    with tarfile.open(fileobj=tarred, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size, entry.mtime, entry.mode = len(content), when, 0o755 if path == "uplake" else 0o644
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(tarred.getvalue(), level, mtime=when)


if __name__ == "__main__":
    main()
