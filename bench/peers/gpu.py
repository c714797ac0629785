#!/usr/bin/env python3
"""Training steps on a GPU in PyTorch as fast as it goes: what bench/gpu.c does, beside it.

  gpu.py [--device cuda] [--tiny] [--seconds S] [WORKLOAD=BATCH[,BATCH...]]...

torch.compile over model and loss (for toy also mode="reduce-overhead", its CUDA graphs), bf16
autocast but for toy, fused AdamW, scaled-dot-product attention, channels_last. A line of JSON for
the bf16 matrix rate, then one a batch size, with bench/gpu.c's keys. A time is that of a run of
steps of 0.2 s between two CUDA events, divided by their number; the median of several is told.
The loss is that after the first LOSS_AFTER steps.
"""
import argparse, json, statistics, sys, time
import torch, torch.nn as nn, torch.nn.functional as F

LOSS_AFTER = 5  # WARM_UP of bench/gpu.c
FULL = dict(gpt2="64,32,16", resnet50="256", bert="64", toy="20")
TINY = dict(gpt2="2", resnet50="2", bert="2", toy="20")


class Block(nn.Module):
    """A transformer's block: norms before its halves (GPT-2), or after them (BERT)."""

    def __init__(self, width, heads, causal, eps):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(b, t, c))

    def feed(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh" if self.causal else "none"))

    def forward(self, x):
        if self.causal:
            x = x + self.attend(self.norm1(x))
            return x + self.feed(self.norm2(x))
        x = self.norm1(x + self.attend(x))
        return self.norm2(x + self.feed(x))


class Gpt2(nn.Module):
    def __init__(self, layers, heads, width, context, vocab):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, heads, True, 1e-5) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        return F.linear(self.norm(self.blocks(x)), self.wte.weight)


class Bert(nn.Module):
    def __init__(self, layers, heads, width, context, vocab):
        super().__init__()
        self.words, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.wpe_types = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, 1e-12)
        self.blocks = nn.Sequential(*[Block(width, heads, False, 1e-12) for _ in range(layers)])
        self.dense, self.dense_norm = nn.Linear(width, width), nn.LayerNorm(width, 1e-12)
        self.bias = nn.Parameter(torch.zeros(vocab))

    def forward(self, ids):
        where = self.wpe(torch.arange(ids.shape[1], device=ids.device)) + self.wpe_types.weight[0]
        x = self.blocks(self.norm(self.words(ids) + where))
        return F.linear(self.dense_norm(F.gelu(self.dense(x))), self.words.weight, self.bias)


def token_loss(out, y):
    return F.cross_entropy(out.view(-1, out.shape[-1]), y.view(-1))


def workload(name, batch, tiny, device):
    """model, x, y, loss, items a step, model FLOPs an item (0: not counted)"""
    if name in ("gpt2", "gpt2-50257", "bert"):
        gpt2 = name != "bert"
        layers, heads, width = 12, 12, 768
        vocab = {"gpt2": 50304, "gpt2-50257": 50257, "bert": 30528}[name]
        context = 1024 if gpt2 else 512
        if tiny:
            layers, heads, width, context = 2, 2, 32, 16
            vocab = 515 if name == "gpt2-50257" else 64
        model = (Gpt2 if gpt2 else Bert)(layers, heads, width, context, vocab)
        for p in model.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)
        n = sum(p.numel() for k, p in model.named_parameters() if not k.startswith("wpe"))
        x, y = (torch.randint(vocab, (batch, context), device=device) for _ in range(2))
        flops = 6 * n + (6 if gpt2 else 12) * layers * width * context
        return model, x, y, token_loss, batch * context, flops
    if name == "resnet50":
        import torchvision
        size, classes = (32, 10) if tiny else (224, 1000)
        model = torchvision.models.resnet50(num_classes=classes)
        model = model.to(memory_format=torch.channels_last)
        x = torch.randn(batch, 3, size, size, device=device).to(memory_format=torch.channels_last)
        return (model, x, torch.randint(classes, (batch,), device=device), F.cross_entropy, batch,
                0 if tiny else 3 * 2 * 4.089e9)
    if name == "toy":
        model = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5))
        x, y = (torch.randn(batch, width, device=device) for width in (10, 5))
        return model, x, y, F.mse_loss, batch, 0
    sys.exit(f"there is no workload '{name}'")


class Clock:
    """Seconds of fn() n times: CUDA events on a GPU."""

    def __init__(self, device):
        self.gpu = device.startswith("cuda")

    def __call__(self, fn, n):
        if not self.gpu:
            start = time.perf_counter()
            for _ in range(n):
                fn()
            return (time.perf_counter() - start) / n
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(n):
            fn()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / n


def matrix_rate(args, clock):
    n = 64 if args.tiny else 8192
    a, b = (torch.randn(n, n, device=args.device).bfloat16() for _ in range(2))
    c = torch.empty_like(a)
    clock(lambda: torch.mm(a, b, out=c), 30)
    seconds = statistics.median(clock(lambda: torch.mm(a, b, out=c), 10) for _ in range(15))
    return 2e-12 * n**3 / seconds


def measure(args, clock, name, batch, mode):
    torch.manual_seed(0)
    gpu = clock.gpu
    if gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    model, x, y, loss_of, items, flops = workload(name, batch, args.tiny, args.device)
    model = model.to(args.device)
    optim = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    forward = lambda x, y: loss_of(model(x), y)
    if not args.eager:
        forward = torch.compile(forward, mode=mode, dynamic=False)

    def step():
        optim.zero_grad(set_to_none=True)
        with torch.autocast("cuda" if gpu else "cpu", torch.bfloat16, enabled=name != "toy"):
            loss = forward(x, y)
        loss.backward()
        optim.step()
        return loss

    clock(step, LOSS_AFTER)
    loss = step().item()  # before its own update
    once = clock(step, 1)
    together = 2 if args.tiny else max(1, min(2000, int(0.2 / once)))
    times, began = [], time.perf_counter()
    while len(times) < 15 and (len(times) < 3 or time.perf_counter() - began < args.seconds):
        times.append(clock(step, together))
    seconds = statistics.median(times)
    mib = 2**20
    return dict(workload=name, batch=batch, mode=mode or "default", step_ms=round(1e3 * seconds, 5),
                items_per_s=round(items / seconds, 1),
                tflops=round(items / seconds * flops * 1e-12, 3),
                peak_mib=round(torch.cuda.max_memory_allocated() / mib, 1) if gpu else 0,
                reserved_mib=round(torch.cuda.max_memory_reserved() / mib, 1) if gpu else 0,
                parameters=sum(p.numel() for p in model.parameters()), loss=round(loss, 5))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("workloads", nargs="*")
    args = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    clock = Clock(args.device)
    rate = dict(matmul_tflops=round(matrix_rate(args, clock), 3), torch=torch.__version__)
    print(json.dumps(rate), flush=True)
    for text in args.workloads or (TINY if args.tiny else FULL):
        name, _, batches = text.partition("=")
        for batch in (batches or (TINY if args.tiny else FULL).get(name, "1")).split(","):
            for mode in (None, "reduce-overhead") if name == "toy" and clock.gpu else (None,):
                try:
                    print(json.dumps(measure(args, clock, name, int(batch), mode)), flush=True)
                except Exception as e:  # out of memory, a model that does not compile: the next
                    why = str(e).splitlines()[0]
                    print(f"{name}, batch {batch}: {why}", file=sys.stderr, flush=True)
                    torch._dynamo.reset()


if __name__ == "__main__":
    main()
