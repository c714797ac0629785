/* Counted time: see tally.h. */
#include "device/counts/tally.h"

#include "device/work.h"

/* FLOPs and bytes per second, and seconds of a launch, of a core and of a GPU of our days. What
 * matters is how many FLOPs take as long as a byte: for a core so many that the cuts of gpt2,
 * llama, lstm, cnn and resnet18 are those of the clock, and resnet50's near them. */
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

void choir__tally_note(choir__task *fn, const void *args)
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
