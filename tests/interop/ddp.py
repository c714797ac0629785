"""Corner cases of DDP beside PyTorch's. Two processes are ranks of both, over gloo and over Choir, with
the same weights and batches. Accumulation by no_sync, uneven inputs, unused parameters, hooks."""
import contextlib
import ctypes
import os
import random
import signal
import sys
import tempfile
import traceback

from check import C, Missing, agree, case, main, same  # first: it skips without PyTorch
import choir
import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

WORLD, WIDTH, DEEP = 2, 16, 32
RANKS = {}  # name -> the function of each rank


def start_rank(name, rank, folder, job):
    """A child that has already imported PyTorch, since the import takes longer than a case."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        signal.alarm(120)  # no rank waits forever
        said = os.open("%s/said-%d" % (folder, rank), os.O_WRONLY | os.O_CREAT)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_RANK=str(rank),
                          LOCAL_WORLD_SIZE=str(WORLD), CHOIR_JOB=job)
        be_a_rank(name, folder)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def ranks(function):
    """A case whose body runs in WORLD processes."""
    RANKS[function.__name__] = function

    def launch():
        if function.__name__.startswith("bf16") and int(torch.__version__.split(".")[0]) < 2:
            raise Missing("PyTorch %s rounds to bf16 over NCCL alone" % torch.__version__)
        with tempfile.TemporaryDirectory() as folder:
            job = "interop-%d-%d" % (os.getpid(), random.getrandbits(30))
            ranks = [start_rank(function.__name__, r, folder, job) for r in range(WORLD)]
            ended = [os.waitpid(rank, 0)[1] for rank in ranks]
            wrong = [r for r in range(WORLD) if ended[r]]
            if wrong:
                with open("%s/said-%d" % (folder, wrong[0])) as said:
                    raise AssertionError("rank %d: %s" % (wrong[0], said.read().strip()))

    launch.__name__ = function.__name__
    return case(launch)


class Run(choir.Run):
    """A run of this rank."""

    def __init__(self):
        self.env = choir.HEADER.structs["choir_env"]()
        C.env_init(ctypes.addressof(self.env))
        choir.Scope.__init__(self, C.run_open(ctypes.addressof(self.env), 1))
        self.steps, self.kept = 0, []

    def __exit__(self, *error):
        super().__exit__(*error)
        C.env_free(ctypes.addressof(self.env))


class Pair:
    """A network of two linear layers, ours and PyTorch's, each in its DDP, with SGD."""

    def __init__(self, run, lr=0.1, momentum=0.9, **options):
        torch.manual_seed(3)
        self.run = run
        self.bare = nn.Sequential(nn.Linear(WIDTH, DEEP), nn.Tanh(), nn.Linear(DEEP, 8))
        parts = [choir.Module(C.nn_linear(run, WIDTH, DEEP)), choir.Module(C.nn_tanh(run)),
                 choir.Module(C.nn_linear(run, DEEP, 8))]
        self.parts = parts
        self.inner = run.module(C.nn_sequential_n, parts, 3)
        for name, t in self.inner.tensors().items():
            t.write(self.bare.state_dict()[name].numpy())
        self.theirs = DistributedDataParallel(self.bare, **options)
        opts = C.ddp_defaults()
        opts.find_unused_parameters = options.get("find_unused_parameters", False)
        self.ours = choir.Module(C.ddp(run, self.inner, run.env.group, opts))
        self.sgd = torch.optim.SGD(self.bare.parameters(), lr=lr, momentum=momentum)
        self.our_sgd = C.sgd(run, self.ours, choir.options(C.sgd_defaults, lr=lr, momentum=momentum))

    def batch(self, number):
        return torch.randn((4, WIDTH), generator=torch.Generator().manual_seed(
            1000 * dist.get_rank() + number))

    def their_backward(self, number, scale=1):
        y = self.theirs(self.batch(number))
        ((y * y).mean() * scale).backward()

    def our_backward(self, step, number):
        y = self.ours(step.tensor(self.batch(number).numpy()))
        C.backward(C.mean(C.mul(y, y)))

    def their_step(self):
        self.sgd.step()
        self.sgd.zero_grad(set_to_none=True)

    def agree(self, what, bound=1e-5):
        for name, p in self.bare.named_parameters():
            agree("%s: %s" % (what, name), self.inner.tensors()[name], p, bound)


