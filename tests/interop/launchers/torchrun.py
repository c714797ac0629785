"""`choir train` under the real torchrun, whose agent serves a TCPStore at MASTER_PORT: the ranks find each
other through it, twice in a row, and after a restart. Runs with the PyTorch of this Python and, where there
is another, of Debian's: their stores speak different protocols."""
import json
import os
import random
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import need  # noqa: F401

CHOIR = os.environ["CHOIR"]
TRAIN = [CHOIR, "train", "--model", "toy", "--strategy", "ddp", "--steps", "3", "--batch-size", "8",
         "--seed", "3", "--quiet", "--no-eval", "--json"]
WORKER = """#!/bin/sh
if [ "$TORCHELASTIC_RESTART_COUNT" = 0 ] && [ "$FAILS" = 1 ]; then
    [ "$RANK" = 1 ] && exit 3
    exec "$@" random # waits for rank 1 until torchrun ends it
fi
"$@" random && exec "$@" random
"""


def version_of(python):
    done = subprocess.run([python, "-c", "import torch, torch.distributed.run as r; print(torch.__version__)"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout.decode().strip() if done.returncode == 0 else None


def environment(**more):
    clean = {k: v for k, v in os.environ.items()
             if not k.startswith(("CHOIR_", "TORCHELASTIC_", "PET_", "MASTER_"))
             and k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
    return dict(clean, OMP_NUM_THREADS="1", **more)


def free_port():
    """A port below those that Linux gives to other programs' connections meanwhile."""
    while True:
        port = random.randrange(15000, 30000)
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) != 0:
                return port


def summaries(text):
    """Objects of --json, behind the prefixes that torchrun may write."""
    at = [line.find('{"event":"summary"') for line in text.splitlines()]
    return [json.loads(line[i:]) for line, i in zip(text.splitlines(), at) if i >= 0]


def torchrun(python, version, worker, fails, *options):
    # The old torchrun does not know stream 0 or 3 under Python 3.11.
    old = ["-r", "1", "-t", "1"] if version.startswith("1.") else []
    done = subprocess.run(
        [python, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--no_python",
         "--monitor_interval", "0.2", *old, *options, worker, *TRAIN],
        env=environment(FAILS=str(int(fails))), timeout=120, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = done.stdout.decode(errors="replace")
    assert done.returncode == 0, "torchrun %s of PyTorch %s: %s" % (options, version, text[-9000:])
    return summaries(text)


def check(python, version, worker):
    alone = subprocess.run([*TRAIN, "--nproc", "2", "random"], env=environment(), stdout=subprocess.PIPE,
                           check=True)
    expected = summaries(alone.stdout.decode())[0]["weights_sha256"]
    static = ["--master_port", str(free_port())]
    for fails, options in ((True, [*static, "--max_restarts", "1"]), (False, ["--standalone"]),
                           (False, ["--rdzv_backend", "c10d", "--rdzv_id", "job-7",
                                    "--rdzv_endpoint", "localhost:%d" % free_port()])):
        got = torchrun(python, version, worker, fails, *options)
        assert [(s["world"], s["weights_sha256"]) for s in got] == [(2, expected)] * 2, (options, got)
    print("torchrun of PyTorch %s: same weights by each rendezvous, and after a restart" % version)


def main():
    found = {}
    for python in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(python):
            found.setdefault(version_of(python), python)
    found.pop(None, None)
    if not found:
        print("skipped: %s has no torch.distributed (install python3-torch)" % sys.executable)
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        worker = os.path.join(folder, "worker.sh")
        with open(worker, "w") as file:
            file.write(WORKER)
        os.chmod(worker, 0o755)
        for version, python in found.items():
            check(python, version, worker)


main()
