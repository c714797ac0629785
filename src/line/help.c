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

void choir__cli_help_choice(
    FILE *out, int width, const char *name, const char *help, const char *keys)
{
    print_wrapped(out, fprintf(out, "        %-*s ", width, name), width + 9, help);
    if (*keys)
        print_wrapped(out, fprintf(out, "%16s", ""), 17, keys);
}

/* "  -n, --ranks N", with room for the letter if any option has one; returns its width. */
static int name_option(const choir__cli_option *o, bool letters, char text[64])
{
    char letter[8] = "";
    if (o->letter && letters)
        snprintf(letter, sizeof letter, "-%c%s", o->letter, o->name ? ", " : "");
    return snprintf(text, 64, "  %-*s%s%s%s%s", letters && o->name ? 4 : 0, letter,
        o->name ? "--" : "", o->name ? o->name : "", o->argument ? " " : "",
        o->argument ? o->argument : "");
}

/* Prints the help, the choices unless they have their own list, and the preset. */
static void print_option(FILE *out, const choir__cli_option *o, bool letters, int indent)
{
    char name[64], list[512], text[1024];
    int column = name_option(o, letters, name);
    bool listed = o->choices && !o->details;
    snprintf(text, sizeof text, "%s%s%s%s%s%s", o->help, listed ? "; one of " : "",
        listed ? choir__cli_list_choices(o->choices, list, sizeof list) : "",
        o->preset ? " (default " : "", o->preset ? o->preset : "", o->preset ? ")" : "");
    fputs(name, out);
    if (column + 2 > indent)
        column = fprintf(out, "\n") - 1;
    column += fprintf(out, "%*s", indent - column, "");
    print_wrapped(out, column, indent, text);
    if (o->details)
        o->details(out);
}

static void print_inherited(const choir__cli_taken *taken, int count, FILE *out)
{
    char text[1024] = "";
    for (int i = 0, used = 0; i < count; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s--%s", used ? ", " : "",
            taken[i].option->name);
    fputs("\nOptions of choir train that each run gets\n", out);
    print_wrapped(out, fprintf(out, "  "), 2, text);
}

/* Prints the values of the first operand, such as COLLECTIVE. */
static void print_operands(const choir__cli_command *c, FILE *out)
{
    char list[512];
    if (!c->operands || strncmp(c->usage, c->operand, strlen(c->operand)))
        return;
    choir__cli_list_choices(c->operands, list, sizeof list);
    print_wrapped(out, fprintf(out, "\n%s is one of ", c->operand) - 1, 0, list);
}

void choir__cli_help(const choir__cli_command *c, FILE *out)
{
    choir__cli_taken taken[CHOIR__CLI_MOST_OPTIONS];
    int count = choir__cli_options(c, taken), own = 0, indent = 0;
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
        print_inherited(taken + own, count - 1 - own, out);
    fprintf(out, "\nExample%s%s:\n%s\n", c->example_title ? ": " : "",
        c->example_title ? c->example_title : "", c->example);
}

void choir__cli_help_commands(const choir__cli_command *const *commands, FILE *out)
{
    fprintf(out, "Choir %s: many devices, one model.\n\nUsage: choir COMMAND [OPTION]...\n\n",
        CHOIR_VERSION);
    for (; *commands; commands++)
        fprintf(out, "  %-10s %s\n", (*commands)->name, (*commands)->summary);
    fprintf(out, "\nFor more about a command, see 'choir COMMAND --help'. An example:\n\n"
                 "  choir train --steps 500\n");
}
