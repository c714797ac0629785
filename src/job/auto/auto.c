/* --strategy auto: a job's choice of its devices, their mesh and its strategy.
 *
 * The choice needs the model and the batch, so it waits until the data is open. A child of the
 * process makes it, because rehearsals leave traces: devices that are used, tensors, a
 * heap. All that it may choose has one device's bits at the same cut. The cut itself is the
 * declared one or follows from the job alone (microbatches.c), so a hash does not depend on
 * the machine.
 * Ranks that a launcher has started do not choose: each would have to choose alike. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/usable.h"
#include "job/auto/auto.h"
#include "nn/module.h"

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

/* Builds the model for its shapes, on a dry device. */
static choir_status look(const choir__job *j, cost *step)
{
    choir_device *device = choir_device_find("dry:0");
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

/* --- the choice, in a child --- */

/* Standard input is read once, and not by a rehearsal: random samples have its sizes. */
static choir_status replace_stream(choir__job *j)
{
    choir_data_opts opts = choir_data_defaults();
    choir_data data;
    if (!choir__job_is_stream(&j->data))
        return CHOIR_OK;
    choir_status status =
        choir_model_data(j->model.name, "random", opts, &j->model.info, &data);
    if (status != CHOIR_OK)
        return status;
    j->data.path = "random";
    j->data.stream = NULL;
    j->data.train = data.train;
    j->data.validation = data.validation;
    return CHOIR_OK;
}

static int count_devices(const choir__job_placement *p)
{
    if (p->devices || strncmp(p->device_names[0], "cpu", 3))
        return p->device_count;
    return (int)choir__max(
        1, choir__min(p->device_count, choir__usable_cores("") / p->threads));
}

static void decide(choir__job *j, struct choir__auto_choice *c)
{
    const choir_shape *in = &j->model.info.input;
    const double pixels = in->ndim == 3 ? (double)(in->dim[1] * in->dim[2]) : 0;
    cost step = {
        .positions = fmax(1, pixels / 256), .items = fmax(1, (double)j->model.info.items)};
    choir_status status = look(j, &step);
    const double flop = step.flop * (double)j->training.batch_size;
    if (status == CHOIR_OK && !j->training.microbatches)
        j->training.microbatches =
            j->placement.asked_ranks
                ? j->placement.asked_ranks
                : choir__auto_cut(&(choir__auto_case){.batch = j->training.batch_size,
                      .flop = flop,
                      .parameters = step.parameters,
                      .batch_norm = step.batch_norm,
                      .cap = (double)j->placement.mem_cap});
    if (status == CHOIR_OK)
        status = replace_stream(j);
    if (status == CHOIR_OK)
        choir__auto_choose(j, count_devices(&j->placement), j->placement.asked_ranks, flop, c);
    else
        c->status = status, snprintf(c->words, sizeof c->words, "%s", choir_error_message());
}

static bool tell(int fd, const void *data, size_t bytes)
{
    return write(fd, data, bytes) == (ssize_t)bytes; /* less than a pipe takes at once */
}

/* Returns false if the child could not say anything. */
static bool ask_child(choir__job *j, struct choir__auto_choice *c)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        decide(j, c);
        _exit(!tell(ends[1], c, sizeof *c));
    }
    close(ends[1]);
    const bool told = child > 0 && read(ends[0], c, sizeof *c) == (ssize_t)sizeof *c;
    close(ends[0]);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    return told;
}

/* --- the job --- */

static choir_status take(choir__job *j, const struct choir__auto_choice *c)
{
    j->training.microbatches = c->microbatches;
    j->placement.threads = c->threads;
    j->placement.strategy_text = c->form.strategy;
    j->placement.mesh = *c->form.mesh ? c->form.mesh : NULL;
    j->placement.nproc = c->form.ranks;
    return choir__job_settle_place(j);
}

choir_status choir__job_auto_end(choir__job *j)
{
    if (!j->placement.undecided || j->placement.rehearsal)
        return CHOIR_OK;
    struct choir__auto_choice *c = choir__calloc(1, sizeof *c);
    free(j->placement.choice);
    j->placement.choice = c;
    if (!ask_child(j, c))
        return choir__error(CHOIR_ERR_IO,
            "--strategy auto: the process that was to choose said nothing; name a strategy");
    return c->status == CHOIR_OK ? take(j, c) : choir__error(c->status, "%s", c->words);
}
