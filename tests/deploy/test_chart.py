"""The Helm chart where there is no cluster: `helm lint`, its output over every file of values in ci/ against the strict
schemas of five versions of Kubernetes, and what it tells the program against the program.

`make deploy-tools` brings helm and the checker of Prometheus' own kinds; schemas come with kubernetes-validate. What
Kubernetes does with the objects is not tested here; restarts are, as processes, in tests/wire/test_rolling.py.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/uplake"
VALUES = sorted(CHART.glob("ci/*.yaml"))
TOOLS = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "bin"
KUBERNETES = ["1.33", "1.34", "1.35", "1.36", "1.37"]
# What helm asks no cluster for.
RELEASE = ["lake", "--namespace", "data", f"--kube-version={KUBERNETES[-1]}.0"]

HOW = "Get it: pip install -r tests/requirements.txt"
yaml = pytest.importorskip("yaml", reason=f"MISSING: PyYAML. {HOW}")
kubernetes_validate = pytest.importorskip("kubernetes_validate", reason=f"MISSING: kubernetes-validate. {HOW}")
promql_parser = pytest.importorskip("promql_parser", reason=f"MISSING: promql-parser. {HOW}")


def _tool(name):
    found = shutil.which(name, path=f"{TOOLS}:{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"MISSING: {name}. Get it: make deploy-tools")
    return found


def _helm(*words):
    done = subprocess.run([_tool("helm"), *words], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def _objects(values, *words):
    code, out, error = _helm("template", *RELEASE, str(CHART), "--values", str(values), *words)
    assert code == 0, error
    return [one for one in yaml.safe_load_all(out) if one]


def _pods(objects):
    """(kind, name, spec) of every pod that the chart makes."""
    for one in objects:
        spec = one.get("spec", {})
        if one["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if "template" in spec:
            yield one["kind"], one["metadata"]["name"], spec["template"]["spec"]


@pytest.fixture(scope="module", params=VALUES, ids=[path.stem for path in VALUES])
def values(request):
    _tool("helm")
    return request.param


@pytest.fixture(scope="module")
def objects(values):
    return _objects(values)


def there_are_eight_files_of_values():
    assert len(VALUES) == 8


def helm_has_nothing_to_say(values):
    code, out, error = _helm("lint", "--strict", str(CHART), "--values", str(values))
    assert code == 0, out + error


@pytest.mark.parametrize("version", KUBERNETES)
def objects_fit_the_strict_schemas(objects, version):
    checked = [one for one in objects if "monitoring.coreos.com" not in one["apiVersion"]]
    assert checked
    for one in checked:
        kubernetes_validate.validate(one, version, strict=True)


def the_schemas_find_what_is_wrong():
    one = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"port": []}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(one, KUBERNETES[0], strict=True)


def objects_of_prometheus_fit_its_types(objects):
    """Unknown fields, too, by the Go types of its operator."""
    checked = [one for one in objects if "monitoring.coreos.com" in one["apiVersion"]]
    if not checked:
        return
    assert {one["kind"] for one in checked} == {"ServiceMonitor", "PrometheusRule"}

    def done(*documents):
        text = "\n".join(json.dumps(one) for one in documents)
        return subprocess.run([_tool("uplake-operator-types")], input=text, capture_output=True, text=True, timeout=60)

    found = done(*checked)
    assert found.returncode == 0, found.stderr
    for one in checked:
        assert done(one | {"spec": one["spec"] | {"endpoint": []}}).returncode != 0, "it finds nothing wrong"


def objects_have_names_of_their_own(objects):
    names = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(names) == len(set(names))
    # A StatefulSet's pods have eleven characters more in a label, of 63.
    assert all(len(name) <= 52 for _, name in names), names


def nobody_is_root_and_nothing_but_two_folders_is_written(objects):
    pods = list(_pods(objects))
    assert pods
    for kind, name, pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True and pod["securityContext"]["runAsUser"] == 65532, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"], f"{name}: the budget is a share of the limit"
        assert not container["image"].endswith(":latest")
        told = {one["name"]: one.get("value") for one in container["env"]}
        mounts = {one["mountPath"]: one for one in container["volumeMounts"]}
        assert {path for path, one in mounts.items() if not one.get("readOnly")} == {"/cache", "/spill"}
        assert (told["UPLAKE_CACHE"], told["TMPDIR"]) == ("/cache", "/spill")
        volumes = {one["name"] for one in pod["volumes"]} | ({"cache"} if kind == "StatefulSet" else set())
        assert {one["name"] for one in mounts.values()} <= volumes


def a_pod_has_the_time_that_its_statements_have(objects):
    for kind, name, pod in _pods(objects):
        if kind in ("Deployment", "StatefulSet"):
            (container,) = pod["containers"]
            drain = next(int(word.removeprefix("--drain=").rstrip("s")) for word in container["args"] if word.startswith("--drain="))
            asleep = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
            assert pod["terminationGracePeriodSeconds"] > drain + asleep, name


def _help(*words):
    name = shutil.which(os.environ.get("UPLAKE_BIN", "uplake"))
    if name is None:
        pytest.skip("MISSING: uplake. Get it: cargo build --release -p uplake, and set UPLAKE_BIN")
    return subprocess.run([name, *words, "--help"], capture_output=True, text=True, timeout=30)


def what_the_program_is_told_it_knows(objects):
    """Options of servers, and the commands of jobs."""
    known = set(re.findall(r"^\s+(?:-\w, )?(--[\w-]+)", _help("serve").stdout, re.MULTILINE))
    unknown = set()
    for kind, name, pod in _pods(objects):
        args = pod["containers"][0]["args"]
        if args[0] == "serve":
            unknown |= {word.partition("=")[0] for word in args[1:]} - known
        else:
            said = _help(*args)
            assert said.returncode == 0, f"{name}: {args}: {said.stderr}"
    if unknown and all(one.startswith("--node-") for one in unknown):
        pytest.skip(f"MISSING: an uplake whose nodes speak TLS: this one has no {', '.join(sorted(unknown))}")
    assert not unknown


def a_warehouse_s_coordinators_ask_the_service_of_its_workers(objects):
    services = {one["metadata"]["name"]: one for one in objects if one["kind"] == "Service"}
    sets = {one["metadata"]["name"]: one for one in objects if one["kind"] == "StatefulSet"}
    coordinating = 0
    for kind, name, pod in _pods(objects):
        args = dict(word.partition("=")[::2] for word in pod["containers"][0]["args"])
        if "--members" not in args:
            continue
        coordinating += 1
        host, port = re.fullmatch(r"dns:(\S+)\.data\.svc:(\d+)", args["--members"]).groups()
        service, workers = services[host]["spec"], sets[host]["spec"]
        assert service["clusterIP"] == "None" and workers["serviceName"] == host
        labels = workers["template"]["metadata"]["labels"]
        assert service["selector"].items() <= labels.items()
        (container,) = workers["template"]["spec"]["containers"]
        asked = dict(word.partition("=")[::2] for word in container["args"])
        assert asked["--node"] == f"$(POD_IP):{port}" and asked["--warehouse"] == args["--warehouse"]
        assert {"name": "node", "containerPort": int(port)} in container["ports"]
    assert coordinating == len(sets)


def services_and_budgets_are_of_pods_that_there_are(objects):
    pods = [one["spec"]["template"]["metadata"]["labels"] for one in objects if one["kind"] in ("Deployment", "StatefulSet")]
    for one in objects:
        if one["kind"] == "Service":
            selector = one["spec"]["selector"]
        elif one["kind"] == "PodDisruptionBudget":
            selector = one["spec"]["selector"]["matchLabels"]
        else:
            continue
        assert sum(selector.items() <= labels.items() for labels in pods) == 1, one["metadata"]["name"]


def only_coordinators_reach_the_port_of_nodes(objects):
    ports = {port["containerPort"] for _, _, pod in _pods(objects) for port in pod["containers"][0].get("ports", []) if port["name"] == "node"}
    for policy in [one["spec"] for one in objects if one["kind"] == "NetworkPolicy"]:
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        for rule in policy["ingress"]:
            if ports & {port["port"] for port in rule["ports"]}:
                (source,) = rule["from"]
                assert source["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "coordinator"
                ports = set()
        assert not ports, "nobody reaches workers"


GOOD = CHART / "ci/workers.yaml"


@pytest.mark.parametrize("words, says", [
    (["--set", "lake.url="], "lake.url"),
    (["--set", "lake.url=/srv/lake"], "url"),
    (["--set", "tls.existingSecret="], "tls.existingSecret"),
    (["--set", "nodes.tls.existingSecret="], "nodes.tls.existingSecret"),
    (["--set", "nodes.secret.existingSecret="], "nodes.secret.existingSecret"),
    (["--set", "metrics.serviceMonitor.enabled=true"], "tokenSecret"),
    (["--set", "image.tag=latest"], "tag"),
    (["--set", "replica=3"], "replica"),
    (["--set", "warehouses.default.worker.replicas=3"], "worker"),
    (["--set", "warehouses.Default.workers.replicas=3"], "Default"),
    (["--set", "defaults.workers.replicas=many"], "replicas"),
    (["--set", "defaults.workers.cache.diskCache=80Gi"], "diskCache"),
    (["--set", "defaults.drainSeconds=10m"], "drainSeconds"),
    (["--set", "ports.http=80"], "http"),
    (["--set", "jobs.check.args={lake,check}"], "schedule"),
    (["--set", "lake.storage.disk_cache=1GiB"], "disk_cache"),
])
def values_that_mean_nothing_are_refused(words, says):
    code, out, error = _helm("template", *RELEASE, str(CHART), "--values", str(GOOD), *words)
    assert code != 0 and says in error, error or out[:500]


def the_docs_install_it():
    """`helm install` of docs/operations.md, word by word."""
    text = re.sub(r"\\\n *", "", (ROOT / "docs/operations.md").read_text())
    (words,) = re.findall(r"^helm install (.*)$", text, re.MULTILINE)
    name, chart, *rest = words.split()
    code, out, error = _helm("template", name, str(ROOT / chart), RELEASE[-1], *rest)
    assert code == 0, error
    pods = list(_pods(one for one in yaml.safe_load_all(out) if one))
    assert {kind for kind, _, _ in pods} == {"Deployment", "StatefulSet", "Job"}
    secrets = {volume["secret"]["secretName"] for _, _, pod in pods for volume in pod["volumes"] if "secret" in volume}
    assert secrets == set(re.findall(r"^kubectl create secret \w+ (\S+)", text, re.MULTILINE))


def an_upgrade_makes_no_user():
    assert any(kind == "Job" for kind, _, _ in _pods(_objects(GOOD)))
    assert not any(kind == "Job" for kind, _, _ in _pods(_objects(GOOD, "--is-upgrade")))


# What is asked of Prometheus.

# Prometheus' own, and labels that its operator gives to what it reads.
OF_PROMETHEUS = {"up"}
OF_TARGETS = {"namespace", "service", "pod", "uplake_warehouse", "app_kubernetes_io_component"}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What /metrics tells of: {metric: names of its labels}, and of those that have no sample yet None."""
    import sys

    sys.path.insert(0, str(ROOT / "tests/wire"))
    import support
    import test_certificates

    folder = tmp_path_factory.mktemp("metrics")
    test_certificates._write(folder, "metrics")
    lake = support.make_lake(folder)
    with_tls = ("--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem"))
    server = support.Server(folder, lake, *with_tls)
    try:
        import ssl

        words = ssl._create_unverified_context()
        at = "https://{}:{}".format(*server.http)
        with server.raw() as wire:
            wire.rows("select count(*) from people")
        for sql in b"select 1 as a", b"select 1 / 0":
            try:
                urllib.request.urlopen(f"{at}/sql", data=sql, context=words).read()
            except urllib.error.HTTPError:
                pass
        text = urllib.request.urlopen(f"{at}/metrics", context=words).read().decode()
    finally:
        server.stop()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    # Those that have nothing to tell yet (refusals, a bucket's cache) are not in the text: as the program registers them.
    source = (ROOT / "crates/server/src/metrics.rs").read_text()
    registered = re.findall(r'"(uplake_\w+)",\s+"[^"]*",\s+Family::clone\(&\w*?(\w+)\)', source)
    kind_of = dict(re.findall(r"^    (\w+): Family<.*?(Counter|Gauge)", source, re.MULTILINE))
    kinds = {name: kind_of[field].lower() for name, field in registered if field in kind_of} | kinds
    ends = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"], "info": ["_info"]}
    found = {name + end: None for name, kind in kinds.items() for end in ends[kind]}
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", text, re.MULTILINE):
        assert name in found, name
        found[name] = (found[name] or {})
        for label, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels):
            found[name].setdefault(label, set()).add(value)
    return found


