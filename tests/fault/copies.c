/* Ranks that are rebuilt, and have no memory for copies of their state in some generations, or
 * keep none. They go on from copies or from the program's checkpoint, whichever is newer;
 * memory that is of no use goes back; and a new process costs no steps. */
#include "fault/notes.h"
#include "launch/crew/crew.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <choir/choir.h>

#include "multi/ranks.h"

enum { STEPS = 40, MICROS = 4, WORLD = 3, SAVES = 10, MEETS = 5, MOST = 8 };

/* In memory that all processes share. Arrays are by generation, from 1. */
typedef struct scene {
    char dir[64];       /* of a checkpoint after every SAVES steps; "": none */
    bool diloco;        /* else FSDP */
    bool no_copy;       /* no generation keeps copies */
    bool no_room[MOST]; /* rank 1 has no memory for them */
    int dies[MOST];     /* the step before which rank 1 dies; 0: it lives */
    int newcomer;       /* steps that new processes let the others do first */
    int waits;      /* the step of generation 2 before which rank 0 waits for one; 0: none */
    bool evaluates; /* after each step; a rank that dies does so before */
    int err;        /* standard error of the ranks; 0: that of the test */
    volatile int done, from[MOST]; /* steps: done; at which the generation began */
    volatile long held[MOST];      /* bytes of copies once it had begun */
    volatile int generations;
    char weights[65], words[512];
} scene;

typedef struct job {
    scene *scene;
    choir_env env;
    choir_training parts;
    choir_scope *run;
    choir_elastic *elastic;
    choir_checkpoint *saved;
} job;

static choir_dataset *images;

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    int64_t first, count;
    choir_status status = CHOIR_OK;
    choir_env_micro(&j->env, &first, &count);
    for (int64_t m = first; m < first + count && status == CHOIR_OK; m++) {
        choir_scope *micro = choir_micro_open(step, m);
        choir_batch b;
        status = choir_loader_next(j->parts.loader, micro, &b);
        if (status == CHOIR_OK)
            status =
                choir_backward(choir_cross_entropy(choir_forward(j->parts.module, b.x), b.y));
        choir_status closed = choir_scope_close(micro);
        status = status == CHOIR_OK ? closed : status;
    }
    return status == CHOIR_OK ? choir_optim_step(j->parts.optim) : status;
}

/* --- a generation --- */

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
}

static long bytes_held(void)
{
    const choir__crew *crew = choir__crew_mine();
    struct stat file;
    long bytes = 0;
    for (int i = 0; i < 2 * crew->world; i++)
        if (fstat(crew->copies[i / 2][i % 2], &file) == 0)
            bytes += 512 * (long)file.st_blocks;
    return bytes;
}

static choir_status open_elastic(job *j)
{
    scene *s = j->scene;
    uint64_t generation = j->env.generation;
    bool limited = s->no_room[generation % MOST] && j->env.rank == 1;
    choir_elastic_opts opts = choir_elastic_defaults();
    opts.no_copy = s->no_copy;
    opts.save_every = *s->dir ? SAVES : 0;
    if (limited)
        limit_files(64);
    choir_status status = choir_elastic_open(&j->env, &j->parts, opts, &j->elastic);
    if (limited)
        limit_files(RLIM_INFINITY);
    if (status == CHOIR_OK)
        status = choir_group_barrier(j->env.group, NULL); /* all have given memory back */
    if (status == CHOIR_OK && j->env.rank == 0) {
        s->held[generation] = bytes_held();
        s->from[generation] = (int)choir_run_next(j->run);
        s->generations = (int)generation;
    }
    return status;
}

/* Goes on from the checkpoint if there are no copies of a later step. */
static choir_status load(job *j)
{
    choir_train_state s;
    char found[4096];
    if (!*j->scene->dir || choir_training_find(j->scene->dir, found) != CHOIR_OK)
        return CHOIR_OK;
    choir_status status = choir_training_read(j->scene->dir, &s);
    if (status != CHOIR_OK || s.step <= choir_elastic_kept_step())
        return status;
    return choir_training_resume(j->scene->dir, &j->parts, j->env.group, NULL);
}

static choir_status save(job *j, int64_t step)
{
    choir_checkpoint_opts opts = choir_checkpoint_defaults();
    choir_train_state s = choir_train_state_none();
    choir_status status = CHOIR_OK;
    opts.group = j->scene->diloco ? NULL : j->env.group;
    s.step = step;
    s.world = WORLD;
    if (j->scene->diloco && j->env.rank != 0) /* they have weights of their own */
        return CHOIR_OK;
    if (!j->saved)
        status = choir_checkpoint_open(j->scene->dir, opts, &j->saved);
    return status == CHOIR_OK ? choir_training_save(j->saved, &j->parts, &s, CHOIR_SAVE_NOW)
                              : status;
}

static void await_newcomer(const job *j)
{
    const choir__crew *crew = choir__crew_mine();
    while (atomic_load(&crew->due) != j->env.generation)
        nap(0.001);
}

