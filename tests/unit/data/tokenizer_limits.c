/* Untrusted tokenizers: ids beyond their room, long replacements, tokens with one beginning,
 * links at a temporary name, and a file of ids that becomes shorter while it is open. */
#include "folder_fixture.h"
#include "fuzz/tokenizer_recipe.h"
#include "data/tokenizer/tokenizer.h"

/* A SentencePiece model whose table replaces 'a' by `times` 'b's. */
static choir_status growing(size_t times, choir_tokenizer **t)
{
    uint32_t unit[0x400] = {0x100 << 10}, size = sizeof unit;
    blob map = {0}, normal = {0}, model = {0};
    unit[0x100 ^ 'a'] = 'a' | 1 << 8 | (0x100 ^ 'a' ^ 0x200) << 10;
    append(&map, &size, sizeof size);
    append(&map, unit, sizeof unit);
    for (size_t i = 0; i < times; i++)
        append_text(&map, "b");
    append(&map, "", 1);
    append_piece(&model, "<unk>", 0, 2);
    append_piece(&model, "b", -1, 1);
    append_piece(&model, "\xe2\x96\x81", -2, 1);
    append_field(&normal, 2, map.data, map.bytes);
    append_number(&normal, 3, 0);
    append_field(&model, 3, normal.data, normal.bytes);
    choir_status status = choir__tokenizer_parse("it.model", model.data, model.bytes, t);
    free(map.data);
    free(normal.data);
    free(model.data);
    return status;
}

/* The room is the caller's word: not an id is written beyond it. */
static void room(void **state)
{
    enum { TEXT = 3, EACH = 200, NEEDED = TEXT * EACH };
    choir_tokenizer *t = NULL;
    int64_t *ids = malloc(NEEDED * sizeof *ids), count = -1;
    ok(growing(EACH, &t));
    ok(choir_tokenizer_encode(t, "aaa", TEXT, NULL, 0, &count));
    assert_int_equal(count, NEEDED);
    for (size_t n = 0; n < NEEDED; n += 199) {
        ids[n] = -7;
        count = -1;
        assert_fails(choir_tokenizer_encode(t, "aaa", TEXT, ids, n, &count), CHOIR_ERR_RANGE,
            "the text has 600 tokens, and there is room for");
        assert_int_equal(count, NEEDED);
        assert_int_equal(ids[n], -7);
    }
    ok(choir_tokenizer_encode(t, "aaa", TEXT, ids, NEEDED, &count));
    for (int i = 0; i < NEEDED; i++)
        assert_int_equal(ids[i], 1);
    choir_tokenizer_free(t);
    free(ids);
    assert_fails(growing(100000, &t), CHOIR_ERR_FORMAT,
        "it.model: the normalizer's precompiled_charsmap has a replacement of 100000 bytes: at"
        " most 256");
}

/* --- time --- */

static void repeat(blob *b, const char *text, size_t times)
{
    while (times--)
        append_text(b, text);
}

/* Each position of the text begins 4095 pieces. */
static void long_pieces(void **state)
{
    enum { LONGEST = 4095, TEXT = 6000 };
    blob json = {0}, text = {0};
    choir_tokenizer *t = NULL;
    int64_t ids[TEXT], count = -1;
    append_text(
        &json, "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0]");
    for (int n = 1; n <= LONGEST; n++) {
        append_text(&json, ",[\"");
        repeat(&json, "a", (size_t)n);
        append_text(&json, "\",-1]");
    }
    append_text(&json, "]}}");
    repeat(&text, "a", TEXT);
    ok(choir__tokenizer_parse("it", json.data, json.bytes, &t));
    ok(choir_tokenizer_encode(t, text.data, text.bytes, ids, TEXT, &count));
    assert_int_equal(count, 2);
    assert_int_equal(ids[0] + ids[1], TEXT); /* an id is a length */
    choir_tokenizer_free(t);
    free(json.data);
    free(text.data);
}

/* Thousands of added tokens with one beginning, in a text of nothing else. A list of them all
 * at each place would be compared for minutes. */
static void many_added(void **state)
{
    enum { TOKENS = 20000, TEXT = 200000 };
    blob json = {0}, text = {0};
    choir_tokenizer *t = NULL;
    int64_t count = -1;
    append_text(&json, "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},"
                       "\"added_tokens\":[");
    for (int i = 0; i < TOKENS; i++) {
        char *one = choir__format(
            "%s{\"id\":%d,\"content\":\"aaaaaaaaaaaaaaaaaaaa%d\"}", i ? "," : "", i + 1, i);
        append_text(&json, one);
        free(one);
    }
    append_text(&json, "]}");
    repeat(&text, "a", TEXT);
    append_text(&text, "19999");
    ok(choir__tokenizer_parse("it", json.data, json.bytes, &t));
    ok(choir_tokenizer_encode(t, text.data, text.bytes, NULL, 0, &count));
    assert_int_equal(count, TEXT - 20 + 1);
    choir_tokenizer_free(t);
    free(json.data);
    free(text.data);
}

static void many_extended(void **state)
{
    enum { TOKENS = 30000 };
    char *names[TOKENS];
    choir_tokenizer *bytes, *t = NULL;
    for (int i = 0; i < TOKENS; i++)
        names[i] = choir__format("<%d>", i % (TOKENS - 1)); /* the first is there twice */
    ok(choir_tokenizer_bytes(&bytes));
    ok(choir__tokenizer_extend(bytes, names, TOKENS, &t));
    assert_int_equal(choir_tokenizer_size(t), 256 + TOKENS - 1);
    choir_tokenizer_free(t);
    for (int i = 0; i < TOKENS; i++)
        free(names[i]);
}

/* --- files --- */

/* Reading beyond the new end is an error, and no signal. */
static void cut_while_open(void **state)
{
    const char *path = at("ids.bin");
    uint16_t ids[50000];
    int64_t x[4], y[4];
    choir_dataset *d;
    for (int i = 0; i < 50000; i++)
        ids[i] = (uint16_t)(i % 100);
    spit(path, ids, sizeof ids);
    ok(choir_dataset_tokens(path, 4, CHOIR_TRAIN, 100, &d));
    assert_int_equal(truncate(path, 20000), 0);
    ok(choir_dataset_get(d, 100, x, y));
    assert_int_equal(x[0], 0);
    assert_int_equal(y[3], 4);
    assert_fails(choir_dataset_get(d, 40000, x, y), CHOIR_ERR_IO,
        "ids.bin: cannot be read at byte 80000: the file has become shorter");
    choir_dataset_free(d);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room),
        cmocka_unit_test(long_pieces),
        cmocka_unit_test(many_added),
        cmocka_unit_test(many_extended),
        cmocka_unit_test(cut_while_open),
    };
    return cmocka_run_group_tests_name("limits", tests, make_folder, remove_folder);
}
