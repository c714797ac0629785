"""Samples of labelled texts beside those of `tokenizers`, as transformers' tokenizers of BERT and RoBERTa make them:
ids, token types and mask of texts and pairs of all lengths, padded and shortened."""
import ctypes
import importlib.util
import json
import os
import random
import sys
import tempfile

for name in ("numpy", "tokenizers"):
    if importlib.util.find_spec(name) is None:
        print("skipped: %s has no %s (PyPI has it)" % (sys.executable, name))
        sys.exit(77)

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

import choir
from choir import C, E

SAMPLES, CONTEXT = 400, 12


def make_tokenizer(path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "film", "was", "a", "fine", ",", "."]
    words += list("abcdefghij") + ["##" + c for c in "abcdefghij"]
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys(words))}
    made = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.add_special_tokens(["[PAD]", "[CLS]", "[SEP]", "[MASK]"])
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.save(path)
    special = [("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special)
    made.enable_truncation(CONTEXT, strategy="longest_first")
    made.enable_padding(length=CONTEXT)
    return made


def make_roberta(path):
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    choice = random.Random(1)
    made.train_from_iterator((random_text(choice) for _ in range(200)), trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    made.save(path)
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    made.enable_truncation(CONTEXT, strategy="longest_first")
    made.enable_padding(length=CONTEXT, pad_id=1, pad_token="<pad>")
    return made


def random_text(choice):
    words = ["the", "film", "Was", "fine,", "bad", "cab", "xyz", "[MASK]", "a.", "\u00e9g"]
    return " ".join(choice.choice(words) for _ in range(choice.randrange(9)))


def compare(folder, make, pairs):
    choice = random.Random(3 + pairs)
    made = make(os.path.join(folder, "tokenizer.json"))
    texts = [(random_text(choice), random_text(choice)) for _ in range(SAMPLES)]
    path = os.path.join(folder, "texts.jsonl")
    with open(path, "w") as file:
        for first, second in texts:
            record = {"sentence1": first, "label": 0}
            if pairs:
                record["sentence2"] = second
            file.write(json.dumps(record) + "\n")
    kept = [t for i, t in enumerate(texts) if not choir.is_held(i)]
    handle, data = ctypes.c_void_p(), ctypes.c_void_p()
    C.tokenizer_load(os.path.join(folder, "tokenizer.json"), ctypes.addressof(handle))
    C.dataset_labelled(path, E.CHOIR_TRAIN, choir.options(C.labelled_defaults, context=CONTEXT), handle,
                       ctypes.addressof(data))
    x, y = np.empty((3, CONTEXT), np.int64), np.empty(1, np.int64)
    for i, (first, second) in enumerate(kept):
        expected = made.encode(first, second) if pairs else made.encode(first)
        C.dataset_get(data, i, x.ctypes.data, y.ctypes.data)
        rows = [expected.ids, expected.type_ids, expected.attention_mask]
        if x.tolist() != rows:
            raise AssertionError("%r, %r:\n%s, not\n%s" % (first, second, x.tolist(), rows))
    C.dataset_free(data)
    C.tokenizer_free(handle)


with tempfile.TemporaryDirectory() as folder:
    for make in make_tokenizer, make_roberta:
        compare(folder, make, False)
        compare(folder, make, True)
print("%d texts and %d pairs agree, in both forms" % (SAMPLES, SAMPLES))
