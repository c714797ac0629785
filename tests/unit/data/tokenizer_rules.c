/* Rules of published tokenizers that are easy to get wrong. The ids are those of Hugging Face's
 * tokenizers and of SentencePiece, which tests/interop/tokenizer_ids.py compares with random
 * texts. */
#include "check.h"
#include <pthread.h>
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
    choir__cut_behavior behavior;
    bool invert;
} splits[] = {
    {"\\s+(?!\\S)|\\s", "a   b c ", "a|  | |b| |c| ", CHOIR__CUT_ISOLATED, false},
    {"b+?", "abbc", "a|b|b|c", CHOIR__CUT_ISOLATED, false},
    {"x*+xy|y", "xxy", "xx|y", CHOIR__CUT_ISOLATED, false},
    {"x*xy|y", "xxy", "xxy", CHOIR__CUT_ISOLATED, false},
    {"x{2,3}", "xxxxxxyx", "xxx|xxx|yx", CHOIR__CUT_ISOLATED, false},
    {"(?i:'s|'LL)", "it's'lL'\xc5\xbf", "it|'s|'lL|'\xc5\xbf", CHOIR__CUT_ISOLATED, false},
    {"[\\p{Lu}\\p{Lt}]\\p{Ll}*", "oneTwoThree", "one|Two|Three", CHOIR__CUT_ISOLATED, false},
    {"[^\\P{Lu}A]|\\d", "ABc1", "A|B|c|1", CHOIR__CUT_ISOLATED, false},
    {"[a-c&&[b]]", "abc", "a|b|c", CHOIR__CUT_ISOLATED, false},
    {"(?<=a)b|(x+)+y", "abbxxy", "a|b|b|xxy", CHOIR__CUT_ISOLATED, false},
    {"\\G\\d{2}|\\bz", "1234a56z z", "12|34|a56z |z", CHOIR__CUT_ISOLATED, false},
    {"x*", "axxb", "a|xx|b", CHOIR__CUT_ISOLATED, false},
    {"x*", "axxb", "a|b", CHOIR__CUT_REMOVED, false},
    {"-", "-a--b-", "a|b", CHOIR__CUT_REMOVED, false},
    {"-", "-a--b-", "-|-|-|-", CHOIR__CUT_REMOVED, true},
    {"-", "-a--b-", "-|a-|-|b-", CHOIR__CUT_PREVIOUS, false},
    {"-", "-a--b-", "-a|-|-b|-", CHOIR__CUT_NEXT, false},
    {"-", "-a--b-", "-|a|--|b|-", CHOIR__CUT_CONTIGUOUS, false},
    {".$", "ab\ncd", "a|b|\nc|d", CHOIR__CUT_ISOLATED, false},
    {"\\u00e9|\\x41|\\x{42}\\t",
        "A\xc3\xa9"
        "B\tB",
        "A|\xc3\xa9|B\t|B", CHOIR__CUT_ISOLATED, false},
};

static void need_oniguruma(void)
{
    if (!choir__regex_version())
        skip(); /* this build, or this machine, lacks it */
}

/* Stores the words of a text that are not empty, with a bar between them. */
static choir_status cut(const choir__cuts *cuts, const char *text, char *words)
{
    const char *from, *to;
    choir__cut_walk walk = choir__cut_begin(cuts, text, text + strlen(text));
    for (*words = '\0'; choir__cut_next(&walk, &from, &to);)
        if (from < to)
            sprintf(words + strlen(words), "%s%.*s", *words ? "|" : "", (int)(to - from), from);
    return walk.status;
}

static void expressions(void **state)
{
    char words[64];
    need_oniguruma();
    for (size_t i = 0; i < CHOIR_COUNT(splits); i++) {
        choir__cuts cuts = {.behavior = splits[i].behavior, .invert = splits[i].invert};
        ok(choir__regex_new("it.json", splits[i].regex, &cuts.regex));
        ok(cut(&cuts, splits[i].text, words));
        if (strcmp(words, splits[i].words) != 0)
            fail_msg("%s: '%s' gives '%s', not '%s'", splits[i].regex, splits[i].text, words,
                splits[i].words);
        choir__cuts_free(&cuts);
    }
}

static bool is_dash(uint32_t code)
{
    return code == '-';
}

