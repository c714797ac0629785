#!/usr/bin/env python3
"""ResNet-50 on one core, and on two cores by PyTorch's own pipelines and DDP, a step in ms.

  torch_pipeline.py [--image 64] [--batch 120] [--micro 6] [--rounds 5]

Two processes with a core each over Gloo, torch.distributed.pipelining, the model cut where the
tutorial on model parallelism cuts it (after layer2); f32, SGD, cross entropy. A line a program.
"""
import argparse, os, statistics, time
import torch, torch.nn as nn, torch.distributed as dist, torch.multiprocessing as mp


def halves():
    from torchvision.models import resnet50
    torch.manual_seed(0)
    r = resnet50(weights=None, num_classes=1000)
    return (nn.Sequential(r.conv1, r.bn1, r.relu, r.maxpool, r.layer1, r.layer2),
            nn.Sequential(r.layer3, r.layer4, r.avgpool, nn.Flatten(), r.fc))


def timed(step, rounds, before=lambda: None):
    times = []
    for i in range(rounds + 2):
        before()
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times[2:])


def single(args, x, y):
    net = nn.Sequential(*halves())
    optim = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step():
        optim.zero_grad()
        for a, b in zip(x.chunk(args.micro), y.chunk(args.micro)):
            (nn.functional.cross_entropy(net(a), b) / args.micro).backward()
        optim.step()
    return timed(step, args.rounds)


def rank_main(rank, args):
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(args.port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe, Schedule1F1B
    x = torch.randn(args.batch, 3, args.image, args.image)
    y = torch.randint(1000, (args.batch,))
    for name, kind in (("gpipe", ScheduleGPipe), ("1f1b", Schedule1F1B)):
        try:
            part = halves()[rank]
            stage = PipelineStage(part, rank, 2, torch.device("cpu"))
            plan = kind(stage, n_microbatches=args.micro, loss_fn=nn.functional.cross_entropy)
            optim = torch.optim.SGD(part.parameters(), lr=1e-3)

            def step():
                optim.zero_grad()
                plan.step(x) if rank == 0 else plan.step(target=y, losses=[])
                optim.step()
                dist.barrier()
            ms = timed(step, args.rounds, dist.barrier)
            if rank == 0:
                print(f"PyTorch {name:12s} {ms:9.1f}  {args.single / ms:.3f}", flush=True)
        except Exception as e:
            if rank == 0:
                print(f"PyTorch {name}: {str(e).splitlines()[0]}", flush=True)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(*halves()))
    optim = torch.optim.SGD(net.parameters(), lr=1e-3)
    mine = slice(rank * args.batch // 2, (rank + 1) * args.batch // 2)

    def step():
        optim.zero_grad()
        nn.functional.cross_entropy(net(x[mine]), y[mine]).backward()
        optim.step()
        dist.barrier()
    ms = timed(step, args.rounds, dist.barrier)
    if rank == 0:
        print(f"PyTorch {'ddp':12s} {ms:9.1f}  {args.single / ms:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name, value in (("image", 64), ("batch", 120), ("micro", 6), ("rounds", 5), ("port", 29871)):
        parser.add_argument("--" + name, type=int, default=value)
    args = parser.parse_args()
    torch.set_num_threads(1)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[0]})
    args.single = single(args, torch.randn(args.batch, 3, args.image, args.image),
                         torch.randint(1000, (args.batch,)))
    print(f"PyTorch {'single':12s} {args.single:9.1f}  1", flush=True)
    os.sched_setaffinity(0, cores)
    mp.spawn(rank_main, (args,), nprocs=2)
