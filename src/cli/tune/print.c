/* choir tune: a line per trial, and the best trial with the command that repeats it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "cli/say.h"
#include "cli/tune/search.h"
#include "tune/trials/command.h"

const char *choir__search_state(choir_trial_state state)
{
    static const char *const names[] = {"RUNNING", "COMPLETE", "PRUNED", "FAIL"};
    return names[state];
}

/* --- JSON --- */

static void print_number(const char *key, double x)
{
    if (isfinite(x))
        printf(",\"%s\":%.17g", key, x);
    else
        printf(",\"%s\":null", key);
}

static void print_params(const choir_space *space, const choir_trial *trial)
{
    const char *comma = "";
    printf(",\"params\":{");
    for (int i = 0; i < choir_space_count(space); i++) {
        const char *name = choir_space_name(space, i), *text = choir_trial_text(trial, name);
        if (!text)
            continue;
        printf("%s", comma);
        comma = ",";
        double x = choir_trial_real(trial, name);
        if (isnan(x))
            choir__cli_print_string(name, text);
        else
            printf("\"%s\":%.17g", name, x);
    }
    printf("}");
}

static void print_json(const choir__search *s, const choir__outcome *o)
{
    printf("{\"event\":\"trial\",\"number\":%lld,\"state\":\"%s\"",
        (long long)choir_trial_number(o->trial), choir__search_state(o->state));
    print_params(s->space, o->trial);
    print_number("value", o->value);
    if (o->step >= 0)
        printf(",\"step\":%lld", (long long)o->step);
    printf(",\"seconds\":%.3f", o->seconds);
    if (o->why) {
        printf(",");
        choir__cli_print_string("why", o->why);
    }
    printf("}\n");
}

/* --- a table --- */

static int width_of(const char *name)
{
    int width = snprintf(NULL, 0, "%s", name);
    return width < 12 ? 12 : width;
}

void choir__search_print_head(const choir__search *s)
{
    if (s->json || s->quiet)
        return;
    printf("%5s  %-8s  %12s", "trial", "state", s->job.metric);
    if (s->pauses)
        printf("  %8s", "step");
    for (int i = 0; i < choir_space_count(s->space); i++) {
        const char *name = choir_space_name(s->space, i);
        printf("  %*s", width_of(name), name);
    }
    printf("  %8s\n", "seconds");
    fflush(stdout);
}

static void print_row(const choir__search *s, const choir__outcome *o)
{
    double value = o->value;
    printf(
        "%5lld  %-8s", (long long)choir_trial_number(o->trial), choir__search_state(o->state));
    if (isnan(value))
        printf("  %12s", "-");
    else
        printf("  %12.6g", value);
    if (s->pauses)
        printf("  %8lld", (long long)o->step);
    for (int i = 0; i < choir_space_count(s->space); i++) {
        const char *name = choir_space_name(s->space, i),
                   *text = choir_trial_text(o->trial, name);
        double x = choir_trial_real(o->trial, name);
        if (!text || isnan(x))
            printf("  %*s", width_of(name), text ? text : "-");
        else
            printf("  %*.6g", width_of(name), x);
    }
    printf("  %8.1f%s%s\n", o->seconds, o->why ? "  " : "", o->why ? o->why : "");
}

void choir__search_print_trial(const choir__search *s, const choir__outcome *o)
{
    if (s->json)
        print_json(s, o);
    else if (!s->quiet)
        print_row(s, o);
    fflush(stdout);
}

void choir__search_print_best(const choir__search *s, const choir_trial *best)
{
    if (s->json) {
        printf("{\"event\":\"best\",\"number\":%lld", (long long)choir_trial_number(best));
        print_params(s->space, best);
        print_number("value", choir_trial_value(best, 0));
        printf("}\n");
        return;
    }
    printf("best: trial %lld, %s %.6g\n", (long long)choir_trial_number(best), s->job.metric,
        choir_trial_value(best, 0));
    if (!s->job.command[0]) /* a study that a program made */
        return;
    char *dir = s->job.dir
                    ? choir__format("%s/%lld", s->job.dir, (long long)choir_trial_number(best))
                    : NULL;
    char **line = choir__command_of(s->job.command, s->space, best, dir, NULL);
    char *text = choir__command_text(line);
    printf("  %s\n", text);
    free(text);
    free(dir);
    choir__command_free(line);
}
