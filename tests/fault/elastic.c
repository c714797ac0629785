/* Ranks of an elastic training are killed or stopped, at random moments and in chosen ones. The
 * others go on, a new process takes the place of each, and the weights at the end are those of
 * an undisturbed run, bit for bit: with DDP, whose objects stay, and with strategies whose
 * ranks are rebuilt. */
#include "fault/notes.h"
#include "launch/crew/crew.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <choir/choir.h>

#include "multi/ranks.h"

enum { STEPS = 40, MICROS = 4, TRIALS = 6 };

typedef enum blow { NOTHING, KILL, LATE_KILL, STOP, LIVE_LOCK, WORK, ANYTIME, ALL } blow;
typedef enum strategy { DDP, STAGE_1, STAGE_2, STAGE_3, GATHER, DILOCO, LOCAL_SGD } strategy;

/* In memory that all processes share. */
typedef struct scene {
    blow blow;
    strategy strategy;
    int victim;   /* the rank of generation 1 that is struck */
    int moment;   /* the step in which; ANYTIME: microseconds after the first step */
    bool in_loss; /* in the middle of a step, between two of its collectives */
    bool norm;    /* the model has batch norms, hence buffers */
    double timeout_s, silence_s; /* of groups; of the supervisor, 0: the same */
    bool no_copy, no_room;       /* no_room: one rank has no memory for its copies */
    char why[256];               /* the rank that was struck is gone */
    volatile int struck, generations, joined, steps_run, kept, keepers;
    volatile pid_t pids[8];
    uint64_t weights;
    char last_words[512];
} scene;

typedef struct job {
    scene *scene;
    choir_env *env;
    choir_module *net;
    choir_optim *optim;
    choir_loader *data;
    choir_scope *run;
} job;

/* Collective: ranks may have parts of the weights. */
static choir_status note_weights(scene *s, const choir_env *env, choir_module *net)
{
    char hex[65];
    bool parts = s->strategy >= STAGE_1 && s->strategy <= GATHER;
    choir_status status = CHOIR_OK;
    if (s->strategy >= DILOCO)
        status = choir_meet(net);
    if (status != CHOIR_OK || (!parts && env->rank != 0))
        return status;
    status = choir_weights_sha256(net, parts ? env->group : NULL, hex);
    hex[16] = '\0';
    if (status == CHOIR_OK && env->rank == 0)
        s->weights = strtoull(hex, NULL, 16);
    return status;
}

static choir_module *wrap(
    const scene *s, choir_scope *run, choir_module *bare, choir_group *group)
{
    choir_fsdp_opts fsdp = choir_fsdp_defaults();
    choir_diloco_opts diloco = choir_diloco_defaults();
    choir_local_sgd_opts local_sgd = choir_local_sgd_defaults();
    diloco.every = local_sgd.every = 7;
    fsdp.stage = s->strategy < GATHER ? (int)s->strategy : 3;
    fsdp.gather = s->strategy == GATHER;
    switch (s->strategy) {
    case DDP: return choir_ddp(run, bare, group, choir_ddp_defaults());
    case DILOCO: return choir_diloco(run, bare, group, diloco);
    case LOCAL_SGD: return choir_local_sgd(run, bare, group, local_sgd);
    default: return choir_fsdp(run, bare, group, fsdp);
    }
}

/* Works on the host for longer than a rank may finish nothing, and says so. */
static void work(double seconds)
{
    for (double until = choir__now() + seconds; choir__now() < until;) {
        nap(0.05);
        choir_elastic_beat();
    }
}

static void strike(const scene *s)
{
    if (s->blow == LATE_KILL) /* the others may go on meanwhile */
        for (int i = 0; i < 100 && s->steps_run < s->moment + 6; i++)
            nap(0.005);
    if (s->blow == WORK) {
        work(2 * s->silence_s);
        return;
    }
    while (s->blow == LIVE_LOCK) {
        volatile int spin = 0;
        spin++;
    }
    kill(getpid(), s->blow == STOP ? SIGSTOP : SIGKILL);
}

