/* Documents of language models: how records become tokens and targets, the splits, mixtures and
 * parts of data, and the messages for wrong records. */

#include "folder_fixture.h"
#include <choir/data_open.h>
#include <choir/models.h>
#include "base/base.h"
#include "data/tokenizer/tokenizer.h"

static choir_dataset *open_corpus(
    const char *path, choir_split split, int64_t context, choir_tokenizer **tokenizer)
{
    choir_corpus_opts opts = choir_corpus_defaults();
    choir_dataset *data;
    opts.context = context;
    choir_status status = choir_dataset_corpus(path, split, opts, tokenizer, &data);
    ok(status);
    return data;
}

/* Writes x and y of sample 0 as text: a target in brackets, the end of a text as '$'. */
static void show(choir_dataset *data, const choir_tokenizer *t, char *x_text, char *y_text)
{
    int64_t n = data->x_shape.dim[0], x[256], y[256],
            end = choir_tokenizer_id(t, "<|endoftext|>");
    assert_true(n <= 256);
    ok(choir_dataset_get(data, 0, x, y));
    for (int64_t i = 0; i < n; i++) {
        x_text += sprintf(x_text, "%s", x[i] == end ? "$" : choir_tokenizer_decode(t, x[i]));
        y_text += sprintf(y_text, "%s",
            y[i] == CHOIR_IGNORED ? "."
            : y[i] == end         ? "$"
                                  : choir_tokenizer_decode(t, y[i]));
    }
}

static void texts_are_joined(void **state)
{
    char x[256], y[256];
    choir_tokenizer *t = NULL;
    const char *path = put("a.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"c\"}\n{\"text\":\"\"}\n"
                                      "{\"text\":\"d\\u00e9f\"}\n");
    choir_corpus_opts opts = choir_corpus_defaults();
    choir_dataset *data = open_corpus(path, CHOIR_TRAIN, 9, &t);
    show(data, t, x, y);
    assert_string_equal(x, "ab$c$$d\xc3\xa9"
                           "f");
    assert_string_equal(y, "b$c$$d\xc3\xa9"
                           "f$");
    assert_int_equal(choir_dataset_length(data), 1);
    assert_false(choir_dataset_ignores(data));
    assert_int_equal(data->classes, choir_tokenizer_size(t));
    choir_dataset_free(data);
    data = NULL;
    assert_fails(choir_dataset_corpus(path, CHOIR_VALIDATION, opts, &t, &data),
        CHOIR_ERR_ARGUMENT, "validation split");
    choir_tokenizer_free(t);
}

/* A tokenizer.json of two letters, with this post-processor. */
static choir_tokenizer *beginning(const char *post_processor)
{
    choir_tokenizer *t;
    char *json = choir__format(
        "{\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true},{\"id\":1,"
        "\"content\":\"<|endoftext|>\",\"special\":true}],\"post_processor\":%s,\"model\":{"
        "\"type\":\"BPE\",\"vocab\":{\"<s>\":0,\"<|endoftext|>\":1,\"a\":2,\"b\":3},"
        "\"merges\":[]}}",
        post_processor);
    ok(choir__tokenizer_parse("t.json", json, strlen(json), &t));
    free(json);
    return t;
}

