"""Mixed precision: the dtype in which each op runs, losses under autocast, the scaler's scales."""
import ctypes
import math
import tempfile

from check import STEPS, C, Missing, agree, case, copy_weights, main, refuses  # first: it may skip
import choir
import torch
import torch.nn as nn
import torch.nn.functional as F

import command
import networks

HALF = {choir.E.CHOIR_F32: torch.float32, choir.E.CHOIR_BF16: torch.bfloat16, choir.E.CHOIR_F16: torch.float16}
LOSS = 5e-3  # of ten losses under bf16: both round, at different places (Choir never rounds a weight's gradient)

# In PyTorch's f32 list for CUDA, not in that for CPUs. Choir has one list: f32 if either list has the op.
# mean is a sum here; square is pow(2).
F32_ON_CUDA = "exp log square softmax log_softmax layer_norm rms_norm group_norm sum mean pow_tensor cosine_similarity".split()


def conv_opts():
    return C.conv_defaults()


def need(holder, name):
    if not hasattr(holder, name):
        raise Missing("PyTorch %s has no %s" % (torch.__version__, name))


def ops():
    """name -> ours, theirs, inputs"""
    need(F, "scaled_dot_product_attention")
    x, w, b = torch.randn(6, 8), torch.randn(5, 8), torch.randn(5)
    image, kernel = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    table, ids = torch.randn(10, 8), torch.randint(10, (4,))
    gamma, beta, scores = torch.rand(8), torch.rand(8), torch.randint(8, (6,))
    running = [torch.zeros(3), torch.ones(3)]
    heads = [torch.randn(2, 2, 4, 8) for _ in range(3)]
    found = {name: (getattr(C, name), getattr(torch, name), [x]) for name in
             "neg exp square tanh sigmoid relu abs".split()}
    found.update({name: (getattr(C, name), getattr(torch, name), [x.abs() + 1]) for name in ("log", "sqrt")})
    found.update(
        gelu=(C.gelu, F.gelu, [x]), silu=(C.silu, F.silu, [x]),
        linear=(C.linear, F.linear, [x, w, b]),
        matmul=(C.matmul, torch.matmul, [x, w.t().contiguous()]),
        conv2d=(lambda a, k: C.conv2d(a, k, None, conv_opts()), F.conv2d, [image, kernel]),
        conv_transpose2d=(lambda a, k: C.conv_transpose2d(a, k, None, conv_opts()), F.conv_transpose2d,
                          [image, torch.randn(3, 4, 3, 3)]),
        conv1d=(lambda a, k: C.conv1d(a, k, None, conv_opts()), F.conv1d,
                [torch.randn(2, 3, 8), torch.randn(4, 3, 3)]),
        conv3d=(lambda a, k: C.conv3d(a, k, None, C.conv3d_defaults()), F.conv3d,
                [torch.randn(2, 3, 4, 5, 6), torch.randn(4, 3, 2, 3, 3)]),
        einsum=(lambda a, k: C.einsum("ab,cb->ca", [a, k], 2), lambda a, k: torch.einsum("ab,cb->ca", a, k), [x, w]),
        pow_tensor=(C.pow_tensor, torch.pow, [x.abs() + 1, torch.randn(6, 8)]),
        cosine_similarity=(lambda a, k: C.cosine_similarity(a, k, 1, 1e-8), F.cosine_similarity, [x, x * x + 1]),
        sort=(lambda a: C.sort(a, 1, True, None), lambda a: a.sort(1, True).values, [x]),
        topk=(lambda a: C.topk(a, 3, 0, False, None), lambda a: a.topk(3, 0, False).values, [x]),
        attention=(lambda q, k, v: C.attention(q, k, v, False), F.scaled_dot_product_attention, heads),
        softmax=(C.softmax, lambda a: a.softmax(-1), [x]),
        log_softmax=(C.log_softmax, lambda a: a.log_softmax(-1), [x]),
        layer_norm=(lambda a, g, c: C.layer_norm(a, g, c, 1e-5), lambda a, g, c: F.layer_norm(a, (8,), g, c),
                    [x, gamma, beta]),
        rms_norm=(lambda a, g: C.rms_norm(a, g, 1e-5), lambda a, g: F.rms_norm(a, (8,), g), [x, gamma]),
        group_norm=(lambda a: C.group_norm(a, 1, None, None, 1e-5), lambda a: F.group_norm(a, 1), [image]),
        batch_norm=(lambda a, m, v: C.batch_norm(a, None, None, m, v, True, 0.1, 1e-5),
                    lambda a, m, v: F.batch_norm(a, m, v, training=True), [image] + running),
        sum=(C.sum, torch.sum, [x]), mean=(C.mean, torch.mean, [x]),
        max_pool2d=(lambda a: C.max_pool2d(a, 2, 2, 0), lambda a: F.max_pool2d(a, 2), [image]),
        avg_pool2d=(lambda a: C.avg_pool2d(a, 2, 2, 0), lambda a: F.avg_pool2d(a, 2), [image]),
        embedding=(C.embedding, lambda t, i: F.embedding(i, t), [table, ids]),
        cross_entropy=(C.cross_entropy, F.cross_entropy, [x, scores]),
        mse_loss=(C.mse_loss, F.mse_loss, [x, torch.randn(6, 8)]),
        add=(C.add, torch.add, [x, x + 1]), sub=(C.sub, torch.sub, [x, x + 1]),
        mul=(C.mul, torch.mul, [x, x + 1]), div=(C.div, torch.div, [x, x.abs() + 1]))
    return found


