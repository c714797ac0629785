/* A log passes rows and events to all of its recorders. One that fails is closed, and its
 * error returned once. */
#include <choir/log.h>

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/floats.h"
#include "record/recorder.h"
#include "record/json_value.h"

enum { LONGEST_NAME = 200 };

struct choir_logger {
    choir__recorder **recorders; /* (count); NULL: failed */
    int count;
    choir__record_start start;
    char *name, *job, id[33];
    json_t *params;
    int64_t last;            /* step of the last row; -1: none */
    bool begun, ended_badly; /* ended_badly: failed or interrupted */
    /* The numbers of the next step. Slots keep their names, so that steps with the same names
     * in the same order allocate nothing. */
    choir__number *slots;
    int used, slot_count;
    choir_status failed; /* the first error, whose message is kept */
    char *why;
};

/* --- errors --- */

/* Notes the first error of the log. */
static void note(choir_logger *log, choir_status status)
{
    if (log->failed != CHOIR_OK)
        return;
    log->failed = status;
    log->why = choir__strdup(choir__message());
}

/* Closes a recorder that failed; its error stays this thread's message. */
static choir_status drop(choir_logger *log, int i, choir_status status)
{
    char *why = choir__strdup(choir__message());
    choir__recorder *r = log->recorders[i];
    log->recorders[i] = NULL;
    (void)!r->ops->end(r, false);
    choir__set_message(why);
    free(why);
    note(log, status);
    return status;
}

static choir_status bad_name(const char *function, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            length = 0;
    if (!length || length > LONGEST_NAME)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected a name of 1 to %d printable bytes, got '%s'", function, LONGEST_NAME,
            name);
    json_t *text = json_string(name); /* NULL: it is not UTF-8 */
    json_decref(text);
    return text ? CHOIR_OK
                : choir__error(CHOIR_ERR_ARGUMENT, "%s: expected a name in UTF-8, got '%s'",
                      function, name);
}

/* --- opening --- */

choir_log_opts choir_log_defaults(void)
{
    return (choir_log_opts){0};
}

/* Makes the 32 digits that stand for the run. */
static void make_id(const char *text, char id[33])
{
    unsigned char bytes[16];
    if (text)
        crypto_generichash(
            bytes, sizeof bytes, (const unsigned char *)text, strlen(text), NULL, 0);
    else
        randombytes_buf(bytes, sizeof bytes);
    sodium_bin2hex(id, 33, bytes, sizeof bytes);
}

static bool is_object(const char *text)
{
    json_t *value = json_loads(text, 0, NULL);
    const bool is = json_is_object(value);
    json_decref(value);
    return is;
}

choir_status choir_log_open(const char *dest, choir_log_opts opts, choir_logger **made)
{
    if (choir__lacks(made, __func__, "place for the log"))
        return CHOIR_ERR_ARGUMENT;
    *made = NULL;
    if (opts.resume < 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "choir_log_open: expected a step of at least 0 to continue from, got %lld",
            (long long)opts.resume);
    if (opts.job && !is_object(opts.job))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "choir_log_open: expected a job that is a JSON object, got '%.60s'", opts.job);
    if (sodium_init() < 0)
        return choir__error(CHOIR_ERR_INTERNAL, "libsodium can't be used");
    choir_logger *log = choir__calloc(1, sizeof *log);
    log->name = choir__strdup(opts.name ? opts.name : "choir");
    log->job = opts.job ? choir__strdup(opts.job) : NULL;
    log->params = json_object();
    log->last = -1;
    make_id(opts.id, log->id);
    log->start = (choir__record_start){.name = log->name,
        .id = log->id,
        .resume = opts.goes_on ? opts.resume : -1,
        .evaluates_again = opts.evaluates_again,
        .time = choir__wall_time()};
    choir_status status = dest ? choir_log_add(log, dest) : CHOIR_OK;
    if (status == CHOIR_OK)
        *made = log;
    else
        (void)!choir_log_close(log);
    return status;
}

void choir__log_add_recorder(choir_logger *log, choir__recorder *made)
{
    CHOIR__GROW(log->recorders, log->count);
    log->recorders[log->count++] = made;
}

choir_status choir_log_add(choir_logger *log, const char *dest)
{
    if (choir__lacks(log, __func__, "log") || choir__lacks(dest, __func__, "destination"))
        return CHOIR_ERR_ARGUMENT;
    if (log->begun)
        return choir__error(CHOIR_ERR_STATE,
            "log '%s': expected before the first step; destinations are added first", dest);
    const choir__recorder_ops *ops;
    const char *place;
    choir__recorder *made = NULL;
    choir_status status = choir__recorder_find(dest, &ops, &place);
    if (status == CHOIR_OK)
        status = ops->open(place, &log->start, &made);
    if (status != CHOIR_OK) {
        char *why = choir__strdup(choir__message()); /* ending it may leave another message */
        note(log, status);
        if (made)
            (void)!made->ops->end(made, false);
        choir__set_message(why);
        free(why);
        return status;
    }
    choir__log_add_recorder(log, made);
    return CHOIR_OK;
}

