"""Texts beside transformers: processed scores, greedy tokens with and without a repetition penalty, and the
token with which a tokenizer begins texts, in documents and in prompts."""
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


def begins_texts(path):
    """A tokenizer of bytes that writes <s> in front of each text, as Llama 3's."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, processors, trainers
    t = tokenizers.Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.train_from_iterator([TEXT], trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<s>", "</s>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", t.token_to_id("<s>"))])])
    t.save(path)


@case
def beginnings():
    with tempfile.TemporaryDirectory() as folder:
        data, file, save = (os.path.join(folder, name) for name in ("texts.jsonl", "tokenizer.json", "run"))
        begins_texts(file)
        with open(data, "w") as out:
            for i in range(40):
                out.write(json.dumps({"text": TEXT[i:i + 20 + i % 7]}) + "\n")
        subprocess.run([command.CHOIR, "train", "--json", "--model", "llama:layers=1,heads=2,width=16,context=32",
                        "--tokenizer", file, "--pack", "--steps", "1", "--batch-size", "2", "--lr", "0.01", "--no-eval",
                        "--save", save, data], check=True, stdout=subprocess.PIPE)
        texts = [command.CHOIR, "generate", save, "--temperature", "0", "--tokens", "8", "--json", "--prompt"]
        theirs = AutoModelForCausalLM.from_pretrained(os.path.join(save, "latest")).eval()
        words = transformers.AutoTokenizer.from_pretrained(os.path.join(save, "latest"))
        total, count = 0.0, 0
        with open(data) as documents:
            for line in documents:
                ids = torch.tensor([words(json.loads(line)["text"]).input_ids + [words.convert_tokens_to_ids("</s>")]])
                total += theirs(ids, labels=ids).loss.item() * (ids.shape[1] - 1)
                count += ids.shape[1] - 1
        out = subprocess.run([command.CHOIR, "eval", "--json", "--whole", save, data], check=True,
                             stdout=subprocess.PIPE).stdout
        loss = json.loads(out.splitlines()[-1])["loss"]
        assert abs(loss - total / count) < 1e-5, (loss, total / count)
        for prompt in (TEXT[:9], TEXT[40:43]):
            ids = words(prompt, return_tensors="pt").input_ids
            assert words.decode(ids[0, 0]) == "<s>"
            made = theirs.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=8,
                                   eos_token_id=1, pad_token_id=0)
            for ask in (prompt, "<s>" + prompt):
                found = json.loads(subprocess.run(texts + [ask], check=True, stdout=subprocess.PIPE).stdout)
                assert found["tokens"] == made[0, ids.shape[1]:].tolist(), (ask, found, made)


main()
