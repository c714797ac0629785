/* See summary.h. A forward of zeros passes hooks, which note each module's output and the FLOPs
 * that the device's profile has counted since the module began. One whole step then says how
 * much memory the weights, their gradients, the optimizer and the activations take. */
#include "cli/summary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <choir/autograd.h>
#include <choir/trace.h>
#include "base/text.h"
#include "line/terminal.h"
#include "line/say.h"

typedef struct line {
    const choir_module *module;
    int depth;
    char shape[64];
    int64_t parameters;
    double flops, before; /* flops: FLOPs of its forwards; before: FLOPs of the profile when the
                             latest began */
    int calls;
} line;

typedef struct summary {
    const choir__job *job;
    choir_scope *run;
    choir_device *device;
    choir_module *net;
    choir_optim *optim;
    choir_trace *trace;
    line *lines;
    int count;
    int64_t state_bytes, peak_bytes;
} summary;

/* --- lines --- */

static void count_param(const char *name, choir_tensor *t, void *arg)
{
    (void)name;
    *(int64_t *)arg += choir_tensor_count(t);
}

static void add_line(choir_module *m, void *arg)
{
    summary *s = arg;
    CHOIR__GROW(s->lines, s->count);
    line *l = &s->lines[s->count++];
    *l = (line){.module = m};
    for (const choir_module *at = m->parent; at; at = at->parent)
        l->depth++;
    choir_module_visit(m, false, count_param, &l->parameters);
}

static line *line_of(summary *s, const choir_module *m)
{
    for (int i = 0; i < s->count; i++)
        if (s->lines[i].module == m)
            return &s->lines[i];
    return NULL;
}

static double flops_so_far(const summary *s)
{
    int count;
    double flops = 0;
    const choir_trace_line *lines = choir_trace_profile(s->trace, &count);
    for (int i = 0; i < count; i++)
        flops += lines[i].flops;
    return flops;
}

static void before_forward(choir_module *m, choir_tensor *const *in, int count, void *arg)
{
    summary *s = arg;
    (void)in, (void)count;
    line_of(s, m)->before = flops_so_far(s);
}

/* "(32, 64, 128)" */
static void write_shape(char *text, size_t bytes, const choir_tensor *t)
{
    size_t used = (size_t)snprintf(text, bytes, "(");
    for (int d = 0; d < choir_tensor_ndim(t) && used < bytes; d++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%lld", d ? ", " : "",
            (long long)choir_tensor_size(t, d));
    if (used < bytes)
        snprintf(text + used, bytes - used, ")");
}

static void after_forward(choir_module *m, choir_tensor *out, void *arg)
{
    summary *s = arg;
    line *l = line_of(s, m);
    l->flops += flops_so_far(s) - l->before;
    l->calls++;
    write_shape(l->shape, sizeof l->shape, out);
}

static void hook(choir_module *m, void *arg)
{
    choir_module_hook(m,
        (choir_module_hooks){.before_forward = before_forward, .after_forward = after_forward},
        arg);
}

/* --- a micro-batch of zeros --- */

static choir_tensor *zeros(choir_scope *s, choir_dtype dtype, choir_shape sample, int64_t n)
{
    choir_shape shape = {.ndim = sample.ndim + 1, .dim = {n}};
    memcpy(&shape.dim[1], sample.dim, (size_t)sample.ndim * sizeof sample.dim[0]);
    return choir_zeros(s, dtype, shape);
}

static choir_tensor *loss_of(const summary *s, choir_scope *scope)
{
    const choir_dataset *d = s->job->data.train;
    int64_t n = s->job->training.batch_size / s->job->training.microbatches;
    choir_tensor *x = zeros(scope, d->x_dtype, d->x_shape, n),
                 *y = zeros(scope, d->y_dtype, d->y_shape, n);
    return choir_model_loss(
        &s->job->model.info, choir_model_forward(&s->job->model.info, s->net, x, y), y);
}

/* Runs the forward that the hooks see. */
static choir_status run_forward(summary *s)
{
    choir_module_each(s->net, add_line, s);
    choir_module_each(s->net, hook, s);
    choir_trace_device(s->trace, s->device);
    choir_scope *scope = choir_no_grad(s->run);
    loss_of(s, scope);
    choir_status status = choir_scope_status(scope), closed = choir_scope_close(scope);
    return status == CHOIR_OK ? closed : status;
}

