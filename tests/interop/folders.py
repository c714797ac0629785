"""Tiny published folders, written with Python alone: model.safetensors under the names that
transformers gives its tensors, config.json, and tokenizers whose tokens are bytes and a few more."""
import json
import os
import random
import struct

WIDTH, HIDDEN, LAYERS, VOCAB, CONTEXT = 8, 16, 2, 24, 16
SIZES = {
    "bert": dict(hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=LAYERS,
                 num_attention_heads=2, vocab_size=VOCAB, max_position_embeddings=CONTEXT),
    "gpt2": dict(n_embd=WIDTH, n_layer=LAYERS, n_head=2, vocab_size=VOCAB, n_positions=CONTEXT),
    "llama": dict(hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=LAYERS,
                  num_attention_heads=2, vocab_size=VOCAB, max_position_embeddings=CONTEXT),
}
SIZES["roberta"] = dict(SIZES["bert"], max_position_embeddings=CONTEXT + 2)
SIZES["distilbert"] = dict(dim=WIDTH, hidden_dim=HIDDEN, n_layers=LAYERS, n_heads=2, vocab_size=VOCAB,
                           max_position_embeddings=CONTEXT)
SIZES["xlm-roberta"] = SIZES["roberta"]
for _name in "mistral", "qwen2", "phi3", "gemma":
    SIZES[_name] = SIZES["llama"]


def linear(name, into, out):
    return [(name + ".weight", (out, into)), (name + ".bias", (out,))]


def norm(name):
    return [(name + ".weight", (WIDTH,)), (name + ".bias", (WIDTH,))]


def bert(config):
    at, vocab = "bert.embeddings.", config["vocab_size"]
    yield from [(at + "word_embeddings.weight", (vocab, WIDTH)), (at + "position_embeddings.weight", (CONTEXT, WIDTH)),
                (at + "token_type_embeddings.weight", (2, WIDTH)), *norm(at + "LayerNorm")]
    for i in range(LAYERS):
        at = "bert.encoder.layer.%d." % i
        for part in ("query", "key", "value"):
            yield from linear(at + "attention.self." + part, WIDTH, WIDTH)
        yield from linear(at + "attention.output.dense", WIDTH, WIDTH) + norm(at + "attention.output.LayerNorm")
        yield from linear(at + "intermediate.dense", WIDTH, HIDDEN) + linear(at + "output.dense", HIDDEN, WIDTH)
        yield from norm(at + "output.LayerNorm")
    yield from linear("bert.pooler.dense", WIDTH, WIDTH) + linear("cls.predictions.transform.dense", WIDTH, WIDTH)
    yield from norm("cls.predictions.transform.LayerNorm") + [("cls.predictions.bias", (vocab,))]
    yield from linear("cls.seq_relationship", WIDTH, 2)


def roberta(config):
    """RoBERTa's names of today, which has no pooler and counts positions from its padding, 1, on."""
    for name, shape in bert(config):
        if "pooler" in name or "seq_relationship" in name:
            continue
        name = name.replace("cls.predictions.bias", "lm_head.bias").replace("cls.predictions.transform.dense", "lm_head.dense")
        name = name.replace("cls.predictions.transform.LayerNorm", "lm_head.layer_norm").replace("bert.", "roberta.", 1)
        shape = (CONTEXT + 2, WIDTH) if "position" in name else (1, WIDTH) if "token_type" in name else shape
        yield name, shape


def distilbert(config):
    for name, shape in bert(config):
        if any(part in name for part in ("pooler", "seq_relationship", "token_type")):
            continue
        for old, new in (("cls.predictions.bias", "vocab_projector.bias"),
                         ("cls.predictions.transform.dense", "vocab_transform"),
                         ("cls.predictions.transform.LayerNorm", "vocab_layer_norm"), ("bert.encoder", "bert.transformer"),
                         ("self.query", "q_lin"), ("self.key", "k_lin"), ("self.value", "v_lin"),
                         ("attention.output.dense", "attention.out_lin"), ("attention.output.LayerNorm", "sa_layer_norm"),
                         ("output.LayerNorm", "output_layer_norm"), ("intermediate.dense", "ffn.lin1"),
                         ("output.dense", "ffn.lin2")):
            name = name.replace(old, new)
        yield ("distil" + name if name.startswith("bert.") else name), shape