static choir_status evaluate(job *j)
{
    choir_model_info info = {.task = CHOIR_CLASSIFICATION, .classes = 4};
    choir_eval_opts opts = choir_eval_defaults();
    choir_score score;
    opts.batch_size = 16;
    opts.group = j->env.group;
    return choir_evaluate(j->run, j->parts.module, &info, images, opts, &score);
}

static choir_status steps(job *j)
{
    scene *s = j->scene;
    uint64_t generation = j->env.generation;
    choir_status status = CHOIR_OK;
    while (status == CHOIR_OK && choir_run_next(j->run) < STEPS) {
        int next = (int)choir_run_next(j->run);
        if (j->env.rank == 1 && s->dies[generation % MOST] && next == s->dies[generation])
            kill(getpid(), SIGKILL);
        if (j->env.rank == 0 && generation == 2 && s->waits && next == s->waits)
            await_newcomer(j);
        status = choir_elastic_step(j->elastic, body, j);
        next = (int)choir_run_next(j->run);
        if (status == CHOIR_OK && *s->dir && next % SAVES == 0)
            status = save(j, next);
        if (j->env.rank == 1 && s->evaluates && next == s->dies[generation % MOST])
            kill(getpid(), SIGKILL);
        if (status == CHOIR_OK && s->evaluates)
            status = choir_elastic_recover(j->elastic, evaluate(j));
        if (status == CHOIR_OK && j->env.rank == 0)
            s->done = next;
    }
    return status;
}

static choir_status finish(job *j)
{
    bool again;
    char hex[65];
    choir_status status = j->scene->diloco ? choir_meet(j->parts.module) : CHOIR_OK;
    if (status == CHOIR_OK)
        status =
            choir_weights_sha256(j->parts.module, j->scene->diloco ? NULL : j->env.group, hex);
    if (status != CHOIR_OK)
        return choir_elastic_recover(j->elastic, status);
    if (j->env.rank == 0)
        snprintf(j->scene->weights, sizeof j->scene->weights, "%s", hex);
    return choir_elastic_end(j->elastic, &again);
}

static choir_module *wrap(
    const scene *s, choir_scope *run, choir_module *bare, choir_group *group)
{
    choir_diloco_opts opts = choir_diloco_defaults();
    choir_fsdp_opts fsdp = choir_fsdp_defaults();
    opts.every = MEETS;
    fsdp.gather = s->evaluates;
    return s->diloco ? choir_diloco(run, bare, group, opts)
                     : choir_fsdp(run, bare, group, fsdp);
}

static choir_status train_once(scene *s)
{
    job j = {.scene = s};
    choir_group_opts group = choir_group_defaults();
    group.timeout_s = 60;
    choir_status status = choir_env_init_with(&j.env, NULL, group);
    if (status != CHOIR_OK)
        return status;
    j.env.device = choir_device_find("cpu:0");
    j.env.microbatches = MICROS;
    j.run = choir_run_open(&j.env, 42);
    choir_module *bare = choir_nn_sequential(j.run, choir_nn_flatten(j.run),
        choir_nn_linear(j.run, 16, 128), choir_nn_relu(j.run), choir_nn_linear(j.run, 128, 4));
    choir_module *net = wrap(s, j.run, bare, j.env.group);
    j.parts = (choir_training){.module = net,
        .optim = choir_adamw(j.run, net, choir_adamw_defaults()),
        .loader = choir_env_loader(j.run, &j.env, images, 16)};
    status = load(&j);
    if (status == CHOIR_OK)
        status = open_elastic(&j);
    if (status == CHOIR_OK)
        status = steps(&j);
    if (status == CHOIR_OK)
        status = finish(&j);
    if (status != CHOIR_OK && status != CHOIR_ERR_PEER_LOST) /* a loss is not read */
        snprintf(s->words, sizeof s->words, "%s", choir_error_message());
    choir_status closed = choir_checkpoint_close(j.saved);
    status = status == CHOIR_OK ? closed : status;
    choir_elastic_free(j.elastic);
    closed = choir_scope_close(j.run);
    choir_env_free(&j.env);
    return status != CHOIR_OK ? status : closed;
}

static int train(int rank, int world, void *arg)
{
    scene *s = arg;
    choir_status status = CHOIR_ERR_PEER_LOST;
    if (s->err)
        dup2(s->err, STDERR_FILENO);
    while (choir__crew_is_new() && s->done < s->newcomer)
        nap(0.001);
    while (status == CHOIR_ERR_PEER_LOST || status == CHOIR_ERR_TIMEOUT)
        status = train_once(s);
    return status != CHOIR_OK;
}

/* --- scenes --- */

static scene *new_scene(bool saves)
{
    scene *s = shared_memory(sizeof *s);
    if (saves) {
        snprintf(s->dir, sizeof s->dir, "/tmp/choir-copies.XXXXXX");
        assert_non_null(mkdtemp(s->dir));
    }
    return s;
}

