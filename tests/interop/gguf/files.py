"""GGUF files beside the package gguf: tensors have the bytes that it writes for the folder's weights, it
reads them as Choir does, and a file comes back as a folder with the same scores."""
import json
import os
import subprocess
import sys
import tempfile

import folders
import numpy as np
from gguf import GGUFReader, quants

CHOIR = os.environ.get("CHOIR", os.path.join(os.path.dirname(__file__), "..", "..", "..", "build", "choir"))


def choir(*args):
    done = subprocess.run([CHOIR, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    if done.returncode:
        raise AssertionError("choir %s: %s" % (" ".join(args), done.stderr.decode()))
    return done.stdout.decode()


def supported(folder):
    """Returns whether Choir builds models of the family."""
    done = subprocess.run([CHOIR, "export", folder, folder + "-as-it-is", "--format", "hf"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return not done.returncode or b"model_type" not in done.stderr


def tensors(path):
    return {t.name: t for t in GGUFReader(path).tensors}


def values(t):
    return quants.dequantize(t.data, t.tensor_type).reshape(tuple(reversed([int(n) for n in t.shape])))


def written_bytes(f32, path, kind):
    """Every tensor of the type has the bytes that gguf writes."""
    count = 0
    for name, t in tensors(path).items():
        if t.tensor_type.name != kind:
            continue
        want = quants.quantize(values(f32[name]), t.tensor_type)
        assert np.array_equal(np.asarray(t.data).view(np.uint8).ravel(), want.view(np.uint8).ravel()), \
            "%s: %s differs from gguf's" % (path, name)
        count += 1
    assert count >= 8, "%s: %d tensors of %s" % (path, count, kind)


def mixture(path):
    kinds = {name: t.tensor_type.name for name, t in tensors(path).items()}
    assert kinds["output.weight"] == "Q6_K" and kinds["token_embd.weight"] == "Q4_K", kinds
    assert kinds["blk.1.ffn_down.weight"] == "Q6_K" and kinds["blk.0.attn_q.weight"] == "Q4_K", kinds
    assert kinds["blk.0.attn_norm.weight"] == "F32", kinds


def rope_of(path):
    """What a config.json says of rotary positions that are scaled as llama3's."""
    with open(path) as file:
        config = json.load(file)
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    keys = "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"
    return [rope[key] for key in keys] if rope.get("rope_type") == "llama3" else None


def comes_back(folder, work, tokenizer):
    """A file becomes a folder with the weights, sizes and ids of the first one."""
    from safetensors.numpy import load_file
    choir("checkpoint", "convert", os.path.join(work, "f32", "model.gguf"), os.path.join(work, "back"))
    one = load_file(os.path.join(folder, "model.safetensors"))
    two = load_file(os.path.join(work, "back", "model.safetensors"))
    plus_one = "gemma" in folder
    for name in two:
        same = np.array_equal(one[name], two[name])
        assert same or (plus_one and np.allclose(one[name], two[name], atol=1e-6)), name
    rope = [rope_of(os.path.join(path, "config.json")) for path in (folder, os.path.join(work, "back"))]
    assert rope[0] == rope[1], rope  # llama3's comes out of a tensor
    again = folders.transformers.AutoTokenizer.from_pretrained(os.path.join(work, "back"))
    for text in folders.TEXTS:
        assert tokenizer.encode(text) == again.encode(text), (tokenizer.encode(text), again.encode(text))
        assert tokenizer.decode(tokenizer.encode(text)) == again.decode(again.encode(text))
    assert tokenizer.chat_template == again.chat_template
    if tokenizer.chat_template:  # answers end with <|end|>, which the folder does not name
        turn = tokenizer.convert_tokens_to_ids("<|end|>")
        fields = GGUFReader(os.path.join(work, "f32", "model.gguf")).fields
        assert fields["tokenizer.ggml.eot_token_id"].contents() == turn, fields["tokenizer.ggml.eot_token_id"]
        with open(os.path.join(work, "back", "config.json")) as file:
            assert json.load(file)["eos_token_id"] == [tokenizer.eos_token_id, turn]


def check(family, width):
    with tempfile.TemporaryDirectory() as work:
        folder = os.path.join(work, family)
        _, tokenizer = folders.make(family, width, folder)
        if not supported(folder):
            return print("%s: not built here" % family)
        for kind in ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_K_M"):
            choir("export", folder, os.path.join(work, kind), "--format", "gguf", "--dtype", kind)
        f32 = tensors(os.path.join(work, "f32", "model.gguf"))
        for kind in ("F16", "BF16", "Q8_0", "Q4_0"):
            written_bytes(f32, os.path.join(work, kind.lower(), "model.gguf"), kind)
        if family == "llama":
            mixture(os.path.join(work, "q4_K_M", "model.gguf"))
        comes_back(folder, work, tokenizer)
        print("%s: equal" % family)


def two_files():
    """A tokenizer of GPT-2's two files leaves with its model as one file that transformers reads."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    files = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "golden", "tokenizers", "gpt2", name)
             for name in ("vocab.json", "merges.txt")]
    theirs = Tokenizer(models.BPE.from_file(*files))
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = decoders.ByteLevel()
    with tempfile.TemporaryDirectory() as work:
        run, folder = os.path.join(work, "run"), os.path.join(work, "folder")
        choir("train", "--quiet", "--model", "gpt2:layers=1,heads=1,width=8,context=8", "--tokenizer",
              os.path.dirname(files[0]), "--steps", "1", "--batch-size", "1", "--no-eval", "--save", run)
        choir("export", run, folder, "--format", "hf")
        ours = folders.transformers.AutoTokenizer.from_pretrained(folder)
    for text in folders.TEXTS:
        ids = theirs.encode(text).ids
        assert ours.encode(text) == ids and ours.decode(ids) == theirs.decode(ids), text
    print("two files: equal")


if __name__ == "__main__":
    if not sys.argv[1:]:
        two_files()
    for name in sys.argv[1:] or folders.FAMILIES:
        check(name, 256 if name == "llama" else 64)