static bool is_due(scene *s, const choir_env *env, int64_t step)
{
    int none = 0;
    return s->blow != NOTHING && s->blow < ANYTIME && env->generation == 1 &&
           env->rank == s->victim && step == s->moment &&
           __atomic_compare_exchange_n(
               &s->struck, &none, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    int64_t first, count;
    choir_status status = CHOIR_OK;
    choir_env_micro(j->env, &first, &count);
    for (int64_t m = first; m < first + count && status == CHOIR_OK; m++) {
        choir_scope *micro = choir_micro_open(step, m);
        choir_batch b;
        status = choir_loader_next(j->data, micro, &b);
        if (status == CHOIR_OK)
            status = choir_backward(choir_cross_entropy(choir_forward(j->net, b.x), b.y));
        choir_status closed = choir_scope_close(micro);
        status = status == CHOIR_OK ? closed : status;
        if (m == first && j->scene->in_loss &&
            is_due(j->scene, j->env, (int64_t)choir_run_next(j->run) - 1))
            strike(j->scene);
    }
    return status == CHOIR_OK ? choir_optim_step(j->optim) : status;
}

static choir_module *model(choir_scope *run, bool norm)
{
    if (!norm)
        return choir_nn_sequential(run, choir_nn_flatten(run), choir_nn_linear(run, 16, 32),
            choir_nn_relu(run), choir_nn_dropout(run, 0.1f), choir_nn_linear(run, 32, 4));
    return choir_nn_sequential(run, choir_nn_conv2d(run, 1, 4, 3, choir_conv_defaults()),
        choir_nn_batch_norm(run, 4), choir_nn_relu(run), choir_nn_flatten(run),
        choir_nn_linear(run, 16, 4));
}

static choir_dataset *images;

/* The longest files that this process may have, those in memory included. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static choir_status train_once(scene *s)
{
    choir_env env;
    choir_group_opts opts = choir_group_defaults();
    opts.timeout_s = s->timeout_s;
    choir_status joined = choir_env_init_with(&env, NULL, opts);
    if (joined != CHOIR_OK)
        return joined;
    env.device = choir_device_find("cpu:0");
    env.microbatches = MICROS;
    bool is_new = !env.generation;
    if (!is_new)
        s->pids[env.rank] = getpid();
    s->kept += choir_elastic_kept();
    choir_scope *run = choir_run_open(&env, 42);
    choir_module *bare = model(run, s->norm);
    choir_module *net = wrap(s, run, bare, env.group);
    choir_optim *optim = choir_adamw(run, net, choir_adamw_defaults());
    choir_loader *data = choir_env_loader(run, &env, images, 16);
    choir_training t = {.module = net, .optim = optim, .loader = data};
    choir_elastic *elastic = NULL;
    choir_elastic_opts how = choir_elastic_defaults();
    how.no_copy = s->no_copy;
    bool limited = s->no_room && env.rank == 1;
    if (limited)
        limit_files(64);
    choir_status status = choir_elastic_open(&env, &t, how, &elastic);
    if (limited)
        limit_files(RLIM_INFINITY);
    if (s->no_room && status == CHOIR_OK)
        s->keepers += choir_elastic_keeps(elastic);
    job j = {s, &env, net, optim, data, run};
    bool again = true;
    if (is_new && status == CHOIR_OK)
        s->joined++;
    while (status == CHOIR_OK && again) {
        while (status == CHOIR_OK && choir_run_next(run) < STEPS) {
            choir_membership change;
            while (s->blow == ALL && env.generation == 1 && choir_run_next(run) == 12)
                pause(); /* until it is killed */
            if (!s->in_loss && is_due(s, &env, (int64_t)choir_run_next(run)))
                strike(s);
            status = choir_elastic_step(elastic, body, &j);
            if (status == CHOIR_OK && choir_elastic_change(elastic, &change) && env.rank == 0) {
                s->generations = (int)change.generation;
                if (change.left_count)
                    snprintf(s->why, sizeof s->why, "%s", change.left[0].why);
            }
            if (env.rank == 0)
                s->steps_run++;
        }
        if (status == CHOIR_OK && (status = note_weights(s, &env, net)) != CHOIR_OK)
            status = choir_elastic_recover(elastic, status);
        else if (status == CHOIR_OK)
            status = choir_elastic_end(elastic, &again);
    }
    if (status != CHOIR_OK)
        snprintf(s->last_words, sizeof s->last_words, "%s", choir_error_message());
    choir_elastic_free(elastic);
    choir_status closed = choir_scope_close(run);
    choir_env_free(&env);
    return status != CHOIR_OK ? status : closed;
}