static void count_state(const char *name, choir_tensor *t, void *arg)
{
    (void)name;
    *(int64_t *)arg += choir_tensor_count(t) * (int64_t)choir_dtype_size(choir_tensor_dtype(t));
}

static choir_status run_step(summary *s, int64_t number)
{
    choir_scope *step = choir_step_open(s->run, number);
    choir_status status = choir_backward(loss_of(s, step));
    if (status == CHOIR_OK)
        status = choir_optim_step(s->optim);
    choir_status closed = choir_scope_close(step);
    return status == CHOIR_OK ? closed : status;
}

/* Runs steps without hooks, whose peak of memory the device notes. The optimizer makes its
 * state in the first one, so that the second has all there is. */
static choir_status run_steps(summary *s)
{
    choir_status status = run_step(s, 0);
    if (status == CHOIR_OK)
        status = run_step(s, 1);
    if (status == CHOIR_OK)
        status = choir_device_sync(s->device);
    choir_optim_visit(s->optim, count_state, &s->state_bytes);
    choir_device_stats stats;
    choir_device_get_stats(s->device, &stats);
    s->peak_bytes = (int64_t)stats.bytes_peak;
    return status;
}

static choir_status build(summary *s)
{
    s->net = choir_model_build(s->run, &s->job->model.info);
    choir_status status = choir_scope_status(s->run);
    if (status == CHOIR_OK)
        status = choir__job_freeze(s->job, s->net);
    if (status == CHOIR_OK && s->job->optim.recompute)
        choir_module_recompute_blocks(s->net, true);
    return status == CHOIR_OK ? choir__job_optimizer(s->job, s->run, s->net, &s->optim)
                              : status;
}

/* --- printing --- */

/* "1,234,567" */
static const char *grouped(int64_t n, char text[32])
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)n), at = 0;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = '\0';
    return text;
}

enum { OTHER_COLUMNS = 2 + 14 + 2 + 20 + 2 + 14 + 2 + 10 }; /* columns after the name */

static const char *name_of(const line *l)
{
    return *l->module->name ? l->module->name : "model";
}

static void print_line(const line *l, int width)
{
    char count[32];
    int indent = 2 * l->depth;
    printf("%*s%-*s  %-14s  %-20s  %14s  ", indent, "", width - indent, name_of(l),
        l->module->type->name, l->calls ? l->shape : "-", grouped(l->parameters, count));
    if (l->flops > 0)
        printf("%10.4g\n", l->flops * 1e-6);
    else
        printf("%10s\n", "-");
}

/* Prints the module without columns, where the terminal has no room for them. Of a long name
 * the end stays, since the modules around this one are above it. */
static void print_narrow(const line *l, int columns)
{
    enum { LEAST = 12 };
    char count[32];
    const char *name = name_of(l);
    int indent = (int)choir__min(2 * l->depth, choir__max(columns - LEAST, 0)),
        room = columns - indent, length = (int)strlen(name);
    bool cut = length > room;
    choir__paragraph p;
    choir__paragraph_begin(&p);
    fprintf(
        p.out, "%*s%s%s\n", indent, "", cut ? "..." : "", name + (cut ? length - room + 3 : 0));
    fprintf(p.out, "%*s  %s", indent, "", l->module->type->name);
    if (l->calls)
        fprintf(p.out, " %s", l->shape);
    if (l->parameters)
        fprintf(p.out, ", %s parameters", grouped(l->parameters, count));
    if (l->flops > 0)
        fprintf(p.out, ", %.4g MFLOP", l->flops * 1e-6);
    fprintf(p.out, "\n");
    choir__paragraph_end(&p, stdout);
}

static void print_table(const summary *s)
{
    int width = 6, columns = choir__fold_columns(STDOUT_FILENO);
    for (int i = 0; i < s->count; i++) {
        int w = 2 * s->lines[i].depth + (int)strlen(s->lines[i].module->name);
        width = w > width ? w : width;
    }
    if (width > columns - OTHER_COLUMNS) {
        for (int i = 0; i < s->count; i++)
            print_narrow(&s->lines[i], columns);
        return;
    }
    printf("%-*s  %-14s  %-20s  %14s  %10s\n", width, "module", "class", "output", "parameters",
        "MFLOP");
    for (int i = 0; i < s->count; i++)
        print_line(&s->lines[i], width);
}

