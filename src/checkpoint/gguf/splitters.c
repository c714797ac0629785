/* The ways in which byte-level tokenizers cut a text into words, by llama.cpp's names: the
 * pattern of a Split step, or the steps that need none. */
#include <string.h>

#include "base/base.h"
#include "checkpoint/gguf/vocab.h"

/* A row with NULL for the pattern is ByteLevel with its own pattern, GPT-2's; digits: a step
 * that makes each digit a word precedes it. */
static const struct {
    const char *name, *pattern;
    bool digits;
} splitters[] = {
    {"gpt-2", NULL, false},
    {"smollm", NULL, true},
    {"llama-bpe",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        false},
    {"qwen2",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        false},
    {"tekken",
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
        "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        false},
    {"gpt-4o",
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*"
        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"
        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        false},
};

static bool is_type(const json_t *step, const char *type)
{
    const char *own = json_string_value(json_object_get(step, "type"));
    return own && !strcmp(own, type);
}

/* The cutting that a list of steps describes. */
typedef struct cutting {
    const char *pattern;
    bool digits, bytes, own, unknown;
} cutting;

static void read_step(const json_t *step, cutting *c)
{
    const json_t *regex = json_object_get(json_object_get(step, "pattern"), "Regex");
    const json_t *own = json_object_get(step, "use_regex");
    size_t i;
    json_t *inner;
    if (is_type(step, "Sequence")) {
        json_array_foreach(json_object_get(step, "pretokenizers"), i, inner)
            read_step(inner, c);
    } else if (is_type(step, "ByteLevel")) {
        c->bytes = true;
        c->own = !json_is_false(own);
        c->unknown |= json_is_true(json_object_get(step, "add_prefix_space"));
    } else if (is_type(step, "Split") && json_is_string(regex) && !c->pattern) {
        const char *behavior = json_string_value(json_object_get(step, "behavior"));
        c->pattern = json_string_value(regex);
        c->unknown |= !behavior || strcmp(behavior, "Isolated") != 0 ||
                      json_is_true(json_object_get(step, "invert"));
    } else if (is_type(step, "Digits") &&
               json_is_true(json_object_get(step, "individual_digits"))) {
        c->digits = true;
    } else {
        c->unknown = true;
    }
}

const char *choir__gguf_splitter_of(const json_t *pre_tokenizer)
{
    cutting c = {0};
    read_step(pre_tokenizer, &c);
    for (size_t i = 0; c.bytes && !c.unknown && i < CHOIR_COUNT(splitters); i++)
        if (c.digits == splitters[i].digits &&
            (splitters[i].pattern
                    ? !c.own && c.pattern && !strcmp(c.pattern, splitters[i].pattern)
                    : c.own && !c.pattern))
            return splitters[i].name;
    return NULL;
}

json_t *choir__gguf_steps_of(const char *splitter)
{
    size_t i = 0;
    while (i < CHOIR_COUNT(splitters) && strcmp(splitters[i].name, splitter) != 0)
        i++;
    if (i == CHOIR_COUNT(splitters))
        return NULL;
    json_t *bytes = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space",
        0, "trim_offsets", 0, "use_regex", !splitters[i].pattern);
    json_t *steps = json_array();
    if (splitters[i].digits)
        json_array_append_new(
            steps, json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1));
    if (splitters[i].pattern)
        json_array_append_new(
            steps, json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex",
                       splitters[i].pattern, "behavior", "Isolated", "invert", 0));
    if (json_array_size(steps) == 0) {
        json_decref(steps);
        return bytes;
    }
    json_array_append_new(steps, bytes);
    return json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", steps);
}
