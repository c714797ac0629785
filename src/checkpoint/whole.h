/* Whole tensors of modules that are distributed over ranks, gathered on rank 0 one at a
 * time. */
#ifndef CHOIR_WHOLE_H
#define CHOIR_WHOLE_H

#include "checkpoint/plan.h"

typedef struct choir__wholes {
    choir_group *group;
    choir__items items; /* the model's, by name */
    choir__save_plan plan;
    char *room; /* rank 0: memory for the largest item */
    char *part; /* memory for the largest part that is not all of an item on rank 0 */
} choir__wholes;

/* Collective. Errors: those of choir__plan_make, memory. */
choir_status choir__wholes_open(
    choir__wholes *wholes, choir_module *module, choir_group *group);
/* Sets *data on rank 0 to all of items.list[item], valid until the next call; NULL on other
 * ranks. Collective: all ranks ask for the same items in the same order. */
choir_status choir__wholes_get(choir__wholes *wholes, int item, const void **data);
void choir__wholes_close(choir__wholes *wholes);

#endif
