/* Pairs of an image and JSON: texts as Donut makes them, splits, tokens, and errors. */
#include "image_fixture.h"

#include <math.h>
#include "data/text/document_text.h"
#include "data/tokenizer/tokenizer.h"

static void text_of(void **state)
{
    static const char *const cases[][2] = {
        {"{\"a\": \"x\", \"b\": {\"c\": 1}}", "<s_b><s_c>1</s_c></s_b><s_a>x</s_a>"},
        {"[\"x\", {\"k\": null}]", "x<sep/><s_k>None</s_k>"},
        {"{\"text_sequence\": \"a text\"}", "a text"},
        {"{\"text_sequence\": \"t\", \"z\": true}",
            "<s_z>True</s_z><s_text_sequence>t</s_text_sequence>"},
        {"[1.5, 2.0, 0.1, false, 123456789012]",
            "1.5<sep/>2.0<sep/>0.1<sep/>False<sep/>123456789012"},
        {"[10.0, 1e5, 1200000.0, -3e15, 1e16, 1.5e22, 1e-4, 2.5e-5, -0.0, 0.30000000000000004]",
            "10.0<sep/>100000.0<sep/>1200000.0<sep/>-3000000000000000.0<sep/>1e+16<sep/>"
            "1.5e+22<sep/>"
            "0.0001<sep/>2.5e-05<sep/>-0.0<sep/>0.30000000000000004"},
        {"{}", ""},
    };
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        choir__names fields = {0};
        choir__json_nodes nodes = {0};
        const char *where;
        char *json = choir__strdup(cases[i][0]);
        assert_null(choir__json_parse(&nodes, json, json + strlen(json), &where));
        char *text = choir__document_text(nodes.node, &fields);
        assert_string_equal(text, cases[i][1]);
        free(text);
        choir__names_free(&fields);
        choir__json_nodes_free(&nodes);
        free(json);
    }
}

static void write_metadata(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/metadata.jsonl", name);
    spit(new_at(path), text, strlen(text));
}

static choir_status open_at(
    const char *name, choir_split split, choir_tokenizer **t, choir_dataset **data)
{
    choir_document_opts o = choir_document_defaults();
    o.image.height = 8;
    o.image.width = 12;
    o.context = 10;
    *data = NULL;
    return choir_dataset_documents(new_at(name), split, o, t, data);
}

static void pairs(void **state)
{
    choir_tokenizer *t = NULL;
    choir_dataset *train, *held;
    float x[8 * 12 * 3];
    int64_t y[10];
    write_png(new_at("d/train/a.png"), 20, 10, PNG_COLOR_TYPE_GRAY, 8, false);
    write_png(new_at("d/validation/b.png"), 5, 10, PNG_COLOR_TYPE_GRAY, 8, false);
    write_metadata("d/train",
        "{\"file_name\": \"a.png\", \"ground_truth\": \"{\\\"gt_parse\\\": "
        "{\\\"k\\\": \\\"ab\\\"}}\"}\n\n");
    write_metadata("d/validation",
        "{\"file_name\": \"b.png\", \"ground_truth\": {\"gt_parse\": {\"m\": \"zzzzzzzzzz\"}}}");
    ok(open_at("d", CHOIR_TRAIN, &t, &train));
    int64_t size = choir_tokenizer_size(t);
    ok(open_at("d", CHOIR_VALIDATION, &t, &held));
    assert_int_equal(choir_tokenizer_size(t), size); /* both splits' fields were known */
    assert_int_equal(choir_dataset_length(train), 1);
    ok(choir_dataset_get(train, 0, x, y));
    const char *wanted[] = {"<s_k>", "a", "b", "</s_k>", "</s>", "<pad>", "<pad>"};
    for (size_t i = 0; i < CHOIR_COUNT(wanted); i++)
        assert_string_equal(choir_tokenizer_decode(t, y[i]), wanted[i]);
    assert_float_equal(x[0], -1, 1e-6); /* 20 x 10 into 12 x 8: a black border above */
    ok(choir_dataset_get(held, 0, x, y));
    assert_string_equal(choir_tokenizer_decode(t, y[9]), "z"); /* cut */

    char path[256];
    snprintf(path, sizeof path, "%s", new_at("d/tokenizer.json"));
    ok(choir_tokenizer_save(t, path));
    choir_tokenizer *again;
    ok(choir_tokenizer_load(path, &again));
    assert_int_equal(choir_tokenizer_size(again), size);
    for (int64_t i = 0; i < size; i++)
        assert_string_equal(choir_tokenizer_decode(again, i), choir_tokenizer_decode(t, i));
    int64_t ids[16], count;
    ok(choir_tokenizer_encode(again, "<s_k>ab</s_k>", 13, ids, 16, &count));
    assert_int_equal(count, 4);
    choir_tokenizer_free(again);
    choir_tokenizer_free(t);
    choir_dataset_free(train);
    choir_dataset_free(held);
}

