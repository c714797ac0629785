/* Items: the tensors that make up a job's state. Every rank has the same list in the same
 * order, with names, types and whole shapes. Each item lists the boxes of the tensor that this
 * process holds; there may be none (another rank holds it). */
#ifndef CHOIR_ITEMS_H
#define CHOIR_ITEMS_H

#include <choir/optim.h>
#include "checkpoint/boxes.h"

typedef struct choir__item {
    char *name;           /* "fc1.weight", "exp_avg.fc1.weight" */
    choir_tensor *tensor; /* holds the boxes */
    choir_dtype dtype;
    choir_shape whole;
    choir__box *boxes; /* (box_count) that this process can read */
    int box_count;
    bool moment; /* the optimizer's state, not the model's */
    bool buffer; /* may differ between ranks: the first rank that has it counts */
} choir__item;

typedef struct choir__items {
    choir__item *list; /* the model's by name, then the optimizer's by name */
    int count;
    bool parted; /* the module's parameters are distributed over ranks */
} choir__items;

/* optim may be NULL. Collective where choir_optim_visit is. Errors: the run's. */
choir_status choir__items_collect(
    choir__items *items, choir_module *module, choir_optim *optim);
void choir__items_free(choir__items *items);

/* Call after the model's items have received new values: ranks that keep copies of other ranks'
 * parts receive them. Collective if parted. Errors: the run's. */
choir_status choir__items_restored(const choir__items *items, choir_module *module);

/* Reads boxes[box] of an item into data, row-major. Errors: memory, and as choir_read. */
choir_status choir__item_read(const choir__item *item, int box, void *data);

#endif
