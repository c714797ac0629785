/* A training job fills its log (choir/log.h): a row per step, evaluations, checkpoints,
 * changes of the ranks, failures, and on request histograms. */
#include "job/report/record.h"

#include <choir/autograd.h>
#include <choir/log.h>
#include <jansson.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/files/file.h"
#include "job/part.h"
#include "job/peers.h"
#include "record/recorder.h"

struct choir__cli_record {
    const choir__job *job;
    choir_logger *log;
    /* of each of the part's devices at the last row */
    double busy_before[CHOIR__MAX_DEVICES], since;
    choir__peers peers;
    int64_t last; /* step that was recorded */
};

const char *choir__cli_record_folder(const choir__job *j)
{
    return j->records.run ? j->records.run : j->saves.dir;
}

/* Says, once for each destination, that the record is not whole. */
static void look(const choir__cli_record *r, choir_status status)
{
    if (status == CHOIR_OK)
        return;
    choir__cli_tell(r->job->command, "warning: %s; training goes on without this record",
        choir_error_message());
    if (r->job->records.unrecorded)
        atomic_store(r->job->records.unrecorded, 1);
}

/* --- opening --- */

/* Returns the id of the run whose folder this is, or NULL; the caller frees it. */
static char *id_in(const char *folder)
{
    char *path = choir__format("%s/job.json", folder), *id = NULL;
    json_t *root = choir__file_json(path, 0, NULL);
    const char *found = json_string_value(json_object_get(json_object_get(root, "run"), "id"));
    if (found)
        id = choir__strdup(found);
    json_decref(root);
    free(path);
    return id;
}

/* Returns a number that no other run has. */
static char *new_id(void)
{
    uint64_t words[2] = {0};
    if (getentropy(words, sizeof words) != 0)
        words[0] = (uint64_t)(1e9 * choir__now()) + (uint64_t)getpid();
    return choir__format(
        "%016llx%016llx", (unsigned long long)words[0], (unsigned long long)words[1]);
}

/* The options that decide the job's numbers, for tables of hyper-parameters. */
static void put_params(choir__cli_record *r)
{
    for (const choir__cli_option *o = choir__job_options; o->name; o++) {
        char *text = o->recorded ? choir__cli_text(o, (const char *)r->job + o->at) : NULL;
        if (text)
            look(r, choir_log_param(r->log, o->name,
                        strcmp(o->name, "model") ? text : r->job->model.info.config));
        free(text);
    }
}

static void add_destinations(choir__cli_record *r)
{
    const char *folder = choir__cli_record_folder(r->job);
    char *run = folder ? choir__format("run:%s", folder) : NULL;
    char *rest = r->job->records.logs ? choir__strdup(r->job->records.logs) : NULL, *all = rest,
         *dest;
    if (run)
        look(r, choir_log_add(r->log, run));
    while (rest && (dest = strsep(&rest, "\n")))
        look(r, choir_log_add(r->log, dest));
    free(run);
    free(all);
}

choir__cli_record *choir__cli_record_open(const choir__job *j, int64_t step, bool goes_on)
{
    if (!choir__job_is_logged(j))
        return NULL;
    choir__cli_record *r = choir__calloc(1, sizeof *r);
    const char *folder = choir__cli_record_folder(j),
               *slash = folder ? strrchr(folder, '/') : NULL;
    char *id = goes_on && folder ? id_in(folder) : NULL;
    id = id ? id : new_id();
    char *job = choir__job_text(j, id);
    choir_log_opts opts = choir_log_defaults();
    opts.name = slash && slash[1] ? slash + 1 : folder;
    opts.id = id;
    opts.job = job;
    opts.resume = step;
    opts.goes_on = goes_on;
    r->job = j;
    r->since = choir__now();
    look(r, choir_log_open(NULL, opts, &r->log));
    if (r->log) {
        add_destinations(r);
        put_params(r);
        json_t *begin = json_pack("{s:s, s:i, s:b}", "strategy", j->placement.strategy_text,
            "world", choir__cli_strategy_workers(j), "resumed", goes_on);
        char *text = json_dumps(begin, JSON_COMPACT);
        look(r, choir_log_event(r->log, step, "begin", text));
        free(text);
        json_decref(begin);
    }
    free(job);
    free(id);
    return r;
}

/* --- rows --- */

/* Returns the shortest number that rounds to x, if x is the value of a float: 0.001 for
 * 0.0010000000474974513. It is as short in every record, and as a float it has the same bits.
 */
