/* A plan on the page: a file with the output of `choir plan --json`, which may still grow.
 * The page gets each strategy with the holders of its fullest device, and the advice. */
#ifndef CHOIR_CLI_WATCH_PLAN_H
#define CHOIR_CLI_WATCH_PLAN_H

#include <jansson.h>

#include "cli/watch/source.h"
#include "cli/watch/tail.h"

typedef struct choir__watch_plan {
    choir__watch_source source;
    choir__watch_news news;
    choir__tail lines;
    json_t *strategies, *advice; /* advice NULL: the plan is not done */
    bool changed;                /* since the news */
} choir__watch_plan;

/* Returns whether the path is a file whose first line is a strategy's, and stores its status.
 */
bool choir__watch_is_plan(const char *path, struct stat *file);

choir__watch_plan *choir__watch_plan_new(const char *path, int id);
void choir__watch_plan_free(choir__watch_plan *plan);
/* Reads new lines, if there are some. */
void choir__watch_plan_look(choir__watch_plan *plan);

#endif
