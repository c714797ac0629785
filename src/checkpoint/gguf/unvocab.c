/* A tokenizer comes out of a GGUF file: the reverse of vocab.c.
 *
 * The kind of SentencePiece has scores in place of merges. A merge is a pair of pieces whose
 * join is a piece; merges are listed by the scores of the joins, the highest first, and
 * merges of one piece by the numbers of their parts, as transformers makes them. */
#include <stdlib.h>
#include <string.h>

#include "base/files/run_files.h"
#include "base/base.h"
#include "base/files/map.h"
#include "checkpoint/format/file.h"
#include "checkpoint/gguf/vocab.h"

typedef struct tokens {
    const choir__gguf_in *in;
    const char *const *text; /* (count) */
    const double *kind;      /* (count), or NULL */
    int64_t count;
    choir__map ids;
    json_t *root;
} tokens;

static choir_status lacks(const tokens *t, const char *what, const char *name)
{
    return choir__error(CHOIR_ERR_UNSUPPORTED, "%s: %s '%.100s' is not read",
        choir__gguf_path(t->in), what, name);
}

static int kind_of(const tokens *t, int64_t i)
{
    return t->kind ? (int)t->kind[i] : CHOIR__GGUF_NORMAL;
}

static json_t *vocab_of(const tokens *t)
{
    json_t *vocab = json_object();
    for (int64_t i = 0; i < t->count; i++)
        if (kind_of(t, i) != CHOIR__GGUF_UNUSED)
            json_object_set_new(vocab, t->text[i], json_integer(i));
    return vocab;
}

static json_t *added_of(const tokens *t)
{
    json_t *added = json_array();
    for (int64_t i = 0; i < t->count; i++) {
        const int kind = kind_of(t, i);
        if (kind == CHOIR__GGUF_CONTROL || kind == CHOIR__GGUF_USER_DEFINED ||
            kind == CHOIR__GGUF_UNKNOWN)
            json_array_append_new(
                added, json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)i,
                           "content", t->text[i], "single_word", 0, "lstrip", 0, "rstrip", 0,
                           "normalized", 0, "special", kind != CHOIR__GGUF_USER_DEFINED));
    }
    return added;
}

/* --- merges by scores --- */

typedef struct merge {
    double score;
    int64_t left, right;
} merge;

static int by_score(const void *a, const void *b)
{
    const merge *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->left != y->left)
        return x->left < y->left ? -1 : 1;
    return x->right < y->right ? -1 : x->right > y->right;
}

enum { LONGEST = 256 }; /* bytes of a piece that has merges */

static json_t *merges_of(const tokens *t, const double *score)
{
    merge *list = NULL;
    int count = 0;
    for (int64_t i = 0; i < t->count; i++) {
        const char *text = t->text[i];
        const size_t n = strlen(text);
        char part[LONGEST];
        if (kind_of(t, i) != CHOIR__GGUF_NORMAL || n >= LONGEST)
            continue;
        for (size_t at = 1; at < n; at++) {
            if (((unsigned char)text[at] & 0xc0) == 0x80) /* within a character */
                continue;
            memcpy(part, text, at);
            part[at] = '\0';
            const int64_t left = choir__map_find(&t->ids, part),
                          right = choir__map_find(&t->ids, text + at);
            if (left < 0 || right < 0)
                continue;
            CHOIR__GROW(list, count);
            list[count++] = (merge){score[i], left, right};
        }
    }
    if (count)
        qsort(list, (size_t)count, sizeof *list, by_score);
    json_t *merges = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(
            merges, json_pack("[s, s]", t->text[list[i].left], t->text[list[i].right]));
    free(list);
    return merges;
}

/* --- the two kinds --- */

/* Returns whether the file's way to cut words is this one. A way belongs to a family,
 * whose tokenizers have more in common, which llama.cpp knows by the name. */
static bool cuts_as(const tokens *t, const char *name)
{
    const char *splitter = choir__gguf_string(t->in, "tokenizer.ggml.pre");
    return splitter && !strcmp(splitter, name);
}

static choir_status bytes_kind(tokens *t)
{
    const char *splitter = choir__gguf_string(t->in, "tokenizer.ggml.pre");
    json_t *steps = choir__gguf_steps_of(splitter ? splitter : "gpt-2");
    int64_t count;
    const char *const *texts = choir__gguf_strings(t->in, "tokenizer.ggml.merges", &count);
    if (!steps)
        return lacks(t, "a tokenizer that cuts words as", splitter);
    json_t *merges = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(merges, json_string(texts[i]));
    if (cuts_as(t, "qwen2"))
        json_object_set_new(t->root, "normalizer", json_pack("{s:s}", "type", "NFC"));
    json_object_set_new(t->root, "pre_tokenizer", steps);
    json_object_set_new(t->root, "decoder",
        json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
            "trim_offsets", 0, "use_regex", 0));
    json_object_set_new(t->root, "model",
        json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE",
            "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
            "fuse_unk", 0, "byte_fallback", 0, "ignore_merges", cuts_as(t, "llama-bpe"),
            "vocab", vocab_of(t), "merges", merges));
    return CHOIR_OK;
}