@ranks
def no_sync():
    """Their loss is divided by the number of backwards; ours is the mean of them."""
    with Run() as run:
        pair = Pair(run)
        for n in range(4):
            with pair.theirs.no_sync():
                for i in range(2):
                    pair.their_backward(3 * n + i, 1 / 3)
            pair.their_backward(3 * n + 2, 1 / 3)
            pair.their_step()
            with run.step() as step:
                for i in range(3):
                    C.ddp_no_sync(pair.ours, i < 2)
                    pair.our_backward(step, 3 * n + i)
                C.optim_step(pair.our_sgd)
            pair.agree("weights")


def uneven(by_world, batches):
    with Run() as run:
        pair = Pair(run, momentum=0)
        mine = batches[dist.get_rank()]
        with Join([pair.theirs], divide_by_initial_world_size=by_world):
            for n in range(mine):
                pair.their_backward(n)
                pair.their_step()
        C.ddp_join_begin(pair.ours, choir.options(C.ddp_join_defaults, divide_by_active=not by_world))
        for n in range(mine):
            with run.step() as step:
                pair.our_backward(step, n)
                C.optim_step(pair.our_sgd)
        C.ddp_join_end(pair.ours)
        pair.agree("weights")


@ranks
def join_1_and_2():
    uneven(True, (1, 2))


@ranks
def join_5_and_2():
    uneven(True, (5, 2))


@ranks
def join_divided_by_active():
    uneven(False, (1, 4))


@ranks
def unused():
    """The last layer has a gradient on one rank, on none, on both: absent is not zero, for SGD with
    momentum would go on. Only the network's first part runs where the last is left out."""
    class Cut(nn.Module):
        def __init__(self, whole):
            super().__init__()
            self.whole, self.cut = whole, False

        def forward(self, x):
            return self.whole[1](self.whole[0](x)) if self.cut else self.whole(x)

    with Run() as run:
        pair = Pair(run, find_unused_parameters=True)
        cut = Cut(pair.bare)
        pair.theirs = DistributedDataParallel(cut, find_unused_parameters=True)
        for n, users in enumerate(((0, 1), (1,), (), (0,), (), (0, 1))):
            cut.cut = dist.get_rank() not in users
            pair.their_backward(n)
            absent = pair.bare[2].weight.grad is None
            with run.step() as step:
                if cut.cut:
                    y = pair.parts[1](pair.parts[0](step.tensor(pair.batch(n).numpy())))
                    C.backward(C.mean(C.mul(y, y)))
                else:
                    pair.our_backward(step, n)
                ours = C.grad(pair.inner.tensors()["2.weight"])
                assert (ours is None) == absent == (not users), (n, absent)
                C.optim_step(pair.our_sgd)
            pair.their_step()
            pair.agree("weights")


# --- hooks ---


def hook_address(name):
    return ctypes.cast(getattr(choir.LIB.library, "choir_ddp_" + name), ctypes.c_void_p)


def gradients_agree(pair, number, bound):
    pair.their_backward(number)
    with pair.run.step() as step:
        pair.our_backward(step, number)
        for name, p in pair.bare.named_parameters():
            agree(name, C.grad(pair.inner.tensors()[name]), p.grad, bound)
        C.optim_step(pair.our_sgd)
    pair.their_step()


def halved(theirs, ours, bound):
    with Run() as run:
        pair = Pair(run, lr=0)
        pair.theirs.register_comm_hook(None, theirs)
        C.ddp_set_hook(pair.ours, hook_address(ours), None)
        for n in range(4):
            gradients_agree(pair, n, bound)


@ranks
def bf16_compress():
    halved(default_hooks.bf16_compress_hook, "bf16_compress", 2 ** -8)


@ranks
def f16_compress():
    halved(default_hooks.fp16_compress_hook, "f16_compress", 2 ** -10)