/* Each form in which tokenizers name the token; unlike transformers, none is doubled. */
static void texts_begin_with_the_tokenizers_token(void **state)
{
    static const char template[] =
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},"
        "{\"Sequence\":{\"id\":\"A\"}}]}";
    static const char after[] =
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}},"
        "{\"SpecialToken\":{\"id\":\"<s>\"}}]}";
    char *both = choir__format("{\"processors\":[{\"type\":\"ByteLevel\"},%s]}", template);
    const struct {
        const char *post;
        bool begins;
    } cases[] = {{"null", false}, {template, true}, {after, false}, {both, true},
        {"{\"type\":\"RobertaProcessing\",\"cls\":[\"<s>\",0],\"sep\":[\"b\",3]}", true},
        {"{\"type\":\"ByteLevel\"}", false}};
    const char *path = put("b.jsonl", "{\"text\":\"ab\"}\n{\"prompt\":\"a\",\"completion\":"
                                      "\"b\"}\n{\"text\":\"<s>b\"}\n{\"text\":\"a\"}\n");
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        char x[256], y[256];
        int64_t ids[4], count;
        choir_tokenizer *t = beginning(cases[i].post);
        choir_dataset *data = open_corpus(path, CHOIR_TRAIN, cases[i].begins ? 12 : 9, &t);
        show(data, t, x, y);
        assert_string_equal(x, cases[i].begins ? "<s>ab$<s>ab$<s>b$<s>" : "ab$ab$<s>b$");
        assert_string_equal(y, cases[i].begins ? "ab$..b$<s>b$<s>a" : "b$.b$<s>b$a");
        choir_dataset_free(data);
        ok(choir_tokenizer_encode_whole(t, "ab", 2, ids, 4, &count));
        assert_int_equal(count, cases[i].begins ? 3 : 2);
        ok(choir_tokenizer_encode_whole(t, "<s>ab", 5, ids, 4, &count));
        assert_int_equal(count, 3);
        assert_fails(choir_tokenizer_encode_whole(t, "abab", 4, ids, 3, &count),
            CHOIR_ERR_RANGE, "there is room for 3");
        choir_tokenizer_free(t);
    }
    free(both);
}

static void prompts_and_chats_are_not_learned(void **state)
{
    char x[256], y[256];
    choir_tokenizer *t = NULL;
    choir_dataset *data = open_corpus(
        put("b.jsonl", "{\"prompt\":\"hi\",\"completion\":\"yo\"}\n{\"text\":\"z\"}"),
        CHOIR_TRAIN, 6, &t);
    show(data, t, x, y);
    assert_string_equal(x, "hiyo$z");
    assert_string_equal(y, ".yo$z$");
    assert_true(choir_dataset_ignores(data));
    choir_dataset_free(data);
    choir_tokenizer_free(t);
    t = NULL;
    static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"U\"},"
                               "{\"content\":\"A\",\"role\":\"assistant\"}]}";
    static const char text[] =
        "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n$";
    enum { IN_MARKERS = 2 * (12 - 1) + 2 * (10 - 1) }; /* each marker is one token */
    data = open_corpus(
        put("c.jsonl", chat), CHOIR_TRAIN, (int64_t)strlen(text) - 1 - IN_MARKERS, &t);
    show(data, t, x, y);
    assert_memory_equal(x, text, strlen(text) - 1);
    assert_string_equal(y + strlen(y) - 13, "A<|im_end|>.$");
    assert_int_equal(strspn(y, "."), strlen(y) - 13);
    choir_dataset_free(data);
    choir_tokenizer_free(t);
}

/* --- the tokenizer's folder --- */

enum { END = 256, STOP, TURN };
static const char tokenizer_of_bytes[] =
    "{\"type\":\"extended\",\"base\":\"{\\\"type\\\":\\\"bytes\\\"}\","
    "\"added\":[\"<|endoftext|>\",\"</s>\",\"<|im_end|>\"]}";

typedef struct beside {
    const char *config, *generation, *words, *names; /* NULL: no such file */
    int64_t end;
} beside;

static void put_or_remove(const char *name, const char *text)
{
    const char *path = put(name, text ? text : "");
    if (!text)
        remove(path);
}

static choir_tokenizer *load_beside(const beside *b)
{
    choir_tokenizer *t = NULL;
    put("choir_tokenizer.json", tokenizer_of_bytes);
    put_or_remove("config.json", b->config);
    put_or_remove("generation_config.json", b->generation);
    put_or_remove("tokenizer_config.json", b->words);
    put_or_remove("special_tokens_map.json", b->names);
    ok(choir_tokenizer_load(folder, &t));
    return t;
}

