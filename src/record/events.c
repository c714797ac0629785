/* Makes the kinds of events from events.def, and writes an event by its fields' types and
 * offsets. So recorders need no code per event, and the key, type and unit of a field are
 * stated once. */
#include "record/events.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "record/recorder.h"

/* --- the table --- */

enum {
    OUT = CHOIR__TO_OUT,
    LOGS = CHOIR__TO_LOGS,
    BOTH = CHOIR__TO_BOTH,
    MAYBE = CHOIR__IF_KNOWN
};

#define EVENT(event, where, sentence) static const choir__event_field event##_fields[] = {
#define RECORD(record, sentence)      EVENT(record, 0, sentence)
#define FIELD(event, type, key, where, sentence)                                               \
    {#key, CHOIR__FIELD_##type, where, offsetof(choir__told_##event, key), 0, NULL},
#define LIST(event, record, key, where, sentence)                                              \
    {#key, CHOIR__FIELD_list, where, offsetof(choir__told_##event, key),                       \
        offsetof(choir__told_##event, key##_count), &choir__kind_##record},
#define END(event)                                                                             \
    }                                                                                          \
    ;
#include "record/events.def"
#undef EVENT
#undef RECORD
#undef FIELD
#undef LIST
#undef END

#define EVENT(event, where, sentence)                                                          \
    const choir__event_kind choir__kind_##event = {#event, where, sizeof(choir__told_##event), \
        event##_fields, CHOIR_COUNT(event##_fields)};
#define RECORD(record, sentence) EVENT(record, 0, sentence)
#define FIELD(event, type, key, where, sentence)
#define LIST(event, record, key, where, sentence)
#define END(event)
#include "record/events.def"

static const choir__event_field *find(const choir__event_kind *kind, const char *key)
{
    for (int i = 0; i < kind->count; i++)
        if (!strcmp(kind->fields[i].key, key))
            return &kind->fields[i];
    return NULL;
}

/* --- values --- */

static const void *place(const choir__event_field *f, const void *event)
{
    return (const char *)event + f->at;
}

static bool is_number(const choir__event_field *f)
{
    return f->type >= CHOIR__FIELD_number && f->type <= CHOIR__FIELD_setting;
}

static double number_of(const choir__event_field *f, const void *event)
{
    return *(const double *)place(f, event);
}

bool choir__event_is_measured(const choir__event_kind *kind, const char *key)
{
    const choir__event_field *f = find(kind, key);
    return f ? is_number(f) : !find(&choir__kind_line, key);
}

static int64_t count_of(const choir__event_field *f, const void *event)
{
    return *(const int64_t *)place(f, event);
}

static const char *text_of(const choir__event_field *f, const void *event)
{
    return *(const char *const *)place(f, event);
}

static bool is_missing(const choir__event_field *f, const void *event)
{
    return f->type == CHOIR__FIELD_count  ? count_of(f, event) < 0
           : f->type == CHOIR__FIELD_text ? !text_of(f, event)
                                          : is_number(f) && isnan(number_of(f, event));
}

/* Returns whether a field is written to one of `where`. */
static bool is_written(const choir__event_field *f, const void *event, unsigned where)
{
    return (f->where & where) && !((f->where & CHOIR__IF_KNOWN) && is_missing(f, event));
}

/* Returns the shortest number that rounds to x, if x is the value of a float: 0.001 for
 * 0.0010000000474974513. It is as short in every record, and as a float it has the same bits.
 */
static double shortest(double x)
{
    char text[32];
    double found = x;
    bool narrow = isfinite(x) && (double)(float)x == x;
    for (int digits = 6; narrow && digits <= 9; digits++) {
        choir__number_print(text, sizeof text, "%.*g", digits, x);
        found = choir__number_read(text, NULL);
        narrow = (float)found != (float)x;
    }
    return found;
}

/* Returns a number as logs have it. */
static double in_full(const choir__event_field *f, const void *event)
{
    double x = number_of(f, event);
    bool single = f->type == CHOIR__FIELD_single || f->type == CHOIR__FIELD_setting;
    return single ? shortest(x) : x;
}

bool choir__event_measure(const choir__event_field *f, const void *event, double *value)
{
    if (!is_number(f) || !is_written(f, event, CHOIR__TO_LOGS) || is_missing(f, event))
        return false;
    *value = in_full(f, event);
    return true;
}

/* --- writing --- */

typedef struct form {
    choir__text_buffer *out;
    unsigned where; /* CHOIR__TO_OUT or _LOGS */
} form;

static void write_number(
    const form *to, const char *key, const choir__event_field *f, const void *event)
{
    int digits = f->type == CHOIR__FIELD_rate ? 6 : f->type == CHOIR__FIELD_setting ? 7 : 9;
    double x = number_of(f, event);
    char text[64];
    if (!isfinite(x)) {
        choir__text_value(to->out, key, "null");
    } else if (to->where == CHOIR__TO_LOGS) {
        choir__number_print(text, sizeof text, "%.17g", in_full(f, event));
        bool whole = !text[strspn(text, "-0123456789")];
        choir__text_value(to->out, key, "%s%s", text,
            whole ? ".0" : ""); /* a real number has a point, a count has none */
    } else if (f->type == CHOIR__FIELD_share) {
        choir__text_value(to->out, key, "%.3f", x);
    } else {
        choir__text_value(to->out, key, "%.*g", digits, x);
    }
}

static void write_fields(const form *to, const choir__event_kind *kind, const void *event);
static void write_value(
    const form *to, const char *key, const choir__event_field *f, const void *event);

/* Items are objects, or the first field alone where the others are not written. */
static void write_list(
    const form *to, const char *key, const choir__event_field *f, const void *event)
{
    const char *item = *(const char *const *)place(f, event);
    int count = *(const int *)((const char *)event + f->count_at), fields = 0;
    for (int i = 0; i < f->items->count; i++)
        fields += (f->items->fields[i].where & to->where) != 0;
    choir__text_open(to->out, key, '[');
    for (int i = 0; i < count; i++, item += f->items->bytes) {
        if (fields <= 1) {
            write_value(to, NULL, f->items->fields, item);
            continue;
        }
        choir__text_open(to->out, NULL, '{');
        write_fields(to, f->items, item);
        choir__text_close(to->out, '}');
    }
    choir__text_close(to->out, ']');
}

static void write_value(
    const form *to, const char *key, const choir__event_field *f, const void *event)
{
    if (f->type == CHOIR__FIELD_list)
        write_list(to, key, f, event);
    else if (f->type == CHOIR__FIELD_text)
        choir__text_string(to->out, key, text_of(f, event));
    else if (is_missing(f, event))
        choir__text_value(to->out, key, "null");
    else if (f->type == CHOIR__FIELD_count)
        choir__text_value(to->out, key, "%lld", (long long)count_of(f, event));
    else if (f->type == CHOIR__FIELD_truth)
        choir__text_value(
            to->out, key, "%s", *(const bool *)place(f, event) ? "true" : "false");
    else
        write_number(to, key, f, event);
}

static void write_fields(const form *to, const choir__event_kind *kind, const void *event)
{
    for (int i = 0; i < kind->count; i++)
        if (is_written(&kind->fields[i], event, to->where))
            write_value(to, kind->fields[i].key, &kind->fields[i], event);
}

void choir__event_write(
    choir__text_buffer *out, unsigned where, const choir__event_kind *kind, const void *event)
{
    choir__text_open(out, NULL, '{');
    choir__text_string(out, CHOIR__KEY(line, event), kind->name);
    write_fields(&(form){out, where}, kind, event);
    choir__text_close(out, '}');
}

void choir__event_print(const choir__event_kind *kind, const void *event)
{
    choir__text_buffer line = {0};
    choir__event_write(&line, CHOIR__TO_OUT, kind, event);
    choir__text_print(&line, stdout);
    choir__text_buffer_free(&line);
}

const char *choir__eval_name(const json_t *fields, const char *key)
{
    const char *own = json_string_value(json_object_get(fields, CHOIR__KEY(eval, metric_name)));
    return own && *own && !strcmp(key, CHOIR__KEY(eval, metric)) ? own : key;
}

void choir__event_as_row(const choir__record_event *e, choir__event_row *made)
{
    const char *key;
    json_t *value;
    int count = 0;
    bool eval = !strcmp(e->kind, choir__kind_eval.name);
    json_object_foreach((json_t *)e->fields, key, value)
    {
        if (!eval || !json_is_number(value) || count == CHOIR__EVENT_NUMBERS ||
            !choir__event_is_measured(&choir__kind_eval, key))
            continue;
        snprintf(made->names[count], sizeof made->names[count], "%s/%s", e->kind,
            choir__eval_name(e->fields, key));
        made->numbers[count] = (choir__number){made->names[count], json_number_value(value)};
        count++;
    }
    made->row = (choir__row){e->step, e->time, count, made->numbers};
}
