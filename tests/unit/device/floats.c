/* A program's floating-point environment changes no bit of a training and is given back by each
 * call: directed rounding, denormals that count as zero (which -ffast-math sets when a library
 * is loaded), exceptions that end the program. Each environment has a process of its own, since
 * threads inherit their creator's. */
#include <fenv.h>
#include <stdlib.h>
#include <sys/wait.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <choir/choir.h>

#include "base/rng.h"
#include "helpers.h"

enum { SIDE = 12, VALUES = 3 * SIDE * SIDE, SAMPLES = 32, CLASSES = 5, STEPS = 6, WIDTH = 8 };

/* --- environments --- */

static void set_default(void)
{
    fesetenv(FE_DFL_ENV);
}

static void set_upward(void)
{
    fesetround(FE_UPWARD);
}

static void set_downward(void)
{
    fesetround(FE_DOWNWARD);
}

static void set_flushing(void)
{
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" ::"r"(UINT64_C(1) << 24));
#endif
}

/* All of them: even a number that is rounded would end the program. Sanitizers compute, too. */
static void set_trapping(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    int all = FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW;
#else
    int all = FE_ALL_EXCEPT;
#endif
    feclearexcept(FE_ALL_EXCEPT);
    feenableexcept(all);
}

/* Returns what a program sees of its environment. */
static unsigned environment(void)
{
    unsigned control = 0;
#if defined(__x86_64__)
    control = _mm_getcsr() << 16;
#endif
    return control ^ ((unsigned)fegetround() << 16 | (unsigned)fegetexcept() << 8 |
                         (unsigned)fetestexcept(FE_ALL_EXCEPT));
}

static unsigned expected;

static void look(const char *after)
{
    if (environment() == expected)
        return;
    fprintf(stderr, "the environment is another after %s\n", after);
    _exit(3);
}

