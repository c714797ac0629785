"""Texts beside transformers: processed scores, and greedy tokens with and without a repetition penalty."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import need  # first: it skips without PyTorch

try:
    import transformers
    from transformers import AutoModelForCausalLM, LogitsProcessorList
    from transformers.generation.logits_process import (
        MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper, TopKLogitsWarper,
        TopPLogitsWarper)
except ImportError as why:
    print("skipped: no transformers (pip install transformers): %s" % why)
    sys.exit(77)

from check import C, case, main
import choir  # noqa: F401
import command
import numpy as np
import torch

transformers.logging.set_verbosity_error()
TEXT = "".join(chr(97 + i * i % 23) for i in range(900))


@case
def scores():
    for penalty, heat, k, p, least in ((1.3, 1, 0, 1, 0), (1, 0.7, 5, 1, 0), (1, 1, 0, 0.8, 0),
                                       (1, 1.5, 0, 1, 0.2), (1.2, 0.6, 20, 0.9, 0.05)):
        for seed in range(20):
            torch.manual_seed(seed)
            logits, ids = 3 * torch.randn(1, 60), torch.randint(60, (1, 9))
            steps = [RepetitionPenaltyLogitsProcessor(penalty=float(penalty)), TemperatureLogitsWarper(float(heat))]
            steps += [TopKLogitsWarper(top_k=k)] if k else []
            steps += [TopPLogitsWarper(top_p=p)] if p < 1 else []
            steps += [MinPLogitsWarper(min_p=least)] if least else []
            theirs = LogitsProcessorList(steps)(ids, logits.clone()).numpy()[0]
            ours, opts = logits.numpy()[0].copy(), C.generate_defaults()
            opts.repetition_penalty, opts.temperature, opts.top_k, opts.top_p, opts.min_p = penalty, heat, k, p, least
            known = ids.numpy()[0].copy()
            C.generate_scores(opts, known.ctypes.data, len(known), ours.ctypes.data, len(ours))
            kept = np.isfinite(theirs)
            assert (kept == np.isfinite(ours)).all(), (penalty, heat, k, p, least, seed)
            assert np.allclose(ours[kept], theirs[kept], rtol=1e-6, atol=0)


def check_greedy(model, penalty):
    with tempfile.TemporaryDirectory() as folder:
        data, save = os.path.join(folder, "text"), os.path.join(folder, "run")
        with open(data, "w") as file:
            file.write(TEXT)
        subprocess.run([command.CHOIR, "train", "--json", "--model", model, "--steps", "30", "--batch-size", "8",
                        "--lr", "0.01", "--no-eval", "--save", save, data], check=True, stdout=subprocess.PIPE)
        out = subprocess.run([command.CHOIR, "generate", save, "--prompt", TEXT[:9], "--temperature", "0", "--tokens",
                              "20", "--repetition-penalty", str(penalty), "--json"], check=True,
                             stdout=subprocess.PIPE).stdout
        ours = json.loads(out)["tokens"]
        theirs = AutoModelForCausalLM.from_pretrained(os.path.join(save, "latest")).eval()
        letters = sorted(set(TEXT))
        prompt = torch.tensor([[letters.index(c) for c in TEXT[:9]]])
        made = theirs.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=20,
                               repetition_penalty=float(penalty), eos_token_id=None, pad_token_id=0)
        assert made[0, 9:].tolist() == ours, (model, penalty, made[0, 9:].tolist(), ours)


@case
def greedy():
    sizes = "layers=2,heads=4,width=32,context=32"
    check_greedy("gpt2:" + sizes, 1)
    check_greedy("llama:kv_heads=2,hidden=48," + sizes, 1.5)
    check_greedy("mistral:kv_heads=1,window=6,hidden=48," + sizes, 1)


main()
