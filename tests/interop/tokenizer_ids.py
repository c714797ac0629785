#!/usr/bin/env python3
"""Choir's token ids of random texts beside those of the programs that the tokenizers come from.

    tokenizer_ids.py tokenizers|sentencepiece [KIND]

Each kind is a tokenizer trained here, with other options; Choir reads its file. The texts are made of words of the
training text, added tokens, all white space and control characters, marks, characters of all planes, and for
SentencePiece bytes that are not UTF-8. Not one text may differ. CHOIR_TEST_SAMPLE=SEED takes 500 texts of each
kind, as script/test does; without it there are 20,000.
"""
import ctypes
import importlib.util
import json
import os
import random
import re
import sys
import tempfile
import warnings

from header import Header

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WHICH = sys.argv[1]
NEEDED = {"tokenizers": "PyPI has it", "sentencepiece": "install python3-sentencepiece"}
for name in NEEDED:
    if (name == "sentencepiece" or name == WHICH) and importlib.util.find_spec(name) is None:
        print("skipped: %s has no %s (%s)" % (sys.executable, name, NEEDED[name]))
        sys.exit(77)

import sentencepiece  # noqa: E402  (also the source of a table of replacements)

warnings.simplefilter("ignore")
SAMPLE = os.environ.get("CHOIR_TEST_SAMPLE", "")
SEED = int(SAMPLE) if SAMPLE else random.SystemRandom().randrange(1 << 30)
COUNT = 500 if SAMPLE else 20000
MARK = "\u2581"


# --- Choir ---

class Choir:
    """A tokenizer's file, read by the library."""
    header = Header(os.path.join(ROOT, "include", "choir"))
    library = ctypes.CDLL(os.environ.get("CHOIR_LIB", os.path.join(ROOT, "build", "libchoir.so")))
    library.choir_error_message.restype = ctypes.c_char_p

    @classmethod
    def call(cls, name, *arguments):
        function = getattr(cls.library, name)
        function.argtypes = cls.header.functions[name][1]
        return function(*arguments)

    def __del__(self):
        self.call("choir_tokenizer_free", self.handle)

    def __init__(self, path):
        self.handle, self.ids, self.count = ctypes.c_void_p(), (ctypes.c_int64 * 256)(), ctypes.c_int64()
        if self.call("choir_tokenizer_load", path.encode(),
                     ctypes.addressof(self.handle)):
            raise SystemExit("FAILED: " + self.library.choir_error_message().decode())

    def encode(self, data):
        """The ids, or the sentence that says why there are none."""
        room = len(self.ids)
        status = self.call("choir_tokenizer_encode", self.handle, data, len(data),
                           ctypes.addressof(self.ids), room, ctypes.addressof(self.count))
        if status and self.count.value > room:
            self.ids = (ctypes.c_int64 * (2 * self.count.value))()
            return self.encode(data)
        self.count, count = ctypes.c_int64(), self.count.value
        return self.library.choir_error_message().decode() if status else self.ids[:count]


# --- texts ---

WORDS = """the quick brown fox jumps over a lazy dog I'll don't we've CAN'T it's 3.14159 2026 1234567 foo bar
naïve café Zürich Ålesund ﬁne ﬃ Straße ǅ İstanbul привет мир Ελλάδα שלום مرحبا नमस्ते क्षि ภาษาไทย 你好 世界 日本語 テキスト
한국어 각 Ａｂｃ １２３ ½ Ⅷ ㍿ ™ ℡ ① a\u0301 e\u0308\u0323 n\u0303 क़ \u1100\u1161\u11a8 👍🏽 👨\u200d👩\u200d👧 🇫🇷 [MASK] <a> <sep> x\u200dy""".split()
SPACES = [chr(c) for c in (9, 10, 11, 12, 13, 32, 32, 32, 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028,
                           0x2029, 0x202F, 0x205F, 0x3000)]
