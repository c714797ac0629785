"""Adapters beside peft: the same scores from Choir and peft with one adapter, both ways; the same steps
of SGD and AdamW; a folder of merged weights that transformers reads, with the same scores."""
import ctypes
import json
import os
import subprocess
import sys
import tempfile

import need  # first: it skips without PyTorch

try:
    os.environ["HF_HUB_OFFLINE"] = "1"  # everything is made here
    import peft
    import transformers
except ImportError as why:
    print("skipped: no peft beside transformers (pip install peft): %s" % why)
    sys.exit(77)

import numpy as np
import torch
from choir import C, Run, Module, options, ROOT

CHOIR = os.environ.get("CHOIR", os.path.join(ROOT, "build", "choir"))
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
VOCAB, SIDE = 61, 32
ALL = ctypes.create_string_buffer(b"all-linear")


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=SIDE, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32))


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCAB, n_embd=SIDE, n_layer=2, n_head=4, n_positions=32, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0))


def bert_config(**more):
    return transformers.BertConfig(
        vocab_size=VOCAB, hidden_size=SIDE, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=32, hidden_dropout_prob=0,
        attention_probs_dropout_prob=0, **more)


MODELS = {
    "llama": (llama, transformers.AutoModelForCausalLM, {"task_type": "CAUSAL_LM"}),
    "gpt2": (gpt2, transformers.AutoModelForCausalLM, {"task_type": "CAUSAL_LM"}),
    "bert": (lambda: transformers.BertForMaskedLM(bert_config()), transformers.AutoModelForMaskedLM, {}),
    "classifier": (lambda: transformers.BertForSequenceClassification(bert_config(num_labels=3)),
                   transformers.AutoModelForSequenceClassification, {"task_type": "SEQ_CLS"}),
}
KINDS = [
    {"r": 4, "lora_alpha": 8},
    {"r": 3, "lora_alpha": 5, "use_rslora": True, "target_modules": "all-linear"},
    {"r": 2, "lora_alpha": 2, "layers_to_transform": [1]},
]


def near(what, ours, theirs, most=2e-6):
    off = np.abs(ours - theirs).max() / np.abs(theirs).max()
    assert off <= most, "%s: %g of the largest number" % (what, off)


def scores_of(model, ids):
    with torch.no_grad():
        return model(torch.from_numpy(ids)).logits.numpy()


def ours(run, base, adapter=None):
    net = Module(C.model(run, base, None))
    C.scope_status(run)
    if adapter:
        C.adapter_load(net, None, adapter)
    return net


def our_scores(run, net, ids):
    with run.step() as step:
        return net(step.tensor(ids)).numpy()


def make_peft(kind, base, settings, task):
    """A peft model whose adapters are not zero."""
    model = kind.from_pretrained(base)
    if "layers_to_transform" in settings:
        names = {"gpt2": ["c_attn"], "llama": ["q_proj", "up_proj"]}.get(model.config.model_type, ["query"])
        settings = dict(settings, target_modules=names)
    made = peft.get_peft_model(model, peft.LoraConfig(init_lora_weights=False, **settings, **task))
    with torch.no_grad():
        for name, p in made.named_parameters():
            if "modules_to_save" in name:
                p.add_(torch.randn_like(p) * 0.05)
    return made.eval()


def train_theirs(model, ids, target, kind):
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.SGD(trained, lr=0.1) if kind == "sgd" else torch.optim.AdamW(
        trained, lr=1e-3, weight_decay=0.01)
    losses = []
    for _ in range(3):
        opt.zero_grad()
        logits = model(torch.from_numpy(ids)).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), torch.from_numpy(target))
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


def train_ours(run, net, ids, target, kind):
    if kind == "sgd":
        opt = C.sgd(run, net, options(C.sgd_defaults, lr=0.1))
    else:
        opt = C.adamw(run, net, options(C.adamw_defaults, lr=1e-3, weight_decay=0.01))
    losses = []
    for _ in range(3):
        with run.step() as step:
            logits = net(step.tensor(ids))
            wide = logits.shape[-1]
            loss = C.cross_entropy(C.reshape(logits, (len(target), wide)), step.tensor(target))
            losses.append(loss.item())
            C.backward(loss)
            C.optim_step(opt)
    return losses


