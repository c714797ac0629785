/* Adds up the estimated seconds of the kernels that a thread issues, from their FLOPs and
 * bytes at fixed rates, one set for processors and one for GPUs. The rates are constants, so
 * a pipeline is cut alike on every machine. */
#include "device/counts/tally.h"

#include "device/work.h"

/* FLOPs and bytes per second, and seconds of a launch: a core's and a GPU's. Their ratio
 * decides cuts: with the core's, gpt2, llama, lstm, cnn and resnet18 have the clock's cuts, and
 * resnet50 nearly. */
static const struct {
    double flops, bytes, launch;
} core = {6e10, 2e9, 1e-6}, card = {3e14, 2.5e12, 4e-6};

static _Thread_local const choir_device *counted;
static _Thread_local double seconds;

void choir__tally_count(const choir_device *device)
{
    counted = device;
}

double choir__tally_take(void)
{
    double taken = seconds;
    seconds = 0;
    return taken;
}

void choir__tally_note(choir__queue_task *fn, const void *args)
{
    if (!counted)
        return;
    const choir__kernel_id id = choir__kernel_of(counted, fn);
    if (id == CHOIR__KERNEL_COUNT)
        return;
    const choir__kernel_work work = choir__kernel_work_by(id, args);
    seconds += counted->far ? card.launch + work.flops / card.flops + work.bytes / card.bytes
                            : core.launch + work.flops / core.flops + work.bytes / core.bytes;
}
