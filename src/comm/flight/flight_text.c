/* The flight recorder as sentences, as a table, and as JSON. */
#include "comm/flight/flight.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

const char *choir__state_text(char state)
{
    return state == 'T'                   ? "stopped (SIGSTOP)"
           : state == 't'                 ? "stopped by a debugger"
           : state == 'Z' || state == 'X' ? "dead"
                                          : "";
}

const char *choir__duration_text(double s, char text[24])
{
    if (s < 0.001)
        snprintf(text, 24, "%.0f us", s * 1e6);
    else if (s < 0.00995)
        snprintf(text, 24, "%.1f ms", s * 1e3);
    else if (s < 0.1)
        snprintf(text, 24, "%.0f ms", s * 1e3);
    else if (s < 9.95)
        snprintf(text, 24, "%.1f s", s);
    else if (s < 120)
        snprintf(text, 24, "%.0f s", s);
    else if (s < 7200)
        snprintf(text, 24, "%.0f min", s / 60);
    else
        snprintf(text, 24, "%.1f h", s / 3600);
    return text;
}

const char *choir__call_text(const choir__stamp *stamp, char text[CHOIR__CALL_TEXT])
{
    choir__stamp_text(stamp, text);
    if (stamp->seq)
        snprintf(
            text + strlen(text), CHOIR__CALL_TEXT - strlen(text), " (number %u)", stamp->seq);
    return text;
}

/* --- the last known activity of a silent peer --- */

/* Appends "running X for 2 s" or "finished X 7 s ago" to text. */
static void add_doing(const choir__seen *seen, const choir__seen_group *group,
    const char *before, bool named, char *text, size_t room)
{
    const choir__seen_call *call = choir__seen_current(group);
    char what[CHOIR__CALL_TEXT], of[64] = "", time[24];
    size_t used = strlen(text);
    if (!call)
        return;
    choir__call_text(&call->stamp, what);
    if (named)
        snprintf(of, sizeof of, " of group %s", group->name);
    if (call->ended)
        snprintf(text + used, room - used, "%sfinished %s%s %s ago", before, what, of,
            choir__duration_text(seen->at - call->ended, time));
    else
        snprintf(text + used, room - used, "%srunning %s%s for %s", before, what, of,
            choir__duration_text(seen->at - call->begun, time));
}

static bool runs(const choir__seen_group *group)
{
    const choir__seen_call *call = choir__seen_current(group);
    return call && !call->ended;
}

const char *choir__flight_log_last_seen(
    int pid, const char *name, int rank, char text[CHOIR__SEEN_TEXT])
{
    choir__seen *seen = choir__flight_read(pid);
    *text = '\0';
    /* Here, this pid belongs to a process of another job. */
    if (seen && seen->who.job != choir__board_own_job()) {
        choir__seen_free(seen);
        return text;
    }
    for (int i = 0; seen && i < seen->group_count && !*text; i++) {
        const choir__seen_group *group = &seen->groups[i];
        if (strcmp(group->name, name) != 0 || (rank >= 0 && group->rank != rank))
            continue;
        add_doing(seen, group, "", false, text, CHOIR__SEEN_TEXT);
        if (!*text)
            snprintf(text, CHOIR__SEEN_TEXT, "has called nothing yet");
        else if (group->queued > 1 || (group->queued && !runs(group)))
            snprintf(text + strlen(text), CHOIR__SEEN_TEXT - strlen(text),
                ", %" PRIu64 " more queued", group->queued - runs(group));
    }
    /* A call that hangs in another group may be the cause. */
    for (int i = 0; seen && i < seen->group_count; i++)
        if (strcmp(seen->groups[i].name, name) != 0 && runs(&seen->groups[i])) {
            add_doing(seen, &seen->groups[i], *text ? ", " : "", true, text, CHOIR__SEEN_TEXT);
            break;
        }
    choir__seen_free(seen);
    return text;
}