def compare_steps(name, base, adapter, kind, task):
    rng = np.random.default_rng(3)
    ids = rng.integers(1, VOCAB, (4, 12))
    target = rng.integers(0, 3, 4) if name == "classifier" else rng.integers(1, VOCAB, 48)
    for rule in "sgd", "adamw":
        theirs = peft.PeftModel.from_pretrained(kind.from_pretrained(base), adapter, is_trainable=True)
        want = train_theirs(theirs, ids, target, rule)
        with Run() as run:
            net = ours(run, base, adapter)
            got = train_ours(run, net, ids, target, rule)
            near("%s, %s: losses" % (name, rule), np.array(got), np.array(want), 1e-5)
            for full, t in net.tensors(buffers=False).items():
                for theirs_name, p in theirs.named_parameters():
                    plain = theirs_name.replace("base_model.model.", "").replace(".default", "")
                    if plain.replace(".modules_to_save", "") == full and p.requires_grad:
                        near("%s, %s: %s" % (name, rule, full), t.numpy(), p.detach().numpy(), 2e-4)


def check_model(model):
    make, kind, task = MODELS[model]
    name = "of/" + model
    torch.manual_seed(1)
    make().save_pretrained(name)
    ids = np.random.default_rng(2).integers(1, VOCAB, (2, 16))
    for i, settings in enumerate(KINDS):
        adapter, again = "%s-%d" % (name, i), "%s-%d-again" % (name, i)
        theirs = make_peft(kind, name, settings, task)
        theirs.save_pretrained(adapter)
        want = scores_of(theirs, ids)
        with Run() as run:
            net = ours(run, name, adapter)
            near(adapter, our_scores(run, net, ids), want)
            os.mkdir(again)
            C.adapter_save(net, name, again)
        back = peft.PeftModel.from_pretrained(kind.from_pretrained(name), again).eval()
        near(again, scores_of(back, ids), want)
        check_merged(name, adapter, kind, ids, scores_of(theirs.merge_and_unload(), ids))
    compare_steps(model, name, name + "-0", kind, task)


def check_merged(name, adapter, kind, ids, want):
    merged = adapter + "-merged"
    subprocess.run([CHOIR, "export", name, merged, "--format", "hf", "--adapter", adapter], check=True)
    near(merged, scores_of(kind.from_pretrained(merged).eval(), ids), want)
    for file in "config.json", "generation_config.json":
        if os.path.exists(os.path.join(name, file)):
            with open(os.path.join(name, file)) as a, open(os.path.join(merged, file)) as b:
                assert json.load(a) == json.load(b), file


