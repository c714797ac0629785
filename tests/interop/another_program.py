"""The program of the guide's chapter "My loss differs", as it stands there, on a step of Choir's: PyTorch's
gradients and activations are Choir's within a tolerance, and numbers that are others are named."""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

missing = [name for name in ("torch", "transformers", "safetensors") if importlib.util.find_spec(name) is None]
if missing:
    print("skipped: %s has no %s" % (sys.executable, " and no ".join(missing)))
    sys.exit(77)
from safetensors.torch import load_file, save_file
import folders

HERE = os.path.dirname(os.path.abspath(__file__))
CHOIR = os.path.abspath(os.environ.get("CHOIR", os.path.join(HERE, "..", "..", "build", "choir")))


def program():
    with open(os.path.join(HERE, "..", "..", "docs", "guide.md")) as file:
        guide = file.read()
    begin = guide.index("# theirs.py:")
    return guide[begin:guide.index("```", begin)]


def adapted(network):
    """The program for a network in plain PyTorch, which classifies samples."""
    text = program()
    for line, other in (
            ("from transformers import GPT2LMHeadModel", "sys.path.insert(0, %r)\nimport networks" % HERE),
            ("GPT2LMHeadModel.from_pretrained(folder, **no_dropout)", "networks." + network),
            ("model(x).logits", "model(x)"),
            ("logits.flatten(0, 1), y.flatten()", "logits, y")):
        assert text.count(line) == 1, line
        text = text.replace(line, other)
    return text


def run(*words, status=0):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
    assert done.returncode == status, "%s: %d\n%s" % (words, done.returncode, (done.stdout + done.stderr).decode())
    return done.stdout.decode()


def diff(*options, status=0):
    lines = run(CHOIR, "audit", "diff", "--json", *options, "ours", "theirs.safetensors", status=status).splitlines()
    return {line["tensor"]: line for line in map(json.loads, lines)}


def main():
    config = {**folders.SIZES["gpt2"], "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 256,
              "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}
    folders.write("tiny", config, folders.tensors(config))
    with open("text", "w") as file:
        file.write("the quick brown fox jumps over the lazy dog, and over 12 more of them\n" * 20)
    with open("theirs.py", "w") as file:
        file.write(program())
    run(CHOIR, "train", "--model", "tiny:dropout=0", "--bytes", "--steps", "3", "--run", "ours", "--audit=every=1,dump",
        "--batch-size", "4", "--microbatches", "2", "--no-eval", "--quiet", "text")
    run(sys.executable, "theirs.py", "tiny", "ours", "3")
    found = diff("--tolerance", "1e-4")
    for i in range(folders.LAYERS):
        for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"):
            path = "transformer.h.%d.%s" % (i, name)
            for tensor in ("output." + path, "output_grad." + path, "grad." + path + ".weight"):
                assert found[tensor]["equal"], found[tensor]
    assert found["output.transformer.wte"]["equal"] and found["output_grad.transformer.wte"]["equal"]

    # other outputs: the first that was computed is named, which is not the first name
    tensors = load_file("theirs.safetensors")
    for name in ("output.transformer.h.1", "output.transformer.h.1.mlp.c_fc", "output_grad.transformer.drop"):
        tensors[name] += 1
    save_file(tensors, "skewed.safetensors")
    said = run(CHOIR, "audit", "diff", "--tolerance", "1e-4", "ours", "skewed.safetensors", status=1)
    assert said.endswith("\nfirst in program order: output.transformer.h.1.mlp.c_fc\n"), said

    # other weights: those that the step has left, not those that it read
    os.rename("ours/audit/step-00000003.safetensors", "ours/audit/kept")
    os.link("ours/audit/step-00000001.safetensors", "ours/audit/step-00000003.safetensors")
    wrong = diff("--tolerance", "1e-4", status=1)
    assert not wrong["grad.transformer.h.0.mlp.c_fc.weight"]["equal"], "gradients of another step count as equal"


def classifier(model, network):
    """All gradients and activations of a model that classifies what it gets at random."""
    with open("theirs.py", "w") as file:
        file.write(adapted(network))
    run(CHOIR, "train", "--model", model, "--steps", "3", "--run", "ours", "--audit=every=1,dump", "--batch-size", "8",
        "--microbatches", "1", "--no-eval", "--quiet", "random")
    run(sys.executable, "theirs.py", "-", "ours", "3")
    found = diff("--tolerance", "1e-4")
    for kind in "grad.", "output.", "output_grad.":
        assert sum(tensor.startswith(kind) for tensor in found) > 4, (kind, sorted(found))
    return found


for case in (main, lambda: classifier("mlp:hidden=32", "mlp(784, 32, 10)"),
             lambda: classifier("resnet18:width=8,stages=2,small=1,image=16,channels=3,classes=10",
                                "ResNet(False, (2, 2), 8, 3, 10, small=True)")):
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        case()
