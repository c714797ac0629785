/* Inside an optimizer. */
#ifndef CHOIR_OPTIM_PRIVATE_H
#define CHOIR_OPTIM_PRIVATE_H

#include <choir/optim.h>
#include "nn/module.h"

enum { CHOIR__MAX_GROUPS = 16 };

typedef enum choir__optim_kind { CHOIR__SGD, CHOIR__ADAM, CHOIR__LAMB } choir__optim_kind;

typedef struct choir__optim_group {
    float lr, weight_decay; /* lr of the group, at a base rate of base_lr */
} choir__optim_group;

typedef struct choir__optim_state {
    choir__param *param;
    choir_tensor *m, *v, *top; /* momentum or first moment; second moment; its largest */
    int group;
} choir__optim_state;

struct choir_optim {
    choir_scope *run;
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
    choir__storage *entries, *hyper;
    choir__opt_entry *table; /* the host's copy of entries */
    int entry_count;
    uint64_t layout; /* of the books, when the table was made */
    float max_norm;
    choir_tensor *norm, *clip; /* () */
    choir__storage *rows;      /* scratch of norms: see kernels.h */
};

/* An error says what makes no sense. */
choir_status choir__schedule_check(const choir_schedule *schedule);

#endif