def inputs_as(values, kinds):
    """Casts the float inputs to the dtypes of kinds, in turn; buffers and tables of norms stay f32."""
    return [v.to(kinds[i % len(kinds)]) if v.is_floating_point() and v.ndim != 1 else v
            for i, v in enumerate(values)]


def ours_of(step, values):
    made = []
    for v in values:
        t = step.tensor(v.float().numpy() if v.is_floating_point() else v.numpy())
        made.append(C.cast(t, choir.E.CHOIR_BF16) if v.dtype == torch.bfloat16 else t)
    return made


def one_op(name, ours, theirs, values):
    with torch.autocast("cpu", torch.bfloat16):
        expected = theirs(*values)
    with choir.Run() as run, run.step() as step:
        x = ours_of(step, values)
        C.autocast(step, choir.E.CHOIR_BF16)
        y = ours(*x)
        got = HALF[C.tensor_dtype(y)]
        if name in F32_ON_CUDA:
            if got != torch.float32:
                raise AssertionError("%s gave %s" % (name, got))
        elif got != expected.dtype:
            raise AssertionError("%s of %s gave %s, PyTorch's %s" % (
                name, [v.dtype for v in values], got, expected.dtype))
        value = C.cast(y, choir.E.CHOIR_F32)
        agree(name, value, expected.float(), 1e-5 if got == torch.float32 == expected.dtype else 2e-2)


@case
def dtypes_of_ops():
    for name, (ours, theirs, values) in ops().items():
        for kinds in ([torch.float32], [torch.bfloat16]):
            one_op(name, ours, theirs, inputs_as(values, kinds))


@case
def dtypes_are_promoted():
    for name in ("add", "sub", "mul", "div"):
        ours, theirs, values = ops()[name]
        for kinds in ([torch.float32, torch.bfloat16], [torch.bfloat16, torch.float32]):
            one_op(name, ours, theirs, inputs_as(values, kinds))


@case
def outside_they_must_agree():
    with choir.Run() as run, run.step() as step:
        x = step.tensor(torch.ones(3).numpy())
        refuses("f32 + bf16", ["add", "bf16"], lambda: C.add(x, C.cast(x, choir.E.CHOIR_BF16)).numpy())
        C.scope_clear(step)


def network():
    return nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 30), nn.GELU(), nn.Linear(30, 4))


def ours(run):
    parts = [C.nn_linear(run, 12, 40), C.nn_relu(run), C.nn_linear(run, 40, 30), C.nn_gelu(run),
             C.nn_linear(run, 30, 4)]
    return run.module(C.nn_sequential_n, [choir.Module(p) for p in parts], len(parts))


@case
def mlp_losses():
    theirs = network()
    optim = torch.optim.SGD(theirs.parameters(), lr=0.1)
    x, y = torch.randn(16, 12), torch.randint(4, (16,))
    with choir.Run() as run:
        module = ours(run)
        copy_weights(module, theirs)
        mine = C.sgd(run, module, choir.options(C.sgd_defaults, lr=0.1))
        C.autocast(run, choir.E.CHOIR_BF16)
        for _ in range(STEPS):
            optim.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                expected = F.cross_entropy(theirs(x), y)
            expected.backward()
            optim.step()
            with run.step() as step:
                loss = C.cross_entropy(module(step.tensor(x.numpy())), step.tensor(y.numpy()))
                agree("ten losses", loss, expected, LOSS)
                C.backward(loss)
                C.optim_step(mine)
        for name, t in module.tensors().items():
            assert C.tensor_dtype(t) == choir.E.CHOIR_F32  # the master weights
            agree("weights", t, theirs.state_dict()[name], 1e-2)