/* A call, after which the environment is looked at. */
#define CALL(...)                                                                              \
    do {                                                                                       \
        __VA_ARGS__;                                                                           \
        look(#__VA_ARGS__);                                                                    \
    } while (0)

/* --- a small training --- */

static int64_t length(const choir_dataset *self)
{
    return SAMPLES;
}

static choir_status get(choir_dataset *self, int64_t index, void *x, void *y)
{
    for (int i = 0; i < VALUES; i++) {
        uint32_t bits[4];
        choir__philox(7, (uint64_t)index, (uint64_t)i, bits);
        ((float *)x)[i] = choir__unit(bits[0]);
    }
    *(int64_t *)y = index % CLASSES;
    return CHOIR_OK;
}

static void normalized(const choir_dataset *self, float mean[3], float deviation[3])
{
    for (int c = 0; c < 3; c++)
        mean[c] = 0.25f, deviation[c] = 0.5f;
}

static void free_pictures(choir_dataset *self)
{
    free(self);
}

static const choir_dataset_ops pictures = {.length = length,
    .get = get,
    .free = free_pictures,
    .channels_last = true,
    .normalized = normalized};

static choir_dataset *data(void)
{
    choir_dataset *inner = calloc(1, sizeof *inner), *all;
    *inner = (choir_dataset){&pictures, CHOIR_F32, CHOIR_I64, choir_dims(3, SIDE, SIDE),
        CHOIR_SCALAR, CLASSES, .numbered = true};
    choir_augment_opts opts = choir_augment_defaults();
    CALL(choir_check(choir_augment_parse("jitter:brightness=0.3,hue=0.1+randaugment:ops=3"
                                         "+erase:p=0.7,noise=1+mixup:alpha=0.3",
        &opts)));
    CALL(choir_check(choir_dataset_augmented(inner, opts, &all)));
    return all;
}

typedef struct net {
    choir_module base;
    choir_module *conv, *block, *lstm, *head;
} net;

/* x (B, 3, SIDE, SIDE) -> scores (B, CLASSES) */
static choir_tensor *forward(choir_module *self, choir_tensor *const *in, int count)
{
    net *n = (net *)self;
    choir_tensor *x = choir_max_pool2d(choir_relu(choir_forward(n->conv, in[0])), 2, 2, 0);
    int64_t b = choir_tensor_size(x, 0), t = (SIDE / 2) * (SIDE / 2);
    x = choir_transpose(choir_reshape(x, choir_dims(b, WIDTH, t)), 1, 2); /* (B, T, WIDTH) */
    x = choir_forward(n->lstm, choir_forward(n->block, x));
    x = choir_div(x, choir_affine(choir_var_dim(x, 2, 1, true), 1, 1.1));
    x = choir_add(
        x, choir_scale(choir_scale(x, 1e-39), 1e38)); /* the numbers between are denormals */
    return choir_forward(n->head, choir_mean_dim(x, 1));
}

static const choir_module_class net_class = {"net", sizeof(net), forward, 1};

static choir_module *build(choir_scope *run)
{
    net *n = choir_module_new(run, &net_class);
    choir_recurrent_opts opts = choir_recurrent_defaults();
    choir_conv_opts around = choir_conv_defaults();
    opts.batch_first = true;
    around.padding = 1;
    CALL(choir_module_child(
        &n->base, "conv", &n->conv, choir_nn_conv2d(run, 3, WIDTH, 3, around)));
    CALL(choir_module_child(&n->base, "block", &n->block,
        choir_nn_transformer_block(run, WIDTH, 2, true, 0.1f, 0.02)));
    CALL(
        choir_module_child(&n->base, "lstm", &n->lstm, choir_nn_lstm(run, WIDTH, WIDTH, opts)));
    CALL(choir_module_child(&n->base, "head", &n->head, choir_nn_linear(run, WIDTH, CLASSES)));
    return &n->base;
}

typedef struct job {
    choir_scope *run;
    choir_module *net;
    choir_optim *optim;
    choir_loader *loader;
    choir_tensor *loss;
} job;

static choir_status step(choir_scope *scope, void *arg)
{
    job *j = arg;
    choir_batch b;
    choir_cross_entropy_opts opts = choir_cross_entropy_defaults();
    opts.label_smoothing = 0.1f;
    choir_tensor *scores, *loss;
    CALL(choir_check(choir_loader_next(j->loader, scope, &b)));
    CALL(scores = choir_forward(j->net, b.x));
    CALL(loss = choir_cross_entropy_with(scores, b.y, opts));
    /* infinite, and 0 times that; neither is read */
    CALL(choir_scale(choir_log(choir_zeros(scope, CHOIR_F32, choir_dims(3))), 0));
    CALL(choir_check(choir_backward(loss)));
    CALL(choir_check(choir_optim_step(j->optim)));
    j->loss = choir_keep(j->run, loss);
    return CHOIR_OK;
}

/* Stores a text of the weights and the loss after a few steps, half of them recorded. */
static void train(char result[128])
{
    choir_device *device = choir_device_find("cpu:0");
    CALL(choir_check(choir_device_set_threads(device, 2)));
    job j = {.run = choir_scope_open(device, 3)};
    CALL(j.net = build(j.run));
    choir_adamw_opts hp = choir_adamw_defaults();
    hp.lr = 1e-2f;
    CALL(j.optim = choir_adamw(j.run, j.net, hp));
    CALL(choir_optim_schedule(j.optim, choir_schedule_cosine(2, STEPS + 2, 1e-4f)));
    CALL(choir_optim_clip(j.optim, 0.5f));
    choir_loader_opts opts = choir_loader_defaults();
    opts.batch_size = 8;
    opts.workers = 2;
    choir_dataset *all = data();
    CALL(j.loader = choir_loader_new(j.run, all, opts));
    for (int i = 0; i < STEPS; i++)
        CALL(choir_check(choir_step(j.run, step, &j)));
    double loss, lr;
    CALL(loss = choir_item(j.loss));
    CALL(lr = (double)choir_schedule_at(
             &(choir_schedule){.kind = CHOIR_LR_EXPONENTIAL, .gamma = 0.9f}, 0.1f, 7));
    CALL(choir_check(choir_weights_sha256(j.net, NULL, result)));
    CALL(choir_check(choir_scope_close(j.run)));
    CALL(choir_dataset_free(all));
    memcpy(result + 64, &loss, sizeof loss);
    memcpy(result + 72, &lr, sizeof lr);
}

static void environments_change_no_bit(void **state)
{
    static const struct {
        const char *name;
        void (*set)(void);
    } all[] = {{"default", set_default}, {"upward", set_upward}, {"downward", set_downward},
        {"denormals are zero", set_flushing}, {"exceptions end the program", set_trapping}};
    char(*results)[128] = shared_memory(CHOIR_COUNT(all) * sizeof *results);
    for (size_t i = 0; i < CHOIR_COUNT(all); i++) {
        pid_t child = fork();
        if (child == 0) {
            signal(SIGFPE, SIG_DFL); /* not cmocka's */
            all[i].set();
            expected = environment();
            train(results[i]);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (status != 0)
            fail_msg("%s: the training ended with status %#x", all[i].name, (unsigned)status);
        if (memcmp(results[0], results[i], sizeof *results))
            fail_msg("%s: the weights %.64s have other bits than %.64s", all[i].name,
                results[i], results[0]);
    }
    munmap(results, CHOIR_COUNT(all) * sizeof *results);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(environments_change_no_bit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
