/* choir eval: the loss and accuracy of a saved model over a validation split. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/saved.h"

typedef struct request {
    const char *checkpoint, *data; /* data NULL: the text that comes with Choir */
    int64_t batch_size, batches, workers;
    bool json;
} request;

static choir_status open_data(choir__saved *s, const char *path, choir_dataset **data)
{
    choir_data_opts opts = choir_data_defaults();
    opts.seed = s->seed;
    if (path && !strcmp(path, "random"))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "expected data to evaluate on, a file or a folder, got 'random'");
    if (s->info.task == CHOIR_REGRESSION)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "cannot evaluate: model %s trains on random data alone", s->info.config);
    if (s->info.vocab && s->info.task != CHOIR_LANGUAGE)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "cannot evaluate: model %s expects tokens with a class each, which only "
            "'random' has",
            s->info.config);
    if (!path && s->info.task != CHOIR_LANGUAGE)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "missing DATA: a folder of images to evaluate on");
    choir_status status =
        choir_dataset_open(path, CHOIR_VALIDATION, opts, &s->info, &s->tokenizer, data);
    return status == CHOIR_OK ? choir_dataset_fits(*data, path, &s->info) : status;
}

static void report(const choir__saved *s, const choir_score *score, bool json)
{
    if (json) {
        printf("{\"event\":\"eval\",\"step\":%lld,\"loss\":%.9g,\"accuracy\":%.9g,"
               "\"samples\":%lld}\n",
            (long long)s->step, score->loss, score->accuracy, (long long)score->samples);
        return;
    }
    printf("%s after %lld steps, on %lld samples: loss %.4f, accuracy %.2f %%\n",
        s->info.config, (long long)s->step, (long long)score->samples, score->loss,
        100 * score->accuracy);
}

static choir_status evaluate(const request *r)
{
    choir__saved s;
    choir_score score;
    choir_dataset *data = NULL;
    choir_status status = choir__saved_open(r->checkpoint, 42, &s);
    if (status == CHOIR_OK)
        status = open_data(&s, r->data, &data);
    choir_eval_opts opts = {
        .batch_size = r->batch_size, .max_batches = r->batches, .workers = (int)r->workers};
    if (status == CHOIR_OK)
        status = choir_evaluate(s.run, s.net, &s.info, data, opts, &score);
    if (status == CHOIR_OK)
        report(&s, &score, r->json);
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
    return evaluate(&r) == CHOIR_OK ? CHOIR__EXIT_OK : choir__cli_fail();
}

#define AT(member) CHOIR__CLI_AT(request, member)

static const choir__cli_option options[] = {
    {"batch-size", CHOIR__INT, AT(batch_size), 1, 1 << 24, .preset = "32", .argument = "N",
        .help = "samples per batch"},
    {"eval-batches", CHOIR__INT, AT(batches), 0, CHOIR__CLI_NO_LIMIT, .preset = "0",
        .argument = "N", .help = "evaluate at most N batches; 0: the whole split"},
    {"workers", CHOIR__INT, AT(workers), 1, CHOIR_MAX_WORKERS, .preset = "1", .argument = "N",
        .help = "threads that read samples ahead"},
    {"json", CHOIR__FLAG, AT(json), .help = "print one JSON object"},
    {NULL},
};

const choir__cli_command choir__cli_eval = {
    .name = "eval",
    .summary = "print the loss and accuracy of a saved model",
    .usage = "[OPTION]... CHECKPOINT [DATA]",
    .about =
        "Prints the loss and accuracy of a saved model over the validation split of DATA, a "
        "text file or a folder of images (default: the text that comes with Choir). The "
        "model runs on cpu:0, or where CHOIR_DEVICE says; cuda is the first GPU.",
    .example = "  choir eval runs/first shakespeare.txt",
    .options = options,
    .operand = "CHECKPOINT",
    .least = 1,
    .most = 2,
    .run = run,
};
