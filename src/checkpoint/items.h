/* Items: what a job's state is made of. Every rank has the same list, in the same order: names,
 * types and whole shapes; and for each item the boxes of it that this process has, which may be
 * none (it is another rank's). */
#ifndef CHOIR_ITEMS_H
#define CHOIR_ITEMS_H

#include <choir/optim.h>
#include "checkpoint/boxes.h"

typedef struct choir__item {
    char *name;           /* "fc1.weight", "exp_avg.fc1.weight" */
    choir_tensor *tensor; /* which the boxes lie in */
    choir_dtype dtype;
    choir_shape whole;
    choir__box *boxes; /* (box_count) that this process can read */
    int box_count;
    bool moment; /* the optimizer's state, not the model's */
    bool buffer; /* may differ from rank to rank: what the first rank has of it counts */
} choir__item;

typedef struct choir__items {
    choir__item *list; /* the model's by name, then the optimizer's by name */
    int count;
    bool parted; /* the module's parameters are spread over ranks */
} choir__items;

/* optim may be NULL. Collective where choir_optim_visit is. Errors: the run's. */
choir_status choir__items_collect(
    choir__items *items, choir_module *module, choir_optim *optim);
void choir__items_free(choir__items *items);

/* The model's items have new values: where ranks keep copies of each other's parts, they get
 * them. Collective if parted. Errors: the run's. */
choir_status choir__items_restored(const choir__items *items, choir_module *module);

/* data (the box, row-major) = boxes[box] of an item. Errors: memory, those of choir_read. */
choir_status choir__item_read(const choir__item *item, int box, void *data);

#endif
