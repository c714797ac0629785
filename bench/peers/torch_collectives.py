#!/usr/bin/env python3
"""Gloo's collectives over sizes, as `choir bench COLLECTIVE --json` measures Choir's.

torch_collectives.py COLLECTIVE RANKS [MIN [MAX [FACTOR]]]    (bytes)

f32. Sizes are nccl-tests': of an all_gather or an all_to_all, all ranks' parts together. The time of
a sample is the slowest rank's, and that of a size the median of its samples."""
import json, os, sys, tempfile, time
import torch, torch.distributed as dist, torch.multiprocessing as mp

CALLS = {
    "all_reduce": lambda a, b: dist.all_reduce(b),
    "reduce": lambda a, b: dist.reduce(b, 0),
    "broadcast": lambda a, b: dist.broadcast(b, 0),
    "all_gather": lambda a, b: dist.all_gather_into_tensor(b, a[: len(a) // dist.get_world_size()]),
    "all_to_all": lambda a, b: dist.all_to_all_single(b, a),
}


def sample(call, calls):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    took = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return took.item()


def measure(call):
    first = sample(call, 4) / 4
    calls = 1 if first > 50e-6 else int(100e-6 / first) + 1
    samples = sorted(sample(call, calls) / calls for _ in range(11 if first > 20e-3 else 61))
    return samples[len(samples) // 2]


def wrong_after(what, rank, ranks, count):
    """Elements of an all_to_all that are wrong; the others are here for their times."""
    if what != "all_to_all":
        return 0
    part = count // ranks
    given = torch.arange(count, dtype=torch.float32) % 1000 + 1000 * rank
    got, want = torch.zeros(count), torch.arange(count, dtype=torch.float32)
    CALLS[what](given, got)
    want = (torch.arange(count) % part + rank * part) % 1000 + torch.arange(count) // part * 1000
    return int((got != want).sum())


def work(rank, what, ranks, low, high, factor, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks)
    size = low
    while size <= high:
        count = size // 4
        a, b = torch.ones(count), torch.zeros(count)
        seconds, wrong = measure(lambda: CALLS[what](a, b)), wrong_after(what, rank, ranks, count)
        if rank == 0:
            print(json.dumps(dict(collective=what, backend="gloo", algorithm="native", ranks=ranks,
                                  bytes=size, time_us=round(seconds * 1e6, 3), wrong=wrong)), flush=True)
        size *= factor
    dist.destroy_process_group()


if __name__ == "__main__":
    what, ranks = sys.argv[1], int(sys.argv[2])
    low, high, factor = (list(map(int, sys.argv[3:6])) + [1 << 10, 64 << 20, 4][len(sys.argv) - 3:])[:3]
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, args=(what, ranks, low, high, factor, os.path.join(folder, "store")), nprocs=ranks)
