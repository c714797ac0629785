/* choir predict: the classes that a saved classifier gives to texts, words or images, in the
 * order of their probability, as JSON or as columns, per input or per word. Names and texts
 * that are not ours are cleaned. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/text.h"
#include "job/model/saved.h"
#include "line/command.h"
#include "job/model/text.h"
#include "line/printed.h"

/* The output: a line per input, or per word. */
typedef struct predictions {
    const choir__saved *saved;
    const choir_texts *texts;  /* the inputs; NULL: images, */
    const choir_dataset *data; /* which have names here */
    const char *folder;        /* unless they are images of this folder's IDX files */
    int64_t top;               /* labels of each input */
    bool json;
    int64_t left_out; /* words without a label, so far */
} predictions;

/* A class and its probability. */
typedef struct choice {
    int64_t class;
    double probability;
} choice;

/* Equal probabilities are ordered by class, as in choir_argmax. */
static int likelier_first(const void *a, const void *b)
{
    const choice *x = a, *y = b;
    if (x->probability != y->probability)
        return x->probability < y->probability ? 1 : -1;
    return (x->class > y->class) - (x->class < y->class);
}

/* Lists all classes, the likeliest first; the caller frees the list. */
static choice *ranked(const float *probabilities, int64_t classes)
{
    choice *list = choir__alloc((size_t)(classes + 1) * sizeof *list);
    for (int64_t c = 0; c < classes; c++)
        list[c] = (choice){c, (double)probabilities[c]};
    qsort(list, (size_t)classes, sizeof *list, likelier_first);
    return list;
}

/* --- JSON --- */

static void add_choice(choir__text_buffer *t, const predictions *p, const choice *c)
{
    char number[24];
    choir__text_string(t, "label", choir__saved_class(p->saved, c->class, number));
    choir__text_value(t, "class", "%lld", (long long)c->class);
    choir__text_value(t, "probability", "%.9g", c->probability);
}

/* Adds the members "label", "class", "probability" and, for more than one label, "top". */
static void add_choices(choir__text_buffer *t, const predictions *p, const float *probabilities)
{
    choice *list = ranked(probabilities, p->saved->info.classes);
    add_choice(t, p, &list[0]);
    if (p->top > 1)
        choir__text_open(t, "top", '[');
    for (int64_t i = 0; i < p->top && p->top > 1; i++) {
        choir__text_open(t, NULL, '{');
        add_choice(t, p, &list[i]);
        choir__text_close(t, '}');
    }
    if (p->top > 1)
        choir__text_close(t, ']');
    free(list);
}

/* row: the word's row, or NULL. */
static void add_word(
    choir__text_buffer *t, const predictions *p, const char *word, const float *row)
{
    choir__text_open(t, NULL, '{');
    choir__text_string(t, "word", word);
    if (row)
        add_choices(t, p, row);
    else
        choir__text_string(t, "label", NULL);
    choir__text_close(t, '}');
}

/* --- for people --- */

static void print_choices(const predictions *p, const float *probabilities)
{
    choice *list = ranked(probabilities, p->saved->info.classes);
    for (int64_t i = 0; i < p->top; i++) {
        printf("%s", i ? "  " : "");
        choir__saved_print_class(p->saved, list[i].class);
        printf("  %.4f", list[i].probability);
    }
    free(list);
}

static void print_word(const predictions *p, const char *word, const float *row)
{
    choir__print_word(stdout, word, 0);
    printf("\t");
    if (row)
        print_choices(p, row);
    else
        printf("-");
    printf("\n");
}

/* --- a sample --- */

/* line: of JSON, or NULL for people. */
static void print_words(choir__text_buffer *line, predictions *p, const choir_text *t,
    int64_t rows, const int64_t *targets, const float *probabilities)
{
    for (int64_t w = 0, r = 0; w < t->word_count; w++) {
        bool has = r < rows && targets[r] == w;
        const float *row = has ? probabilities + r++ * p->saved->info.classes : NULL;
        p->left_out += !has;
        if (line)
            add_word(line, p, t->words[w], row);
        else
            print_word(p, t->words[w], row);
    }
}

