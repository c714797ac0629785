/* GPT-2's vocab.json and merges.txt, combined to the equivalent tokenizer.json: one reader for
 * both, and one file in a checkpoint. */
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/hf.h"

/* Returns the lines of merges.txt as a list; the first may be "#version: 0.2". */
static choir_status read_merges(
    const char *name, const char *text, size_t bytes, json_t *merges)
{
    const char *end = text + bytes;
    for (long long line = 1; text < end; line++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        const char *next = stop ? stop + 1 : end;
        stop = stop ? stop : end;
        if (stop > text && stop[-1] == '\r')
            stop--;
        size_t n = (size_t)(stop - text);
        const char *space = n ? memchr(text, ' ', n) : NULL;
        bool version = line == 1 && n >= 8 && !memcmp(text, "#version", 8);
        if (n && !version) {
            bool two = space && space > text && space + 1 < stop &&
                       !memchr(space + 1, ' ', (size_t)(stop - space - 1));
            json_t *merge = two ? json_stringn(text, n) : NULL; /* NULL: not UTF-8 */
            if (!merge)
                return choir__error(CHOIR_ERR_FORMAT,
                    "%s: line %lld is not two tokens with a space between them", name, line);
            json_array_append_new(merges, merge);
        }
        text = next;
    }
    return json_array_size(merges) ? CHOIR_OK
                                   : choir__error(CHOIR_ERR_FORMAT, "%s has no merges", name);
}

static json_t *published_form(json_t *vocab, json_t *merges)
{
    json_t *added = json_array(), *end = json_object_get(vocab, "<|endoftext|>");
    if (json_is_integer(end))
        json_array_append_new(added, json_pack("{s:O, s:s, s:b, s:b, s:b, s:b, s:b}", "id", end,
                                         "content", "<|endoftext|>", "single_word", 0, "lstrip",
                                         0, "rstrip", 0, "normalized", 0, "special", 1));
    return json_pack(
        "{s:s, s:o, s:n, s:{s:s, s:b, s:b, s:b}, s:{s:s, s:b, s:b, s:b}, s:{s:s, s:O, "
        "s:O}}",
        "version", "1.0", "added_tokens", added, "normalizer", "pre_tokenizer", "type",
        "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 1, "decoder",
        "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 1, "model",
        "type", "BPE", "vocab", vocab, "merges", merges);
}

choir_status choir__gpt2_parse(const char *vocab_name, const char *vocab, size_t vocab_bytes,
    const char *merges_name, const char *merges, size_t merges_bytes,
    choir_tokenizer **tokenizer)
{
    json_error_t why;
    json_t *list = json_array(), *root = NULL;
    json_t *words = json_loadb(vocab, vocab_bytes, JSON_REJECT_DUPLICATES, &why);
    choir_status status = CHOIR_OK;
    if (!words)
        status = choir__error(
            CHOIR_ERR_FORMAT, "%s: line %d is not JSON: %s", vocab_name, why.line, why.text);
    else if (!json_is_object(words))
        status = choir__error(
            CHOIR_ERR_FORMAT, "%s: expected an object of tokens and their ids", vocab_name);
    if (status == CHOIR_OK)
        status = read_merges(merges_name, merges, merges_bytes, list);
    if (status == CHOIR_OK) {
        char *both = choir__format("%s and %s", vocab_name, merges_name);
        root = published_form(words, list);
        status = choir__hf_from_json(both, root, tokenizer);
        free(both);
    }
    if (status == CHOIR_OK) {
        (*tokenizer)->published = true;
        (*tokenizer)->source = json_dumps(root, JSON_COMPACT);
        (*tokenizer)->source_bytes = strlen((*tokenizer)->source);
    }
    json_decref(root);
    json_decref(list);
    json_decref(words);
    return status;
}
