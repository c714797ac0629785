/* Sampling from a language model, and choir generate. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "cli/command.h"
#include "cli/documents.h"
#include "cli/printed.h"
#include "cli/saved.h"
#include "cli/trainer.h"

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* Returns the k-th largest of n scores. */
static float kth_largest(const float *scores, int64_t n, int64_t k)
{
    float *sorted = choir__alloc((size_t)n * sizeof *sorted);
    memcpy(sorted, scores, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, descending);
    float value = sorted[choir__min(k, n) - 1];
    free(sorted);
    return value;
}

/* Draws from softmax(scores / temperature) over the top_k scores (0: over all); temperature 0
 * takes the largest. */
static int64_t draw(
    const float *scores, int64_t n, double temperature, int64_t top_k, float unit)
{
    float floor_score = top_k && top_k < n ? kth_largest(scores, n, top_k) : -INFINITY;
    int64_t best = 0;
    double total = 0, sum = 0;
    for (int64_t i = 1; i < n; i++)
        best = scores[i] > scores[best] ? i : best;
    if (temperature <= 0)
        return best;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < n; i++) {
            if (scores[i] < floor_score)
                continue;
            double p = exp((double)(scores[i] - scores[best]) / temperature);
            if (!pass)
                total += p;
            else if ((sum += p) > (double)unit * total)
                return i;
        }
    return best;
}

/* Computes the scores (V) of the token that follows ids (t). */
static choir_status next_scores(choir_scope *run, choir_module *net, const int64_t *ids,
    int64_t t, float *scores, int64_t vocabulary)
{
    choir_scope *step = choir_no_grad(run);
    choir_tensor *out = choir_forward(net, choir_from(step, CHOIR_I64, choir_dims(1, t), ids));
    choir_tensor *last = choir_cast(choir_narrow(out, 1, t - 1, 1), CHOIR_F32); /* (1, 1, V) */
    choir_status status = choir_read(last, scores, (size_t)vocabulary * sizeof *scores);
    choir_status closed = choir_scope_close(step);
    return status == CHOIR_OK ? closed : status;
}

choir_status choir__generate(choir_scope *run, choir_module *net, const choir_model_info *info,
    const choir_tokenizer *tokenizer, const int64_t *prompt, int64_t prompt_count,
    int64_t count, double temperature, int64_t top_k, FILE *out)
{
    int64_t context = info->input.dim[0], n = info->classes, used = choir__max(prompt_count, 1);
    int64_t *ids = choir__calloc((size_t)(used + count), sizeof *ids); /* no prompt: token 0 */
    float *scores = choir__alloc((size_t)n * sizeof *scores);
    choir_status status = CHOIR_OK;
    if (prompt_count)
        memcpy(ids, prompt, (size_t)prompt_count * sizeof *ids);
    choir_module_train(net, false);
    for (int64_t i = 0; i < count && status == CHOIR_OK; i++) {
        int64_t t = choir__min(used, context);
        status = next_scores(run, net, ids + used - t, t, scores, n);
        if (status != CHOIR_OK)
            break;
        uint32_t words[4];
        choir__philox(choir__rng_key(choir_scope_seed(run), "generate"), 0, (uint64_t)i, words);
        int64_t id = draw(scores, n, temperature, top_k, choir__unit(words[0]));
        size_t bytes = 1;
        const char *text = choir_tokenizer_token(tokenizer, id, &bytes);
        fwrite(text ? text : "?", 1, bytes, out);
        fflush(out);
        ids[used++] = id;
    }
    choir_module_train(net, true);
    free(ids);
    free(scores);
    return status;
}

/* --- the command --- */

typedef struct request {
    const char *checkpoint, *prompt, *image;
    int64_t tokens, top_k, seed;
    double temperature;
} request;