/* A rank may be lost while the others make their objects, or always, if these are rebuilt;
 * they begin again. */
static int train(int rank, int world, void *arg)
{
    choir_status status = CHOIR_ERR_PEER_LOST;
    while (status == CHOIR_ERR_PEER_LOST || status == CHOIR_ERR_TIMEOUT)
        status = train_once(arg);
    return status != CHOIR_OK;
}

static scene *new_scene(blow kind, int victim, int moment)
{
    scene *s = shared_memory(sizeof *s);
    s->blow = kind;
    s->victim = victim;
    s->moment = moment;
    s->timeout_s = 20;
    return s;
}

static choir_status run_scene(scene *s, int world, int restarts, int spares)
{
    choir_spawn_opts opts = choir_spawn_defaults();
    opts.max_restarts = restarts;
    opts.spares = spares;
    opts.timeout_s = s->silence_s > 0 ? s->silence_s : s->timeout_s;
    opts.rebuild = s->strategy != DDP;
    opts.least = s->strategy >= DILOCO ? world : 0;
    return choir_spawn_with(world, train, s, opts);
}

/* Returns the weights of an undisturbed run: on one rank, or, if the strategy's depend on the
 * number of ranks, on three. */
static uint64_t undisturbed(strategy as, bool norm)
{
    bool others = as >= DILOCO;
    scene *s = new_scene(NOTHING, 0, 0);
    s->norm = norm;
    s->strategy = others ? as : DDP;
    ok(run_scene(s, others ? 3 : 1, 0, 0));
    uint64_t weights = s->weights;
    munmap(s, sizeof *s);
    return weights;
}

static void same_weights(scene *s, choir_status status, const char *what)
{
    uint64_t expected = undisturbed(s->strategy, s->norm);
    if (status != CHOIR_OK)
        fail_msg("%s: %s; a rank: %s", what, choir_error_message(), s->last_words);
    if (s->weights != expected)
        fail_msg("%s: other weights than undisturbed", what);
}

static void survives_as(strategy as, blow kind, int victim, int moment, bool in_loss, bool norm)
{
    char what[96];
    snprintf(what, sizeof what, "strategy %d: blow %d on rank %d in step %d%s%s", (int)as,
        (int)kind, victim, moment, in_loss ? ", inside" : "", norm ? ", batch norm" : "");
    scene *s = new_scene(kind, victim, moment);
    s->strategy = as;
    s->in_loss = in_loss;
    s->norm = norm;
    s->timeout_s = kind == STOP ? 1 : 20;
    same_weights(s, run_scene(s, 3, 1, 0), what);
    assert_true(s->struck);
    assert_true(s->generations >= 2);
    if (as != DDP)
        assert_true(s->kept > 0);
    munmap(s, sizeof *s);
}

static void survives(blow kind, int victim, int moment, bool in_loss, bool norm)
{
    survives_as(DDP, kind, victim, moment, in_loss, norm);
}

static void test_killed(void **state)
{
    survives(KILL, 0, 5, false, false);  /* while steps are replayed */
    survives(KILL, 2, 0, true, false);   /* in the first step, which makes everything */
    survives(KILL, 1, 2, true, true);    /* in the step that is recorded */
    survives(KILL, 0, 1, true, true);    /* rank 0 has changed its buffers */
    survives(KILL, 0, 39, false, false); /* the last step */
}

static void test_stopped(void **state)
{
    survives(STOP, 1, 7, false, false);
}

