"""Choir's GGUF files in llama.cpp (xllamacpp): the same ids of texts, and greedy answers that are equal
byte for byte to what transformers writes with the folder, until the two best scores lie within 1e-4."""
import os
import sys
import tempfile

import folders
from files import choir, supported

try:
    import xllamacpp
except ImportError as why:
    print("skipped: no xllamacpp (pip install xllamacpp): %s" % why)
    sys.exit(77)

TOKENS = 20
ANSWERS = int(os.environ.get("ANSWERS", "10"))


def server_of(path):
    p = xllamacpp.CommonParams()
    p.model.path = path
    p.n_ctx, p.n_batch, p.n_ubatch, p.n_parallel, p.n_gpu_layers = 64, 64, 64, 1, 0
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
    p.cache_type_k = p.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    p.warmup, p.verbosity, p.fit_params, p.cache_ram_mib = False, -1, False, 0
    return xllamacpp.Server(p)


def answer(server, prompt):
    """-> the bytes of the answer, and for each of them the gap of the two best scores. Tokens that are
    parts of a character come with the next one."""
    got = server.handle_completions({
        "prompt": prompt, "n_predict": TOKENS, "temperature": 0, "n_probs": 2, "cache_prompt": False})
    text, gaps = b"", []
    for token in ((got["choices"][0].get("logprobs") or {}).get("content") or []):
        best = sorted((t["logprob"] for t in token["top_logprobs"]), reverse=True)
        text += bytes(token["bytes"])
        gaps += [best[0] - best[-1]] * len(token["bytes"])
    return text, gaps


def bytes_of(tokenizer, ids):
    """The bytes of tokens up to the end token, whichever kind the tokenizer is of."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode
    back = {c: b for b, c in bytes_to_unicode().items()}
    by_bytes, text = tokenizer.chat_template is not None, b""
    for i in ids:
        token = tokenizer.convert_ids_to_tokens(i)
        if i == tokenizer.eos_token_id or token is None:
            break
        if i in tokenizer.added_tokens_decoder:  # written as nothing
            continue
        if by_bytes:
            text += bytes(back[c] for c in token)
        elif len(token) == 6 and token.startswith("<0x"):
            text += bytes([int(token[3:5], 16)])
        else:
            text += token.replace("\u2581", " ").encode()
    return text


def check(family, width, kinds):
    with tempfile.TemporaryDirectory() as work:
        folder = os.path.join(work, family)
        model, tokenizer = folders.make(family, width, folder)
        if not supported(folder):
            return print("%s: not built here" % family)
        for kind in kinds:
            choir("export", folder, os.path.join(work, kind), "--format", "gguf", "--dtype", kind)
        server = server_of(os.path.join(work, "f32", "model.gguf"))
        close = 0
        for i in range(ANSWERS):
            words = folders.TEXTS[i % 2].split()
            text = " ".join(words[i % 3:i % 3 + 3])
            ids = tokenizer.encode(text)
            by_ids, gaps = answer(server, ids)
            by_text, _ = answer(server, text)
            assert by_ids == by_text, "%s: '%s' has other ids in llama.cpp" % (family, text)
            out = model.generate(folders.torch.tensor([ids]), max_new_tokens=TOKENS, do_sample=False)
            want = out[0, len(ids):].tolist()
            want = bytes_of(tokenizer, want)
            n = min(len(want), len(by_ids))
            at = next((k for k in range(n) if want[k] != by_ids[k]), n)
            if at < n:
                assert gaps[at] < 1e-4, "%s: '%s': %r, llama.cpp's %r, gap %g" % (
                    family, text, want, by_ids, gaps[at])
                close += 1
            elif len(want) > n:  # bytes that are no character yet are left out
                assert "\ufffd" in want[n:].decode(errors="replace") and n, "%s: '%s': %r, llama.cpp's %r" % (
                    family, text, want, by_ids)
        for kind in kinds[1:]:
            answer(server_of(os.path.join(work, kind, "model.gguf")), tokenizer.encode("the sea"))
        print("%s: %d answers, %d with a tie" % (family, ANSWERS, close))


if __name__ == "__main__":
    for name in sys.argv[1:] or folders.FAMILIES:
        check(name, 256 if name == "llama" else 64, ["f32", "q8_0", "q4_0", "q4_K_M"])
    sys.stdout.flush()
    os._exit(0)  # servers of llama.cpp keep threads