@case
def gpt2_losses():
    with tempfile.TemporaryDirectory() as folder:
        path, sample, length, vocab = command.text_data(folder, 16)
        theirs = networks.Gpt2(2, 4, 32, 16, vocab)
        plain = theirs.forward

        def forward(x):
            with torch.autocast("cpu", torch.bfloat16):
                return plain(x)
        theirs.forward = forward
        command.compare("gpt2:layers=2,heads=4,width=32,context=16,dropout=0", path, sample, length, theirs,
                        lambda out, y: F.cross_entropy(out.float().reshape(-1, out.shape[-1]), y.reshape(-1)),
                        lambda net: torch.optim.AdamW(net.parameters(), lr=1e-3), "--amp", "bf16", "--lr",
                        "1e-3", null=("",), bound=LOSS)


# --- the scaler -----------------------------------------------------------------------------------

SCRIPT = "..x.....xx......x....."  # x: a gradient overflows


def scripted(adam):
    need(torch.amp, "GradScaler")
    """Scales and weights, step by step, ours and PyTorch's."""
    p = nn.Linear(1, 1, bias=False)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0, growth_interval=3)
    make = torch.optim.Adam if adam else torch.optim.SGD
    optim = make(p.parameters(), lr=0.01)
    opts = choir.options(C.scaler_defaults, interval=3)
    with choir.Run() as run:
        module = run.module(C.nn_linear, 1, 1)
        module.tensors()["weight"].write(p.weight.detach().numpy())
        module.tensors()["bias"].write(torch.zeros(1).numpy())
        if adam:
            mine = C.adam(run, module, choir.options(C.adam_defaults, lr=0.01))
        else:
            mine = C.sgd(run, module, choir.options(C.sgd_defaults, lr=0.01))
        our_scaler = C.scaler_new(run, opts)
        state = choir.HEADER.structs["choir_scaler_state"]()
        for i, what in enumerate(SCRIPT):
            x = torch.tensor([[1e38 if what == "x" else 0.5 + i]])
            optim.zero_grad()
            scaler.scale(p(x).sum()).backward()
            scaler.step(optim)
            scaler.update()
            with run.step() as step:
                loss = C.sum(C.linear(step.tensor(x.numpy()), module.tensors()["weight"], None))
                loss = C.scaler_scale(our_scaler, loss)
                C.backward(loss)
                C.scaler_step(our_scaler, mine)
                C.scaler_update(our_scaler)
            C.scaler_get(our_scaler, ctypes.byref(state))
            if state.scale != scaler.get_scale():
                raise AssertionError("step %d: scale %g, PyTorch's %g" % (i, state.scale, scaler.get_scale()))
            agree("weight", module.tensors()["weight"], p.weight, 1e-5, scale=0.01)
        assert state.skipped[0] == SCRIPT.count("x"), state.skipped[0]


@case
def scales():
    scripted(adam=False)


@case
def skipped_steps_are_no_steps_of_adam():
    scripted(adam=True)


@case
def unscaled_gradients_are_pytorchs():
    need(torch.amp, "GradScaler")
    p = nn.Linear(3, 2)
    x = torch.randn(4, 3)
    scaler = torch.amp.GradScaler("cpu", init_scale=3e4)
    optim = torch.optim.SGD(p.parameters(), lr=0.1)
    with choir.Run() as run:
        module = run.module(C.nn_linear, 3, 2)
        copy_weights(module, p)
        mine = C.sgd(run, module, choir.options(C.sgd_defaults, lr=0.1))
        C.optim_clip(mine, 0.05)
        ours = C.scaler_new(run, choir.options(C.scaler_defaults, scale=3e4))
        for unscale in (True, False):
            optim.zero_grad()
            scaler.scale(p(x).square().mean()).backward()
            scaler.unscale_(optim)
            nn.utils.clip_grad_norm_(p.parameters(), 0.05)
            with run.step() as step:
                loss = C.scaler_scale(ours, C.mean(C.square(module(step.tensor(x.numpy())))))
                C.backward(loss)
                if unscale:
                    C.scaler_unscale(ours, mine)
                C.scaler_step(ours, mine)
                C.scaler_update(ours)
            scaler.step(optim)
            scaler.update()
            for name, t in module.tensors().items():
                agree("weights " + name, t, p.state_dict()[name])


main()
