/* Rules of published tokenizers that are easy to get wrong. The ids are those of Hugging Face's
 * tokenizers and of SentencePiece, which tests/interop/tokenizer_ids.py compares with random
 * texts. */
#include "check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz/tokenizer_recipe.h"
#include "data/tokenizer/hf_pipeline.h"
#include "data/tokenizer/tokenizer.h"

enum { ROOM = 32 };

static choir_tokenizer *parse(const char *json)
{
    choir_tokenizer *t = NULL;
    ok(choir__tokenizer_parse("it.json", json, strlen(json), &t));
    return t;
}

/* Compares the ids of a text with a list such as "3 1 2". */
static void gives(const choir_tokenizer *t, const char *text, const char *expected)
{
    int64_t ids[ROOM], count = 0;
    char found[16 * ROOM] = "";
    if (choir_tokenizer_encode(t, text, strlen(text), ids, ROOM, &count) != CHOIR_OK)
        fail_msg("'%s': %s", text, choir_error_message());
    for (int64_t i = 0; i < count; i++)
        sprintf(found + strlen(found), "%s%lld", i ? " " : "", (long long)ids[i]);
    if (strcmp(found, expected))
        fail_msg("'%s' gives [%s], not [%s]", text, found, expected);
}

#define BERT(added)                                                                               \
    "{\"normalizer\":{\"type\":\"BertNormalizer\"},\"pre_tokenizer\":{\"type\":"                  \
    "\"BertPreTokenizer\"},\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"vocab\":{" \
    "\"[UNK]\":0,\"a\":1,\"b\":2,\"##b\":3,\"foo\":4,\"##c\":5}}," added "}"

/* A control character vanishes, also if Unicode counts it as white space; an added token that
 * is normalized is found in the normalized text. */
static void bert(void **state)
{
    (void)state;
    choir_tokenizer *t = parse(BERT("\"added_tokens\":[{\"id\":6,\"content\":\"Foo\","
                                    "\"normalized\":true},{\"id\":7,\"content\":\"B\","
                                    "\"normalized\":false}]"));
    gives(t,
        "a\x0b"
        "b",
        "1 3");
    gives(t,
        "a\xc2\x85"
        "b a\tb",
        "1 3 1 2");
    gives(t, "FOO foo Foo", "6 6 6");
    gives(t, "aB b", "1 7 2");
    choir_tokenizer_free(t);
}

#define METASPACE(normalizer, scheme, rest)                                                    \
    "{\"normalizer\":" normalizer                                                              \
    ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":"                              \
    "\"\xe2\x96\x81\",\"prepend_scheme\":\"" scheme                                            \
    "\"},\"model\":{\"type\":\"BPE\",\"vocab\":{"                                              \
    "\"a\":0,\"b\":1,\"\xe2\x96\x81\":2,\"\xe2\x96\x81"                                        \
    "a\":3,\"\\n\":4},\"merges\":[[\"\xe2\x96\x81\",\"a\"]]}" rest "}"

static void white_space(void **state)
{
    (void)state;
    choir_tokenizer *t = parse(METASPACE("{\"type\":\"Strip\",\"strip_left\":false,"
                                         "\"strip_right\":true}",
        "first", ""));
    gives(t, "a b\n", "3 2 1");
    gives(t, "a\xc2\xa0\xe2\x80\xa8", "3");
    gives(t,
        "\xe2\x96\x81"
        "a \xe2\x96\x81",
        "3 2 2");
    choir_tokenizer_free(t);
    /* one character for one leaves the beginning where it was; one for two does not */
    t = parse(METASPACE("{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xc3\xa9\"},"
                        "\"content\":\"a\"}",
        "first", ""));
    gives(t, "\xc3\xa9 \xc3\xa9", "3 3");
    choir_tokenizer_free(t);
    t = parse(METASPACE("{\"type\":\"Replace\",\"pattern\":{\"String\":\"ab\"},"
                        "\"content\":\"a\"}",
        "first", ""));
    gives(t, "ab", "0");
    choir_tokenizer_free(t);
    t = parse(METASPACE("null", "always",
        ",\"added_tokens\":[{\"id\":5,\"content\":\"[M]\",\"lstrip\":true,\"rstrip\":true,"
        "\"normalized\":false}]"));
    gives(t,
        "a\xc2\xa0\n[M]\xe2\x80\x83"
        "b",
        "3 5 2 1");
    choir_tokenizer_free(t);
}

