/* See kernels.h. The table is observed, not written down: each op runs on small operands of
 * each dtype, forward and backward, and the kernels of the device note the way they took
 * (device/cpu/ways.h). An op is as slow as its slowest kernel; that its operands were
 * converted to f32 counts as "widened". */
#include "base/text.h"
#include "cli/check/probes.h"
#include "cli/kernels.h"

#include <stdio.h>
#include <string.h>

#include <choir/choir.h>
#include "line/say.h"
#include "device/cpu/ways.h"

enum { PASSES = 3 };

static const char *const pass_names[PASSES] = {
    "forward", "input's gradient", "weights' gradient"};
static const char *const way_names[] = {
    [CHOIR__OWN] = "own", [CHOIR__WIDENED] = "widened", [CHOIR__REFERENCE] = "reference"};

/* --- running them --- */

/* Returns the slowest way that any kernel took, except copies that convert. */
static choir__way slowest(choir_dtype dtype)
{
    choir__way way = CHOIR__OWN;
    for (int k = 0; k < CHOIR__KERNEL_COUNT; k++)
        if (k != CHOIR__KERNEL_copy && choir__noted_way((choir__kernel_id)k, dtype) > way)
            way = choir__noted_way((choir__kernel_id)k, dtype);
    return way;
}

/* Waits for the device, and forgets how it computed so far. */
static choir_status begin(choir_device *device)
{
    choir_status status = choir_device_sync(device);
    choir__forget_ways();
    return status;
}

/* Stores the way of one pass; 0: forward, 1: the gradient of x, 2: the gradient of w. An op
 * that converts its operands before it computes does so backward, too. */
static choir_status observe(
    choir_scope *step, const choir__probe *p, choir_dtype dtype, int pass, choir__way *way)
{
    choir_device *device = choir_scope_device(step);
    choir_tensor *x = choir__probe_operand(step, p->x, "x", dtype, pass == 1, NULL), *w = NULL;
    if (p->w.ndim)
        w = choir__probe_operand(step, p->w, "w", dtype, pass == 2, NULL);
    choir_status status = begin(device);
    choir_tensor *y = p->op(x, w);
    if (status == CHOIR_OK)
        status = choir_device_sync(device);
    *way = choir__noted_way(CHOIR__KERNEL_copy, dtype);
    if (status == CHOIR_OK && pass > 0) {
        choir_tensor *loss = choir_sum(y);
        status = begin(device);
        if (status == CHOIR_OK)
            status = choir_backward(loss);
        if (status == CHOIR_OK)
            status = choir_device_sync(device);
    }
    if (slowest(dtype) > *way)
        *way = slowest(dtype);
    return status == CHOIR_OK ? choir_scope_status(step) : status;
}

static void print_row(const choir__probe *p, int pass, const choir__way *ways, bool json)
{
    choir__text_buffer t = {0};
    choir__text_open(&t, NULL, '{');
    choir__text_string(&t, "op", p->name);
    choir__text_string(&t, "pass", pass_names[pass]);
    for (size_t d = 0; d < (size_t)CHOIR__PROBE_DTYPES; d++)
        choir__text_string(&t, choir_dtype_name(choir__probe_dtypes[d]), way_names[ways[d]]);
    choir__text_close(&t, '}');
    if (json) {
        choir__text_print(&t, stdout);
    } else {
        printf("%-24s %-18s", p->name, pass_names[pass]);
        for (size_t d = 0; d < (size_t)CHOIR__PROBE_DTYPES; d++)
            printf(d + 1 < (size_t)CHOIR__PROBE_DTYPES ? " %-9s" : " %s", way_names[ways[d]]);
        printf("\n");
    }
    choir__text_buffer_free(&t);
}

static choir_status print_probe(
    choir_scope *run, const choir__probe *p, uint64_t *number, bool json)
{
    choir_status status = CHOIR_OK;
    for (int pass = 0; pass < (p->w.ndim ? PASSES : PASSES - 1); pass++) {
        choir__way ways[(size_t)CHOIR__PROBE_DTYPES] = {0};
        for (size_t d = 0; d < (size_t)CHOIR__PROBE_DTYPES && status == CHOIR_OK; d++) {
            choir_scope *step = choir_step_open(run, (*number)++);
            status = observe(step, p, choir__probe_dtypes[d], pass, &ways[d]);
            choir_status closed = choir_scope_close(step);
            status = status == CHOIR_OK ? closed : status;
        }
        if (status != CHOIR_OK)
            return status;
        print_row(p, pass, ways, json);
    }
    return CHOIR_OK;
}

int choir__cli_print_kernels(bool json)
{
    choir_scope *run = choir_scope_open(choir_device_find("cpu:0"), 1);
    choir_status status = choir_scope_status(run);
    uint64_t number = 0;
    if (!json && status == CHOIR_OK)
        printf("kernels of cpu:0: %s, %s\n\n%-24s %-18s %-9s %-9s %-9s %s\n", choir_cpu_isa(),
            choir__cpu_multiplier(), "op", "pass", "f32", "bf16", "f16", "f64");
    for (const choir__probe *p = choir__probes; p->name && status == CHOIR_OK; p++)
        status = print_probe(run, p, &number, json);
    choir_status closed = choir_scope_close(run);
    status = status == CHOIR_OK ? closed : status;
    if (status != CHOIR_OK)
        return choir__line_fail();
    if (!json)
        printf("\nown: a kernel for this dtype. widened: operands become f32. reference: slow, "
               "for checks alone.\n");
    return CHOIR__EXIT_OK;
}
