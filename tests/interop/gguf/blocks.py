"""A GGUF file as the base of a training: every frozen weight that adapters leave alone goes out with the bytes
with which it came in, and with the values that gguf reads, whichever blocks a file has; files in
every type of blocks are read. And chat templates with names go out and come back."""
import json
import os
import tempfile

import folders
import numpy as np
from files import choir, tensors, values
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter

SCALES = {"Q8_0": (34, [0]), "Q4_0": (18, [0]), "Q5_0": (22, [0]), "Q4_K": (144, [0, 2]), "Q6_K": (210, [208]),
          "Q4_1": (20, [0, 2]), "Q5_1": (24, [0, 2]), "Q2_K": (84, [80, 82]), "Q3_K": (110, [108]),
          "Q5_K": (176, [0, 2])}
ADAPTED = ("attn_q.weight", "attn_v.weight", "attn_qkv.weight")


def random_blocks(random, kind, count):
    """Codes which no encoder would choose; small scales."""
    size, scales = SCALES[kind]
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    for at in scales:
        blocks[:, at:at + 2] = random.uniform(-2e-3, 2e-3, count).astype(np.float16)[:, None].view(np.uint8)
    return blocks


def shuffle(path):
    """Other codes in all blocks."""
    random = np.random.default_rng(38)
    count = 0
    for name, t in tensors(path).items():
        if t.tensor_type.name not in SCALES:
            continue
        blocks = random_blocks(random, t.tensor_type.name, int(t.n_bytes) // SCALES[t.tensor_type.name][0])
        with open(path, "r+b") as file:
            file.seek(int(t.data_offset))
            file.write(blocks.tobytes())
        count += 1
    return count


def check(family, width, kind, strategy=()):
    with tempfile.TemporaryDirectory() as work:
        def at(*names):
            return os.path.join(work, *names)
        folders.make(family, width, at("folder"))
        choir("export", at("folder"), at("in"), "--format", "gguf", "--dtype", kind)
        base = at("in", "model.gguf")
        assert shuffle(base) >= 8, "%s %s: few tensors in blocks" % (family, kind)
        with open(at("text.txt"), "w") as file:
            file.writelines(text + "\n" for text in folders.TEXTS * 16)
        choir("train", at("text.txt"), "--model", base, "--lora", "r=2", "--steps", "1", "--batch-size", "2",
              "--no-eval", "--quiet", "--save", at("run"), *strategy)
        for model, name in (base, "same"), (at("run"), "tuned"):
            choir("export", model, at(name), "--format", "gguf", "--dtype", kind)
            choir("export", model, at(name + "-f32"), "--format", "gguf", "--dtype", "f32")
        before = tensors(base)
        for name in "same", "tuned":
            after, wide = tensors(at(name, "model.gguf")), tensors(at(name + "-f32", "model.gguf"))
            assert set(before) == set(after) == set(wide)
            kept = 0
            for tensor, t in before.items():
                if name == "tuned" and tensor.endswith(ADAPTED):
                    continue
                assert np.array_equal(values(t), values(wide[tensor])), "%s %s: %s has other values" % (
                    family, kind, tensor)
                if t.tensor_type.name in SCALES and after[tensor].tensor_type == t.tensor_type:
                    assert t.data.tobytes() == after[tensor].data.tobytes(), "%s %s: %s has other blocks" % (
                        family, kind, tensor)
                    kept += 1
            assert kept >= (4 if name == "tuned" else 8), (family, kind, kept)
        print("%s %s: %d tensors keep their blocks" % (family, kind, kept))


def in_kind(source, path, kind):
    """Writes the file with its matrices in random blocks of a type, whether Choir writes that type or not."""
    reader, random = GGUFReader(source), np.random.default_rng(7)
    writer = GGUFWriter(path, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            writer.add_key_value(field.name, field.contents(), field.types[0],
                                 field.types[-1] if len(field.types) > 1 else None)
    count = 0
    for t in reader.tensors:
        rows = tuple(reversed([int(n) for n in t.shape]))
        each = 256 if kind.endswith("K") else 32
        if len(rows) == 2 and rows[1] % each == 0:
            blocks = random_blocks(random, kind, rows[0] * rows[1] // each)
            writer.add_tensor(t.name, blocks.reshape(rows[0], -1), raw_dtype=GGMLQuantizationType[kind])
            count += 1
        else:
            writer.add_tensor(t.name, values(t))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return count


def every_kind():
    """Files in each type are read as gguf reads them, and trained beside their blocks, or beside f32, to the
    same bits, under two strategies."""
    with tempfile.TemporaryDirectory() as work:
        def at(*names):
            return os.path.join(work, *names)
        folders.make("llama", 256, at("folder"))
        choir("export", at("folder"), at("in"), "--format", "gguf", "--dtype", "f32")
        with open(at("text.txt"), "w") as file:
            file.writelines(text + "\n" for text in folders.TEXTS * 16)
        for kind in SCALES:
            base, wide = at(kind + ".gguf"), at(kind + "-f32")
            assert in_kind(at("in", "model.gguf"), base, kind) >= 8
            choir("export", base, wide, "--format", "gguf", "--dtype", "f32")
            ours = tensors(os.path.join(wide, "model.gguf"))
            for name, t in tensors(base).items():
                assert np.array_equal(values(t).view(np.uint32), values(ours[name]).view(np.uint32)), (kind, name)
            sums = set()
            for more in ([], ["--base", "f32"], ["--strategy", "fsdp", "--nproc", "2"]):
                lines = choir("train", at("text.txt"), "--model", base, "--lora", "r=2", "--steps", "2", "--batch-size",
                              "2", "--microbatches", "2", "--no-eval", "--json", *more).splitlines()
                sums.add(json.loads(lines[-1])["weights_sha256"])
            assert len(sums) == 1, (kind, sums)
            print("%s: values equal, and steps" % kind)


def templates():
    """Templates with names, as transformers has them in files and gguf under keys."""
    named = {"default": folders.CHAT, "tool use": "{{ messages | length }} tools", "rag": "{{ 'rag' }}"}
    with tempfile.TemporaryDirectory() as work:
        folder, out, back = (os.path.join(work, name) for name in ("folder", "out", "back"))
        _, fast = folders.make("llama", 64, folder)
        fast.chat_template = dict(named)
        fast.save_pretrained(folder)
        choir("export", folder, out, "--format", "gguf", "--dtype", "f32")
        fields = GGUFReader(os.path.join(out, "model.gguf")).fields
        assert fields["tokenizer.chat_template"].contents() == named["default"]
        assert fields["tokenizer.chat_template.tool_use"].contents() == named["tool use"]
        assert fields["tokenizer.chat_template.rag"].contents() == named["rag"]
        assert sorted(fields["tokenizer.chat_templates"].contents()) == ["rag", "tool_use"]
        choir("checkpoint", "convert", os.path.join(out, "model.gguf"), back)
        again = folders.transformers.AutoTokenizer.from_pretrained(back).chat_template
        assert again == {"default": named["default"], "tool_use": named["tool use"], "rag": named["rag"]}, again
        print("templates: equal")


if __name__ == "__main__":
    check("llama", 256, "q4_K_M")
    check("llama", 256, "q8_0", ("--strategy", "ddp", "--nproc", "2", "--microbatches", "2"))
    check("qwen2", 64, "q4_0")
    check("gemma2", 64, "q4_K_M")
    every_kind()
    templates()
