"""`choir train --strategy tp` beside PyTorch: the losses and weights of ten steps of a model on one device, and
losses of torch.distributed's parallelize_module on as many ranks."""
import importlib.util
import os
import tempfile

import need  # first: it skips without PyTorch
import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

import command
import networks
from check import CASES, LOSSES, STEPS, Missing, agree, case, main
from models import adamw, adamw_options, image_model, language_loss, language_model

CASES.clear()  # models.py runs its own
RANKS = 2
TP = "--strategy", "tp", "--nproc", str(RANKS)


def one_device(model, context, network, null=()):
    language_model(model, context, network, null=null, options=TP)


@case
def gpt2():
    one_device("gpt2:layers=2,heads=4,width=32,context=16,dropout=0", 16,
               lambda vocab: networks.Gpt2(2, 4, 32, 16, vocab), null=("c_attn.bias",))


@case
def llama():
    one_device("llama:layers=2,heads=4,kv_heads=2,width=32,hidden=56,context=16", 16,
               lambda vocab: networks.Llama(2, 4, 2, 32, 56, vocab))


@case
def mistral_with_one_key_head():
    one_device("mistral:layers=2,heads=4,kv_heads=1,width=32,hidden=48,context=24,window=5,tied=1", 24,
               lambda vocab: networks.Llama(2, 4, 1, 32, 48, vocab, window=5, tied=True))


@case
def mlp():
    image_model("mlp:hidden=48", 12, nn.Sequential(nn.Flatten(), *networks.mlp(144, 48, 10)), adamw,
                *adamw_options(), *TP)


# --- parallelize_module ---------------------------------------------------------------------------


def rank_of_theirs(rank, folder, network, plan, batches, loss, results):
    """Its losses, from rank 0."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + os.path.join(folder, "meet"), rank=rank,
                            world_size=RANKS)
    network = parallelize_module(network, init_device_mesh("cpu", (RANKS,)), plan())
    optim, losses = adamw(network), []
    for x, y in batches:
        optim.zero_grad()
        value = loss(network(x), y)
        value.backward()
        optim.step()
        losses.append(value.item())
    if rank == 0:
        results.put(losses)
    dist.destroy_process_group()


def theirs(network, plan, batches, loss):
    """Their losses on RANKS processes."""
    context = torch.multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        results = context.SimpleQueue()
        ranks = [context.Process(target=rank_of_theirs,
                                 args=(r, folder, network, plan, batches, loss, results))
                 for r in range(RANKS)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(100)
        if any(process.exitcode for process in ranks):
            raise AssertionError("a rank of PyTorch's failed")
        return results.get()


def beside_theirs(model, data, network, plan, loss):
    path, sample, length = data
    with tempfile.TemporaryDirectory() as folder:
        start = command.initial_weights(model, path, folder)
        with torch.no_grad():
            for name, p in network.named_parameters():
                p.copy_(torch.from_numpy(start[name].copy()))
        ours, _ = command.run(model, path, folder, "--steps", str(STEPS), *adamw_options(), *TP)
    order = command.order(length)
    batches = [[torch.stack(z) for z in zip(*[sample(i) for i in next(order)])] for _ in range(STEPS)]
    agree("ten losses of parallelize_module", np.array(ours), np.array(
        theirs(network, plan, batches, loss)), LOSSES)


def need_parallelize_module():
    if not importlib.util.find_spec("torch.distributed.tensor"):
        raise Missing("PyTorch %s has no torch.distributed.tensor" % torch.__version__)


@case
def parallelize_mlp():
    need_parallelize_module()
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    with tempfile.TemporaryDirectory() as folder:
        beside_theirs("mlp:hidden=48", command.image_data(folder, 12),
                      nn.Sequential(nn.Flatten(), *networks.mlp(144, 48, 10)),
                      lambda: {"1": ColwiseParallel(), "3": RowwiseParallel()}, F.cross_entropy)


@case
def parallelize_llama():
    need_parallelize_module()
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    def plan():
        return {"model.embed_tokens": RowwiseParallel(input_layouts=Replicate()),
                "model.layers.*.mlp.gate_proj": ColwiseParallel(),
                "model.layers.*.mlp.up_proj": ColwiseParallel(),
                "model.layers.*.mlp.down_proj": RowwiseParallel(),
                "lm_head": ColwiseParallel(output_layouts=Replicate())}

    with tempfile.TemporaryDirectory() as folder:
        path, sample, length, vocab = command.text_data(folder, 16)
        beside_theirs("llama:layers=2,heads=4,kv_heads=2,width=32,hidden=56,context=16",
                      (path, sample, length), networks.Llama(2, 4, 2, 32, 56, vocab), plan, language_loss)


if __name__ == "__main__":
    main()
