/* choir eval: the loss and accuracy of a saved model over a validation split. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/options.h"
#include "cli/cli.h"
#include "cli/documents.h"
#include "cli/evaluate.h"
#include "cli/images.h"
#include "cli/saved.h"
#include "data/prefetch.h"
#include "cli/text.h"
#include "tensor/tensor.h"

static void help(void)
{
    printf("Usage: choir eval [OPTION]... CHECKPOINT [DATA]\n\n"
           "The loss and accuracy of a saved model over the validation split of DATA (a\n"
           "text file or a folder of images; left out: the text that comes with Choir), on\n"
           "cpu:0, or where CHOIR_DEVICE says: cuda is the first GPU.\n\n"
           "  --batch-size N       samples at a time (default 32)\n"
           "  --eval-batches N     at most so many batches (default 0: the whole split)\n"
           "  --workers N          threads that read samples (default 1)\n"
           "  --json               one JSON object\n\n"
           "Example:\n  choir eval runs/first shakespeare.txt\n");
}

static choir_status open_data(choir__saved *s, const char *path, choir_dataset **data)
{
    choir_tokenizer *tokenizer = s->tokenizer;
    if (s->info.task == CHOIR__REGRESSION)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "the model %s has no data but random numbers", s->info.config);
    if (s->info.task == CHOIR__LANGUAGE) {
        if (!path)
            path = choir__cli_own_text();
        choir_status status = path ? choir__text_open(path, s->info.input.dim[0],
                                         CHOIR_VALIDATION, &tokenizer, data)
                                   : CHOIR_ERR_IO;
        if (status == CHOIR_OK && s->info.masked)
            status = choir__text_mask(tokenizer, s->seed, data);
        return status == CHOIR_OK ? choir__text_check(*data, path, s->info.classes) : status;
    }
    if (s->info.vocab)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "the model %s wants tokens with a class each, and there are none to evaluate on",
            s->info.config);
    if (!path)
        return choir__error(CHOIR_ERR_ARGUMENT, "name the folder of images to evaluate on");
    if (s->info.task == CHOIR__IMAGE_TO_TEXT)
        return choir__documents_validation(path, &s->info, &s->tokenizer, data);
    return choir__cli_open_validation(path, &s->info, data);
}

static void report(const choir__saved *s, const choir__score *score, bool json)
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

static choir_status evaluate(const char *checkpoint, const char *path, int64_t batch,
    int64_t batches, int workers, bool json)
{
    choir__saved s;
    choir__score score;
    choir_dataset *data = NULL;
    choir_status status = choir__saved_open(checkpoint, 42, &s);
    if (status == CHOIR_OK)
        status = open_data(&s, path, &data);
    if (status == CHOIR_OK)
        status =
            choir__evaluate(s.run, s.net, &s.info, data, batch, batches, workers, NULL, &score);
    if (status == CHOIR_OK)
        report(&s, &score, json);
    choir__saved_close(&s);
    choir_dataset_free(data);
    return status;
}

int choir__cli_eval(int argc, char **argv)
{
    static const struct option known[] = {{"batch-size", required_argument, NULL, 'b'},
        {"eval-batches", required_argument, NULL, 'n'},
        {"workers", required_argument, NULL, 'w'}, {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    int64_t batch = 32, batches = 0, workers = 1;
    bool json = false;
    opterr = 0;
    int which = 0;
    for (int id; (id = getopt_long(argc, argv, ":", known, &which)) != -1;) {
        bool good = true;
        switch (id) {
        case 'b': good = choir__parse_int(optarg, 1, 1 << 24, &batch); break;
        case 'n': good = choir__parse_int(optarg, 0, INT64_MAX / 4, &batches); break;
        case 'w': good = choir__parse_int(optarg, 1, CHOIR__MAX_WORKERS, &workers); break;
        case 'j': json = true; break;
        case 'h': help(); return CHOIR__EXIT_OK;
        case ':': return choir__cli_usage("eval", "%s wants a value", argv[optind - 1]);
        default: return choir__cli_unknown("eval", argv);
        }
        if (!good)
            return choir__cli_usage(
                "eval", "--%s %s makes no sense", known[which].name, optarg);
    }
    if (optind >= argc || optind + 2 < argc)
        return choir__cli_usage("eval", "a CHECKPOINT is wanted, and perhaps DATA");
    const char *path = optind + 1 < argc ? argv[optind + 1] : NULL;
    return evaluate(argv[optind], path, batch, batches, (int)workers, json) == CHOIR_OK
               ? CHOIR__EXIT_OK
               : choir__cli_fail();
}