/* Closes recorder i if it has failed, and keeps the first error in *all. */
static void settle(choir_logger *log, int i, choir_status status, choir_status *all)
{
    if (status != CHOIR_OK)
        (void)!drop(log, i, status);
    *all = *all == CHOIR_OK ? status : *all;
}

/* Calls a function of all recorders, before the first step or event also `begin`. Returns the
 * first error. */
#define EACH(log, function, ...)                                                               \
    do {                                                                                       \
        for (int i = 0; i < (log)->count; i++) {                                               \
            choir__recorder *r = (log)->recorders[i];                                          \
            settle((log), i,                                                                   \
                r && r->ops->function ? r->ops->function(r, __VA_ARGS__) : CHOIR_OK, &status); \
        }                                                                                      \
    } while (0)

static choir_status begin(choir_logger *log)
{
    choir_status status = CHOIR_OK;
    if (!log->begun)
        EACH(log, begin, log->params, log->job);
    log->begun = true;
    return status;
}

void choir__log_end_badly(choir_logger *log)
{
    if (log)
        log->ended_badly = true;
}

choir_status choir_log_close(choir_logger *log)
{
    if (!log)
        return CHOIR_OK;
    choir_status status = begin(log);
    bool good = log->failed == CHOIR_OK && !log->ended_badly;
    for (int i = 0; i < log->count; i++) {
        choir__recorder *r = log->recorders[i];
        choir_status of = r ? r->ops->end(r, good) : CHOIR_OK;
        if (of != CHOIR_OK)
            note(log, of);
    }
    status = log->failed;
    if (status != CHOIR_OK)
        choir__set_message(log->why);
    for (int i = 0; i < log->slot_count; i++)
        free((char *)log->slots[i].name);
    json_decref(log->params);
    free(log->slots);
    free(log->recorders);
    free(log->name);
    free(log->job);
    free(log->why);
    free(log);
    return status;
}

/* --- parameters --- */

/* Returns the value that a text stands for. */
static json_t *value_of(const char *text)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    if (json_is_number(value) || json_is_boolean(value))
        return value;
    json_decref(value);
    return choir__json_string(text);
}

choir_status choir_log_param(choir_logger *log, const char *name, const char *value)
{
    if (choir__lacks(log, __func__, "log") || choir__lacks(name, __func__, "name") ||
        choir__lacks(value, __func__, "value"))
        return CHOIR_ERR_ARGUMENT;
    choir_status status = bad_name(__func__, name);
    if (status != CHOIR_OK)
        return status;
    if (log->begun)
        return choir__error(
            CHOIR_ERR_STATE, "choir_log_param: expected '%s' before the first step", name);
    if (json_object_set_new(log->params, name, value_of(value)) != 0)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "choir_log_param: expected a name in UTF-8, got '%s'", name);
    return CHOIR_OK;
}

/* --- rows --- */

choir_status choir_log_number(choir_logger *log, const char *name, double value)
{
    CHOIR__DEFAULT_FLOATS;
    if (choir__lacks(log, __func__, "log") || choir__lacks(name, __func__, "name"))
        return CHOIR_ERR_ARGUMENT;
    if (log->used < log->slot_count && !strcmp(log->slots[log->used].name, name)) {
        log->slots[log->used++].value = value;
        return CHOIR_OK;
    }
    for (int i = 0; i < log->used; i++)
        if (!strcmp(log->slots[i].name, name)) {
            log->slots[i].value = value;
            return CHOIR_OK;
        }
    choir_status status = bad_name(__func__, name);
    if (status != CHOIR_OK)
        return status;
    if (log->used == log->slot_count) {
        CHOIR__GROW(log->slots, log->slot_count);
        log->slots[log->slot_count++] = (choir__number){NULL, 0};
    }
    choir__number *slot = &log->slots[log->used++];
    free((char *)slot->name);
    *slot = (choir__number){choir__strdup(name), value};
    return CHOIR_OK;
}

choir_status choir__log_numbers(
    choir_logger *log, const char *prefix, const choir__event_kind *kind, const void *told)
{
    choir_status status = CHOIR_OK;
    for (int i = 0; i < kind->count && status == CHOIR_OK; i++) {
        char name[LONGEST_NAME];
        double value;
        if (!choir__event_measure(&kind->fields[i], told, &value))
            continue;
        snprintf(name, sizeof name, "%s%s", prefix, kind->fields[i].key);
        status = choir_log_number(log, name, value);
    }
    return status;
}

