/* Readers that have no harness of their own: curves of runs, texts with classes, plain texts,
 * and what people write on a command line or in a file of theirs. */
#include "cases.h"

#include <choir/augment.h>
#include <choir/data.h>
#include <choir/space.h>

#include "base/options.h"
#include "checkpoint/state.h"
#include "cli/plot/curve.h"
#include "cli/watch/tail.h"
#include "data/tokenizer/hf.h"
#include "nn/models/config.h"
#include "tests/fuzz/fuzz.h"

/* metrics.jsonl, and the same as events.jsonl */
static int read_curve(const uint8_t *data, size_t size)
{
    choir__curve curve;
    choir__plot plot = {.metric = "loss", .smooth = 0.5};
    fuzz_write("metrics.jsonl", data, size);
    fuzz_write("events.jsonl", data, size);
    (void)!choir__curve_read(&plot, fuzz_folder(), &curve);
    choir__curve_free(&curve);
    return 0;
}

static int read_labelled(const uint8_t *data, size_t size)
{
    choir_tokenizer *tokenizer = NULL;
    choir_dataset *set = NULL;
    choir_labelled_opts opts = choir_labelled_defaults();
    opts.context = 8;
    const char *path = fuzz_write("labelled.jsonl", data, size);
    static const char bert[] =
        "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"vocab\":{\"[PAD]\":0,"
        "\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3,\"a\":4}},"
        "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}}";
    if (choir__tokenizer_parse("bert", bert, strlen(bert), &tokenizer) != CHOIR_OK)
        return 0;
    for (choir_split split = CHOIR_TRAIN; split <= CHOIR_VALIDATION; split++)
        if (choir_dataset_labelled(path, split, opts, tokenizer, &set) == CHOIR_OK)
            choir_dataset_free(set);
    choir_tokenizer_free(tokenizer);
    return 0;
}

static int read_text(const uint8_t *data, size_t size)
{
    choir_tokenizer *tokenizer = NULL;
    choir_dataset *set = NULL;
    const char *path = fuzz_write("a.txt", data, size);
    if (choir_dataset_text(path, 8, CHOIR_TRAIN, &tokenizer, &set) == CHOIR_OK)
        choir_dataset_free(set);
    choir_tokenizer_free(tokenizer);
    return 0;
}

static void take_line(void *arg, char *line, size_t bytes)
{
    (void)line;
    *(size_t *)arg += bytes;
}

static int read_tail(const uint8_t *data, size_t size)
{
    choir__tail tail = {.path = (char *)(uintptr_t)fuzz_write("grows.jsonl", data, size)};
    size_t bytes = 0;
    while (choir__tail_read(&tail, take_line, &bytes) != CHOIR__TAIL_IDLE)
        ;
    return 0;
}

/* state.json, whose hash is another one */
static int read_state(const uint8_t *data, size_t size)
{
    choir_train_state state = {0};
    json_t *files = NULL;
    fuzz_write("state.json", data, size);
    (void)!choir__state_read(fuzz_folder(), &state, &files);
    json_decref(files);
    return 0;
}

static int read_classes(const uint8_t *data, size_t size)
{
    choir_class_names names;
    (void)!choir__config_classes(fuzz_write("config.json", data, size), &names);
    choir_class_names_free(&names);
    return 0;
}

static int read_augment(const uint8_t *data, size_t size)
{
    choir_augment_opts opts = choir_augment_defaults();
    (void)size;
    (void)!choir_augment_parse((const char *)data, &opts);
    return 0;
}

/* A distribution, and the same as a condition. */
static int read_space(const uint8_t *data, size_t size)
{
    (void)size;
    choir_space *space = choir_space_new();
    (void)!choir_space_add(space, "x", "uniform(0, 1)");
    (void)!choir_space_add(space, "y", (const char *)data);
    (void)!choir_space_require(space, (const char *)data);
    choir_space_free(space);
    return 0;
}

static int read_options(const uint8_t *data, size_t size)
{
    int64_t number = 0;
    const choir__option known[] = {{"n", CHOIR__INT, &number, 0, 1e9}, {0}};
    char name[64];
    (void)size;
    if (choir__options_name((const char *)data, name, sizeof name) == CHOIR_OK)
        (void)!choir__options_parse((const char *)data, name, known);
    return 0;
}

static const cost_case cases[] = {
    {"plot: rows", read_curve, "", "{\"step\":%zu,\"time\":1.5,\"loss\":1}\n", "", 1000},
    {"plot: columns", read_curve, "{\"step\":1", ",\"c%zu\":1", "}\n", 5000},
    {"plot: rows without end", read_curve, "{\"step\":", "1", "", 20000},
    {"plot: evaluations", read_curve, "{\"step\":1,\"loss\":1}\n",
        "{\"event\":\"eval\",\"step\":%zu,\"loss\":1}\n", "", 1000},
    {"plot: many quotes", read_curve, "{\"step\":1", "\"lo", "}\n", 5000},
    {"tail: lines", read_tail, "", "{\"step\":%zu}\n", "", 2000},
    {"tail: a line without end", read_tail, "", "aaaaaaaa", "", 2000},
    {"labelled: classes", read_labelled, "", "{\"text\":\"a\",\"label\":\"class %zu\"}\n", "",
        500, .memory = 256},
    {"labelled: numbers, falling", read_labelled, "", "{\"text\":\"a\",\"label\":%zu}\n", "",
        500, .falling = true, .memory = 256},
    {"labelled: members", read_labelled, "{", "\"k%zu\":1,", "\"text\":\"a\",\"label\":1}\n",
        2000, .memory = 256},
    {"labelled: words", read_labelled, "{\"tokens\":[", "\"a\",", "\"a\"],\"tags\":[\"b\"]}\n",
        2000, .memory = 256},
    {"state: files", read_state, "{\"format\":\"choir-checkpoint\",\"version\":1,\"files\":{",
        "\"f%zu\":{\"bytes\":1,\"sha256\":\"0\"},", "\"f\":1},\"sha256\":\"0\"}", 1000},
    {"state: members", read_state, "{\"format\":\"choir-checkpoint\",\"version\":1,",
        "\"f%zu\":1,", "\"sha256\":\"0\"}", 2000},
    {"classes: names", read_classes, "{\"id2label\":{", "\"%zu\":\"label %zu\",",
        "\"a\":\"b\"}}", 1000},
    {"augment: steps", read_augment, "flip", ",flip", "", 2000},
    {"augment: numbers", read_augment, "crop=1", ",crop=%zu", "", 2000},
    {"text: one line", read_text, "", "a long text ", "", 1000},
    {"text: characters", read_text, "", "\xe4\xb8\x80%zu", "", 1000, .memory = 256},
    {"space: choices", read_space, "choice(a", ",b%zu", ")", 1000, .memory = 256},
    {"space: one choice again and again", read_space, "choice(a", ",a", ")", 2000,
        .memory = 256},
    {"space: a sum", read_space, "x < 1", " + 1", "", 2000, .memory = 256},
    {"space: nested brackets", read_space, "", "(", "", 5000, .memory = 256},
    {"space: signs", read_space, "x < ", "-", "1", 5000, .memory = 256},
    {"space: a long word", read_space, "choice(", "aaaa", ")", 2000},
    {"options: pairs", read_options, "ddp:n=1", ",n=%zu", "", 2000},
    {"options: a long value", read_options, "ddp:n=", "aaaa", "", 2000},
    {"options: a long name", read_options, "", "++++", "", 2000},
};

const cost_table cost_words = COST_TABLE(cases);
