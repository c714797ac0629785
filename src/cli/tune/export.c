/* choir tune export: all trials of a study as CSV, with a header whose names differ. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/number.h"
#include "line/printed.h"
#include "cli/tune/search.h"

/* --- columns --- */

/* A column. Where two have one name, the later kind's word stands before it, as in params_lr,
 * which Optuna's tables have. */
typedef struct column {
    const char *name;
    enum { FIXED, VALUES, UNIT, PARAMS } kind;
} column;

static const char *const words[] = {NULL, "values", "unit", "params"};

static void add(column *columns, int *count, const char *name, int kind)
{
    columns[(*count)++] = (column){name, (unsigned)kind};
}

/* Stores the columns in their order, and returns their number. */
static int columns_of(const choir__search *s, column *columns)
{
    int count = 0;
    add(columns, &count, "number", FIXED);
    add(columns, &count, "state", FIXED);
    for (int i = 0; i < s->job.metrics; i++)
        add(columns, &count, s->job.metric[i], VALUES);
    for (int i = 0; i < choir_space_count(s->space); i++)
        add(columns, &count, choir_space_name(s->space, i), PARAMS);
    add(columns, &count, s->job.unit, UNIT);
    add(columns, &count, "seconds", FIXED);
    add(columns, &count, "why", FIXED);
    return count;
}

/* Returns whether another column has this name; first: one that does not give way to this one.
 */
static bool is_taken(
    const column *columns, int count, const column *own, const char *name, bool first)
{
    for (const column *c = columns; c < columns + count; c++)
        if (c != own && (!first || c->kind <= own->kind) && !strcmp(c->name, name))
            return true;
    return false;
}

/* Returns a column's name in the header, which the caller frees. */
static char *header_of(const column *columns, int count, const column *own)
{
    char *name = choir__strdup(own->name);
    for (bool first = true; own->kind && is_taken(columns, count, own, name, first);
         first = false) {
        char *longer = choir__format("%s_%s", words[own->kind], name);
        free(name);
        name = longer;
    }
    return name;
}

/* --- rows --- */

static void print_row(const choir__search *s, const choir_trial *t)
{
    char number[CHOIR__NUMBER_TEXT];
    choir__trial_outcome o = choir__outcome_of(t);
    printf("%lld,%s", (long long)choir_trial_number(t),
        choir__search_state(choir_trial_result(t)));
    for (int i = 0; i < s->job.metrics; i++) {
        choir__number_text(o.value[i], number);
        printf(",%s", isnan(o.value[i]) ? "" : number);
    }
    for (int i = 0; i < choir_space_count(s->space); i++) {
        const char *text = choir_trial_text(t, choir_space_name(s->space, i));
        putchar(',');
        choir__print_cell(stdout, text ? text : "");
    }
    putchar(',');
    if (o.step >= 0)
        printf("%lld", (long long)o.step);
    printf(",%.3f,", o.seconds);
    choir__print_cell(stdout, o.why ? o.why : "");
    putchar('\n');
    free(o.why);
}

void choir__tune_print_csv(const choir__search *s)
{
    enum { OTHERS = 5 };
    size_t room = (size_t)(s->job.metrics + choir_space_count(s->space) + OTHERS);
    column *columns = choir__calloc(room, sizeof *columns);
    int count = columns_of(s, columns);
    for (int i = 0; i < count; i++) {
        char *name = header_of(columns, count, &columns[i]);
        if (i)
            putchar(',');
        choir__print_cell(stdout, name);
        free(name);
    }
    putchar('\n');
    for (int64_t i = 0; i < choir_study_count(s->study); i++)
        print_row(s, choir_study_trial(s->study, i));
    free(columns);
}
