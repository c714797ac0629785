"""Published folders in both directions, beside transformers: the folders that Choir saves load there
with no weight missing, unexpected or misshaped, and give the same scores; folders that transformers
saves give them here; training with padding takes the same steps."""
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile

import need  # first: it skips without PyTorch

try:
    import transformers
    from transformers import (AutoConfig, AutoTokenizer, BertConfig, BertForMaskedLM, BertForSequenceClassification,
                              BertForTokenClassification, DonutSwinConfig, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, LlamaModel,
                              MBartConfig, MistralForCausalLM, VisionEncoderDecoderConfig,
                              VisionEncoderDecoderModel)
    if int(transformers.__version__.split(".")[0]) < 5:
        raise ImportError("version %s, 5 is the oldest that is compared" % transformers.__version__)
except ImportError as why:
    print("skipped: no transformers that is new enough (pip install transformers): %s" % why)
    sys.exit(77)

from check import C, LAYER, Missing, agree, case, main
import choir
import command
import folders
import numpy as np
import torch

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
VOCAB, CONTEXT, PAD = 40, 12, 3
SIZES = "layers=2,heads=2,width=16,context=%d,vocab=%d" % (CONTEXT, VOCAB)
TEXT = "".join(chr(97 + i * i % 23) for i in range(900))


def saved(model, folder, data="random"):
    """Trains a few steps with Choir -> the folder of the checkpoint."""
    if data is None:
        data = os.path.join(folder, "text")
        with open(data, "w") as file:
            file.write(TEXT)
    save = os.path.join(folder, "run")
    subprocess.run([command.CHOIR, "train", "--json", "--model", model, "--steps", "3", "--batch-size", "4",
                    "--no-eval", "--save", save, data], check=True, stdout=subprocess.PIPE)
    return os.path.join(save, "latest")


def loaded(kind, folder):
    """transformers' model of the folder, which must fit exactly."""
    with contextlib.redirect_stderr(io.StringIO()):
        model, info = kind.from_pretrained(folder, output_loading_info=True)
    buffers = [k for k in info["missing_keys"] if "relative_position_index" not in k]
    assert not buffers and not info["unexpected_keys"] and not info["mismatched_keys"], info
    return model.eval()


def scores(folder, *inputs):
    with choir.Run() as run:
        module = run.module(C.model, folder, None).train(False)
        C.scope_status(run)
        with run.step() as step:
            return module(*[step.tensor(np.asarray(x)) for x in inputs]).numpy()


def ids(rows=3, length=CONTEXT, vocab=VOCAB):
    return torch.randint(vocab, (rows, length))


def check_saved(kind, model, data="random"):
    with tempfile.TemporaryDirectory() as folder:
        path = saved(model, folder, data)
        theirs = loaded(kind, path)
        x = ids(vocab=theirs.config.vocab_size)
        agree("scores", scores(path, x), theirs(x).logits)


def randomise(model):
    """Every weight that starts with a constant gets values."""
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.05)
    return model.eval()


@case
def saved_models():
    check_saved(GPT2LMHeadModel, "gpt2:" + SIZES)
    check_saved(BertForMaskedLM, "bert:%s,pad=%d" % (SIZES, PAD))
    check_saved(BertForMaskedLM, "bert:" + SIZES)
    check_saved(BertForSequenceClassification, "bert:%s,classes=3" % SIZES)
    check_saved(BertForTokenClassification, "bert:%s,classes=3,words=1" % SIZES)
    check_saved(LlamaForCausalLM, "llama:%s,attention_bias=1,mlp_bias=1,pad=%d" % (SIZES, PAD))
    check_saved(MistralForCausalLM, "llama:%s,window=5" % SIZES)
    check_saved(MistralForCausalLM, "mistral:%s,window=7,tied=1" % SIZES)


@case
def special_tokens():
    """A small vocabulary has no token 50256, which transformers assumes unless the file says so."""
    with tempfile.TemporaryDirectory() as folder:
        config = AutoConfig.from_pretrained(saved("gpt2:layers=1,heads=2,width=16,context=12", folder, None))
        assert config.bos_token_id is None and config.eos_token_id is None, config


