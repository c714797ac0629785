/* choir data: the samples of a step of a recorded run, from its job's document alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/text.h"
#include "job/samples.h"
#include "line/command.h"
#include "line/say.h"

typedef struct request {
    int64_t step, batch;
    bool json;
} request;

/* A sample that is being printed. */
typedef struct shown {
    const choir__job *job;
    int64_t epoch, index;
    choir__text_buffer text; /* the text of the tokens, or empty */
} shown;

/* --- the text of a sample --- */

/* Returns the bytes of a sample's x or y. */
static size_t bytes_of(choir_dtype dtype, choir_shape shape)
{
    size_t count = 1;
    for (int i = 0; i < shape.ndim; i++)
        count *= (size_t)shape.dim[i];
    return count * choir_dtype_size(dtype);
}

/* Decodes the first row of x, if the model reads tokens. */
static choir_status read_text(shown *s)
{
    const choir_dataset *d = s->job->data.train;
    const choir_tokenizer *tokenizer = s->job->model.tokenizer;
    choir__text_buffer_clear(&s->text);
    if (!tokenizer || d->x_dtype != CHOIR_I64 || d->x_shape.ndim < 1)
        return CHOIR_OK;
    int64_t *x = choir__alloc(bytes_of(d->x_dtype, d->x_shape));
    void *y = choir__alloc(bytes_of(d->y_dtype, d->y_shape));
    choir_status status =
        choir_dataset_get_epoch(s->job->data.train, s->epoch - 1, s->index, x, y);
    int64_t count = d->x_shape.dim[d->x_shape.ndim - 1];
    for (int64_t i = 0; i < count && status == CHOIR_OK; i++) {
        size_t bytes;
        const char *token = choir_tokenizer_token(tokenizer, x[i], &bytes);
        if (token)
            choir__text_buffer_add(&s->text, token, bytes);
    }
    free(x);
    free(y);
    return status;
}

/* --- as JSON --- */

static void put_place(const choir_sample_place *p, choir__text_buffer *out)
{
    choir__text_open(out, NULL, '{');
    choir__text_string(out, "file", p->file);
    if (p->line > 0)
        choir__text_value(out, "line", "%lld", (long long)p->line);
    if (p->document >= 0)
        choir__text_value(out, "document", "%lld", (long long)p->document);
    if (p->count) {
        choir__text_value(out, "first", "%lld", (long long)p->first);
        choir__text_value(out, "count", "%lld", (long long)p->count);
    }
    choir__text_close(out, '}');
}

static const char *class_of(const shown *s)
{
    choir_dataset *d = s->job->data.train;
    return d->classes && d->ops->class_of
               ? choir_dataset_class_name(d, choir_dataset_class_of(d, s->index))
               : NULL;
}

static void put_sample(shown *s, choir__text_buffer *out)
{
    choir_sample_place place;
    choir__text_open(out, NULL, '{');
    choir__text_value(out, "sample", "%lld", (long long)s->index);
    choir__text_open(out, "places", '[');
    for (int64_t part = 0; choir_dataset_place(s->job->data.train, s->index, part, &place);
         part++)
        put_place(&place, out);
    choir__text_close(out, ']');
    if (class_of(s))
        choir__text_string(out, "class", class_of(s));
    if (s->text.used)
        choir__text_string(out, "text", s->text.bytes);
    choir__text_close(out, '}');
}

/* --- for people --- */

static void say_place(const shown *s, const choir_sample_place *p, int64_t part)
{
    const char *class = class_of(s);
    printf("%s%s%s%s", part ? "; " : "  ", class ? class : "", class ? "/" : "",
        p->file ? p->file
        : class ? ""
                : "no file");
    if (p->line > 0)
        printf(":%lld", (long long)p->line);
    if (p->count)
        printf(
            ", tokens %lld to %lld", (long long)p->first, (long long)(p->first + p->count - 1));
}

