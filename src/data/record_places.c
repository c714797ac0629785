/* Keeps the file and the line of each record. A file's path is stored once, since the
 * records of a file follow each other, and records are found by binary search over the
 * numbers of their first samples. */
#include "data/record_places.h"

#include <stdlib.h>
#include <string.h>

void choir__data_record_places_add(
    choir__data_record_places *p, const choir__data_record_at *at, int64_t first)
{
    if (!p->file_count || strcmp(p->files[p->file_count - 1], at->path) != 0) {
        CHOIR__GROW(p->files, p->file_count);
        p->files[p->file_count++] = choir__strdup(at->path);
    }
    CHOIR__GROW(p->of, p->count);
    p->of[p->count++] = (struct choir__data_record_place){first, at->line, p->file_count - 1};
}

int64_t choir__data_record_places_find(const choir__data_record_places *p, int64_t at)
{
    int64_t low = 0, high = p->count - 1;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (p->of[middle].first <= at)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

void choir__data_record_places_fill(
    const choir__data_record_places *p, int64_t record, choir_sample_place *place)
{
    const struct choir__data_record_place *of = &p->of[record];
    place->file = p->files[of->file];
    place->line = of->line ? of->line : -1;
    place->document = record;
}

void choir__data_record_places_free(choir__data_record_places *p)
{
    for (int32_t i = 0; i < p->file_count; i++)
        free(p->files[i]);
    free(p->files);
    free(p->of);
    *p = (choir__data_record_places){0};
}
