"""Ops: values and gradients of functions of tensors."""
import ctypes
import math

from check import C, case, function, main  # first: it skips without PyTorch
import choir
import torch
import torch.nn.functional as F

from networks import grouped_attention, rotate


@case
def unary():
    for name in "neg exp square tanh sigmoid relu".split():
        function(getattr(C, name), getattr(torch, name), (7, 33))
    function(C.abs, torch.abs, torch.randn(5, 3))
    for name in ("log", "sqrt"):
        function(getattr(C, name), getattr(torch, name), torch.rand(9, 5) + 0.1)
    function(C.gelu, F.gelu, (7, 33))
    function(C.gelu_tanh, lambda x: F.gelu(x, approximate="tanh"), (7, 33))
    function(C.silu, F.silu, (7, 33))
    function(lambda x: C.affine(x, 2.5, -1), lambda x: 2.5 * x - 1, (4, 9))
    function(lambda x: C.scale(x, -0.3), lambda x: -0.3 * x, (4, 9))


@case
def activations_far_out():
    x = torch.tensor([-1e4, -90.0, -20, -5, -1e-3, 0, 1e-3, 5, 20, 80])
    for ours, theirs in ((C.tanh, torch.tanh), (C.sigmoid, torch.sigmoid), (C.gelu, F.gelu),
                         (C.silu, F.silu)):
        function(ours, theirs, x.clone())


@case
def binary_broadcasts():
    shapes = [((4, 5), (4, 5)), ((4, 5), (5,)), ((3, 1, 5), (4, 1)), ((2, 3, 4), ()), ((1,), (6, 2))]
    for a, b in shapes:
        for name in ("add", "sub", "mul"):
            function(getattr(C, name), getattr(torch, name), a, b)
        function(C.div, torch.div, a, torch.rand(b) + 0.5)


@case
def reductions():
    function(C.sum, torch.sum, (3, 4, 5))
    function(C.mean, torch.mean, (3, 4, 5))
    for dim in (0, 1, 2, -1):
        function(lambda x: C.sum_dim(x, dim), lambda x: x.sum(dim), (3, 4, 65))
        function(lambda x: C.mean_dim(x, dim), lambda x: x.mean(dim), (3, 4, 65))
    function(C.argmax, lambda x: x.argmax(-1), (6, 33))


@case
def views():
    function(lambda x: C.reshape(x, (6, -1)), lambda x: x.reshape(6, -1), (2, 3, 4))
    function(lambda x: C.flatten(x, 1), lambda x: x.flatten(1), (2, 3, 4))
    function(lambda x: C.transpose(x, 0, 2), lambda x: x.transpose(0, 2), (2, 3, 4))
    function(lambda x: C.permute(x, (2, 0, 1)), lambda x: x.permute(2, 0, 1), (2, 3, 4))
    function(lambda x: C.narrow(x, 1, 2, 3), lambda x: x.narrow(1, 2, 3), (2, 7, 4))
    function(lambda x: C.expand(x, (5, 3, 4)), lambda x: x.expand(5, 3, 4), (3, 1))
    for dim in (0, 1):
        shapes = [(2, 3), (2, 3), (2, 3)] if dim else [(1, 3), (4, 3), (2, 3)]
        function(lambda *x: C.cat(x, len(x), dim), lambda *x: torch.cat(x, dim), *shapes)
    many = [(1 + i % 3, 2) for i in range(40)]
    function(lambda *x: C.cat(x, len(x), 0), lambda *x: torch.cat(x), *many)
    for shape, dim in (((), 0), ((2, 3), 0), ((2, 3), 1), ((2, 3), -1)):
        function(lambda *x: C.stack(x, len(x), dim), lambda *x: torch.stack(x, dim), *[shape] * 5)


def pieces(cut, x, *arguments):
    """The pieces as a list; cut fills an array."""
    parts = (ctypes.c_void_p * 64)()
    count = cut(x, *arguments, ctypes.cast(parts, ctypes.c_void_p))
    return [choir.Tensor(p) for p in parts[:count]]


