/* A tokenizer goes into a GGUF file: two kinds of BPE.
 *
 * The byte-level kind ("gpt2") has merges in order, and the name of its way to cut words. The
 * kind of SentencePiece ("llama") merges by scores of the results: a piece gets the number of
 * the first merge that makes it, with a minus sign, which is the same order, because such
 * merges are listed by their results. */
#include "base/files/run_files.h"
#include "checkpoint/gguf/vocab.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/files/file.h"
#include "base/files/map.h"
#include "checkpoint/folder.h"
#include "checkpoint/format/file.h"
#include "data/beside.h"
#include "data/dataset.h"
#include "data/tokenizer/hf.h"

enum { MOST = 8 << 20 }; /* tokens */

typedef struct vocab {
    const char *folder;
    json_t *root, *config; /* tokenizer.json; tokenizer_config.json or NULL */
    const json_t *model;
    const char **tokens; /* (count) */
    int32_t *kinds;
    float *scores;
    int64_t count;
    int64_t turn_end; /* the token that ends an answer; -1: unknown */
    choir__map ids;
    bool bytes; /* byte-level */
    char **notes;
} vocab;

static choir_status bad(const vocab *v, const char *what)
{
    return choir__error(CHOIR_ERR_FORMAT, "%s/tokenizer.json: %s", v->folder, what);
}

static choir_status lacks(const vocab *v, const char *what)
{
    return choir__error(CHOIR_ERR_UNSUPPORTED,
        "%s/tokenizer.json has %s, for which GGUF files have no form", v->folder, what);
}

/* Notes what llama.cpp does otherwise, in texts that most never have. */
static void note(const vocab *v, const char *what)
{
    char *line =
        choir__format("%s%s/tokenizer.json %s", **v->notes ? "\n" : "", v->folder, what);
    char *all = choir__format("%s%s", *v->notes, line);
    free(line);
    free(*v->notes);
    *v->notes = all;
}

static bool is_type(const json_t *step, const char *type)
{
    const char *own = json_string_value(json_object_get(step, "type"));
    return own && !strcmp(own, type);
}

/* --- tokens --- */

static choir_status place(vocab *v, json_int_t id, const char *token, int32_t kind)
{
    if (id < 0 || id >= v->count)
        return bad(v, "a token has a number that the model has no row for");
    v->tokens[id] = token;
    v->kinds[id] = kind;
    choir__map_put(&v->ids, token, id);
    return CHOIR_OK;
}

/* A byte of its own, as "<0x0A>". */
static bool is_byte(const char *token)
{
    return strlen(token) == 6 && !strncmp(token, "<0x", 3) && token[5] == '>';
}

static choir_status read_tokens(vocab *v)
{
    static const char *const greedy[] = {"lstrip", "rstrip", "single_word"};
    const char *token;
    json_t *id, *added;
    size_t i;
    bool takes = false;
    choir_status status = CHOIR_OK;
    json_object_foreach(json_object_get((json_t *)(uintptr_t)v->model, "vocab"), token, id)
    {
        status = place(v, json_integer_value(id), token,
            !v->bytes && is_byte(token) ? CHOIR__GGUF_BYTE : CHOIR__GGUF_NORMAL);
        if (status != CHOIR_OK)
            return status;
    }
    json_array_foreach(json_object_get(v->root, "added_tokens"), i, added)
    {
        token = json_string_value(json_object_get(added, "content"));
        if (!token)
            return bad(v, "an added token has no text");
        status = place(v, json_integer_value(json_object_get(added, "id")), token,
            json_is_true(json_object_get(added, "special")) ? CHOIR__GGUF_CONTROL
                                                            : CHOIR__GGUF_USER_DEFINED);
        if (status != CHOIR_OK)
            return status;
        for (size_t k = 0; k < CHOIR_COUNT(greedy); k++)
            takes |= json_is_true(json_object_get(added, greedy[k]));
    }
    if (takes)
        note(v, "has tokens that take the spaces beside them (lstrip, rstrip) or whole words "
                "alone (single_word), which llama.cpp does for few models");
    const char *unknown = json_string_value(json_object_get(v->model, "unk_token"));
    int64_t at = unknown ? choir__map_find(&v->ids, unknown) : -1;
    if (at >= 0 && !v->bytes)
        v->kinds[at] = CHOIR__GGUF_UNKNOWN;
    return CHOIR_OK;
}

