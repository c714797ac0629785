/* choir eval: the loss of a saved model over a validation split, and how much it predicts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/saved.h"
#include "cli/text.h"

typedef struct request {
    const char *checkpoint, *data; /* data NULL: the text that comes with Choir */
    const char *tokenizer;         /* NULL: the checkpoint's */
    int64_t batch_size, batches, workers;
    bool json, per_class, whole;
} request;

static choir_status open_data(choir__saved *s, const request *r, choir_dataset **data)
{
    const char *path = r->data;
    choir_data_opts opts = choir_data_defaults();
    opts.seed = s->seed;
    opts.needs_tokenizer = !choir__text_is_chars(r->tokenizer);
    opts.classes = &s->classes;
    opts.held_out = r->whole ? 1 : s->held_out;
    opts.pack = s->pack && choir_data_has_documents(path);
    if (path && !strcmp(path, "random"))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "expected data to evaluate on, a file or a folder, got 'random'");
    if (s->info.task == CHOIR_REGRESSION)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "cannot evaluate: model %s trains on random data alone", s->info.config);
    if (!path && s->info.task != CHOIR_LANGUAGE)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "missing DATA: a folder of images, or labelled texts, to evaluate on");
    choir_status status = choir__saved_tokenizer(s, r->tokenizer);
    if (status == CHOIR_OK)
        status =
            choir_dataset_open(path, CHOIR_VALIDATION, opts, &s->info, &s->tokenizer, data);
    if (status == CHOIR_OK)
        status = choir_dataset_fits(*data, path, &s->info);
    if (status == CHOIR_OK && s->info.task == CHOIR_CLASSIFICATION && !s->classes.count)
        choir_dataset_class_names(
            *data, s->info.classes, &s->classes); /* an old checkpoint's */
    return status;
}

/* --- the report --- */

static void print_classes_json(const choir__saved *s, const choir_class_score *score)
{
    char number[24];
    printf(",\"classes\":[");
    for (int64_t c = 0; c < s->info.classes; c++) {
        printf("%s{", c ? "," : "");
        choir__cli_print_string("class", choir__saved_class(s, c, number));
        printf(",\"samples\":%lld,\"predictions\":%lld,\"precision\":%.9g,\"recall\":%.9g,"
               "\"f1\":%.9g}",
            (long long)score[c].samples, (long long)score[c].predictions, score[c].precision,
            score[c].recall, score[c].f1);
    }
    printf("]");
}

static void report_json(
    const choir__saved *s, const choir_score *score, const choir_class_score *per_class)
{
    printf("{\"event\":\"eval\",\"step\":%lld,\"loss\":%.9g,\"accuracy\":%.9g,"
           "\"perplexity\":%.9g,\"samples\":%lld",
        (long long)s->step, score->loss, score->accuracy, score->perplexity,
        (long long)score->samples);
    if (isfinite(score->top5))
        printf(",\"top5\":%.9g", score->top5);
    if (isfinite(score->f1))
        printf(",\"f1\":%.9g", score->f1);
    if (per_class)
        print_classes_json(s, per_class);
    printf("}\n");
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

static void report(
    const choir__saved *s, const choir_score *score, const choir_class_score *per_class)
{
    printf("%s after %lld steps, on %lld samples: loss %.4f, accuracy %.2f %%", s->info.config,
        (long long)s->step, (long long)score->samples, score->loss, 100 * score->accuracy);
    if (s->info.task != CHOIR_CLASSIFICATION)
        printf(", perplexity %.4g", score->perplexity);
    if (isfinite(score->top5) && s->info.classes > 5)
        printf(", top-5 accuracy %.2f %%", 100 * score->top5);
    if (isfinite(score->f1))
        printf(", mean F1 %.4f", score->f1);
    printf("\n");
    if (per_class)
        print_classes(s, per_class);
}

/* --- the command --- */

static choir_status evaluate(const request *r)
{
    choir__saved s;
    choir_score score;
    choir_dataset *data = NULL;
    choir_status status = choir__saved_open(r->checkpoint, NULL, 42, &s);
    if (status == CHOIR_OK)
        status = open_data(&s, r, &data);
    choir_eval_opts opts = {
        .batch_size = r->batch_size, .max_batches = r->batches, .workers = (int)r->workers};
    if (status == CHOIR_OK && r->per_class)
        opts.per_class = choir__calloc((size_t)s.info.classes + 1, sizeof *opts.per_class);
    if (status == CHOIR_OK)
        status = choir_evaluate(s.run, s.net, &s.info, data, opts, &score);
    if (status == CHOIR_OK && r->json)
        report_json(&s, &score, opts.per_class);
    else if (status == CHOIR_OK)
        report(&s, &score, opts.per_class);
    free(opts.per_class);
    choir__saved_close(&s);
    choir_dataset_free(data);
    return status;
}

static int run(const choir__cli_command *command, int argc, char **argv)
{
    request r = {0};
    choir__cli_operands operands;
    int status = choir__cli_parse(command, &r, argc, argv, &operands);
    if (status != CHOIR__EXIT_OK)
        return status;
    r.checkpoint = operands.words[0];
    r.data = operands.count > 1 ? operands.words[1] : NULL;
    if (r.whole && !r.data)
        return choir__cli_usage(command->name,
            "--whole: expected DATA, since a part of the text that comes with Choir was trained "
            "on");
    return evaluate(&r) == CHOIR_OK ? CHOIR__EXIT_OK : choir__cli_fail();
}

#define AT(member) CHOIR__CLI_AT(request, member)

static const choir__cli_option options[] = {
    {"batch-size", CHOIR__INT, AT(batch_size), 1, 1 << 24, .preset = "32", .argument = "N",
        .help = "samples per batch"},
    {"eval-batches", CHOIR__INT, AT(batches), 0, CHOIR__CLI_NO_LIMIT, .preset = "0",
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

const choir__cli_command choir__cli_eval = {
    .name = "eval",
    .summary = "print the loss, accuracy and other metrics of a saved model",
    .usage = "[OPTION]... CHECKPOINT [DATA]",
    .about =
        "Prints the loss and accuracy of a saved model over the validation split of DATA, a "
        "text file or a folder of images (default: the text that comes with Choir), or the part "
        "that training held out, or with --whole over all of it; for "
        "language models also the perplexity, for classifiers the top-5 accuracy and the mean "
        "F1 of the classes. Every sample counts once. The "
        "model runs on cpu:0, or where CHOIR_DEVICE says; cuda is the first GPU.",
    .example = "  choir eval runs/first shakespeare.txt",
    .options = options,
    .operand = "CHECKPOINT",
    .least = 1,
    .most = 2,
    .run = run,
};