@case
def cuts():
    def joined(parts):  # parts have different weights and lengths
        return C.cat([C.scale(p, i + 1) for i, p in enumerate(parts)], len(parts), 0)

    def joined_theirs(parts):
        return torch.cat([p * (i + 1) for i, p in enumerate(parts)])

    def split(x, size, dim, parts):
        return C.split_dim(x, size, dim, parts, 64)

    for length in (1, 3, 10, 30):
        for n in (1, 2, 4, 8, 20):
            function(lambda x: joined(pieces(C.chunk, x, n, 0)),
                     lambda x: joined_theirs(x.chunk(n)), (length, 2))
            function(lambda x: joined(pieces(split, x, n, 0)),
                     lambda x: joined_theirs(x.split(n)), (length, 2))
    function(lambda x: pieces(C.chunk, x, 3, 1)[2], lambda x: x.chunk(3, 1)[2], (2, 7))
    function(lambda x: pieces(split, x, 3, -1)[1], lambda x: x.split(3, -1)[1], (2, 7))


@case
def matmul():
    for a, b in (((5, 7), (7, 3)), ((2, 5, 7), (7, 3)), ((2, 5, 7), (2, 7, 3)),
                 ((2, 3, 5, 7), (2, 3, 7, 9)), ((64, 300), (300, 65))):
        function(C.matmul, torch.matmul, a, b)
    function(lambda a, b: C.matmul(a, C.transpose(b, 0, 1)), lambda a, b: a @ b.t(), (5, 7), (3, 7))


@case
def einsum():
    for equation, *shapes in (
            ("ij,jk->ik", (3, 4), (4, 5)), ("ij,kj", (3, 4), (5, 4)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
            ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)), ("bi,oij,bj->bo", (3, 4), (5, 4, 2), (3, 2)),
            ("a,b->ba", (3,), (4,)), ("ba", (3, 4)), ("ab->", (3, 4)), ("ii", (4, 4)), ("ii->i", (4, 4)),
            ("iij,ji->ji", (4, 4, 3), (3, 4)), ("ijij->ji", (3, 2, 3, 2)), ("...ij,...jk", (2, 3, 4), (4, 5)),
            ("...ij, jk ... -> k...i", (2, 3, 4), (4, 5, 2)), ("b...,b...->...", (3, 2, 4), (3, 4)),
            ("ij,jk->ik", (3, 1), (4, 5)), (",i->i", (), (3,)), ("ab,cd->", (2, 3), (4, 5)),
            ("Aa,aB", (3, 4), (4, 5)), ("i,i,i->", (5,), (5,), (5,)), ("abc,cb->a", (2, 3, 4), (4, 3)),
            ("ab,ac,ad->bcd", (2, 3), (2, 4), (2, 5)), ("...->", (2, 3)), ("i...->i", (2, 3, 4))):
        function(lambda *x: C.einsum(equation, x, len(x)), lambda *x: torch.einsum(equation, *x), *shapes)


@case
def pow_tensor():
    for a, b in (((4, 5), (4, 5)), ((3, 1, 5), (4, 1)), ((2, 3), ())):
        function(C.pow_tensor, torch.pow, torch.rand(a) + 0.1, torch.randn(b))
    a = torch.tensor([0.0, 0.0, 0.0, 0.0, -2.0, -2.0, 1.0])
    b = torch.tensor([0.0, 2.0, 0.5, -1.0, 3.0, 0.0, 0.0])
    function(C.pow_tensor, torch.pow, a, b)


@case
def cosine_similarity():
    for a, b, dim in (((4, 33), (4, 33), 1), ((4, 33), (33,), 1), ((2, 1, 5), (3, 5), -1), ((6, 3), (6, 3), 0)):
        function(lambda x, y: C.cosine_similarity(x, y, dim, 1e-8),
                 lambda x, y: F.cosine_similarity(x, y, dim), a, b)
    with choir.Run() as run, run.step() as step:
        zeros, ones = (step.tensor(f(2, 3).numpy()) for f in (torch.zeros, torch.ones))
        assert not C.cosine_similarity(zeros, ones, 1, 1e-8).numpy().any()


@case
def linear():
    function(C.linear, F.linear, (5, 24), (17, 24), (17,))
    function(lambda x, w: C.linear(x, w, None), F.linear, (2, 5, 24), (17, 24))


@case
def softmax():
    function(C.softmax, lambda x: F.softmax(x, -1), (9, 33))
    function(C.log_softmax, lambda x: F.log_softmax(x, -1), (2, 9, 33))
    function(C.softmax, lambda x: F.softmax(x, -1), 100 * torch.randn(5, 7))