@case
def ends_of_texts():
    """A folder whose config.json names no end gets the one that transformers' tokenizer has, in training and in its
    checkpoint, whose tokenizer is the same."""
    later = {"added_tokens_decoder": {"258": {"content": "<|im_end|>", "special": True}}}
    end = {"content": "</s>", "lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
    for words, names in (({"eos_token": "</s>"}, None), ({"eos_token": {"__type": "AddedToken", **end}}, None),
                         ({"eos_token": "<|im_end|>", "model_max_length": 10 ** 30}, {"eos_token": end}),
                         ({"eos_token": "<|im_end|>", **later}, {"eos_token": "</s>"}),
                         ({"eos_token": "<|im_end|>"}, {"pad_token": "</s>"})):
        with tempfile.TemporaryDirectory() as folder:
            model, data = os.path.join(folder, "model"), os.path.join(folder, "docs.jsonl")
            config = {**folders.SIZES["llama"], "model_type": "llama", "vocab_size": 259}
            folders.write(model, config, folders.tensors(config))
            folders.write_tokenizer(model, ["<|endoftext|>", "</s>", "<|im_end|>"])
            folders.write_json(model, "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **words})
            if names:
                folders.write_json(model, "special_tokens_map.json", names)
            with open(data, "w") as file:
                file.writelines('{"text": "a text, number %d, and its end"}\n' % i for i in range(60))
            before = AutoTokenizer.from_pretrained(model)
            after = saved(model, folder, data)
            assert AutoConfig.from_pretrained(after).eos_token_id == before.eos_token_id, (words, names, before)
            assert AutoTokenizer.from_pretrained(after).eos_token_id == before.eos_token_id, (words, names)


def donut_config(width, **encoder):
    swin = DonutSwinConfig(image_size=[32, 32], patch_size=4, depths=[2, 2], num_heads=[2, 4],
                           embed_dim=16, window_size=4, drop_path_rate=0.0, **encoder)
    mbart = MBartConfig(vocab_size=VOCAB, d_model=width, decoder_layers=2, decoder_attention_heads=2,
                        decoder_ffn_dim=40, max_position_embeddings=CONTEXT, scale_embedding=True,
                        is_decoder=True, add_cross_attention=True, dropout=0.0)
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(swin, mbart)
    config.decoder_start_token_id = config.pad_token_id = 1
    return config


def donut_scores(model, image, tokens):
    with torch.no_grad():
        return model(pixel_values=image, decoder_input_ids=tokens).logits


@case
def donut_saved():
    """With and without a projection from the encoder's width to the decoder's."""
    for width in 24, 32:
        with tempfile.TemporaryDirectory() as folder:
            path = saved("donut:height=32,image_width=32,window=4,embed=16,depths=2-2,heads=2-4,layers=2,"
                         "decoder_heads=2,width=%d,hidden=40,context=%d,vocab=%d" % (width, CONTEXT, VOCAB), folder)
            theirs = loaded(VisionEncoderDecoderModel, path)
            image, tokens = torch.randn(2, 3, 32, 32), ids(2)
            agree("scores", scores(path, image, tokens), donut_scores(theirs, image, tokens))


@case
def donut_loaded():
    for width, eps in (24, 1e-5), (32, 0.01):
        with tempfile.TemporaryDirectory() as folder:
            theirs = randomise(VisionEncoderDecoderModel(config=donut_config(width, layer_norm_eps=eps)))
            theirs.save_pretrained(folder)
            image, tokens = torch.randn(2, 3, 32, 32), ids(2)
            agree("eps %g" % eps, scores(folder, image, tokens), donut_scores(theirs, image, tokens))


def bert_config(**more):
    return BertConfig(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                      intermediate_size=40, max_position_embeddings=CONTEXT, pad_token_id=PAD,
                      hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **more)


def roberta_config(kind, **more):
    return kind(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40,
                max_position_embeddings=CONTEXT + PAD + 1, pad_token_id=PAD, hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0, bos_token_id=1, eos_token_id=2, **more)


ENCODERS = {  # the names of their sizes
    "Bert": bert_config,
    "Roberta": lambda **more: roberta_config(transformers.RobertaConfig, **more),
    "XLMRoberta": lambda **more: roberta_config(transformers.XLMRobertaConfig, **more),
    "Camembert": lambda **more: roberta_config(transformers.CamembertConfig, **more),
    "DistilBert": lambda **more: transformers.DistilBertConfig(
        vocab_size=VOCAB, dim=16, n_layers=2, n_heads=2, hidden_dim=40, max_position_embeddings=CONTEXT,
        pad_token_id=PAD, dropout=0.0, attention_dropout=0.0, **more)}
HEADS = (("MaskedLM", {}), ("SequenceClassification", dict(num_labels=3)),
         ("SequenceClassification", dict(num_labels=1)), ("TokenClassification", dict(num_labels=3)),
         ("SequenceClassification", dict(num_labels=4, problem_type="multi_label_classification")))


def encoder(name, head, more):
    return randomise(getattr(transformers, "%sFor%s" % (name, head))(ENCODERS[name](**more)))


def went_back(folder, kind):
    """-> the model of a checkpoint of one step that changes nothing"""
    save = os.path.join(folder, "run")
    subprocess.run([command.CHOIR, "train", "--json", "--model", folder, "--steps", "1", "--batch-size", "2",
                    "--lr", "0", "--no-eval", "--save", save, "random"], check=True, stdout=subprocess.PIPE)
    return loaded(kind, os.path.join(save, "latest"))


@case
def encoders():
    """Token types and a mask of padding, by all heads: scores, gradients, and back."""
    for name in ENCODERS:
        for head, more in HEADS:
            what = "%s %s %s: " % (name, head, more)
            with tempfile.TemporaryDirectory() as folder:
                theirs = encoder(name, head, more)
                theirs.save_pretrained(folder)
                x, types = ids(), torch.randint(1 if name == "DistilBert" else 2, (3, CONTEXT))
                mask = (torch.arange(CONTEXT) < torch.tensor([[12], [7], [1]])).long()
                x[mask == 0] = PAD
                named = {} if name == "DistilBert" else {"token_type_ids": types}
                expected = theirs(x, attention_mask=mask, **named).logits
                agree(what + "scores", scores(folder, x, types, mask), expected, 2e-6)
                assert float((expected - theirs(x, **named).logits).detach().abs().max()) > 1e-5, what
                x[1, 3] = PAD  # padding inside the text
                agree(what + "ids alone", scores(folder, x), theirs(x).logits, 2e-6)
                weights = torch.randn_like(expected)
                (theirs(x).logits * weights).sum().backward()
                gradients = gradients_of(folder, x, weights)
                for key, p in theirs.named_parameters():
                    if not key.endswith(("key.bias", "k_lin.bias")) and p.grad is not None:
                        key = key.replace("lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight")  # tied
                        agree(what + key, gradients[key], p.grad, 2e-5)
                back = went_back(folder, type(theirs))
                assert back.config.problem_type == more.get("problem_type", back.config.problem_type), back.config
                agree(what + "and back", back(x).logits.detach().numpy(), theirs(x).logits, 1e-6)


def named_as_saved(model):
    """-> {name in the folder's files: parameter}: transformers has other names in memory"""
    renamed = (("vit.layers.", "vit.encoder.layer."), ("attention.o_proj", "attention.output.dense"),
               ("q_proj", "attention.query"), ("k_proj", "attention.key"), ("v_proj", "attention.value"),
               ("mlp.fc1", "intermediate.dense"), ("mlp.fc2", "output.dense"))
    found = {}
    for name, p in model.named_parameters():
        for old, new in renamed:
            name = name.replace(old, new)
        found[name] = p
    return found


VITS = (  # several configurations
    {}, dict(image_size=(12, 20), patch_size=4, num_labels=2), dict(qkv_bias=False, num_channels=1, layer_norm_eps=1e-3),
    dict(image_size=18, patch_size=5, id2label={0: "cat", 1: "dog", 2: "fox"}))


@case
def images():
    """ViT: scores within 2e-6 of the largest, gradients, names of classes, and back."""
    for more in VITS:
        what = "vit %s: " % more
        config = transformers.ViTConfig(**{**dict(
            hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40, image_size=16, patch_size=4,
            num_labels=5), **more})
        with tempfile.TemporaryDirectory() as folder:
            theirs = randomise(transformers.ViTForImageClassification(config))
            theirs.save_pretrained(folder)
            size = config.image_size if isinstance(config.image_size, (tuple, list)) else (config.image_size,) * 2
            x = torch.randn(3, config.num_channels, *size)
            expected = theirs(x).logits
            agree(what + "scores", scores(folder, x), expected, 2e-6)
            weights = torch.randn_like(expected)
            (expected * weights).sum().backward()
            gradients = gradients_of(folder, x, weights)
            for key, t in named_as_saved(theirs).items():
                if not key.endswith("key.bias"):
                    agree(what + key, gradients[key], t.grad, 2e-5)
            back = went_back(folder, type(theirs))
            assert back.config.id2label == config.id2label, back.config
            agree(what + "and back", back(x).logits.detach().numpy(), expected, 1e-7)


PROCESSORS = (  # the sizes of a ViT's, a DeiT's, and of one that keeps the image's shape
    dict(size={"height": 16, "width": 16}), dict(size={"height": 20, "width": 24}, do_center_crop=True, crop_size=16),
    dict(size={"shortest_edge": 18}, do_center_crop=True, crop_size=16, image_mean=[0.4, 0.5, 0.6], image_std=[0.2] * 3),
    dict(size={"height": 16, "width": 16}, do_normalize=False))


@case
def images_prepared():
    """Probabilities of photographs beside those by the folder's own image processor, which rounds pixels to bytes."""
    try:
        from PIL import Image
    except ImportError:
        raise Missing("PIL")
    with tempfile.TemporaryDirectory() as folder:
        theirs = randomise(transformers.ViTForImageClassification(transformers.ViTConfig(
            hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40, image_size=16, patch_size=4,
            num_labels=5)))
        theirs.save_pretrained(folder)
        coarse = np.random.RandomState(1).randint(0, 255, (3, 9, 11, 3)).astype("uint8")
        files = [os.path.join(folder, "%d.png" % i) for i in range(3)]
        for pixels, file, size in zip(coarse, files, ((50, 40), (31, 64), (16, 16))):
            Image.fromarray(pixels).resize(size, Image.BICUBIC).save(file)
        for more in PROCESSORS:
            processor = transformers.ViTImageProcessor(**more)
            processor.save_pretrained(folder)
            out = subprocess.run([command.CHOIR, "predict", "--json", "--top", "5", folder, *files], check=True,
                                 stdout=subprocess.PIPE).stdout.decode().splitlines()
            for file, line in zip(files, out):
                mine = {row["class"]: row["probability"] for row in json.loads(line)["top"]}
                x = processor(Image.open(file), return_tensors="pt")["pixel_values"]
                agree("%s %s" % (more, os.path.basename(file)), np.array([mine[i] for i in range(5)]),
                      theirs(x).logits.softmax(-1)[0], 5e-3)


@case
def images_exported():
    """A ViT that was trained here leaves with the settings of its images, of photographs and of samples' own size."""
    try:
        from PIL import Image
    except ImportError:
        raise Missing("PIL")
    with tempfile.TemporaryDirectory() as folder:
        for size, side in ((50, 40), 37), ((32, 32), 32):  # 32 * 256 / 224
            photos, out = os.path.join(folder, "photos%d" % side), os.path.join(folder, "vit%d" % side)
            coarse = np.random.RandomState(side).randint(0, 255, (8, 9, 11, 3)).astype("uint8")
            files = []
            for i, pixels in enumerate(coarse):
                files.append(os.path.join(photos, "ab"[i % 2], "%d.png" % i))
                os.makedirs(os.path.dirname(files[-1]), exist_ok=True)
                Image.fromarray(pixels).resize(size, Image.BICUBIC).save(files[-1])
            run = os.path.join(folder, "run%d" % side)
            for line in (["train", "--quiet", "--model", "vit:layers=1,heads=2,width=16,patch=8,image=32", "--steps", "4",
                          "--batch-size", "4", "--lr", "0.01", "--save", run, photos], ["export", run, out, "--format", "hf"]):
                subprocess.run([command.CHOIR, *line], check=True, stdout=subprocess.DEVNULL)
            processor = transformers.AutoImageProcessor.from_pretrained(out)
            theirs = transformers.ViTForImageClassification.from_pretrained(out).eval()
            with open(os.path.join(out, "preprocessor_config.json")) as file:
                settings = json.load(file)
            assert settings["size"] == {"shortest_edge": side}, settings
            assert settings["image_mean"] == [0.485, 0.456, 0.406] and settings["rescale_factor"] == 1 / 255, settings
            lines = [subprocess.run([command.CHOIR, "predict", "--json", "--top", "2", model, *files], check=True,
                                    stdout=subprocess.PIPE).stdout.decode().splitlines() for model in (run, out)]
            assert lines[0] == lines[1], "another prediction of the exported folder"
            for file, line in zip(files, lines[0]):
                mine = {row["class"]: row["probability"] for row in json.loads(line)["top"]}
                x = processor(Image.open(file), return_tensors="pt")["pixel_values"]
                agree(os.path.basename(file), np.array([mine[i] for i in range(2)]), theirs(x).logits.softmax(-1)[0], 5e-3)


@case
def images_of_another_size():
    """Positions that are resized when the weights are loaded, larger and smaller."""
    with tempfile.TemporaryDirectory() as folder:
        theirs = randomise(transformers.ViTForImageClassification(transformers.ViTConfig(
            hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=40, image_size=16, patch_size=4,
            num_labels=5)))
        theirs.save_pretrained(folder)
        for size in 24, 12, 36, 4:
            x = torch.randn(2, 3, size, size)
            agree("%d pixels" % size, scores("%s:image=%d" % (folder, size), x),
                  theirs(x, interpolate_pos_encoding=True).logits, 2e-6)


@case
def llama_forms():
    """A folder of the model without a head gets a new one, with a note; "swish" is silu."""
    sizes = dict(vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
                 num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=CONTEXT)
    with tempfile.TemporaryDirectory() as folder:
        theirs = randomise(LlamaForCausalLM(LlamaConfig(hidden_act="swish", **sizes)))
        theirs.save_pretrained(folder)
        x = ids()
        agree("swish", scores(folder, x), theirs(x).logits)
    with tempfile.TemporaryDirectory() as folder:
        LlamaModel(LlamaConfig(**sizes)).save_pretrained(folder)
        assert json.load(open(os.path.join(folder, "config.json")))["architectures"] == ["LlamaModel"]
        notes = choir.c.c_void_p()
        with choir.Run() as run:
            run.module(C.model, folder, choir.c.byref(notes))
            C.scope_status(run)
        assert b"'lm_head.weight' is missing, and starts with new values" in choir.c.string_at(notes.value)


YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8, rope_theta=10000.0)
LONG = dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.1], long_factor=[1.5, 2.3])
FAMILIES = (  # several configurations of each
    ("Qwen2", {}), ("Qwen2", dict(use_sliding_window=True, sliding_window=5, max_window_layers=1)),
    ("Qwen2", dict(rope_parameters=YARN, tie_word_embeddings=True)),
    ("Qwen3", dict(head_dim=12)), ("Qwen3", dict(head_dim=8, attention_bias=True, rope_parameters=YARN)),
    ("Gemma", dict(head_dim=8)), ("Gemma2", dict(head_dim=8, sliding_window=6, query_pre_attn_scalar=20)),
    ("Gemma2", dict(head_dim=8, sliding_window=6, attn_logit_softcapping=2.0, final_logit_softcapping=1.5)),
    ("Gemma2", dict(head_dim=8, attn_logit_softcapping=None, final_logit_softcapping=None)),
    ("Gemma3Text", dict(head_dim=8, sliding_window=6, num_hidden_layers=7)),
    ("Gemma3Text", dict(head_dim=8, sliding_window=6, layer_types=["full_attention", "sliding_attention"],
                        rope_parameters={"full_attention": dict(rope_type="linear", factor=8.0, rope_theta=1e6),
                                         "sliding_attention": dict(rope_type="default", rope_theta=5000.0)})),
    ("Phi3", dict(sliding_window=6, tie_word_embeddings=True)),
    ("Phi3", dict(rope_parameters=dict(rope_type="default", partial_rotary_factor=0.5, rope_theta=10000.0))),
    ("Phi3", dict(original_max_position_embeddings=8, rope_parameters=LONG)),
    ("Phi3", dict(original_max_position_embeddings=20, rope_parameters=LONG)),
    ("SmolLM3", dict(num_hidden_layers=4)),
    ("SmolLM3", dict(use_sliding_window=True, sliding_window=6, no_rope_layers=[1, 0])),
    ("Llama", dict(rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=10000.0))),
    ("Llama", dict(rope_parameters=dict(YARN, beta_fast=8.0, beta_slow=2.0, attention_factor=0.7, truncate=False))),
    ("Llama", dict(rope_parameters=dict(YARN, mscale=0.7, mscale_all_dim=0.4))),
    ("Llama", dict(rope_parameters=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                        original_max_position_embeddings=8, rope_theta=10000.0))),
    ("Mistral", dict(sliding_window=5, head_dim=12, rope_parameters=YARN)))


