/* choir tune: a line per trial, and the best trial with the command that repeats it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "line/printed.h"
#include "line/say.h"
#include "cli/tune/live.h"
#include "cli/tune/search.h"
#include "tune/trial.h"
#include "tune/trials/command.h"

const char *choir__search_state(choir_trial_state state)
{
    static const char *const names[] = {"RUNNING", "COMPLETE", "PRUNED", "FAIL"};
    return names[state];
}

/* --- JSON --- */

static void add_params(
    choir__text_buffer *t, const choir_space *space, const choir_trial *trial)
{
    choir__text_open(t, "params", '{');
    for (int i = 0; i < choir_space_count(space); i++) {
        const char *name = choir_space_name(space, i), *text = choir_trial_text(trial, name);
        double x = text ? choir_trial_real(trial, name) : 0;
        if (text && isnan(x))
            choir__text_string(t, name, text);
        else if (text)
            choir__text_buffer_number(t, name, x);
    }
    choir__text_close(t, '}');
}

/* "value":1.5, or for several metrics "values":[1.5,3]. */
static void add_values(choir__text_buffer *t, const choir__search *s, const double *values)
{
    if (s->job.metrics == 1) {
        choir__text_buffer_number(t, "value", values[0]);
        return;
    }
    choir__text_open(t, "values", '[');
    for (int i = 0; i < s->job.metrics; i++)
        choir__text_buffer_number(t, NULL, values[i]);
    choir__text_close(t, ']');
}

/* A given trial waits until a worker begins it. */
static const char *state_of(const choir__trial_outcome *o)
{
    bool waits = o->state == CHOIR_TRIAL_RUNNING && o->trial && o->trial->again;
    return waits ? "WAITING" : choir__search_state(o->state);
}

/* Appends the checkpoint with which a trial of a population began. */
static void add_parent(choir__text_buffer *t, const choir_trial *trial)
{
    if (choir_trial_parent(trial) >= 0)
        choir__text_value(t, "parent", "{\"trial\":%lld,\"step\":%lld}",
            (long long)choir_trial_parent(trial), (long long)trial->began);
}

static void print_json(const choir__search *s, const choir__trial_outcome *o)
{
    choir__text_buffer t = {0};
    choir__text_open(&t, NULL, '{');
    choir__text_string(&t, "event", "trial");
    choir__text_value(&t, "number", "%lld", (long long)choir_trial_number(o->trial));
    choir__text_string(&t, "state", state_of(o));
    add_params(&t, s->space, o->trial);
    add_values(&t, s, o->value);
    if (o->step >= 0)
        choir__text_value(&t, "step", "%lld", (long long)o->step);
    if (o->step >= 0 && strcmp(s->job.unit, "step") != 0)
        choir__text_string(&t, "unit", s->job.unit);
    choir__text_value(&t, "seconds", "%.3f", o->seconds);
    if (o->why)
        choir__text_string(&t, "why", o->why);
    add_parent(&t, o->trial);
    choir__text_finish(&t, stdout);
}

/* --- a table --- */

static int width_of(const char *name)
{
    int width = snprintf(NULL, 0, "%s", name);
    return width < 12 ? 12 : width;
}

static int width_of_step(const choir__search *s)
{
    int width = snprintf(NULL, 0, "%s", s->job.unit);
    return width < 8 ? 8 : width;
}

static void print_text_at(FILE *out, const char *name, const char *text)
{
    fputs("  ", out);
    choir__print_word(out, text, width_of(name));
}

static void print_names(const choir__search *s, FILE *out)
{
    fprintf(out, "%5s  %-8s", "trial", "state");
    for (int i = 0; i < s->job.metrics; i++)
        print_text_at(out, s->job.metric[i], s->job.metric[i]);
    if (s->steps) {
        fputs("  ", out);
        choir__print_word(out, s->job.unit, width_of_step(s));
    }
    for (int i = 0; i < choir_space_count(s->space); i++) {
        const char *name = choir_space_name(s->space, i);
        print_text_at(out, name, name);
    }
    fprintf(out, "  %8s\n", "seconds");
}

static void print_number_at(FILE *out, const char *name, double x)
{
    if (isnan(x))
        fprintf(out, "  %*s", width_of(name), "-");
    else
        fprintf(out, "  %*.6g", width_of(name), x);
}

