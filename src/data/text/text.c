/* Text as windows of tokens.
 *
 * The file is read and encoded once. A dataset keeps the tokens of its own split, and sample i
 * is a pointer into them: x starts at position i * stride, y one position later. The stride is
 * 1 for training, the context for validation. */
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "data/tokenizer/tokenizer.h"

typedef struct text_dataset {
    choir_dataset base;
    int64_t context, stride, length; /* length: number of windows */
    int32_t *tokens;
    int64_t first; /* position of the split in the text */
    char *name;
} text_dataset;

static int64_t text_length(const choir_dataset *self)
{
    return ((const text_dataset *)self)->length;
}

static choir_status text_get(choir_dataset *self, int64_t index, void *x, void *y)
{
    const text_dataset *d = (const text_dataset *)self;
    const int32_t *from = d->tokens + index * d->stride;
    int64_t *in = x, *out = y;
    for (int64_t i = 0; i < d->context; i++) {
        in[i] = from[i];
        out[i] = from[i + 1];
    }
    return CHOIR_OK;
}

static bool text_place(
    const choir_dataset *self, int64_t index, int64_t part, choir_sample_place *place)
{
    const text_dataset *d = (const text_dataset *)self;
    place->file = d->name;
    place->first = d->first + index * d->stride;
    place->count = d->context;
    return part == 0;
}

static void text_free(choir_dataset *self)
{
    free(((text_dataset *)self)->name);
    free(((text_dataset *)self)->tokens);
    free(self);
}

static const choir_dataset_ops text_ops = {
    .length = text_length, .get = text_get, .free = text_free, .place = text_place};

/* Returns the largest power of two below the number of tokens; 0: fewer than two tokens. */
static int64_t largest_context(int64_t tokens)
{
    int64_t context = 1;
    while (2 * context < tokens)
        context *= 2;
    return tokens > 1 ? context : 0;
}

choir_status choir__check_split(
    const char *name, const char *split, int64_t tokens, int64_t other, int64_t context)
{
    const int64_t fits = largest_context(choir__min(tokens, other));
    if (tokens > context)
        return CHOIR_OK;
    if (!tokens)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: the %s split is empty: expected more than %lld tokens", name, split,
            (long long)context);
    if (!fits)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s has %lld tokens in its %s split, fewer than the context of %lld + 1: expected more "
            "data",
            name, (long long)tokens, split, (long long)context);
    return choir__error(CHOIR_ERR_ARGUMENT,
        "%s has %lld tokens in its %s split, fewer than the context of %lld + 1; choose a smaller "
        "context: --model NAME:context=%lld, where NAME may be the model's folder",
        name, (long long)tokens, split, (long long)context, (long long)fits);
}

choir_status choir__check_splits(
    const char *name, int64_t tokens, choir_split split, double held, int64_t context)
{
    int64_t training = choir__training_part(held, tokens);
    bool whole = held == 1 && split == CHOIR_VALIDATION; /* there is nothing to train on */
    choir_status status =
        whole ? CHOIR_OK
              : choir__check_split(name, "training", training, tokens - training, context);
    return status == CHOIR_OK ? choir__check_split(name, "validation", tokens - training,
                                    whole ? tokens : training, context)
                              : status;
}

/* Creates a dataset of the split's tokens; takes ownership of the tokens. */
static choir_status cut(const char *name, choir__ids *tokens, int64_t context,
    choir_split split, double held, text_dataset **dataset)
{
    int64_t count = (int64_t)tokens->count;
    int64_t training = choir__training_part(held, count);
    choir_status status = choir__check_splits(name, count, split, held, context);
    if (status != CHOIR_OK)
        return status;
    text_dataset *d = choir__calloc(1, sizeof *d);
    d->context = context;
    d->stride = split == CHOIR_TRAIN ? 1 : context;
    int64_t kept = split == CHOIR_TRAIN ? training : count - training;
    d->length = (kept - 1 - context) / d->stride + 1;
    d->first = split == CHOIR_TRAIN ? 0 : training;
    d->name = choir__strdup(name);
    if (split != CHOIR_TRAIN)
        memmove(tokens->id, tokens->id + training, (size_t)kept * sizeof *tokens->id);
    int32_t *smaller = realloc(tokens->id, (size_t)kept * sizeof *tokens->id);
    d->tokens = smaller ? smaller : tokens->id;
    *tokens = (choir__ids){0};
    *dataset = d;
    return CHOIR_OK;
}