def _selectors(node):
    """Every selector of a parsed expression."""
    text = type(node).__name__
    if text == "VectorSelector":
        yield node
    for part in ("expr", "lhs", "rhs", "vector_selector", "vs", "param", "selector"):
        inner = getattr(node, part, None)
        if inner is not None:
            yield from _selectors(inner)
    for inner in getattr(node, "args", None) or []:
        yield from _selectors(inner)


def _check(expression, told):
    parsed = promql_parser.parse(re.sub(r"\$__rate_interval", "5m", expression))
    found = list(_selectors(parsed))
    names = set(re.findall(r"\b(?:uplake|process)_\w+(?=\{|\[|\s|\)|$)", re.sub(r"by \([^)]*\)|on\([^)]*\)", "", expression)))
    assert names <= {one.name for one in found}, f"not all of {expression} is looked at"
    for one in found:
        if one.name in OF_PROMETHEUS:
            continue
        assert one.name in told, f"/metrics has no {one.name}: {expression}"
        own = told[one.name]
        for matcher in one.matchers.matchers:
            if matcher.name in OF_TARGETS:
                continue
            assert own is None or matcher.name in own, f"{one.name} has no label {matcher.name}"
            # Results and limits come as they happen; of what is always told each value is known.
            if own is not None and matcher.name in ("what", "kind", "tier", "for"):
                assert matcher.value in own[matcher.name], f"{one.name} has no {matcher.name}={matcher.value}"


