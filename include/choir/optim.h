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

/** Keeps the optimizer's state in a file of the folder, on disk, rather than in memory. Before
 * the first step, and before state is restored. The file has no name and goes with the process;
 * between updates its pages are not the process's. The bits stay the same. Errors: I/O, state;
 * where the disk is full the first step reports memory. */
choir_status choir_optim_offload(choir_optim *optim, const char *folder);

/** Visits the state tensors ("exp_avg.fc1.weight", ...), for checkpoints. */
void choir_optim_visit(choir_optim *optim, choir_visit_fn *visit, void *arg);
/** Sets the count of steps, with state restored by the visit. */
void choir_optim_restore(choir_optim *optim, int64_t steps);

/* --- schedules: the learning rate of step t = 0, 1, ... ---
 *
 * Each is a function of the base rate lr and of t alone: PyTorch's of the name in brackets, in
 * its closed form. With `warmup` w any of them first rises linearly, lr (t+1)/(w+1) for t < w,
 * and then starts: below, t counts from there. The fields that a constructor does not set may
 * be changed afterwards. */

enum { CHOIR_MAX_MILESTONES = 16 };

typedef struct choir_schedule {
    enum {
        CHOIR_LR_CONSTANT,
        CHOIR_LR_COSINE,
        CHOIR_LR_LINEAR,
        CHOIR_LR_STEP,
        CHOIR_LR_MULTISTEP,
        CHOIR_LR_EXPONENTIAL,
        CHOIR_LR_POLYNOMIAL,
        CHOIR_LR_RESTARTS,
        CHOIR_LR_ONE_CYCLE,
        CHOIR_LR_CYCLIC,
        CHOIR_LR_INVERSE_SQRT
    } kind;
    int64_t warmup; /* steps in which it rises linearly from 0 */
    int64_t steps;  /* of the whole job: where the curves that end reach min_lr and stay */
    float min_lr;
    int64_t step_size; /* STEP: between drops; RESTARTS: the first period; CYCLIC: upwards */
    float gamma;       /* what a drop, or a step, multiplies by */
    float power;       /* POLYNOMIAL; default 1 */
    int64_t step_down; /* CYCLIC: downwards; default step_size */
    int64_t growth;    /* RESTARTS: each period is so many times the last; default 1 */
    int milestone_count;
    int64_t milestones[CHOIR_MAX_MILESTONES]; /* MULTISTEP, increasing */
    float rise;         /* ONE_CYCLE: the part of the steps that rises; default 0.3 */
    float first_factor; /* ONE_CYCLE: starts at lr / this; default 25 */
    float last_factor;  /* ONE_CYCLE: ends at the start / this; default 1e4 */
    bool straight;      /* ONE_CYCLE: lines instead of half cosines */
    bool three_phase;   /* ONE_CYCLE: falls to the start first, then to the end */
    bool halving;       /* CYCLIC: each triangle half as high as the last ("triangular2") */
} choir_schedule;

/** lr. */
choir_schedule choir_schedule_constant(void);
/** min + (lr - min)/2 (1 + cos(pi t/T)), T = steps - warmup (Loshchilov & Hutter, 2017)
 * [CosineAnnealingLR]. */
choir_schedule choir_schedule_cosine(int64_t warmup, int64_t steps, float min_lr);
/** lr + (min - lr) t/T [LinearLR from a factor of 1]. */
choir_schedule choir_schedule_linear(int64_t warmup, int64_t steps, float min_lr);
/** lr gamma^floor(t/step_size) [StepLR]. */
choir_schedule choir_schedule_step(int64_t step_size, float gamma);
/** lr gamma^(how many milestones t has reached) [MultiStepLR]. */
choir_schedule choir_schedule_multistep(const int64_t *milestones, int count, float gamma);
/** lr gamma^t [ExponentialLR]. */
choir_schedule choir_schedule_exponential(float gamma);
/** min + (lr - min) (1 - t/T)^power [PolynomialLR, whose min is 0]. */
choir_schedule choir_schedule_polynomial(int64_t steps, float power, float min_lr);
/** Half a cosine from lr to min again and again, over period, growth period, growth^2 period
 * ... steps [CosineAnnealingWarmRestarts]. */
choir_schedule choir_schedule_restarts(int64_t period, int64_t growth, float min_lr);
/** From lr/25 up to lr over 0.3 of the steps, then down to lr/25/1e4 (Smith & Topin, 2018)
 * [OneCycleLR, whose max_lr is lr]. */
choir_schedule choir_schedule_one_cycle(int64_t steps);
/** Triangles from min_lr up to lr in step_size steps and down again (Smith, 2017); times
 * gamma^t [CyclicLR, whose base_lr is min_lr and max_lr is lr]. */
choir_schedule choir_schedule_cyclic(int64_t step_size, float min_lr);
/** Rises to lr in `warmup` steps and falls as the root of the step: lr min((t+1)/w,
 * sqrt(w/(t+1))), t counted from the start (Vaswani et al., 2017, where lr is (width w)^-0.5).
 */
choir_schedule choir_schedule_inverse_sqrt(int64_t warmup);

/** The rate at step t, out of the base rate lr. */
float choir_schedule_at(const choir_schedule *schedule, float lr, int64_t t);
/** choir_optim_step follows the schedule from now on. A schedule that makes no sense is an
 * error of the run: argument. */
void choir_optim_schedule(choir_optim *optim, choir_schedule schedule);

/** Lowers the rate when a measure, as the validation loss, stops getting smaller
 * [ReduceLROnPlateau, mode "min"]; a drop of less than 1e-8 is not made. */
typedef struct choir_plateau {
    float factor;     /* what the rate is multiplied by */
    int64_t patience; /* measures without progress that are let pass */
    float threshold;  /* progress is a measure below best (1 - threshold) */
    int64_t cooldown; /* measures after a drop that do not count */
    float min_lr;
    double best;          /* its state: the least measure, */
    int64_t bad, cooling; /* measures without progress, measures yet to pass by, */
    bool started;         /* whether there was a measure */
} choir_plateau;

choir_plateau choir_plateau_defaults(void); /* 0.1, 10, 1e-4, 0, 0 */
/** The rate after another measure, out of the rate before; for choir_optim_set_lr. */
float choir_plateau_next(choir_plateau *plateau, float lr, double measure);

#ifdef __cplusplus
}
#endif
#endif
