/* Published tokenizers: the ids match those of the programs they come from
 * (tests/golden/tokenizers), decoding gives back the same bytes, and wrong files are
 * refused. */
#include "check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <jansson.h>
#include "data/tokenizer/regex.h"
#include "data/tokenizer/tokenizer.h"

static const char *golden(const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/tokenizers/%s", CHOIR_GOLDEN, name);
    return path;
}

static choir_tokenizer *load(const char *name)
{
    choir_tokenizer *t = NULL;
    ok(choir_tokenizer_load(golden(name), &t));
    return t;
}

static void check_ids(const choir_tokenizer *t, const char *kind, json_t *text, json_t *ids)
{
    size_t bytes = json_string_length(text), room = json_array_size(ids);
    int64_t *found = calloc(room + 1, sizeof *found), count = -1;
    choir_status status =
        choir_tokenizer_encode(t, json_string_value(text), bytes, found, room, &count);
    bool same = status == CHOIR_OK && count == (int64_t)room;
    for (int64_t i = 0; same && i < count; i++)
        same = found[i] == json_integer_value(json_array_get(ids, (size_t)i));
    free(found);
    if (!same)
        fail_msg("%s encodes '%s' otherwise", kind, json_string_value(text));
}

static void check_all(const choir_tokenizer *t, const char *kind, json_t *cases, json_t *lists)
{
    size_t i;
    json_t *ids;
    assert_int_equal(json_array_size(cases), json_array_size(lists));
    for (int pass = 0; pass < 2; pass++) /* the second time from the cache of words */
        json_array_foreach(lists, i, ids) check_ids(t, kind, json_array_get(cases, i), ids);
}

static void same_ids(void **state)
{
    json_error_t why;
    json_t *root = json_load_file(golden("expected.json"), JSON_ALLOW_NUL, &why), *lists;
    assert_non_null(root);
    json_t *expected = json_object_get(root, "expected"),
           *cases = json_object_get(root, "cases");
    char saved[] = "/tmp/choir-tokenizer-XXXXXX";
    const char *kind;
    int fd = mkstemp(saved);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(json_object_size(expected), 8);
    json_object_foreach(expected, kind, lists)
    {
        choir_tokenizer *t = load(kind), *again;
        check_all(t, kind, cases, lists);
        ok(choir_tokenizer_save(t, saved));
        ok(choir_tokenizer_load(saved, &again));
        check_all(again, kind, cases, lists);
        choir_tokenizer_free(t);
        choir_tokenizer_free(again);
    }
    unlink(saved);
    json_decref(root);
}

/* Any bytes, valid UTF-8 or not, are encoded and decoded without loss. */
static void bytes_come_back(void **state)
{
    static const char *const kinds[] = {
        "gpt2", "gpt2/vocab.json", "gpt2/merges.txt", "llama3.json"};
    enum { N = 5000 };
    char text[N];
    uint32_t seed = 1;
    for (int i = 0; i < N; i++) {
        seed = seed * 1664525 + 1013904223;
        text[i] = (char)(i % 3 ? seed >> 24 : (uint32_t) " eat\n'\xe4\xbd"[seed >> 24 & 7]);
    }
    for (int k = 0; k < 4; k++) {
        choir_tokenizer *t = load(kinds[k]);
        int64_t ids[N], count;
        size_t at = 0, bytes;
        ok(choir_tokenizer_encode(t, text, N, ids, N, &count));
        for (int64_t i = 0; i < count; i++) {
            const char *token = choir_tokenizer_token(t, ids[i], &bytes);
            assert_non_null(token);
            assert_true(at + bytes <= N);
            assert_memory_equal(token, text + at, bytes);
            at += bytes;
        }
        assert_int_equal(at, N);
        assert_null(choir_tokenizer_token(t, choir_tokenizer_size(t), &bytes));
        choir_tokenizer_free(t);
    }
}

/* A long word uses the heap and a short one the scan, with the same merges. The word of 'ab'
 * joins to aba and b in the order of ranks, not from the left. */
static const char joins[] =
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"model\":{"
    "\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ba\":2,\"ab\":3,\"baba\":4},"
    "\"merges\":[\"b a\",\"a b\",[\"ba\",\"ba\"]]}}";

static void long_words(void **state)
{
    choir_tokenizer *t;
    enum { N = 20001 };
    char *text = malloc(N);
    int64_t *ids = malloc(N * sizeof *ids), count;
    for (int i = 0; i < N; i++)
        text[i] = i % 2 ? 'b' : 'a';
    ok(choir__tokenizer_parse("it", joins, strlen(joins), &t));
    for (int n = 1; n <= N; n += n < 200 ? 4 : 4948) { /* a ba ba ... */
        ok(choir_tokenizer_encode(t, text, (size_t)n, ids, N, &count));
        assert_int_equal(count, 1 + n / 4);
        assert_int_equal(ids[0], 0);
        for (int64_t i = 1; i < count; i++)
            assert_int_equal(ids[i], 4);
    }
    assert_fails(choir_tokenizer_encode(t, "ab\nc", 4, ids, N, &count), CHOIR_ERR_RANGE,
        "line 1 has the character U+000A, which is not among the tokenizer's 5");
    choir_tokenizer_free(t);
    free(text);
    free(ids);
}

