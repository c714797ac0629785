/* A training job fills its log (choir/log.h): a row per step, events, and on request
 * histograms. */
#include "job/report/run_log.h"

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
#include "base/files/run_files.h"
#include "job/document/document.h"
#include "job/job_rank.h"
#include "job/peer_devices.h"
#include "line/command.h"
#include "job/report/own.h"
#include "record/recorder.h"

struct choir__run_log {
    const choir__job *job;
    choir_logger *log;
    /* seconds in kernels of each device at the last row */
    double busy_before[CHOIR__MAX_DEVICES], since;
    choir__peer_devices peers;
    int64_t last; /* the last step that was recorded */
};

const char *choir__run_log_folder(const choir__job *j)
{
    return j->records.run ? j->records.run : j->saves.dir;
}

/* Says, once for each destination, that the record is not whole. */
static void look(const choir__run_log *r, choir_status status)
{
    if (status == CHOIR_OK)
        return;
    choir__job_tell(
        r->job, "warning: %s; training continues without this record", choir_error_message());
    if (r->job->records.unrecorded)
        atomic_store(r->job->records.unrecorded, 1);
}

/* --- opening --- */

/* Returns the id of the run whose folder this is, or NULL; the caller frees it. */
static char *id_in(const char *folder)
{
    json_t *root = choir__file_json_in(folder, CHOIR__JOB_FILE);
    const char *found = json_string_value(json_object_get(json_object_get(root, "run"), "id"));
    char *id = found ? choir__strdup(found) : NULL;
    json_decref(root);
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
static void put_params(choir__run_log *r)
{
    for (const choir__line_option *o = choir__job_options; o->name; o++) {
        char *text = o->recorded ? choir__job_option_text(r->job, o, CHOIR__BRIEF) : NULL;
        if (text)
            look(r, choir_log_param(r->log, o->name, text));
        free(text);
    }
}

static void add_destinations(choir__run_log *r)
{
    if (r->job->records.own)
        choir__log_add_recorder(r->log, choir__own_recorder(&r->job->records));
    const char *folder = choir__run_log_folder(r->job);
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

choir__run_log *choir__run_log_open(
    const choir__job *j, choir__run_log_start from, int64_t parameters, double start_s)
{
    if (!choir__job_is_logged(j))
        return NULL;
    choir__run_log *r = choir__calloc(1, sizeof *r);
    const char *folder = choir__run_log_folder(j),
               *slash = folder ? strrchr(folder, '/') : NULL;
    char *id = from.goes_on && folder ? id_in(folder) : NULL;
    id = id ? id : new_id();
    char *job = choir__job_text(j, id);
    choir_log_opts opts = choir_log_defaults();
    opts.name = slash && slash[1] ? slash + 1 : folder;
    opts.id = id;
    opts.job = job;
    opts.resume = from.step;
    opts.goes_on = from.goes_on;
    opts.evaluates_again = from.evaluates_again;
    r->job = j;
    r->since = choir__now();
    look(r, choir_log_open(NULL, opts, &r->log));
    if (r->log) {
        add_destinations(r);
        put_params(r);
        choir__run_log_tell(
            r, CHOIR__TOLD(begin, .step = from.step, .strategy = j->placement.strategy_text,
                   .world = choir__job_strategy_workers(&j->placement), .resumed = from.goes_on,
                   .parameters = parameters, .start_s = start_s,
                   .run_s = isnan(start_s) ? start_s : choir__line_uptime()));
    }
    free(job);
    free(id);
    return r;
}

/* --- rows --- */

static void put_memory(
    choir__run_log *r, int rank, const char *device, const choir__told_memory *figures)
{
    char prefix[80];
    snprintf(prefix, sizeof prefix, "device/%d/%s/", rank, device);
    look(r, choir__log_numbers(r->log, prefix, &choir__kind_memory, figures));
}

static void put_peer(int rank, const choir__seen_device *device, double busy, void *arg)
{
    const uint64_t *of_kind = device->of_kind;
    put_memory(arg, rank, device->name,
        &(choir__told_memory){.bytes = (double)device->now,
            .peak_bytes = (double)device->peak,
            .weights_bytes = (double)of_kind[CHOIR__MEMORY_WEIGHTS],
            .gradients_bytes = (double)of_kind[CHOIR__MEMORY_GRADIENTS],
            .optimizer_bytes = (double)of_kind[CHOIR__MEMORY_OPTIMIZER],
            .busy = busy});
}

/* Memory of this process's devices, and the share of the time since the last row that they
 * computed; at intervals also the other ranks' on this machine. */
static void put_devices(choir__run_log *r, const choir__job_rank *part)
{
    double now = choir__now(), elapsed = now - r->since;
    for (int i = 0; i < part->device_count; i++) {
        choir_device_stats stats;
        choir_device_get_stats(part->devices[i], &stats);
        double busy = (stats.busy_s - r->busy_before[i]) / elapsed;
        put_memory(r, part->env.rank, choir_device_name(part->devices[i]),
            &(choir__told_memory){.bytes = (double)stats.bytes_now,
                .peak_bytes = (double)stats.bytes_peak,
                .weights_bytes = (double)stats.bytes_weights,
                .gradients_bytes = (double)stats.bytes_gradients,
                .optimizer_bytes = (double)stats.bytes_optimizer,
                .busy = r->busy_before[i] > 0 && elapsed > 0 ? fmin(1, busy) : (double)NAN});
        r->busy_before[i] = stats.busy_s;
    }
    r->since = now;
    choir__peer_devices_look(&r->peers, part->env.world, put_peer, r);
}

typedef struct tensors {
    choir__run_log *record;
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

/* Tables begin with these numbers, which then get their values in the form of logs. */
static void put_first_columns(choir__run_log *r, const choir__told_step *s)
{
    if (s->loss_bits) /* NaN stays one: the step has a loss */
        look(r, choir_log_number(r->log, CHOIR__KEY(step, loss), s->loss));
    look(r, choir_log_number(r->log, CHOIR__KEY(step, lr), s->lr));
    if (!isnan(s->grad_norm))
        look(r, choir_log_number(r->log, CHOIR__KEY(step, grad_norm), s->grad_norm));
}

void choir__run_log_step(
    choir__run_log *r, const choir__told_step *s, const choir__job_rank *part)
{
    if (!r || !r->log || s->step <= r->last) /* repeated after a loss of ranks */
        return;
    r->last = s->step;
    put_first_columns(r, s);
    look(r, choir__log_numbers(r->log, "", &choir__kind_step, s));
    put_devices(r, part);
    look(r, choir_log_step(r->log, s->step));
    if (r->job->records.reached)
        atomic_store(r->job->records.reached, s->step);
    int64_t each = r->job->records.log_histograms;
    tensors all = {r, s->step, CHOIR_OK};
    if (each && s->step % each == 0)
        choir_module_visit(part->net, false, put_tensor, &all);
    look(r, all.status);
}

void choir__run_log_tell(choir__run_log *r, const choir__event_kind *kind, const void *told)
{
    if (r && r->log)
        look(r, choir__log_tell(r->log, kind, told));
}

void choir__run_log_failure(choir__run_log *r, int64_t step, choir_status status)
{
    if (!r || !r->log)
        return;
    char *why = choir__strdup(choir_error_message()); /* an error here must not replace it */
    if (status == CHOIR_ERR_INTERRUPTED)
        choir__run_log_tell(r, CHOIR__TOLD(interrupted, .step = step, .message = why));
    else
        choir__run_log_tell(r, CHOIR__TOLD(failure, .step = step, .message = why));
    if (r->job->records.recorded)
        atomic_store(r->job->records.recorded, 1);
    choir__set_message(why);
    free(why);
}

void choir__run_log_spoil(choir__run_log *r)
{
    if (r)
        choir__log_end_badly(r->log);
}

void choir__run_log_close(choir__run_log *r)
{
    if (!r)
        return;
    char *why = choir__strdup(choir_error_message());
    choir_status status = choir_log_close(r->log);
    if (status != CHOIR_OK && r->job->records.unrecorded &&
        !atomic_load(r->job->records.unrecorded))
        look(r, status); /* the record failed in its end only */
    choir__set_message(why);
    choir__peer_devices_free(&r->peers);
    free(why);
    free(r);
}

void choir__run_log_loss(const choir__job *j)
{
    const char *folder = choir__run_log_folder(j);
    choir__job only = *j;
    only.records.logs = NULL;
    only.records.unrecorded = only.records.recorded = NULL;
    char *dest = folder ? choir__format("run:%s", folder) : NULL;
    choir__run_log r = {.job = &only};
    choir_log_opts opts = choir_log_defaults();
    opts.goes_on = true;
    opts.resume = INT64_MAX; /* all that is there stays */
    char *why = choir__strdup(choir_error_message());
    if ((dest || j->records.own) && choir_log_open(dest, opts, &r.log) == CHOIR_OK) {
        if (j->records.own)
            choir__log_add_recorder(r.log, choir__own_recorder(&j->records));
        choir__set_message(why);
        int64_t step = only.records.reached ? atomic_load(only.records.reached) : 0;
        choir__run_log_failure(&r, step, CHOIR_ERR_PEER_LOST);
        (void)!choir_log_close(r.log);
    }
    choir__set_message(why);
    free(why);
    free(dest);
}
