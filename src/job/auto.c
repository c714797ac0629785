/* --strategy auto: a job's choice between single, ddp and, under a limit of memory, fsdp.
 *
 * Some of it is known when the options are checked: a launcher or --nproc decides the number of
 * ranks. The rest needs the model and the batch, so it waits until the data is open. All
 * have the bits of `single` at the same number of micro-batches; that number is one
 * per rank unless it is declared, and the line about the choice names it. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/usable.h"
#include "job/auto_rule.h"
#include "job/job.h"
#include "nn/module.h"

choir_status choir__job_auto_begin(choir__job *j)
{
    int ranks = j->placement.launched ? j->placement.world : j->placement.nproc;
    if (strncmp(j->placement.strategy_text, "auto", 4) ||
        (j->placement.strategy_text[4] && j->placement.strategy_text[4] != ':'))
        return CHOIR_OK;
    if (j->placement.strategy_text[4])
        return choir__error(
            CHOIR_ERR_ARGUMENT, "--strategy %s: auto has no keys", j->placement.strategy_text);
    if (j->placement.mesh)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--mesh %s: missing --strategy with a name per size, as in --strategy ddp+pipeline",
            j->placement.mesh);
    j->placement.automatic = true;
    j->placement.undecided = !ranks;
    j->placement.strategy_text = ranks > 1 ? "ddp" : "single";
    return CHOIR_OK;
}

/* --- the cost of a step --- */

typedef struct cost {
    double positions; /* at which the average window of the model's convolutions is applied */
    double items, flop;
    int64_t parameters;
    bool batch_norm;
} cost;

/* A matrix is multiplied once per item, or never if it is a table; forward and backward take
 * three products of 2 FLOP per element. */
static void add_parameter(const char *name, choir_tensor *t, void *arg)
{
    cost *c = arg;
    int dims = choir_tensor_ndim(t);
    (void)name;
    c->parameters += choir_tensor_count(t);
    if (dims >= 2)
        c->flop += 6 * (double)choir_tensor_count(t) * (dims == 4 ? c->positions : c->items);
}

static void find_statistics(const char *name, choir_tensor *t, void *arg)
{
    cost *c = arg;
    (void)t;
    c->batch_norm |= strstr(name, "running_mean") != NULL;
}

/* Builds the model without memory, since only its shapes are used. */
static choir_status look(const choir__job *j, cost *step)
{
    choir_device *device = choir_device_find("cpu:0");
    if (!device)
        return CHOIR_ERR_DEVICE;
    choir_scope *run = choir_scope_open(device, j->training.seed);
    choir_module *net = choir_model_build(run, &j->model.info);
    choir_status status = choir_scope_status(run);
    if (status == CHOIR_OK) {
        choir__module_visit_named(net, false, add_parameter, step);
        choir__module_visit_named(net, true, find_statistics, step);
    }
    choir_status closed = choir_scope_close(run);
    return status == CHOIR_OK ? closed : status;
}

/* Looks at the model in a child, because a device that a run has used can no longer change its
 * threads. A model that cannot be built, which the job itself will report, costs nothing. */
static cost look_aside(const choir__job *j)
{
    const choir_shape *in = &j->model.info.input;
    double pixels = in->ndim == 3 ? (double)(in->dim[1] * in->dim[2]) : 0;
    const cost none = {
        .positions = fmax(1, pixels / 256), .items = fmax(1, (double)j->model.info.items)};
    cost step; /* with padding that a pipe carries, too */
    memset(&step, 0, sizeof step);
    step.positions = none.positions;
    step.items = none.items;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return none;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(look(j, &step) != CHOIR_OK ||
              write(ends[1], &step, sizeof step) != (ssize_t)sizeof step);
    close(ends[1]);
    bool seen = child > 0 && read(ends[0], &step, sizeof step) == (ssize_t)sizeof step;
    close(ends[0]);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    return seen ? step : none;
}

/* --- the choice --- */

static choir_status take(choir__job *j, const char *strategy, int ranks)
{
    choir__composition_free(&j->placement.composition);
    j->placement.composition = (choir__composition){0};
    j->placement.strategy_text = strategy;
    j->placement.nproc = ranks;
    choir_status status =
        choir__composition_parse(j->placement.strategy_text, &j->placement.composition);
    if (status == CHOIR_OK)
        j->placement.strategy = choir__composition_strategy(&j->placement.composition);
    return status;
}

choir_status choir__job_auto_end(choir__job *j)
{
    if (!j->placement.undecided)
        return CHOIR_OK;
    bool cores = strncmp(j->placement.device_names[0], "cpu", 3) == 0;
    choir__auto_case c = {.devices = j->placement.device_count,
        .batch = j->training.batch_size,
        .microbatches = j->training.microbatches,
        .cap = (double)j->placement.mem_cap,
        .memory = cores ? choir__usable_memory("") : 0};
    if (cores && !j->placement.devices)
        c.devices = (int)choir__min(c.devices, choir__usable_cores("") / j->placement.threads);
    if (c.devices > 1) {
        cost step = look_aside(j);
        c.parameters = step.parameters;
        c.flop = step.flop * (double)j->training.batch_size;
        c.batch_norm = step.batch_norm;
    }
    int ranks = choir__auto_ranks(&c);
    if (cores && !j->placement.devices &&
        !choir__job_was_given(j, CHOIR__JOB_OPTION(placement.threads)))
        j->placement.threads = choir__auto_threads(&c, ranks);
    return ranks > 1 ? take(j, choir__auto_shards(&c) ? "fsdp" : "ddp", ranks) : CHOIR_OK;
}

char *choir__job_auto_text(const choir__job *j)
{
    const char *kind = strncmp(j->placement.device_names[0], "cpu", 3) ? "GPU" : "core";
    int64_t used = j->placement.nproc * (*kind == 'c' ? j->placement.threads : 1);
    if (*kind == 'c') /* more threads take turns */
        used = choir__min(used, choir__max(choir__usable_cores(""), j->placement.nproc));
    return choir__format(
        "--strategy auto: %s on %lld %s%s; --strategy single --microbatches %lld has the same bits",
        j->placement.strategy_text, (long long)used, kind, used > 1 ? "s" : "",
        (long long)j->training.microbatches);
}
