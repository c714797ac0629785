/* choir checkpoint: looks into, checks and converts saved state. */
#include "cli/checkpoint/checkpoint.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/options.h"
#include "cli/cli.h"

static void help(void)
{
    printf(
        "Usage: choir checkpoint inspect [--json] CHECKPOINT\n"
        "       choir checkpoint verify [--json] CHECKPOINT\n"
        "       choir checkpoint convert [--shards N] [--dtype TYPE] CHECKPOINT NEW\n\n"
        "CHECKPOINT is what choir train --save wrote (the folder, or one of its steps), a\n"
        "folder of safetensors files, or one such file.\n\n"
        "inspect shows what was saved, by whom, the files and the tensors in them.\n"
        "verify compares every file with the size and SHA-256 that it was saved with, and\n"
        "looks whether the files together have every tensor whole.\n"
        "convert writes it anew, to a folder that can be gone on from if CHECKPOINT can;\n"
        "or the weights alone, if NEW ends in .safetensors. Tensors in parts become whole.\n\n"
        "  --shards N           files to make (default 1)\n"
        "  --dtype TYPE         of the weights: f32, bf16 or f16 (default: as they are)\n"
        "  --json               one JSON object a line\n\n"
        "Example:\n  choir checkpoint convert runs/first weights.safetensors\n");
}

typedef struct options {
    bool json;
    choir__convert_opts convert;
} options;

static int set_option(options *o, int id, const char *text)
{
    int64_t n;
    if (id == 'j') {
        o->json = true;
    } else if (id == 's') {
        if (!choir__parse_int(text, 1, 99999, &n))
            return choir__cli_usage(
                "checkpoint", "--shards %s: a number from 1 to 99999 is wanted", text);
        o->convert.shards = (int)n;
    } else {
        const choir_dtype types[] = {CHOIR_F32, CHOIR_BF16, CHOIR_F16};
        for (size_t i = 0; i < CHOIR_COUNT(types); i++)
            if (!strcmp(text, choir_dtype_name(types[i]))) {
                o->convert.typed = true;
                o->convert.dtype = types[i];
                return CHOIR__EXIT_OK;
            }
        return choir__cli_usage("checkpoint", "--dtype %s: there are f32, bf16 and f16", text);
    }
    return CHOIR__EXIT_OK;
}

static choir_status inspect(const char *path, bool json)
{
    choir__opened opened;
    choir_status status = choir__opened_open(&opened, path, false);
    if (status == CHOIR_OK)
        choir__checkpoint_print(&opened, json);
    choir__opened_close(&opened);
    return status;
}

static choir_status convert(const char *from, const char *to, choir__convert_opts opts)
{
    choir__opened opened;
    choir_status status = choir__opened_open(&opened, from, true);
    if (status == CHOIR_OK)
        status = choir__checkpoint_convert(&opened, to, opts);
    choir__opened_close(&opened);
    return status;
}

/* argv: of the command inspect, verify or convert. */
static int run(const char *what, int argc, char **argv)
{
    static const struct option known[] = {{"json", no_argument, NULL, 'j'},
        {"shards", required_argument, NULL, 's'}, {"dtype", required_argument, NULL, 'd'},
        {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    options o = {.convert = {.shards = 1}};
    bool converts = !strcmp(what, "convert");
    int id, which = 0, status = CHOIR__EXIT_OK, wanted = converts ? 2 : 1;
    choir_status done;
    opterr = 0;
    while (
        (id = getopt_long(argc, argv, "h", known, &which)) != -1 && status == CHOIR__EXIT_OK) {
        if (id == 'h') {
            help();
            return CHOIR__EXIT_OK;
        }
        if (id == '?' || (id == 'j') == converts)
            return id == '?' ? choir__cli_unknown("checkpoint", argv)
                             : choir__cli_usage("checkpoint", "%s has no option '--%s'", what,
                                   known[which].name);
        status = set_option(&o, id, optarg);
    }
    if (status != CHOIR__EXIT_OK)
        return status;
    if (argc - optind != wanted)
        return choir__cli_usage("checkpoint",
            converts ? "convert wants a checkpoint, and the new file or folder"
                     : "%s wants one checkpoint",
            what);
    const char *path = argv[optind];
    if (converts)
        done = convert(path, argv[optind + 1], o.convert);
    else if (!strcmp(what, "verify"))
        done = choir__checkpoint_check(path, o.json);
    else
        done = inspect(path, o.json);
    return done == CHOIR_OK ? CHOIR__EXIT_OK : choir__cli_fail();
}

int choir__cli_checkpoint(int argc, char **argv)
{
    static const char *const commands[] = {"inspect", "verify", "convert"};
    if (argc < 2)
        return choir__cli_usage("checkpoint", "inspect, verify or convert is wanted");
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        help();
        return CHOIR__EXIT_OK;
    }
    for (size_t i = 0; i < CHOIR_COUNT(commands); i++)
        if (!strcmp(argv[1], commands[i]))
            return run(commands[i], argc - 1, argv + 1);
    return choir__cli_usage(
        "checkpoint", "there is no '%s'; there are inspect, verify and convert", argv[1]);
}