static choir_status check_step(const char *function, int64_t step)
{
    return step >= 0
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT, "%s: expected a step of at least 0, got %lld",
                     function, (long long)step);
}

choir_status choir_log_step(choir_logger *log, int64_t step)
{
    CHOIR__DEFAULT_FLOATS;
    if (choir__lacks(log, __func__, "log"))
        return CHOIR_ERR_ARGUMENT;
    choir_status status = check_step(__func__, step);
    if (status == CHOIR_OK && step <= log->last)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "choir_log_step: expected a step after %lld, got %lld", (long long)log->last,
            (long long)step);
    if (status == CHOIR_OK)
        status = begin(log);
    const choir__row row = {step, choir__wall_time(), log->used, log->slots};
    if (log->used)
        EACH(log, step, &row);
    log->used = 0;
    log->last = status == CHOIR_ERR_ARGUMENT ? log->last : step;
    return status;
}

/* --- events --- */

static choir_status put_event(
    choir_logger *log, int64_t step, const char *kind, const json_t *fields)
{
    choir__event_row numbers;
    choir_status status = check_step(kind, step);
    if (status != CHOIR_OK)
        return status;
    status = begin(log); /* one recorder's failure does not silence the others */
    log->ended_badly |=
        !strcmp(kind, choir__kind_failure.name) || !strcmp(kind, choir__kind_interrupted.name);
    const choir__record_event e = {
        .kind = kind, .step = step, .time = choir__wall_time(), .fields = fields};
    choir__event_as_row(&e, &numbers);
    for (int i = 0; i < log->count; i++) {
        choir__recorder *r = log->recorders[i];
        choir_status of = CHOIR_OK;
        if (r && r->ops->event)
            of = r->ops->event(r, &e);
        else if (r && numbers.row.count)
            of = r->ops->step(r, &numbers.row);
        settle(log, i, of, &status);
    }
    return status;
}

choir_status choir__log_tell(choir_logger *log, const choir__event_kind *kind, const void *told)
{
    choir__text_buffer text = {0};
    choir__event_write(&text, CHOIR__TO_LOGS, kind, told);
    json_t *fields = json_loads(text.bytes, 0, NULL);
    choir__text_buffer_free(&text);
    if (!fields)
        return choir__error(CHOIR_ERR_IO, "no memory for an event of a log");
    const json_t *number = json_object_get(fields, CHOIR__KEY(line, step));
    int64_t step =
        json_is_integer(number) ? json_integer_value(number) : -1; /* null: negative */
    json_object_del(fields, CHOIR__KEY(line, event)); /* recorders write both by themselves */
    json_object_del(fields, CHOIR__KEY(line, step));
    choir_status status = put_event(log, step, kind->name, fields);
    json_decref(fields);
    return status;
}

choir_status choir_log_event(
    choir_logger *log, int64_t step, const char *kind, const char *json)
{
    CHOIR__DEFAULT_FLOATS;
    if (choir__lacks(log, __func__, "log") || choir__lacks(kind, __func__, "kind"))
        return CHOIR_ERR_ARGUMENT;
    choir_status status = bad_name(__func__, kind);
    if (status != CHOIR_OK)
        return status;
    json_t *fields = json_loads(json ? json : "{}", 0, NULL);
    if (json_is_object(fields))
        status = put_event(log, step, kind, fields);
    else
        status = choir__error(
            CHOIR_ERR_ARGUMENT, "choir_log_event: expected a JSON object, got '%s'", json);
    json_decref(fields);
    return status;
}

choir_status choir_log_text(choir_logger *log, int64_t step, const char *name, const char *text)
{
    if (choir__lacks(log, __func__, "log") || choir__lacks(name, __func__, "name") ||
        choir__lacks(text, __func__, "text"))
        return CHOIR_ERR_ARGUMENT;
    choir_status status = bad_name(__func__, name);
    return status == CHOIR_OK ? choir__log_tell(log,
                                    CHOIR__TOLD(text, .step = step, .name = name, .text = text))
                              : status;
}

choir_status choir_log_histogram(
    choir_logger *log, int64_t step, const char *name, const float *values, int64_t count)
{
    CHOIR__DEFAULT_FLOATS;
    if (choir__lacks(log, __func__, "log") || choir__lacks(name, __func__, "name") ||
        choir__lacks(values, __func__, "values"))
        return CHOIR_ERR_ARGUMENT;
    choir_status status = bad_name(__func__, name);
    if (status == CHOIR_OK)
        status = check_step(__func__, step);
    if (status == CHOIR_OK && count < 0)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "choir_log_histogram: expected at least 0 values, got %lld", (long long)count);
    if (status == CHOIR_OK)
        status = begin(log);
    const choir__histogram h = {name, step, choir__wall_time(), values, count};
    if (status == CHOIR_OK)
        EACH(log, histogram, &h);
    return status;
}
