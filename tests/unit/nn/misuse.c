/* Every public function is called with NULL, and with handles of a closed run: for all of its
 * pointers, and for each of them alone, beside valid objects. It must return, with an error
 * where there is one to return. calls.inc is generated from the headers (tests/calls.awk).
 *
 * The calls run in a child process. When one of them ends it, the parent names the call and
 * goes on with the next. */
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <choir/choir.h>

#include "helpers.h"
#include "tensor/tensor.h"

struct outcome {
    enum { NOTHING, STATUS, TENSOR, OBJECT } kind;
    union {
        choir_status status;
        const choir_tensor *tensor;
        const void *object;
    };
};

struct call {
    const char *name;
    struct outcome (*call)(unsigned bad); /* bit i: argument i is bad */
    unsigned pointers;                    /* bit i: argument i is a pointer */
    unsigned handles;                     /* bit i: argument i belongs to a scope */
};

/* Handles, all of one run. */
struct handles {
    choir_scope *run, *step;
    choir_tensor *tensor, *tensors[2];
    choir_module *module, *modules[2];
    choir_optim *optim;
    choir_loader *loader;
    choir_scaler *scaler;
};

/* The valid objects. Kinds without an entry are NULL, too. */
static struct handles the;
static choir_dataset *dataset;
static choir_group *group;
static char memory[4096]; /* for results */

static struct handles old; /* of a closed run */
static const bool *closed; /* whether bad arguments are these; else NULL */

static choir_tensor *first_of(choir_module *self, choir_tensor *const *in, int count)
{
    return in[0];
}
static const choir_module_class class = {"class", sizeof(choir_module), first_of, 0};

static choir_tensor *forward(choir_tensor *const *in, int count, const void *arg)
{
    return in[0];
}
static const choir_custom_op custom = {.name = "custom", .forward = forward};

static choir_status step_of(choir_scope *scope, void *arg)
{
    return CHOIR_OK;
}

static void visit(const char *name, choir_tensor *t, void *arg)
{
}

static choir_status call(const void *args)
{
    return CHOIR_OK;
}

#define GIVE_choir_module_class_1 &class
#define GIVE_choir_custom_op_1    &custom
#define GIVE_choir_step_fn_1      step_of
#define GIVE_choir_visit_fn_1     visit
#define GIVE_choir_group_fn_1     call
#define GIVE_choir_scope_1        the.step
#define GIVE_choir_tensor_1       the.tensor
#define GIVE_choir_tensor_2_list  the.tensors
#define GIVE_choir_module_1       the.module
#define GIVE_choir_module_2_list  the.modules
#define GIVE_choir_optim_1        the.optim
#define GIVE_choir_loader_1       the.loader
#define GIVE_choir_scaler_1       the.scaler
#define GIVE_choir_dataset_1      dataset
#define GIVE_choir_group_1        group
#define GIVE_choir_device_1       choir_device_find("cpu:0")
#define GIVE_char_1                                                                            \
    (char[200])                                                                                \
    {                                                                                          \
        "weight"                                                                               \
    }
#define GIVE_void_1             (void *)memory
#define GIVE_int_1              (void *)memory
#define GIVE_bool_1             (void *)memory
#define GIVE_float_1            (void *)memory
#define GIVE_double_1           (void *)memory
#define GIVE_size_t_1           (void *)memory
#define GIVE_int64_t_1          (void *)memory
#define GIVE_choir_tensor_2     (void *)memory
#define GIVE_choir_module_2     (void *)memory
#define GIVE_choir_group_2      (void *)memory
#define GIVE_choir_job_2        (void *)memory
#define GIVE_choir_work_1       (void *)memory
#define GIVE_choir_batch_1      (void *)memory
#define GIVE_choir_reduction    CHOIR_LOSS_MEAN
#define GIVE_int                1
#define GIVE_int64_t            1
#define GIVE_choir_dtype        CHOIR_F32
#define GIVE_choir_shape        choir_dims(2)
#define OLD(handle)             (*closed ? (handle) : NULL)
#define BAD_choir_scope_1       OLD(old.step)
#define BAD_choir_tensor_1      OLD(old.tensor)
#define BAD_choir_tensor_2_list OLD(old.tensors)
#define BAD_choir_module_1      OLD(old.module)
#define BAD_choir_module_2_list OLD(old.modules)
#define BAD_choir_optim_1       OLD(old.optim)
#define BAD_choir_loader_1      OLD(old.loader)
#define BAD_choir_scaler_1      OLD(old.scaler)
#pragma GCC diagnostic ignored "-Wformat-security" /* choir_fail's text is no literal here */
#include "calls.inc"

/* NULL is a valid argument of these functions, or they have nothing to report. */
static const char *const welcome[] = {"choir_module_at", "choir_module_find", "choir_grad",
    "choir_optim_grad_norm",                              /* NULL: there is none */
    "choir_model_divisor", "choir_model_divisor_counted", /* NULL: all targets count */
    "choir_group_agree",                                  /* NULL: a group of one rank */
    NULL};

