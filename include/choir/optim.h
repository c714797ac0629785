/* Optimizers, learning-rate schedules, clipping.
 *
 * An optimizer steps the trainable parameters of a module, all at once, out of the gradients
 * that choir_backward left. Its numbers of a step (learning rate, bias corrections) are written
 * to device memory, so a step can be recorded and replayed.
 *
 * Threads: those of the run. Collective: choir_optim_step and choir_clip_grad_norm, under a
 * strategy that reduces gradients (they wait for the reduction). */
#ifndef CHOIR_OPTIM_H
#define CHOIR_OPTIM_H

#include <choir/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_optim choir_optim;

typedef struct choir_sgd_opts {
    float lr, momentum, dampening, weight_decay;
    bool nesterov, maximize; /* maximize: the gradient's sign turns */
} choir_sgd_opts;

typedef struct choir_adamw_opts {
    float lr, beta1, beta2, eps, weight_decay;
    bool amsgrad; /* divides by the largest second moment so far (Reddi et al., 2018) */
    bool maximize;
} choir_adamw_opts;

typedef struct choir_lamb_opts {
    float lr, beta1, beta2, eps, weight_decay;
    float max_grad_norm;  /* of all gradients, as choir_optim_clip has it; 0: no limit */
    bool bias_correction; /* of both moments */
    bool grad_averaging;  /* the first moment takes (1 - beta1) g, else g */
    bool decoupled;       /* weight decay is added to the update, else to the gradient */
    bool trust_always;    /* scale where there is no weight decay, too */
    bool maximize;
} choir_lamb_opts;

choir_sgd_opts choir_sgd_defaults(void);     /* lr 1e-3, the rest 0 */
choir_adamw_opts choir_adam_defaults(void);  /* 1e-3, 0.9, 0.999, 1e-8, 0 */
choir_adamw_opts choir_adamw_defaults(void); /* 1e-3, 0.9, 0.999, 1e-8, 0.01 */
/* 1e-3, 0.9, 0.999, 1e-6, 0.01; max_grad_norm 1; bias correction, averaging, decoupled */
choir_lamb_opts choir_lamb_defaults(void);

/* Errors of the constructors stick to the run: argument, naming the option and its value. */

/** SGD with momentum (Sutskever et al., 2013) as PyTorch does it: v = mu v + (1-damp) g, p -=
 * lr v. */
choir_optim *choir_sgd(choir_scope *run, choir_module *module, choir_sgd_opts opts);
/** Adam (Kingma & Ba, 2015); weight decay is added to the gradient. */
choir_optim *choir_adam(choir_scope *run, choir_module *module, choir_adamw_opts opts);
/** AdamW (Loshchilov & Hutter, 2019): weight decay apart from the gradient. */
choir_optim *choir_adamw(choir_scope *run, choir_module *module, choir_adamw_opts opts);
/** LAMB (You et al., 2020), with the options of Apex's FusedLAMB: Adam's update u plus weight
 * decay, a parameter at a time scaled to that parameter's norm: p -= lr |p| / |u| u. A group
 * without weight decay takes p -= lr u, unless trust_always. */
choir_optim *choir_lamb(choir_scope *run, choir_module *module, choir_lamb_opts opts);

/** Parameters for which match(name, t, arg) holds get these rates instead (a group of their
 * own). */
typedef bool choir_match_fn(const char *name, const choir_tensor *t, void *arg);
choir_status choir_optim_group(
    choir_optim *optim, choir_match_fn *match, void *arg, float lr, float weight_decay);

/** Updates the parameters; the next backward starts new gradients. Parameters without a
 * gradient are left alone. Errors: state (before any backward), the scope's. */
choir_status choir_optim_step(choir_optim *optim);

/** Sets a base learning rate for all groups in proportion to theirs, from the next step on. */
void choir_optim_set_lr(choir_optim *optim, float lr);
float choir_optim_lr(const choir_optim *optim);
/** Steps taken so far: one count for all parameters, which biases are corrected by. */
int64_t choir_optim_steps(const choir_optim *optim);

/** Scales gradients so that their norm is at most max_norm, when the next step is taken
 * (max_norm <= 0: only measures). For this and all later steps. */
void choir_optim_clip(choir_optim *optim, float max_norm);
/** The norm before clipping of the latest step, () f32 in device memory, written anew each
 * step; NULL unless choir_optim_clip was called. */
choir_tensor *choir_optim_grad_norm(choir_optim *optim);

/** Visits the state tensors ("exp_avg.fc1.weight", ...), for checkpoints. */
void choir_optim_visit(choir_optim *optim, choir_visit_fn *visit, void *arg);
/** Sets the count of steps, with state restored by the visit. */
void choir_optim_restore(choir_optim *optim, int64_t steps);

/* --- schedules: the learning rate of step t = 0, 1, ... --- */

typedef struct choir_schedule {
    enum { CHOIR_LR_CONSTANT, CHOIR_LR_COSINE, CHOIR_LR_LINEAR, CHOIR_LR_STEP } kind;
    int64_t warmup; /* steps in which it rises linearly from 0: lr (t+1)/(warmup+1) */
    int64_t steps;  /* at which cosine and linear have reached min_lr */
    float min_lr;
    int64_t step_size; /* STEP: every so many steps, times gamma */
    float gamma;
} choir_schedule;

choir_schedule choir_schedule_constant(void);
/** After the warm-up: min + (lr - min)/2 (1 + cos(pi (t - warmup)/(steps - warmup))). */
choir_schedule choir_schedule_cosine(int64_t warmup, int64_t steps, float min_lr);
choir_schedule choir_schedule_linear(int64_t warmup, int64_t steps, float min_lr);
choir_schedule choir_schedule_step(int64_t step_size, float gamma);

/** The rate at step t, out of the base rate lr. */
float choir_schedule_at(const choir_schedule *schedule, float lr, int64_t t);
/** choir_optim_step follows the schedule from now on. */
void choir_optim_schedule(choir_optim *optim, choir_schedule schedule);

#ifdef __cplusplus
}
#endif
#endif
