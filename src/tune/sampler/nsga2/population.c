/* NSGA-II's selection: fronts are taken off one after another, each member gets the room
 * between its neighbours by each objective, and all are sorted by front, then by room, then by
 * number. */
#include "tune/sampler/nsga2/population.h"

#include <math.h>
#include <stdlib.h>

#include "tune/pareto.h"

bool choir__individual_better(const choir__individual *a, const choir__individual *b)
{
    if (a->rank != b->rank)
        return a->rank < b->rank;
    return a->room > b->room;
}

static int by_merit(const void *a, const void *b)
{
    const choir__individual *x = a, *y = b;
    if (choir__individual_better(x, y) || choir__individual_better(y, x))
        return choir__individual_better(x, y) ? -1 : 1;
    return (x->trial->number > y->trial->number) - (x->trial->number < y->trial->number);
}

/* Adds to each member of a front the distance between its neighbours by one objective, whose
 * ends have infinite room. line: (count) scratch: places in
 * the front by their values of the objective */
static void add_room(
    choir__individual *front, int64_t count, int objective, choir__ranked *line)
{
    for (int64_t i = 0; i < count; i++)
        line[i] = (choir__ranked){i, front[i].trial->values[objective]};
    qsort(line, (size_t)count, sizeof *line, choir__by_value);
    double width = line[count - 1].value - line[0].value;
    if (width == 0 || isnan(width))
        return;
    for (int64_t i = 0; i < count; i++) {
        bool inner = i > 0 && i < count - 1;
        double gap = inner ? line[i + 1].value - line[i - 1].value : (double)INFINITY;
        if (gap > 0)
            front[line[i].number].room += isinf(gap) ? gap : gap / width;
    }
}

/* Moves to the front of `all` those that none of `all` dominates; returns how many there are.
 */
static int64_t take_front(
    choir__individual *all, int64_t count, const double *sign, int objectives)
{
    int64_t taken = 0;
    bool *dominated = choir__calloc((size_t)count, sizeof *dominated);
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < count && !dominated[i]; k++)
            dominated[i] = choir__dominates(all[k].trial, all[i].trial, sign, objectives);
    for (int64_t i = 0; i < count; i++)
        if (!dominated[i]) {
            choir__individual moved = all[taken];
            all[taken++] = all[i];
            all[i] = moved;
            dominated[i] = true; /* like the one that was moved there */
        }
    free(dominated);
    return taken;
}

void choir__population_rank(
    choir__individual *all, int64_t count, const double *sign, int objectives)
{
    choir__ranked *line = choir__alloc((size_t)count * sizeof *line);
    for (int64_t done = 0, rank = 0; done < count; rank++) {
        choir__individual *front = all + done;
        int64_t size = take_front(front, count - done, sign, objectives);
        for (int64_t i = 0; i < size; i++)
            front[i].rank = rank, front[i].room = 0;
        for (int k = 0; k < objectives; k++)
            add_room(front, size, k, line);
        done += size;
    }
    free(line);
    qsort(all, (size_t)count, sizeof *all, by_merit);
}
