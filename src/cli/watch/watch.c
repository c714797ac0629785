/* choir watch: a page of runs, served by this process until a signal ends it. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/base.h"
#include "cli/command.h"
#include "cli/watch/page.h"

enum { MOST_PLACES = 64 };

typedef struct request {
    const char *listen, *key_file;
} request;

/* A folder that is not there yet may come; a file never becomes one. */
static bool all_may_be_folders(const choir__cli_operands *given)
{
    for (int i = 0; i < given->count; i++) {
        struct stat s;
        if (stat(given->words[i], &s) == 0 && !S_ISDIR(s.st_mode)) {
            choir__error(CHOIR_ERR_ARGUMENT,
                "%s is a file; expected the folder of a run, as choir train --save or --run "
                "makes it, or one that holds such folders",
                given->words[i]);
            return false;
        }
    }
    return true;
}

static int run(const choir__cli_command *command, int argc, char **argv)
{
    static char here[] = ".";
    char *places[] = {here};
    request r = {0};
    choir__cli_operands given;
    choir__watch_page *page;
    sigset_t ends;
    int status = choir__cli_parse(command, &r, argc, argv, &given), number;
    if (status != CHOIR__EXIT_OK)
        return status;
    if (!all_may_be_folders(&given))
        return choir__cli_fail();
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGHUP);
    sigprocmask(SIG_BLOCK, &ends, NULL); /* before there are threads, which inherit this */
    signal(SIGPIPE, SIG_IGN);
    char *what = choir__format("--listen %s", r.listen);
    choir_status opened = choir__watch_page_open(what, r.listen, r.key_file,
        given.count ? given.words : places, given.count ? given.count : 1, &page);
    free(what);
    if (opened != CHOIR_OK)
        return choir__cli_fail();
    printf("%s\n", choir__watch_page_url(page));
    opened = choir__cli_flush();
    while (opened == CHOIR_OK && sigwait(&ends, &number) != 0)
        ;
    choir__watch_page_close(page);
    return opened == CHOIR_OK ? CHOIR__EXIT_OK : choir__cli_fail();
}

#define AT(member) CHOIR__CLI_AT(request, member)

static const choir__cli_option options[] = {
    {"listen", CHOIR__STRING, AT(listen), .preset = ":0", .argument = "[HOST]:PORT",
        .help = "where the page is served; without HOST on this machine's loopback address; "
                "port 0 is any free one"},
    {"key-file", CHOIR__STRING, AT(key_file), .argument = "FILE",
        .help = "make the token in the page's address from this secret, so that the address "
                "stays the same; HOST may be that of a network then"},
    {NULL},
};

const choir__cli_command choir__cli_watch = {
    .name = "watch",
    .summary = "show runs on a live page in the browser",
    .usage = "[OPTION]... [RUN]...",
    .about =
        "Serves a page with the curves, events and ranks of runs, which follows them as they go "
        "on, and prints its address. RUN is a folder that choir train --save or --run writes or "
        "will write, or one that holds such folders; by default the present one. The page needs "
        "nothing from elsewhere. Ctrl-C ends it.",
    .example_title = "all runs below a folder",
    .example = "  choir watch runs",
    .options = options,
    .operand = "RUN",
    .most = MOST_PLACES,
    .run = run,
};
