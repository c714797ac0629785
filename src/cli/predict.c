/* choir predict: the classes that a saved classifier gives to texts, words or images, or the
 * numbers that a regression gives to texts. predicted.c prints them. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "cli/predicted.h"
#include "job/model/saved.h"
#include "line/command.h"
#include "job/model/text.h"

enum { MOST_INPUTS = 1 << 20 };

typedef struct request {
    const char *model, *tokenizer, *pair, *device;
    char **inputs; /* (count): texts, or paths */
    int count;
    int64_t top, batch_size, workers;
    bool json;
} request;

/* --- the model --- */

static choir_status not_a_classifier(const request *r, const choir__saved *s)
{
    const choir_model_info *i = &s->info;
    bool writes = (i->task == CHOIR_LANGUAGE && !i->masked) || i->task == CHOIR_IMAGE_TO_TEXT;
    return choir__error(CHOIR_ERR_ARGUMENT,
        writes      ? "%s is %s, which writes text: use choir generate"
        : i->masked ? "%s is %s, no classifier: train it with --model FOLDER:classes=N first"
                    : "%s is %s, no classifier",
        r->model, i->config);
}

/* Opens the model, and checks that it gives classes to what can be read here. */
static choir_status open_model(const request *r, choir__saved *s)
{
    choir_device *device = r->device ? choir_device_find(r->device) : NULL;
    if (r->device && !device)
        return CHOIR_ERR_DEVICE;
    choir_status status = choir__saved_open(r->model, device, 42, s);
    if (status == CHOIR_OK && !choir_task_has_classes(s->info.task) &&
        !(s->info.task == CHOIR_REGRESSION && s->info.vocab))
        return not_a_classifier(r, s);
    if (status == CHOIR_OK && s->info.vocab)
        status = choir__saved_tokenizer(s, r->tokenizer);
    if (status != CHOIR_OK)
        return status;
    if (s->info.vocab && !s->tokenizer)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s has no tokenizer: name the one that it was trained with by --tokenizer FILE",
            r->model);
    int64_t channels = s->info.input.ndim == 3 ? s->info.input.dim[0] : 0;
    if (!s->info.vocab && channels != 1 && channels != 3)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected a model of texts, or of images with 1 or 3 channels, got %s",
            r->model, s->info.config);
    return CHOIR_OK;
}

/* --- texts --- */

static bool is_record_file(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && (!strcmp(dot, ".jsonl") || !strcmp(dot, ".csv") || !strcmp(dot, ".tsv") ||
                      !strcmp(dot, ".parquet"));
}

/* Adds a line: a text, a pair with a tab between, or words. */
static void add_line(char *line, bool words, choir_texts *texts)
{
    char *tab = words ? NULL : strchr(line, '\t');
    if (tab)
        *tab = '\0';
    choir_texts_add(texts, line, tab ? tab + 1 : NULL, words);
}

/* Adds each line of standard input that is not empty. */
static choir_status read_lines(bool words, choir_texts *texts)
{
    char *line = NULL;
    size_t room = 0, number = 1;
    for (; getline(&line, &room, stdin) >= 0; number++) {
        line[strcspn(line, "\r\n")] = '\0';
        if (line[strspn(line, " \t")])
            add_line(line, words, texts);
    }
    int why = errno;
    free(line);
    return feof(stdin) ? CHOIR_OK /* no end: an error, or too long a line */
                       : choir__error(CHOIR_ERR_IO, "line %zu of standard input: %s", number,
                             choir__why(why));
}

/* Returns whether a word looks like the name of a file: without blanks, and with a folder or a
 * short ending. */
static bool looks_like_file(const char *word)
{
    const char *dot = strrchr(word, '.');
    size_t ending = dot ? strlen(dot + 1) : 0;
    return !strpbrk(word, " \t\n") &&
           (strchr(word, '/') || (dot && dot > word && ending >= 2 && ending <= 5 &&
                                     isalpha((unsigned char)dot[1])));
}

/* A word that names a file is probably no text. */
static choir_status add_argument(
    const char *input, choir_labelled_opts opts, choir_texts *texts)
{
    struct stat s;
    if (!strcmp(input, "-"))
        return read_lines(opts.words, texts);
    if (is_record_file(input))
        return choir_texts_read(input, opts, texts);
    if (stat(input, &s) == 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s is no .jsonl, .csv, .tsv or .parquet file: give the texts themselves, or their "
            "lines by standard input",
            input);
    if (looks_like_file(input))
        choir__line_tell("predict", "note: there is no file %s: it is taken as a text", input);
    char *line = choir__strdup(input);
    add_line(line, opts.words, texts);
    free(line);
    return CHOIR_OK;
}

static choir_status open_texts(
    const request *r, choir__saved *s, choir_texts *texts, choir_dataset **data)
{
    choir_labelled_opts opts = choir_labelled_defaults();
    opts.context = s->info.input.dim[0];
    opts.words = s->info.task == CHOIR_CLASSIFICATION && s->info.output.ndim == 1;
    choir_status status = choir__saved_text_columns(s, &opts);
    if (status != CHOIR_OK)
        return status;
    if (r->pair && opts.words)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "--pair: %s gives classes to words, not to pairs", r->model);
    if (!r->count)
        status = read_lines(opts.words, texts);
    for (int i = 0; i < r->count && status == CHOIR_OK; i++)
        status = add_argument(r->inputs[i], opts, texts);
    if (status == CHOIR_OK && !texts->count && r->count && strcmp(r->inputs[0], "-") != 0)
        status = choir__error(CHOIR_ERR_ARGUMENT, "%s has no texts", r->inputs[0]);
    if (status == CHOIR_OK && !texts->count)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "missing INPUT: a text, a .jsonl, .csv, .tsv or .parquet file, or lines on standard "
            "input");
    for (int64_t i = 0; i < texts->count && r->pair; i++)
        if (!texts->text[i].pair)
            texts->text[i].pair = choir__strdup(r->pair);
    return status == CHOIR_OK ? choir_dataset_texts(texts, opts, s->tokenizer, data) : status;
}