def check_tied():
    """Embeddings that are trained whole are the head's, too, where the two are one."""
    torch.manual_seed(4)
    made = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=SIDE, intermediate_size=48, num_hidden_layers=1,
        num_attention_heads=4, max_position_embeddings=32, tie_word_embeddings=True))
    made.save_pretrained("of/tied")
    subprocess.run([CHOIR, "train", "--quiet", "--model", "of/tied", "--lora", "r=2,modules_to_save=embed_tokens",
                    "--lr", "0.02", "--steps", "4", "--batch-size", "4", "--no-eval", "--save", "tied", "random"],
                   check=True, stdout=subprocess.DEVNULL)
    ids = np.random.default_rng(2).integers(1, VOCAB, (2, 16))
    kind = transformers.AutoModelForCausalLM
    for source, more in (("tied", []), ("of/tied", ["--adapter", "tied-peft"])):
        whole = "whole-%d" % len(more)
        if not more:
            subprocess.run([CHOIR, "export", source, "tied-peft", "--format", "peft"], check=True)
        subprocess.run([CHOIR, "export", source, whole, "--format", "hf", *more], check=True)
        theirs = peft.PeftModel.from_pretrained(kind.from_pretrained("of/tied"), "tied-peft").eval()
        near(whole, scores_of(kind.from_pretrained(whole).eval(), ids), scores_of(theirs, ids))
    # peft saves embeddings that it has not trained, if it is asked to
    theirs = peft.get_peft_model(kind.from_pretrained("of/tied"), peft.LoraConfig(
        r=2, task_type="CAUSAL_LM", init_lora_weights=False))
    theirs.save_pretrained("embeds", save_embedding_layers=True)
    with Run() as run:
        near("embeddings", our_scores(run, ours(run, "of/tied", "embeds"), ids), scores_of(theirs.eval(), ids))
    # one of the two alone is a copy for peft, unless it is told to tie them
    for module in "embed_tokens", "lm_head":
        theirs = peft.get_peft_model(kind.from_pretrained("of/tied"), peft.LoraConfig(
            r=2, task_type="CAUSAL_LM", modules_to_save=[module]))
        theirs.save_pretrained("half-" + module)
        refused = subprocess.run([CHOIR, "export", "of/tied", "never", "--format", "hf", "--adapter", "half-" + module],
                                 stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        assert b"save the adapter with ensure_weight_tying=True" in refused.stderr, refused.stderr
    # an adapted head comes with a copy of the base's weight
    theirs = peft.get_peft_model(kind.from_pretrained("of/llama"), peft.LoraConfig(
        r=2, task_type="CAUSAL_LM", init_lora_weights=False, target_modules=["q_proj", "lm_head"]))
    theirs.save_pretrained("head")
    with Run() as run:
        near("head", our_scores(run, ours(run, "of/llama", "head"), ids), scores_of(theirs.eval(), ids))
    # beside tables that are trained whole, the parts of their wrappers
    theirs = peft.get_peft_model(kind.from_pretrained("of/llama"), peft.LoraConfig(
        r=2, task_type="CAUSAL_LM", init_lora_weights=False, modules_to_save=["embed_tokens", "lm_head"]))
    with torch.no_grad():
        for name, p in theirs.named_parameters():
            if "modules_to_save" in name:
                p += 0.1 * torch.randn_like(p)
    theirs.save_pretrained("parts", save_embedding_layers=True)
    with Run() as run:
        near("parts", our_scores(run, ours(run, "of/llama", "parts"), ids), scores_of(theirs.eval(), ids))
    # tokens that the base has no rows for
    larger = kind.from_pretrained("of/llama")
    larger.resize_token_embeddings(VOCAB + 2)
    peft.get_peft_model(larger, peft.LoraConfig(r=2, task_type="CAUSAL_LM", modules_to_save=["embed_tokens", "lm_head"])
                        ).save_pretrained("larger")
    refused = subprocess.run([CHOIR, "export", "of/llama", "never", "--format", "hf", "--adapter", "larger"],
                             stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert b"model.resize_token_embeddings(%d)" % (VOCAB + 2) in refused.stderr, refused.stderr


def check_new_adapters():
    """choir_lora chooses peft's layers, and starts from the model as it is."""
    for name in "llama", "gpt2", "bert":
        kind, task = MODELS[name][1:]
        for targets in None, "all-linear":
            theirs = peft.get_peft_model(kind.from_pretrained("of/" + name), peft.LoraConfig(
                r=4, target_modules=targets, **task))
            want = {n.replace("base_model.model.", "").replace(".default", ""): tuple(p.shape)
                    for n, p in theirs.named_parameters() if "lora_" in n}
            with Run() as run:
                net = ours(run, "of/" + name)
                C.lora(net, options(C.lora_defaults, rank=4, targets=targets and ctypes.addressof(ALL)))
                got = {n: t.shape for n, t in net.tensors().items() if "lora_" in n}
            assert got == want, (name, targets, set(got) ^ set(want))


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.mkdir("of")  # a path, where "llama" is a model of Choir's own
        for name in MODELS:
            check_model(name)
        check_new_adapters()
        check_tied()
        os.chdir("/")


main()