/* The message names the character that has no token, and not the first of its word. */
static void the_character(void **state)
{
    (void)state;
    choir_tokenizer *t = parse(METASPACE("{\"type\":\"Replace\",\"pattern\":{\"String\":"
                                         "\"bb\"},\"content\":\"b\"}",
        "always", ""));
    int64_t ids[ROOM], count;
    static const char text[] = "a bb\nbba\xc3\xa9 c";
    assert_fails(choir_tokenizer_encode(t, text, strlen(text), ids, ROOM, &count),
        CHOIR_ERR_RANGE, "line 2 has the character '\xc3\xa9' (U+00E9), which is not among");
    assert_fails(choir_tokenizer_encode(t, "a ab c", 6, ids, ROOM, &count), CHOIR_ERR_RANGE,
        "line 1 has the character 'c' (U+0063)");
    choir_tokenizer_free(t);
    t = parse(METASPACE(
        "{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true}", "always", ""));
    static const char wide[] = "a \xe2\x80\x8a b"; /* a beginning may end in white space */
    assert_fails(choir_tokenizer_encode(t, wide, strlen(wide), ids, ROOM, &count),
        CHOIR_ERR_RANGE, "line 1 has the character '\xe2\x80\x8a' (U+200A)");
    choir_tokenizer_free(t);
    t = NULL;
    static const char late[] =
        "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
        "\"WhitespaceSplit\"},{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\","
        "\"prepend_scheme\":\"first\"}]},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},"
        "\"merges\":[]}}";
    assert_fails(choir__tokenizer_parse("it.json", late, strlen(late), &t),
        CHOIR_ERR_UNSUPPORTED, "Metaspace with prepend_scheme \"first\" behind another step");
    static const char key[] = "{\"model\":{\"type\":\"BPE\",\n\"vocab\":{\"\\u0000\":0}}}";
    assert_fails(choir__tokenizer_parse("it.json", key, strlen(key), &t), CHOIR_ERR_FORMAT,
        "it.json: line 2 has a key with the character U+0000, which is not supported");
}

/* Steps that each make a text longer are refused where all of them together would fill memory.
 */
static void growth(void **state)
{
    (void)state;
    char a[257], step[400], file[4000];
    memset(a, 'a', 256);
    a[256] = '\0';
    snprintf(step, sizeof step,
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"%s\"}", a);
    static const char model[] =
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}";
    snprintf(file, sizeof file,
        "{%s,\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[%s,%s]}}", model, step,
        step);
    choir_tokenizer *t = NULL;
    assert_fails(choir__tokenizer_parse("it.json", file, strlen(file), &t), CHOIR_ERR_FORMAT,
        "it.json: expected a normalizer whose steps make a text at most 4096 times as long, got "
        "65536 times");
    snprintf(file, sizeof file, "{%s,\"normalizer\":%s}", model, step);
    ok(choir__tokenizer_parse("it.json", file, strlen(file), &t));
    choir_tokenizer_free(t);
}

/* A model of the pieces a, b, x, U+2581 and the user-defined <a>. */
static choir_tokenizer *symbols(unsigned model, unsigned prefix)
{
    blob m = {0}, trainer = {0}, normal = {0};
    choir_tokenizer *t = NULL;
    append_piece(&m, "<unk>", 0, 2);
    append_piece(&m, "<a>", 0, 4);
    append_piece(&m, "a", -1, 1);
    append_piece(&m, "b", -2, 1);
    append_piece(&m, "x", -3, 1);
    append_piece(&m, "\xe2\x96\x81", -4, 1);
    append_number(&trainer, 3, model);
    append_field(&m, 2, trainer.data, trainer.bytes);
    append_number(&normal, 3, prefix);
    append_number(&normal, 4, 1);
    append_field(&m, 3, normal.data, normal.bytes);
    ok(choir__tokenizer_parse("it.model", m.data, m.bytes, &t));
    free(m.data);
    free(trainer.data);
    free(normal.data);
    return t;
}

/* Spaces beside a user-defined symbol are those of the whole text, and no text is lost. */
static void user_defined(void **state)
{
    (void)state;
    for (unsigned model = 1; model <= 2; model++) {
        choir_tokenizer *t = symbols(model, 1);
        gives(t, "x <a>  b ", "5 4 5 1 5 3");
        gives(t, "<a>", "5 1");
        gives(t, "<a> <a>a", "5 1 5 1 2");
        gives(t, "\xe2\x96\x81", "");
        choir_tokenizer_free(t);
        t = symbols(model, 0);
        gives(t, "a ", "2");
        gives(t, " ab  ", "2 3");
        gives(t, "a <a> b", "2 5 1 5 3");
        choir_tokenizer_free(t);
    }
}