static void the_folder_names_the_end(void **state)
{
    static const beside cases[] = {
        {NULL, NULL, NULL, NULL, END},
        {"{\"eos_token_id\":257}", NULL, NULL, NULL, STOP},
        {"{\"eos_token_id\":[258,257]}", NULL, NULL, NULL, TURN},
        {"{\"eos_token_id\":null}", "{\"eos_token_id\":257}", NULL, NULL, STOP},
        /* the tokenizer's comes first */
        {"{\"eos_token_id\":[257,258]}", NULL, "{\"eos_token\":\"<|im_end|>\"}", NULL, TURN},
        {NULL, NULL, "{\"eos_token\":{\"content\":\"</s>\",\"lstrip\":false}}", NULL, STOP},
        /* an old folder's, and one that transformers wrote later */
        {NULL, NULL, "{\"eos_token\":\"<|im_end|>\"}", "{\"eos_token\":\"</s>\"}", STOP},
        {NULL, NULL, "{\"eos_token\":\"<|im_end|>\",\"added_tokens_decoder\":{}}",
            "{\"eos_token\":\"</s>\"}", TURN},
        /* no tokens of this tokenizer, or no file of a model's */
        {"{\"eos_token_id\":50256}", NULL, NULL, NULL, END},
        {"{\"eos_token_id\":257}", NULL, "{\"eos_token\":\"<nope>\"}", NULL, STOP},
        {"{\"eos_token_id\":[]}", "{\"eos_token_id\":\"x\"}", "{\"eos_token\":3}", NULL, END},
        {"{// of another program", NULL, NULL, NULL, END},
        {"{\"eos_token_id\":[300,-1,258]}", NULL, NULL, NULL, TURN},
        {"{\"eos_token_id\":300}", "{\"eos_token_id\":[301,257]}", NULL, NULL, STOP},
        /* files that cannot be parsed say nothing */
        {"{\"eos_token_id\":257}", "[]", "", NULL, STOP},
        {"{\"eos_token_id\":257}", "{", "{\"eos_token\":\"<|im_end|>\",\"x\":NaN}", "[]", STOP},
        /* as transformers writes it if there is no longest text */
        {NULL, NULL,
            "{\"model_max_length\":1000000000000000019884624838656,\"eos_token\":\"</s>\"}",
            NULL, STOP},
    };
    choir_corpus_opts opts = choir_corpus_defaults();
    opts.context = 3;
    opts.fixed_tokens = true;
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        int64_t x[3], y[3];
        choir_dataset *data;
        choir_tokenizer *t = load_beside(&cases[i]);
        const char *path =
            put("p.jsonl", "{\"prompt\":\"a\",\"completion\":\"bc\"}\n{\"text\":\"d\"}");
        ok(choir_dataset_corpus(path, CHOIR_TRAIN, opts, &t, &data));
        ok(choir_dataset_get(data, 0, x, y));
        if (y[2] != cases[i].end)
            fail_msg("case %zu ends with %lld", i, (long long)y[2]);
        choir_dataset_free(data);
        choir_tokenizer_free(t);
    }
}

static void chats_need_their_markers(void **state)
{
    choir_tokenizer *t = load_beside(&(beside){NULL});
    choir_corpus_opts opts = choir_corpus_defaults();
    choir_dataset *data = NULL;
    opts.context = 2;
    opts.fixed_tokens = true;
    const char *path = put("m.jsonl", "{\"text\":\"abc\"}\n"
                                      "{\"messages\":[{\"role\":\"r\",\"content\":\"c\"}]}");
    assert_fails(choir_dataset_corpus(path, CHOIR_TRAIN, opts, &t, &data), CHOIR_ERR_FORMAT,
        "m.jsonl, line 2: column 'messages': the tokenizer's folder has no chat template, so "
        "chats are written in ChatML, and <|im_start|> is no token");
    assert_int_equal(choir_tokenizer_size(t), TURN + 1);
    opts.fixed_tokens = false;
    ok(choir_dataset_corpus(path, CHOIR_TRAIN, opts, &t, &data));
    assert_int_equal(choir_tokenizer_id(t, "<|im_start|>"), TURN + 1);
    assert_int_equal(data->classes, TURN + 2);
    choir_dataset_free(data);
    choir_tokenizer_free(t);
}

