/* choir __complete: what completions/choir.bash offers, from the tables of options. */
#include <string.h>

#include "line/command.h"

static void print_choices(choir__cli_choices *choices, FILE *out)
{
    for (size_t i = 0; choices && choices(i); i++)
        fprintf(out, "%s\n", choices(i));
}

static void print_commands(const choir__cli_command *const *commands, FILE *out)
{
    for (; *commands; commands++)
        fprintf(out, "%s\n", (*commands)->name);
    fprintf(out, "--help\n--version\n");
}

/* Prints all options if before is NULL. Otherwise prints the values of the option that before
 * names, and returns whether an option of that name takes a value. */
static bool print_options(const choir__cli_command *c, const char *before, FILE *out)
{
    choir__cli_taken taken[CHOIR__CLI_MOST_OPTIONS];
    for (int i = 0, n = choir__cli_options(c, taken); i < n; i++) {
        const choir__cli_option *o = taken[i].option;
        if (!before && o->name)
            fprintf(out, "--%s\n", o->name);
        bool named =
            before && o->name && !strncmp(before, "--", 2) && !strcmp(before + 2, o->name);
        bool letter =
            before && o->letter && *before == '-' && before[1] == o->letter && !before[2];
        if (o->argument && (named || letter)) {
            print_choices(o->choices, out);
            return true;
        }
    }
    return false;
}

void choir__cli_complete(
    const choir__cli_command *const *commands, int argc, char **argv, FILE *out)
{
    const char *word = argc > 0 ? argv[argc - 1] : "";
    if (argc < 2) {
        print_commands(commands, out);
        return;
    }
    const choir__cli_command *const *c = commands;
    while (*c && strcmp((*c)->name, argv[0]))
        c++;
    if (!*c || print_options(*c, argv[argc - 2], out))
        return;
    if (*word == '-')
        print_options(*c, NULL, out);
    else if (argc == 2)
        print_choices((*c)->operands, out);
}
