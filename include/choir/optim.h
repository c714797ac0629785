/* Optimizers, learning-rate schedules, clipping.
 *
 * An optimizer steps all trainable parameters of a module together, using the gradients that
 * choir_backward left. The numbers of a step (learning rate, bias corrections) are written to
 * device memory, so a step can be recorded and replayed.
 *
 * Threads: the run's thread. Collective: choir_optim_step and choir_optim_zero, under a
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
    bool nesterov, maximize; /* maximize: flips the gradient's sign */
} choir_sgd_opts;

typedef struct choir_adamw_opts {
    float lr, beta1, beta2, eps, weight_decay;
    bool amsgrad; /* divides by the largest second moment so far (Reddi et al., 2018) */
    bool maximize;
    /* true: both moments have 8 bits (Dettmers et al., 2022): a code per element, as in
     * bitsandbytes, and the largest magnitude of each block of 256 elements. A block ends where
     * a row of dimension 0 ends. Parameters of one dimension or of less than 4096 elements keep
     * f32 state. Not with amsgrad. */
    bool eight_bits;
} choir_adamw_opts;

typedef struct choir_lion_opts {
    float lr, beta1, beta2, weight_decay;
    bool maximize;
} choir_lion_opts;

typedef struct choir_rmsprop_opts {
    float lr, alpha, eps, weight_decay, momentum;
    bool centered; /* divides by the root of the variance */
    bool maximize;
} choir_rmsprop_opts;

typedef struct choir_adafactor_opts {
    float lr;          /* upper limit of the relative rate */
    float beta2_decay; /* below 0: beta2 = 1 - t^beta2_decay at step t = 1, 2, ... */
    float eps1;        /* lower limit: eps1^2 of second moments, eps1 of their mean */
    float eps2; /* lower limit of a parameter's root mean square, which scales the rate */
    float d;    /* upper limit of an update's root mean square, at least 1 */
    float weight_decay;
    bool maximize;
} choir_adafactor_opts;

/** A predicate on parameters, for choir_optim_group and others. */
typedef bool choir_match_fn(const char *name, const choir_tensor *t, void *arg);

typedef struct choir_muon_opts {
    float lr, momentum, weight_decay;
    bool nesterov;
    int ns_steps; /* steps of the Newton-Schulz iteration, 1 to 100 */
    float eps;    /* lower limit of the norm that divides a matrix */
    /* true: the factor of the rate is 0.2 sqrt(max(rows, columns)), so that updates are as
     * large as AdamW's and one rate suits all parameters ("match_rms_adamw"); false:
     * sqrt(max(1, rows / columns)), PyTorch's default ("original") */
    bool match_rms;
    bool maximize;
    /* AdamW's options, for the parameters that it updates */
    float beta1, beta2, adam_eps;
    /* selects matrices that AdamW updates, too, such as a language model's head; NULL: none */
    choir_match_fn *adam;
    void *adam_arg;
} choir_muon_opts;

typedef struct choir_lamb_opts {
    float lr, beta1, beta2, eps, weight_decay;
    /* limit of the norm of all gradients, see choir_optim_clip; 0: no limit */
    float max_grad_norm;
    bool bias_correction; /* corrects the bias of both moments */
    bool grad_averaging;  /* the first moment adds (1 - beta1) g instead of g */
    bool decoupled;       /* adds weight decay to the update instead of the gradient */
    bool trust_always;    /* scales parameters without weight decay, too */
    bool maximize;
} choir_lamb_opts;

/* The defaults. Members that a comment does not name are 0, false or NULL. */

/* lr 1e-3 */
choir_sgd_opts choir_sgd_defaults(void);
/* lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-8 */
choir_adamw_opts choir_adam_defaults(void);
/* Adam's, and weight_decay 0.01 */
choir_adamw_opts choir_adamw_defaults(void);
/* lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-6, weight_decay 0.01, max_grad_norm 1;
 * bias_correction, grad_averaging and decoupled are true */
