/* Inside an optimizer: groups, state, and the part of it on each device. */
#ifndef CHOIR_OPTIM_PRIVATE_H
#define CHOIR_OPTIM_PRIVATE_H

#include <choir/amp.h>
#include "nn/module.h"
#include "tensor/strategy.h"

enum { CHOIR__MAX_GROUPS = 16 };

/* Entries of choir__optim_norm.clip, f32: the factor for gradients; whether any gradient is
 * infinite or NaN; the number of steps skipped for that reason; the factor that unscales
 * gradients. */
enum {
    CHOIR__CLIP_FACTOR,
    CHOIR__CLIP_FOUND,
    CHOIR__CLIP_SKIPPED,
    CHOIR__CLIP_INVERSE,
    CHOIR__CLIP_COUNT
};

typedef enum choir__optim_kind {
    CHOIR__SGD,
    CHOIR__ADAM,
    CHOIR__LAMB,
    CHOIR__LION,
    CHOIR__RMSPROP,
    CHOIR__ADAFACTOR,
    CHOIR__MUON
} choir__optim_kind;

typedef struct choir__optim_group {
    float lr, weight_decay; /* lr: rate of the group when the base rate is base_lr */
} choir__optim_group;

typedef struct choir__optim_state {
    choir__param *param;
    choir_tensor *m, *v,
        *top; /* momentum or first moment; second moment; largest second moment */
    choir_tensor *m_most, *v_most; /* for 8-bit m and v: largest magnitude of each block */
    choir_tensor *average;         /* average of the parameter over steps */
    int group;
    bool matrix; /* Muon updates it; else Adam does */
} choir__optim_state;

/* The layout of a state tensor. ELEMENTS: like the parameter's local part; CODES: likewise, as
 * 8-bit codes; BLOCKS: one number per block of codes. ROWS, COLUMNS, WHOLE: one number per row,
 * column or element of the whole parameter, equal on all ranks. */
typedef enum choir__state_form {
    CHOIR__STATE_ELEMENTS,
    CHOIR__STATE_CODES,
    CHOIR__STATE_BLOCKS,
    CHOIR__STATE_ROWS,
    CHOIR__STATE_COLUMNS,
    CHOIR__STATE_WHOLE
} choir__state_form;

enum { CHOIR__MAX_STATES = 6 };

/* The state tensors that an optimizer keeps for a parameter. */
typedef struct choir__state_list {
    struct {
        choir_tensor **tensor;
        const char *name; /* prefix of the parameter's name in checkpoints */
        choir__state_form form;
    } of[CHOIR__MAX_STATES];
    int count;
} choir__state_list;

/* The part of an optimizer on one device. */
typedef struct choir__optim_part {
    choir_device *device;
    choir__storage *entries, *hyper;
    choir__storage *rows; /* f64 scratch for norms: see device/kernels.h */
    /* copy of rows on the run's device, if that device's queue cannot read them */
    choir__storage *near;
    choir__storage *clip;    /* copy of o->norm.clip, which is on the run's device */
    choir__opt_entry *table; /* the host's copy of entries */
    int entry_count;
    int64_t row_count; /* rows in all entries */
} choir__optim_part;

/* Rows of parameters, consecutive by name, that one part has: `times` runs of them. Where a
 * row's elements are cut into slices, each slice's run of them counts as a row. */
typedef struct choir__optim_span {
    int part;
    int64_t from, to, count; /* rows: first in the part, first in the whole model, number */
    int64_t times, from_step, to_step;
} choir__optim_span;

/* The update rule with its numbers; a rule reads its own. */
typedef struct choir__optim_rule {
    choir__optim_kind kind;
    float beta1, beta2, eps, momentum, dampening;
    bool nesterov, decoupled, amsgrad, maximize;
    bool centered, coded;   /* RMSprop; Adam with 8-bit state */
    float least, threshold; /* Adafactor: eps2 and d; Muon: smallest norm */
    int products;           /* Muon: Newton-Schulz steps */
    bool match_rms;         /* Muon: the rate's factor follows AdamW's updates */
    bool bias_correction, grad_averaging, trust_always; /* LAMB */
} choir__optim_rule;

/* Off-loaded state. A piece stays until the optimizer is freed, even if no parameter uses it
 * any more. */
typedef struct choir__optim_piece {
    void *at;
    struct choir__optim_piece *next;
} choir__optim_piece;

typedef struct choir__optim_offload {
    /* memory of state outside the device's pool (offload.c); NULL: all state is in the pool */
    struct choir__offload_store *store;
    bool whole;                 /* choir_optim_offload was called: all state is off-loaded */
    choir__optim_piece *pieces; /* pieces of that memory, with the state; NULL: not taken yet */
    size_t bytes, used;         /* size of the latest piece, bytes used in it */
} choir__optim_offload;

/* The average of the parameters over steps (average.c). */
typedef struct choir__optim_average {
    bool on, swapped; /* averages exist; they are exchanged with the parameters now */
    choir_average_opts opts;
} choir__optim_average;