static void print_json(predictions *p, int64_t sample, const choir_text *t, const char *file,
    int64_t rows, const int64_t *targets, const float *probabilities)
{
    choir__text_buffer line = {0};
    choir__text_open(&line, NULL, '{');
    choir__text_string(&line, "event", "predict");
    choir__text_value(&line, "input", "%lld", (long long)sample);
    if (t && !t->text) {
        choir__text_open(&line, "words", '[');
        print_words(&line, p, t, rows, targets, probabilities);
        choir__text_close(&line, ']');
    } else {
        choir__text_string(&line, t ? "text" : "file", t ? t->text : file);
        if (t && t->pair)
            choir__text_string(&line, "pair", t->pair);
        add_choices(&line, p, probabilities);
    }
    choir__text_finish(&line, stdout);
}

/* Prints the prediction of one sample: a choir_predict_fn, with predictions as arg. */
static choir_status print_sample(
    void *arg, int64_t sample, int64_t rows, const int64_t *targets, const float *probabilities)
{
    predictions *p = arg;
    const choir_text *t = p->texts ? &p->texts->text[sample] : NULL;
    const char *file = t ? NULL : choir_dataset_sample_name(p->data, sample);
    bool numbered = !t && !file;
    file = numbered ? p->folder : file;
    if (p->json) {
        print_json(p, sample, t, file, rows, targets, probabilities);
        return CHOIR_OK;
    }
    if (t && !t->text) {
        print_words(NULL, p, t, rows, targets, probabilities);
    } else {
        print_choices(p, probabilities);
        printf("  ");
        choir__print_word(stdout, t ? t->text : file, 0);
        if (t && t->pair) {
            printf("\t");
            choir__print_word(stdout, t->pair, 0);
        }
        if (numbered)
            printf(" %lld", (long long)sample);
    }
    printf("\n");
    return CHOIR_OK;
}

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
    if (status == CHOIR_OK && s->info.task != CHOIR_CLASSIFICATION)
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
    char *line = choir__strdup(input);
    add_line(line, opts.words, texts);
    free(line);
    return CHOIR_OK;
}

static choir_status open_texts(
    const request *r, const choir__saved *s, choir_texts *texts, choir_dataset **data)
{
    choir_labelled_opts opts = choir_labelled_defaults();
    opts.context = s->info.input.dim[0];
    opts.words = s->info.output.ndim == 1;
    choir_status status = CHOIR_OK;
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
    choir_image_opts opts = choir_image_defaults();
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
    predictions out = {.saved = &s,
        .texts = s.info.vocab ? &texts : NULL,
        .data = data,
        .folder = r->count ? r->inputs[0] : NULL,
        .top = choir__min(r->top, s.info.classes),
        .json = r->json};
    choir_eval_opts opts = {.batch_size = r->batch_size, .workers = (int)r->workers};
    if (status == CHOIR_OK)
        status = choir_predict(s.run, s.net, &s.info, data, opts, print_sample, &out);
    if (status == CHOIR_OK && out.left_out) {
        char *note = choir__format("%lld words have no label: they did not fit into the %lld "
                                   "tokens of the model",
            (long long)out.left_out, (long long)s.info.input.dim[0]);
        choir__cli_notes("predict", note);
        free(note);
    }
    choir__saved_close(&s);
    choir_dataset_free(data);
    choir_texts_free(&texts);
    return status;
}

static int run(const choir__cli_command *command, int argc, char **argv)
{
    request r = {0};
    choir__cli_operands operands;
    int status = choir__cli_parse(command, &r, argc, argv, &operands);
    if (status != CHOIR__EXIT_OK)
        return status;
    r.model = operands.words[0];
    r.inputs = operands.words + 1;
    r.count = operands.count - 1;
    return predict(&r) == CHOIR_OK ? CHOIR__EXIT_OK : choir__cli_fail();
}

#define AT(member) CHOIR__CLI_AT(request, member)

static const choir__cli_option options[] = {
    {"top", CHOIR__INT, AT(top), 1, CHOIR__CLI_NO_LIMIT, .preset = "1", .argument = "K",
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

const choir__cli_command choir__cli_predict = {
    .name = "predict",
    .summary = "print the labels that a saved classifier gives to texts or images",
    .usage = "[OPTION]... MODEL [INPUT]...",
    .about =
        "Prints the likeliest label of each input, and its probability. MODEL is a folder of "
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