/* Words, with a bar between them, that tokenizers makes of a text with a Split step. */
static const struct {
    const char *regex, *text, *words;
    choir__regex_behavior behavior;
    bool invert;
} splits[] = {
    {"\\s+(?!\\S)|\\s", "a   b c ", "a|  | |b| |c| ", CHOIR__REGEX_ISOLATED, false},
    {"b+?", "abbc", "a|b|b|c", CHOIR__REGEX_ISOLATED, false},
    {"x*+xy|y", "xxy", "xx|y", CHOIR__REGEX_ISOLATED, false},
    {"x*xy|y", "xxy", "xxy", CHOIR__REGEX_ISOLATED, false},
    {"x{2,3}", "xxxxxxyx", "xxx|xxx|yx", CHOIR__REGEX_ISOLATED, false},
    {"(?i:'s|'LL)?[^\\W]", "", NULL, CHOIR__REGEX_ISOLATED, false},
    {"(?i:'s|'LL)", "it's'lL'\xc5\xbf", "it|'s|'lL|'\xc5\xbf", CHOIR__REGEX_ISOLATED, false},
    {"[\\p{Lu}\\p{Lt}]\\p{Ll}*", "oneTwoThree", "one|Two|Three", CHOIR__REGEX_ISOLATED, false},
    {"[^\\P{Lu}A]|\\d", "ABc1", "A|B|c|1", CHOIR__REGEX_ISOLATED, false},
    {"[a-c&&[b]]", "", NULL, CHOIR__REGEX_ISOLATED, false},
    {"-", "-a--b-", "a|b", CHOIR__REGEX_REMOVED, false},
    {"-", "-a--b-", "-|-|-|-", CHOIR__REGEX_REMOVED, true},
    {"-", "-a--b-", "-|a-|-|b-", CHOIR__REGEX_PREVIOUS, false},
    {"-", "-a--b-", "-a|-|-b|-", CHOIR__REGEX_NEXT, false},
    {"-", "-a--b-", "-|a|--|b|-", CHOIR__REGEX_CONTIGUOUS, false},
    {".$", "ab\ncd", "a|b|\nc|d", CHOIR__REGEX_ISOLATED, false},
    {"\\u00e9|\\x41|\\x{42}\\t",
        "A\xc3\xa9"
        "B\tB",
        "A|\xc3\xa9|B\t|B", CHOIR__REGEX_ISOLATED, false},
    {"[^a]", "a\xff\xc3z", "a|\xff|\xc3|z", CHOIR__REGEX_ISOLATED, false},
};

static void expressions(void **state)
{
    (void)state;
    for (size_t i = 0; i < CHOIR_COUNT(splits); i++) {
        choir__regex_split s = {.behavior = splits[i].behavior, .invert = splits[i].invert};
        const char *text = splits[i].text, *from, *to;
        char words[64] = "";
        choir_status status = choir__regex_new("it.json", splits[i].regex, &s.regex);
        assert_int_equal(status, splits[i].words ? CHOIR_OK : CHOIR_ERR_FORMAT);
        if (!splits[i].words)
            continue;
        choir__regex_walk walk = choir__regex_split_begin(&s, text, text + strlen(text));
        while (choir__regex_split_next(&walk, &from, &to))
            sprintf(words + strlen(words), "%s%.*s", *words ? "|" : "", (int)(to - from), from);
        if (strcmp(words, splits[i].words) != 0)
            fail_msg(
                "%s: '%s' gives '%s', not '%s'", splits[i].regex, text, words, splits[i].words);
        choir__regex_free(s.regex);
    }
}

/* A text on which an expression looks ahead of each character to its end is cut as far as the
 * steps last, and no character is lost. */
static void steps_end(void **state)
{
    (void)state;
    enum { BYTES = 20000 };
    choir__regex_split s = {0};
    char *text = malloc(BYTES);
    const char *from, *to, *at = text;
    int words = 0;
    memset(text, ' ', BYTES);
    ok(choir__regex_new("it.json", "\\s*x|\\s", &s.regex));
    choir__regex_walk walk = choir__regex_split_begin(&s, text, text + BYTES);
    for (; choir__regex_split_next(&walk, &from, &to); at = to, words++)
        assert_true(from == at);
    assert_true(at == text + BYTES);
    assert_in_range(words, 2, BYTES - 1);
    choir__regex_free(s.regex);
    free(text);
}

/* Marks that are newer than the Unicode of tokenizers' normalizers keep their place; older ones
 * are put in order. */
static void order_of_marks(void **state)
{
    (void)state;
    static const char *const forms[][2] = {
        {"e\xcc\x81\xe0\xa3\x8e\xf0\x9d\x85\xa5", "\xc3\xa9\xe0\xa3\x8e\xf0\x9d\x85\xa5"},
        {"a\xcc\x95\xcc\x82", "\xc3\xa2\xcc\x95"}};
    for (size_t i = 0; i < CHOIR_COUNT(forms); i++) {
        choir__tokenizer_buffer out = {0};
        choir__nfc(forms[i][0], forms[i][0] + strlen(forms[i][0]), &out);
        choir__tokenizer_buffer_add(&out, "", 1);
        assert_string_equal(out.data, forms[i][1]);
        free(out.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bert),
        cmocka_unit_test(white_space),
        cmocka_unit_test(the_character),
        cmocka_unit_test(growth),
        cmocka_unit_test(user_defined),
        cmocka_unit_test(expressions),
        cmocka_unit_test(steps_end),
        cmocka_unit_test(order_of_marks),
    };
    return cmocka_run_group_tests_name("rules of tokenizers", tests, NULL, NULL);
}