/* --- a table --- */

/* The clock that stamps issued calls advances every few milliseconds. */
static const double queued_tick_s = 0.01;

static void print_call(const choir__seen *seen, const choir__seen_call *call, FILE *out)
{
    char what[CHOIR__STAMP_TEXT], ago[24], queued[24] = "-", took[24], number[16] = "-";
    bool running = !call->ended;
    if (call->stamp.seq)
        snprintf(number, sizeof number, "%u", call->stamp.seq);
    if (call->issued > 0 && call->begun - call->issued >= queued_tick_s)
        choir__duration_text(call->begun - call->issued, queued);
    else if (call->issued > 0)
        snprintf(queued, sizeof queued, "<10 ms");
    choir__duration_text((running ? seen->at : call->ended) - call->begun, took);
    choir__duration_text(seen->at - call->begun, ago);
    fprintf(out, "  %10s %9s %9s %9s  %s%s%s\n", number, ago, queued, took,
        choir__stamp_text(&call->stamp, what),
        running                    ? ", running"
        : call->status != CHOIR_OK ? ": "
                                   : "",
        !running && call->status != CHOIR_OK ? choir_status_name(call->status) : "");
}

static double mib(uint64_t bytes)
{
    return (double)bytes / 1048576;
}

void choir__seen_print(const choir__seen *seen, FILE *out)
{
    const char *state = choir__state_text(seen->state);
    char age[24];
    if (seen->who.rank >= 0)
        fprintf(out, "rank %d of %d, ", seen->who.rank, seen->who.world);
    fprintf(out, "pid %d on %s%s%s, up %s: %s\n", seen->pid, seen->who.host, *state ? ", " : "",
        state, choir__duration_text(seen->at - seen->who.started, age),
        *seen->command ? seen->command : seen->who.program);
    for (int i = 0; i < seen->device_count; i++) {
        const choir__seen_device *d = &seen->devices[i];
        fprintf(out, "  %s: %.1f MiB now, %.1f at the peak, %" PRIu64 " tasks queued\n",
            d->name, mib(d->now), mib(d->peak), d->queued);
    }
    for (int i = 0; i < seen->group_count; i++) {
        const choir__seen_group *g = &seen->groups[i];
        fprintf(out,
            "  group %s (%s), rank %d of %d: %" PRIu64 " calls begun, %" PRIu64
            " ended, %" PRIu64 " queued\n",
            g->name, g->backend, g->rank, g->world, g->begun, g->ended, g->queued);
        if (g->count)
            fprintf(out, "  %10s %9s %9s %9s  %s\n", "number", "ago", "queued", "took", "call");
        for (int k = 0; k < g->count; k++)
            print_call(seen, &g->calls[k], out);
    }
}

bool choir__flight_dump(int pid, FILE *out)
{
    choir__seen *seen = choir__flight_read(pid);
    if (!seen) {
        choir__error(CHOIR_ERR_ARGUMENT,
            "process %d shows nothing: it is gone, another user's, or does not use Choir", pid);
        return false;
    }
    choir__seen_print(seen, out);
    choir__seen_free(seen);
    return true;
}

/* --- JSON --- */

static json_t *call_json(const choir__seen *seen, const choir__seen_call *call)
{
    const choir__stamp *s = &call->stamp;
    char text[CHOIR__STAMP_TEXT];
    json_t *o = json_pack("{s:s, s:I, s:s, s:s, s:I, s:f}", "call",
        choir__kind_name((choir__kind)s->kind), "number", (json_int_t)s->seq, "text",
        choir__stamp_text(s, text), "dtype", choir_dtype_name((choir_dtype)s->dtype), "count",
        (json_int_t)s->count, "begun_s_ago", seen->at - call->begun);
    if (call->issued > 0 && call->issued <= call->begun)
        json_object_set_new(o, "queued_s", json_real(call->begun - call->issued));
    json_object_set_new(o, "running", json_boolean(!call->ended));
    json_object_set_new(
        o, "took_s", json_real((call->ended ? call->ended : seen->at) - call->begun));
    if (call->ended)
        json_object_set_new(o, "status", json_string(choir_status_name(call->status)));
    return o;
}

