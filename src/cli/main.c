/* choir COMMAND ...: the table of commands, and main, which finds one and runs it. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/floats.h"
#include "base/named.h"
#include "cli/snapshot_stream.h"
#include "line/command.h"
#include "job/gpus_tried.h"
#include "job/document/document.h"

extern const choir__line_command choir__cli_train, choir__cli_compare, choir__cli_eval,
    choir__cli_predict, choir__cli_generate, choir__cli_chat, choir__cli_checkpoint,
    choir__cli_run, choir__cli_export, choir__cli_tune, choir__cli_watch, choir__cli_plot,
    choir__cli_bench, choir__cli_top, choir__cli_audit, choir__cli_info, choir__cli_data,
    choir__cli_goodput, choir__cli_check, choir__cli_plan;

static const choir__line_command *const commands[] = {
    &choir__cli_train,
    &choir__cli_plan,
    &choir__cli_compare,
    &choir__cli_eval,
    &choir__cli_predict,
    &choir__cli_generate,
    &choir__cli_chat,
    &choir__cli_checkpoint,
    &choir__cli_export,
    &choir__cli_audit,
    &choir__cli_run,
    &choir__cli_tune,
    &choir__cli_watch,
    &choir__cli_plot,
    &choir__cli_data,
    &choir__cli_goodput,
    &choir__cli_bench,
    &choir__cli_top,
    &choir__cli_check,
    &choir__cli_info,
    NULL,
};

static int run(int argc, char **argv)
{
    static const choir__name_table table = {
        commands, CHOIR_COUNT(commands) - 1, sizeof *commands, true};
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name) {
        fprintf(stderr, "choir: missing command; see 'choir --help'\n");
        return CHOIR__EXIT_USAGE;
    }
    int at = choir__find_named(&table, name);
    if (at >= 0)
        choir__line_running(commands[at]->name);
    if (at >= 0)
        return commands[at]->run(commands[at], argc - 1, argv + 1);
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        choir__line_help_commands(commands, stdout);
    } else if (!strcmp(name, "--version")) {
        printf("choir %s\n", CHOIR_VERSION);
    } else if (!strcmp(name, "__job_schema")) {
        choir__job_print_schema();
    } else if (!strcmp(name, "__numbers")) {
        choir__job_print_numbers();
    } else if (!strcmp(name, "__boards")) {
        return choir__snapshot_stream_command(argc - 1, argv + 1);
    } else if (!strcmp(name, "__gpus_tried")) {
        return choir__gpus_tried_command();
    } else if (!strcmp(name, "__complete")) {
        choir__line_complete(commands, argc - 2, argv + 2, stdout);
    } else {
        choir__unknown_name(&table, "command", name);
        choir__line_fail();
        return CHOIR__EXIT_USAGE;
    }
    return CHOIR__EXIT_DONE;
}

/* Opens descriptors 0 to 2 if they are closed, so that no socket or checkpoint becomes standard
 * output. They stay as useless as they were: reading 0 and writing to 1 and 2 fails. */
static void fill_descriptors(void)
{
    int fd;
    do
        fd = open("/dev/null", fcntl(STDIN_FILENO, F_GETFD) < 0 ? O_WRONLY : O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

int main(int argc, char **argv)
{
    CHOIR__DEFAULT_FLOATS;
    fill_descriptors();
    choir__line_start();
    int status = run(argc, argv);
    if (status == CHOIR__EXIT_DONE)
        status = CHOIR__EXIT_OK;
    /* A result that was not written was not achieved. */
    if (status == CHOIR__EXIT_OK && choir__line_flush() != CHOIR_OK)
        status = choir__line_fail();
    return status;
}
