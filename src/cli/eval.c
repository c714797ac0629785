/* choir eval: the loss and accuracy of a saved model over a validation split. Without DATA, it
 * uses the data of the job that trained the model. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "line/command.h"
#include "job/model/saved.h"
#include "job/model/text.h"

typedef struct request {
    const char *checkpoint, *data; /* data NULL: the job's own */
    const char *tokenizer;         /* NULL: the checkpoint's */
    int64_t batch_size, batches, workers;
    bool json, per_class, whole;
} request;

/* The data of an evaluation, and its result. */
typedef struct measure {
    const char *path; /* NULL: the text that comes with Choir */
    choir_dataset *data;
    bool known, same; /* same: the data equal the training's, if these are known */
    choir_score score;
    choir_class_score *per_class; /* (classes), or NULL */
} measure;

static choir_status find_data(const choir__saved *s, const request *r, measure *m)
{
    m->path = r->data ? r->data : s->data;
    if (s->info.task == CHOIR_REGRESSION && !s->info.vocab)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "cannot evaluate: model %s trains on random data alone", s->info.config);
    if (!m->path && s->info.task != CHOIR_LANGUAGE)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "missing DATA: a folder of images, or labelled texts, to evaluate on");
    if (!r->data && m->path && !strcmp(m->path, "-"))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "missing DATA: %s was trained on standard input, which is gone", r->checkpoint);
    if (m->path && !strcmp(m->path, "random"))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "expected data to evaluate on, a file or a folder, got 'random'");
    return CHOIR_OK;
}

/* Compares the data with the training's, because other data have another held-out part. Data
 * that were kept for tests need no note. */
static choir_status compare_data(const choir__saved *s, const request *r, measure *m)
{
    char hex[65];
    m->known = s->data_sha256 && *s->data_sha256;
    choir_status status = m->known ? choir_data_sha256(m->path, &s->info, hex) : CHOIR_OK;
    m->same = m->known && status == CHOIR_OK && !strcmp(hex, s->data_sha256);
    if (status != CHOIR_OK || m->same || !m->known || !m->data->held_out || r->whole)
        return status;
    char *note =
        choir__format("%s %s the data of the training (SHA-256 %.12s..., not %.12s...): "
                      "the part that is held out here may have been trained on",
            m->path ? m->path : "the text that comes with Choir",
            r->data ? "is not" : "has changed since it was", hex, s->data_sha256);
    choir__line_notes("eval", note);
    free(note);
    return CHOIR_OK;
}

static choir_status open_data(choir__saved *s, const request *r, measure *m)
{
    const char *path = m->path;
    choir_data_opts opts = choir_data_defaults();
    opts.seed = s->seed;
    opts.needs_tokenizer = !choir__text_is_chars(r->tokenizer);
    opts.classes = &s->classes;
    opts.held_out = r->whole ? 1 : s->held_out;
    opts.columns = s->columns;
    opts.images = &s->images;
    opts.pack = s->pack && choir_data_has_documents(path);
    choir_status status = choir__saved_tokenizer(s, r->tokenizer);
    if (status == CHOIR_OK)
        status =
            choir_dataset_open(path, CHOIR_VALIDATION, opts, &s->info, &s->tokenizer, &m->data);
    if (status == CHOIR_OK)
        status = choir_dataset_fits(m->data, path, &s->info);
    if (status != CHOIR_OK)
        return status;
    if (choir_task_has_classes(s->info.task) && !s->classes.count)
        choir_dataset_class_names(
            m->data, s->info.classes, &s->classes); /* an old checkpoint's */
    char *numbers = choir__classes_note(m->data, &s->classes);
    if (numbers)
        choir__line_notes("eval", numbers);
    free(numbers);
    return compare_data(s, r, m);
}

/* --- the report --- */