/* Runs the job, which ends with the weights of an undisturbed one. */
static void run_scene(scene *s)
{
    static char calms[2][65];
    char *calm = calms[s->diloco];
    choir_spawn_opts opts = choir_spawn_defaults();
    opts.max_restarts = 3;
    opts.rebuild = true;
    opts.least = s->diloco ? WORLD : 0;
    if (choir_spawn_with(WORLD, train, s, opts) != CHOIR_OK)
        fail_msg("%s; a rank: %s", choir_error_message(), s->words);
    if (!*calm) {
        scene *c = new_scene(false);
        c->diloco = s->diloco;
        ok(choir_spawn_with(WORLD, train, c, opts));
        snprintf(calm, sizeof calms[0], "%s", c->weights);
        munmap(c, sizeof *c);
    }
    assert_string_equal(s->weights, calm);
}

static void free_scene(scene *s)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", s->dir);
    if (*s->dir)
        assert_int_equal(system(command), 0);
    munmap(s, sizeof *s);
}

/* Generation 1 leaves copies, and generation 2, whose two ranks would need more memory for
 * each, keeps none. */
static scene *new_scene_without_room(bool saves)
{
    scene *s = new_scene(saves);
    s->dies[1] = 9;
    s->no_room[2] = true;
    s->dies[2] = 25;
    s->newcomer = 24;
    run_scene(s);
    assert_in_range(s->from[2], 8, 9);
    assert_true(s->held[1] > 0);
    return s;
}

/* Generation 3 goes on from the checkpoint of generation 2. Meanwhile one copy of each rank's
 * state stays, and no more. */
static void test_newer_checkpoint(void **state)
{
    scene *s = new_scene_without_room(true);
    assert_int_equal(s->from[3], 20);
    assert_int_equal(2 * s->held[2], s->held[1]);
    free_scene(s);
}

/* Without a checkpoint the copies are all there is, however old. */
static void test_old_copies(void **state)
{
    scene *s = new_scene_without_room(false);
    assert_int_equal(s->from[3], s->from[2]);
    free_scene(s);
}

/* The memory that other ranks have reserved goes back when one of them gets none. */
static void test_reserved(void **state)
{
    scene *s = new_scene(false);
    s->no_room[1] = true;
    run_scene(s);
    assert_int_equal(s->generations, 1);
    assert_int_equal(s->held[1], 0);
    free_scene(s);
}

/* A new process that comes between two checkpoints waits for the next one, so no step is done
 * twice. */
static void test_newcomer_waits(void **state)
{
    scene *s = new_scene(true);
    s->no_copy = true;
    s->dies[1] = 12;
    s->newcomer = s->waits = 13;
    run_scene(s);
    assert_int_equal(s->generations, 3);
    assert_int_equal(s->from[2], 10);
    assert_int_equal(s->from[3], 20);
    free_scene(s);
}

/* Without any checkpoint it waits for the end: the others' steps would be lost. */
static void test_newcomer_in_vain(void **state)
{
    scene *s = new_scene(false);
    s->no_copy = true;
    s->dies[1] = 5;
    s->newcomer = s->waits = 13;
    run_scene(s);
    assert_int_equal(s->generations, 2);
    assert_int_equal(s->from[2], 0);
    free_scene(s);
}

/* A rank is lost when the checkpoint is there, and the copies of that step are not. Checkpoints
 * of DiLoCo lack the state of all ranks but one, so the older copies count. */
static void test_checkpoint_lacks_state(void **state)
{
    scene *s = new_scene(true);
    s->diloco = true;
    s->dies[1] = 20;
    run_scene(s);
    assert_int_equal(s->generations, 2);
    assert_int_equal(s->from[2], 15);
    free_scene(s);
}

/* A loss while the others evaluate fails in a scope of theirs, which is no error of the
 * program's that it has not read. */
static void test_loss_is_read(void **state)
{
    char text[4096];
    scene *s = new_scene(false);
    s->evaluates = true;
    s->dies[1] = 9;
    FILE *err = tmpfile();
    assert_non_null(err);
    s->err = fileno(err);
    run_scene(s);
    text[pread(s->err, text, sizeof text - 1, 0)] = '\0';
    if (strstr(text, "was not read"))
        fail_msg("%s", text);
    fclose(err);
    assert_true(s->generations >= 2);
    free_scene(s);
}

int main(void)
{
    signal(SIGXFSZ, SIG_IGN);
    if (choir_dataset_random(96, choir_dims(1, 4, 4), CHOIR_SCALAR, 4, 7, &images) != CHOIR_OK)
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_newer_checkpoint),
        cmocka_unit_test(test_old_copies), cmocka_unit_test(test_reserved),
        cmocka_unit_test(test_newcomer_waits), cmocka_unit_test(test_newcomer_in_vain),
        cmocka_unit_test(test_checkpoint_lacks_state), cmocka_unit_test(test_loss_is_read)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    choir_dataset_free(images);
    return failed;
}