/* Norm of all gradients, and the clipping of the update by it (norm.c). */
typedef struct choir__optim_norm {
    float most;                 /* limit of the norm */
    choir_tensor *value, *clip; /* (), (CHOIR__CLIP_COUNT) on the run's device; NULL: unused */
    choir__storage *rows; /* rows of the whole model, on the run's device; NULL: parts[0]'s */
    int64_t row_count;    /* number of rows in `rows` */
    choir__optim_span *spans;
    int span_count;
} choir__optim_norm;

struct choir_optim {
    choir_scope *run;
    choir_module *module;
    choir__optim_rule rule;
    choir__optim_state *states; /* (count) by name */
    int count;
    choir__optim_group groups[CHOIR__MAX_GROUPS];
    int group_count;
    float lr, base_lr; /* current rate; rate when the groups were made */
    bool idle;         /* SGD's options were all 0, and no rate was set since */
    choir_schedule schedule;
    int64_t steps;
    bool unscaled;            /* a scaler has unscaled the present gradients */
    choir__optim_part *parts; /* one per device with parameters */
    int part_count;
    /* hash of the addresses in the tables when these were made; 0: no tables */
    uint64_t layout;
    choir__optim_offload offload;
    choir__optim_average average;
    choir__optim_norm norm;
    choir__opt_sums *sums; /* (count) hashes; NULL: no step takes any */
    bool hashes;           /* the step under way takes hashes */
};

/* Like choir_optim_step, but first multiplies gradients by *inverse, which is in memory of the
 * run's device, and skips the update unless all gradients are finite. */
choir_status choir__optim_step_scaled(choir_optim *o, const float *inverse);
/* Multiplies the gradients in place by *inverse. */
choir_status choir__optim_unscale(choir_optim *o, const float *inverse);

/* Resets the scaler after an interrupted step. */
void choir__scaler_undo(choir_scaler *s);

/* Length of a tensor with the scaler's numbers: choir__scaler_numbers, and the number of steps
 * that were skipped. */
enum { CHOIR__SCALER_KEPT = sizeof(choir__scaler_numbers) / sizeof(float) + 1 };

/* Copy the numbers of the scaler of o to kept, (CHOIR__SCALER_KEPT) f32, or back, in queue
 * order. */
void choir__scaler_keep(const choir_scaler *s, const choir_optim *o, choir_tensor *kept);
void choir__scaler_bring(choir_scaler *s, choir_optim *o, const choir_tensor *kept);

/* --- layout.c --- */

/* Fits parts, tables and state to the current addresses of parameters and gradients. */
choir_status choir__optim_lay_out(choir_optim *o);
/* Releases the parts and tables once the devices are done with them. */
void choir__optim_forget(choir_optim *o);

/* Return the number of rows of dimension 0, and of elements in one. */
static inline int64_t choir__optim_rows(choir_shape shape)
{
    return !choir__shape_count(shape) ? 0 : shape.ndim ? shape.dim[0] : 1;
}

static inline int64_t choir__optim_row(choir_shape shape)
{
    return choir__shape_count(shape) / choir__max(choir__optim_rows(shape), 1);
}

/* Returns the number of elements in a row, of `row` elements, that belong to one slice and one
 * of the matrices side by side; `row` if slices do not cut rows. Such a run counts as a row in
 * sums of squares and in blocks of 8-bit state, whatever rank has it. */
static inline int64_t choir__optim_run(const choir__param *p, int64_t row)
{
    const choir__partition *cut = p->tensor->split;
    if (!cut || !cut->dim)
        return row;
    return choir__optim_row(p->whole) / (cut->cut.outer * cut->cut.leaves);
}

/* --- state.c --- */

/* Makes the parameter's state, zero at first, on the parameter's device, or moves it there. */
void choir__optim_make_state(choir_optim *o, choir__optim_state *s);
/* Returns an error if the rule cannot update the rank's part of the parameter. */
choir_status choir__optim_check_part(const choir_optim *o, const choir__param *p);
/* Returns whether the parameter is frozen and never had state: it gets none, also for
 * checkpoints. */
bool choir__optim_is_idle(const choir__optim_state *s);
/* Passes the state of a parameter to visit, for checkpoints, unless it is idle. */
void choir__optim_visit_state(
    choir_optim *o, choir__optim_state *s, choir__state_visit_fn *visit, void *arg);

/* --- sets.c --- */

/* A set of state that the optimizer can exchange with its own: moments, norms, skipped steps,
 * and the tables of their addresses. Its moments are zero at first. */
typedef struct choir__optim_set choir__optim_set;

choir__optim_set *choir__optim_set_new(const choir_optim *o);
/* Exchanges the optimizer's state with the set's. Steps that are recorded call it through
 * choir__host_call, since their host calls must find the state that they were recorded with. */
void choir__optim_exchange(choir_optim *o, choir__optim_set *set);
/* Copies the optimizer's state to the set, in queue order. */
void choir__optim_set_copy(choir_optim *o, choir__optim_set *set);
/* The devices have done all work on the set. NULL is fine. */
void choir__optim_set_free(choir__optim_set *set);

/* The tensors of a visit, in order. The caller frees `tensors`. */
typedef struct choir__visited {
    choir_tensor **tensors;
    int count;
} choir__visited;

