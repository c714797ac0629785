"""Donut, a Swin encoder with an MBart decoder, by name on pairs of images and JSON, against the same in
plain PyTorch, written from the published formulas under the published names."""
import ctypes
import json
import os
import struct
import tempfile
import zlib

from check import C, case, main  # first of these: it skips without PyTorch
import choir
import command
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SIZE, CONTEXT = 32, 12


def dense(*sizes):
    return nn.ModuleDict({"dense": nn.Linear(*sizes)})


def windows(x, w):  # (B, H, W, C) -> (B H/w W/w, w w, C)
    b, h, v, c = x.shape
    return x.view(b, h // w, w, v // w, w, c).transpose(2, 3).reshape(-1, w * w, c)


def whole(x, w, h, v):
    return x.view(-1, h // w, v // w, w, w, x.shape[-1]).transpose(2, 3).reshape(-1, h, v, x.shape[-1])


class SwinBlock(nn.Module):
    def __init__(self, c, heads, window, size, shift):
        super().__init__()
        self.heads, self.size = heads, size
        self.window, self.shift = min(window, size), shift if window < size else 0
        side = 2 * self.window - 1
        self.layernorm_before, self.layernorm_after = nn.LayerNorm(c), nn.LayerNorm(c)
        inner = nn.Module()
        inner.query, inner.key, inner.value = nn.Linear(c, c), nn.Linear(c, c), nn.Linear(c, c)
        inner.relative_position_bias_table = nn.Parameter(torch.zeros(side * side, heads))
        self.attention = nn.ModuleDict({"self": inner, "output": dense(c, c)})
        self.intermediate, self.output = dense(c, 4 * c), dense(4 * c, c)

    def bias(self):
        w = self.window
        at = torch.stack(torch.meshgrid(torch.arange(w), torch.arange(w), indexing="ij")).flatten(1)
        d = at[:, :, None] - at[:, None, :] + w - 1
        table = self.attention["self"].relative_position_bias_table
        return table[(d[0] * (2 * w - 1) + d[1]).view(-1)].view(w * w, w * w, -1).permute(2, 0, 1)

    def mask(self):
        parts, count, w = torch.zeros(1, self.size, self.size, 1), 0, self.window
        cuts = (slice(0, -w), slice(-w, -self.shift), slice(-self.shift, None))
        for a in cuts:
            for b in cuts:
                parts[:, a, b] = count
                count += 1
        parts = windows(parts, w)[..., 0]
        return (parts[:, None] != parts[:, :, None]) * -100.0

    def attend(self, x):  # (windows, w w, C)
        n, t, c = x.shape
        inner = self.attention["self"]
        q, k, v = (m(x).view(n, t, self.heads, -1).transpose(1, 2) for m in (inner.query, inner.key, inner.value))
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5 + self.bias()
        if self.shift:
            mask = self.mask()
            scores = (scores.view(-1, len(mask), *scores.shape[1:]) + mask[:, None]).view(scores.shape)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, c)
        return self.attention["output"]["dense"](y)

    def forward(self, x):  # (B, H W, C)
        y = self.layernorm_before(x).view(len(x), self.size, self.size, -1)
        y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = whole(self.attend(windows(y, self.window)), self.window, self.size, self.size)
        x = x + torch.roll(y, (self.shift, self.shift), (1, 2)).reshape(x.shape)
        return x + self.output["dense"](F.gelu(self.intermediate["dense"](self.layernorm_after(x))))


class Merging(nn.Module):
    def __init__(self, c, size):
        super().__init__()
        self.size, self.norm, self.reduction = size, nn.LayerNorm(4 * c), nn.Linear(4 * c, 2 * c, bias=False)

    def forward(self, x):
        x = x.view(len(x), self.size, self.size, -1)
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return self.reduction(self.norm(x.flatten(1, 2)))


class Swin(nn.Module):
    def __init__(self, embed, depths, heads, window, patch=4):
        super().__init__()
        self.embeddings = nn.ModuleDict({
            "patch_embeddings": nn.ModuleDict({"projection": nn.Conv2d(3, embed, patch, patch)}),
            "norm": nn.LayerNorm(embed)})
        layers, size = nn.ModuleList(), SIZE // patch
        for i, (depth, h) in enumerate(zip(depths, heads)):
            c, stage = embed << i, nn.Module()
            stage.blocks = nn.ModuleList(
                SwinBlock(c, h, window, size >> i, window // 2 if j % 2 else 0) for j in range(depth))
            stage.downsample = Merging(c, size >> i) if i < len(depths) - 1 else None
            layers.append(stage)
        self.encoder = nn.ModuleDict({"layers": layers})

    def forward(self, x):
        x = self.embeddings["patch_embeddings"]["projection"](x).flatten(2).transpose(1, 2)
        x = self.embeddings["norm"](x)
        for stage in self.encoder["layers"]:
            for block in stage.blocks:
                x = block(x)
            x = stage.downsample(x) if stage.downsample else x
        return x


class Attention(nn.Module):
    def __init__(self, c, heads, keys):
        super().__init__()
        self.heads = heads
        self.k_proj, self.v_proj = nn.Linear(keys, c), nn.Linear(keys, c)
        self.q_proj, self.out_proj = nn.Linear(c, c), nn.Linear(c, c)

    def forward(self, x, y, causal):
        split = lambda z: z.view(len(z), z.shape[1], self.heads, -1).transpose(1, 2)
        q, k, v = split(self.q_proj(x)), split(self.k_proj(y)), split(self.v_proj(y))
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        if causal:
            scores = scores + torch.full(scores.shape[-2:], float("-inf")).triu(1)
        return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape))


class DecoderLayer(nn.Module):
    def __init__(self, c, heads, hidden, keys):
        super().__init__()
        self.self_attn, self.encoder_attn = Attention(c, heads, c), Attention(c, heads, keys)
        self.self_attn_layer_norm, self.encoder_attn_layer_norm = nn.LayerNorm(c), nn.LayerNorm(c)
        self.final_layer_norm = nn.LayerNorm(c)
        self.fc1, self.fc2 = nn.Linear(c, hidden), nn.Linear(hidden, c)

    def forward(self, x, states):
        y = self.self_attn_layer_norm(x)
        x = x + self.self_attn(y, y, True)
        x = x + self.encoder_attn(self.encoder_attn_layer_norm(x), states, False)
        return x + self.fc2(F.gelu(self.fc1(self.final_layer_norm(x))))


class Donut(nn.Module):
    def __init__(self, vocab, width, layers, heads, hidden):
        super().__init__()
        self.encoder = Swin(16, (2, 2), (2, 4), 4)
        self.enc_to_dec_proj = nn.Linear(32, width)
        inner = nn.Module()
        inner.embed_tokens = nn.Embedding(vocab, width)
        inner.embed_positions = nn.Embedding(CONTEXT + 2, width)
        inner.layers = nn.ModuleList(DecoderLayer(width, heads, hidden, width) for _ in range(layers))
        inner.layernorm_embedding, inner.layer_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.decoder = nn.ModuleDict({"model": nn.ModuleDict({"decoder": inner})})

    def forward(self, packed):  # an image, and the tokens before each
        image, ids = packed[:, :-CONTEXT].view(-1, 3, SIZE, SIZE), packed[:, -CONTEXT:].long()
        d = self.decoder["model"]["decoder"]
        x = d.embed_tokens(ids) * d.embed_tokens.embedding_dim ** 0.5
        x = d.layernorm_embedding(x + d.embed_positions(torch.arange(CONTEXT) + 2))
        states = self.enc_to_dec_proj(self.encoder(image))
        for layer in d.layers:
            x = layer(x, states)
        return d.layer_norm(x) @ d.embed_tokens.weight.t()


def write_png(path, pixels):  # (H, W, 3) u8
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(
        ">I", zlib.crc32(kind + data))
    h, w, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", w, h, 8, 2, 0, 0, 0)) +
                   chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def documents(folder, count=40):
    """-> sample, length of the training split, vocabulary, pad, start"""
    random = np.random.RandomState(3)
    for part, n in (("train", count), ("validation", 8)):
        os.mkdir(os.path.join(folder, part))
        with open(os.path.join(folder, part, "metadata.jsonl"), "w") as file:
            for i in range(n):
                name = "%03d.png" % i
                write_png(os.path.join(folder, part, name), random.randint(0, 256, (SIZE, SIZE, 3)).astype("u1"))
                truth = {"gt_parse": {"n": "%d" % (i % 7), "l": ["a", "b" * (i % 3)]}}
                file.write(json.dumps({"file_name": name, "ground_truth": json.dumps(truth)}) + "\n")
    opts = C.document_defaults()
    opts.image.height = opts.image.width = SIZE
    opts.context = CONTEXT
    tokenizer, data = ctypes.c_void_p(), ctypes.c_void_p()
    C.dataset_documents(folder, choir.E.CHOIR_TRAIN, opts, ctypes.byref(tokenizer), ctypes.byref(data))
    vocab = C.tokenizer_size(tokenizer)
    ids = {C.tokenizer_decode(tokenizer, i): i for i in range(vocab)}

    def sample(i):
        x, y = np.empty((SIZE, SIZE, 3), np.float32), np.empty(CONTEXT, np.int64)
        C.dataset_get(data, i, x.ctypes.data, y.ctypes.data)
        before = np.concatenate([[ids["<s>"]], y[:-1]])
        packed = np.concatenate([x.transpose(2, 0, 1).ravel(), before]).astype(np.float32)
        return torch.from_numpy(packed), torch.from_numpy(y)
    return sample, count, vocab, ids["<pad>"]


@case
def donut_by_name():
    with tempfile.TemporaryDirectory() as folder:
        sample, length, vocab, pad = documents(folder)
        model = ("donut:height=%d,image_width=%d,window=4,embed=16,depths=2-2,heads=2-4,layers=2,"
                 "decoder_heads=2,width=24,hidden=40,context=%d" % (SIZE, SIZE, CONTEXT))
        loss = lambda scores, ids: F.cross_entropy(scores.flatten(0, 1), ids.flatten(), ignore_index=pad)
        optim = lambda n: torch.optim.SGD(n.parameters(), lr=0.05, momentum=0.9)
        command.compare(model, folder, sample, length, Donut(vocab, 24, 2, 2, 40), loss, optim, "--optimizer",
                        "sgd:momentum=0.9", "--lr", "0.05", null=("key.bias", "k_proj.bias"), cuts=(1, 2, 4, 8))


if __name__ == "__main__":
    main()
