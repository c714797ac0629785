"""Tiny published folders of the families that GGUF files are written for, with tokenizers of their own."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

try:
    os.environ["HF_HUB_OFFLINE"] = "1"  # everything is made here
    import gguf
    import tokenizers
    import torch
    import transformers
except ImportError as why:
    print("skipped: no gguf, torch, tokenizers or transformers (pip install gguf transformers): %s" % why)
    sys.exit(77)

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
TEXTS = ["the sea sings of a small boat", "one grey gull under rain, and 12 boats in 1987!",
         "a small boat's sea\n\nsings -- \tof 3 gulls", "na\u00efve caf\u00e9s, \u6d77 and \U0001f30a"]
PATTERNS = {
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                 r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
             r"|\s*[\r\n]+|\s+(?!\S)|\s+",
}
CHAT = ("{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}")


def by_bytes(pattern):
    """A byte-level tokenizer; pattern None: GPT-2's own."""
    from tokenizers import Regex, decoders, models, pre_tokenizers, processors, trainers
    t = tokenizers.Tokenizer(models.BPE())
    steps = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)]
    if pattern:
        steps.insert(0, pre_tokenizers.Split(Regex(PATTERNS[pattern]), "isolated"))
    t.pre_tokenizer = pre_tokenizers.Sequence(steps) if pattern else steps[0]
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(TEXTS * 4, trainers.BpeTrainer(
        vocab_size=330, special_tokens=["<s>", "</s>", "<|user|>", "<|assistant|>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    if pattern == "llama-bpe":
        t.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 0)])
    return t


def by_pieces():
    """A tokenizer of SentencePiece's kind, as Llama 2's."""
    from tokenizers import decoders, models, normalizers, processors, trainers
    trained = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    specials = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]
    trained.train_from_iterator(TEXTS[:2] * 4, trainers.BpeTrainer(
        vocab_size=330, special_tokens=specials, show_progress=False))
    root = json.loads(trained.to_str())
    root["model"].update(byte_fallback=True, fuse_unk=True)
    root["added_tokens"] = root["added_tokens"][:3]
    t = tokenizers.Tokenizer.from_str(json.dumps(root))
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(),
                                   decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)])
    return t


def sizes(width, layers=2, heads=4, kv=2):
    return dict(vocab_size=333, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers,
                num_attention_heads=heads, num_key_value_heads=kv, max_position_embeddings=64)


LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
FAMILIES = {
    "llama": ("llama-bpe", lambda w: transformers.LlamaConfig(**sizes(w), bos_token_id=0, eos_token_id=1)),
    "llama3": ("llama-bpe", lambda w: transformers.LlamaConfig(
        **sizes(w), rope_scaling=dict(LLAMA3), tie_word_embeddings=True, bos_token_id=0, eos_token_id=1)),
    "pieces": (None, lambda w: transformers.LlamaConfig(
        **sizes(w), attention_bias=True, bos_token_id=1, eos_token_id=2)),
    "mistral": ("llama-bpe", lambda w: transformers.MistralConfig(
        **sizes(w), sliding_window=None, bos_token_id=0, eos_token_id=1)),
    "gpt2": ("gpt-2", lambda w: transformers.GPT2Config(
        vocab_size=333, n_embd=w, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=1)),
    "qwen2": ("qwen2", lambda w: transformers.Qwen2Config(
        **sizes(w), tie_word_embeddings=True, bos_token_id=None, eos_token_id=1)),
    "qwen3": ("qwen2", lambda w: transformers.Qwen3Config(
        **sizes(w), head_dim=w // 4, bos_token_id=None, eos_token_id=1)),
    "gemma2": (None, lambda w: transformers.Gemma2Config(
        **sizes(w), head_dim=w // 4, query_pre_attn_scalar=w // 4, bos_token_id=1, eos_token_id=2)),
    "gemma3": (None, lambda w: transformers.Gemma3TextConfig(
        **sizes(w), head_dim=w // 4, query_pre_attn_scalar=w // 4, sliding_window=32, bos_token_id=1,
        eos_token_id=2)),
    "phi3": ("llama-bpe", lambda w: transformers.Phi3Config(
        **sizes(w), pad_token_id=None, bos_token_id=0, eos_token_id=1)),
    # settings beside the usual ones
    "yarn": ("llama-bpe", lambda w: transformers.LlamaConfig(
        **sizes(w), rope_scaling=dict(YARN), bos_token_id=0, eos_token_id=1)),
    "part": ("llama-bpe", lambda w: transformers.Phi3Config(
        **sizes(w), partial_rotary_factor=0.5, pad_token_id=None, bos_token_id=0, eos_token_id=1)),
    "gemma3_rates": (None, lambda w: transformers.Gemma3TextConfig(
        **sizes(w, layers=6), head_dim=w // 4, query_pre_attn_scalar=w // 4, sliding_window=32,
        bos_token_id=1, eos_token_id=2, rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})),
    "gemma2_theta": (None, lambda w: transformers.Gemma2Config(
        **sizes(w), head_dim=w // 4, query_pre_attn_scalar=w // 4, bos_token_id=1, eos_token_id=2,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0})),
}


def make(family, width, folder):
    """Writes a folder with random weights that are large enough for answers to differ."""
    torch.manual_seed(len(family) + width)
    kind, config = FAMILIES[family]
    model = transformers.AutoModelForCausalLM.from_config(config(width)).float().eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim > 1:
                p.normal_(0, 0.15)
            elif p.mean() == 0:
                p.normal_(0, 0.05)
    tokenizer = by_pieces() if kind is None else by_bytes(None if kind == "gpt-2" else kind)
    names = {"bos_token": "<s>", "eos_token": "</s>"}
    if kind is None:
        names["unk_token"] = "<unk>"
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    if kind is not None:
        fast.chat_template = CHAT
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return model, fast
