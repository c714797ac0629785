/* Spikes: see spike.h; spiked.c acts on them.
 *
 * A step is a spike if its loss, or the norm of its gradients, is not finite, or above FACTOR
 * medians of the last steps, once the window is full. All ranks judge by the same numbers, and
 * checkpoints have the window in their records, so neither ranks nor interruptions change the
 * result. */
#include "job/trainer/spike.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "job/document/document.h"
#include "record/events.h"

static choir_status read_rule(const char *text, choir__spike_rule *r)
{
    char number[64];
    *r = (choir__spike_rule){.rewind = 10, .skip = 20, .window = 32};
    choir_status status = choir__options_name(text, number, sizeof number);
    if (status == CHOIR_OK && !choir__parse_float(number, 1, 1e9, &r->factor))
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "expected a factor of 1 or more, such as 5 or 5:rewind=100,skip=200, got '%s'",
            text);
    return status == CHOIR_OK
               ? choir__options_parse(text, "a spike",
                     (choir__option[]){{"rewind", CHOIR__INT, &r->rewind, 1, 1e9},
                         {"skip", CHOIR__INT, &r->skip, 1, 1e9},
                         {"window", CHOIR__INT, &r->window, 1, CHOIR__SPIKE_WINDOW}, {0}})
               : status;
}

bool choir__spike_rule_of(const choir__job_training *t, choir__spike_rule *rule)
{
    return t->on_spike && read_rule(t->on_spike, rule) == CHOIR_OK;
}

choir_status choir__spike_check(choir__job *j)
{
    choir__spike_rule rule;
    if (!j->training.on_spike)
        return CHOIR_OK;
    if (read_rule(j->training.on_spike, &rule) != CHOIR_OK)
        return choir__error(CHOIR_ERR_ARGUMENT, "--on-spike: %s", choir_error_message());
    if (!j->saves.dir || !j->saves.every)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--on-spike %s without --save and --save-every: there would be no checkpoint to go "
            "back to",
            j->training.on_spike);
    return CHOIR_OK;
}

int64_t choir__spike_keep(const choir__job *j)
{
    choir__spike_rule rule;
    if (!choir__spike_rule_of(&j->training, &rule))
        return 1;
    int64_t every = choir__max(j->saves.every, 1);
    return 1 + (rule.rewind - 1 + every - 1) / every;
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Returns the lower median. */
static float median(const float *values, int64_t count)
{
    float sorted[CHOIR__SPIKE_WINDOW];
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, ascending);
    return sorted[(count - 1) / 2];
}

/* Returns whether a number is beyond the window's, and says so. */
static bool is_beyond(choir__spikes *s, const choir__spike_rule *rule, const char *name,
    const float *values, float value)
{
    double middle = s->count < rule->window ? 0 : (double)median(values, s->count);
    bool beyond = middle > 0 && (double)value > rule->factor * middle;
    if (!isfinite(value))
        snprintf(s->what, sizeof s->what, "the %s is %g", name, (double)fabsf(value));
    else if (beyond)
        snprintf(s->what, sizeof s->what, "the %s, %.4g, is beyond %g times %.4g, the median",
            name, (double)value, rule->factor, middle);
    return beyond || !isfinite(value);
}

static void push(float *values, int64_t count, int64_t window, float value)
{
    if (count == window)
        memmove(values, values + 1, (size_t)(window - 1) * sizeof *values);
    values[choir__min(count, window - 1)] = value;
}

/* Keeps the last steps alone, where a resumed job has a shorter window. */
static void shorten(choir__spikes *s, int64_t window)
{
    int64_t over = s->count - window;
    if (over <= 0)
        return;
    memmove(s->loss, s->loss + over, (size_t)window * sizeof *s->loss);
    memmove(s->norm, s->norm + over, (size_t)window * sizeof *s->norm);
    s->count = window;
}

void choir__spike_note(choir__spikes *s, const choir__spike_rule *rule, float loss, float norm)
{
    shorten(s, rule->window);
    s->found = is_beyond(s, rule, CHOIR__KEY(step, loss), s->loss, loss) ||
               is_beyond(s, rule, "norm of the gradients", s->norm, norm);
    if (s->found)
        return;
    push(s->loss, s->count, rule->window, loss);
    push(s->norm, s->count, rule->window, norm);
    s->count = choir__min(s->count + 1, rule->window);
}

/* --- in records --- */

static json_t *list_of(const float *values, int64_t count)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(list, json_real((double)values[i]));
    return list;
}

char *choir__spike_record(const choir__spikes *s, const char *record)
{
    json_t *root = json_loads(record, 0, NULL);
    json_object_set_new(root, "window",
        json_pack("{s:o, s:o}", CHOIR__KEY(step, loss), list_of(s->loss, s->count),
            CHOIR__KEY(step, grad_norm), list_of(s->norm, s->count)));
    char *text = choir__job_exact_text(root);
    json_decref(root);
    return text;
}

void choir__spike_recall(choir__spikes *s, const char *record)
{
    json_t *root = json_loads(record ? record : "{}", 0, NULL);
    const json_t *window = json_object_get(root, "window"),
                 *loss = json_object_get(window, CHOIR__KEY(step, loss)),
                 *norm = json_object_get(window, CHOIR__KEY(step, grad_norm));
    size_t count = json_array_size(loss);
    s->count =
        count <= CHOIR__SPIKE_WINDOW && json_array_size(norm) == count ? (int64_t)count : 0;
    for (int64_t i = 0; i < s->count; i++) {
        s->loss[i] = (float)json_number_value(json_array_get(loss, (size_t)i));
        s->norm[i] = (float)json_number_value(json_array_get(norm, (size_t)i));
    }
    json_decref(root);
}
