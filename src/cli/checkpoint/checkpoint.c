/* choir checkpoint: shows, verifies and converts saved state. Its output is the state, the
 * files with their hashes, and the tensors with their parts, as lines of JSON or as columns.
 * Names out of files are cleaned before a terminal gets them. */

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/folder.h"
#include "checkpoint/state.h"
#include "checkpoint/gguf/import.h"
#include "checkpoint/weights/convert.h"
#include "job/choices.h"
#include "line/printed.h"
#include "tensor/tensor.h"

static void print_line(json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT);
    printf("%s\n", text);
    free(text);
    json_decref(object);
}

static json_t *number_json(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *sizes_json(const int64_t *sizes, int count)
{
    json_t *array = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(array, json_integer(sizes[i]));
    return array;
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* --- the state --- */

static void print_state(const choir__opened *o, bool json)
{
    const choir_train_state *s = &o->state;
    if (json) {
        print_line(json_pack(
            "{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:o, s:o}", "event",
            "checkpoint", "path", o->folder, "model", s->model, "optimizer", s->optimizer,
            "step", (json_int_t)s->step, "optimizer_steps", (json_int_t)s->optimizer_steps,
            "position", (json_int_t)s->position, "batch_size", (json_int_t)s->batch_size,
            "microbatches", (json_int_t)s->microbatches, "strategy", s->strategy, "world",
            (json_int_t)s->world, "loss", number_json(s->loss), "eval_loss",
            number_json(s->eval_loss)));
        return;
    }
    printf("%s\n", o->folder);
    printf("  step        %lld", (long long)s->step);
    if (isfinite(s->loss))
        printf(", loss %.4f", s->loss);
    if (isfinite(s->eval_loss))
        printf(", validation %.4f", s->eval_loss);
    printf("\n  model       ");
    choir__print_word(stdout, *s->model ? s->model : "a program's own", 0);
    printf("\n");
    if (o->optimizer.count || *s->optimizer) {
        printf("  optimizer   ");
        choir__print_word(stdout, s->optimizer, 0);
        printf("%s%lld steps\n", *s->optimizer ? ", " : "", (long long)s->optimizer_steps);
    }
    if (s->microbatches)
        printf("  data        %lld micro-batches of %lld samples, seed %llu\n",
            (long long)s->position, (long long)(s->batch_size / s->microbatches),
            (unsigned long long)s->seed);
    if (s->world) {
        printf("  saved by    ");
        choir__print_word(stdout, s->strategy, 0);
        printf("%s%lld rank%s\n", *s->strategy ? " on " : "", (long long)s->world,
            s->world > 1 ? "s" : "");
    }
}

static void print_files(const choir__opened *o, bool json)
{
    const char *name;
    json_t *entry;
    if (!json)
        printf("\n");
    json_object_foreach(o->files, name, entry)
    {
        const char *sha = json_string_value(json_object_get(entry, "sha256"));
        json_int_t bytes = json_integer_value(json_object_get(entry, "bytes"));
        if (json)
            print_line(json_pack("{s:s, s:s, s:I, s:s}", "event", "file", "name", name, "bytes",
                bytes, "sha256", sha));
        else
            printf("  "), choir__print_word(stdout, name, -36),
                printf(" %14lld bytes  %.12s\n", (long long)bytes, sha);
    }
}

/* --- tensors --- */

static void print_tensor(
    const choir__stored *s, const choir__stored_tensor *t, const char *kind, bool json)
{
    int ndim = t->whole.ndim;
    if (!json) {
        printf("  ");
        choir__print_word(stdout, t->name, -44);
        printf(" %-5s %-20s", choir_dtype_name(t->dtype), choir__shape_text(t->whole));
        printf(t->part_count > 1 ? " in %d parts\n" : "\n", t->part_count);
        return;
    }
    json_t *parts = json_array();
    for (int i = 0; i < t->part_count; i++) {
        const choir__stored_part *p = &t->parts[i];
        json_array_append_new(parts,
            json_pack("{s:s, s:o, s:o}", "file", file_name(s->paths[p->file]), "from",
                sizes_json(p->region.from, ndim), "size", sizes_json(p->region.size, ndim)));
    }
    print_line(json_pack("{s:s, s:s, s:s, s:s, s:o, s:o}", "event", "tensor", "of", kind,
        "name", t->name, "dtype", choir_dtype_name(t->dtype), "shape",
        sizes_json(t->whole.dim, ndim), "parts", parts));
}

static void print_stored(const choir__stored *s, const char *kind, bool json)
{
    int64_t count = 0, bytes = 0;
    for (int i = 0; i < s->count; i++) {
        int64_t n = choir__shape_count(s->tensors[i].whole);
        count += n;
        bytes += n * (int64_t)choir_dtype_size(s->tensors[i].dtype);
    }
    if (!json)
        printf("\n  %s: %d tensors, %lld numbers, %.1f MiB, in %d file%s\n", kind, s->count,
            (long long)count, (double)bytes / 1048576, s->file_count,
            s->file_count > 1 ? "s" : "");
    for (int i = 0; i < s->count; i++)
        print_tensor(s, &s->tensors[i], kind, json);
}

/* Prints an opened checkpoint as text or as JSON, with one object per line. */
static void print_checkpoint(const choir__opened *o, bool json)
{
    if (o->has_state) {
        print_state(o, json);
        print_files(o, json);
    }
    print_stored(&o->model, "model", json);
    if (o->optimizer.count)
        print_stored(&o->optimizer, "optimizer", json);
}

/* --- verifying --- */

static void print_verdict(const char *name, choir_status status, bool json)
{
    bool good = status == CHOIR_OK;
    if (json)
        print_line(json_pack("{s:s, s:s, s:b, s:s}", "event", "file", "name", name, "good",
            good, "message", good ? "" : choir_error_message()));
    else
        printf("%-4s  ", good ? "good" : "BAD"), choir__print_word(stdout, name, 0),
            printf("\n");
}

/* Checks all files. The message of the first bad one remains as the error. */
static choir_status check_files(const char *folder, json_t *files, bool json)
{
    choir_status first = CHOIR_OK;
    char *message = NULL;
    const char *name;
    json_t *entry;
    json_object_foreach(files, name, entry)
    {
        choir_status status = choir__state_check_file(folder, files, name, true);
        print_verdict(name, status, json);
        if (status != CHOIR_OK && first == CHOIR_OK) {
            first = status;
            message = choir__strdup(choir_error_message());
        }
    }
    if (message)
        choir__set_message(message);
    free(message);
    return first;
}

/* Compares every file with the manifest and prints a verdict on each. Returns CHOIR_ERR_FORMAT,
 * with the message of the first bad file, if any is bad. */
static choir_status verify(const char *path, bool json)
{
    char found[PATH_MAX];
    choir__opened opened = {.folder = NULL};
    choir_train_state state;
    json_t *files = NULL;
    choir_status status = choir__checkpoint_find(path, found);
    if (status == CHOIR_OK && !choir__is_weights_file(found)) {
        status = choir__state_read(found, &state, &files);
        if (status == CHOIR_OK)
            status = check_files(found, files, json);
    }
    if (status == CHOIR_OK)
        status = choir__opened_open(&opened, path, false);
    if (status == CHOIR_OK && choir__is_weights_file(found))
        print_verdict(
            file_name(found), status, json); /* only the form, since it has no checksum */
    choir__opened_close(&opened);
    json_decref(files);
    return status;
}

typedef struct request {
    bool json;
    int64_t shards;    /* 0: unless specified */
    const char *dtype; /* NULL: unless specified */
} request;

static choir_status inspect(const char *path, bool json)
{
    choir__opened opened;
    choir_status status = choir__opened_open(&opened, path, false);
    if (status == CHOIR_OK)
        print_checkpoint(&opened, json);
    choir__opened_close(&opened);
    return status;
}

static choir_status convert(const char *from, const char *to, const request *r)
{
    choir__convert_opts opts = {.shards = r->shards ? (int)r->shards : 1};
    choir__opened opened;
    for (int d = 0; d < CHOIR_DTYPE_COUNT && r->dtype; d++)
        if (!strcmp(strcmp(r->dtype, "fp16") ? r->dtype : "f16",
                choir_dtype_name((choir_dtype)d))) {
            opts.typed = true;
            opts.dtype = (choir_dtype)d;
        }
    if (choir__is_gguf(from))
        return opts.shards > 1
                   ? choir__error(
                         CHOIR_ERR_ARGUMENT, "%s becomes one file: leave out --shards", from)
                   : choir__gguf_import(from, to, opts.typed ? opts.dtype : CHOIR_F32,
                         "--dtype bf16 takes half of what f32 does");
    choir_status status = choir__opened_open(&opened, from, true);
    if (status == CHOIR_OK)
        status = choir__checkpoint_convert(&opened, to, opts);
    choir__opened_close(&opened);
    return status;
}

static const char *actions(size_t i)
{
    static const char *const names[] = {"inspect", "verify", "convert"};
    return i < CHOIR_COUNT(names) ? names[i] : NULL;
}

/* Checks that the action takes the options given: all actions share one table of options. */
static int check_action(const char *action, const request *r, int paths)
{
    bool converts = !strcmp(action, "convert");
    const char *stranger = converts    ? (r->json ? "json" : NULL)
                           : r->shards ? "shards"
                           : r->dtype  ? "dtype"
                                       : NULL;
    if (stranger)
        return choir__line_usage("checkpoint", "%s takes no option '--%s'", action, stranger);
    if (paths == 0)
        return choir__line_usage("checkpoint", "%s: missing CHECKPOINT", action);
    if (converts && paths == 1)
        return choir__line_usage(
            "checkpoint", "convert: missing NEW, a file or folder to write");
    if (paths > 1 + converts)
        return choir__line_usage("checkpoint", "%s: expected %d path%s, got %d", action,
            1 + converts, converts ? "s" : "", paths);
    return CHOIR__EXIT_OK;
}

static int run(const choir__line_command *command, int argc, char **argv)
{
    request r = {0};
    choir__line_operands operands;
    int status = choir__line_parse(command, &r, argc, argv, &operands);
    if (status == CHOIR__EXIT_OK)
        status = check_action(operands.words[0], &r, operands.count - 1);
    if (status != CHOIR__EXIT_OK)
        return status;
    const char *action = operands.words[0], *path = operands.words[1];
    choir_status done = !strcmp(action, "convert")  ? convert(path, operands.words[2], &r)
                        : !strcmp(action, "verify") ? verify(path, r.json)
                                                    : inspect(path, r.json);
    return done == CHOIR_OK ? CHOIR__EXIT_OK : choir__line_fail();
}

#define AT(member) CHOIR__LINE_AT(request, member)

static const choir__line_option options[] = {
    {"shards", CHOIR__INT, AT(shards), 1, 99999, .argument = "N",
        .help = "convert: number of files to write (default 1)"},
    {"dtype", CHOIR__STRING, AT(dtype), .argument = "TYPE",
        .help = "convert: type of the weights (default: as they are)",
        .choices = choir__job_weight_dtype_names, .strict = true},
    {"json", CHOIR__FLAG, AT(json), .help = "inspect, verify: print one JSON object per line"},
    {NULL},
};

const choir__line_command choir__cli_checkpoint = {
    .name = "checkpoint",
    .summary = "inspect, verify and convert saved state",
    .usage = "inspect [--json] CHECKPOINT\n"
             "verify [--json] CHECKPOINT\n"
             "convert [--shards N] [--dtype TYPE] CHECKPOINT NEW",
    .about =
        "CHECKPOINT is what choir train --save wrote (the folder, or one of its steps), a "
        "folder of safetensors files, or one such file.\n\n"
        "inspect shows what was saved and by which job, the files and the tensors in them. "
        "verify compares every file with the size and SHA-256 that were saved with it, and "
        "checks that the files together have every tensor whole. "
        "convert writes the checkpoint again, to a folder that can be resumed from if "
        "CHECKPOINT can; or the weights alone, if NEW ends in .safetensors. Tensors in parts "
        "become whole. If CHECKPOINT is a GGUF file, NEW becomes a folder as transformers reads "
        "it, with the file's sizes, tokenizer, chat template and weights (as f32 by default).",
    .example = "  choir checkpoint convert runs/first weights.safetensors\n"
               "  choir checkpoint convert model.gguf model --dtype bf16",
    .options = options,
    .operand = "action",
    .operands = actions,
    .least = 1,
    .most = 4, /* paths are counted by action */
    .run = run,
};