ODD = [MARK, MARK, "\u200b", "\u200c", "\u200d", "\ufeff", "\ufffd", "\u00ad", "'", "'s", "''", ".", "#", "##", "_",
       "\r\n", "  ", "   ", "\u0301", "\u0323", "\u20dd", "\u0903", "\u093c", "\u094d", "\ufe0f", "<unk>", "<s>",
       "</s>", "<0x41>", "A", "i\u0307", "İ", "\U0001d165\U0001d16d"]
PLANES = [(0, 0x20), (0x20, 0x7F), (0x7F, 0x100), (0x100, 0x250), (0x300, 0x370), (0x370, 0x800), (0x800, 0x1100),
          (0x1100, 0x1200), (0x1E00, 0x2000), (0x2000, 0x2C00), (0x3000, 0x3400), (0x3400, 0xD800),
          (0xAC00, 0xD7A4), (0xE000, 0xF900), (0xF900, 0x10000), (0x10000, 0x14000), (0x16000, 0x1B000),
          (0x1D000, 0x1E000), (0x1E000, 0x20000), (0x20000, 0x30000), (0x30000, 0xE0000), (0xE0000, 0xE0200),
          (0xE0200, 0x110000)]


def code_point(rnd):
    first, last = rnd.choice(PLANES)
    return chr(rnd.randrange(first, last))


def text(rnd, tokens):
    parts = []
    for _ in range(rnd.randrange(0, 16)):
        kind = rnd.randrange(10)
        parts.append(rnd.choice(WORDS) if kind < 4 else rnd.choice(SPACES) if kind < 6 else
                     rnd.choice(ODD) if kind < 7 else code_point(rnd) if kind < 8 else
                     rnd.choice(tokens) if kind < 9 else " ")
        if rnd.randrange(3) == 0:
            parts.append(" ")
    return "".join(parts)


def broken(rnd, data):
    """A few bytes replaced, so that the text is not UTF-8 any more."""
    data = bytearray(data)
    for _ in range(rnd.randrange(1, 4)):
        if data:
            data[rnd.randrange(len(data))] = rnd.randrange(0x80, 0x100)
    return bytes(data)


def training_text():
    with open(os.path.join(ROOT, "docs", "guide.md"), encoding="utf-8") as file:
        lines = [line.strip() for line in file if len(line) < 400][:1500]
    rnd = random.Random(1)
    lines += [" ".join(rnd.choice(WORDS) for _ in range(12)) for _ in range(400)]
    # Training takes most of the test's time, and a quarter of the text gives other tokenizers of the same kinds.
    return lines[SEED % 4::4] if SAMPLE else lines


# --- comparisons ---

def compare(kind, ours, theirs, texts, known=lambda code: False, any_order=False):
    """theirs: the ids of the texts. Where Choir refuses a character, the other program drops it, and it must
    be unknown. any_order: the same pieces in another order are as good."""
    differ, refused, shown = 0, 0, 0
    for t, expected in zip(texts, theirs):
        data = t if isinstance(t, bytes) else t.encode()
        found = ours.encode(data)
        if isinstance(found, str):
            code = re.search(r"U\+([0-9A-F]+)", found)
            good = code is not None and not known(int(code.group(1), 16))
            refused += good
        else:
            good = found == list(expected) or any_order and sorted(found) == sorted(expected)
        differ += not good
        if not good and shown < 4:
            shown += 1
            print("  %s: %r\n    ours   %s\n    theirs %s" % (kind, t, found, list(expected)))
    note = ", %d of them with a character that has no token" % refused if refused else ""
    print("%s %-28s %d of %d texts differ%s" % ("ok    " if not differ else "FAILED", kind, differ, len(texts), note),
          flush=True)
    return differ


def texts_of(kind, tokens):
    rnd = random.Random("%d %s" % (SEED, kind))
    return [text(rnd, tokens) for _ in range(COUNT)]


# --- SentencePiece ---

