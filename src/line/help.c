/* --help of every command, from its table of options. */
#include <string.h>

#include "line/command.h"

enum { WIDTH = 79, DEEPEST = 30 }; /* columns; the column where help texts begin at most */

/* Prints text with at most WIDTH columns per line. Lines are broken at blanks, after commas,
 * and at line ends of the text. column: the columns of the first line already used. */
static void print_wrapped(FILE *out, int column, int indent, const char *text)
{
    for (const char *at = text; *at;) {
        int blank = *at == ' ', part = blank + (int)strcspn(at + blank, ", \n");
        part += at[part] == ',';
        if (column + part > WIDTH) {
            column = fprintf(out, "\n%*s", indent, "") - 1;
            at += blank;
            part -= blank;
        }
        column += fprintf(out, "%.*s", part, at);
        at += part;
        if (*at == '\n') {
            fputc('\n', out);
            column = 0;
            at++;
        }
    }
    fputc('\n', out);
}

void choir__line_help_choice(
    FILE *out, int width, const char *name, const char *help, const char *keys)
{
    print_wrapped(out, fprintf(out, "        %-*s ", width, name), width + 9, help);
    if (*keys)
        print_wrapped(out, fprintf(out, "%16s", ""), 17, keys);
}

/* "  -n, --ranks N", with room for the letter if any option has one; returns its width. */
static int name_option(const choir__line_option *o, bool letters, char text[64])
{
    char letter[8] = "";
    if (o->letter && letters)
        snprintf(letter, sizeof letter, "-%c%s", o->letter, o->name ? ", " : "");
    const char *before = o->alone ? "[=" : o->argument ? " " : "";
    return snprintf(text, 64, "  %-*s%s%s%s%s%s", letters && o->name ? 4 : 0, letter,
        o->name ? "--" : "", o->name ? o->name : "", before, o->argument ? o->argument : "",
        o->alone ? "]" : "");
}

/* Prints the help, the choices unless they have their own list, and the preset unless the help
 * explains it. */
static void print_option(FILE *out, const choir__line_option *o, bool letters, int indent)
{
    char name[64], list[512], text[1024];
    int column = name_option(o, letters, name);
    bool listed = o->choices && !o->details;
    const char *shown = strstr(o->help, "(default") ? NULL : o->preset;
    snprintf(text, sizeof text, "%s%s%s%s%s%s", o->help, listed ? "; one of " : "",
        listed ? choir__line_list_choices(o->choices, list, sizeof list) : "",
        shown ? " (default " : "", shown ? shown : "", shown ? ")" : "");
    fputs(name, out);
    if (column + 2 > indent)
        column = fprintf(out, "\n") - 1;
    column += fprintf(out, "%*s", indent - column, "");
    print_wrapped(out, column, indent, text);
    if (o->details)
        o->details(out);
}

static void print_inherited(
    const char *title, const choir__line_taken *taken, int count, FILE *out)
{
    char text[64 * CHOIR__LINE_MOST_OPTIONS] = "";
    for (int i = 0, used = 0; i < count; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s--%s", used ? ", " : "",
            taken[i].option->name);
    fprintf(out, "\n%s\n", title);
    print_wrapped(out, fprintf(out, "  "), 2, text);
}

/* Prints the values of the first operand, such as COLLECTIVE. */
static void print_operands(const choir__line_command *c, FILE *out)
{
    char list[512];
    if (!c->operands || strncmp(c->usage, c->operand, strlen(c->operand)))
        return;
    choir__line_list_choices(c->operands, list, sizeof list);
    print_wrapped(out, fprintf(out, "\n%s is one of ", c->operand) - 1, 0, list);
}