typedef struct totals {
    int64_t parameters, trainable, weight_bytes, gradient_bytes, state_bytes, peak_bytes;
    double flops;
} totals;

static void print_totals(const summary *s, const totals *t)
{
    char all[32], trained[32];
    const double mib = 1048576;
    choir__paragraph p;
    choir__paragraph_begin(&p);
    fprintf(p.out,
        "\n%s parameters, %s of them trained; a forward of %lld samples: %.4g MFLOP\n",
        grouped(t->parameters, all), grouped(t->trainable, trained),
        (long long)(s->job->training.batch_size / s->job->training.microbatches),
        t->flops * 1e-6);
    fprintf(p.out,
        "memory of a step on one device: weights %.1f MiB, gradients %.1f, optimizer %.1f, "
        "activations and all else %.1f; at most %.1f MiB\n",
        (double)t->weight_bytes / mib, (double)t->gradient_bytes / mib,
        (double)t->state_bytes / mib,
        (double)choir__max(
            t->peak_bytes - t->weight_bytes - t->gradient_bytes - t->state_bytes, 0) /
            mib,
        (double)t->peak_bytes / mib);
    choir__paragraph_end(&p, stdout);
}

static void print_json(const summary *s, const totals *t)
{
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {{"weight_bytes", t->weight_bytes}, {"gradient_bytes", t->gradient_bytes},
        {"state_bytes", t->state_bytes}, {"peak_bytes", t->peak_bytes}};
    choir__text_buffer out = {0};
    for (int i = 0; i < s->count; i++) {
        const line *l = &s->lines[i];
        choir__text_open(&out, NULL, '{');
        choir__text_string(&out, "event", "module");
        choir__text_string(&out, "path", l->module->path ? l->module->path : "");
        choir__text_string(&out, "class", l->module->type->name);
        choir__text_string(&out, "output", l->shape);
        choir__text_value(&out, "parameters", "%lld", (long long)l->parameters);
        choir__text_value(&out, "flops", "%.17g", l->flops);
        choir__text_close(&out, '}');
        choir__text_print(&out, stdout);
    }
    choir__text_open(&out, NULL, '{');
    choir__text_string(&out, "event", "model");
    choir__text_value(&out, "parameters", "%lld", (long long)t->parameters);
    choir__text_value(&out, "trainable", "%lld", (long long)t->trainable);
    choir__text_value(&out, "samples", "%lld",
        (long long)(s->job->training.batch_size / s->job->training.microbatches));
    choir__text_value(&out, "flops", "%.17g", t->flops);
    for (size_t i = 0; i < CHOIR_COUNT(sizes); i++)
        choir__text_value(&out, sizes[i].key, "%lld", (long long)sizes[i].value);
    choir__text_finish(&out, stdout);
}

static totals totals_of(const summary *s)
{
    totals t = {.trainable = choir_module_param_count(s->net),
        .parameters = s->lines[0].parameters,
        .flops = s->lines[0].flops,
        .state_bytes = s->state_bytes,
        .peak_bytes = s->peak_bytes};
    t.weight_bytes = t.parameters * (int64_t)sizeof(float);
    t.gradient_bytes = t.trainable * (int64_t)sizeof(float);
    return t;
}

choir_status choir__summary(const choir__job *j)
{
    summary s = {.job = j, .device = choir_device_find(j->placement.device_names[0])};
    if (!s.device)
        return CHOIR_ERR_DEVICE;
    s.run = choir_scope_open(s.device, j->training.seed);
    s.trace = choir_trace_new(1);
    choir_status status = build(&s);
    if (status == CHOIR_OK)
        status = run_steps(&s);
    totals t = {0};
    if (status == CHOIR_OK)
        status = run_forward(&s);
    if (status == CHOIR_OK) {
        t = totals_of(&s);
        if (j->records.json) {
            print_json(&s, &t);
        } else {
            print_table(&s);
            print_totals(&s, &t);
        }
        status = choir__line_flush();
    }
    choir_trace_free(s.trace);
    choir_status closed = choir_scope_close(s.run);
    free(s.lines);
    return status == CHOIR_OK ? closed : status;
}