/* --- images --- */

/* Images without colours are of IDX files. */
static choir_status open_idx(const request *r, choir__saved *s, choir_dataset **data)
{
    if (r->count != 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s was trained on images without colours: expected one INPUT, a folder of IDX files, "
            "got %d",
            r->model, r->count);
    choir_status status = choir_dataset_open(
        r->inputs[0], CHOIR_VALIDATION, choir_data_defaults(), &s->info, &s->tokenizer, data);
    return status == CHOIR_OK ? choir_dataset_fits(*data, r->inputs[0], &s->info) : status;
}

static choir_status open_images(const request *r, choir__saved *s, choir_dataset **data)
{
    choir_image_opts opts = s->images;
    opts.height = (int)s->info.input.dim[1];
    opts.width = (int)s->info.input.dim[2];
    if (r->pair)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "--pair: %s gives classes to images, not to pairs", r->model);
    if (s->info.input.dim[0] == 1)
        return open_idx(r, s, data);
    if (!r->count)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "missing INPUT: a JPEG or PNG file, or a folder of them");
    return choir_dataset_image_files(
        (const char *const *)(void *)r->inputs, r->count, opts, data);
}

/* --- the command --- */

static choir_status predict(const request *r)
{
    choir__saved s = {0};
    choir_texts texts = {0};
    choir_dataset *data = NULL;
    choir_status status = open_model(r, &s);
    if (status == CHOIR_OK)
        status = s.info.vocab ? open_texts(r, &s, &texts, &data) : open_images(r, &s, &data);
    choir__predictions out = {.saved = &s,
        .texts = s.info.vocab ? &texts : NULL,
        .data = data,
        .folder = r->count ? r->inputs[0] : NULL,
        .top = choir__min(r->top, s.info.classes),
        .json = r->json};
    choir_eval_opts opts = {.batch_size = r->batch_size, .workers = (int)r->workers};
    if (status == CHOIR_OK)
        status = choir_predict(s.run, s.net, &s.info, data, opts, choir__predicted_print, &out);
    if (status == CHOIR_OK && out.left_out) {
        char *note = choir__format("%lld words have no label: they did not fit into the %lld "
                                   "tokens of the model",
            (long long)out.left_out, (long long)s.info.input.dim[0]);
        choir__line_notes("predict", note);
        free(note);
    }
    choir__saved_close(&s);
    choir_dataset_free(data);
    choir_texts_free(&texts);
    return status;
}

static int run(const choir__line_command *command, int argc, char **argv)
{
    request r = {0};
    choir__line_operands operands;
    int status = choir__line_parse(command, &r, argc, argv, &operands);
    if (status != CHOIR__EXIT_OK)
        return status;
    r.model = operands.words[0];
    r.inputs = operands.words + 1;
    r.count = operands.count - 1;
    return predict(&r) == CHOIR_OK ? CHOIR__EXIT_OK : choir__line_fail();
}

#define AT(member) CHOIR__LINE_AT(request, member)

static const choir__line_option options[] = {
    {"top", CHOIR__INT, AT(top), 1, CHOIR__LINE_NO_LIMIT, .preset = "1", .argument = "K",
        .help = "print the K likeliest labels of each input"},
    {"pair", CHOIR__STRING, AT(pair), .argument = "TEXT",
        .help = "the second text of inputs that have none, for models of pairs"},
    {"batch-size", CHOIR__INT, AT(batch_size), 1, 1 << 24, .preset = "32", .argument = "N",
        .help = "inputs per batch"},
    {"device", CHOIR__STRING, AT(device), .argument = "NAME",
        .help = "run there, as cpu:0 or cuda:1 (default: where CHOIR_DEVICE says, or cpu:0)"},
    {"tokenizer", CHOIR__STRING, AT(tokenizer), .argument = "FILE",
        .help = "a tokenizer as for choir train (default: the model's)"},
    {"workers", CHOIR__INT, AT(workers), 1, CHOIR_MAX_WORKERS, .preset = "1", .argument = "N",
        .help = "threads that read images ahead"},
    {"json", CHOIR__FLAG, AT(json), .help = "print one JSON object per input"},
    {NULL},
};

const choir__line_command choir__cli_predict = {
    .name = "predict",
    .summary = "print the labels or numbers that a saved model gives to texts or images",
    .usage = "[OPTION]... MODEL [INPUT]...",
    .about =
        "Prints the likeliest label of each input, and its probability; of models with "
        "problem=multi_label all labels that are likelier than not, and of models with "
        "problem=regression their numbers. MODEL is a folder of "
        "choir train --save, or of a published model. For models of texts, INPUT is a text, or a "
        ".jsonl, .csv, .tsv or .parquet file with the columns that choir train reads, of which "
        "labels are not needed; a tab is between the texts of a pair. Without INPUT, or for -, "
        "each line of standard input is a text. Models of words print a label for each word. For "
        "models of images, INPUT is a JPEG or PNG file, or a folder of them; for models that were "
        "trained on IDX files, a folder of IDX files, whose validation images are labelled.",
    .example = "  choir predict runs/reviews 'a film to remember'\n"
               "  choir predict --top 3 runs/photos holiday/*.jpg",
    .options = options,
    .operand = "MODEL",
    .least = 1,
    .most = MOST_INPUTS,
    .run = run,
};
