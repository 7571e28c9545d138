"""The tarball of `make dist`: it runs, its checksum holds, and it names everything that is linked."""
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import pytest

import support

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The tarball's folder, unpacked, and the tarball."""
    if not shutil.which("cargo"):
        pytest.skip("MISSING: cargo, which says what is linked. Get it: https://rustup.rs")
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-B", ROOT / "dist/package.py", "--binary", support.BINARY, "--out", out, "--level", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (tarball,) = out.glob("*.tar.gz")
    with tarfile.open(tarball) as tar:
        tar.extractall(out, filter="data")
    return out / tarball.name.removesuffix(".tar.gz"), tarball


def the_command_in_it_runs_and_its_checksum_holds(made):
    folder, tarball = made
    assert subprocess.run([folder / "uplake", "--version"], capture_output=True).returncode == 0
    (line,) = (tarball.parent / "SHA256SUMS").read_text().splitlines()
    assert line == f"{hashlib.sha256(tarball.read_bytes()).hexdigest()}  {tarball.name}"


def completions_and_a_page_for_each_command_are_in_it(made):
    folder = made[0]
    assert {path.name for path in (folder / "completions").iterdir()} == {"uplake.bash", "_uplake", "uplake.fish"}
    assert {"uplake.1", "uplake-sql.1", "uplake-report.1"} <= {path.name for path in (folder / "man").iterdir()}


def it_asks_for_little_of_the_system(made):
    text = (made[0] / "platform.txt").read_text()
    libraries = re.match(r"shared libraries: (.*)", text)
    assert libraries, text
    allowed = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libdl.so.2", "libpthread.so.0", "librt.so.1"}
    assert {one for one in libraries[1].split(", ") if not one.startswith("ld-linux")} <= allowed


def the_bill_of_materials_is_whole(made):
    bill = json.loads((made[0] / "uplake.cdx.json").read_text())
    components = {one["bom-ref"]: one for one in bill["components"]}
    names = {one["name"] for one in components.values()}
    assert {"datafusion", "deltalake-core", "parquet", "uplake-engine"} <= names
    # Macros and what tests need are not linked.
    assert not names & {"serde_derive", "clap_derive", "tempfile-macros", "uplake-faulty-s3", "uplake-tidy"}
    ours = {one for one in components if components[one]["name"].startswith("uplake-")}
    assert all("hashes" in one and "licenses" in one for ref, one in components.items() if ref not in ours)
    known = components.keys() | {bill["metadata"]["component"]["bom-ref"]}
    assert {one["ref"] for one in bill["dependencies"]} == known
    assert all(known >= set(one["dependsOn"]) for one in bill["dependencies"])


def every_package_that_is_linked_has_its_licence(made):
    bill = json.loads((made[0] / "uplake.cdx.json").read_text())
    text = (made[0] / "licences.txt").read_text()
    for one in bill["components"]:
        if not one["name"].startswith("uplake-"):
            assert f"\n{one['name']} {one['version']}: " in text, one["name"]