static void splits(void **state)
{
    char text[400] = "text\n", x[64], y[64];
    for (int i = 0; i < 20; i++)
        sprintf(text + strlen(text), "%c\n", 'a' + i);
    choir_tokenizer *t = NULL;
    const char *path = put("d.csv", text);
    choir_dataset *train = open_corpus(path, CHOIR_TRAIN, 35, &t);
    choir_dataset *held = open_corpus(path, CHOIR_VALIDATION, 3, &t);
    show(train, t, x, y);
    assert_string_equal(x, "a$b$c$d$e$f$g$h$j$l$m$n$o$p$q$r$s$t");
    show(held, t, x, y);
    assert_string_equal(x, "i$k");
    choir_dataset_free(train);
    choir_dataset_free(held);
    choir_tokenizer_free(t);
}

static void mixtures(void **state)
{
    choir_dataset *one, *two, *three, *all;
    enum { A = 30, B = 7, C = 100 };
    int64_t x[4], y[4], seen[3][C] = {{0}}, before[3] = {0};
    static const double weights[] = {0.2, 0.7, 0.1};
    ok(choir_dataset_random_tokens(A, 4, 9, 1, &one));
    ok(choir_dataset_random_tokens(B, 4, 9, 2, &two));
    ok(choir_dataset_random_tokens(C, 4, 9, 3, &three));
    choir_dataset *sources[] = {one, two, three};
    ok(choir_dataset_mixed(sources, weights, 3, &all));
    int64_t n = choir_dataset_length(all);
    assert_int_equal(n, 1000); /* 100 / 0.1 */
    for (int64_t i = 0; i < n; i++) {
        int64_t got_x[4], got_y[4];
        int from = -1;
        ok(choir_dataset_get(all, i, got_x, got_y));
        for (int s = 0; s < 3; s++) {
            int64_t index = before[s] % choir_dataset_length(sources[s]);
            ok(choir_dataset_get(sources[s], index, x, y));
            if (from < 0 && !memcmp(x, got_x, sizeof x) && !memcmp(y, got_y, sizeof y))
                from = s;
        }
        assert_true(from >= 0);
        seen[from][before[from]++ % choir_dataset_length(sources[from])]++;
    }
    for (int s = 0; s < 3; s++) /* spread evenly */
        assert_true(before[s] >= (int64_t)(weights[s] * (double)n) - 2 &&
                    before[s] <= (int64_t)(weights[s] * (double)n) + 2);
    for (int64_t i = 0; i < C - 2; i++)
        assert_int_equal(seen[2][i], 1);
    choir_dataset_free(all);
}

static void parts(void **state)
{
    choir_dataset *inner, *part;
    int64_t x[4], y[4], other[4];
    ok(choir_dataset_random_tokens(20, 4, 99, 1, &inner));
    assert_fails(
        choir_dataset_subset(inner, 2, 3, 7, &part), CHOIR_ERR_ARGUMENT, "there are not 7");
    ok(choir_dataset_subset(inner, 2, 3, 6, &part));
    assert_int_equal(choir_dataset_length(part), 6);
    ok(choir_dataset_get(part, 5, x, y));
    ok(choir_dataset_get(inner, 17, other, y));
    assert_memory_equal(x, other, sizeof x);
    choir_dataset_free(part);
}

