"""The JobSet of docs/cluster/: its form, by Kubernetes' own schema (`jobset.py schema`), and that its
pods' command does what it says, with processes for pods: one of two gets SIGTERM as an evicted pod
does, both end, and started again they end with the bits of a job that was not disturbed."""
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
CHOIR = os.environ.get("CHOIR", os.path.join(ROOT, "build", "choir"))
JOB = ["--steps=200", "--save-every=20", "--model=mlp:hidden=8", "--batch-size=8", "--microbatches=2",
       "--json", "random"]


def skip(why):
    print("skipped: %s" % why)
    sys.exit(77)


def need(*modules):
    for module, package in modules:
        if importlib.util.find_spec(module) is None:
            skip("%s has no %s (install %s)" % (sys.executable, module, package))


def manifest():
    import yaml
    with open(os.path.join(ROOT, "docs", "cluster", "jobset.yaml")) as file:
        return yaml.safe_load(file)


# --- the form -------------------------------------------------------------------------------------

def strict(schema):
    """Kubernetes' dialect as JSON Schema that refuses unknown members."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: {k: strict(v) for k, v in part.items()} if name == "properties" else strict(part)
            for name, part in schema.items()}
    if made.pop("x-kubernetes-int-or-string", False) is True:
        return {"type": ["integer", "string"]}
    if isinstance(made.get("properties"), dict) and "x-kubernetes-preserve-unknown-fields" not in made:
        made.setdefault("additionalProperties", False)
    return made


def check_form():
    need(("yaml", "python3-yaml"), ("jsonschema", "python3-jsonschema"))
    import jsonschema
    import yaml
    path = os.environ.get("CHOIR_JOBSET_CRD")
    if not path:
        skip("no schema of JobSet: set CHOIR_JOBSET_CRD to jobset.x-k8s.io_jobsets.yaml of a release")
    with open(path) as file:
        crd = yaml.safe_load(file)
    job = manifest()
    versions = {crd["spec"]["group"] + "/" + v["name"]: v for v in crd["spec"]["versions"]}
    schema = strict(versions[job["apiVersion"]]["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}  # of all kinds
    assert job["kind"] == crd["spec"]["names"]["kind"]
    validator = jsonschema.Draft7Validator(schema)
    faults = ["%s: %s" % ("/".join(map(str, e.path)), e.message) for e in validator.iter_errors(job)]
    assert not faults, faults
    pod = job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["comand"] = []  # that the schema says something
    pod["restartPolicy"] = 3
    assert len(list(validator.iter_errors(job))) == 2
    print("the JobSet has the form of %s" % job["apiVersion"])


# --- what its pods do ---------------------------------------------------------------------------

def pod_of(container, index, settings, out):
    script = container["args"][:2]
    env = {e["name"]: e["value"] for e in container["env"]}
    env.update(settings, JOB_COMPLETION_INDEX=str(index))
    return subprocess.Popen(container["command"] + script + JOB, env=dict(os.environ, **env), stdout=out,
                            stderr=subprocess.STDOUT)


def ends(pods):
    return [pod.wait(timeout=120) for pod in pods]


def weights(text):
    for line in text.splitlines():
        at = line.find('{"event":"summary"')
        if at >= 0:
            return json.loads(line[at:])["weights_sha256"]
    raise AssertionError("no summary in: %s" % text[-2000:])


def check_pods():
    need(("yaml", "python3-yaml"))
    spec = manifest()["spec"]["replicatedJobs"][0]["template"]["spec"]
    container = spec["template"]["spec"]["containers"][0]
    assert spec["parallelism"] == spec["completions"] == int(
        next(e["value"] for e in container["env"] if e["name"] == "NODES"))
    whole = subprocess.run([CHOIR, "train"] + JOB, stdout=subprocess.PIPE, check=True, timeout=120)
    with tempfile.TemporaryDirectory() as folder:
        save, key, said = (os.path.join(folder, name) for name in ("save", "key", "said"))
        with open(os.open(key, os.O_CREAT | os.O_WRONLY, 0o400), "wb") as file:
            file.write(os.urandom(32))
        settings = {"NODES": "2", "RANKS": "1", "KEY": key, "SAVE": save, "OMP_NUM_THREADS": "1",
                    "ENDPOINT": "127.0.0.1:%d" % (21000 + os.getpid() % 9000),
                    "PATH": os.path.dirname(os.path.abspath(CHOIR)) + ":" + os.environ["PATH"]}
        with open(said, "w") as out:
            pods = [pod_of(container, i, settings, out) for i in range(2)]
            while not os.path.exists(os.path.join(save, "latest")):
                assert all(pod.poll() is None for pod in pods), open(said).read()[-2000:]
                time.sleep(0.02)
            pods[1].send_signal(signal.SIGTERM)
            assert ends(pods) == [143, 143], open(said).read()[-2000:]
            pods = [pod_of(container, i, settings, out) for i in range(2)]
            statuses = ends(pods)
        with open(said) as out:
            text = out.read()
    assert statuses == [0, 0], text[-2000:]
    assert "interrupted after step" in text, text[-2000:]
    assert weights(text) == weights(whole.stdout.decode())
    print("two pods, one of them evicted: the bits of an undisturbed job")


if sys.argv[1:] == ["schema"]:
    check_form()
else:
    check_pods()
