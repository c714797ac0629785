"""Several ranks: DiLoCo, local SGD and SyncBatchNorm beside a computation by PyTorch in one process.

Each rank is this file run as `local_sgd.py --rank`, with its job in a .npz (weights to start from, the
batches of all ranks) and no PyTorch. The reference is the algorithm of the paper: one copy of the
network per rank with an optimizer of torch.optim, and torch.optim.SGD as the outer one.
"""
import ctypes
import json
import os
import subprocess
import sys
import tempfile

import need  # first: it skips without PyTorch
import numpy as np

STEPS, WIDTH, OUT = 12, 6, 4


def rank_main(path):
    """One rank: trains, and leaves its weights after each step in path.RANK.npz."""
    import choir
    from choir import C, HEADER, E
    env = HEADER.structs["choir_env"]()
    C.env_init(ctypes.byref(env))
    data = np.load(path, allow_pickle=False)
    job = json.loads(str(data["job"]))
    x, y = data["x"][:, env.rank], data["y"][:, env.rank]
    with choir.Scope(C.run_open(ctypes.byref(env), 1)) as run:
        parts = [C.nn_linear(run, WIDTH, 8)]
        parts += [C.nn_batch_norm(run, 8)] if job["norm"] else []
        parts += [C.nn_tanh(run), C.nn_linear(run, 8, OUT)]
        bare = choir.Module(C.nn_sequential_n(run, [choir.Module(p) for p in parts], len(parts)))
        for name, t in bare.tensors(buffers=False).items():
            t.write(data["0." + name])
        wire = {"wire": E.CHOIR_BF16} if job.get("bf16") else {}
        if job["strategy"] == "diloco":
            opts = choir.options(C.diloco_defaults, **job["opts"], **wire)
            net = C.diloco(run, bare, env.group, opts)
        elif job["strategy"] == "local_sgd":
            net = C.local_sgd(run, bare, env.group, choir.options(C.local_sgd_defaults, **job["opts"]))
        else:
            synced = choir.Module(C.sync_batch_norm(run, bare, env.group))
            net = C.ddp(run, synced, env.group, C.ddp_defaults())
        net = choir.Module(net)
        if job["inner"] == "adamw":
            optim = C.adamw(run, net, choir.options(C.adamw_defaults, lr=0.01))
        else:
            optim = C.sgd(run, net, choir.options(C.sgd_defaults, lr=0.1, momentum=0.9))
        found = {}
        for step in range(STEPS):
            with choir.Scope(C.step_open(run, step)) as s:
                loss = C.mse_loss(net(s.tensor(x[step])), s.tensor(y[step]))
                C.backward(loss)
                C.optim_step(optim)
                found["%d.loss" % step] = loss.numpy()
            for name, t in bare.tensors().items():
                found["%d.%s" % (step, name)] = t.numpy()
        np.savez("%s.%d.npz" % (path, env.rank), **found)
    C.env_free(ctypes.byref(env))


if len(sys.argv) > 2 and sys.argv[1] == "--rank":
    rank_main(sys.argv[2])
    sys.exit(0)

from check import LAYER, LOSSES, agree, case, main  # first: it may skip
import torch
import torch.nn as nn


def network(norm):
    return nn.Sequential(nn.Linear(WIDTH, 8), *([nn.BatchNorm1d(8)] if norm else []), nn.Tanh(),
                         nn.Linear(8, OUT))


def run_ranks(world, theirs, x, y, **job):
    """Results of the ranks: a list of .npz, by rank."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "job.npz")
        weights = {"0." + k: v.detach().numpy() for k, v in theirs.named_parameters()}
        np.savez(path, job=json.dumps(job), x=x, y=y, **weights)
        ranks = []
        for rank in range(world):
            env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank),
                       LOCAL_WORLD_SIZE=str(world), CHOIR_JOB=os.path.basename(folder),
                       CHOIR_CPU_DEVICES=str(world))
            ranks.append(subprocess.Popen([sys.executable, __file__, "--rank", path], env=env))
        statuses = [r.wait(120) for r in ranks]
        if any(statuses):
            raise AssertionError("ranks exited with %s" % statuses)
        return [dict(np.load("%s.%d.npz" % (path, rank))) for rank in range(world)]


def batches(world, rows=5):
    return (torch.randn(STEPS, world, rows, WIDTH).numpy(), torch.randn(STEPS, world, rows, OUT).numpy())


def inner_of(kind, net):
    if kind == "adamw":
        return torch.optim.AdamW(net.parameters(), lr=0.01)
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def mean(tensors, bf16):
    """Over ranks; in bf16 each rank's is rounded, then the mean."""
    stacked = torch.stack([t.bfloat16().float() if bf16 else t for t in tensors])
    average = stacked.mean(0)
    return average.bfloat16().float() if bf16 else average