void choir__line_help(const choir__line_command *c, FILE *out)
{
    choir__line_taken taken[CHOIR__LINE_MOST_OPTIONS];
    int count = choir__line_options(c, taken), own = 0, indent = 0;
    bool letters = false, grouped = false;
    char name[64];
    for (; c->options[own].name || c->options[own].letter; own++) {
        letters = letters || c->options[own].letter;
        grouped = grouped || c->options[own].group;
    }
    for (int i = 0; i < own; i++) {
        int width = name_option(&c->options[i], letters, name) + 2;
        indent = width > indent && width <= DEEPEST ? width : indent;
    }
    for (const char *at = c->usage, *end; at; at = end ? end + 1 : NULL) {
        end = strchr(at, '\n');
        fprintf(out, "%s choir %s %.*s\n", at == c->usage ? "Usage:" : "      ", c->name,
            end ? (int)(end - at) : (int)strlen(at), at);
    }
    fputc('\n', out);
    print_wrapped(out, 0, 0, c->about);
    print_operands(c, out);
    if (!grouped)
        fputc('\n', out);
    for (int i = 0; i < own; i++) {
        if (c->options[i].group)
            fprintf(out, "\n%s\n", c->options[i].group);
        print_option(out, &c->options[i], letters, indent);
    }
    print_option(out, taken[count - 1].option, letters, indent); /* --help */
    if (c->inherited)
        print_inherited(c->inherits_all ? "Options of choir train, which describe the job"
                                        : "Options of choir train that each run gets",
            taken + own, count - 1 - own, out);
    fprintf(out, "\nExample%s%s:\n%s\n", c->example_title ? ": " : "",
        c->example_title ? c->example_title : "", c->example);
}

void choir__line_help_commands(const choir__line_command *const *commands, FILE *out)
{
    fprintf(out, "Choir %s: many devices, one model.\n\nUsage: choir COMMAND [OPTION]...\n\n",
        CHOIR_VERSION);
    for (; *commands; commands++)
        fprintf(out, "  %-11s %s\n", (*commands)->name, (*commands)->summary);
    fprintf(out, "\nFor more about a command, see 'choir COMMAND --help'. An example:\n\n"
                 "  choir train --steps 500\n");
}

/* --- completion ---
 *
 * choir __complete: what completions/choir.bash offers, from the tables of options. */

static void print_choices(choir__line_choices *choices, FILE *out)
{
    for (size_t i = 0; choices && choices(i); i++)
        fprintf(out, "%s\n", choices(i));
}

static void print_commands(const choir__line_command *const *commands, FILE *out)
{
    for (; *commands; commands++)
        fprintf(out, "%s\n", (*commands)->name);
    fprintf(out, "--help\n--version\n");
}

/* Prints all options if before is NULL. Otherwise prints the values of the option that before
 * names, and returns whether an option of that name takes a value. */
static bool print_options(const choir__line_command *c, const char *before, FILE *out)
{
    choir__line_taken taken[CHOIR__LINE_MOST_OPTIONS];
    for (int i = 0, n = choir__line_options(c, taken); i < n; i++) {
        const choir__line_option *o = taken[i].option;
        if (!before && o->name)
            fprintf(out, "--%s\n", o->name);
        bool named =
            before && o->name && !strncmp(before, "--", 2) && !strcmp(before + 2, o->name);
        bool letter =
            before && o->letter && *before == '-' && before[1] == o->letter && !before[2];
        if (o->argument && !o->alone && (named || letter)) {
            print_choices(o->choices, out);
            return true;
        }
    }
    return false;
}

void choir__line_complete(
    const choir__line_command *const *commands, int argc, char **argv, FILE *out)
{
    const char *word = argc > 0 ? argv[argc - 1] : "";
    if (argc < 2) {
        print_commands(commands, out);
        return;
    }
    const choir__line_command *const *c = commands;
    while (*c && strcmp((*c)->name, argv[0]))
        c++;
    if (!*c || print_options(*c, argv[argc - 2], out))
        return;
    if (*word == '-')
        print_options(*c, NULL, out);
    else if (argc == 2)
        print_choices((*c)->operands, out);
}