/* --- wrong files --- */

static void bad(const char *json, const char *text)
{
    choir_tokenizer *t = NULL;
    assert_fails(
        choir__tokenizer_parse("it.json", json, strlen(json), &t), CHOIR_ERR_FORMAT, text);
}

#define BPE(rest) "{\"model\":{\"type\":\"BPE\"," rest "}}"
#define VOCAB     "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"

#define SPLIT(regex)                                                                           \
    "{\"model\":{\"type\":\"BPE\"},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{"        \
    "\"Regex\":\"" regex "\"},\"behavior\":\"Isolated\"}}"

/* The reason is Oniguruma's; a machine without it names the library. */
static void bad_expressions(void **state)
{
    choir_tokenizer *t = NULL;
    static const char good[] = SPLIT("[[:alpha:]]+");
    if (!choir__regex_version()) {
        assert_fails(choir__tokenizer_parse("it.json", good, strlen(good), &t),
            CHOIR_ERR_UNSUPPORTED,
            "it.json: its regular expression '[[:alpha:]]+' needs Oniguruma");
        return;
    }
    bad(SPLIT("(x"),
        "it.json: '(x' is not a regular expression: end pattern with unmatched parenthesis");
    bad(SPLIT("x)"), "unmatched close parenthesis");
    bad(SPLIT("[x"), "premature end of char-class");
    bad(SPLIT("\\\\p{Letters}"), "invalid character property name {Letters}");
    bad(SPLIT("x{200000}"), "too big number for repeat range");
    char longest[8192] = "";
    strcpy(longest, "{\"model\":{\"type\":\"BPE\"},\"pre_tokenizer\":{\"type\":\"Split\","
                    "\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"");
    size_t n = strlen(longest);
    memset(longest + n, 'x', 5000);
    strcpy(longest + n + 5000, "\"}}}");
    bad(longest, "expected a regular expression of at most 4096 bytes, got 5000");
}

/* The published expressions with functions of their own need no Oniguruma, and neither do texts
 * and classes of characters: only the model of these files is wrong. */
static void without_oniguruma(void **state)
{
    static const char *const steps[] = {
        "\"type\":\"Split\",\"pattern\":{\"Regex\":\"'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| "
        "?\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":"
        "\"Removed\",\"invert\":true",
        "\"type\":\"Split\",\"pattern\":{\"String\":\"(\"},\"behavior\":\"MergedWithNext\"",
        "\"type\":\"Punctuation\"", "\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"",
        "\"type\":\"CharDelimiterSplit\",\"delimiter\":\"_\"", "\"type\":\"WhitespaceSplit\""};
    for (size_t i = 0; i < CHOIR_COUNT(steps); i++) {
        char json[600];
        snprintf(
            json, sizeof json, "{\"model\":{\"type\":\"?\"},\"pre_tokenizer\":{%s}}", steps[i]);
        bad(json, "it.json: model.type is \"?\"");
    }
    bad("{\"pre_tokenizer\":{\"type\":\"Punctuation\",\"behavior\":\"Joined\"},\"model\":{}}",
        "pre_tokenizer.behavior is \"Joined\"");
    bad("{\"pre_tokenizer\":{\"type\":\"CharDelimiterSplit\"},\"model\":{}}",
        "pre_tokenizer.delimiter is \"(missing)\"; a character is expected");
    bad("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"\"},\"behavior\":"
        "\"Removed\"},\"model\":{}}",
        "pre_tokenizer.pattern is \"\"; a String that is not empty is known");
}

static void bad_json(void **state)
{
    bad("", "not JSON");
    bad("{\n\"model\":{\n\"type\" \"BPE\"}}", "it.json: line 3 is not JSON");
    bad("[]", "expected a tokenizer");
    bad("{\"model\":{}}", "model.type is \"(missing)\"");
    bad("{\"model\":{\"type\":\"WordLevel\"}}", "model.type is \"WordLevel\"");
    bad(BPE("\"vocab\":{}"), "model.vocab is missing, empty");
    bad(BPE("\"vocab\":{\"a\":-1}"), "got -1");
    bad(BPE("\"vocab\":{\"a\":99999999999}"), "got 99999999999");
    bad(BPE("\"vocab\":{\"a\":16000000}"), "most of them are missing");
    bad(BPE("\"vocab\":{\"a\":\"0\"}"), "expected an id from 0");
    bad(BPE("\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]"), "has the id 0, which another");
    bad(BPE("\"vocab\":{\"\":0},\"merges\":[]"), "has 0 bytes");
    bad(BPE(VOCAB "\"merges\":3"), "model.merges: expected a list");
    bad(BPE(VOCAB "\"merges\":[\"a\"]"), "merge 1: expected two tokens");
    bad(BPE(VOCAB "\"merges\":[\"a b\",\"a c\"]"),
        "merge 2, of 'a' and 'c': the second is not");
    bad(BPE(VOCAB "\"merges\":[\"b a\"]"), "what they make is not");
    bad(BPE(VOCAB "\"merges\":[\"a b\",\"a b\"]"), "merge 2, of 'a' and 'b', is there before");
    bad(BPE(VOCAB "\"merges\":[],\"dropout\":0.1"), "model.dropout is 0.1");
    bad(BPE(VOCAB "\"merges\":[],\"unk_token\":\"?\""), "model.unk_token is ?");
    bad(BPE(VOCAB "\"merges\":[],\"byte_fallback\":true"), "byte_fallback is true, but");
    bad("{\"normalizer\":{\"type\":\"NFKD\"},\"model\":{\"type\":\"BPE\"}}",
        "normalizer.type is \"NFKD\"");
    bad("{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"},\"model\":{\"type\":\"BPE\"}}",
        "pre_tokenizer.type is \"UnicodeScripts\"");
    bad("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x+\"}},\"model\":{}}",
        "pre_tokenizer.behavior is");
    bad("{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\"},\"model\":{}}",
        "pre_tokenizer.pattern is");
    bad("{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA////\"},"
        "\"model\":{}}",
        "charsmap of 6 bytes is damaged");
    bad("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0],[\"b\"]]}}", "model.vocab[1]");
    bad("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0],[\"a\",0]]}}", "is there twice");
    bad("{\"type\":\"sentencepiece\",\"model\":\"!\"}", "expected base64");
}