def gpt2(config):
    yield from [("transformer.wte.weight", (config["vocab_size"], WIDTH)), ("transformer.wpe.weight", (CONTEXT, WIDTH))]
    for i in range(LAYERS):
        at = "transformer.h.%d." % i
        yield from norm(at + "ln_1") + norm(at + "ln_2")
        for name, into, out in (("attn.c_attn", WIDTH, 3 * WIDTH), ("attn.c_proj", WIDTH, WIDTH),
                                ("mlp.c_fc", WIDTH, 4 * WIDTH), ("mlp.c_proj", 4 * WIDTH, WIDTH)):
            yield from [(at + name + ".weight", (into, out)), (at + name + ".bias", (out,))]
    yield from norm("transformer.ln_f")


def llama(config):
    heads = config["num_attention_heads"]
    dim = config.get("head_dim") or WIDTH // heads
    kv = (config.get("num_key_value_heads") or heads) * dim
    yield from [("model.embed_tokens.weight", (config["vocab_size"], WIDTH)), ("model.norm.weight", (WIDTH,)),
                ("lm_head.weight", (config["vocab_size"], WIDTH))]
    for i in range(LAYERS):
        at = "model.layers.%d." % i
        yield from [(at + "input_layernorm.weight", (WIDTH,)), (at + "post_attention_layernorm.weight", (WIDTH,))]
        for name, into, out in (("self_attn.q_proj", WIDTH, heads * dim), ("self_attn.k_proj", WIDTH, kv),
                                ("self_attn.v_proj", WIDTH, kv), ("self_attn.o_proj", heads * dim, WIDTH),
                                ("mlp.gate_proj", WIDTH, HIDDEN), ("mlp.up_proj", WIDTH, HIDDEN),
                                ("mlp.down_proj", HIDDEN, WIDTH)):
            yield (at + name + ".weight", (out, into))


def qwen2(config):
    for name, shape in llama(config):
        yield name, shape
        if any(part in name for part in (".q_proj", ".k_proj", ".v_proj")):
            yield name.replace("weight", "bias"), shape[:1]


def gemma(config):
    yield from (pair for pair in llama(config) if pair[0] != "lm_head.weight")


def phi3(config):
    """Matrices that lie side by side: of the first's name, their rows in one."""
    joined, found = {"q_proj": "qkv_proj", "gate_proj": "gate_up_proj"}, {}
    for name, shape in llama(config):
        part = name.split(".")[-2]
        if part in ("k_proj", "v_proj", "up_proj"):
            found[last] = (found[last][0] + shape[0], *shape[1:])
        else:
            last = name.replace(part, joined.get(part, part))
            found[last] = shape
    yield from found.items()


NAMES = {"bert": bert, "roberta": roberta, "xlm-roberta": roberta, "distilbert": distilbert, "gpt2": gpt2, "llama": llama,
         "mistral": llama, "qwen2": qwen2, "phi3": phi3, "gemma": gemma}


def numbers(name, shape):
    """-> (shape, values), which follow from the name."""
    count = 1
    for n in shape:
        count *= n
    draw = random.Random(name)
    return shape, [draw.uniform(-0.3, 0.3) for _ in range(count)]


def tensors(config):
    """-> {name: (shape, values)} of a model, as transformers names them today."""
    return {name: numbers(name, shape) for name, shape in NAMES[config["model_type"]](config)}


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w") as file:
        json.dump(value, file, indent=1, ensure_ascii=False)


def write(folder, config, weights):
    os.makedirs(folder, exist_ok=True)
    header, body, at = {}, [], 0
    for name, (shape, values) in weights.items():
        data = struct.pack("<%df" % len(values), *values)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + len(data)]}
        body.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(body))
    write_json(folder, "config.json", config)


def byte_tokens():
    """The characters that stand for bytes in byte-level tokenizers."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in keep else chr(next(others)) for b in range(256)]


def write_tokenizer(folder, added):
    """A byte-level tokenizer: 256 bytes, and the added tokens behind them."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    write_json(folder, "tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": 256 + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i, text in enumerate(added)],
        "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {c: i for i, c in enumerate(sorted(byte_tokens()))}, "merges": []}})
