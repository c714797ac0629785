/* choir watch: a page of runs, served by this process until a signal ends it. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/base.h"
#include "line/command.h"
#include "cli/tune/search.h"
#include "cli/watch/page.h"
#include "cli/watch/plan.h"
#include "record/http/http.h"
#include "tune/storage/backend.h"

enum { MOST_PLACES = 64 };
static const double far_s = 2; /* between two looks at other machines */

typedef struct request {
    const char *listen, *key_file, *hosts, *through;
} request;

/* A folder may come later, and a server; a file is a study or a plan, or a mistake. */
static bool all_can_be_shown(const choir__line_operands *given)
{
    for (int i = 0; i < given->count; i++) {
        struct stat s;
        choir__study_names names;
        if (stat(given->words[i], &s) != 0 || S_ISDIR(s.st_mode) ||
            choir__watch_is_plan(given->words[i], &s))
            continue;
        char *url = choir__tune_url(given->words[i]);
        choir_status status = choir__backend_list(url, &names);
        if (status == CHOIR_OK && !names.count)
            status = choir__error(CHOIR_ERR_ARGUMENT, "there is no study in %s", names.place);
        choir__study_names_free(&names);
        free(url);
        if (status == CHOIR_OK)
            continue;
        char *why = choir__strdup(choir_error_message());
        choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected the folder of a run, a folder that holds some, a study of choir tune, or "
            "the output of choir plan --json; it is a file: %s",
            given->words[i], why);
        free(why);
        return false;
    }
    return true;
}

static int run(const choir__line_command *command, int argc, char **argv)
{
    static char here[] = ".";
    char *places[] = {here};
    request r = {0};
    choir__line_operands given;
    choir__watch_page *page;
    sigset_t ends;
    int status = choir__line_parse(command, &r, argc, argv, &given), number;
    if (status != CHOIR__EXIT_OK)
        return status;
    if (choir__http_check_place(r.listen, true) != CHOIR_OK)
        return choir__line_usage(
            command->name, "--listen %s: %s", r.listen, choir_error_message());
    if (!all_can_be_shown(&given))
        return choir__line_fail();
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGHUP);
    sigprocmask(SIG_BLOCK, &ends, NULL); /* before there are threads, which inherit this */
    signal(SIGPIPE, SIG_IGN);
    choir__watch_shows shows = {
        .paths = given.count ? given.words : places, .count = given.count ? given.count : 1};
    if (r.hosts && choir__machines_open(r.hosts, r.through, far_s, &shows.machines) != CHOIR_OK)
        return choir__line_fail();
    char *what = choir__format("--listen %s", r.listen);
    choir_status opened = choir__watch_page_open(what, r.listen, r.key_file, &shows, &page);
    free(what);
    if (opened != CHOIR_OK)
        return choir__line_fail();
    printf("%s\n", choir__watch_page_url(page));
    opened = choir__line_flush();
    while (opened == CHOIR_OK && sigwait(&ends, &number) != 0)
        ;
    choir__watch_page_close(page);
    return opened == CHOIR_OK ? CHOIR__EXIT_OK : choir__line_fail();
}

#define AT(member) CHOIR__LINE_AT(request, member)

static const choir__line_option options[] = {
    {"listen", CHOIR__STRING, AT(listen), .preset = ":0", .argument = "[HOST]:PORT",
        .help = "where the page is served; without HOST on this machine's loopback address; "
                "port 0 is any free one"},
    {"key-file", CHOIR__STRING, AT(key_file), .argument = "FILE",
        .help = "make the token in the page's address from this secret, so that the address "
                "stays the same; HOST may then be outside loopback"},
    {"hosts", CHOIR__STRING, AT(hosts), .argument = "NAME,...",
        .help =
            "also show your ranks on these machines; all: on all machines of the jobs that run "
            "here"},
    {"through", CHOIR__STRING, AT(through), .preset = CHOIR__MACHINES_THROUGH,
        .argument = "COMMAND", .help = "command that runs a command on machine {}"},
    {NULL},
};

const choir__line_command choir__cli_watch = {
    .name = "watch",
    .summary = "show runs on a live page in the browser",
    .usage = "[OPTION]... [RUN]...",
    .about =
        "Serves a page with the curves, events and ranks of runs, which follows them while they "
        "run, and prints its address. RUN is a folder that choir train --save or --run writes or "
        "will write, a folder of such folders (by default the current one), or a study of choir "
        "tune: its file, the folder of --dir, or a storage such as postgresql://...; or a file "
        "with the output of choir plan --json, which a folder has as plan.jsonl. The page needs "
        "nothing from elsewhere. Ctrl-C ends it.",
    .example_title = "all runs below a folder",
    .example = "  choir watch runs",
    .options = options,
    .operand = "RUN",
    .most = MOST_PLACES,
    .run = run,
};