static void print_row(
    const choir__search *s, const choir__trial_outcome *o, const char *why, FILE *out)
{
    fprintf(out, "%5lld  %-8s", (long long)choir_trial_number(o->trial), state_of(o));
    for (int i = 0; i < s->job.metrics; i++)
        print_number_at(out, s->job.metric[i], o->value[i]);
    if (s->steps && o->step >= 0)
        fprintf(out, "  %*lld", width_of_step(s), (long long)o->step);
    else if (s->steps)
        fprintf(out, "  %*s", width_of_step(s), "-");
    for (int i = 0; i < choir_space_count(s->space); i++) {
        const char *name = choir_space_name(s->space, i),
                   *text = choir_trial_text(o->trial, name);
        double x = choir_trial_real(o->trial, name);
        if (text && isnan(x))
            print_text_at(out, name, text);
        else
            print_number_at(out, name, x);
    }
    char *clean =
        choir__clean(choir__strdup(why ? why : "")); /* only one of several lines is shown */
    fprintf(out, "  %8.1f%s%s\n", o->seconds, why ? "  " : "", clean);
    free(clean);
}

void choir__search_print_head(const choir__search *s, const choir__live *live)
{
    char *text = NULL;
    size_t bytes;
    if (s->json || s->quiet)
        return;
    FILE *out = open_memstream(&text, &bytes);
    print_names(s, out);
    fclose(out);
    choir__live_print(live, text);
    free(text);
}

void choir__search_print_trial(
    const choir__search *s, const choir__trial_outcome *o, const choir__live *live)
{
    char *text = NULL;
    size_t bytes;
    if (s->json)
        print_json(s, o);
    fflush(stdout);
    if (s->json || s->quiet)
        return;
    bool below = live && live->on && o->why;
    FILE *out = open_memstream(&text, &bytes);
    print_row(s, o, below ? NULL : o->why, out);
    fclose(out);
    choir__live_print(live, text);
    if (below)
        choir__live_print_reason(o->why);
    free(text);
}

static void print_command(const choir__search *s, const choir_trial *t)
{
    int64_t number = choir_trial_number(t);
    char *dir = s->job.dir ? choir__format("%s/%lld", s->job.dir, (long long)number) : NULL;
    char **line = choir__command_of(s->job.command, s->space, t, dir);
    char *text = choir__command_text(line);
    printf("  %s\n", choir__clean(text)); /* quotes keep its line ends */
    free(text);
    free(dir);
    choir__command_free(line);
}

/* Prints a trial with the command that repeats it and, in a population, the commands of the
 * trials whose checkpoints it starts from. */
static void print_one_best(const choir__search *s, const choir_trial *best, const double *known)
{
    double values[CHOIR_STUDY_OBJECTIVES];
    for (int i = 0; i < s->job.metrics; i++)
        values[i] = known ? known[i] : choir_trial_value(best, i);
    if (s->json) {
        choir__text_buffer t = {0};
        choir__text_open(&t, NULL, '{');
        choir__text_string(&t, "event", "best");
        choir__text_value(&t, "number", "%lld", (long long)choir_trial_number(best));
        add_params(&t, s->space, best);
        add_values(&t, s, values);
        add_parent(&t, best);
        choir__text_finish(&t, stdout);
        return;
    }
    printf("best: trial %lld", (long long)choir_trial_number(best));
    for (int i = 0; i < s->job.metrics; i++) {
        printf(", ");
        choir__print_word(stdout, s->job.metric[i], 0);
        printf(" %.6g", values[i]);
    }
    printf("\n");
    if (!s->job.command[0]) /* a study that a program made */
        return;
    print_command(s, best);
    for (const choir_trial *t = best; choir_trial_parent(t) >= 0;) {
        printf("  from the checkpoint at ");
        choir__print_word(stdout, s->job.unit, 0);
        printf(" %lld of trial %lld:\n", (long long)t->began, (long long)choir_trial_parent(t));
        t = choir_study_trial(s->study, choir_trial_parent(t));
        print_command(s, t);
    }
}

void choir__search_print_best(
    const choir__search *s, const choir_trial *best, const double *values)
{
    if (s->job.metrics == 1 || values) {
        print_one_best(s, best, values);
        return;
    }
    int64_t room = choir_study_count(s->study);
    choir_trial **front = choir__alloc((size_t)(room + 1) * sizeof(choir_trial *));
    int64_t count = choir__min(choir_study_pareto(s->study, front, room), room);
    for (int64_t i = 0; i < count; i++)
        print_one_best(s, front[i], NULL);
    free(front);
}