def reference(world, outer, x, y, inner, every, meet):
    """Weights of the workers after each step; meet(outer, workers) runs after every few steps."""
    workers = [network(False) for _ in range(world)]
    for w in workers:
        w.load_state_dict(outer.state_dict())
    optims = [inner_of(inner, w) for w in workers]
    after = []
    for step in range(STEPS):
        for rank, (w, optim) in enumerate(zip(workers, optims)):
            optim.zero_grad()
            nn.functional.mse_loss(w(torch.from_numpy(x[step, rank])),
                                   torch.from_numpy(y[step, rank])).backward()
            optim.step()
        if (step + 1) % every == 0:
            meet(outer, workers)
        after.append([{k: v.clone() for k, v in w.state_dict().items()} for w in workers])
    return after


def compare(ours, after, bound):
    for step in range(STEPS):
        for rank, found in enumerate(ours):
            for name, value in after[step][rank].items():
                agree("step %d" % step, found["%d.%s" % (step, name)], value, bound)


def diloco(world, inner, every, bound, bf16=False, outer_lr=0.7, momentum=0.9, nesterov=True):
    theirs = network(False)
    x, y = batches(world)
    opts = dict(every=every, outer_lr=outer_lr, momentum=momentum, nesterov=nesterov)
    ours = run_ranks(world, theirs, x, y, strategy="diloco", inner=inner, norm=False, opts=opts, bf16=bf16)
    sgd = torch.optim.SGD(theirs.parameters(), lr=outer_lr, momentum=momentum, nesterov=nesterov)

    def meet(outer, workers):
        with torch.no_grad():
            for p, *copies in zip(outer.parameters(), *[w.parameters() for w in workers]):
                p.grad = mean([p - c for c in copies], bf16)
        sgd.step()
        for w in workers:
            with torch.no_grad():
                for p, c in zip(outer.parameters(), w.parameters()):
                    c.copy_(p)

    compare(ours, reference(world, theirs, x, y, inner, every, meet), bound)


@case
def diloco_f32():
    diloco(2, "adamw", 3, LAYER)
    diloco(4, "sgd", 4, LAYER)
    diloco(3, "adamw", 5, LAYER, outer_lr=0.5, nesterov=False)
    diloco(2, "sgd", 1, LAYER, outer_lr=1, momentum=0, nesterov=False)


@case
def diloco_bf16():
    """A difference halfway between two bf16 values may round to either, 1/256 of it apart."""
    diloco(3, "adamw", 4, 1e-3, bf16=True)


@case
def local_sgd():
    def meet(outer, workers):
        with torch.no_grad():
            for copies in zip(*[w.parameters() for w in workers]):
                average = mean(copies, False)
                for c in copies:
                    c.copy_(average)

    for world, inner, every in (2, "adamw", 3), (3, "sgd", 4), (4, "sgd", 1):
        theirs = network(False)
        x, y = batches(world)
        ours = run_ranks(world, theirs, x, y, strategy="local_sgd", inner=inner, norm=False,
                         opts=dict(every=every))
        compare(ours, reference(world, theirs, x, y, inner, every, meet), LAYER)


@case
def sync_batch_norm():
    """PyTorch's SyncBatchNorm is a batch norm over the batches of all ranks."""
    for world in 2, 4:
        theirs = network(True)
        x, y = batches(world)
        ours = run_ranks(world, theirs, x, y, strategy="ddp", inner="sgd", norm=True)
        optim = inner_of("sgd", theirs)
        for step in range(STEPS):
            optim.zero_grad()
            loss = nn.functional.mse_loss(theirs(torch.from_numpy(x[step].reshape(-1, WIDTH))),
                                          torch.from_numpy(y[step].reshape(-1, OUT)))
            loss.backward()
            optim.step()
            agree("losses", np.mean([found["%d.loss" % step] for found in ours]), loss, LOSSES)
        for name, value in theirs.state_dict().items():
            if name != "0.bias":  # its gradient is rounding alone
                agree(name, ours[0]["%d.%s" % (STEPS - 1, name)], value, LOSSES)


main()
