/* From argv to a command's values, by its table of options. getopt_long knows the syntax; its
 * own tables are made from the command's. */
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/named.h"
#include "line/command.h"

enum { FIRST = 256, MOST_NAME = 32 }; /* val of the first option; longer than any name */

/* The tables for getopt_long. An option has a second spelling if underscores are allowed. */
typedef struct tables {
    choir__line_taken taken[CHOIR__LINE_MOST_OPTIONS];
    int count;
    struct option words[2 * CHOIR__LINE_MOST_OPTIONS + 1];
    char spelled[CHOIR__LINE_MOST_OPTIONS][MOST_NAME];
    char letters[2 * CHOIR__LINE_MOST_OPTIONS + 3];
} tables;

static void make_tables(const choir__line_command *c, tables *t)
{
    int words = 0;
    char *letters = t->letters;
    t->count = choir__line_options(c, t->taken);
    if (c->stops_at_operand)
        *letters++ = '+';
    *letters++ = ':'; /* distinguishes a missing value from an unknown option */
    for (int i = 0; i < t->count; i++) {
        const choir__line_option *o = t->taken[i].option;
        bool flag = !o->argument && o->bytes == sizeof(bool); /* --flag or --flag=false */
        int has_value = flag || o->alone ? optional_argument
                        : o->argument    ? required_argument
                                         : no_argument;
        if (o->letter)
            *letters++ = o->letter;
        if (o->letter && o->argument)
            *letters++ = ':';
        if (o->name)
            t->words[words++] = (struct option){o->name, has_value, NULL, FIRST + i};
        if (!o->name || !c->underscores || !strchr(o->name, '-'))
            continue;
        snprintf(t->spelled[i], MOST_NAME, "%s", o->name);
        for (char *dash; (dash = strchr(t->spelled[i], '-'));)
            *dash = '_';
        t->words[words++] = (struct option){t->spelled[i], has_value, NULL, FIRST + i};
    }
    *letters = '\0';
    t->words[words] = (struct option){NULL, 0, NULL, 0};
}

/* Returns the option of getopt_long's result, or NULL. */
static const choir__line_taken *find(const tables *t, int id)
{
    if (id >= FIRST)
        return &t->taken[id - FIRST];
    for (int i = 0; i < t->count && id; i++)
        if (t->taken[i].option->letter == id)
            return &t->taken[i];
    return NULL;
}

const char *choir__line_nearest(const choir__line_taken *taken, int count, const char *name)
{
    const char *near = NULL;
    int best = INT_MAX;
    for (int i = 0; i < count; i++)
        if (taken[i].option->name && choir__is_nearer(taken[i].option->name, name, &best))
            near = taken[i].option->name;
    return near;
}

/* Returns the end of a name in a list, with dashes or underscores, or NULL: the list lacks it.
 */
static const char *find_name(const char *list, const char *name)
{
    for (const char *own = list; own; own = strchr(own, ' ')) {
        own += *own == ' ';
        size_t i = 0;
        while (name[i] && (own[i] == name[i] || (own[i] == '_' && name[i] == '-')))
            i++;
        if (!name[i] && (!own[i] || own[i] == ' ' || own[i] == '['))
            return own + i;
    }
    return NULL;
}

/* Returns the option that has the name in another program, with the value that the name stands
 * for, as "schedule NAME:warmup=N", which the caller frees; or NULL. */
static char *named_elsewhere(const tables *t, const char *name)
{
    for (int i = 0; i < t->count; i++) {
        const choir__line_option *o = t->taken[i].option;
        const char *end = find_name(o->elsewhere, name);
        if (end && *end == '[')
            return choir__format("%s %.*s", o->name, (int)strcspn(end, "]") - 1, end + 1);
        if (end)
            return choir__strdup(o->name);
    }
    return NULL;
}

/* Returns the name in a word such as --stesp=4, which the caller frees, or NULL. */
static char *name_in(const char *word)
{
    return strncmp(word, "--", 2)
               ? NULL
               : choir__format("%.*s", (int)strcspn(word, "=") - 2, word + 2);
}

/* Returns the option that may have been meant by a word such as --stesp=4, or NULL; the caller
 * frees it. */