/* A text and a class of characters are cut as an expression would, and need no Oniguruma. */
static void literals(void **state)
{
    char words[64];
    size_t tried = 0;
    for (size_t i = 0; i < CHOIR_COUNT(splits); i++) {
        choir__cuts cuts = {.behavior = splits[i].behavior, .invert = splits[i].invert};
        for (int class = 0; class < 2 && !strcmp(splits[i].regex, "-"); class ++, tried++) {
            cuts.literal = class ? NULL : choir__strdup("-");
            cuts.is = is_dash;
            ok(cut(&cuts, splits[i].text, words));
            assert_string_equal(words, splits[i].words);
            free(cuts.literal);
        }
    }
    assert_int_equal(tried, 10);
}

/* An expression that goes back from each place is an error that quotes Oniguruma, on a text of
 * any length, and does not take the time of all its ways; nested parts do not use up a small
 * stack. */
static void *hostile(void *arg)
{
    static const char *const far[] = {"(\\s|\\s)*\\d", "(?:(?:\\s{1,100}){1,100}){1,100}\\S"};
    enum { BYTES = 20000 };
    char *text = malloc(BYTES + 1), *deep = malloc(3001), *words = malloc(BYTES + 1);
    choir__cuts cuts = {0};
    memset(text, ' ', BYTES);
    text[BYTES] = '\0';
    for (size_t i = 0; i < CHOIR_COUNT(far); i++) {
        ok(choir__regex_new("it.json", far[i], &cuts.regex));
        assert_fails(cut(&cuts, text, words), CHOIR_ERR_RANGE,
            "takes too many steps on 20000 bytes of text: ");
        choir__cuts_free(&cuts);
    }
    memset(text, 'a', BYTES); /* a long word takes few steps */
    ok(choir__regex_new("it.json", "\\p{Lu}*\\p{Ll}+", &cuts.regex));
    const char *from, *to;
    choir__cut_walk walk = choir__cut_begin(&cuts, text, text + BYTES);
    assert_true(choir__cut_next(&walk, &from, &to) && to - from == BYTES);
    choir__cuts_free(&cuts);
    memset(deep, '(', 3000);
    deep[3000] = '\0';
    assert_fails(choir__regex_new("it.json", deep, &cuts.regex), CHOIR_ERR_FORMAT,
        "is not a regular expression: parse depth limit over");
    free(words);
    free(text);
    free(deep);
    return arg;
}

static void hostile_expressions(void **state)
{
    need_oniguruma();
    pthread_t thread;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    assert_int_equal(pthread_create(&thread, &small, hostile, NULL), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&small);
}

/* A long text is cut only where no step before the words looks across: pairs of any characters
 * depend on all that stands before. */
static void cuts_of_long_texts(void **state)
{
    static const char bytes[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}";
    static const struct {
        const char *pattern;
        size_t cut;
    } firsts[] = {{"\"Regex\":\"..\"", 0}, {"\"String\":\"b c\"", 0}, {"\"String\":\".\"", 2}};
    need_oniguruma();
    for (size_t i = 0; i < CHOIR_COUNT(firsts); i++) {
        char json[400];
        snprintf(json, sizeof json,
            "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
            "\"pattern\":{%s},\"behavior\":\"Isolated\"},%s]},\"model\":{\"type\":\"BPE\","
            "\"vocab\":{\"a\":0},\"merges\":[]}}",
            firsts[i].pattern, bytes);
        choir_tokenizer *t = parse(json);
        assert_int_equal(choir__tokenizer_last_cut(t, "ab\ncd", 5), firsts[i].cut);
        choir_tokenizer_free(t);
    }
}

/* Marks that are newer than the Unicode of tokenizers' normalizers keep their place; older ones
 * are put in order. */
static void order_of_marks(void **state)
{
    static const char *const forms[][2] = {
        {"e\xcc\x81\xe0\xa3\x8e\xf0\x9d\x85\xa5", "\xc3\xa9\xe0\xa3\x8e\xf0\x9d\x85\xa5"},
        {"a\xcc\x95\xcc\x82", "\xc3\xa2\xcc\x95"}};
    for (size_t i = 0; i < CHOIR_COUNT(forms); i++) {
        choir__text_buffer out = {0};
        choir__nfc(forms[i][0], forms[i][0] + strlen(forms[i][0]), &out);
        choir__text_buffer_add(&out, "", 1);
        assert_string_equal(out.bytes, forms[i][1]);
        free(out.bytes);
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
        cmocka_unit_test(literals),
        cmocka_unit_test(hostile_expressions),
        cmocka_unit_test(cuts_of_long_texts),
        cmocka_unit_test(order_of_marks),
    };
    return cmocka_run_group_tests_name("rules of tokenizers", tests, NULL, NULL);
}