@case
def conv2d():
    for stride, padding, dilation, groups, k in (
            (1, 0, 1, 1, 3), (2, 1, 1, 1, 3), (1, 2, 2, 1, 3), (2, 3, 1, 1, 7), (1, 1, 1, 2, 3),
            (1, 1, 1, 8, 3), (1, 0, 1, 1, 1), (2, 0, 1, 4, 2)):
        opts = choir.options(C.conv_defaults, stride=stride, padding=padding, dilation=dilation,
                             groups=groups)
        function(lambda x, w, b: C.conv2d(x, w, b, opts),
                 lambda x, w, b: F.conv2d(x, w, b, stride, padding, dilation, groups),
                 (2, 8, 13, 11), (16, 8 // groups, k, k), (16,))


@case
def pools():
    for k, s, p in ((2, 2, 0), (3, 2, 1), (3, 1, 0)):
        function(lambda x: C.max_pool2d(x, k, s, p), lambda x: F.max_pool2d(x, k, s, p), (2, 5, 12, 9))
        function(lambda x: C.avg_pool2d(x, k, s, p), lambda x: F.avg_pool2d(x, k, s, p), (2, 5, 12, 9))


@case
def norms():
    function(lambda x, g, b: C.layer_norm(x, g, b, 1e-5), lambda x, g, b: F.layer_norm(x, (33,), g, b),
             (4, 7, 33), (33,), (33,))
    function(lambda x: C.layer_norm(x, None, None, 1e-3), lambda x: F.layer_norm(x, (5,), eps=1e-3),
             (4, 5))
    for training in (True, False):
        mean, var = torch.randn(6), torch.rand(6) + 0.5
        ours = (mean.clone(), var.clone())  # each library updates its own
        function(lambda x, g, b, m, v: C.batch_norm(x, g, b, m, v, training, 0.1, 1e-5),
                 lambda x, g, b, m, v: F.batch_norm(x, *ours, g, b, training, 0.1, 1e-5),
                 (4, 6, 5, 3), (6,), (6,), mean, var, fixed=(3, 4))


@case
def embedding():
    ids = torch.tensor([[1, 4, 4], [0, 9, 1]])
    function(lambda table: C.embedding(table, ids_in(table, ids)),
             lambda table: F.embedding(ids, table), (10, 7))


def ids_in(table, ids):
    return choir.Scope(C.tensor_scope(table)).tensor(ids.numpy())


def attention_formula(q, k, v, causal):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(-1) @ v


@case
def attention():
    for causal in (False, True):
        for shape in ((2, 3, 9, 16), (1, 2, 65, 32)):
            function(lambda q, k, v: C.attention(q, k, v, causal),
                     lambda q, k, v: attention_formula(q, k, v, causal), shape, shape, shape)

        def qkv_formula(x):
            q, k, v = (z.view(2, 7, 4, 8).transpose(1, 2) for z in x.split(32, 2))
            return attention_formula(q, k, v, causal).transpose(1, 2).reshape(2, 7, 32)
        function(lambda x: C.self_attention(x, 4, causal), qkv_formula, (2, 7, 96))


def rms_formula(x, gamma, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * gamma


@case
def norms_of_sums():
    """Uses both results, as a block does: the sum continues beside its norm."""
    def both(norm, *arguments):
        total = ctypes.c_void_p()
        y = norm(*arguments, ctypes.addressof(total))
        return C.mul(y, choir.Tensor(total.value))
    function(lambda x, r, g, b: both(C.add_layer_norm, x, r, g, b, 1e-5),
             lambda x, r, g, b: F.layer_norm(x + r, (33,), g, b) * (x + r),
             (4, 7, 33), (4, 7, 33), (33,), (33,))
    function(lambda x, r, g: both(C.add_rms_norm, x, r, g, 1e-5),
             lambda x, r, g: rms_formula(x + r, g, 1e-5) * (x + r), (4, 7, 33), (4, 7, 33), (33,))


def attention_with_formula(q, k, v, causal, window, scale, bias):
    """Grouped heads, a window, keys after which the queries come, a bias."""
    k, v = (z.repeat_interleave(q.shape[1] // z.shape[1], 1) for z in (k, v))
    scores = q @ k.transpose(-2, -1) * (scale or q.shape[-1] ** -0.5)
    if bias is not None:
        scores = scores + bias
    t, s = scores.shape[-2:]
    age = torch.arange(t)[:, None] - torch.arange(s)
    if causal:
        scores = scores.masked_fill((age < 0) | ((age >= window) if window else False), -math.inf)
    return scores.softmax(-1) @ v


@case
def attention_options():
    for heads, groups, t, s, causal, window, scale in (
            (4, 2, 9, 9, True, 0, 0), (6, 1, 33, 33, True, 7, 0.3), (4, 4, 5, 12, False, 0, 0),
            (2, 2, 65, 65, True, 64, 0), (4, 2, 7, 70, False, 0, 0.1)):
        for bias in (None, (2, heads, t, s), (1, 1, 1, s)):
            def ours(q, k, v, *b):
                opts = choir.options(C.attention_defaults, causal=causal, window=window, scale=scale)
                opts.bias = b[0].handle if b else None
                return C.attention_with(q, k, v, opts)

            def theirs(q, k, v, *b):
                return attention_with_formula(q, k, v, causal, window, scale, b[0] if b else None)
            function(ours, theirs, (2, heads, t, 16), (2, groups, s, 16), (2, groups, s, 16),
                     *([bias] if bias else []))


@case
def rms_norm():
    def formula(x, g):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * g
    function(lambda x, g: C.rms_norm(x, g, 1e-6), formula, (4, 7, 33), (33,))
    function(lambda x: C.rms_norm(x, None, 1e-6), lambda x: formula(x, 1), (3, 130))


@case
def swiglu():
    function(C.swiglu, lambda a, b: F.silu(a) * b, (4, 7, 33), (4, 7, 33))

    def halves(x):
        a, b = x.chunk(2, -1)
        return F.silu(a) * b
    function(lambda x: C.swiglu(x, None), halves, (5, 66))


@case
def rotary():
    for width, offset in ((8, 0), (64, 5), (34, 1000)):
        opts = choir.options(C.rotary_defaults, theta=500000)

        def ours(x):
            scope = choir.Scope(C.tensor_scope(x))
            table = C.rotary_table(scope, choir.E.CHOIR_F32, offset + 9, width, opts)
            return C.rotary(x, table, offset)
        function(ours, lambda x: rotate(x, offset, 500000.0), (2, 9, 3, width))


@case
def grouped():
    opts = choir.options(C.attention_defaults, causal=True)
    for heads, kv_heads, window in ((4, 2, 0), (6, 1, 0), (4, 4, 5), (4, 2, 3)):
        opts.window = window
        function(lambda q, k, v: C.attention_with(q, k, v, opts),
                 lambda q, k, v: grouped_attention(q, k, v, window), (2, heads, 19, 16),
                 (2, kv_heads, 19, 16), (2, kv_heads, 19, 16))


@case
def dropout_statistics():
    """The mask is Choir's own; kept values are scaled as in PyTorch, and the rate is right."""
    with choir.Run() as run, run.step() as step:
        x = step.tensor(torch.ones(100000).numpy(), grad=True)
        y = C.dropout(x, 0.3, "drop")
        values = y.numpy()
        C.backward(C.sum(y))
        kept = values[values != 0]
        assert abs(len(kept) / values.size - 0.7) < 0.006, len(kept)  # four deviations
        assert abs(kept - 1 / 0.7).max() < 1e-6, kept
        assert (C.grad(x).numpy() == values).all()



@case
def more_elements():
    x = torch.tensor([-1e4, -90.0, -20, -5, -1.5, -0.5, -1e-3, 0, 1e-3, 0.5, 2.5, 20, 80])
    for name in "sign floor ceil round expm1 erf".split():
        function(getattr(C, name), getattr(torch, name), (7, 33))
    function(C.erf, torch.erf, x.clone())
    function(C.log1p, torch.log1p, torch.rand(9, 5) * 3 - 0.9)
    function(lambda x: C.leaky_relu(x, 0.01), F.leaky_relu, x.clone())
    function(lambda x: C.elu(x, 0.7), lambda x: F.elu(x, 0.7), x.clone())
    function(lambda x: C.softplus(x, 1, 20), F.softplus, x.clone())
    function(lambda x: C.softplus(x, 2.5, 3), lambda x: F.softplus(x, 2.5, 3), (7, 33))


@case
def greater_and_lesser():
    for a, b in (((4, 5), (4, 5)), ((3, 1, 5), (4, 1)), ((2, 3), ())):
        function(C.maximum, torch.maximum, a, b)
        function(C.minimum, torch.minimum, a, b)
    a, b = torch.tensor([1.0, 2, math.nan, 0]), torch.tensor([1.0, 3, 1, math.nan])
    function(C.maximum, torch.maximum, a, b)
    function(C.minimum, torch.minimum, b.detach().clone(), a.detach().clone())


@case
def more_reductions():
    for dim in (0, 1, -1):
        for keep in (False, True):
            function(lambda x: C.std_dim(x, dim, 1, keep), lambda x: x.std(dim, keepdim=keep), (3, 4, 5))
            function(lambda x: C.logsumexp_dim(x, dim, keep), lambda x: x.logsumexp(dim, keep), (3, 4, 5))
            function(lambda x: C.prod_dim(x, dim, keep), lambda x: x.prod(dim, keep), (3, 4, 5))
    zeros = torch.randn(3, 4)
    zeros[0, 1] = zeros[2, 1] = zeros[1, 3] = 0
    function(lambda x: C.prod_dim(x, 0, False), lambda x: x.prod(0), zeros)


@case
def places():
    function(lambda x: C.flip(x, 1), lambda x: x.flip(1), (3, 4, 5))
    for shift in (0, 1, -3, 11):
        function(lambda x: C.roll(x, shift, 1), lambda x: x.roll(shift, 1), (3, 4, 5))
    for diagonal in (-2, 0, 1):
        function(lambda x: C.tril(x, diagonal), lambda x: x.tril(diagonal), (2, 4, 5))
        function(lambda x: C.triu(x, diagonal), lambda x: x.triu(diagonal), (2, 4, 5))


@case
def fourier():
    for n in (1, 2, 7, 31, 48, 101, 1024):
        function(C.rfft, lambda x: torch.view_as_real(torch.fft.rfft(x)), (3, n))
        function(C.fft, lambda x: torch.view_as_real(torch.fft.fft(torch.view_as_complex(x))), (2, n, 2))
        function(C.ifft, lambda x: torch.view_as_real(torch.fft.ifft(torch.view_as_complex(x))), (2, n, 2))
        function(lambda x: C.irfft(C.rfft(x), n), lambda x: torch.fft.irfft(torch.fft.rfft(x), n), (3, n))


@case
def factors():
    """Signs are settled in Choir: PyTorch's singular vectors are turned by its rule."""
    def turned(x):
        return C.transpose(x, -1, -2)

    def svd(x, which):
        out = (ctypes.c_void_p * 2)()
        s = C.svd(x, ctypes.addressof(out), ctypes.addressof(out) + 8)
        return s if which == 1 else choir.Tensor(out[which // 2])

    def theirs(x, which):
        u, s, vt = torch.linalg.svd(x, full_matrices=False)
        long = u if x.shape[-2] >= x.shape[-1] else vt.mT
        sign = long.detach().gather(-2, long.detach().abs().argmax(-2, keepdim=True)).sign()
        return (u * sign, s, vt * sign.mT)[which]

    for shape in ((3, 3), (7, 4), (4, 7), (2, 5, 3), (1, 1)):
        for which in range(3):
            function(lambda x: svd(x, which), lambda x: theirs(x, which), shape)
    for shape in ((4, 6), (2, 3, 5), (16, 20)):
        function(lambda x: C.cholesky(C.matmul(x, turned(x))), lambda x: torch.linalg.cholesky(x @ x.mT), shape)
    for a, b in (((4, 4), (4, 3)), ((2, 3, 3), (3, 1)), ((5, 5), (2, 5, 2))):
        a = torch.randn(a) / 4 + 2 * torch.eye(a[-1])
        for upper in (False, True):
            function(lambda a, b: C.solve_triangular(a, b, upper),
                     lambda a, b: torch.linalg.solve_triangular(a, b, upper=upper), a.clone(), b)


@case
def second_derivatives():
    """A gradient penalty: the gradient of the norm of a gradient."""
    def penalty(x, w):
        y = C.sum(C.matmul(C.tanh(x), w))
        g = (ctypes.c_void_p * 1)()
        C.derivatives(y, ctypes.addressof((ctypes.c_void_p * 1)(x.handle)), 1, ctypes.addressof(g))
        return C.square(C.affine(C.norm_dim(choir.Tensor(g[0]), 2, 1, False), 1, -1))

    def theirs(x, w):
        g, = torch.autograd.grad((x.tanh() @ w).sum(), x, create_graph=True)
        return (g.norm(dim=1) - 1) ** 2
    function(penalty, theirs, (5, 7), (7, 3))

main()
