"""Networks in plain PyTorch, with the parameter names of published weights."""
import torch
import torch.nn as nn


class Conv1d(nn.Module):
    """x W + b: GPT-2 is published with weights (in, out)."""

    def __init__(self, inputs, outputs):
        super().__init__()
        linear = nn.Linear(inputs, outputs)
        self.weight, self.bias = nn.Parameter(linear.weight.detach().t().contiguous()), linear.bias

    def forward(self, x):
        return x @ self.weight + self.bias


class Block(nn.Module):
    """GPT-2's, under the names of its published weights."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": Conv1d(width, 3 * width), "c_proj": Conv1d(width, width)})
        self.mlp = nn.ModuleDict({"c_fc": Conv1d(width, 4 * width), "c_proj": Conv1d(4 * width, width)})

    def forward(self, x, causal=True):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for z in self.attn["c_attn"](self.ln_1(x)).split(c, 2))
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
        if causal:
            scores = scores.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), float("-inf"))
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)
        x = x + self.attn["c_proj"](y)
        h = nn.functional.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        return x + self.mlp["c_proj"](h)


class Gpt2(nn.Module):
    """Token and position embeddings, pre-norm blocks, a head tied to the token embedding."""

    def __init__(self, layers, heads, width, context, vocab):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocab, width), "wpe": nn.Embedding(context, width),
            "h": nn.ModuleList(Block(width, heads) for _ in range(layers)), "ln_f": nn.LayerNorm(width)})

    def forward(self, ids):
        t = self.transformer
        x = t["wte"](ids) + t["wpe"](torch.arange(ids.shape[1]))
        for block in t["h"]:
            x = block(x)
        return t["ln_f"](x) @ t["wte"].weight.t()


def tree(**parts):
    """A module of named parts."""
    return nn.ModuleDict(parts)


class BertLayer(nn.Module):
    """Post-norm: attention that sees all, a feed-forward net, each added to its input and normalised."""

    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        self.attention = tree(
            self=tree(**{name: nn.Linear(width, width) for name in ("query", "key", "value")}),
            output=tree(dense=nn.Linear(width, width), LayerNorm=nn.LayerNorm(width, eps=1e-12)))
        self.intermediate = tree(dense=nn.Linear(width, hidden))
        self.output = tree(dense=nn.Linear(hidden, width), LayerNorm=nn.LayerNorm(width, eps=1e-12))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (self.attention["self"][name](x).view(b, t, self.heads, -1).transpose(1, 2)
                   for name in ("query", "key", "value"))
        y = (q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5).softmax(-1) @ v
        mixed = self.attention["output"]["dense"](y.transpose(1, 2).reshape(b, t, c))
        x = self.attention["output"]["LayerNorm"](mixed + x)
        h = nn.functional.gelu(self.intermediate["dense"](x))
        return self.output["LayerNorm"](self.output["dense"](h) + x)


class Bert(nn.Module):
    """For masked language modelling, under the names of its published weights."""

    def __init__(self, layers, heads, width, hidden, context, vocab):
        super().__init__()
        self.bert = tree(
            embeddings=tree(word_embeddings=nn.Embedding(vocab, width),
                            position_embeddings=nn.Embedding(context, width),
                            token_type_embeddings=nn.Embedding(2, width),
                            LayerNorm=nn.LayerNorm(width, eps=1e-12)),
            encoder=tree(layer=nn.ModuleList(BertLayer(width, heads, hidden) for _ in range(layers))))
        self.cls = tree(predictions=tree(transform=tree(dense=nn.Linear(width, width),
                                                        LayerNorm=nn.LayerNorm(width, eps=1e-12))))
        self.cls["predictions"].bias = nn.Parameter(torch.zeros(vocab))

    def forward(self, ids):
        e, head = self.bert["embeddings"], self.cls["predictions"]
        x = (e["word_embeddings"](ids) + e["position_embeddings"](torch.arange(ids.shape[1])) +
             e["token_type_embeddings"](torch.zeros_like(ids)))
        x = e["LayerNorm"](x)
        for layer in self.bert["encoder"]["layer"]:
            x = layer(x)
        x = nn.functional.gelu(head["transform"]["dense"](x))
        return head["transform"]["LayerNorm"](x) @ e["word_embeddings"].weight.t() + head.bias


class RmsNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.weight


def rotate(x, offset=0, theta=10000.0):
    """Rotates pairs of entries from the two halves of x (B, T, H, D), at positions offset, offset + 1, ..."""
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = (offset + torch.arange(x.shape[1], dtype=torch.float64))[:, None, None] * frequency
    c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * c - b * s, b * c + a * s), -1)


def grouped_attention(q, k, v, window=0):
    """Causal. q (B, H, T, D), k and v (B, G, T, D); window: the number of last positions that each one sees."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    t = torch.arange(q.shape[2])
    seen = t[None] <= t[:, None]
    if window:
        seen &= t[None] > t[:, None] - window
    scores = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).masked_fill(~seen, float("-inf"))
    return scores.softmax(-1) @ v


