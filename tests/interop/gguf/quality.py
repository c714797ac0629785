"""What types of weights cost: the mean Kullback-Leibler divergence of the next token's probabilities from those
of the f32 file, of a small model that was trained. 16 bits and q8_0 keep it below 1e-3, blocks of 4 bits below
1e-2."""
import os
import tempfile

import folders
from files import choir

torch = folders.torch
GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "golden", "tokenizers", "gpt2")
KINDS = {"f16": 1e-3, "bf16": 1e-3, "q8_0": 1e-3, "q4_0": 1e-2, "q4_K_M": 1e-2}


def scores(folder, ids):
    model = folders.transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return torch.log_softmax(model(ids).logits.double(), -1)


with tempfile.TemporaryDirectory() as work:
    def at(*names):
        return os.path.join(work, *names)
    choir("train", "--model", "llama:layers=2,heads=4,kv_heads=2,width=256,hidden=512,context=64", "--tokenizer", GOLDEN,
          "--steps", "60", "--batch-size", "8", "--lr", "0.003", "--no-eval", "--quiet", "--save", at("run"))
    torch.manual_seed(1)
    ids, costs = None, {}
    for kind in ["f32", *KINDS]:
        choir("export", at("run"), at(kind), "--format", "gguf", "--dtype", kind)
        choir("checkpoint", "convert", at(kind, "model.gguf"), at(kind + "-folder"))
        if ids is None:  # texts of the model itself, which are what it knows
            model = folders.transformers.AutoModelForCausalLM.from_pretrained(at("f32-folder"), dtype=torch.float32)
            ids = model.generate(torch.arange(8)[:, None] + 40, max_length=64, do_sample=True, pad_token_id=0,
                                 eos_token_id=None)
            want = scores(at("f32-folder"), ids)
            entropy = -(want.exp() * want).sum(-1).mean().item()
            uniform = torch.log(torch.tensor(float(want.shape[-1]))).item()
            assert entropy < 0.9 * uniform, "the model knows too little: %g of %g nats" % (entropy, uniform)
            continue
        now = scores(at(kind + "-folder"), ids)
        costs[kind] = (want.exp() * (want - now)).sum(-1).mean().item()
        print("%-7s mean KL %.3g" % (kind, costs[kind]))
    for kind, most in KINDS.items():
        assert 0 <= costs[kind] <= most, (kind, costs[kind])