def of_family(name, more):
    sizes = dict(vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=CONTEXT, pad_token_id=PAD, bos_token_id=1,
                 eos_token_id=2)
    kind = getattr(transformers, name.replace("Text", "") + "ForCausalLM")
    return randomise(kind._from_config(getattr(transformers, name + "Config")(**{**sizes, **more}),
                                       attn_implementation="eager"))


def gradients_of(folder, x, weights):
    """-> {name: gradient} of a weighted sum of Choir's scores"""
    with choir.Run() as run:
        module = run.module(C.model, folder, None).train(False)
        C.scope_status(run)
        with run.step() as step:
            C.backward(C.sum(C.mul(module(step.tensor(x.numpy())), step.tensor(weights.numpy()))))
            return {name: C.grad(t).numpy() for name, t in module.tensors(buffers=False).items() if C.grad(t)}


def loss_and_gradients(folder, x, y):
    """-> scores, loss and {name: gradient} of Choir's model of the folder"""
    with choir.Run() as run:
        module = run.module(C.model, folder, None).train(False)
        C.scope_status(run)
        with run.step() as step:
            out = module(step.tensor(x.numpy()))
            loss = C.cross_entropy(out, step.tensor(y.numpy()))
            found = out.numpy(), loss.item()
            C.backward(loss)
            return (*found, {name: C.grad(t).numpy() for name, t in module.tensors(buffers=False).items()})