static choir_status generate(const request *r)
{
    choir__saved s;
    choir_status status = choir__saved_open(r->checkpoint, NULL, (uint64_t)r->seed, &s);
    bool documents = status == CHOIR_OK && s.info.task == CHOIR_IMAGE_TO_TEXT;
    if (status == CHOIR_OK && documents != (r->image != NULL))
        status = choir__error(CHOIR_ERR_ARGUMENT,
            documents ? "%s describes images: missing --image FILE"
                      : "%s writes text: --image is for models of documents alone",
            r->checkpoint);
    if (status == CHOIR_OK && !s.tokenizer && (documents || s.info.task == CHOIR_LANGUAGE))
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "%s has no tokenizer: it was trained on ids alone; choir train --tokenizer FILE"
            " keeps one",
            r->checkpoint);
    if (status == CHOIR_OK && !documents && (s.info.task != CHOIR_LANGUAGE || s.info.masked))
        status = choir__error(CHOIR_ERR_ARGUMENT, "%s holds no model that writes text but %s",
            r->checkpoint, s.info.config);
    if (status == CHOIR_OK && documents) {
        status = choir__documents_tell(&s, r->image);
        choir__saved_close(&s);
        return status;
    }
    size_t bytes = strlen(r->prompt);
    int64_t *ids = NULL, count = 0;
    if (status == CHOIR_OK)
        status = choir_tokenizer_encode(s.tokenizer, r->prompt, bytes, NULL, 0, &count);
    if (status == CHOIR_OK) {
        size_t room = (size_t)count;
        ids = choir__alloc((room + 1) * sizeof *ids);
        status = choir_tokenizer_encode(s.tokenizer, r->prompt, bytes, ids, room, &count);
    }
    if (status == CHOIR_OK) {
        /* a pipe or a file gets the model's bytes */
        FILE *shown = isatty(STDOUT_FILENO) ? choir__printed_stream(stdout) : NULL;
        fputs(r->prompt, stdout);
        status = choir__generate(s.run, s.net, &s.info, s.tokenizer, ids, count, r->tokens,
            r->temperature, r->top_k, shown ? shown : stdout);
        if (shown)
            fclose(shown);
        printf("\n");
    }
    free(ids);
    choir__saved_close(&s);
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
    r.prompt = r.prompt ? r.prompt : "";
    return generate(&r) == CHOIR_OK ? CHOIR__EXIT_OK : choir__cli_fail();
}

#define AT(member) CHOIR__CLI_AT(request, member)

static const choir__cli_option options[] = {
    {"prompt", CHOIR__STRING, AT(prompt), .argument = "TEXT",
        .help = "text that the result begins with"},
    {"image", CHOIR__STRING, AT(image), .argument = "FILE",
        .help = "image that a model of documents (donut) describes"},
    {"tokens", CHOIR__INT, AT(tokens), 1, 1 << 30, .preset = "200", .argument = "N",
        .help = "number of tokens to write"},
    {"temperature", CHOIR__FLOAT, AT(temperature), 0, 1000, .preset = "0.8", .argument = "X",
        .help = "0 takes the likeliest token; the higher, the more surprising"},
    {"top-k", CHOIR__INT, AT(top_k), 0, 1 << 30, .preset = "40", .argument = "K",
        .help = "draw from the K likeliest tokens; 0: from all"},
    {"seed", CHOIR__INT, AT(seed), 0, 0x1p63, .preset = "42", .argument = "N",
        .help = "seed of the draws"},
    {NULL},
};

const choir__cli_command choir__cli_generate = {
    .name = "generate",
    .summary = "write text with a saved language model",
    .usage = "[OPTION]... CHECKPOINT",
    .about = "Writes text with a saved language model. CHECKPOINT is a folder that choir train "
             "--save wrote. The model runs on cpu:0, or where CHOIR_DEVICE says; cuda is the "
             "first GPU.",
    .example = "  choir generate runs/first --prompt 'To be' --tokens 500",
    .options = options,
    .operand = "CHECKPOINT",
    .least = 1,
    .most = 1,
    .run = run,
};
