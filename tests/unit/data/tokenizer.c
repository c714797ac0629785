/* Tokenizers: UTF-8, ids and back, and files of JSON, good and bad. */
#include "folder_fixture.h"
#include <sys/stat.h>
#include <choir/data.h>

enum { ROOM = 32 };

static void characters(void **state)
{
    const char *text = "b\xc3\xa9"
                       "a\n"
                       "\xf0\x9f\x8e\xb5"
                       "b\xe2\x82\xac"; /* b é a \n 🎵 b € */
    choir_tokenizer *t;
    ok(choir_tokenizer_chars(text, strlen(text), &t));
    assert_int_equal(choir_tokenizer_size(t), 6);
    static const char *const vocab[] = {
        "\n", "a", "b", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x8e\xb5"};
    for (int i = 0; i < 6; i++)
        assert_string_equal(choir_tokenizer_decode(t, i), vocab[i]);
    assert_null(choir_tokenizer_decode(t, 6));
    assert_null(choir_tokenizer_decode(t, -1));
    int64_t ids[ROOM], count;
    static const int64_t expected[] = {2, 3, 1, 0, 5, 2, 4};
    ok(choir_tokenizer_encode(t, text, strlen(text), ids, ROOM, &count));
    assert_int_equal(count, 7);
    assert_memory_equal(ids, expected, sizeof expected);
    ok(choir_tokenizer_encode(t, "", 0, ids, ROOM, &count));
    assert_int_equal(count, 0);
    choir_tokenizer_free(t);
    choir_tokenizer_free(NULL);
}

static void outside_the_vocabulary(void **state)
{
    choir_tokenizer *t;
    int64_t ids[ROOM], count = -5;
    ok(choir_tokenizer_chars("ab\n", 3, &t));
    assert_fails(choir_tokenizer_encode(t, "a\nb\naz", 6, ids, ROOM, &count), CHOIR_ERR_RANGE,
        "line 3 has the character 'z' (U+007A), which is not among the tokenizer's 3");
    assert_fails(choir_tokenizer_encode(t, "a\xc3\xa9", 3, ids, ROOM, &count), CHOIR_ERR_RANGE,
        "(U+00E9)");
    assert_fails(choir_tokenizer_encode(t, "\r", 1, ids, ROOM, &count), CHOIR_ERR_RANGE,
        "character U+000D");
    assert_fails(choir_tokenizer_encode(t, "a\xff", 2, ids, ROOM, &count), CHOIR_ERR_FORMAT,
        "byte 0xff at offset 1");
    assert_int_equal(count, -5);
    choir_tokenizer_free(t);
}

/* Well-formed and ill-formed text, from RFC 3629 and the Unicode standard's table 3-7. */
static void utf8(void **state)
{
    static const char *const good[] = {"\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80",
        "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {
        "\x80", "\xbf", "\xfe", "\xff", "\xf8\x88\x80\x80\x80",     /* no lead bytes */
        "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", /* overlong */
        "\xed\xa0\x80", "\xed\xbf\xbf",                             /* surrogates */
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf7\xbf\xbf\xbf", /* past U+10FFFF */
        "\xc3", "\xe2\x82", "\xf0\x9f\x8e",                         /* cut short */
        "\xc3"
        "a",
        "\xe2\x82"
        "a",
        "\xf0\x9f"
        "a\xb5",
        "\xc3\xc3", /* no continuation */
    };
    choir_tokenizer *t;
    int64_t id, count;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ok(choir_tokenizer_chars(good[i], strlen(good[i]), &t));
        assert_int_equal(choir_tokenizer_size(t), 1);
        assert_string_equal(choir_tokenizer_decode(t, 0), good[i]);
        ok(choir_tokenizer_encode(t, good[i], strlen(good[i]), &id, 1, &count));
        choir_tokenizer_free(t);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[16] = "ok\nok";
        strcat(text, bad[i]);
        char *exact = malloc(strlen(text)); /* so that reading on is seen by the sanitizer */
        memcpy(exact, text, strlen(text));
        assert_fails(
            choir_tokenizer_chars(exact, strlen(text), &t), CHOIR_ERR_FORMAT, "line 2");
        free(exact);
    }
    assert_fails(choir_tokenizer_chars("", 0, &t), CHOIR_ERR_ARGUMENT, "empty");
}

static void bytes(void **state)
{
    choir_tokenizer *t;
    ok(choir_tokenizer_bytes(&t));
    assert_int_equal(choir_tokenizer_size(t), 256);
    int64_t ids[ROOM], count;
    static const int64_t expected[] = {0, 255, 'a', 0x80};
    ok(choir_tokenizer_encode(t,
        "\0\xff"
        "a\x80",
        4, ids, ROOM, &count));
    assert_int_equal(count, 4);
    assert_memory_equal(ids, expected, sizeof expected);
    assert_string_equal(choir_tokenizer_decode(t, 'q'), "q");
    assert_string_equal(choir_tokenizer_decode(t, 200), "\xc8");
    assert_null(choir_tokenizer_decode(t, 256));
    choir_tokenizer_free(t);
}

