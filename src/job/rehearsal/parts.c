/* The parts of the memory of a rehearsal's fullest device, by kind and name. Only that device's
 * parts are kept: a model of many layers has thousands. */
#include <stdlib.h>

#include "base/base.h"
#include "job/rehearsal/rehearsal.h"

void choir__rehearsal_drop_parts(choir__rehearsal *r)
{
    for (int i = 0; i < r->part_count; i++)
        free(r->parts[i].name);
    free(r->parts);
    r->parts = NULL;
    r->part_count = 0;
}

static void add(const choir_dry_part *part, void *arg)
{
    choir__rehearsal *r = arg;
    CHOIR__GROW(r->parts, r->part_count);
    r->parts[r->part_count++] = (choir__rehearsed_part){
        part->name ? choir__strdup(part->name) : NULL, part->kind, part->bytes};
}

/* Ranks end in any order; of equally full devices the first one counts. */
choir_status choir__rehearsal_note_parts(choir__rehearsal *r, choir_device *device, int i)
{
    const size_t most = r->devices[r->fullest].counts.bytes_peak,
                 peak = r->devices[i].counts.bytes_peak;
    if (r->parts && (peak < most || (peak == most && i > r->fullest)))
        return CHOIR_OK;
    choir__rehearsal_drop_parts(r);
    r->fullest = i;
    return choir_dry_parts(device, add, r);
}
