/* choir checkpoint: shows, verifies and converts saved state. */
#include "cli/checkpoint/checkpoint.h"

#include <stdio.h>
#include <string.h>

#include "job/choices.h"

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
        choir__checkpoint_print(&opened, json);
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
        return choir__cli_usage("checkpoint", "%s takes no option '--%s'", action, stranger);
    if (paths == 0)
        return choir__cli_usage("checkpoint", "%s: missing CHECKPOINT", action);
    if (converts && paths == 1)
        return choir__cli_usage(
            "checkpoint", "convert: missing NEW, a file or folder to write");
    if (paths > 1 + converts)
        return choir__cli_usage("checkpoint", "%s: expected %d path%s, got %d", action,
            1 + converts, converts ? "s" : "", paths);
    return CHOIR__EXIT_OK;
}

static int run(const choir__cli_command *command, int argc, char **argv)
{
    request r = {0};
    choir__cli_operands operands;
    int status = choir__cli_parse(command, &r, argc, argv, &operands);
    if (status == CHOIR__EXIT_OK)
        status = check_action(operands.words[0], &r, operands.count - 1);
    if (status != CHOIR__EXIT_OK)
        return status;
    const char *action = operands.words[0], *path = operands.words[1];
    choir_status done = !strcmp(action, "convert")  ? convert(path, operands.words[2], &r)
                        : !strcmp(action, "verify") ? choir__checkpoint_check(path, r.json)
                                                    : inspect(path, r.json);
    return done == CHOIR_OK ? CHOIR__EXIT_OK : choir__cli_fail();
}

#define AT(member) CHOIR__CLI_AT(request, member)

static const choir__cli_option options[] = {
    {"shards", CHOIR__INT, AT(shards), 1, 99999, .argument = "N",
        .help = "convert: number of files to write (default 1)"},
    {"dtype", CHOIR__STRING, AT(dtype), .argument = "TYPE",
        .help = "convert: type of the weights (default: as they are)",
        .choices = choir__cli_weight_dtype_names, .strict = true},
    {"json", CHOIR__FLAG, AT(json), .help = "inspect, verify: print one JSON object per line"},
    {NULL},
};

const choir__cli_command choir__cli_checkpoint = {
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
        "become whole.",
    .example = "  choir checkpoint convert runs/first weights.safetensors",
    .options = options,
    .operand = "action",
    .operands = actions,
    .least = 1,
    .most = 4, /* paths are counted by action */
    .run = run,
};