@case
def families():
    """Scores within 2e-6 of the largest, loss and gradients; a checkpoint goes back and has the same scores."""
    for name, more in FAMILIES:
        what = "%s %s: " % (name, more)
        with tempfile.TemporaryDirectory() as folder:
            theirs = of_family(name, more)
            theirs.save_pretrained(folder)
            x, y = ids(), ids()
            expected = theirs(x).logits
            loss = language(expected, y)[0]
            loss.backward()
            mine, mine_loss, gradients = loss_and_gradients(folder, x, y)
            agree(what + "scores", mine, expected, 2e-6)
            agree(what + "loss", np.array(mine_loss), loss, 1e-6)
            for key, p in theirs.named_parameters():
                if not key.endswith("k_proj.bias"):  # rounding noise: softcap aside, softmax takes no notice of it
                    agree(what + key, gradients[key], p.grad, 2e-5)
            back = went_back(folder, type(theirs))
            back.set_attn_implementation("eager")
            agree(what + "and back", back(x).logits.detach().numpy(), expected, 1e-7)


@case
def longer_than_the_context():
    """Texts beyond the context of a dynamic rope, whose rates depend on their length."""
    with tempfile.TemporaryDirectory() as folder:
        theirs = of_family("Llama", dict(rope_parameters=dict(rope_type="dynamic", factor=2.0, rope_theta=10000.0)))
        theirs.save_pretrained(folder)
        for length in 5, 12, 20, 30:  # rising: transformers keeps the rates of a longer text
            x = ids(length=length)
            agree("%d tokens" % length, scores("%s:context=32" % folder, x), theirs(x).logits, 2e-6)