static json_t *group_json(const choir__seen *seen, const choir__seen_group *g)
{
    const choir__seen_call *current = choir__seen_current(g);
    json_t *o = json_pack("{s:s, s:s, s:i, s:i, s:I, s:I, s:I}", "name", g->name, "backend",
        g->backend, "rank", g->rank, "world", g->world, "begun", (json_int_t)g->begun, "ended",
        (json_int_t)g->ended, "queue_depth", (json_int_t)g->queued);
    if (current)
        json_object_set_new(o, "last", call_json(seen, current));
    return o;
}

static json_t *who_json(const choir__seen *seen)
{
    char job[24] = "";
    if (seen->who.job)
        snprintf(job, sizeof job, "%016" PRIx64, seen->who.job);
    json_t *o = json_pack("{s:s, s:i}", "job", job, "pid", seen->pid);
    if (seen->who.rank >= 0) {
        json_object_set_new(o, "rank", json_integer(seen->who.rank));
        json_object_set_new(o, "world", json_integer(seen->who.world));
        if (seen->who.generation > 0)
            json_object_set_new(o, "generation", json_integer(seen->who.generation));
    }
    return o;
}

static json_t *seen_json(const choir__seen *seen, const choir__seen *earlier)
{
    json_t *o = who_json(seen), *devices = json_array(), *groups = json_array();
    json_object_set_new(o, "host", json_string(seen->who.host));
    json_object_set_new(
        o, "command", json_string(*seen->command ? seen->command : seen->who.program));
    json_object_set_new(o, "stopped", json_boolean(seen->state == 'T' || seen->state == 't'));
    json_object_set_new(o, "age_s", json_real(seen->at - seen->who.started));
    for (int i = 0; i < seen->device_count; i++) {
        const choir__seen_device *d = &seen->devices[i];
        json_array_append_new(devices,
            json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "device",
                d->name, "bytes_now", (json_int_t)d->now, "bytes_peak", (json_int_t)d->peak,
                "bytes_weights", (json_int_t)d->of_kind[CHOIR__MEMORY_WEIGHTS],
                "bytes_gradients", (json_int_t)d->of_kind[CHOIR__MEMORY_GRADIENTS],
                "bytes_optimizer", (json_int_t)d->of_kind[CHOIR__MEMORY_OPTIMIZER],
                "bytes_reserved", (json_int_t)d->reserved, "bytes_limit", (json_int_t)d->limit,
                "queue_depth", (json_int_t)d->queued, "busy",
                choir__seen_busy(seen, earlier, i), "busy_s", d->busy_s));
    }
    for (int i = 0; i < seen->group_count; i++)
        json_array_append_new(groups, group_json(seen, &seen->groups[i]));
    json_object_set_new(o, "devices", devices);
    json_object_set_new(o, "groups", groups);
    return o;
}

static void put_line(json_t *object, FILE *out)
{
    json_dumpf(object, out, JSON_COMPACT | JSON_REAL_PRECISION(9));
    fputc('\n', out);
    json_decref(object);
}

void choir__seen_json(const choir__seen *seen, const choir__seen *earlier, FILE *out)
{
    put_line(seen_json(seen, earlier), out);
}

void choir__seen_calls_json(const choir__seen *seen, FILE *out)
{
    for (int i = 0; i < seen->group_count; i++)
        for (int k = 0; k < seen->groups[i].count; k++) {
            json_t *o = who_json(seen), *call = call_json(seen, &seen->groups[i].calls[k]);
            json_object_set_new(o, "group", json_string(seen->groups[i].name));
            json_object_update(o, call);
            json_decref(call);
            put_line(o, out);
        }
}