/* Rows of embeddings without a token get a name that no text has. */
static void fill_up(vocab *v, char ***names)
{
    *names = choir__calloc((size_t)v->count + 1, sizeof **names);
    for (int64_t i = 0; i < v->count; i++)
        if (!v->tokens[i]) {
            v->tokens[i] = (*names)[i] = choir__format("[PAD%lld]", (long long)i);
            v->kinds[i] = CHOIR__GGUF_UNUSED;
        }
}

/* --- merges --- */

/* Returns "left right" of a merge, which the caller frees; NULL: it is no pair. */
static char *merge_text(const json_t *merge)
{
    const char *left = json_string_value(json_array_get(merge, 0)),
               *right = json_string_value(json_array_get(merge, 1));
    if (json_is_string(merge))
        return choir__strdup(json_string_value(merge));
    return left && right ? choir__format("%s %s", left, right) : NULL;
}

static choir_status add_merges(choir__gguf_out *out, const vocab *v)
{
    const json_t *merges = json_object_get(v->model, "merges");
    const size_t count = json_array_size(merges);
    char **texts = choir__calloc(count + 1, sizeof *texts);
    choir_status status = CHOIR_OK;
    for (size_t i = 0; i < count && status == CHOIR_OK; i++)
        if (!(texts[i] = merge_text(json_array_get(merges, i))))
            status = bad(v, "a merge is no pair of texts");
    if (status == CHOIR_OK)
        choir__gguf_texts(
            out, "tokenizer.ggml.merges", (const char *const *)texts, (int64_t)count);
    for (size_t i = 0; i < count; i++)
        free(texts[i]);
    free(texts);
    return status;
}

/* Scores: the first merge that makes a piece; pieces that no merge makes come last. */
static choir_status score(vocab *v)
{
    const json_t *merges = json_object_get(v->model, "merges");
    const size_t count = json_array_size(merges);
    for (int64_t i = 0; i < v->count; i++)
        v->scores[i] = v->kinds[i] == CHOIR__GGUF_NORMAL ? -(float)count - 1 : 0;
    for (size_t i = count; i-- > 0;) {
        char *merge = merge_text(json_array_get(merges, i));
        char *space = merge ? strchr(merge, ' ') : NULL;
        if (!space) {
            free(merge);
            return bad(v, "a merge is no pair of texts");
        }
        memmove(space, space + 1, strlen(space)); /* the two as one piece */
        int64_t id = choir__map_find(&v->ids, merge);
        free(merge);
        if (id >= 0)
            v->scores[id] = -(float)i;
    }
    return CHOIR_OK;
}

/* --- special tokens, and what surrounds a text --- */

/* Returns a special token of tokenizer_config.json, or NULL. */
static const char *special(const vocab *v, const char *key)
{
    return choir__beside_token(json_object_get(v->config, key));
}

static void add_id(choir__gguf_out *out, const char *key, int64_t id)
{
    if (id >= 0)
        choir__gguf_u32(out, key, (uint32_t)id);
}

/* Returns an id of a JSON file of the folder: a number, or the first (or second) of a list. */
static int64_t id_in(const char *folder, const char *file, const char *key, size_t which)
{
    json_t *root = choir__file_json_in(folder, file);
    const json_t *id = json_object_get(root, key);
    id = json_is_array(id) ? json_array_get(id, which) : which ? NULL : id;
    int64_t value = json_is_integer(id) ? json_integer_value(id) : -1;
    json_decref(root);
    return value;
}

static int64_t end_token(const vocab *v, size_t which)
{
    int64_t id = id_in(v->folder, "generation_config.json", "eos_token_id", which);
    if (id < 0)
        id = id_in(v->folder, "config.json", "eos_token_id", which);
    const char *named = which ? NULL : special(v, "eos_token");
    return named && choir__map_find(&v->ids, named) >= 0 ? choir__map_find(&v->ids, named) : id;
}

/* Returns whether the post-processor puts the token first (or last). */
static bool surrounds(const json_t *post, const char *token, bool first)
{
    const char *text = choir__hf_surrounds(post, first);
    return token && text && !strcmp(text, token);
}

/* Returns the number of special tokens that a template puts in front of a text (or behind it).
 */
static size_t tokens_beside(const json_t *post, bool first)
{
    size_t i, most = 0, count = 0;
    json_t *inner;
    json_array_foreach(json_object_get(post, "processors"), i, inner)
    {
        const size_t n = tokens_beside(inner, first);
        most = n > most ? n : most;
    }
    const json_t *single = json_object_get(post, "single");
    const size_t n = json_array_size(single);
    while (count < n && json_object_get(json_array_get(single, first ? count : n - 1 - count),
                            "SpecialToken"))
        count++;
    return count > most ? count : most;
}