static void held_out(void **state)
{
    char text[4000] = "";
    choir_tokenizer *t = NULL;
    choir_dataset *train, *held;
    for (int i = 0; i < 25; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
            "{\"file_name\": \"%d.png\", \"ground_truth\": {\"gt_parses\": [{\"k\": %d}]}}\n",
            i, i);
    write_metadata("h", text);
    ok(open_at("h", CHOIR_TRAIN, &t, &train));
    ok(open_at("h", CHOIR_VALIDATION, &t, &held));
    assert_int_equal(choir_dataset_length(train), 23);
    assert_int_equal(choir_dataset_length(held), 2);
    float x[8 * 12 * 3];
    int64_t y[10];
    assert_int_equal(choir_dataset_get(train, 3, x, y), CHOIR_ERR_IO); /* there is no 3.png */
    assert_says("3.png");
    choir_tokenizer_free(t);
    choir_dataset_free(train);
    choir_dataset_free(held);
}

static void wrong(void **state)
{
    static const char *const cases[][2] = {
        /* metadata.jsonl, a word of the message */
        {"{\"file_name\": \"a.png\"}", "gt_parse"},
        {"{\"ground_truth\": {\"gt_parse\": {}}}", "file_name"},
        {"{\"file_name\": \"a.png\", \"ground_truth\": \"{\"}", "line 1"},
        {"{\"file_name\": \"a.png\", \"ground_truth\": \"{]\"}", "string of JSON"},
        {"\n\nnonsense", "line 3"},
        {"[]", "expected an object"},
        {"{}", "file_name"},
        {"", "no lines"},
    };
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        choir_tokenizer *t = NULL;
        choir_dataset *data;
        write_metadata("w", cases[i][0]);
        assert_int_equal(open_at("w", CHOIR_TRAIN, &t, &data), CHOIR_ERR_FORMAT);
        if (!strstr(choir_error_message(), cases[i][1]))
            fail_msg("case %zu: '%s' lacks '%s'", i, choir_error_message(), cases[i][1]);
        assert_null(t);
        assert_null(data);
    }
    choir_tokenizer *t = NULL;
    choir_dataset *data;
    assert_int_equal(open_at("nowhere", CHOIR_TRAIN, &t, &data), CHOIR_ERR_IO);
}

/* Options are checked before files are read. */
static void options(void **state)
{
    for (int i = 0; i < 8; i++) {
        choir_document_opts o = choir_document_defaults();
        choir_tokenizer *t = NULL;
        choir_dataset *data = NULL;
        o.image.height = i == 0 ? 0 : i == 1 ? 16385 : i == 2 ? -8 : 8;
        o.image.width = i == 0 ? 0 : i == 3 ? 16385 : 12;
        o.context = i == 4 ? 1 : 10;
        o.image.std[1] = i == 5 ? 0 : i == 6 ? NAN : 1;
        o.image.mean[2] = i == 7 ? INFINITY : 0;
        const char *word = i == 0   ? "0 x 0"
                           : i == 1 ? "12 x 16385"
                           : i == 2 ? "12 x -8"
                           : i == 3 ? "16385 x 8"
                           : i == 4 ? "1 tokens"
                           : i < 7  ? "deviation"
                                    : "mean, got inf";
        assert_fails(choir_dataset_documents(new_at("nowhere"), CHOIR_TRAIN, o, &t, &data),
            CHOIR_ERR_ARGUMENT, word);
        assert_null(t);
        assert_null(data);
    }
}

/* An extended tokenizer still allows its texts to be cut, though not within a token; a token
 * that a file has twice is refused. */
static void extended(void **state)
{
    static const char *const twice =
        "{\"type\":\"extended\",\"base\":\"%s\",\"added\":[\"<s_k>\",\"<s_k>\"]}";
    static char *tokens[] = {"<s_k>", "<s_two\nlines>"};
    for (int64_t count = 1; count <= 2; count++) {
        choir_tokenizer *inner, *t;
        ok(choir_tokenizer_chars("ab\n", 3, &inner));
        ok(choir__tokenizer_extend(inner, tokens, count, &t));
        assert_int_equal(choir_tokenizer_size(t), 3 + count);
        assert_int_equal(t->cut_before, count == 1 ? inner->cut_before : 0);
        choir_tokenizer_free(t);
    }
    char *text = choir__format(twice, "{\\\"type\\\":\\\"bytes\\\"}");
    choir_tokenizer *t = NULL;
    choir_status status = choir__tokenizer_parse("t.json", text, strlen(text), &t);
    if (status == CHOIR_OK || !strstr(choir_error_message(), "twice"))
        fail_msg("%s: '%s'", text, choir_error_message());
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(text_of), cmocka_unit_test(pairs),
        cmocka_unit_test(held_out), cmocka_unit_test(wrong), cmocka_unit_test(extended),
        cmocka_unit_test(options)};
    return cmocka_run_group_tests_name("documents", tests, make_folder, remove_all);
}
