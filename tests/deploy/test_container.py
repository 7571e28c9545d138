"""The container recipe where there is no daemon: its files in a chroot, as its user, on a root that is read-only.

The last stage of deploy/container/Dockerfile is read, and what it would copy is put beside what its base has: the
loader and the libraries of glibc and libgcc, authorities' certificates, /etc/passwd. What an image's layers, its pull
and its build are is not tested here.
"""

import datetime
import http.client
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECIPE = ROOT / "deploy/container/Dockerfile"
NOBODY = 65532
# What gcr.io/distroless/cc-debian12 has of libraries.
LIBRARIES = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgomp.so.1"}
START_S, STOP_S = 60, 40


def _binary():
    found = shutil.which(os.environ.get("UPLAKE_BIN", "uplake"))
    if found is None:
        raise SystemExit("no uplake binary: set UPLAKE_BIN to a built one")
    return pathlib.Path(found).resolve()


def _recipe():
    """The last stage: {instruction: [arguments]}."""
    text = re.sub(r"\\\n", " ", RECIPE.read_text())
    lines = [line.split(None, 1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    last = max(number for number, (word, _) in enumerate(lines) if word == "FROM")
    found = {}
    for word, rest in lines[last:]:
        found.setdefault(word, []).append(rest)
    return found


STAGE = _recipe()
ENV = dict(word.split("=", 1) for line in STAGE["ENV"] for word in shlex.split(line))
# Folders that the recipe gives to its user.
WRITABLE = [line.split()[-1] for line in STAGE["COPY"] if "--chown" in line]


def _linked(binary):
    """{name: path} of the libraries that the program is linked with, and the loader."""
    said = subprocess.run(["ldd", binary], capture_output=True, text=True, check=True).stdout
    found = {name: path for name, path in re.findall(r"(\S+) => (/\S+)", said)}
    loader = re.search(r"^\s*(/\S*ld-linux\S*)", said, re.MULTILINE)
    return found, loader[1]


def the_program_asks_for_what_the_base_has():
    libraries, _ = _linked(_binary())
    assert set(libraries) <= LIBRARIES, "deploy/container/Dockerfile needs a base with more"
    assert STAGE["FROM"] == ["gcr.io/distroless/cc-debian12:nonroot"]


def the_recipe_is_of_nobody_and_has_no_shell():
    assert STAGE["USER"] == [f"{NOBODY}:{NOBODY}"], "Kubernetes sees of a number alone that it is not root"
    assert "RUN" not in STAGE, "the base has no shell"
    for word in "ENTRYPOINT", "CMD":
        assert json.loads(STAGE[word][0]), f"{word} in the form that needs no shell"
    assert set(ENV.values()) <= set(WRITABLE), "what the program writes to is its user's"
    assert set(json.loads(STAGE["VOLUME"][0])) == set(WRITABLE) - {ENV["UPLAKE_LAKE"]}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """The image's files."""
    if os.geteuid() != 0:
        pytest.skip("MISSING: root, for a chroot. Get it: sudo --preserve-env=UPLAKE_BIN")
    for program in "unshare", "chroot", "mount":
        if not shutil.which(program):
            pytest.skip(f"MISSING: {program}. Get it: apt-get install util-linux coreutils")
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        pytest.skip("MISSING: the right to mount (CAP_SYS_ADMIN). Get it: run the tests in a container that has it, or in none")
    root = tmp_path_factory.mktemp("image") / "root"
    for folder in "etc/ssl/certs", "proc", "dev", "tmp", "sys":
        (root / folder).mkdir(parents=True)
    libraries, loader = _linked(_binary())
    for path in [*libraries.values(), loader]:
        to = root / path.lstrip("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(path), to)
    (root / "etc/passwd").write_text(f"root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:{NOBODY}:{NOBODY}:nonroot:/home/nonroot:/sbin/nologin\n")
    (root / "etc/group").write_text(f"root:x:0:\nnonroot:x:{NOBODY}:\n")
    (root / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    authorities = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
    if authorities.exists():
        shutil.copy(authorities, root / "etc/ssl/certs")
    for line in STAGE["COPY"]:
        source, to = [word for word in line.split() if not word.startswith("--")]
        to = root / to.lstrip("/")
        if source == "/out/uplake":
            shutil.copy(_binary(), to)
        elif source.startswith("/src/"):
            shutil.copy(ROOT / source.removeprefix("/src/"), to)
        else:
            to.mkdir()
            assert f"--chown={NOBODY}:{NOBODY}" in line
    return root


class Contained:
    """The image's program on a root that is read-only; volumes for what it writes."""

    def __init__(self, root, folder, **mounts):
        self.root, self.folder = root, folder
        self.mounts = mounts
        for path in WRITABLE:
            volume = folder / path.lstrip("/")
            volume.mkdir(exist_ok=True)
            os.chown(volume, NOBODY, NOBODY)
            self.mounts[path] = volume
        self.server = None

    def command(self, words):
        binds = [f"mount --bind {shlex.quote(str(self.root))} {shlex.quote(str(self.root))}"]
        binds += [f"mount --bind {shlex.quote(str(of))} {shlex.quote(str(self.root) + at)}" for at, of in self.mounts.items()]
        binds += [f"mount -t proc proc {shlex.quote(str(self.root))}/proc", f"mount --rbind /dev {shlex.quote(str(self.root))}/dev"]
        binds += [f"mount -o remount,bind,ro {shlex.quote(str(self.root))}"]
        entry = shlex.join([*json.loads(STAGE["ENTRYPOINT"][0]), *words])
        run = f"exec chroot --userspec={STAGE['USER'][0]} --groups= {shlex.quote(str(self.root))} {entry}"
        return ["unshare", "--mount", "sh", "-ec", "; ".join([*binds, run])]

    def words(self):
        # What a container is given, and no more.
        return {"PATH": os.environ["PATH"], **ENV}

    def run(self, *words):
        return subprocess.run(self.command(words), capture_output=True, text=True, timeout=120, env=self.words())

    def start(self, *words):
        self.errors = open(self.folder / "server.err", "wb")
        self.server = subprocess.Popen(
            self.command([*json.loads(STAGE["CMD"][0]), *words]), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=self.errors, env=self.words(),
        )
        until = time.monotonic() + START_S
        while True:
            line = self.server.stdout.readline().decode()
            assert line and time.monotonic() < until, f"it does not serve: {self.said()}"
            found = re.match(r"http\s+(\S+):(\d+)", line)
            if found:
                self.at = (found[1], int(found[2]))
                return self

    def said(self):
        return (self.folder / "server.err").read_text(errors="replace")

    def sql(self, text, scheme=http.client.HTTPConnection, **more):
        call = scheme(*self.at, timeout=60, **more)
        call.request("POST", "/sql?format=csv", text.encode())
        answer = call.getresponse()
        body = answer.read().decode()
        call.close()
        assert answer.status == 200, body
        return body.splitlines()[1:]

    def health(self, *words):
        """What the recipe's health command says."""
        entry, *rest = json.loads(STAGE["HEALTHCHECK"][0].partition(" CMD ")[2])
        assert [entry] == json.loads(STAGE["ENTRYPOINT"][0])
        return self.run(*rest, *words)

    def stop(self):
        self.server.send_signal(signal.SIGTERM)
        try:
            return self.server.wait(STOP_S)
        finally:
            self.server.kill()
            self.server.wait()
            self.server.stdout.close()
            self.errors.close()


@pytest.fixture
def contained(root, tmp_path):
    made = Contained(root, tmp_path)
    yield made
    if made.server and made.server.poll() is None:
        made.stop()


def _files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def it_serves_writes_spills_and_ends_on_a_root_that_is_read_only(root, contained):
    before = _files(root)
    made = contained.run("sql", "-c", "create table t as select x as id, x % 7 as d from generate_series(1, 1000) g(x)")
    assert made.returncode == 0, made.stderr
    contained.start("--pg", "127.0.0.1:0", "--http", "127.0.0.1:0", "--memory", "64M")
    status = pathlib.Path(f"/proc/{contained.server.pid}/status").read_text()
    assert re.search(rf"^Uid:(\s+{NOBODY}){{4}}$", status, re.MULTILINE), status
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE), status
    assert contained.sql("select count(*), sum(d) from t") == ["1000,3003"]
    contained.sql("insert into t values (1001, 3)")
    assert contained.sql("select count(*) from t") == ["1001"]
    # Sorted on the disk: three times the memory.
    texts = "select repeat('abcdefgh', 20) || x as f from generate_series(1, 1200000) g(x)"
    sorted_texts = f"select count(*) from (select f, lag(f) over (order by f) as p from ({texts}) t) s where p is null or p < f"
    assert contained.sql(sorted_texts) == ["1200000"]
    spilled = contained.sql("select max(spilled) from system.queries")
    assert int(spilled[0]) > 0, "nothing was written to TMPDIR"
    at = "{}:{}".format(*contained.at)
    asked = contained.health(at)
    assert (asked.returncode, asked.stdout) == (0, "ok\n"), asked.stderr
    assert (contained.health(at, "--ready").stdout) == "ready\n"
    assert contained.stop() == 0, contained.said()
    asked = contained.health(at)
    assert asked.returncode == 1 and "nobody answers" in asked.stderr, asked
    assert "Read-only" not in contained.said() and "ermission denied" not in contained.said(), contained.said()
    assert _files(root) == before
    assert not _files(contained.folder / "spill"), "files of statements are left"
    assert _files(contained.folder / "cache"), "nothing is kept in the cache"


def beyond_the_container_it_serves_with_tls_and_users(root, contained, tmp_path):
    x509 = pytest.importorskip("cryptography.x509", reason="MISSING: cryptography. Get it: make python-tools")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "uplake")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1)).sign(key, hashes.SHA256())
    )
    lake = contained.folder / "lake"
    secrets = {
        "tls.crt": made.public_bytes(serialization.Encoding.PEM),
        "tls.key": key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        "password": b"of the test\n",
    }
    for file, content in secrets.items():
        (lake.parent / "spill" / file).write_bytes(content)
    with_tls = ["--tls-cert", "/spill/tls.crt", "--tls-key", "/spill/tls.key"]
    # Nothing that anybody could open by mistake.
    refused = contained.run("serve", "--pg", "0.0.0.0:0", "--http", "0.0.0.0:0", *with_tls)
    assert refused.returncode == 1 and "uplake user add" in refused.stderr, refused
    added = contained.run("user", "add", "ann", "--role", "admin", "--password-file", "/spill/password")
    assert added.returncode == 0, added.stderr
    # Of docs/operations.md: a user without any right.
    (statements,) = re.findall(r"```sql\n(CREATE USER prometheus;.*?)```", (ROOT / "docs/operations.md").read_text(), re.DOTALL)
    token = contained.run("sql", "--format", "csv", "-c", statements).stdout.split()[-1]
    contained.start("--pg", "0.0.0.0:0", "--http", "0.0.0.0:0", *with_tls)
    for given, status in ({}, 401), ({"Authorization": f"Bearer {token}"}, 200):
        call = http.client.HTTPSConnection("127.0.0.1", contained.at[1], timeout=30, context=ssl._create_unverified_context())
        call.request("GET", "/metrics", headers=given)
        assert call.getresponse().status == status
        call.close()
    asked = contained.health(f"127.0.0.1:{contained.at[1]}", "--ready")
    assert (asked.returncode, asked.stdout) == (0, "ready\n"), asked.stderr
    assert contained.stop() == 0, contained.said()