/* llama.cpp puts the token of beginnings and the one of ends around a text, and no other. */
static choir_status check_surroundings(const vocab *v, int64_t begin, int64_t end)
{
    const json_t *post = json_object_get(v->root, "post_processor");
    if (tokens_beside(post, true) > 1 || tokens_beside(post, false) > 1)
        return lacks(v, "several tokens on one side of a text");
    if (choir__hf_surrounds(post, true) &&
        !(begin >= 0 && surrounds(post, v->tokens[begin], true)))
        return lacks(v, "a token in front of a text that is not its bos_token");
    if (choir__hf_surrounds(post, false) &&
        !(end >= 0 && surrounds(post, v->tokens[end], false)))
        return lacks(v, "a token behind a text that is not its eos_token");
    return CHOIR_OK;
}

static choir_status add_specials(choir__gguf_out *out, const vocab *v)
{
    const char *first = special(v, "bos_token"), *unknown = special(v, "unk_token"),
               *pad = special(v, "pad_token");
    const json_t *post = json_object_get(v->root, "post_processor");
    int64_t begin = first ? choir__map_find(&v->ids, first) : -1, end = end_token(v, 0);
    if (begin < 0)
        begin = id_in(v->folder, "config.json", "bos_token_id", 0);
    begin = begin < v->count ? begin : -1;
    end = end < v->count ? end : -1;
    add_id(out, "tokenizer.ggml.bos_token_id", begin);
    add_id(out, "tokenizer.ggml.eos_token_id", end);
    int64_t other = end_token(v, 1);
    if (other < 0 && v->turn_end != end)
        other = v->turn_end;
    add_id(out, "tokenizer.ggml.eot_token_id", other < v->count ? other : -1);
    add_id(out, "tokenizer.ggml.unknown_token_id",
        unknown ? choir__map_find(&v->ids, unknown) : -1);
    add_id(out, "tokenizer.ggml.padding_token_id", pad ? choir__map_find(&v->ids, pad) : -1);
    choir__gguf_bool(out, "tokenizer.ggml.add_bos_token",
        begin >= 0 && surrounds(post, v->tokens[begin], true));
    choir__gguf_bool(out, "tokenizer.ggml.add_eos_token",
        end >= 0 && surrounds(post, v->tokens[end], false));
    return check_surroundings(v, begin, end);
}

/* --- the two kinds --- */

/* Returns whether a step, or one of a sequence, is of the type. */
static bool has_step(const json_t *step, const char *list, const char *type)
{
    size_t i;
    json_t *inner;
    if (is_type(step, "Sequence"))
        json_array_foreach(
            json_object_get(step, list), i, inner) if (has_step(inner, list, type)) return true;
    return is_type(step, type);
}

static choir_status add_bytes_kind(choir__gguf_out *out, const vocab *v)
{
    const json_t *steps = json_object_get(v->root, "pre_tokenizer"),
                 *normalizer = json_object_get(v->root, "normalizer");
    const char *splitter = choir__gguf_splitter_of(steps);
    if (!splitter)
        return lacks(v, "a way to cut words");
    if (normalizer && !json_is_null(normalizer) && !is_type(normalizer, "NFC"))
        return lacks(v, "a normalizer");
    if (is_type(normalizer, "NFC"))
        note(v,
            "composes characters (NFC), which llama.cpp does not: texts that are not composed "
            "get other tokens there");
    choir__gguf_text(out, "tokenizer.ggml.model", "gpt2");
    choir__gguf_text(out, "tokenizer.ggml.pre", splitter);
    return add_merges(out, v);
}

/* Returns whether llama.cpp does this with a text, too, before it is cut into pieces. */
static bool is_piece_step(const json_t *step)
{
    static const char space[] = "\xe2\x96\x81";
    const json_t *pattern = json_object_get(json_object_get(step, "pattern"), "String");
    const char *from = json_string_value(pattern),
               *to = json_string_value(json_object_get(step, "content")),
               *front = json_string_value(json_object_get(step, "prepend")),
               *stands = json_string_value(json_object_get(step, "replacement"));
    if (is_type(step, "Replace"))
        return from && to && !strcmp(from, " ") && !strcmp(to, space);
    if (is_type(step, "Prepend"))
        return front && !strcmp(front, space);
    if (is_type(step, "Metaspace"))
        return !stands || !strcmp(stands, space);
    return is_type(step, "Split") && from && !strcmp(from, " "); /* none is left to cut at */
}