choir_lamb_opts choir_lamb_defaults(void);
/* lr 1e-4, beta1 0.9, beta2 0.99 */
choir_lion_opts choir_lion_defaults(void);
/* lr 1e-2, alpha 0.99, eps 1e-8 */
choir_rmsprop_opts choir_rmsprop_defaults(void);
/* lr 1e-2, beta2_decay -0.8, eps1 1.1920929e-7, eps2 1e-3, d 1 */
choir_adafactor_opts choir_adafactor_defaults(void);
/* lr 1e-3, momentum 0.95, weight_decay 0.1, ns_steps 5, eps 1e-7, beta1 0.9, beta2 0.999,
 * adam_eps 1e-8; nesterov and match_rms are true */
choir_muon_opts choir_muon_defaults(void);

/* The constructors' errors stick to the run: argument, naming the option and its value. */

/** SGD with momentum (Sutskever et al., 2013) in PyTorch's form: v = mu v + (1-damp) g, p -= lr
 * v. */
choir_optim *choir_sgd(choir_scope *run, choir_module *module, choir_sgd_opts opts);
/** Adam (Kingma & Ba, 2015). Weight decay is added to the gradient. */
choir_optim *choir_adam(choir_scope *run, choir_module *module, choir_adamw_opts opts);
/** AdamW (Loshchilov & Hutter, 2019). Weight decay is separate from the gradient. */
choir_optim *choir_adamw(choir_scope *run, choir_module *module, choir_adamw_opts opts);
/** LAMB (You et al., 2020), with the options of Apex's FusedLAMB. Adam's update u plus weight
 * decay is scaled, for each parameter, to that parameter's norm: p -= lr |p| / |u| u. A group
 * without weight decay uses p -= lr u, unless trust_always is set. */
choir_optim *choir_lamb(choir_scope *run, choir_module *module, choir_lamb_opts opts);
/** Lion (Chen et al., 2023): p -= lr (sign(beta1 m + (1 - beta1) g) + weight_decay p), then m =
 * beta2 m + (1 - beta2) g. */
choir_optim *choir_lion(choir_scope *run, choir_module *module, choir_lion_opts opts);
/** RMSprop (Tieleman & Hinton, 2012) in PyTorch's form. Weight decay is added to the gradient.
 */
choir_optim *choir_rmsprop(choir_scope *run, choir_module *module, choir_rmsprop_opts opts);
/** Adafactor (Shazeer & Stern, 2018) in PyTorch's form: second moments are the product of one
 * number per row and one per column. Weights must be f32. If ranks have parts of a parameter,
 * each rank computes the whole update. */
choir_optim *choir_adafactor(choir_scope *run, choir_module *module, choir_adafactor_opts opts);
/** Muon (Jordan et al., 2024) for matrices, AdamW for all other parameters. A matrix is a
 * parameter with two dimensions that is not an embedding's table and that opts.adam does not
 * match. Its update is the momentum with all singular values set to about 1 [torch.optim.Muon,
 * in f32]. Weights must be f32. If ranks have parts of a parameter, each rank computes the
 * whole update. */
choir_optim *choir_muon(choir_scope *run, choir_module *module, choir_muon_opts opts);

/** Makes a group of the parameters for which match(name, t, arg) is true, with the given
 * rates. */
CHOIR_CHECKED choir_status choir_optim_group(
    choir_optim *optim, choir_match_fn *match, void *arg, float lr, float weight_decay);

/** Updates the parameters. The next backward starts new gradients. Parameters without a
 * gradient stay unchanged. Errors: state (before any backward; a parameter has gradients from
 * both before and after another optimizer's step, see choir_optim_zero), the scope's. */
CHOIR_CHECKED choir_status choir_optim_step(choir_optim *optim);

/**
 * Drops the gradients of the optimizer's parameters since its last step, so that the next
 * backward starts new ones. Does nothing without gradients.
 *
 * When to use it: if two networks have one optimizer each, and the loss of one network is
 * computed through the other (a generator's loss through its discriminator), backward leaves
 * gradients in both. Either use choir_module_freeze on the discriminator during the generator's
 * backward, which is faster, or drop its gradients with choir_optim_zero on the discriminator's
 * optimizer. Later backwards then add up, whatever other optimizers do meanwhile.
 *
 * Under a group, call it after the step's last micro-batch; it waits for the sums that the last
 * backward has begun. Works in recorded steps. After choir_scaler_unscale, the next gradients
 * can be unscaled again. Errors stick to the run: state (in the middle of a group's
 * micro-batches; one strategy wraps both networks, so their gradients are reduced together),
 * the scope's.
 */