static choir_status pieces_kind(tokens *t)
{
    int64_t count;
    double prefix = 1, unknown = 0;
    const double *score = choir__gguf_numbers(t->in, "tokenizer.ggml.scores", &count);
    if (!score || count != t->count)
        return lacks(t, "a tokenizer of pieces without", "tokenizer.ggml.scores");
    choir__gguf_number(t->in, "tokenizer.ggml.add_space_prefix", &prefix);
    choir__gguf_number(t->in, "tokenizer.ggml.unknown_token_id", &unknown);
    json_t *spaces = json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String",
               " ", "content", "\u2581"),
           *back = json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String",
               "\u2581", "content", " "),
           *before = json_array(), *after = json_array();
    if (prefix != 0)
        json_array_append_new(
            before, json_pack("{s:s, s:s}", "type", "Prepend", "prepend", "\u2581"));
    json_array_append_new(before, spaces);
    json_array_append_new(after, back);
    json_array_append_new(after, json_pack("{s:s}", "type", "ByteFallback"));
    json_array_append_new(after, json_pack("{s:s}", "type", "Fuse"));
    if (prefix != 0)
        json_array_append_new(after, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip",
                                         "content", " ", "start", 1, "stop", 0));
    json_object_set_new(t->root, "normalizer",
        json_pack("{s:s, s:o}", "type", "Sequence", "normalizers", before));
    json_object_set_new(
        t->root, "decoder", json_pack("{s:s, s:o}", "type", "Sequence", "decoders", after));
    const bool known = unknown >= 0 && unknown < (double)t->count;
    json_object_set_new(t->root, "model",
        json_pack("{s:s, s:n, s:s?, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE",
            "dropout", "unk_token", known ? t->text[(int64_t)unknown] : NULL,
            "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 1, "byte_fallback",
            1, "ignore_merges", 0, "vocab", vocab_of(t), "merges", merges_of(t, score)));
    return CHOIR_OK;
}

/* --- files --- */

static const char *special(const tokens *t, const char *key)
{
    double id;
    bool there = choir__gguf_number(t->in, key, &id) && id >= 0 && id < (double)t->count;
    return there ? t->text[(int64_t)id] : NULL;
}

static void add_post_processor(tokens *t, const char *begin)
{
    double adds = cuts_as(t, "llama-bpe"), id = 0;
    choir__gguf_number(t->in, "tokenizer.ggml.add_bos_token", &adds);
    choir__gguf_number(t->in, "tokenizer.ggml.bos_token_id", &id);
    if (adds == 0 || !begin)
        return;
    json_object_set_new(t->root, "post_processor",
        json_pack(
            "{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}, "
            "{s:{s:s, s:i}}], s:{s:{s:s, s:[I], s:[s]}}}",
            "type", "TemplateProcessing", "single", "SpecialToken", "id", begin, "type_id", 0,
            "Sequence", "id", "A", "type_id", 0, "pair", "SpecialToken", "id", begin, "type_id",
            0, "Sequence", "id", "A", "type_id", 0, "Sequence", "id", "B", "type_id", 1,
            "special_tokens", begin, "id", begin, "ids", (json_int_t)id, "tokens", begin));
}

static choir_status write_json(const json_t *root, const char *folder, const char *name)
{
    char *path = choir__format("%s/%s", folder, name);
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    choir_status status =
        text ? choir__write_file(path, text, strlen(text))
             : choir__error(CHOIR_ERR_FORMAT, "%s: a token of the tokenizer is no UTF-8", path);
    free(text);
    free(path);
    return status;
}

static choir_status write_config(const tokens *t, const char *folder)
{
    json_t *root = json_pack("{s:s, s:s?, s:s?, s:s?, s:s?, s:o?}", "tokenizer_class",
        "PreTrainedTokenizerFast", "bos_token", special(t, "tokenizer.ggml.bos_token_id"),
        "eos_token", special(t, "tokenizer.ggml.eos_token_id"), "unk_token",
        special(t, "tokenizer.ggml.unknown_token_id"), "pad_token",
        special(t, "tokenizer.ggml.padding_token_id"), "chat_template",
        choir__gguf_templates(t->in));
    choir_status status = write_json(root, folder, "tokenizer_config.json");
    json_decref(root);
    return status;
}

bool choir__gguf_has_vocab(const choir__gguf_in *in)
{
    const char *model = choir__gguf_string(in, "tokenizer.ggml.model");
    return model && strcmp(model, "no_vocab") != 0;
}

choir_status choir__gguf_write_vocab(const choir__gguf_in *in, const char *folder)
{
    tokens t = {.in = in};
    int64_t kinds;
    const char *model = choir__gguf_string(in, "tokenizer.ggml.model");
    t.text = choir__gguf_strings(in, "tokenizer.ggml.tokens", &t.count);
    t.kind = choir__gguf_numbers(in, "tokenizer.ggml.token_type", &kinds);
    t.kind = kinds == t.count ? t.kind : NULL;
    if (!model || !t.text || !t.count)
        return choir__error(
            CHOIR_ERR_FORMAT, "%s: its tokenizer has no tokens", choir__gguf_path(in));
    for (int64_t i = 0; i < t.count; i++)
        choir__map_put(&t.ids, t.text[i], i);
    t.root = json_pack("{s:s, s:n, s:n, s:o, s:n, s:n, s:n, s:n}", "version", "1.0",
        "truncation", "padding", "added_tokens", added_of(&t), "normalizer", "pre_tokenizer",
        "post_processor", "decoder");
    choir_status status = !strcmp(model, "gpt2") ? bytes_kind(&t)
                          : !strcmp(model, "llama")
                              ? pieces_kind(&t)
                              : lacks(&t, "a tokenizer of the kind", model);
    if (status == CHOIR_OK) {
        add_post_processor(&t, special(&t, "tokenizer.ggml.bos_token_id"));
        status = write_json(t.root, folder, CHOIR__TOKENIZER_FILE);
    }
    if (status == CHOIR_OK)
        status = write_config(&t, folder);
    json_decref(t.root);
    choir__map_free(&t.ids);
    return status;
}