def train_spm(folder, kind, **options):
    """Returns the path of a model of 400 pieces."""
    path = os.path.join(folder, kind)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(training_text()), model_prefix=path, hard_vocab_limit=False, minloglevel=2,
        **{"vocab_size": 420, "num_threads": 2, "character_coverage": 0.995, **options})
    return path + ".model"


SYMBOLS = ["<a>", "foo", "[MASK]"]
SPM_KINDS = {
    "unigram": {},
    "unigram-cf": {"normalization_rule_name": "nmt_nfkc_cf"},
    "unigram-symbols": {"user_defined_symbols": SYMBOLS},
    "unigram-symbols-spaces": {"user_defined_symbols": SYMBOLS + [MARK * 2, MARK * 3, "the" + MARK],
                               "remove_extra_whitespaces": False, "normalization_rule_name": "identity"},
    "unigram-bytes": {"byte_fallback": True, "vocab_size": 700},
    "unigram-no-prefix": {"add_dummy_prefix": False},
    "unigram-no-prefix-symbols": {"add_dummy_prefix": False, "user_defined_symbols": SYMBOLS},
    "unigram-identity": {"normalization_rule_name": "identity"},
    "unigram-keep": {"remove_extra_whitespaces": False},
    "unigram-across-spaces": {"split_by_whitespace": False},
    "unigram-digits": {"split_digits": True, "control_symbols": ["<sep>"], "pad_id": 3},
    "bpe": {"model_type": "bpe"},
    "bpe-nfkc": {"model_type": "bpe", "normalization_rule_name": "nfkc", "remove_extra_whitespaces": False},
    "bpe-symbols": {"model_type": "bpe", "user_defined_symbols": SYMBOLS},
    "bpe-symbols-spaces": {"model_type": "bpe", "user_defined_symbols": SYMBOLS + [MARK * 2, MARK * 3],
                           "remove_extra_whitespaces": False, "normalization_rule_name": "identity",
                           "byte_fallback": True, "vocab_size": 700},
    "bpe-no-prefix": {"model_type": "bpe", "add_dummy_prefix": False, "user_defined_symbols": SYMBOLS},
    "bpe-across-spaces": {"model_type": "bpe", "split_by_whitespace": False},
    "bpe-llama": {"model_type": "bpe", "byte_fallback": True, "vocab_size": 700, "split_digits": True,
                  "normalization_rule_name": "identity", "remove_extra_whitespaces": False},
}


OLD = tuple(int(n) for n in sentencepiece.__version__.split(".")[:3]) < (0, 2, 1)


def spm_kind(folder, kind):
    if OLD and kind == "unigram-symbols-spaces":
        print("skipped: %s: before SentencePiece 0.2.1, user-defined pieces have another score" % kind)
        return 0
    path = train_spm(folder, kind, **SPM_KINDS[kind])
    theirs = sentencepiece.SentencePieceProcessor(model_file=path)
    rnd = random.Random(SEED)
    texts = [t.encode() for t in texts_of(kind, SYMBOLS + ["<sep>", "the ", MARK * 2])]
    texts = [broken(rnd, t) if rnd.randrange(8) == 0 else t for t in texts]
    # Cuts into the same pieces are a tie that rounding decides: before 0.2.1, sums were compared in double.
    return compare(kind, Choir(path), [theirs.encode(t, out_type=int) for t in texts], texts,
                   any_order=OLD and kind.startswith("unigram"))


# --- tokenizers ---