CHOIR_CHECKED choir_status choir_optim_zero(choir_optim *optim);

/** Sets the base learning rate from the next step on; the rates of all groups change in
 * proportion. */
void choir_optim_set_lr(choir_optim *optim, float lr);
float choir_optim_lr(const choir_optim *optim);
/** Returns the number of steps taken. Bias corrections use this one count for all parameters.
 */
int64_t choir_optim_steps(const choir_optim *optim);

/** Scales the gradients of all later steps so that their norm is at most max_norm. max_norm <=
 * 0 only measures the norm. */
void choir_optim_clip(choir_optim *optim, float max_norm);
/** Returns the norm of the latest step's gradients before clipping: () f32 in device memory,
 * which each step overwrites. NULL unless choir_optim_clip was called. */
choir_tensor *choir_optim_grad_norm(choir_optim *optim);

/** How choir_optim_average averages the weights of the steps t = start, start + every, ... */
typedef struct choir_average_opts {
    /* above 0: an exponential average, a = decay a + (1 - decay) p [swa_utils with
     * get_ema_multi_avg_fn]; 0: the mean of all weights so far [AveragedModel, Stochastic
     * Weight Averaging (Izmailov et al., 2018)] */
    float decay;
    int64_t start; /* first step that is averaged, counted from 1; default, and 0: 1 */
    int64_t every; /* steps between averaged steps; default, and 0: 1 */
} choir_average_opts;

choir_average_opts choir_average_defaults(void); /* decay 0.999, start 1, every 1 */

/** Keeps an average of the parameters over steps, as part of the optimizer's state: it is
 * sharded, saved and restored with that state. Training itself continues with the plain
 * weights. Buffers, such as batch norm's statistics, have no average. Call it before the first
 * step and before state is restored. Weights must be f32. Errors: argument, state. */
CHOIR_CHECKED choir_status choir_optim_average(choir_optim *optim, choir_average_opts opts);
/** Exchanges the parameters and their averages, so that an evaluation or a save reads the
 * averages; a second call exchanges them back. Does nothing before the first averaged step.
 * choir_training_save does this by itself: a checkpoint's weights are the averages, and
 * choir_training_resume restores both. Errors: the scope's. */
CHOIR_CHECKED choir_status choir_optim_swap(choir_optim *optim);

/** Keeps the optimizer's state in a file of the folder, on disk, instead of in memory. Call it
 * before the first step and before state is restored. The file has no name and disappears with
 * the process; between updates the process's memory does not hold its pages. The bits stay the
 * same. If choir_fsdp has off-loaded parameters, their state is off-loaded without this call.
 * Errors: I/O, state; if the disk is full, the first step reports memory. */
CHOIR_CHECKED choir_status choir_optim_offload(choir_optim *optim, const char *folder);

/** Visits the state tensors ("exp_avg.fc1.weight", ...), for checkpoints. A frozen parameter
 * that was never updated has none. */
void choir_optim_visit(choir_optim *optim, choir_visit_fn *visit, void *arg);
/** Sets the number of steps, after the state was restored through choir_optim_visit. */
void choir_optim_restore(choir_optim *optim, int64_t steps);

/* --- schedules: the learning rate of step t = 0, 1, ... ---
 *
 * A schedule is a function of only the base rate lr and t: the closed form of the PyTorch
 * schedule named in brackets. With `warmup` w the rate first rises linearly, lr (t+1)/(w+1) for
 * t < w; the formulas below count t from the end of the warm-up. A program may change the
 * members that a constructor does not set. */

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
    int64_t warmup; /* steps of the linear rise from 0 */
    /* steps of the whole job: curves that end reach min_lr here and stay there */
    int64_t steps;
    float min_lr;
    /* STEP: steps between drops; RESTARTS: steps of the first period; CYCLIC: steps upwards */
    int64_t step_size;
    float gamma;       /* factor per drop or per step */
    float power;       /* POLYNOMIAL; default 1 */
    int64_t step_down; /* CYCLIC: steps downwards; default step_size */
    int64_t growth;    /* RESTARTS: factor from one period to the next; default 1 */
    int milestone_count;
    int64_t milestones[CHOIR_MAX_MILESTONES]; /* MULTISTEP: steps of the drops, increasing */
    float rise;         /* ONE_CYCLE: share of steps in which the rate rises; default 0.3 */
    float first_factor; /* ONE_CYCLE: starts at lr / first_factor; default 25 */
    float last_factor;  /* ONE_CYCLE: ends at start / last_factor; default 1e4 */
    bool straight;      /* ONE_CYCLE: lines instead of half cosines */
    bool three_phase;   /* ONE_CYCLE: falls to the start first, then to the end */
    bool halving; /* CYCLIC: each triangle is half as high as the one before ("triangular2") */
} choir_schedule;

