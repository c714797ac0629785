/* choir COMMAND ...: finds the command and runs it. */
#include "cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

static double started; /* on choir__now()'s clock */

double choir__cli_uptime(void)
{
    return choir__now() - started;
}

int choir__cli_fail(void)
{
    fprintf(stderr, "choir: %s\n", choir_error_message());
    return CHOIR__EXIT_FAILED;
}

int choir__cli_usage(const char *command, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "choir %s: ", command);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "; 'choir %s --help' tells more\n", command);
    return CHOIR__EXIT_USAGE;
}

int choir__cli_unknown(const char *command, char **argv)
{
    const char *next =
        argv[optind]; /* getopt stays at a word as -xy, whose x it did not know */
    bool inside = next && next[0] == '-' && next[1] == optopt && optopt;
    return choir__cli_usage(
        command, "there is no option '%s'", inside ? next : argv[optind - 1]);
}

choir_status choir__cli_flush(void)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_IO, "cannot write to standard output: %s",
        errno ? strerror(errno) : "some of it was lost");
}

/* Beside the command: bin/../share where it is installed, build/share where it was built. */
const char *choir__cli_own_text(void)
{
    static const char *const places[] = {"../share/choir/choir.txt", "share/choir/choir.txt"};
    static char path[PATH_MAX + 32];
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
    while (length > 0 && path[length - 1] != '/')
        length--;
    for (size_t i = 0; i < CHOIR_COUNT(places) && length > 0; i++) {
        strcpy(path + length, places[i]);
        if (access(path, R_OK) == 0)
            return path;
    }
    choir__error(CHOIR_ERR_IO, "the text that comes with Choir is missing; name a text file");
    return NULL;
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
    struct timespec cpu; /* what exec and linking took, before main: CPU time is close to it */
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    started = choir__now() - (double)cpu.tv_sec - 1e-9 * (double)cpu.tv_nsec;
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
