/* choir generate: text from a saved language model, behind one prompt or many; or, of a
 * document model, the description of an image. One text appears as its tokens come; many are
 * written in one batch and printed in the order of their prompts. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files/file.h"
#include "cli/generate/writer.h"
#include "line/printed.h"

typedef struct request {
    choir__write_request write;
    const char *prompt, *prompts, *image;
    int64_t batch_size;
} request;

/* The prompts of a call: their texts and their ids. */
typedef struct batch {
    char *file;
    const char **text;
    size_t *bytes;
    choir_prompt *ids;
    int64_t count;
} batch;

static void add_prompt(batch *b, const char *text, size_t bytes)
{
    CHOIR__GROW(b->text, b->count);
    CHOIR__GROW(b->bytes, b->count);
    b->text[b->count] = text;
    b->bytes[b->count++] = bytes;
}

/* Reads a file, or standard input for "-": a prompt per line. */
static choir_status read_prompts(const char *path, batch *b)
{
    const bool standard = !strcmp(path, "-");
    FILE *in = stdin;
    choir_status status = standard ? CHOIR_OK : choir__file_stream(path, CHOIR__FILE_TEXT, &in);
    if (status != CHOIR_OK)
        return status;
    choir__text_buffer t = {0};
    char piece[4096];
    for (size_t got; (got = fread(piece, 1, sizeof piece, in)) > 0;)
        choir__text_buffer_add(&t, piece, got);
    const bool failed = ferror(in);
    if (!standard)
        fclose(in);
    b->file = t.bytes;
    if (failed)
        return choir__error(CHOIR_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    for (size_t at = 0; at < t.used;) {
        const char *end = memchr(t.bytes + at, '\n', t.used - at);
        const size_t bytes = end ? (size_t)(end - t.bytes) - at : t.used - at;
        add_prompt(b, t.bytes + at, bytes);
        at += bytes + 1;
    }
    return b->count ? CHOIR_OK
                    : choir__error(CHOIR_ERR_ARGUMENT,
                          "%s: expected a prompt per line, got an empty file", path);
}

static choir_status encode(const choir__saved *s, batch *b)
{
    choir_status status = CHOIR_OK;
    b->ids = choir__calloc((size_t)b->count, sizeof *b->ids);
    for (int64_t i = 0; i < b->count && status == CHOIR_OK; i++) {
        int64_t *ids;
        status = choir__write_encode(s, b->text[i], b->bytes[i], i + 1,
            choir_tokenizer_encode_whole, &ids, &b->ids[i].count);
        b->ids[i].ids = ids;
    }
    return status;
}

static void free_batch(batch *b)
{
    for (int64_t i = 0; i < b->count && b->ids; i++)
        free((void *)b->ids[i].ids);
    free(b->ids);
    free(b->text);
    free(b->bytes);
    free(b->file);
}

/* --- output --- */

/* A text that appears as it is written, behind its prompt. */
typedef struct stream {
    FILE *out;
    const char *prompt; /* NULL: it was printed */
    size_t bytes;
} stream;

static void show_prompt(stream *s)
{
    if (s->prompt)
        fwrite(s->prompt, 1, s->bytes, s->out);
    s->prompt = NULL;
}

static void show(void *arg, int64_t prompt, const char *text, size_t bytes)
{
    stream *s = arg;
    (void)prompt;
    show_prompt(s);
    fwrite(text, 1, bytes, s->out);
    fflush(s->out);
}

/* Writes prompts [from, from + n). One of them appears as it is written. */
static choir_status write_some(
    const request *r, const choir__saved *s, const batch *b, int64_t from, int64_t n, FILE *out)
{
    choir_generated *g = choir__calloc((size_t)n, sizeof *g);
    choir_generate_opts opts = choir__write_opts(&r->write);
    const bool streams = n == 1 && !r->write.json;
    stream shown = {out, b->text[from], b->bytes[from]};
    if (streams) {
        opts.text = show;
        opts.arg = &shown;
    }
    choir_status status =
        choir_generate(s->run, s->net, &s->info, s->tokenizer, b->ids + from, n, opts, g);
    for (int64_t i = 0; i < n && status == CHOIR_OK; i++) {
        if (r->write.json) {
            choir__write_json(&g[i]);
            continue;
        }
        if (streams) {
            show_prompt(&shown);
        } else {
            fwrite(b->text[from + i], 1, b->bytes[from + i], out);
            fwrite(g[i].text, 1, g[i].bytes, out);
        }
        fputc('\n', out);
        fflush(out);
        choir__write_note("generate", s, &g[i]);
    }
    choir_generated_free(g, n);
    free(g);
    return status;
}

static choir_status write_texts(const request *r, const choir__saved *s, batch *b)
{
    /* a pipe or a file gets the model's bytes */
    FILE *shown = isatty(STDOUT_FILENO) ? choir__printed_stream(stdout) : NULL;
    choir_status status = encode(s, b);
    for (int64_t at = 0; at < b->count && status == CHOIR_OK; at += r->batch_size)
        status = write_some(
            r, s, b, at, choir__min(r->batch_size, b->count - at), shown ? shown : stdout);
    if (shown)
        fclose(shown);
    return status;
}

static choir_status generate(const request *r)
{
    choir__saved s;
    batch b = {0};
    choir_status status = choir__write_open(&r->write, &s);
    const bool documents = s.info.task == CHOIR_IMAGE_TO_TEXT;
    if (status == CHOIR_OK && documents != (r->image != NULL))
        status = choir__error(CHOIR_ERR_ARGUMENT,
            documents ? "%s describes images: missing --image FILE"
                      : "%s writes text: --image is for models of documents alone",
            r->write.checkpoint);
    if (status == CHOIR_OK && documents) {
        status =
            choir__describe_image(&s, r->image, r->write.tokens_given ? r->write.tokens : 0);
    } else if (status == CHOIR_OK) {
        if (r->prompts)
            status = read_prompts(r->prompts, &b);
        else
            add_prompt(&b, r->prompt ? r->prompt : "", strlen(r->prompt ? r->prompt : ""));
        if (status == CHOIR_OK)
            status = write_texts(r, &s, &b);
    }
    free_batch(&b);
    choir__saved_close(&s);
    return status;
}

static int run(const choir__line_command *command, int argc, char **argv)
{
    request r = {.write.command = command->name};
    choir__line_operands operands;
    int status = choir__line_parse(command, &r, argc, argv, &operands);
    if (status != CHOIR__EXIT_OK)
        return status;
    r.write.checkpoint = operands.words[0];
    if (r.prompts && (r.prompt || r.image))
        return choir__line_usage(command->name, "--prompts and --%s: choose one of them",
            r.prompt ? "prompt" : "image");
    if (r.image && (r.prompt || r.write.drawing))
        return choir__line_usage(command->name,
            "--image and --%s: choose one of them; a description has the likeliest tokens",
            r.prompt ? "prompt" : r.write.drawing);
    return generate(&r) == CHOIR_OK ? CHOIR__EXIT_OK : choir__line_fail();
}

#define AT(member) CHOIR__LINE_AT(request, member)

static const choir__line_option options[] = {
    {"prompt", CHOIR__STRING, AT(prompt), .argument = "TEXT",
        .help = "text that the result begins with"},
    {"prompts", CHOIR__STRING, AT(prompts), .argument = "FILE",
        .help = "a prompt per line; -: from standard input"},
    {"batch-size", CHOIR__INT, AT(batch_size), 1, 1 << 16, .preset = "32", .argument = "N",
        .help = "prompts at a time; their texts do not depend on it"},
    {"image", CHOIR__STRING, AT(image), .argument = "FILE",
        .help = "image that a model of documents (donut) describes by its likeliest tokens, up "
                "to --tokens where that is given"},
    CHOIR__WRITE_ROWS,
    {NULL},
};

const choir__line_command choir__cli_generate = {
    .name = "generate",
    .summary = "write text with a saved language model",
    .usage = "[OPTION]... CHECKPOINT",
    .about =
        "Writes text with a saved language model. CHECKPOINT is a folder that choir train "
        "--save wrote, a published model, or a GGUF file. A text ends at the model's own end "
        "tokens, before a text of --stop, after --tokens tokens, or where the model's "
        "context is full. The seed and the prompt alone determine it. The model runs on cpu:0, or "
        "where CHOIR_DEVICE says; cuda is the first GPU.",
    .example = "  choir generate runs/first --prompt 'To be' --tokens 50",
    .options = options,
    .operand = "CHECKPOINT",
    .least = 1,
    .most = 1,
    .took = choir__write_took,
    .run = run,
};
