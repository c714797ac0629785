/* Which options a command takes, its own rows and those of a job that it passes on; setting one
 * value by its row; and an option's value as text. Words that are no choice are answered by the
 * nearest one. */
#include "line/command.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "base/named.h"
#include "base/number.h"

static const choir__line_option help_option = {
    .name = "help", .letter = 'h', .type = CHOIR__FLAG, .help = "print this help"};

static bool has_option(const choir__line_option *rows, const char *name)
{
    for (const choir__line_option *o = rows; o->name || o->letter; o++)
        if (o->name && !strcmp(o->name, name))
            return true;
    return false;
}

int choir__line_options(
    const choir__line_command *c, choir__line_taken taken[CHOIR__LINE_MOST_OPTIONS])
{
    int count = 0;
    for (const choir__line_option *o = c->options; o->name || o->letter; o++)
        taken[count++] = (choir__line_taken){o, o->at};
    for (const choir__line_option *o = c->inherited; o && o->name; o++)
        if ((o->passed_on || c->inherits_all) && !has_option(c->options, o->name))
            taken[count++] = (choir__line_taken){o, c->inherited_at + o->at};
    taken[count++] = (choir__line_taken){&help_option, 0};
    return count;
}

const char *choir__line_list_choices(choir__line_choices *choices, char *text, size_t bytes)
{
    size_t used = 0;
    *text = '\0';
    for (size_t i = 0; choices(i) && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? ", " : "", choices(i));
    return text;
}

bool choir__line_is_choice(choir__line_choices *choices, const char *name)
{
    for (size_t i = 0; choices(i); i++)
        if (!strcmp(choices(i), name))
            return true;
    return false;
}

choir_status choir__line_no_choice(
    choir__line_choices *choices, const char *kind, const char *name)
{
    const char *names[64];
    choir__name_table table = {names, 0, sizeof *names, false};
    for (; table.count < CHOIR_COUNT(names) && choices(table.count); table.count++)
        names[table.count] = choices(table.count);
    return choir__unknown_name(&table, kind, name);
}

choir_status choir__line_set(const choir__line_option *o, void *place, const char *text)
{
    char expected[512];
    int64_t n = 0;
    const bool whole = o->type == CHOIR__INT || o->type == CHOIR__BYTES;
    choir__option option = {o->name, o->type, whole ? &n : place, o->low, o->high};
    if (o->strict && !choir__line_is_choice(o->choices, text))
        return choir__line_no_choice(o->choices, "value", text);
    double x, most = 1e300,
              most_stated = 1e12; /* choir__option_expected leaves out higher ends */
    const bool number = whole || o->type == CHOIR__FLOAT || o->type == CHOIR__SINGLE;
    const bool fits = choir__option_set(&option, text);
    if (!fits && number && o->high >= most_stated &&
        choir__parse_float(text, o->high, most, &x))
        return choir__error(CHOIR_ERR_ARGUMENT, "expected %s of at most %.17g, got '%s'",
            o->type == CHOIR__INT ? "a whole number" : "a number", o->high, text);
    if (!fits)
        return choir__error(CHOIR_ERR_ARGUMENT, "expected %s, got '%s'",
            choir__option_expected(&option, expected), text);
    if (whole && o->bytes == sizeof(int))
        *(int *)place = (int)n;
    else if (whole)
        *(int64_t *)place = n;
    return CHOIR_OK;
}

char *choir__line_number_text(double x)
{
    char text[CHOIR__NUMBER_TEXT];
    choir__number_text(x, text);
    return choir__strdup(text);
}

char *choir__line_text(const choir__line_option *o, const void *place)
{
    int64_t n;
    switch (o->type) {
    case CHOIR__INT:
    case CHOIR__BYTES:
        n = o->bytes == sizeof(int) ? *(const int *)place : *(const int64_t *)place;
        return (double)n < o->low || (o->type == CHOIR__BYTES && !n)
                   ? NULL
                   : choir__format("%lld", (long long)n);
    case CHOIR__FLOAT:
        return *(const double *)place < o->low
                   ? NULL
                   : choir__line_number_text(*(const double *)place);
    case CHOIR__SINGLE:
        return *(const float *)place < (float)o->low
                   ? NULL
                   : choir__line_number_text((double)*(const float *)place);
    case CHOIR__FLAG: return *(const bool *)place ? choir__strdup("true") : NULL;
    case CHOIR__WORD:
    case CHOIR__TEXT: return *(const char *)place ? choir__strdup(place) : NULL;
    case CHOIR__STRING:
        return *(const char *const *)place ? choir__strdup(*(const char *const *)place) : NULL;
    }
    return NULL;
}

char *choir__line_word(const choir__line_option *o, const char *text)
{
    return text ? choir__format("--%s=%s", o->name, text) : choir__format("--%s", o->name);
}

/* --- the process --- */

static double started; /* on choir__now()'s clock */

/* The CPU time so far is close to the time that exec and linking took before main. */
void choir__line_start(void)
{
    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    started = choir__now() - (double)cpu.tv_sec - 1e-9 * (double)cpu.tv_nsec;
}

void choir__line_start_again(void)
{
    started = choir__now();
}

double choir__line_uptime(void)
{
    return choir__now() - started;
}