static void bad_pairs(void **state)
{
    choir_tokenizer *t = NULL;
    static const char vocab[] = "{\"a\":0,\"b\":1}";
#define pair(v, m) choir__gpt2_parse("v.json", v, strlen(v), "m.txt", m, strlen(m), &t)
    assert_fails(pair("{\n\"a\":}", "a b\n"), CHOIR_ERR_FORMAT, "v.json: line 2 is not JSON");
    assert_fails(pair("[]", "a b\n"), CHOIR_ERR_FORMAT, "v.json: expected an object");
    assert_fails(pair(vocab, ""), CHOIR_ERR_FORMAT, "m.txt has no merges");
    assert_fails(pair(vocab, "#version: 0.2\na b c\n"), CHOIR_ERR_FORMAT, "m.txt: line 2");
    assert_fails(pair(vocab, "a b\n"), CHOIR_ERR_FORMAT, "what they make is not");
#undef pair
    assert_fails(choir_tokenizer_load("/nowhere/vocab.json", &t), CHOIR_ERR_IO, "vocab.json");
    assert_fails(choir_tokenizer_load(golden(""), &t), CHOIR_ERR_IO,
        "expected a folder with a tokenizer");
}

/* Every truncation of a .model, and every changed byte of its beginning, gives an error or a
 * tokenizer, and no harm (sanitizers check it). */
static void bad_models(void **state)
{
    char *data, *copy;
    size_t bytes;
    choir_tokenizer *t;
    ok(choir__read_file(golden("spm_unigram.model"), 0, &data, &bytes));
    for (size_t n = 0; n < bytes; n += n < 600 ? 1 : 97) {
        t = NULL;
        copy = memcpy(malloc(n + 1), data, n); /* its end is where a sanitizer sees it */
        if (choir__sentencepiece_parse("cut", copy, n, &t) == CHOIR_OK)
            choir_tokenizer_free(t);
        else
            assert_says("cut");
        free(copy);
    }
    for (size_t i = 0; i < 600; i++) {
        char old = data[i];
        t = NULL;
        data[i] = (char)(old ^ 0x81);
        if (choir__sentencepiece_parse("changed", data, bytes, &t) == CHOIR_OK)
            choir_tokenizer_free(t);
        data[i] = old;
    }
    assert_fails(choir__sentencepiece_parse("m", "\n\xff\xff\xff\xff\xff\x7f", 7, &t),
        CHOIR_ERR_FORMAT, "m: no SentencePiece model, or a damaged one (at byte 7");
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_ids),
        cmocka_unit_test(bytes_come_back),
        cmocka_unit_test(long_words),
        cmocka_unit_test(bad_json),
        cmocka_unit_test(bad_expressions),
        cmocka_unit_test(without_oniguruma),
        cmocka_unit_test(bad_pairs),
        cmocka_unit_test(bad_models),
    };
    return cmocka_run_group_tests_name("published tokenizers", tests, NULL, NULL);
}