static double of_float(double x)
{
    char text[32];
    double found = x;
    bool narrow = isfinite(x) && (double)(float)x == x;
    for (int digits = 6; narrow && digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        found = strtod(text, NULL);
        narrow = (float)found != (float)x;
    }
    return found;
}

static void put(choir__cli_record *r, const char *name, double value)
{
    look(r, choir_log_number(r->log, name, value));
}

static void put_device(
    choir__cli_record *r, int rank, const char *device, const char *what, double value)
{
    char name[96];
    if (isnan(value))
        return;
    snprintf(name, sizeof name, "device/%d/%s/%s", rank, device, what);
    put(r, name, value);
}

static void put_kinds(choir__cli_record *r, int rank, const char *device, uint64_t weights,
    uint64_t gradients, uint64_t optimizer)
{
    put_device(r, rank, device, "weights_bytes", (double)weights);
    put_device(r, rank, device, "gradients_bytes", (double)gradients);
    put_device(r, rank, device, "optimizer_bytes", (double)optimizer);
}

static void put_peer(int rank, const choir__seen_device *device, double busy, void *arg)
{
    put_device(arg, rank, device->name, "bytes", (double)device->now);
    put_device(arg, rank, device->name, "peak_bytes", (double)device->peak);
    put_kinds(arg, rank, device->name, device->of_kind[CHOIR__MEMORY_WEIGHTS],
        device->of_kind[CHOIR__MEMORY_GRADIENTS], device->of_kind[CHOIR__MEMORY_OPTIMIZER]);
    put_device(arg, rank, device->name, "busy", busy);
}

/* Memory of this process's devices, and the share of the time since the last row that they
 * computed; now and then also those of the other ranks on this machine. */
static void put_devices(choir__cli_record *r, const choir__cli_part *part)
{
    double now = choir__now(), elapsed = now - r->since;
    int rank = part->env.rank;
    for (int i = 0; i < part->device_count; i++) {
        choir_device_stats stats;
        const char *name = choir_device_name(part->devices[i]);
        choir_device_get_stats(part->devices[i], &stats);
        double busy = (stats.busy_s - r->busy_before[i]) / elapsed;
        put_device(r, rank, name, "bytes", (double)stats.bytes_now);
        put_device(r, rank, name, "peak_bytes", (double)stats.bytes_peak);
        put_kinds(
            r, rank, name, stats.bytes_weights, stats.bytes_gradients, stats.bytes_optimizer);
        put_device(r, rank, name, "busy",
            r->busy_before[i] > 0 && elapsed > 0 ? fmin(1, busy) : (double)NAN);
        r->busy_before[i] = stats.busy_s;
    }
    r->since = now;
    choir__peers_look(&r->peers, part->env.world, put_peer, r);
}

typedef struct tensors {
    choir__cli_record *record;
    int64_t step;
    choir_status status;
} tensors;

static void put_histogram(tensors *all, const char *kind, const char *name, choir_tensor *t)
{
    if (!t || choir_tensor_dtype(t) != CHOIR_F32 || all->status != CHOIR_OK)
        return;
    int64_t count = choir_tensor_count(t);
    float *values = malloc((size_t)count * sizeof *values);
    char *full = choir__format("%s/%s", kind, name);
    if (values && choir_read(t, values, (size_t)count * sizeof *values) == CHOIR_OK)
        all->status = choir_log_histogram(all->record->log, all->step, full, values, count);
    free(full);
    free(values);
}

static void put_tensor(const char *name, choir_tensor *t, void *arg)
{
    put_histogram(arg, "weights", name, t);
    put_histogram(arg, "gradients", name, choir_grad(t));
}

void choir__cli_record_step(choir__cli_record *r, const choir__cli_step *s,
    const choir__cli_part *part, double loss_scale)
{
    if (!r || !r->log || s->number <= r->last) /* repeated after a loss of ranks */
        return;
    r->last = s->number;
    double items = (double)(r->job->training.batch_size * r->job->model.info.items);
    if (!s->none)
        put(r, "loss", of_float((double)s->loss));
    put(r, "lr", of_float(s->lr));
    if (!isnan(s->grad_norm))
        put(r, "grad_norm", of_float(s->grad_norm));
    put(r, "items_per_s", s->seconds > 0 ? items / s->seconds : 0); /* a row is a step */
    put(r, "step_s", s->seconds);
    put(r, "items", items * (double)s->number);
    if (!isnan(loss_scale))
        put(r, "loss_scale", loss_scale);
    put_devices(r, part);
    look(r, choir_log_step(r->log, s->number));
    if (r->job->records.reached)
        atomic_store(r->job->records.reached, s->number);
    int64_t each = r->job->records.log_histograms;
    tensors all = {r, s->number, CHOIR_OK};
    if (each && s->number % each == 0)
        choir_module_visit(part->net, false, put_tensor, &all);
    look(r, all.status);
}