def padded_steps(theirs, forward, steps=8):
    """Both train by SGD on the same batches, a quarter of which is padding."""
    folder = tempfile.TemporaryDirectory()
    theirs.save_pretrained(folder.name)
    optim = torch.optim.SGD(theirs.parameters(), lr=0.2)
    theirs.train()
    start = theirs.get_input_embeddings().weight[PAD].detach().clone()
    assert not start.any(), "transformers starts with another row"
    with choir.Run() as run, folder:
        module = run.module(C.model, folder.name, None)
        mine = C.sgd(run, module, choir.options(C.sgd_defaults, lr=0.2))
        for _ in range(steps):
            x, y = ids(4), ids(4)
            x[torch.rand(x.shape) < 0.25] = PAD
            optim.zero_grad()
            expected, targets = forward(theirs(x).logits, y)
            expected.backward()
            with run.step() as step:
                out = module(step.tensor(x.numpy()))
                loss = C.cross_entropy(out, step.tensor(targets.numpy()))
                agree("losses", loss, expected, 1e-5)
                C.backward(loss)
                C.optim_step(mine)
            optim.step()
        expected = dict(theirs.named_parameters())
        for name, t in module.tensors(buffers=False).items():
            if not name.endswith(("key.bias", "k_proj.bias")):
                agree(name, t, expected[name], 1e-4)
        row = [t.numpy()[PAD] for n, t in module.tensors().items()
               if n.endswith(("word_embeddings.weight", "embed_tokens.weight"))][0]
        return float(np.abs(row).max())


def language(logits, y):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten()), y


@case
def padding_is_not_trained():
    torch.manual_seed(5)
    classes = BertForSequenceClassification(bert_config(num_labels=3))
    assert padded_steps(classes, lambda logits, y: (
        torch.nn.functional.cross_entropy(logits, y[:, 0] % 3), y[:, 0] % 3)) == 0
    assert padded_steps(BertForMaskedLM(bert_config()), language) > 0  # by the head, which is tied
    assert padded_steps(LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=CONTEXT, pad_token_id=PAD)), language) == 0


if __name__ == "__main__":
    main()
