/* A folder of its own and a small training job, for the tests of weights and checkpoints.
 *
 * A job is a model, an optimizer and the run that holds them. Its steps depend only on their
 * numbers, so two jobs that made the same steps have the same bits, however often one of them
 * was saved and loaded in between. */
#ifndef CHOIR_TEST_CHECKPOINT_FIXTURE_H
#define CHOIR_TEST_CHECKPOINT_FIXTURE_H

#include <limits.h>
#include <math.h>
#include <signal.h>

#include <choir/autograd.h>
#include <choir/models.h>
#include "folder_fixture.h"
#include "written_files.h"
#include "base/rng.h"
#include "checkpoint/checkpoint.h"

#define CNN  "cnn:width=2,channels=1,image=8,classes=3"
#define GPT2 "gpt2:layers=1,heads=2,width=8,context=4,vocab=5"
#define TOY  "toy:in=3,hidden=4,out=2"

static inline int set_up(void **state)
{
    signal(SIGXFSZ, SIG_IGN);
    return make_folder(state);
}

/* --- a small training job --- */

typedef struct job {
    choir_scope *run;
    choir_module *net;
    choir_optim *opt;
    choir_model_info info;
} job;

enum optimizer { ADAMW, SGD_MOMENTUM, SGD_PLAIN };

static inline job job_open(const char *model, enum optimizer optimizer)
{
    job j = {.run = choir_scope_open(NULL, 7)};
    ok(choir_model_describe(model, &j.info));
    j.net = choir_model_build(j.run, &j.info);
    choir_adamw_opts adamw = choir_adamw_defaults();
    choir_sgd_opts sgd = choir_sgd_defaults();
    adamw.lr = sgd.lr = 0.05f;
    sgd.momentum = optimizer == SGD_MOMENTUM ? 0.9f : 0;
    j.opt =
        optimizer == ADAMW ? choir_adamw(j.run, j.net, adamw) : choir_sgd(j.run, j.net, sgd);
    return j;
}

static inline void job_close(job *j)
{
    ok(choir_scope_close(j->run));
}

/* Runs steps [first, last), each on data that depends only on its number. */
static inline void train(job *j, int first, int last)
{
    enum { BATCH = 4 };
    for (int k = first; k < last; k++) {
        choir_scope *s = choir_step_open(j->run, (uint64_t)k);
        choir_tensor *x, *y;
        int64_t ids[BATCH * 4], targets[BATCH * 4];
        for (int i = 0; i < BATCH * 4; i++) {
            ids[i] = (int64_t)(choir__mix(1, (uint64_t)(k * 64 + i)) % 5);
            targets[i] = (int64_t)(choir__mix(2, (uint64_t)(k * 64 + i)) % 3);
        }
        if (j->info.task == CHOIR_LANGUAGE) {
            x = choir_from(s, CHOIR_I64, choir_dims(BATCH, 4), ids);
            y = choir_from(s, CHOIR_I64, choir_dims(BATCH, 4), targets);
        } else if (j->info.task == CHOIR_CLASSIFICATION) {
            x = choir_randn(s, choir_dims(BATCH, 1, 8, 8), "x");
            y = choir_from(s, CHOIR_I64, choir_dims(BATCH), targets);
        } else {
            x = choir_randn(s, choir_dims(BATCH, 3), "x");
            y = choir_randn(s, choir_dims(BATCH, 2), "y");
        }
        ok(choir_backward(choir_model_loss(&j->info, choir_forward(j->net, x), y)));
        ok(choir_optim_step(j->opt));
        ok(choir_scope_close(s));
    }
}

static inline const char *sha(choir_module *net)
{
    static char hex[4][65];
    static int next;
    char *out = hex[next++ % 4];
    ok(choir_weights_sha256(net, NULL, out));
    return out;
}

static inline choir_train_state state_of(const job *j, int64_t step)
{
    choir_train_state s = {.step = step,
        .position = step * 2,
        .seed = UINT64_MAX,
        .batch_size = 4,
        .microbatches = 2,
        .optimizer_steps = choir_optim_steps(j->opt),
        .optimizer = "adamw:lr=0.05",
        .loss = 0.1,
        .eval_loss = NAN,
        .best_loss = -1.5e-300,
        .input = j->info.input,
        .output = j->info.output,
        .classes = j->info.classes,
        .task = (int)j->info.task};
    snprintf(s.model, sizeof s.model, "%s", j->info.config);
    return s;
}

static inline void save(const char *dir, const job *j, int64_t step, bool best)
{
    choir_train_state s = state_of(j, step);
    ok(save_checkpoint(dir, &s, j->net, j->opt, NULL, best));
}

/* Loads the latest checkpoint at path. Returns its step. */
static inline int64_t load(const char *path, job *j)
{
    char found[PATH_MAX];
    choir_train_state s;
    ok(choir__checkpoint_find(path, found));
    ok(choir__checkpoint_state(found, &s));
    ok(choir__checkpoint_load(found, j->net, j->opt, NULL));
    return s.step;
}

/* --- processes of their own --- */

enum { NOT_PERMITTED = 77 }; /* exit status of a process that lacks permission for its work */

/* Starts this program again for the task `what`: a fork would lose the threads of devices. out:
 * the child's stdout; -1: the parent's. */
static inline pid_t start(const char *what, int out)
{
    pid_t child = fork();
    if (child == 0) {
        if (out >= 0)
            dup2(out, STDOUT_FILENO);
        execl("/proc/self/exe", "checkpoint", what, folder, (char *)NULL);
        _exit(127);
    }
    return child;
}

/* Called by main: returns whether the program was started for `what`. If so, root is set to the
 * starter's folder. */
static inline bool started_for(int argc, char **argv, const char *what)
{
    if (argc != 3 || strcmp(argv[1], what))
        return false;
    snprintf(folder, sizeof folder, "%s", argv[2]);
    return true;
}

#endif
