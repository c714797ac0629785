"""Times torch.mm at the shapes of `choir_bench_products --list` (on stdin), on one core: name and
the lower quartile of the processor time of a call in microseconds."""
import sys
import time

import torch

ROUNDS, FEWEST, ENOUGH = 25, 3, 0.2
DTYPE = torch.bfloat16 if "bf16" in sys.argv else torch.float32
torch.set_num_threads(1)


def operand(rows, columns, turned):
    x = torch.rand(columns, rows) if turned else torch.rand(rows, columns)
    x = (x - 0.5).to(DTYPE)
    return x.t() if turned else x


def time_of(a, b, c, calls):
    start = time.thread_time()
    for _ in range(calls):
        torch.mm(a, b, out=c)
    return (time.thread_time() - start) / calls


for line in sys.stdin:
    name, m, n, k, layout = line.split()
    m, n, k = int(m), int(n), int(k)
    a, b = operand(m, k, layout[0] == "T"), operand(k, n, layout[1] == "T")
    c = torch.empty(m, n, dtype=DTYPE)
    time_of(a, b, c, 1)
    once = time_of(a, b, c, 1)
    calls = int(5e-4 / once) + 1 if once < 5e-4 else 1
    times, start = [], time.thread_time()
    while len(times) < ROUNDS and (
        len(times) < FEWEST or time.thread_time() - start < ENOUGH
    ):
        times.append(time_of(a, b, c, calls))
    times.sort()
    print(name, f"{times[len(times) // 4] * 1e6:.1f}", flush=True)