/* --- events --- */

/* Frees the fields. */
static void tell(choir__cli_record *r, int64_t step, const char *kind, json_t *fields)
{
    char *text = json_dumps(fields, JSON_COMPACT);
    look(r, choir_log_event(r->log, step, kind, text));
    free(text);
    json_decref(fields);
}

/* JSON has no NaN. */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

void choir__cli_record_eval(
    choir__cli_record *r, int64_t step, const choir_score *score, bool best)
{
    if (r && r->log)
        tell(r, step, "eval",
            json_pack("{s:o, s:o, s:b}", "loss", number(score->loss), "accuracy",
                number(score->accuracy), "best", best));
}

void choir__cli_record_saved(choir__cli_record *r, int64_t step)
{
    if (r && r->log)
        tell(r, step, "checkpoint",
            json_pack("{s:o}", "path",
                json_sprintf("%s/step-%08lld", r->job->saves.dir, (long long)step)));
}

void choir__cli_record_membership(choir__cli_record *r, const choir_membership *m)
{
    if (!r || !r->log)
        return;
    json_t *left = json_array(), *joined = json_array();
    for (int i = 0; i < m->left_count; i++)
        json_array_append_new(left, json_pack("{s:i, s:i, s:s}", "rank", m->left[i].rank, "pid",
                                        m->left[i].pid, "why", m->left[i].why));
    for (int i = 0; i < m->joined_count; i++)
        json_array_append_new(joined, json_integer(m->joined[i]));
    tell(r, m->step, "membership",
        json_pack("{s:I, s:i, s:o, s:o, s:f, s:f}", "generation", (json_int_t)m->generation,
            "world", m->world, "left", left, "joined", joined, "detected_s", m->detected_s,
            "resumed_s", m->resumed_s));
}

void choir__cli_record_sample(choir__cli_record *r, int64_t step, const char *text)
{
    if (r && r->log)
        look(r, choir_log_text(r->log, step, "sample", text));
}

void choir__cli_record_end(
    choir__cli_record *r, int64_t step, float loss, const char *sha256, const char *by)
{
    if (r && r->log)
        tell(r, step, "end",
            json_pack("{s:o, s:s, s:s*}", "loss", number(of_float((double)loss)),
                "weights_sha256", sha256, "by", *by ? by : NULL));
}

void choir__cli_record_failure(choir__cli_record *r, int64_t step, choir_status status)
{
    if (!r || !r->log)
        return;
    char *why = choir__strdup(choir_error_message()); /* an error here must not replace it */
    json_t *fields = json_pack("{s:s*}", "message", why);
    tell(r, step, status == CHOIR_ERR_INTERRUPTED ? "interrupted" : "failure",
        fields ? fields : json_object());
    if (r->job->records.recorded)
        atomic_store(r->job->records.recorded, 1);
    choir__set_message(why);
    free(why);
}

void choir__cli_record_spoil(choir__cli_record *r)
{
    if (r)
        choir__log_end_badly(r->log);
}

void choir__cli_record_close(choir__cli_record *r)
{
    if (!r)
        return;
    char *why = choir__strdup(choir_error_message());
    choir_status status = choir_log_close(r->log);
    if (status != CHOIR_OK && r->job->records.unrecorded &&
        !atomic_load(r->job->records.unrecorded))
        look(r, status); /* it failed in the end only */
    choir__set_message(why);
    choir__peers_free(&r->peers);
    free(why);
    free(r);
}

void choir__cli_record_loss(const choir__job *j)
{
    const char *folder = choir__cli_record_folder(j);
    choir__job only = *j;
    only.records.logs = NULL;
    only.records.unrecorded = only.records.recorded = NULL;
    char *dest = folder ? choir__format("run:%s", folder) : NULL;
    choir__cli_record r = {.job = &only};
    choir_log_opts opts = choir_log_defaults();
    opts.goes_on = true;
    opts.resume = INT64_MAX; /* all that is there stays */
    char *why = choir__strdup(choir_error_message());
    if (dest && choir_log_open(dest, opts, &r.log) == CHOIR_OK) {
        choir__set_message(why);
        int64_t step = only.records.reached ? atomic_load(only.records.reached) : 0;
        choir__cli_record_failure(&r, step, CHOIR_ERR_PEER_LOST);
        (void)!choir_log_close(r.log);
    }
    choir__set_message(why);
    free(why);
    free(dest);
}
