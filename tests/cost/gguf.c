/* GGUF files, whose lists of keys and tensors are binary: a unit's text is a name. */
#include "cases.h"

#define LONG "an_unusually_long_beginning_that_all_of_these_names_have_in_common_"

enum { U8 = 0, TEXT = 8, ARRAY = 9, F32 = 0, ALIGNMENT = 32 };

static void append_u32(blob *input, uint32_t x)
{
    append(input, &x, sizeof x); /* little-endian, as the format is */
}

static void append_u64(blob *input, uint64_t x)
{
    append(input, &x, sizeof x);
}

static void append_name(blob *input, const cost_case *c, size_t i)
{
    char name[512];
    snprintf(name, sizeof name, c->unit, i);
    append_u64(input, strlen(name));
    append_text(input, name);
}

static void append_head(blob *input, size_t tensors, size_t keys)
{
    append_text(input, "GGUF");
    append_u32(input, 3);
    append_u64(input, tensors);
    append_u64(input, keys);
}

static void make_keys(blob *input, const cost_case *c, size_t n)
{
    append_head(input, 0, n);
    for (size_t i = 0; i < n; i++) {
        append_name(input, c, i);
        append_u32(input, U8);
        append(input, "", 1);
    }
}

static void make_tensors(blob *input, const cost_case *c, size_t n)
{
    append_head(input, n, 0);
    for (size_t i = 0; i < n; i++) {
        append_name(input, c, i);
        append_u32(input, 1);
        append_u64(input, 1);
        append_u32(input, F32);
        append_u64(input, 0);
    }
    char zeros[2 * ALIGNMENT] = {0};
    append(input, zeros, sizeof zeros);
}

static void make_texts(blob *input, const cost_case *c, size_t n)
{
    append_head(input, 0, 1);
    append_u64(input, strlen("tokenizer.ggml.tokens"));
    append_text(input, "tokenizer.ggml.tokens");
    append_u32(input, ARRAY);
    append_u32(input, TEXT);
    append_u64(input, n);
    for (size_t i = 0; i < n; i++)
        append_name(input, c, i);
}

static const cost_case cases[] = {
    {"gguf: keys", read_gguf, "", "k%zu", "", 2000, .make = make_keys},
    {"gguf: keys with a beginning in common", read_gguf, "", LONG "%zu", "", 1000,
        .make = make_keys},
    {"gguf: tensors", read_gguf, "", "t%zu", "", 2000, .make = make_tensors},
    {"gguf: texts", read_gguf, "", "token%zu", "", 4000, .make = make_texts},
};

const cost_table cost_gguf = COST_TABLE(cases);
