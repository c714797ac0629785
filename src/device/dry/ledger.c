/* Rows of bytes by owner's name, with a column for each use of memory. Every change of the
 * pool is one addition; the rows are copied when the peak is left, so that reports show who
 * held the memory at the worst moment. */
#include "device/dry/ledger.h"

#include <stdlib.h>
#include <string.h>

#include "base/files/map.h"

struct choir__dry_ledger {
    choir__map names;                 /* index of each row's name */
    choir__dry_ledger_row *now, *top; /* (count), (top_count): now, and at the peak */
    int count, top_count;
    size_t of_use[CHOIR__MEMORY_USES]; /* sums of the rows now */
};

choir__dry_ledger *choir__dry_ledger_new(void)
{
    choir__dry_ledger *l = choir__calloc(1, sizeof *l);
    CHOIR__GROW(l->now, l->count);
    l->now[l->count++] = (choir__dry_ledger_row){0}; /* the row of no one */
    return l;
}

void choir__dry_ledger_free(choir__dry_ledger *l)
{
    if (!l)
        return;
    choir__map_free(&l->names);
    for (int i = 0; i < l->count; i++)
        free(l->now[i].name);
    free(l->now);
    free(l->top);
    free(l);
}

choir__dry_ledger_line choir__dry_ledger_line_of(
    choir__dry_ledger *l, choir__memory_use use, const char *name)
{
    const int64_t known = name ? choir__map_find(&l->names, name) : 0;
    if (known >= 0)
        return (choir__dry_ledger_line){(int)known, use};
    CHOIR__GROW(l->now, l->count);
    l->now[l->count] = (choir__dry_ledger_row){.name = choir__strdup(name)};
    choir__map_put(&l->names, l->now[l->count].name, l->count);
    return (choir__dry_ledger_line){l->count++, use};
}

void choir__dry_ledger_add(
    choir__dry_ledger *l, choir__memory_kind kind, choir__dry_ledger_line line, ptrdiff_t bytes)
{
    choir__dry_ledger_row *row = &l->now[line.name];
    row->of_kind[kind] += (size_t)bytes;
    if (kind == CHOIR__MEMORY_OTHER) {
        row->of_use[line.use] += (size_t)bytes;
        l->of_use[line.use] += (size_t)bytes;
    }
}

const size_t *choir__dry_ledger_uses(const choir__dry_ledger *l)
{
    return l->of_use;
}

void choir__dry_ledger_keep(choir__dry_ledger *l)
{
    l->top = choir__realloc(l->top, (size_t)l->count * sizeof *l->top);
    memcpy(l->top, l->now, (size_t)l->count * sizeof *l->top);
    l->top_count = l->count;
}

const choir__dry_ledger_row *choir__dry_ledger_peak(const choir__dry_ledger *l, int *count)
{
    *count = l->top_count;
    return l->top;
}
