/* Plans on the page: see plan.h. Nothing in the file is trusted: the page leaves out other
 * lines, and gets the largest items of long lists.
 *
 *     event: plan    {"id":0,"path":"runs/plan.jsonl","strategies":[{...},...],"advice":null}
 */
#include "cli/watch/plan.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/files/file.h"
#include "cli/plan/holders.h"
#include "cli/watch/run.h"
#include "record/events.h"
#include "record/json_value.h"

enum { MOST_STRATEGIES = 256, MOST_HOLDERS = 24 };

bool choir__watch_is_plan(const char *path, struct stat *file)
{
    char begin[64] = "", first[64];
    if (stat(path, file) != 0 || !S_ISREG(file->st_mode))
        return false;
    const int fd = choir__file_try(path, O_RDONLY, CHOIR__FILE_REGULAR);
    const ssize_t n = fd >= 0 ? read(fd, begin, sizeof begin - 1) : -1;
    if (fd >= 0)
        close(fd);
    snprintf(
        first, sizeof first, "{\"%s\":\"%s\"", CHOIR__KEY(line, event), choir__kind_plan.name);
    return n > 0 && !strncmp(begin, first, strlen(first));
}

choir__watch_plan *choir__watch_plan_new(const char *path, int id)
{
    choir__watch_plan *p = choir__calloc(1, sizeof *p);
    p->source.path = choir__strdup(path);
    p->news.id = id;
    p->lines.path = p->source.path;
    p->strategies = json_array();
    return p;
}

void choir__watch_plan_free(choir__watch_plan *p)
{
    if (!p)
        return;
    json_decref(p->strategies);
    json_decref(p->advice);
    choir__text_buffer_free(&p->news.event);
    free(p->source.path);
    free(p);
}

static void begin_anew(choir__watch_plan *p)
{
    json_array_clear(p->strategies);
    json_decref(p->advice);
    p->advice = NULL;
    p->changed = true;
}

/* --- one strategy --- */

static double number_of(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

/* Returns the device that holds most, and sets *least to the bytes of the one with least. */
static json_t *fullest_of(const json_t *devices, double *least)
{
    const char *peak = CHOIR__KEY(planned, peak_bytes);
    json_t *most = json_array_get(devices, 0), *device;
    size_t i;
    *least = number_of(most, peak);
    json_array_foreach(devices, i, device)
    {
        const double bytes = number_of(device, peak);
        most = bytes > number_of(most, peak) ? device : most;
        *least = bytes < *least ? bytes : *least;
    }
    return most;
}

/* Returns the holders of the parts, the largest first. */
static json_t *holders_of(const json_t *held)
{
    const size_t parts = json_array_size(held);
    choir__rehearsed_part *all = choir__calloc(parts + 1, sizeof *all);
    json_t *told = json_array();
    int known = 0, count;
    for (size_t i = 0; i < parts; i++) {
        const json_t *part = json_array_get(held, i);
        const double bytes = number_of(part, CHOIR__KEY(held, bytes));
        choir__rehearsed_part *to = &all[known];
        to->kind = json_string_value(json_object_get(part, CHOIR__KEY(held, kind)));
        to->name = (char *)json_string_value(json_object_get(part, CHOIR__KEY(held, name)));
        to->bytes = bytes >= 0 && bytes < 0x1p62 ? (size_t)bytes : 0;
        known += to->kind != NULL;
    }
    choir__plan_holder *holders = choir__plan_holders(all, known, &count);
    for (int i = 0; i < count && i < MOST_HOLDERS; i++)
        json_array_append_new(
            told, json_pack("{s:s, s:o, s:f}", CHOIR__KEY(held, kind), holders[i].kind,
                      CHOIR__KEY(held, name), choir__json_string(holders[i].name),
                      CHOIR__KEY(held, bytes), holders[i].bytes));
    free(holders);
    free(all);
    return told;
}

/* Keeps of a strategy's devices the fullest, and its holders. */
static void shorten(json_t *strategy)
{
    const char *devices = CHOIR__KEY(plan, devices), *held = CHOIR__KEY(plan, held);
    double least;
    json_t *fullest = fullest_of(json_object_get(strategy, devices), &least);
    json_object_set(strategy, "fullest", fullest); /* no keys of the plan's */
    json_object_set_new(strategy, "least_bytes", json_real(least));
    json_object_set_new(strategy, held, holders_of(json_object_get(strategy, held)));
    json_object_del(strategy, devices);
}

/* --- the file --- */

static void take_line(void *arg, char *line, size_t bytes)
{
    choir__watch_plan *p = arg;
    json_t *told = choir__watch_json(line, bytes);
    const char *kind = json_string_value(json_object_get(told, CHOIR__KEY(line, event)));
    const bool strategy = kind && !strcmp(kind, choir__kind_plan.name),
               advice = kind && !strcmp(kind, choir__kind_advice.name);
    if (strategy && p->advice) /* the file has another plan */
        begin_anew(p);
    if (strategy && json_array_size(p->strategies) < MOST_STRATEGIES) {
        shorten(told);
        json_array_append(p->strategies, told);
    } else if (advice) {
        json_decref(p->advice);
        p->advice = json_incref(told);
    }
    p->changed |= strategy || advice;
    json_decref(told);
}

static void tell(choir__watch_plan *p)
{
    /* no key of a run's event: */
    json_t *root = json_pack("{s:i, s:o, s:O, s:O?}", "id", p->news.id, "path",
        choir__json_string(p->source.path), "strategies", p->strategies, "advice", p->advice);
    char *text = json_dumps(root, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
    choir__text_buffer_clear(&p->news.event);
    choir__text_format(&p->news.event, "event: plan\ndata: %s\n\n", text ? text : "null");
    p->news.version++;
    p->changed = false;
    free(text);
    json_decref(root);
}

void choir__watch_plan_look(choir__watch_plan *p)
{
    choir__tail_state state = choir__tail_read(&p->lines, take_line, p);
    if (state == CHOIR__TAIL_ANEW) {
        choir__tail_rewind(&p->lines);
        begin_anew(p);
        choir__tail_read(&p->lines, take_line, p);
    }
    if (p->changed)
        tell(p);
}
