/* Files of tokenizers, tokenizer.json and SentencePiece's. Each is loaded and then applied to
 * the file itself. An input "VOCAB\0MERGES" is GPT-2's pair. An input that begins with the byte
 * 1 is a recipe (tokenizer_recipe.h): a whole tokenizer and a text for it. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "data/tokenizer/hf.h"
#include "tokenizer_recipe.h"

static const char *file_of_recipe = "", *text_of_recipe = "";

static void insist(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s\n%s\n%s\n", what, file_of_recipe, text_of_recipe);
    abort();
}

/* Exactly the room that is needed is enough, and one less is refused. */
static void check_room(const choir_tokenizer *t, const char *text, size_t bytes, size_t count)
{
    int64_t needed = -1, *ids = malloc(count * sizeof *ids + 1);
    insist(choir_tokenizer_encode(t, text, bytes, NULL, 0, &needed) == CHOIR_OK, "counting");
    insist((size_t)needed == count, "the count differs");
    insist(choir_tokenizer_encode(t, text, bytes, ids, count, &needed) == CHOIR_OK, "room");
    insist(!count || choir_tokenizer_encode(t, text, bytes, ids, count - 1, &needed) ==
                         CHOIR_ERR_RANGE,
        "too little room");
    free(ids);
}

/* A text that is cut where the tokenizer allows it has the ids of the whole. Equal sums of
 * scores are left out: their roundings depend on the text before. */
static void check_cut(
    const choir_tokenizer *t, const char *text, size_t bytes, const choir__ids *whole)
{
    choir__ids ids = {0};
    size_t cut = choir__tokenizer_last_cut(t, text, bytes);
    if (!cut)
        return;
    insist(choir__tokenizer_encode(t, NULL, text, cut, CHOIR__BEGINNING, &ids) == CHOIR_OK &&
               choir__tokenizer_encode(
                   t, NULL, text + cut, bytes - cut, CHOIR__CONTINUED, &ids) == CHOIR_OK,
        "a part of the text fails");
    size_t same = 0;
    while (same < ids.count && same < whole->count && ids.id[same] == whole->id[same])
        same++;
    if (same < ids.count || same < whole->count) {
        fprintf(stderr, "cut at byte %zu, ids differ at %zu: %d, in the whole %d\n", cut, same,
            same < ids.count ? ids.id[same] : -1, same < whole->count ? whole->id[same] : -1);
        for (size_t i = 0; i < bytes; i++)
            fprintf(stderr, i == cut ? " | %02x" : " %02x", (unsigned char)text[i]);
        fputc('\n', stderr);
    }
    insist(ids.count == whole->count && !memcmp(ids.id, whole->id, ids.count * sizeof *ids.id),
        "a token crosses the cut");
    free(ids.id);
}

static void apply(const choir_tokenizer *t, const char *text, size_t bytes, bool adds_scores)
{
    choir__ids ids = {0};
    choir_status status = choir__tokenizer_encode(t, NULL, text, bytes, CHOIR__BEGINNING, &ids);
    for (size_t i = 0; i < ids.count; i++)
        insist(ids.id[i] >= 0 && ids.id[i] < choir_tokenizer_size(t), "an id is out of range");
    if (status == CHOIR_OK) {
        check_room(t, text, bytes, ids.count);
        if (ids.count && !adds_scores)
            check_cut(t, text, bytes, &ids);
    }
    free(ids.id);
}

static void follow(const uint8_t *data, size_t size)
{
    recipe r = {data, data + size};
    choir_tokenizer *tokenizer = NULL;
    blob file = {0};
    if (choose(&r, 3))
        file.data = make_json(&r, choir__base64_encode);
    else
        file = make_model(&r);
    bool json = !file.bytes;
    file.bytes = json ? strlen(file.data) : file.bytes;
    blob text = make_text(&r);
    file_of_recipe = file.data;
    text_of_recipe = text.data;
    if (choir__tokenizer_parse("recipe", file.data, file.bytes, &tokenizer) == CHOIR_OK)
        apply(tokenizer, text.data, text.bytes, !json || strstr(file.data, "Unigram"));
    choir_tokenizer_free(tokenizer);
    free(file.data);
    free(text.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    choir_tokenizer *tokenizer = NULL;
    const char *text = (const char *)data, *cut = size ? memchr(text, 0, size) : NULL;
    choir_status status;
    if (size && data[0] == 1) {
        follow(data + 1, size - 1);
        return 0;
    }
    if (size && text[0] == '{' && cut) {
        size_t vocab = (size_t)(cut - text);
        status = choir__gpt2_parse(
            "vocab.json", text, vocab, "merges.txt", cut + 1, size - vocab - 1, &tokenizer);
    } else
        status = choir__tokenizer_parse("tokenizer.json", text, size, &tokenizer);
    if (status == CHOIR_OK)
        apply(tokenizer, text, size, true);
    choir_tokenizer_free(tokenizer);
    return 0;
}