def hf_kinds(folder):
    """name -> a function that makes the tokenizer."""
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

    N, P = normalizers, pre_tokenizers
    gpt2 = ("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+")
    llama3 = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
              "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
    qwen2 = llama3.replace("{1,3}", "")
    capitals, small = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    before, endings = r"[^\r\n\p{L}\p{N}]?", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    rest = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tekken = "%s%s*%s+|%s%s+%s*|\\p{N}|%s" % (2 * (before, capitals, small) + (rest,))
    o200k = "%s%s*%s+%s|%s%s+%s*%s|\\p{N}{1,3}|%s" % (2 * (before, capitals, small, endings) + (rest,))
    deepseek = (r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
                r""" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""")
    deepseek_llm = ("[\r\n]", "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u0400-\u0481]+",
                    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", "\\s+$",
                    "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+")
    qwen3_next = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
                  r"\s*[\r\n]+|\s+(?!\S)|\s+")
    possessive = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|"
                  r"\s*[\r\n]|\s+(?!\S)|\s")
    lines = training_text()
    normal, raw = dict(normalized=True), dict(normalized=False)
    added = [AddedToken("<a>", **normal), AddedToken("foo", **normal), AddedToken("[MASK]", lstrip=True, **raw),
             AddedToken("<sep>", rstrip=True, **raw), AddedToken("the", **normal), AddedToken("th", **raw),
             AddedToken(" x", rstrip=True, **normal)]

    def train(model, trainer, words, normal=None, extra=(), change=None):
        t = Tokenizer(model)
        if words is not None:
            t.pre_tokenizer = words
        if normal is not None:
            t.normalizer = normal
        t.train_from_iterator(lines, trainer)
        t.add_tokens(list(extra))
        if change:
            form = json.loads(t.to_str())
            change(form)
            t = Tokenizer.from_str(json.dumps(form))
        return t

    def byte_level(words, normal=None, extra=(), **model):
        def change(form):
            form["model"].update(model)
        trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["<|end|>"], show_progress=False,
                                      initial_alphabet=P.ByteLevel.alphabet())
        return lambda: train(models.BPE(), trainer, words, normal, extra, change)

    def split(*patterns, more=()):
        return P.Sequence([P.Split(Regex(p), "isolated") for p in patterns] + list(more) +
                          [P.ByteLevel(add_prefix_space=False, use_regex=False)])

    def behaviors(*steps):
        return P.Sequence([P.Split(*step[:2], invert=len(step) > 2) for step in steps] +
                          [P.ByteLevel(add_prefix_space=False, use_regex=False)])

    def bpe(words, normal=None, extra=(), unk="<unk>", **model):
        special = ([unk] if unk else []) + ["<0x%02X>" % i for i in range(256)] * bool(model.get("byte_fallback"))

        def change(form):
            form["model"].update(model)
            form["pre_tokenizer"] = json.loads(words.__getstate__()) if words is not None else None
            form["added_tokens"] = [a for a in form["added_tokens"] if not a["content"].startswith("<0x")]
        trainer = trainers.BpeTrainer(vocab_size=460 + len(special), special_tokens=special, show_progress=False,
                                      limit_alphabet=90)
        return lambda: train(models.BPE(unk_token=unk), trainer, P.Metaspace() if words is None else words, normal,
                             extra, change)

    def unigram(words, normal=None, extra=(), **model):
        def change(form):
            form["model"].update(model)
            form["model"]["vocab"] += [["<0x%02X>" % i, -20.0] for i in range(256)] * bool(model)
        trainer = trainers.UnigramTrainer(vocab_size=420, special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
                                          unk_token="<unk>", show_progress=False)
        return lambda: train(models.Unigram(), trainer, words, normal, extra, change if model else None)

    def wordpiece(extra=(), **steps):
        trainer = trainers.WordPieceTrainer(vocab_size=500, limit_alphabet=150, show_progress=False,
                                            special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
        return lambda: train(models.WordPiece(unk_token="[UNK]"), trainer, P.BertPreTokenizer(),
                             N.BertNormalizer(**steps), extra)

    def charsmap(rules="nmt_nfkc"):
        """The table out of a model's normalizer_spec, where it follows the rules' name."""
        path = os.path.join(folder, "map-" + rules)
        if not os.path.exists(path + ".model"):
            train_spm(folder, "map-" + rules, normalization_rule_name=rules, vocab_size=420)
        with open(path + ".model", "rb") as file:
            data = file.read()
        at = data.rindex(b"\x0a" + bytes([len(rules)]) + rules.encode() + b"\x12")
        at, size, shift = at + 3 + len(rules), 0, 0
        while True:
            byte = data[at]
            at, size, shift = at + 1, size | (byte & 127) << shift, shift + 7
            if byte < 128:
                break
        return data[at:at + size]

    nfkc = lambda: N.Precompiled(charsmap())  # noqa: E731
    spaces = N.Replace(Regex(" {2,}"), " ")
    marked = N.Sequence([N.Prepend(MARK), N.Replace(" ", MARK)])
    return {
        "bytes-gpt2": byte_level(P.ByteLevel(add_prefix_space=False)),
        "bytes-prefix": byte_level(P.ByteLevel(add_prefix_space=True), extra=added),
        "bytes-whole": byte_level(P.ByteLevel(add_prefix_space=False, use_regex=False)),
        "bytes-gpt2-split": byte_level(split(gpt2), extra=added),
        "bytes-llama3": byte_level(split(llama3), ignore_merges=True),
        "bytes-qwen2": byte_level(split(qwen2), extra=added),
        "bytes-tekken": byte_level(split(tekken), ignore_merges=True, extra=added),
        "bytes-o200k": byte_level(split(o200k), extra=added),
        "bytes-possessive": byte_level(split(possessive)),
        "bytes-qwen3-next": byte_level(split(qwen3_next), N.NFC()),
        "bytes-deepseek": byte_level(split(*deepseek), extra=added),
        "bytes-deepseek-llm": byte_level(split(*deepseek_llm, more=[P.Digits(individual_digits=True)])),
        "bytes-smollm": byte_level(P.Sequence([P.Digits(individual_digits=True), P.ByteLevel(add_prefix_space=False)])),
        "bytes-behaviors": byte_level(behaviors((Regex(r"[A-Z]\p{Ll}*?"), "merged_with_next"), ("e", "merged_with_previous"),
                                                (Regex(r"[^\s\p{L}]"), "contiguous"))),
        "bytes-removed": byte_level(behaviors((Regex(r"\s(?=\p{Lu})|[\p{Mn}\p{^L}]\d"), "removed"),
                                              ("..", "isolated"), (Regex(r"\p{L}{2,3}"), "removed", True))),
        "bytes-any": byte_level(behaviors((Regex(r"(?<=\p{Ll})(?=\p{Lu})|x*"), "merged_with_next"),
                                          (Regex(r"(\p{L}\p{L})+|(?i:STRASSE|\bfoo)|\G\d\d"), "merged_with_previous"),
                                          (Regex(r"[[:alpha:]&&[^e]]{2,4}?|\A."), "contiguous", True))),
        "bytes-words-prefix": byte_level(P.Sequence([P.Split(Regex(qwen2), "isolated"), P.ByteLevel()])),
        "bytes-nfc": byte_level(split(qwen2), N.NFC(), added),
        "bytes-digits": byte_level(P.Sequence([P.Digits(individual_digits=True), P.ByteLevel(add_prefix_space=False)]),
                                   extra=added),
        "bytes-digit-runs": byte_level(P.Sequence([P.Digits(individual_digits=False),
                                                   P.ByteLevel(add_prefix_space=False, use_regex=False)])),
        "bpe-gemma": bpe(P.Split(" ", "merged_with_previous"), N.Replace(" ", MARK), added, byte_fallback=True,
                         fuse_unk=True),
        "bpe-split-spaces": bpe(P.Split(" ", "merged_with_previous"), N.NFC(), added),
        "bpe-metaspace": bpe(P.Metaspace(), fuse_unk=True),
        "bpe-whitespace": bpe(P.Whitespace(), extra=added),
        "bpe-punctuation": bpe(P.Sequence([P.WhitespaceSplit(), P.Punctuation()])),
        "bpe-punctuation-next": bpe(P.Sequence([P.CharDelimiterSplit("e"), P.Punctuation("merged_with_next")]), extra=added),
        "bpe-metaspace-first": bpe(P.Metaspace(prepend_scheme="first"), extra=added, fuse_unk=False),
        "bpe-metaspace-never": bpe(P.Metaspace(prepend_scheme="never"), extra=added),
        "bpe-metaspace-whole": bpe(P.Metaspace(split=False), extra=added),
        "bpe-metaspace-no-unk": bpe(P.Metaspace(), unk=None),
        "bpe-llama2": bpe(None, marked, byte_fallback=True, fuse_unk=True),
        "bpe-llama2-added": bpe(None, marked, added, byte_fallback=True, fuse_unk=True),
        "bpe-strip": bpe(P.Metaspace(prepend_scheme="first"), N.Sequence([N.Strip(), spaces]), added),
        "bpe-replace-first": bpe(P.Metaspace(prepend_scheme="first"),
                                 N.Sequence([N.Replace("\u2019", "'"), N.Replace("\u00e9", "ee")]), added),
        "bpe-replace": bpe(P.Metaspace(), N.Sequence([N.Replace("''", '"'), N.Replace(MARK, "_")]), added),
        "unigram-xlmr": unigram(P.Sequence([P.WhitespaceSplit(), P.Metaspace()])),
        "unigram-first": unigram(P.Metaspace(prepend_scheme="first"), extra=added),
        "unigram-whole": unigram(P.Metaspace(split=False), extra=added),
        "unigram-bytes": unigram(P.Metaspace(), byte_fallback=True),
        "unigram-t5": unigram(P.Metaspace(), N.Sequence([nfkc(), N.Strip(left=False, right=True),
                                                         N.Replace(Regex(" {2,}"), MARK)]), added),
        "unigram-albert": unigram(P.Metaspace(), N.Sequence([N.Replace("``", '"'), N.Replace("''", '"'),
                                                             N.Precompiled(charsmap("nmt_nfkc_cf")), spaces])),
        "unigram-nfkc": unigram(P.Sequence([P.WhitespaceSplit(), P.Metaspace()]), nfkc(), added),
        "wordpiece": wordpiece(),
        "wordpiece-added": wordpiece(added),
        "wordpiece-cased": wordpiece(lowercase=False),
        "wordpiece-unclean": wordpiece(added, clean_text=False),
        "wordpiece-accents": wordpiece(lowercase=False, strip_accents=True, handle_chinese_chars=False),
        "wordpiece-keep-accents": wordpiece(lowercase=True, strip_accents=False),
    }


def hf_kind(folder, kind, make):
    path = os.path.join(folder, kind + ".json")
    theirs = make()
    theirs.save(path)
    texts = texts_of(kind, ["<a>", "<A>", "foo", "Foo", "[MASK]", "<sep>", "the", "th", " x", "<|end|>"])
    ids = [e.ids for e in theirs.encode_batch(texts, add_special_tokens=False)]
    vocabulary = theirs.get_vocab()
    return compare(kind, Choir(path), ids, texts,
                   lambda code: (MARK if code == 32 else chr(code)) in vocabulary)


def main():
    prefix = sys.argv[2] if len(sys.argv) > 2 else ""
    module = __import__(WHICH)
    print("%s %s; %d texts of each kind; the same again: CHOIR_TEST_SAMPLE=%d" % (WHICH, module.__version__, COUNT, SEED))
    differ = 0
    with tempfile.TemporaryDirectory(prefix="choir-tokenizers-") as folder:
        kinds = SPM_KINDS if WHICH == "sentencepiece" else hf_kinds(folder)
        for kind in kinds:
            if kind.startswith(prefix):
                differ += (spm_kind(folder, kind) if WHICH == "sentencepiece" else
                           hf_kind(folder, kind, kinds[kind]))
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