static void add_classes(
    choir__text_buffer *t, const choir__saved *s, const choir_class_score *score)
{
    char number[24];
    choir__text_open(t, "classes", '[');
    for (int64_t c = 0; c < s->info.classes; c++) {
        choir__text_open(t, NULL, '{');
        choir__text_string(t, "class", choir__saved_class(s, c, number));
        choir__text_value(t, "samples", "%lld", (long long)score[c].samples);
        choir__text_value(t, "predictions", "%lld", (long long)score[c].predictions);
        choir__text_value(t, "precision", "%.9g", score[c].precision);
        choir__text_value(t, "recall", "%.9g", score[c].recall);
        choir__text_value(t, "f1", "%.9g", score[c].f1);
        choir__text_close(t, '}');
    }
    choir__text_close(t, ']');
}

/* Appends a number, or null for NaN, which JSON lacks: the loss over no target. */
static void add_number(choir__text_buffer *t, const char *key, double value)
{
    if (isfinite(value))
        choir__text_value(t, key, "%.9g", value);
    else
        choir__text_string(t, key, NULL);
}

static void report_json(const choir__saved *s, const measure *m)
{
    const choir_score *score = &m->score;
    choir__text_buffer t = {0};
    choir__text_open(&t, NULL, '{');
    choir__text_string(&t, "event", "eval");
    choir__text_value(&t, "step", "%lld", (long long)s->step);
    add_number(&t, "loss", score->loss);
    add_number(&t, "accuracy", score->accuracy);
    add_number(&t, "perplexity", score->perplexity);
    choir__text_value(&t, "samples", "%lld", (long long)score->samples);
    choir__text_value(&t, "targets", "%lld", (long long)score->targets);
    choir__text_value(&t, "same_data", "%s", !m->known ? "null" : m->same ? "true" : "false");
    if (isfinite(score->top5))
        add_number(&t, "top5", score->top5);
    if (isfinite(score->f1))
        add_number(&t, "f1", score->f1);
    if (m->per_class)
        add_classes(&t, s, m->per_class);
    choir__text_finish(&t, stdout);
}

static void print_classes(const choir__saved *s, const choir_class_score *score)
{
    printf("%8s  %11s  %9s  %6s  %6s  %s\n", "samples", "predictions", "precision", "recall",
        "F1", "class");
    for (int64_t c = 0; c < s->info.classes; c++) {
        printf("%8lld  %11lld  %9.4f  %6.4f  %6.4f  ", (long long)score[c].samples,
            (long long)score[c].predictions, score[c].precision, score[c].recall, score[c].f1);
        choir__saved_print_class(s, c);
        printf("\n");
    }
}

/* "63 samples, 1008 tokens of shakespeare.txt": tokens and words count one by one. */
static void print_what(const choir__saved *s, const measure *m)
{
    bool texts = !choir_task_has_ids(s->info.task),
         words = s->info.task == CHOIR_CLASSIFICATION;
    char *path =
        choir__clean(choir__strdup(m->path ? m->path : "the text that comes with Choir"));
    printf("%lld samples", (long long)m->score.samples);
    if (!texts && (!words || s->info.output.ndim))
        printf(", %lld %s", (long long)m->score.targets, words ? "words" : "tokens");
    printf(" of %s", path);
    free(path);
}

static void report(const choir__saved *s, const measure *m)
{
    const choir_score *score = &m->score;
    printf("%s after %lld steps, on ", s->info.config, (long long)s->step);
    print_what(s, m);
    if (!score->targets)
        printf(": no target counts, so there is no loss");
    else
        printf(": loss %.4f", score->loss);
    if (score->targets && s->info.task != CHOIR_REGRESSION)
        printf(", accuracy %.2f %%", 100 * score->accuracy);
    if (score->targets && isfinite(score->perplexity) && s->info.task != CHOIR_CLASSIFICATION)
        printf(", perplexity %.4g", score->perplexity);
    if (isfinite(score->top5) && s->info.classes > 5)
        printf(", top-5 accuracy %.2f %%", 100 * score->top5);
    if (isfinite(score->f1))
        printf(", mean F1 %.4f", score->f1);
    printf("\n");
    if (m->per_class)
        print_classes(s, m->per_class);
}