class LlamaAttention(nn.Module):
    def __init__(self, width, heads, kv_heads, window):
        super().__init__()
        self.heads, self.kv_heads, self.window = heads, kv_heads, window
        kv = width // heads * kv_heads
        self.q_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.k_proj, self.v_proj = (nn.Linear(width, kv, bias=False) for _ in range(2))

    def forward(self, x):
        b, t, c = x.shape
        q = rotate(self.q_proj(x).view(b, t, self.heads, -1)).transpose(1, 2)
        k = rotate(self.k_proj(x).view(b, t, self.kv_heads, -1)).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.kv_heads, -1).transpose(1, 2)
        return self.o_proj(grouped_attention(q, k, v, self.window).transpose(1, 2).reshape(b, t, c))


class LlamaMlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv_heads, hidden, window):
        super().__init__()
        self.self_attn = LlamaAttention(width, heads, kv_heads, window)
        self.mlp = LlamaMlp(width, hidden)
        self.input_layernorm, self.post_attention_layernorm = RmsNorm(width), RmsNorm(width)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Llama, and Mistral with a window, under the names of the published weights; the head is the
    token embedding or its own."""

    def __init__(self, layers, heads, kv_heads, width, hidden, vocab, window=0, tied=False):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(vocab, width)
        self.model.layers = nn.ModuleList(
            LlamaBlock(width, heads, kv_heads, hidden, window) for _ in range(layers))
        self.model.norm = RmsNorm(width)
        if not tied:
            self.lm_head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x)
        x = self.model.norm(x)
        return self.lm_head(x) if hasattr(self, "lm_head") else x @ self.model.embed_tokens.weight.t()


def mlp(inputs, hidden, classes):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                         nn.Linear(hidden, classes))


def cnn(width, image, classes):
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0), nn.Linear(2 * width * (image // 4) ** 2, classes))


class ResBlock(nn.Module):
    """torchvision's BasicBlock and Bottleneck."""

    def __init__(self, bottleneck, inputs, width, stride):
        super().__init__()
        outputs = 4 * width if bottleneck else width
        sizes = ([(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)] if bottleneck
                 else [(inputs, width, 3, stride), (width, width, 3, 1)])
        self.count = len(sizes)
        for i, (a, b, k, s) in enumerate(sizes, 1):
            setattr(self, "conv%d" % i, nn.Conv2d(a, b, k, s, k // 2, bias=False))
            setattr(self, "bn%d" % i, nn.BatchNorm2d(b))
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                            nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, "bn%d" % i)(getattr(self, "conv%d" % i)(y))
            y = y.relu() if i < self.count else y
        return (y + (self.downsample(x) if self.downsample else x)).relu()


class ResNet(nn.Module):
    def __init__(self, bottleneck, blocks, width, channels, classes, small=False):
        super().__init__()
        self.small, self.stages = small, len(blocks)
        self.conv1 = (nn.Conv2d(channels, width, 3, 1, 1, bias=False) if small
                      else nn.Conv2d(channels, width, 7, 2, 3, bias=False))
        self.bn1 = nn.BatchNorm2d(width)
        inputs = width
        for i, n in enumerate(blocks):
            parts = []
            for j in range(n):
                parts.append(ResBlock(bottleneck, inputs, width << i, 2 if i and not j else 1))
                inputs = (width << i) * (4 if bottleneck else 1)
            setattr(self, "layer%d" % (i + 1), nn.Sequential(*parts))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        if not self.small:
            x = nn.functional.max_pool2d(x, 3, 2, 1)
        for i in range(self.stages):
            x = getattr(self, "layer%d" % (i + 1))(x)
        return self.fc(x.mean((2, 3)))


class AlexNet(nn.Module):
    def __init__(self, width, hidden, channels, classes):
        super().__init__()
        w = width
        self.features = nn.Sequential(
            nn.Conv2d(channels, w, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Conv2d(w, 3 * w, 5, 1, 2),
            nn.ReLU(), nn.MaxPool2d(3, 2), nn.Conv2d(3 * w, 6 * w, 3, 1, 1), nn.ReLU(),
            nn.Conv2d(6 * w, 4 * w, 3, 1, 1), nn.ReLU(), nn.Conv2d(4 * w, 4 * w, 3, 1, 1), nn.ReLU(),
            nn.MaxPool2d(3, 2))
        self.classifier = nn.Sequential(
            nn.Dropout(0), nn.Linear(4 * w * 36, hidden), nn.ReLU(), nn.Dropout(0),
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, classes))

    def forward(self, x):
        return self.classifier(nn.functional.adaptive_avg_pool2d(self.features(x), 6).flatten(1))
