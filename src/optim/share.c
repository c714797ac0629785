/* Shares of a part's work: devices that can reach its memory, and would only wait for it, take
 * a run of entries each. Those are the devices of data parallelism's replicas; the strategy
 * knows them. */
#include "optim/optim.h"

enum {
    MAX_HELPERS = 63,
    WORTH_SHARING = 1 << 18 /* elements: about 100 us, and devices meet in a few */
};

static int64_t elements_of(const choir__optim_part *part)
{
    int64_t n = 0;
    for (int i = 0; i < part->entry_count; i++)
        n += part->table[i].n;
    return n;
}

static int find_helpers(
    const choir_optim *o, const choir__optim_part *part, choir_device **helper)
{
    int count = 0;
    int64_t elements = elements_of(part);
    while (elements >= WORTH_SHARING && count < MAX_HELPERS &&
           (helper[count] = choir__strategies_helper(o->run, part->device, count)))
        count++;
    return count;
}

bool choir__optim_is_shared(const choir_optim *o, const choir__optim_part *part)
{
    choir_device *helper[MAX_HELPERS];
    return find_helpers(o, part, helper) > 0;
}

void choir__optim_share(const choir_optim *o, const choir__optim_part *part,
    choir__optim_run_fn *run, const void *args)
{
    choir_device *helper[MAX_HELPERS];
    int count = find_helpers(o, part, helper);
    if (!count) {
        run(o, part, part->device, 0, part->entry_count, args);
        return;
    }
    choir__event ready = choir__queue_record(part->device->queue);
    int64_t left = elements_of(part);
    for (int i = 0, first = 0, end = 0; i <= count; i++, first = end) {
        int64_t each = left / (count + 1 - i), n = 0;
        for (; end < part->entry_count && (i == count || n < each); end++)
            n += part->table[end].n;
        left -= n;
        if (i > 0)
            choir__queue_wait_event(helper[i - 1]->queue, ready);
        if (end > first)
            run(o, part, i ? helper[i - 1] : part->device, first, end - first, args);
    }
    for (int i = 0; i < count; i++)
        choir__queue_wait_event(part->device->queue, choir__queue_record(helper[i]->queue));
}