def _alarms():
    return [
        rule for one in _objects(CHART / "ci/metrics.yaml") if one["kind"] == "PrometheusRule"
        for group in one["spec"]["groups"] for rule in group["rules"]
    ]


def alarms_are_of_metrics_that_there_are(told):
    alarms = _alarms()
    assert len(alarms) > 10
    for alarm in alarms:
        _check(alarm["expr"], told)
        assert 'namespace="data"' in alarm["expr"] and 'service=~"lake-uplake-.*"' in alarm["expr"], alarm["expr"]


def alarms_are_those_of_the_docs():
    text = (ROOT / "docs/operations.md").read_text()
    assert set(re.findall(r"^\| `(Uplake\w+)`", text, re.MULTILINE)) == {alarm["alert"] for alarm in _alarms()}


@pytest.mark.parametrize("name", ["statements", "nodes"])
def dashboards_are_of_metrics_that_there_are(told, name):
    boards = {
        one["metadata"]["name"]: one["data"] for one in _objects(CHART / "ci/metrics.yaml")
        if one["kind"] == "ConfigMap" and one["metadata"]["labels"].get("grafana_dashboard") == "1"
    }
    board = json.loads(boards[f"lake-uplake-{name}"][f"{name}.json"])
    targets = [target for panel in board["panels"] for target in panel["targets"]]
    assert len(targets) > 10
    for target in targets:
        _check(target["expr"].replace("$namespace", "n").replace("$warehouse", "w"), told)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def the_autoscaler_goes_by_a_metric_that_there_is(told):
    scalers = [one for one in _objects(CHART / "ci/autoscaling.yaml") if one["kind"] == "HorizontalPodAutoscaler"]
    assert {one["spec"]["scaleTargetRef"]["kind"] for one in scalers} == {"Deployment", "StatefulSet"}
    for one in scalers:
        (metric,) = one["spec"]["metrics"]
        assert metric["pods"]["metric"]["name"] in told
    # Who scales says how many there are; an upgrade of the chart must not.
    for one in _objects(CHART / "ci/autoscaling.yaml"):
        if one["kind"] in ("Deployment", "StatefulSet"):
            assert "replicas" not in one["spec"]