static choir_status pick_tokenizer(const char *text, size_t bytes, choir_tokenizer **tokenizer)
{
    return choir__is_utf8(text, bytes) ? choir_tokenizer_chars(text, bytes, tokenizer)
                                       : choir_tokenizer_bytes(tokenizer);
}

static choir_status check_arguments(
    const char *name, size_t bytes, int64_t context, choir_split split)
{
    if (context < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected a context of 1 token or more, got %lld", name, (long long)context);
    if (split != CHOIR_TRAIN && split != CHOIR_VALIDATION)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: unknown split %d: choose CHOIR_TRAIN or CHOIR_VALIDATION", name, (int)split);
    if (!bytes)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "%s is empty: there is nothing to train on", name);
    return CHOIR_OK;
}

static choir_status open_memory(const char *name, const char *text, size_t bytes,
    int64_t context, choir_split split, double held, choir_tokenizer **tokenizer,
    choir_dataset **dataset)
{
    choir_tokenizer *made = NULL;
    const choir_tokenizer *used = tokenizer ? *tokenizer : NULL;
    choir__ids tokens = {0};
    text_dataset *d;
    choir_status status = check_arguments(name, bytes, context, split);
    if (status == CHOIR_OK)
        status = choir__holdout_check(name, held);
    if (status == CHOIR_OK && !used) {
        status = pick_tokenizer(text, bytes, &made);
        used = made;
    }
    if (status == CHOIR_OK)
        status = choir__tokenizer_encode(used, name, text, bytes, CHOIR__BEGINNING, &tokens);
    if (status == CHOIR_OK)
        status = cut(name, &tokens, context, split, held, &d);
    if (status != CHOIR_OK)
        goto out;
    d->base = (choir_dataset){.ops = &text_ops,
        .x_dtype = CHOIR_I64,
        .y_dtype = CHOIR_I64,
        .x_shape = choir_dims(context),
        .y_shape = choir_dims(context),
        .classes = choir_tokenizer_size(used),
        .held_out = split == CHOIR_VALIDATION};
    *dataset = &d->base;
    if (tokenizer && made) {
        *tokenizer = made;
        made = NULL;
    }
out:
    free(tokens.id);
    choir_tokenizer_free(made);
    return status;
}

choir_status choir_dataset_text_memory(const char *name, const char *text, size_t bytes,
    int64_t context, choir_split split, choir_tokenizer **tokenizer, choir_dataset **dataset)
{
    return open_memory(
        name ? name : "the text", text, bytes, context, split, 0, tokenizer, dataset);
}

/* Bytes that were compressed would be learned as if they were a text. */
static choir_status check_plain(const char *path, const char *text, size_t bytes)
{
    static const struct {
        const char *name, *reads;
        unsigned char begin[6];
        size_t length;
    } kinds[] = {{"gzip", "zcat", {0x1f, 0x8b, 8}, 3},
        {"zstd", "zstdcat", {0x28, 0xb5, 0x2f, 0xfd}, 4},
        {"xz", "xzcat", {0xfd, '7', 'z', 'X', 'Z', 0}, 6},
        {"bzip2", "bzcat", {'B', 'Z', 'h'}, 3}, {"zip", "unzip -p", {'P', 'K', 3, 4}, 4}};
    for (size_t i = 0; i < CHOIR_COUNT(kinds); i++)
        if (bytes > kinds[i].length && !memcmp(text, kinds[i].begin, kinds[i].length) &&
            !choir__is_utf8(text, bytes))
            return choir__error(CHOIR_ERR_FORMAT,
                "%s is compressed by %s: expected a text; '%s %s | choir train -' trains on its "
                "contents",
                path, kinds[i].name, kinds[i].reads, path);
    return CHOIR_OK;
}

choir_status choir__dataset_text(const char *path, int64_t context, choir_split split,
    double held, choir_tokenizer **tokenizer, choir_dataset **dataset)
{
    char *text;
    size_t bytes;
    choir_status status = choir__read_file(path, 0, &text, &bytes);
    if (status != CHOIR_OK)
        return status;
    status = check_plain(path, text, bytes);
    if (status == CHOIR_OK)
        status = open_memory(path, text, bytes, context, split, held, tokenizer, dataset);
    free(text);
    return status;
}

choir_status choir_dataset_text(const char *path, int64_t context, choir_split split,
    choir_tokenizer **tokenizer, choir_dataset **dataset)
{
    if (!tokenizer)
        return choir__missing(__func__, "tokenizer");
    if (!dataset)
        return choir__missing(__func__, "dataset");
    return choir__dataset_text(path, context, split, 0, tokenizer, dataset);
}
