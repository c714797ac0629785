#!/usr/bin/env python3
"""PyTorch's scaled_dot_product_attention in the shapes of bench/attention.c, read from its lines on
standard input: each is printed again with PyTorch's GFLOP/s forward and backward, on one thread."""
import sys, time
import torch
import torch.nn.functional as F

torch.set_num_threads(1)


def seconds(call):
    times, end = [], time.perf_counter() + 0.4
    while len(times) < 3 or (len(times) < 200 and time.perf_counter() < end):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


for line in sys.stdin:
    h, t, d = map(int, line.split()[:3])
    causal = line.split()[3] == "causal"
    qkv = torch.rand(1, t, 3, h, d).sub_(0.5).requires_grad_()
    gy = torch.rand(1, t, h, d).transpose(1, 2)

    def forward():
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def both():
        qkv.grad = None
        forward().backward(gy)

    pairs = h * t * ((t + 1) / 2 if causal else t)
    both()
    alone = seconds(forward)
    back = seconds(both) - alone
    print(line.strip(), f"{4e-9 * pairs * d / alone:.1f} {10e-9 * pairs * d / back:.1f}", flush=True)