static char *nearest(const tables *t, const char *word)
{
    char *name = name_in(word);
    if (!name)
        return NULL;
    char *same = named_elsewhere(t, name);
    const char *near = same ? NULL : choir__line_nearest(t->taken, t->count, name);
    free(name);
    return near ? choir__strdup(near) : same;
}

/* Returns whether a word such as --train_file names the operand in another program. */
static bool means_operand(const choir__line_command *c, const char *word)
{
    char *name = name_in(word);
    bool means = name && find_name(c->operand_elsewhere, name);
    free(name);
    return means;
}

static int refuse_unknown(const choir__line_command *c, const tables *t, char **argv)
{
    const char *next = argv[optind]; /* getopt stays at a word as -xy while it reads -x */
    bool inside = next && next[0] == '-' && next[1] == optopt && optopt;
    const choir__line_taken *known = find(t, optopt);
    if (known && optopt >= FIRST)
        return choir__line_usage(c->name, "--%s takes no value", known->option->name);
    const char *word = inside ? next : argv[optind - 1];
    if (means_operand(c, word))
        return choir__line_usage(
            c->name, "unknown option '%s'; %s is written without an option", word, c->operand);
    char *near = nearest(t, word);
    int status = choir__line_usage(c->name, "unknown option '%s'%s%s%s", word,
        near ? "; did you mean '--" : "", near ? near : "", near ? "'?" : "");
    free(near);
    return status;
}

static int take(const choir__line_command *c, void *values, const choir__line_taken *taken)
{
    const choir__line_option *o = taken->option;
    char *place = (char *)values + taken->at;
    const char *text = optarg ? optarg : o->alone;
    if (!o->argument && o->bytes == sizeof(bool) && !optarg)
        *(bool *)place = true;
    else if (text && choir__line_set(o, place, text) != CHOIR_OK)
        return o->name
                   ? choir__line_usage(c->name, "--%s: %s", o->name, choir_error_message())
                   : choir__line_usage(c->name, "-%c: %s", o->letter, choir_error_message());
    return c->took ? c->took(values, o, text) : CHOIR__EXIT_OK;
}

static void set_presets(const tables *t, void *values)
{
    for (int i = 0; i < t->count; i++)
        if (t->taken[i].option->preset)
            choir__line_set(t->taken[i].option, (char *)values + t->taken[i].at,
                t->taken[i].option->preset);
}

static int check_operands(const choir__line_command *c, const choir__line_operands *operands)
{
    char list[512];
    if (operands->count < c->least && c->operands)
        return choir__line_usage(c->name, "missing %s: choose one of %s", c->operand,
            choir__line_list_choices(c->operands, list, sizeof list));
    if (operands->count < c->least)
        return choir__line_usage(c->name, "missing %s", c->operand);
    if (operands->count > c->most)
        return choir__line_usage(c->name, "unexpected argument '%s'", operands->words[c->most]);
    if (c->operands && operands->count &&
        !choir__line_is_choice(c->operands, operands->words[0])) {
        (void)!choir__line_no_choice(c->operands, c->operand, operands->words[0]);
        return choir__line_usage(c->name, "%s", choir_error_message());
    }
    return CHOIR__EXIT_OK;
}

int choir__line_parse(const choir__line_command *c, void *values, int argc, char **argv,
    choir__line_operands *operands)
{
    tables t;
    make_tables(c, &t);
    set_presets(&t, values);
    opterr = 0;
    optind = 0; /* makes glibc start a new scan */
    for (int id; (id = getopt_long(argc, argv, t.letters, t.words, NULL)) != -1;) {
        if (id == ':')
            return choir__line_usage(c->name, "missing value of %s", argv[optind - 1]);
        if (id == '?')
            return refuse_unknown(c, &t, argv);
        const choir__line_taken *taken = find(&t, id);
        if (taken->option->letter == 'h') {
            choir__line_help(c, stdout);
            return CHOIR__EXIT_DONE;
        }
        int status = take(c, values, taken);
        if (status != CHOIR__EXIT_OK)
            return status;
    }
    *operands = (choir__line_operands){argv + optind, argc - optind};
    return check_operands(c, operands);
}