/* Adds a tensor to a list: a visitor, whose `to` is the list. */
void choir__visited_add(const char *name, choir_tensor *t, const choir__param *param, void *to);

/* --- average.c --- */

/* Returns the weight of the step after `steps` steps in the averages. */
float choir__optim_take(const choir_optim *o, int64_t steps);
/* Exchanges parameters and averages back, after a checkpoint was loaded whose parameters are
 * averages. */
choir_status choir__optim_unswap(choir_optim *o);
/* Queues the averages' part of a step, behind its update. */
void choir__optim_launch_average(const choir_optim *o);

/* --- matrices.c --- */

/* Queues the update of the parameters whose rule reads whole matrices: all of Adafactor's, and
 * Muon's matrices. scaled: the step is skipped if CHOIR__CLIP_FOUND is not 0. Collective
 * where ranks have parts of parameters. */
choir_status choir__optim_step_matrices(choir_optim *o, bool scaled);

/* --- sums.c --- */

/* Returns an error if a sum of gradients has terms from both before and after another
 * optimizer's step. */
choir_status choir__optim_check_sums(const choir_optim *o);
/* The step has used the gradients: the next backward begins new sums. */
void choir__optim_take_sums(choir_optim *o);

/* --- optim.c --- */

/* Visits the optimizer's own state alone. */
void choir__optim_visit_own(choir_optim *o, choir__state_visit_fn *visit, void *arg);
/* Like choir_optim_visit, and passes on the parameter whose state a tensor is. */
void choir__optim_visit_params(choir_optim *o, choir__state_visit_fn *visit, void *arg);

/* --- norm.c --- */

/* Gathers the rows of all parts in name order on the run's device. If ranks have parts of
 * parameters, each adds its own rows to zeros. kinds: number of sums per row, stored one array
 * after the other. */
choir_status choir__optim_gather_rows(const choir_optim *o, int kinds);

/* Queues the norm of the gradients and the factor that clips; inverse: as in
 * choir__k_grad_norm. */
choir_status choir__optim_take_norm(const choir_optim *o, const float *inverse);
/* Copies o->norm.clip to all parts. */
void choir__optim_send_clip(const choir_optim *o);

/* --- share.c --- */

/* Queues the work on entries [first, first + count) of a part's table on the device. */
typedef void choir__optim_run_fn(const choir_optim *o, const choir__optim_part *part,
    choir_device *device, int first, int count, const void *args);
/* Returns whether other devices help with the part. */
bool choir__optim_is_shared(const choir_optim *o, const choir__optim_part *part);
/* Runs `run` on all of the part's entries, cut into one run of about equal size per device that
 * may help: the part's own device takes the first run, and then waits for the others. */
void choir__optim_share(const choir_optim *o, const choir__optim_part *part,
    choir__optim_run_fn *run, const void *args);

/* --- update.c --- */

/* Queues the update of all parts; scaled: as in choir__optim_step_matrices. */
choir_status choir__optim_update(choir_optim *o, bool scaled);

/* --- hashes.c --- */

/* Makes room for hashes that steps take in their pass; before the first step is recorded. */
void choir__optim_hashes_open(choir_optim *o);
/* A step begins, which takes hashes or not. Where it does, the caller sets the places of the
 * entries, and waits for the devices before it reads the sums. Waits for earlier steps. */
void choir__optim_hashes_begin(choir_optim *o, bool taken);
/* Returns whether the step's kernel can take the hashes of a parameter. */
bool choir__optim_hashes_fit(const choir_optim *o, const choir__optim_state *s);
/* Returns the sums of the entry to which the n numbers at x belong, and sets *of; NULL: a step
 * takes no hash of them. *near: where the search begins, and has ended. */
choir__opt_sums *choir__optim_hashes_of(
    const choir_optim *o, const void *x, int64_t n, int *near, choir__opt_of *of);

/* --- offload.c --- */

/* Returns a state tensor like param, outside the device's pool, in memory with room for `each`
 * such tensors per parameter; NULL: it belongs in the pool. */
choir_tensor *choir__offload_tensor(choir_optim *o, const choir_tensor *param, int each);
void choir__offload_free(choir_optim *o);
/* choir__offload_runs returns true if parameters are updated a run at a time, because state is
 * in a file. choir__offload_run returns the number of entries, from `first` on, that are
 * updated together. choir__offload_let_go releases the pages of these entries after their
 * update. */
bool choir__offload_runs(const choir_optim *o);
int choir__offload_run(const choir__optim_part *part, int first);
void choir__offload_let_go(
    const choir_optim *o, const choir__optim_part *part, int first, int count);

/* Returns the address at which the part can read o->norm.clip. */
static inline float *choir__optim_clip_of(const choir_optim *o, const choir__optim_part *part)
{
    return part->clip ? part->clip->data : choir__data(o->norm.clip);
}

/* Returns an error if the optimizer is NULL or belongs to a closed run. */
static inline choir_status choir__use_optim(const choir_optim *o, const char *function)
{
    return choir__use_part(o ? o->run : NULL, function, "optimizer");
}

#endif