static void sources_by_path(void **state)
{
    char text[9000] = "", path[200];
    for (int i = 0; i < 200; i++)
        strcat(text, "{\"text\": \"abcdefghijklmnopqrstuvwxyz\"}\n");
    put("one.jsonl", text);
    put("two.txt", text);
    choir_model_info info = {.task = CHOIR_LANGUAGE, .input = choir_dims(8)};
    static const struct {
        const char *format;
        int64_t length;
        const char *words;
    } cases[] = {{"%1$s/one.jsonl", 607, NULL}, {"%1$s/one.jsonl:first=20", 20, NULL},
        {"%1$s/one.jsonl:part=0.5", 304, NULL}, {"%1$s/one.jsonl:every=2,first=500", 304, NULL},
        {"%1$s/one.jsonl:first=10+%1$s/two.txt:first=5", 15, NULL},
        {"%1$s/one.jsonl:first=10,weight=1+%1$s/two.txt:first=5,weight=3", 40, NULL},
        {"%1$s/one.jsonl:weight=1+%1$s/two.txt", 0, "1 of 2 sources have a weight"},
        {"%1$s/one.jsonl:first=x", 0, "first=x"},
        {"%1$s/one.jsonl:part=0.5,wight=1", 0, "did you mean 'weight'"},
        {"%1$s/one.jsonl+", 0, "expected a name of each source"},
        {"%1$s/one.jsonl+%1$s/three.txt", 0, "three.txt"}};
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        choir_tokenizer *t;
        choir_dataset *data;
        ok(choir_tokenizer_bytes(&t));
        snprintf(path, sizeof path, cases[i].format, folder);
        choir_status status =
            choir_dataset_open(path, CHOIR_TRAIN, choir_data_defaults(), &info, &t, &data);
        if (cases[i].words) {
            assert_true(status != CHOIR_OK);
            assert_fails(status, status, cases[i].words);
        } else {
            ok(status);
            assert_int_equal(choir_dataset_length(data), cases[i].length);
            choir_dataset_free(data);
        }
        choir_tokenizer_free(t);
    }
}

static void wrong_records(void **state)
{
    static const struct {
        const char *text, *words;
    } wrong[] = {{"{\"a\":1}", "line 1: missing the column 'text'"},
        {"{\"text\":1}", "column 'text': expected a text"},
        {"{\"prompt\":\"a\"}", "missing the column 'text'"},
        {"{\"prompt\":[],\"completion\":\"b\"}", "column 'prompt'"},
        {"{\"messages\":[]}", "expected an array of one or more"},
        {"{\"messages\":[{\"role\":\"user\"}]}", "expected objects with the texts"},
        {"{\"text\":\"\"}", "its documents are empty"},
        {"{\"text\":\"a\"}\n{\"text\":\"b}", "line 2, column 12: a string has no end"}};
    for (size_t i = 0; i < CHOIR_COUNT(wrong); i++) {
        choir_tokenizer *t = NULL;
        choir_dataset *data;
        choir_status status = choir_dataset_corpus(
            put("w.jsonl", wrong[i].text), CHOIR_TRAIN, choir_corpus_defaults(), &t, &data);
        assert_fails(status, CHOIR_ERR_FORMAT, wrong[i].words);
        assert_null(t);
    }
    choir_tokenizer *t;
    choir_dataset *data;
    choir_corpus_opts opts = choir_corpus_defaults();
    opts.fixed_tokens = true;
    ok(choir_tokenizer_bytes(&t));
    assert_fails(
        choir_dataset_corpus(put("w.jsonl", "{\"text\":\"a\"}"), CHOIR_TRAIN, opts, &t, &data),
        CHOIR_ERR_ARGUMENT, "no token that ends a text");
    choir_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_joined),
        cmocka_unit_test(texts_begin_with_the_tokenizers_token),
        cmocka_unit_test(prompts_and_chats_are_not_learned),
        cmocka_unit_test(the_folder_names_the_end),
        cmocka_unit_test(chats_need_their_markers),
        cmocka_unit_test(splits),
        cmocka_unit_test(mixtures),
        cmocka_unit_test(parts),
        cmocka_unit_test(sources_by_path),
        cmocka_unit_test(wrong_records),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_all);
}
