/* The hashes of the parts of tensors that this rank holds, and how they join to hashes of
 * modules. */
#ifndef CHOIR_AUDIT_PARTS_H
#define CHOIR_AUDIT_PARTS_H

#include <choir/group.h>

#include "checkpoint/items.h"
#include "device/kernels.h"
#include "optim/optim.h"

/* Kinds of hashes. A line of a chain has one list of hashes per kind, with a hash per module,
 * or per micro-batch for batches and losses. */
typedef enum choir__audit_kind {
    CHOIR__AUDIT_READ_WEIGHTS, /* weights, as the step read them */
    CHOIR__AUDIT_READ_STATE,
    CHOIR__AUDIT_BATCH,   /* the bytes of samples */
    CHOIR__AUDIT_SAMPLES, /* which samples */
    CHOIR__AUDIT_LOSSES,
    CHOIR__AUDIT_GRADIENTS,
    CHOIR__AUDIT_WEIGHTS, /* weights after the step */
    CHOIR__AUDIT_STATE,
    CHOIR__AUDIT_KINDS,
    /* In no line: what a rank had left in memory before it has read something else. */
    CHOIR__AUDIT_LEFT_WEIGHTS = CHOIR__AUDIT_KINDS,
    CHOIR__AUDIT_LEFT_STATE,
    CHOIR__AUDIT_UPDATED /* weights and state that the update read, and those from before it */
} choir__audit_kind;

/* The hash of a box of a tensor, in the form in which ranks exchange it. */
typedef struct choir__audit_part {
    uint64_t name, region; /* hashes of the tensor's name, and of the box's place */
    uint64_t hash;
    int64_t count, whole; /* elements of the box and of the tensor */
    int32_t kind, module; /* module: position in choir__audit_names, or the micro-batch */
    int32_t rank;         /* set where the parts of all ranks come together */
    int32_t buffer;       /* 1: ranks may differ */
} choir__audit_part;

typedef struct choir__audit_parts {
    choir__audit_part *list;
    int count;
} choir__audit_parts;

/* The modules of a training, by the names of their tensors. */
typedef struct choir__audit_names {
    char **list;
    int count;
} choir__audit_names;

/* Lists the modules that have weights of their own, in the order of the items. */
void choir__audit_names_of(choir__audit_names *names, const choir__items *items);
void choir__audit_names_free(choir__audit_names *names);
/* Returns whether a tensor is of one of the modules; others have no hashes, such as what
 * workers of DiLoCo keep for their next meeting. */
bool choir__audit_names_have(const choir__audit_names *names, const choir__item *item);

/* A kernel call that adds to a part's hash, or the optimizer's sums that stand for it. */
typedef struct choir__audit_call {
    choir_device *device;
    choir__k_hash args;
    int part;
    const choir__opt_sums *sums; /* NULL: the call is made */
    choir__opt_of of;
} choir__audit_call;
typedef void choir__audit_call_fn(void *arg, const choir__audit_call *call);

/* Hashes that a step's update takes (ride.c). */
typedef struct choir__audit_ride {
    choir_optim *optim;
    bool done;   /* the step is done: the sums are there */
    bool fresh;  /* the optimizer's first step, before which its state is zeros */
    int stained; /* the part of a state that the first update has not read as zeros */
    choir__audit_call *list; /* (count) kernel calls whose hashes the step has still to add */
    int count, near;
} choir__audit_ride;

/* Returns whether the optimizer's pass stands for a call, and notes or adds its hash; ride
 * NULL: nothing rides. */
bool choir__audit_rides(choir__audit_ride *ride, choir__audit_parts *parts, int part,
    choir_device *device, const choir__k_hash *call);
/* Adds the hashes of what the step has read, and passes on calls that are to be made still. The
 * devices are done. */
void choir__audit_ride_fetch(choir__audit_ride *ride, choir__audit_parts *parts,
    choir__audit_call_fn *missed, void *arg);

/* Adds the hashes of this rank's boxes: the weights, and the optimizer's state, if there is
 * some, as `weights` and `state`; gradients as the optimizer reads them, if asked for. ride:
 * may be NULL. Waits for the devices, unless all of them ride and the step is still to come.
 * Errors: memory, the run's. */
typedef struct choir__audit_taking {
    choir__audit_kind weights, state;
    bool gradients;
    choir__audit_ride *ride;
} choir__audit_taking;
choir_status choir__audit_take(choir__audit_parts *parts, const choir__audit_names *names,
    choir_module *module, const choir__items *items, choir__audit_taking taking);

/* Returns the part of the same kind, tensor and box, or NULL. The search begins at `from`. */
const choir__audit_part *choir__audit_part_of(
    const choir__audit_parts *parts, int from, const choir__audit_part *like);

/* choir__audit_name and choir__audit_region return what a part has for a tensor and for a box
 * of it, and choir__audit_places the places in the whole from one index to the next, by
 * dimension. */
uint64_t choir__audit_name(const choir__item *item);
uint64_t choir__audit_region(const choir__box_region *region, int ndim);
void choir__audit_places(const choir__item *item, int64_t place[CHOIR_MAX_DIMS]);

/* Gathers the parts of all ranks, with their ranks; group NULL: there is no other.
 * Collective. */
choir_status choir__audit_gather(
    const choir__audit_parts *mine, choir_group *group, choir__audit_parts *all);

/* A joined hash; unknown if no rank has a part of the tensor, or some part is missing. */
typedef struct choir__audit_hash {
    uint64_t value;
    bool known;
} choir__audit_hash;

/* Joins the parts of all ranks to a hash per module (count) of one kind. Where several ranks
 * have a box, the first one counts. */
void choir__audit_join(const choir__audit_parts *all, choir__audit_kind kind,
    choir__audit_hash *hashes, int count);

#endif