static void make_handles(struct handles *h, const choir_env *env)
{
    h->run = choir_run_open(env, 1);
    h->modules[0] = h->module = choir_nn_linear(h->run, 2, 2);
    h->modules[1] = choir_nn_relu(h->run);
    h->optim = choir_sgd(h->run, h->module, choir_sgd_defaults());
    h->loader = choir_loader_shuffled(h->run, dataset, 2);
    h->scaler = choir_scaler_new(h->run, choir_scaler_defaults());
    h->step = choir_step_open(h->run, 0);
    h->tensor = choir_zeros(h->step, CHOIR_F32, choir_dims(2, 2));
    h->tensors[0] = h->tensors[1] = h->tensor;
    ok(choir_scope_status(h->run));
}

static void prepare(void)
{
    choir_env env;
    ok(choir_env_init(&env));
    group = env.group;
    ok(choir_dataset_random(8, choir_dims(2), CHOIR_SCALAR, 2, 1, &dataset));
    make_handles(&old, &env);
    ok(choir_scope_close(old.step));
    ok(choir_scope_close(old.run));
    make_handles(&the, &env);
}

static bool is_welcome(const char *name)
{
    size_t n = strlen(name);
    bool ends =
        (n > 5 && !strcmp(name + n - 5, "_free")) || (n > 6 && !strcmp(name + n - 6, "_close"));
    for (size_t i = 0; welcome[i] && !ends; i++)
        ends = !strcmp(welcome[i], name);
    return ends;
}

/* Returns a complaint about the outcome of a call with bad arguments, or NULL. */
static const char *fault(const struct call *c, struct outcome o)
{
    if (is_welcome(c->name) && (!*closed || !o.object))
        return NULL;
    if (o.kind == STATUS && o.status == CHOIR_OK)
        return "returned CHOIR_OK";
    if (o.kind == STATUS && !*choir_error_message())
        return "left no message";
    if (o.kind == TENSOR && !o.tensor)
        return "returned NULL";
    if (o.kind == TENSOR && *closed && !o.tensor->poisoned)
        return "returned a tensor with values";
    if (o.kind == OBJECT && !o.object)
        return "returned NULL";
    return NULL;
}

struct progress {
    bool closed;       /* handles are of a closed run; else NULL */
    int call, variant; /* of the call that runs; variant 0: all such arguments are bad */
    int faults;
};

/* Runs the calls from p on. */
static void run_calls(struct progress *p)
{
    for (int s = 1; s < 32; s++) /* cmocka catches some */
        signal(s, SIG_DFL);
    closed = &p->closed;
    prepare();
    for (; p->call < (int)CHOIR_COUNT(calls); p->call++, p->variant = 0)
        for (; p->variant <= 31; p->variant++) {
            const struct call *c = &calls[p->call];
            unsigned may = p->closed ? c->handles : c->pointers;
            unsigned bad = p->variant ? may & 1u << (p->variant - 1) : may;
            if (!bad)
                continue;
            const char *why = fault(c, c->call(bad));
            if (why && (p->variant == 0 || p->closed)) {
                fprintf(stderr, "%s, argument %d %s: %s\n", c->name, p->variant,
                    p->closed ? "closed" : "NULL", why);
                p->faults++;
            }
            choir_scope_clear(the.step);
            choir_scope_clear(the.run);
        }
    _exit(0);
}

static int remove_one(const char *path, const struct stat *s, int type, struct FTW *at)
{
    return remove(path);
}

static void call_all(bool of_closed)
{
    char folder[] = "/tmp/choir-misuse-XXXXXX"; /* some functions would write files */
    assert_non_null(mkdtemp(folder));
    struct progress *p = shared_memory(sizeof *p);
    p->closed = of_closed;
    while (p->call < (int)CHOIR_COUNT(calls)) {
        pid_t child = fork();
        if (child == 0 && chdir(folder) == 0)
            run_calls(p);
        int end = 0;
        waitpid(child, &end, 0);
        if (p->call >= (int)CHOIR_COUNT(calls))
            break;
        fprintf(stderr, "%s, argument %d %s: ended the process (%s %d)\n", calls[p->call].name,
            p->variant, of_closed ? "closed" : "NULL", WIFSIGNALED(end) ? "signal" : "status",
            WIFSIGNALED(end) ? WTERMSIG(end) : WEXITSTATUS(end));
        p->faults++;
        p->variant++;
    }
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    int faults = p->faults;
    munmap(p, sizeof *p);
    assert_int_equal(faults, 0);
}

static void test_null(void **state)
{
    call_all(false);
}

static void test_closed(void **state)
{
    call_all(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_null), cmocka_unit_test(test_closed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