static void say_sample(shown *s)
{
    enum { SHOWN = 72 };
    choir_sample_place place;
    printf("  sample %lld", (long long)s->index);
    for (int64_t part = 0; choir_dataset_place(s->job->data.train, s->index, part, &place);
         part++)
        say_place(s, &place, part);
    printf("\n");
    if (!s->text.used)
        return;
    char *text = choir__text_mended(s->text.bytes);
    for (char *at = text; *at; at++)
        *at = *at == '\n' || *at == '\t' ? ' ' : *at;
    choir__clean(text);
    size_t bytes = strlen(text) > SHOWN ? SHOWN : strlen(text);
    while (bytes < strlen(text) && (text[bytes] & 0xc0) == 0x80)
        bytes++; /* whole characters */
    printf("    %.*s%s\n", (int)bytes, text, text[bytes] ? "..." : "");
    free(text);
}

/* --- the command --- */

static choir_status print_batch(const choir__job *j, const choir__samples *b, bool json)
{
    choir__text_buffer out = {0};
    shown s = {.job = j, .epoch = b->epoch};
    choir_status status = CHOIR_OK;
    if (json) {
        choir__text_open(&out, NULL, '{');
        choir__text_value(&out, "step", b->step ? "%lld" : "null", (long long)b->step);
        choir__text_value(&out, "batch", "%lld", (long long)b->batch);
        choir__text_value(&out, "epoch", "%lld", (long long)b->epoch);
        choir__text_open(&out, "microbatches", '[');
    } else {
        char step[48] = "no step, since it is left out";
        if (b->step)
            snprintf(step, sizeof step, "step %lld of %lld", (long long)b->step,
                (long long)j->training.steps);
        printf("%s: batch %lld, number %lld of %lld in epoch %lld\n", step, (long long)b->batch,
            (long long)((b->batch - 1) % b->batches + 1), (long long)b->batches,
            (long long)b->epoch);
    }
    for (int64_t i = 0; i < j->training.batch_size && status == CHOIR_OK; i++) {
        bool first = i % b->each == 0, last = i % b->each == b->each - 1;
        s.index = b->index[i];
        status = read_text(&s);
        if (json && first)
            choir__text_open(&out, NULL, '[');
        if (json)
            put_sample(&s, &out);
        if (json && last)
            choir__text_close(&out, ']');
        if (!json && first)
            printf("micro-batch %lld\n", (long long)(i / b->each));
        if (!json)
            say_sample(&s);
    }
    if (json) {
        choir__text_close(&out, ']');
        choir__text_finish(&out, stdout);
    }
    choir__text_buffer_free(&s.text);
    return status;
}

static int run(const choir__line_command *command, int argc, char **argv)
{
    request r = {0};
    choir__job job;
    choir__samples samples = {0};
    choir__line_operands operands;
    int parsed = choir__line_parse(command, &r, argc, argv, &operands);
    if (parsed != CHOIR__EXIT_OK)
        return parsed;
    if (!r.step == !r.batch)
        return choir__line_usage(command->name, "expected --step N or --batch N");
    choir_status status = choir__samples_open(operands.words[0], &job);
    if (status == CHOIR_OK)
        status = choir__samples_of(&job, r.step, r.batch, &samples);
    if (status == CHOIR_OK)
        status = print_batch(&job, &samples, r.json);
    free(samples.index);
    choir__job_free(&job);
    return status == CHOIR_OK ? CHOIR__EXIT_OK : choir__line_fail();
}

static const choir__line_option options[] = {
    {"step", CHOIR__INT, CHOIR__LINE_AT(request, step), 1, CHOIR__LINE_NO_LIMIT,
        .argument = "N", .help = "the batch that this step trains on"},
    {"batch", CHOIR__INT, CHOIR__LINE_AT(request, batch), 1, CHOIR__LINE_NO_LIMIT,
        .argument = "N",
        .help = "batch number N, counted as in --skip-batches; the run may have left it out"},
    {"json", CHOIR__FLAG, CHOIR__LINE_AT(request, json), .help = "print one JSON object"},
    {NULL},
};

const choir__line_command choir__cli_data = {
    .name = "data",
    .summary = "show the samples of a step of a run",
    .usage = "RUN --step N [--json]\nRUN --batch N [--json]",
    .about =
        "Prints the samples of a batch, one micro-batch after another: where each comes from "
        "(file, line, tokens) and its text. RUN is a folder of --save or --run, a checkpoint, or a "
        "job file; nothing is trained, and no device of the run is needed.",
    .example = "  choir data runs/1 --step 412",
    .options = options,
    .operand = "RUN",
    .least = 1,
    .most = 1,
    .run = run,
};
