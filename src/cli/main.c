/* choir COMMAND ...: finds the command and runs it. */
#include "cli/cli.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"train", choir__cli_train, "train a model on a text, a folder of images or random data"},
    {"compare", choir__cli_compare, "the same job under every strategy, side by side"},
    {"eval", choir__cli_eval, "the loss and accuracy of a saved model"},
    {"generate", choir__cli_generate, "text from a saved language model"},
    {"checkpoint", choir__cli_checkpoint, "look into, check and convert saved state"},
    {"run", choir__cli_run, "start a command as several ranks, and see to them"},
    {"bench", choir__cli_bench, "measure a collective over sizes"},
    {"top", choir__cli_top, "live processes: memory, utilisation, collectives"},
    {"info", choir__cli_info, "version, backends, devices"},
};

int choir__cli_unknown(const char *command, char **argv)
{
    const char *next =
        argv[optind]; /* getopt stays at a word as -xy, whose x it did not know */
    bool inside = next && next[0] == '-' && next[1] == optopt && optopt;
    return choir__cli_usage(
        command, "there is no option '%s'", inside ? next : argv[optind - 1]);
}

static void help(FILE *out)
{
    fprintf(out, "Choir %s: many devices, one model.\n\nUsage: choir COMMAND [OPTION]...\n\n",
        CHOIR_VERSION);
    for (size_t i = 0; i < CHOIR_COUNT(commands); i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
    fprintf(out, "\n'choir COMMAND --help' tells more. An example:\n\n"
                 "  choir train --strategy ddp --nproc 2 --steps 500\n");
}

/* What was not written was not done. */
static int written(int status)
{
    if (status == CHOIR__EXIT_OK && choir__cli_flush() != CHOIR_OK)
        return choir__cli_fail();
    return status;
}

int main(int argc, char **argv)
{
    choir__cli_start();
    if (argc < 2) {
        fprintf(stderr, "choir: a command is wanted; 'choir --help' lists them\n");
        return CHOIR__EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        help(stdout);
        return written(CHOIR__EXIT_OK);
    }
    if (!strcmp(argv[1], "--version")) {
        printf("choir %s\n", CHOIR_VERSION);
        return written(CHOIR__EXIT_OK);
    }
    for (size_t i = 0; i < CHOIR_COUNT(commands); i++)
        if (!strcmp(argv[1], commands[i].name))
            return written(commands[i].run(argc - 1, argv + 1));
    fprintf(stderr, "choir: there is no command '%s'; 'choir --help' lists them\n", argv[1]);
    return CHOIR__EXIT_USAGE;
}
