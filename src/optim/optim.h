/* Inside an optimizer. */
#ifndef CHOIR_OPTIM_PRIVATE_H
#define CHOIR_OPTIM_PRIVATE_H

#include <choir/optim.h>
#include "nn/module.h"

enum { CHOIR__MAX_GROUPS = 16 };

/* What is in choir_optim.clip, f32: the factor for gradients; whether some are infinite or NaN,
 * and how many steps were skipped for it; what they are multiplied by to unscale them. */
enum {
    CHOIR__CLIP_FACTOR,
    CHOIR__CLIP_FOUND,
    CHOIR__CLIP_SKIPPED,
    CHOIR__CLIP_INVERSE,
    CHOIR__CLIP_COUNT
};

typedef enum choir__optim_kind { CHOIR__SGD, CHOIR__ADAM, CHOIR__LAMB } choir__optim_kind;

typedef struct choir__optim_group {
    float lr, weight_decay; /* lr of the group, at a base rate of base_lr */
} choir__optim_group;

typedef struct choir__optim_state {
    choir__param *param;
    choir_tensor *m, *v, *top; /* momentum or first moment; second moment; its largest */
    int group;
} choir__optim_state;

/* What an optimizer does on one device. */
typedef struct choir__optim_part {
    choir_device *device;
    choir__storage *entries, *hyper;
    choir__storage *rows;    /* f64 scratch, of norms: see kernels.h */
    choir__storage *near;    /* rows on the run's device, where its queue cannot read them */
    choir__storage *clip;    /* the run's device's o->clip, brought here */
    choir__opt_entry *table; /* the host's copy of entries */
    int entry_count;
    int64_t row_count; /* of dimension 0, in all entries */
} choir__optim_part;

/* Rows of consecutive parameters by name that one part has. */
typedef struct choir__optim_span {
    int part;
    int64_t from, to, count; /* rows: in the part's, in the whole model's, how many */
} choir__optim_span;

struct choir_optim {
    choir_scope *run;
    struct choir__offload *offload; /* NULL: state is in the device's memory */
    choir__optim_kind kind;
    choir_module *module;
    choir__optim_state *states; /* by name */
    int count;
    choir__optim_group groups[CHOIR__MAX_GROUPS];
    int group_count;
    float lr, base_lr; /* now; when the groups were made */
    float beta1, beta2, eps, momentum, dampening;
    bool nesterov, decoupled, amsgrad, maximize;
    bool bias_correction, grad_averaging, trust_always; /* LAMB */
    choir_schedule schedule;
    int64_t steps;
    choir__optim_part *parts; /* one a device that parameters are on */
    int part_count;
    uint64_t layout; /* places of all that the tables name, when they were made; 0: none are */
    float max_norm;
    choir_tensor *norm, *clip; /* (), (CHOIR__CLIP_COUNT) on the run's device; NULL: unused */
    choir__storage *rows;      /* of the whole model, on the run's device; NULL: parts[0]'s */
    int64_t row_count;         /* in it */
    choir__optim_span *spans;
    int span_count;
};

/* choir_optim_step of gradients that are multiplied by *inverse first, in memory of the run's
 * device, and used only if all are finite. */
choir_status choir__optim_step_scaled(choir_optim *o, const float *inverse);
/* Multiplies them where they lie. */
choir_status choir__optim_unscale(choir_optim *o, const float *inverse);

/* --- layout.c --- */

/* Fits parts, tables and state to where parameters and gradients lie now. */
choir_status choir__optim_lay_out(choir_optim *o);
/* Gives back what that made, once the devices are done with it. */
void choir__optim_forget(choir_optim *o);
/* State of a parameter, zero at first, where the parameter is. */
void choir__optim_make_state(choir_optim *o, choir__optim_state *s);

/* --- optim.c --- */

/* Like choir_optim_visit, and passes on the parameter whose state a tensor is. */
void choir__optim_visit_params(choir_optim *o, choir__state_visit_fn *visit, void *arg);

/* --- offload.c --- */

/* State like param in the file, which has room for `each` such tensors a parameter. */
choir_tensor *choir__offload_tensor(choir_optim *o, const choir_tensor *param, int each);
void choir__offload_free(choir_optim *o);
/* How many entries from `first` on are updated together; and that they have been. */
int choir__offload_run(const choir__optim_part *part, int first);
void choir__offload_let_go(
    const choir_optim *o, const choir__optim_part *part, int first, int count);

#endif