def exact_halves(theirs, ours):
    """Gradients that are exact in both (small multiples of powers of two) are equal bit for bit."""
    with Run() as run:
        net = nn.Linear(WIDTH, 4, bias=False)
        mine = choir.Module(C.nn_linear_with(run, WIDTH, 4, False, C.init_constant(0.0)))
        whole = run.module(C.nn_sequential_n, [mine], 1)
        theirs_ddp = DistributedDataParallel(net)
        theirs_ddp.register_comm_hook(None, theirs)
        our_ddp = choir.Module(C.ddp(run, whole, run.env.group, C.ddp_defaults()))
        C.ddp_set_hook(our_ddp, hook_address(ours), None)
        rng = np.random.default_rng(dist.get_rank())
        x = (rng.integers(-4000, 4000, (1, WIDTH)) / 1024).astype("f4")
        theirs_ddp(torch.from_numpy(x)).sum().backward()
        with run.step() as step:
            C.backward(C.sum(our_ddp(step.tensor(x))))
            same("gradient", C.grad(whole.tensors()["0.weight"]).numpy(), net.weight.grad.numpy())


@ranks
def bf16_bits():
    exact_halves(default_hooks.bf16_compress_hook, "bf16_compress")


@ranks
def f16_bits():
    exact_halves(default_hooks.fp16_compress_hook, "f16_compress")


M64 = 2 ** 64 - 1


def philox(key, hi, lo):
    k, c = [key & 0xFFFFFFFF, key >> 32], [lo & 0xFFFFFFFF, lo >> 32, hi & 0xFFFFFFFF, hi >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def mix(key, value):
    z = (key + 0x9E3779B97F4A7C15 * (value + 1)) & M64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
    return z ^ (z >> 31)


def first_q(name, m, rank, drawn):
    """(m, rank): Choir's random start, in f64 as it is computed there."""
    h = 0xCBF29CE484222325
    for byte in bytes(8) + name.encode():  # seed 0
        h = ((h ^ byte) * 0x100000001B3) & M64
    key = mix(mix(h, 0), drawn)
    q = np.zeros((m, rank))
    for k in range(rank):
        for i in range(m):
            bits = philox(key, k, i)
            u, v = 1 - (bits[0] >> 8) * 2.0 ** -24, (bits[1] >> 8) * 2.0 ** -24
            q[i, k] = np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)
    return q.astype("f4")


def low_rank(rank, **options):
    """Both begin with our Q: the same numbers step by step, error feedback and all."""
    with Run() as run:
        pair = Pair(run, lr=0.05)
        state = powerSGD_hook.PowerSGDState(
            process_group=None, matrix_approximation_rank=rank, start_powerSGD_iter=2,
            min_compression_rate=1.0, **options)
        pair.theirs.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        C.ddp_powersgd(pair.ours, choir.options(
            C.powersgd_defaults, rank=rank, start_step=2, min_rate=1.0,
            error_feedback=options.get("use_error_feedback", True),
            warm_start=options.get("warm_start", True)))
        names = {(1, WIDTH): "0.weight", (1, DEEP): "2.weight"}
        drawn = {}

        def randn(*shape, **_):  # (1, m, rank)
            name = names[shape[:2]]
            drawn[name] = drawn.get(name, 0) + 1
            return torch.from_numpy(first_q(name, shape[1], shape[2], drawn[name])[None])

        true, torch.randn = torch.randn, randn
        try:
            for n in range(8):
                pair.batch = lambda number: torch.empty((4, WIDTH)).normal_(
                    generator=torch.Generator().manual_seed(1000 * dist.get_rank() + number))
                gradients_agree(pair, n, 2e-4)
        finally:
            torch.randn = true
        assert len(drawn) == 2


@ranks
def powersgd_rank_1():
    low_rank(1)


@ranks
def powersgd_rank_3():
    low_rank(3)


@ranks
def powersgd_without_feedback():
    low_rank(2, use_error_feedback=False)


@ranks
def powersgd_without_warm_start():
    low_rank(2, warm_start=False)


def be_a_rank(name, folder):
    dist.init_process_group("gloo", init_method="file://%s/meet" % folder, rank=int(os.environ["RANK"]),
                            world_size=WORLD)
    with contextlib.ExitStack() as stack:
        stack.callback(dist.destroy_process_group)
        RANKS[name]()


if __name__ == "__main__":
    main()