/* A rank computes without end. Its group would wait for long, but the supervisor sees that it
 * finishes nothing while others wait. */
static void test_live_locked(void **state)
{
    static const strategy tried[] = {DDP, STAGE_3};
    for (int i = 0; i < 2; i++) {
        scene *s = new_scene(LIVE_LOCK, 1, 7);
        s->strategy = tried[i];
        s->timeout_s = 60;
        s->silence_s = 2;
        same_weights(s, run_scene(s, 3, 1, 0), "a live-lock");
        assert_non_null(strstr(s->why, "finished nothing for"));
        munmap(s, sizeof *s);
    }
}

/* The others are lost meanwhile: no member waits for the rank, only the processes in their
 * places. */
static void test_live_locked_alone(void **state)
{
    scene *s = new_scene(LIVE_LOCK, 1, 7);
    s->strategy = STAGE_3;
    s->timeout_s = 60;
    s->silence_s = 2;
    pid_t runner = fork();
    if (runner == 0)
        _exit(-run_scene(s, 2, 2, 0));
    while (!s->struck)
        nap(0.001);
    kill(s->pids[0], SIGKILL);
    int wait_status;
    waitpid(runner, &wait_status, 0);
    assert_true(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
    assert_true(s->weights == undisturbed(STAGE_3, false));
    munmap(s, sizeof *s);
}

/* Others wait for a rank that has long work of its own, and nothing happens to it. */
static void test_host_work(void **state)
{
    scene *s = new_scene(WORK, 1, 10);
    s->timeout_s = 60;
    s->silence_s = 1;
    ok(run_scene(s, 2, 1, 0));
    assert_int_equal(s->struck, 1);
    assert_int_equal(s->generations, 0);
    munmap(s, sizeof *s);
}

/* Each rank has rows that no other one has. */
static void test_shards(void **state)
{
    survives_as(STAGE_1, KILL, 1, 5, false, true);
    survives_as(STAGE_2, KILL, 0, 2, true, false);   /* in the step that is recorded */
    survives_as(STAGE_3, KILL, 2, 39, false, false); /* the last step */
    survives_as(STAGE_3, KILL, 1, 0, true, true);    /* before there are copies of all ranks */
    survives_as(GATHER, KILL, 0, 20, false, false);
    survives_as(STAGE_3, STOP, 1, 7, false, false);
}

/* Each rank has weights and a state of its own; its successor takes them over. */
static void test_apart(void **state)
{
    survives_as(DILOCO, KILL, 1, 12, false, false); /* five steps after they have met */
    survives_as(DILOCO, KILL, 0, 20, false, true);  /* in the step that ends with a meeting */
    survives_as(LOCAL_SGD, KILL, 2, 30, false, false);
}

/* A rank is lost after the ranks have met, before its copy is made: the others have waited for
 * it, so the steps since the meeting before are all that they repeat. */
static void test_lost_as_they_meet(void **state)
{
    scene *s = new_scene(LATE_KILL, 1, 14);
    s->strategy = DILOCO;
    same_weights(s, run_scene(s, 3, 1, 0), "a loss between a meeting and its copy");
    if (s->steps_run > STEPS + 8) /* one of them has failed */
        fail_msg("%d steps were run for %d", s->steps_run, STEPS);
    munmap(s, sizeof *s);
}

/* All ranks are lost at a time; their copies are the supervisor's, too. */
static void test_all_lost(void **state)
{
    scene *s = new_scene(ALL, 0, 0);
    s->strategy = STAGE_3;
    pid_t runner = fork();
    if (runner == 0)
        _exit(-run_scene(s, 3, 3, 0));
    while (s->steps_run < 10)
        nap(0.001);
    for (int r = 0; r < 3; r++)
        kill(s->pids[r], SIGKILL);
    int wait_status;
    waitpid(runner, &wait_status, 0);
    assert_true(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
    assert_true(s->weights == undisturbed(STAGE_3, false));
    assert_true(s->kept > 0);
    munmap(s, sizeof *s);
}

/* Without copies the program goes on from its own records: here none, so from the first step.
 */
static void test_no_copy(void **state)
{
    scene *s = new_scene(KILL, 1, 9);
    s->strategy = STAGE_2;
    s->no_copy = true;
    same_weights(s, run_scene(s, 3, 1, 0), "without copies");
    assert_int_equal(s->kept, 0);
    assert_true(s->steps_run >= 9 + STEPS);
    munmap(s, sizeof *s);
}

/* One rank alone has no memory for its copies: none of them keeps any, and the program goes on
 * as without copies. */
static void test_no_room(void **state)
{
    scene *s = new_scene(KILL, 0, 9);
    s->strategy = STAGE_3;
    s->no_room = true;
    signal(SIGXFSZ, SIG_IGN);
    same_weights(s, run_scene(s, 3, 1, 0), "no memory for one rank's copies");
    assert_int_equal(s->keepers, 0);
    assert_int_equal(s->kept, 0);
    assert_true(s->steps_run >= 9 + STEPS);
    munmap(s, sizeof *s);
}

/* A spare takes the place at once. */
static void test_spare(void **state)
{
    scene *s = new_scene(KILL, 0, 20);
    same_weights(s, run_scene(s, 2, 1, 1), "a spare");
    assert_true(s->joined >= 1);
    munmap(s, sizeof *s);
}

/* --- interrupts --- */

static void end_at_second(int number)
{
    static volatile sig_atomic_t seen;
    if (seen++)
        _exit(130);
}

/* Two ranks that both have to be there; one dies, and the process that replaces it interrupts
 * the job, hence itself, too. The other one would wait for a third. */
static int interrupted_rank(int rank, int world, void *arg)
{
    choir_env env;
    if (choir__crew_is_new()) {
        kill(getppid(), SIGTERM);
        for (;;)
            pause();
    }
    signal(SIGTERM, end_at_second);
    if (choir_env_init(&env) != CHOIR_OK)
        return 1;
    if (env.rank == 1)
        kill(getpid(), SIGKILL);
    choir_status status = choir_group_barrier(env.group, NULL);
    choir_env_free(&env);
    return status == CHOIR_ERR_PEER_LOST ? choir_env_init(&env) != CHOIR_OK : 2;
}

static void test_interrupted(void **state)
{
    int wait_status;
    pid_t runner = fork();
    if (runner == 0) {
        choir_spawn_opts opts = choir_spawn_defaults();
        opts.max_restarts = 2;
        opts.rebuild = true;
        opts.least = 2;
        _exit(-choir_spawn_with(2, interrupted_rank, NULL, opts));
    }
    waitpid(runner, &wait_status, 0);
    assert_true(WIFEXITED(wait_status));
    assert_int_equal(-WEXITSTATUS(wait_status), CHOIR_ERR_INTERRUPTED);
}

/* Kills processes from outside, whatever they are doing. */
static void anytime(unsigned seed)
{
    unsigned state = seed;
    scene *s = new_scene(ANYTIME, 0, 0);
    s->norm = seed % 2;
    s->strategy = (strategy)(seed / 2 % (LOCAL_SGD + 1));
    pid_t runner = fork();
    if (runner == 0)
        _exit(-run_scene(s, 3, 3, 0));
    while (!s->pids[0] || !s->pids[1] || !s->pids[2])
        nap(0.001);
    int blows = 1 + rand_r(&state) % 2, wait_status;
    for (int i = 0; i < blows; i++) {
        nap(1e-6 * (rand_r(&state) % 60000));
        kill(s->pids[rand_r(&state) % 3], SIGKILL); /* may have ended, and be a zombie */
    }
    waitpid(runner, &wait_status, 0);
    bool good = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
    if (!good || s->weights != undisturbed(s->strategy, s->norm))
        fail_msg("seed %u: %s; a rank: '%s'", seed, good ? "other weights" : "the job failed",
            s->last_words);
    munmap(s, sizeof *s);
}

static void test_anytime(void **state)
{
    const char *chosen = getenv("CHOIR_TEST_SEED"), *many = getenv("CHOIR_TEST_TRIALS");
    unsigned first = chosen ? (unsigned)atoi(chosen) : (unsigned)getpid();
    for (int i = 0; i < (many ? atoi(many) : TRIALS); i++) {
        printf("seed %u\n", first + (unsigned)i);
        fflush(stdout);
        anytime(first + (unsigned)i);
    }
}

/* A rank that fails again and again ends the job with the first cause. */
static int fails(int rank, int world, void *arg)
{
    choir_env env;
    if (choir_env_init(&env) != CHOIR_OK)
        return 1;
    if (env.generation == 1 && env.rank == 1)
        kill(getpid(), SIGABRT);
    choir_env_free(&env);
    for (;;)
        _exit(3);
}

static void test_gives_up(void **state)
{
    choir_spawn_opts opts = choir_spawn_defaults();
    opts.max_restarts = 2;
    assert_int_equal(choir_spawn_with(2, fails, NULL, opts), CHOIR_ERR_PEER_LOST);
    const char *message = choir_error_message();
    if (!strstr(message, "SIGABRT") && !strstr(message, "status 3"))
        fail_msg("%s", message);
    int left = 5; /* ranks that were never started leave nothing to go back to */
    opts.max_restarts = -1;
    opts.restarts_left = &left;
    assert_int_equal(choir_spawn_with(2, fails, NULL, opts), CHOIR_ERR_ARGUMENT);
    assert_int_equal(left, -1);
}

/* A strategy that cannot go on says so before the first step. */
static const char *algorithm; /* of the reduction; NULL: a hook, in its place */

static int refused(int rank, int world, void *arg)
{
    notes *n = arg;
    choir_env env;
    if (choir_env_init(&env) != CHOIR_OK)
        return 1;
    choir_scope *run = choir_run_open(&env, 1);
    choir_ddp_opts ddp = choir_ddp_defaults();
    ddp.algorithm = algorithm;
    choir_module *net = choir_ddp(run, choir_nn_linear(run, 4, 4), env.group, ddp);
    if (!algorithm)
        CHECK_OK(choir_ddp_set_hook(net, choir_ddp_bf16_compress, NULL));
    choir_training t = {.module = net};
    choir_elastic *elastic;
    note(n, rank, choir_elastic_open(&env, &t, choir_elastic_defaults(), &elastic));
    (void)choir_scope_close(run);
    choir_env_free(&env);
    return 0;
}

static void test_refuses(void **state)
{
    notes *n = new_notes();
    choir_spawn_opts opts = choir_spawn_defaults();
    opts.max_restarts = 1;
    ok(choir_spawn_with(2, refused, n, opts));
    assert_int_equal(n->status[0], CHOIR_ERR_UNSUPPORTED);
    assert_non_null(strstr(n->message[0], "ddp: a hook's sums depend on the number of ranks"));
    algorithm = "ring";
    ok(choir_spawn_with(2, refused, n, opts));
    assert_int_equal(n->status[0], CHOIR_ERR_UNSUPPORTED);
    assert_non_null(strstr(n->message[0], "ddp: this algorithm's sums depend on the number"));
    algorithm = NULL;
    munmap(n, sizeof *n);
}

int main(void)
{
    if (choir_dataset_random(96, choir_dims(1, 4, 4), CHOIR_SCALAR, 4, 7, &images) != CHOIR_OK)
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_killed),
        cmocka_unit_test(test_stopped), cmocka_unit_test(test_live_locked),
        cmocka_unit_test(test_live_locked_alone), cmocka_unit_test(test_host_work),
        cmocka_unit_test(test_spare), cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_shards), cmocka_unit_test(test_apart),
        cmocka_unit_test(test_lost_as_they_meet), cmocka_unit_test(test_all_lost),
        cmocka_unit_test(test_no_copy), cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_anytime), cmocka_unit_test(test_gives_up),
        cmocka_unit_test(test_refuses)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    choir_dataset_free(images);
    return failed;
}