static void saved_and_loaded(void **state)
{
    const char text[] =
        "\0\n\"\\/ \x7f\xc2\x80\xed\x9f\xbf\xf4\x8f\xbf\xbfz"; /* \0 at both ends */
    const char *path = at("tokens.json");
    choir_tokenizer *t, *u;
    ok(choir_tokenizer_chars(text, sizeof text, &t));
    ok(choir_tokenizer_save(t, path));
    ok(choir_tokenizer_save(t, path)); /* over the old one */
    ok(choir_tokenizer_load(path, &u));
    assert_int_equal(choir_tokenizer_size(u), choir_tokenizer_size(t));
    for (int64_t i = 0; i < choir_tokenizer_size(t); i++)
        assert_string_equal(choir_tokenizer_decode(u, i), choir_tokenizer_decode(t, i));
    int64_t a[ROOM], b[ROOM], na, nb;
    ok(choir_tokenizer_encode(t, text, sizeof text, a, ROOM, &na));
    ok(choir_tokenizer_encode(u, text, sizeof text, b, ROOM, &nb));
    assert_int_equal(na, nb);
    assert_memory_equal(a, b, (size_t)na * sizeof *a);
    choir_tokenizer_free(t);
    choir_tokenizer_free(u);

    ok(choir_tokenizer_bytes(&t));
    ok(choir_tokenizer_save(t, path));
    ok(choir_tokenizer_load(path, &u));
    assert_int_equal(choir_tokenizer_size(u), 256);
    char json[64] = "";
    FILE *f = fopen(path, "r");
    assert_non_null(fgets(json, sizeof json, f));
    fclose(f);
    assert_string_equal(json, "{\"type\":\"bytes\"}");
    choir_tokenizer_free(t);
    choir_tokenizer_free(u);
    unlink(path);
}

static void the_format(void **state)
{
    const char *path = at("tokens.json");
    choir_tokenizer *t;
    ok(choir_tokenizer_chars("b a\n", 4, &t));
    ok(choir_tokenizer_save(t, path));
    char json[64] = "";
    FILE *f = fopen(path, "r");
    assert_non_null(fgets(json, sizeof json, f));
    fclose(f);
    assert_string_equal(json, "{\"type\":\"chars\",\"vocab\":[\"\\n\",\" \",\"a\",\"b\"]}");
    choir_tokenizer_free(t);
    unlink(path);
}

static void bad_files(void **state)
{
    static const struct {
        const char *json, *says;
    } bad[] = {
        {"", "not JSON"},
        {"{\"type\":\"chars\",\n\"vocab\":[\"a\",}", "line 2 is not JSON"},
        {"{\"type\":\"chars\",\"vocab\":[\"a\"]", "not JSON"},
        {"{\"type\":\"chars\",\"vocab\":[\"\xff\"]}", "not JSON"},
        {"{\"type\":\"chars\",\"vocab\":[\"\\ud800\"]}", "not JSON"},
        {"{\"type\":\"bytes\",\"type\":\"chars\"}", "not JSON"},
        {"[]", "expected a tokenizer"},
        {"{}", "expected a tokenizer"},
        {"{\"type\":7}", "expected a tokenizer"},
        {"{\"type\":\"bpe\"}", "type of tokenizer 'bpe'"},
        {"{\"type\":\"chars\"}", "\"vocab\": expected a list"},
        {"{\"type\":\"chars\",\"vocab\":\"abc\"}", "\"vocab\": expected a list"},
        {"{\"type\":\"chars\",\"vocab\":[]}", "\"vocab\": expected a list"},
        {"{\"type\":\"chars\",\"vocab\":[\"a\",3]}", "entry 1"},
        {"{\"type\":\"chars\",\"vocab\":[\"a\",\"\"]}", "entry 1"},
        {"{\"type\":\"chars\",\"vocab\":[\"ab\"]}", "entry 0"},
        {"{\"type\":\"chars\",\"vocab\":[\"a\",\"c\",\"b\"]}", "entry 2 of \"vocab\", 'b'"},
        {"{\"type\":\"chars\",\"vocab\":[\"a\",\"a\"]}", "each once"},
    };
    const char *path = at("bad.json");
    choir_tokenizer *t = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        spit(path, bad[i].json, strlen(bad[i].json));
        assert_fails(choir_tokenizer_load(path, &t), CHOIR_ERR_FORMAT, bad[i].says);
        assert_says("bad.json");
    }
    assert_int_equal(truncate(path, (64 << 20) + 1), 0);
    assert_fails(
        choir_tokenizer_load(path, &t), CHOIR_ERR_FORMAT, "more than the 67108864 bytes");
    unlink(path);
    assert_fails(choir_tokenizer_load(path, &t), CHOIR_ERR_IO, "No such file");
    assert_fails(
        choir_tokenizer_load(folder, &t), CHOIR_ERR_IO, "expected a folder with a tokenizer");
    assert_null(t);
}

static void saving_fails(void **state)
{
    choir_tokenizer *t;
    ok(choir_tokenizer_bytes(&t));
    assert_fails(choir_tokenizer_save(t, at("no/such.json")), CHOIR_ERR_IO, "No such file");
    const char *taken = at("taken");
    assert_int_equal(mkdir(taken, 0700), 0);
    assert_fails(choir_tokenizer_save(t, taken), CHOIR_ERR_IO, "directory");
    assert_int_equal(rmdir(taken), 0);
    choir_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters),
        cmocka_unit_test(outside_the_vocabulary),
        cmocka_unit_test(utf8),
        cmocka_unit_test(bytes),
        cmocka_unit_test(saved_and_loaded),
        cmocka_unit_test(the_format),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(saving_fails),
    };
    return cmocka_run_group_tests_name("tokenizers", tests, make_folder, remove_folder);
}