/** The rate is lr. */
choir_schedule choir_schedule_constant(void);
/** The rate is min + (lr - min)/2 (1 + cos(pi t/T)), T = steps - warmup (Loshchilov & Hutter,
 * 2017) [CosineAnnealingLR]. */
choir_schedule choir_schedule_cosine(int64_t warmup, int64_t steps, float min_lr);
/** The rate is lr + (min - lr) t/T [LinearLR from a factor of 1]. */
choir_schedule choir_schedule_linear(int64_t warmup, int64_t steps, float min_lr);
/** The rate is lr gamma^floor(t/step_size) [StepLR]. */
choir_schedule choir_schedule_step(int64_t step_size, float gamma);
/** The rate is lr gamma^n, where n is the number of milestones that t has reached
 * [MultiStepLR]. */
choir_schedule choir_schedule_multistep(const int64_t *milestones, int count, float gamma);
/** The rate is lr gamma^t [ExponentialLR]. */
choir_schedule choir_schedule_exponential(float gamma);
/** The rate is min + (lr - min) (1 - t/T)^power [PolynomialLR, whose min is 0]. */
choir_schedule choir_schedule_polynomial(int64_t steps, float power, float min_lr);
/** The rate follows half a cosine from lr to min repeatedly, over period, growth period,
 * growth^2 period ... steps [CosineAnnealingWarmRestarts]. */
choir_schedule choir_schedule_restarts(int64_t period, int64_t growth, float min_lr);
/** The rate rises from lr/25 to lr in the first 0.3 of the steps, then falls to lr/25/1e4
 * (Smith & Topin, 2018) [OneCycleLR, whose max_lr is lr]. */
choir_schedule choir_schedule_one_cycle(int64_t steps);
/** The rate follows triangles: from min_lr up to lr in step_size steps and down again (Smith,
 * 2017), times gamma^t [CyclicLR, whose base_lr is min_lr and max_lr is lr]. */
choir_schedule choir_schedule_cyclic(int64_t step_size, float min_lr);
/** The rate rises to lr in `warmup` steps and then falls with the square root of the step: lr
 * min((t+1)/w, sqrt(w/(t+1))), t counted from the start (Vaswani et al., 2017, where lr is
 * (width w)^-0.5). */
choir_schedule choir_schedule_inverse_sqrt(int64_t warmup);

/** Returns the rate at step t for the base rate lr. */
float choir_schedule_at(const choir_schedule *schedule, float lr, int64_t t);
/** Checks a schedule. Error: argument, naming the invalid entry. */
CHOIR_CHECKED choir_status choir_schedule_check(const choir_schedule *schedule);
/** Makes choir_optim_step follow the schedule from now on. An invalid schedule is an error of
 * the run: argument. */
void choir_optim_schedule(choir_optim *optim, choir_schedule schedule);

/** Lowers the rate when a measure, such as the validation loss, stops decreasing
 * [ReduceLROnPlateau, mode "min"]. Drops smaller than 1e-8 are skipped. */
typedef struct choir_plateau {
    float factor;     /* rate after a drop / rate before */
    int64_t patience; /* tolerated measures without progress */
    float threshold;  /* progress is a measure below best (1 - threshold) */
    int64_t cooldown; /* measures to skip after a drop */
    float min_lr;
    double best;          /* state: the smallest measure */
    int64_t bad, cooling; /* state: measures without progress; measures left to skip */
    bool started;         /* state: true after the first measure */
} choir_plateau;

/* factor 0.1, patience 10, threshold 1e-4, cooldown 0, min_lr 0 */
choir_plateau choir_plateau_defaults(void);
/** Takes another measure and returns the new rate, for choir_optim_set_lr; lr is the rate so
 * far. */
float choir_plateau_next(choir_plateau *plateau, float lr, double measure);

#ifdef __cplusplus
}
#endif
#endif
