/* choir generate: text from a saved language model, token by token behind a prompt; or, of a
 * document model, the description of an image. A model without a tokenizer, or of another task,
 * is refused. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "line/command.h"
#include "line/printed.h"
#include "job/model/saved.h"
#include "job/trainer/trainer.h"

/* --- documents --- */

/* Computes the image's states (1, S, E), which the run keeps. */
static choir_status see(const choir__saved *s, const float *pixels, choir_tensor **states)
{
    const choir_model_info *i = &s->info;
    choir_scope *step = choir_no_grad(s->run);
    choir_tensor *x =
        choir_from(step, CHOIR_F32, choir_dims(1, i->input.dim[1], i->input.dim[2], 3), pixels);
    x = choir_donut_encode(s->net, choir_permute(x, choir_dims(0, 3, 1, 2)));
    *states = choir_keep(s->run, x);
    return choir_scope_close(step);
}

static choir_status next_token(
    const choir__saved *s, choir_tensor *states, const int64_t *ids, int64_t t, int64_t *next)
{
    choir_scope *step = choir_no_grad(s->run);
    choir_tensor *known = choir_from(step, CHOIR_I64, choir_dims(1, t), ids);
    choir_tensor *out =
        choir_donut_decode(s->net, known, choir_in(step, states)); /* (1, T, V) */
    choir_tensor *last = choir_argmax(choir_narrow(out, 1, t - 1, 1));
    choir_status status = choir_read(last, next, sizeof *next);
    choir_status closed = choir_scope_close(step);
    return status == CHOIR_OK ? closed : status;
}

static choir_status tell(const choir__saved *s, choir_tensor *states)
{
    int64_t context = s->info.output.dim[0], end = choir_tokenizer_id(s->tokenizer, "</s>");
    int64_t *ids = choir__alloc((size_t)(context + 1) * sizeof *ids);
    choir_status status = CHOIR_OK;
    ids[0] = s->info.start;
    for (int64_t t = 1; t <= context && status == CHOIR_OK; t++) {
        status = next_token(s, states, ids, t, &ids[t]);
        if (status != CHOIR_OK || ids[t] == end)
            break;
        size_t bytes;
        const char *text = choir_tokenizer_token(s->tokenizer, ids[t], &bytes);
        fwrite(text ? text : "?", 1, text ? bytes : 1, stdout);
    }
    printf("\n");
    free(ids);
    return status;
}

/* Prints the model's description of an image, token by token. Each token is the most likely
 * one.
 */
static choir_status describe_image(const choir__saved *s, const char *image)
{
    choir_document_opts opts = choir_document_defaults();
    opts.image.height = (int)s->info.input.dim[1];
    opts.image.width = (int)s->info.input.dim[2];
    float *pixels = choir__alloc(
        (size_t)(3 * s->info.input.dim[1] * s->info.input.dim[2]) * sizeof *pixels);
    choir_tensor *states = NULL;
    choir_status status = choir_document_image(image, &opts.image, pixels);
    choir_module_train(s->net, false);
    if (status == CHOIR_OK)
        status = see(s, pixels, &states);
    if (status == CHOIR_OK)
        status = tell(s, states);
    free(pixels);
    return status;
}

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
        status = describe_image(&s, r->image);
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