static bool are_piece_steps(const json_t *step, const char *list)
{
    size_t i;
    json_t *inner;
    if (!step || json_is_null(step))
        return true;
    if (!is_type(step, "Sequence"))
        return is_piece_step(step);
    json_array_foreach(
        json_object_get(step, list), i, inner) if (!are_piece_steps(inner, list)) return false;
    return true;
}

static choir_status add_pieces_kind(choir__gguf_out *out, vocab *v)
{
    const json_t *normalizer = json_object_get(v->root, "normalizer"),
                 *pre = json_object_get(v->root, "pre_tokenizer");
    const char *scheme = json_string_value(json_object_get(pre, "prepend_scheme"));
    if (!are_piece_steps(normalizer, "normalizers"))
        return lacks(v, "a normalizer that changes more than spaces");
    if (!are_piece_steps(pre, "pretokenizers"))
        return lacks(v, "a way to cut words");
    if (scheme && !strcmp(scheme, "first"))
        note(v,
            "puts a space before the first word alone (prepend_scheme first); there each text "
            "behind a special token gets one, too");
    bool prefix = has_step(normalizer, "normalizers", "Prepend") ||
                  (is_type(pre, "Metaspace") && (!scheme || strcmp(scheme, "never") != 0));
    if (!json_is_true(json_object_get(v->model, "byte_fallback")))
        return lacks(v, "BPE without bytes");
    choir__gguf_text(out, "tokenizer.ggml.model", "llama");
    choir__gguf_text(out, "tokenizer.ggml.pre", "default");
    choir_status status = score(v);
    if (status == CHOIR_OK)
        choir__gguf_f32s(out, "tokenizer.ggml.scores", v->scores, v->count);
    choir__gguf_bool(out, "tokenizer.ggml.add_space_prefix", prefix);
    return status;
}

static choir_status add_all(choir__gguf_out *out, vocab *v)
{
    char **names = NULL;
    choir_status status = read_tokens(v);
    if (status != CHOIR_OK)
        return status;
    fill_up(v, &names);
    status = v->bytes ? add_bytes_kind(out, v) : add_pieces_kind(out, v);
    if (status == CHOIR_OK) {
        choir__gguf_texts(out, "tokenizer.ggml.tokens", v->tokens, v->count);
        choir__gguf_i32s(out, "tokenizer.ggml.token_type", v->kinds, v->count);
        status = add_specials(out, v);
    }
    if (status == CHOIR_OK)
        status = choir__gguf_add_templates(out, v->folder, v->config);
    for (int64_t i = 0; i < v->count; i++)
        free(names[i]);
    free(names);
    return status;
}

choir_status choir__gguf_add_vocab(
    choir__gguf_out *out, const char *folder, int64_t rows, int64_t turn_end, char **notes)
{
    vocab v = {.folder = folder, .count = rows, .turn_end = turn_end, .notes = notes};
    char *path = choir__format("%s/" CHOIR__TOKENIZER_FILE, folder);
    json_error_t why;
    choir_status status = CHOIR_OK;
    *notes = choir__strdup("");
    v.root = choir__file_json(path, 0, &why);
    v.config = choir__file_json_in(folder, "tokenizer_config.json");
    v.model = json_object_get(v.root, "model");
    v.bytes = has_step(json_object_get(v.root, "pre_tokenizer"), "pretokenizers", "ByteLevel");
    if (!v.root)
        status = choir__error(CHOIR_ERR_UNSUPPORTED,
            "%s: %s; a GGUF file has its model's tokenizer in it, which comes from there", path,
            why.text);
    else if (!json_is_object(json_object_get(v.model, "vocab")) ||
             !json_is_array(json_object_get(v.model, "merges")))
        status = lacks(&v, "a model other than BPE");
    else if (rows < 1 || rows > MOST)
        status = bad(&v, "the model has no rows of embeddings for it");
    if (status == CHOIR_OK) {
        v.tokens = choir__calloc((size_t)rows, sizeof *v.tokens);
        v.kinds = choir__calloc((size_t)rows, sizeof *v.kinds);
        v.scores = choir__calloc((size_t)rows, sizeof *v.scores);
        status = add_all(out, &v);
    }
    choir__map_free(&v.ids);
    free(v.tokens);
    free(v.kinds);
    free(v.scores);
    json_decref(v.root);
    json_decref(v.config);
    free(path);
    return status;
}