/* --- the command --- */

static choir_status evaluate(const request *r)
{
    choir__saved s;
    measure m = {0};
    choir_status status = choir__saved_open(r->checkpoint, NULL, 42, &s);
    if (status == CHOIR_OK)
        status = find_data(&s, r, &m);
    if (status == CHOIR_OK)
        status = open_data(&s, r, &m);
    choir_eval_opts opts = {
        .batch_size = r->batch_size, .max_batches = r->batches, .workers = (int)r->workers};
    if (status == CHOIR_OK && r->per_class)
        opts.per_class = m.per_class =
            choir__calloc((size_t)s.info.classes + 1, sizeof *m.per_class);
    if (status == CHOIR_OK)
        status = choir_evaluate(s.run, s.net, &s.info, m.data, opts, &m.score);
    if (status == CHOIR_OK && r->json)
        report_json(&s, &m);
    else if (status == CHOIR_OK)
        report(&s, &m);
    free(m.per_class);
    choir__saved_close(&s);
    choir_dataset_free(m.data);
    return status;
}

static int run(const choir__line_command *command, int argc, char **argv)
{
    request r = {0};
    choir__line_operands operands;
    int status = choir__line_parse(command, &r, argc, argv, &operands);
    if (status != CHOIR__EXIT_OK)
        return status;
    r.checkpoint = operands.words[0];
    r.data = operands.count > 1 ? operands.words[1] : NULL;
    if (r.whole && !r.data)
        return choir__line_usage(command->name,
            "--whole: expected DATA, since a part of the job's own data was trained on");
    return evaluate(&r) == CHOIR_OK ? CHOIR__EXIT_OK : choir__line_fail();
}

#define AT(member) CHOIR__LINE_AT(request, member)

static const choir__line_option options[] = {
    {"batch-size", CHOIR__INT, AT(batch_size), 1, 1 << 24, .preset = "32", .argument = "N",
        .help = "samples per batch"},
    {"eval-batches", CHOIR__INT, AT(batches), 0, CHOIR__LINE_NO_LIMIT, .preset = "0",
        .argument = "N", .help = "evaluate at most N batches; 0: the whole split"},
    {"whole", CHOIR__FLAG, AT(whole),
        .help =
            "evaluate on all of DATA, a file or folder that was kept for tests, where it has "
            "no validation split of its own"},
    {"tokenizer", CHOIR__STRING, AT(tokenizer), .argument = "FILE",
        .help = "a tokenizer as for choir train, or chars (default: the checkpoint's)"},
    {"workers", CHOIR__INT, AT(workers), 1, CHOIR_MAX_WORKERS, .preset = "1", .argument = "N",
        .help = "threads that read samples ahead"},
    {"per-class", CHOIR__FLAG, AT(per_class),
        .help = "print precision, recall and F1 of each class"},
    {"json", CHOIR__FLAG, AT(json), .help = "print one JSON object"},
    {NULL},
};

const choir__line_command choir__cli_eval = {
    .name = "eval",
    .summary = "print the loss, accuracy and other metrics of a saved model",
    .usage = "[OPTION]... CHECKPOINT [DATA]",
    .about =
        "Prints the loss and accuracy of a saved model over the validation split of DATA (any data "
        "of choir train; default: the data that the model was trained on); without such a split, "
        "over the part that training held out; with --whole, over all of it. For "
        "language models it also prints the perplexity, for classifiers the top-5 accuracy and the "
        "mean F1 of the classes. Every sample counts once. The "
        "model runs on cpu:0, or where CHOIR_DEVICE says; cuda is the first GPU.",
    .example = "  choir eval runs/first shakespeare.txt",
    .options = options,
    .operand = "CHECKPOINT",
    .least = 1,
    .most = 2,
    .run = run,
};
