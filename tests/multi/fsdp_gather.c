/* FSDP that gathers its weights: between ranks without shared memory, and on request. The bits
 * are those of one device; a rank's memory holds a few units and its shard; writing to a whole
 * weight changes the rows of every rank. The death of a rank and a unit that does not fit are
 * reported on all ranks. */
#include <signal.h>

#include "fsdp_fixture.h"

enum { M = 5, VICTIM = 1 };

static choir_fsdp_opts gathered(bool reshard, int shard_ranks)
{
    choir_fsdp_opts opts = choir_fsdp_defaults();
    opts.gather = true;
    opts.reshard_after_forward = reshard;
    opts.shard_ranks = shard_ranks;
    return opts;
}

/* Also with one micro-batch less on some ranks, in copies, by single layers, and recomputed. */
static void bits(void **state)
{
    plan single = run(1, (plan){.single = true, .microbatches = M});
    plan four = run(1, (plan){.single = true, .microbatches = 4});
    assert_true(single.loss[0] != single.loss[STEPS - 1]);
    for (int engine = 0; engine < 1 + have_ucx(); engine++)
        for (int ranks = 1; ranks <= 4; ranks++) {
            plan p = {.backend = engine ? "ucx" : "shm",
                .opts = gathered(ranks != 3, 0),
                .recorded = ranks % 2 == 0,
                .recompute = ranks > 2,
                .microbatches = M};
            p.opts.unit_class = ranks == 4 ? "linear" : NULL;
            p = run(ranks, p);
            same(&single, &p);
            if (ranks % 2)
                continue;
            p = run(ranks, (plan){.backend = engine ? "ucx" : "shm",
                               .opts = gathered(true, ranks / 2),
                               .microbatches = 4});
            same(&four, &p);
        }
}

/* The limit is a shard of weights, gradients and two moments, and at most four units: two of
 * weights, two of gradients. All weights alone would be BLOCKS units. */
static void memory(void **state)
{
    const uint64_t unit = UNIT * sizeof(float), slack = 256 * 1024;
    plan p = run(4, (plan){.opts = gathered(true, 0), .microbatches = 4});
    assert_true(p.peak < 4 * BLOCKS * unit / 4 + 4 * unit + slack);
    plan kept = run(4, (plan){.opts = gathered(false, 0), .microbatches = 4});
    assert_true(kept.peak > p.peak + (BLOCKS - 4) * unit);
    same(&p, &kept);
    uint64_t peaks[2]; /* gradients of stage 1, too, are whole in two units at most */
    for (int stage = 1; stage <= 2; stage++) {
        choir_fsdp_opts opts = choir_fsdp_defaults();
        opts.stage = stage;
        peaks[stage - 1] = run(4, (plan){.opts = opts, .microbatches = 4}).peak;
    }
    assert_true(peaks[0] == peaks[1]);
}

/* --- writing to a weight --- */

static int writes(int rank, int world, void *arg)
{
    job j;
    int count;
    float *x = calloc(WIDTH * WIDTH, sizeof *x), *y = calloc(WIDTH * WIDTH, sizeof *y);
    open_job(&j, arg);
    choir__param **params = choir__module_params(j.r.net, &count);
    for (int i = 0; i < WIDTH * WIDTH; i++)
        x[i] = (float)i * 1e-6f;
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < count; i++) {
            size_t bytes = (size_t)params[i]->tensor->count * sizeof *x;
            x[0] = (float)(turn + i) * 1e-3f;
            CHECK_OK(choir_write(params[i]->tensor, x, bytes));
        }
        if (turn) /* the optimizer continues from the written values */
            CHECK_OK(step(&j, 0));
        for (int i = 0; i < count; i++) {
            size_t bytes = (size_t)params[i]->tensor->count * sizeof *x;
            x[0] = (float)(turn + i) * 1e-3f;
            CHECK_OK(choir_read(params[i]->tensor, y, bytes));
            CHECK((memcmp(x, y, bytes) == 0) == !turn);
            for (int64_t k = 0; k < params[i]->tensor->count; k++)
                CHECK(y[k] > x[k] - 0.1f && y[k] < x[k] + 0.1f);
        }
    }
    free(params);
    free(x);
    free(y);
    return close_rank_job(&j.r);
}

static void written(void **state)
{
    plan p = {.opts = gathered(true, 0), .microbatches = M};
    ok(choir_spawn(3, writes, &p));
}

/* --- failures --- */

static void die(choir_module *m, choir_tensor *const *in, int count, void *arg)
{
    kill(getpid(), SIGKILL);
}

static int dies(int rank, int world, void *arg)
{
    plan *p = arg;
    job j;
    open_job(&j, p);
    CHECK_OK(step(&j, 0));
    note_self(p->notes, rank);
    CHECK_OK(choir_group_barrier(j.r.env.group, NULL));
    if (rank == VICTIM) { /* in the middle of a forward pass */
        choir_module *inner =
            j.r.net->inside->entries->child->inside->entries->next->next->child;
        choir_module_hook(inner, (choir_module_hooks){.before_forward = die}, NULL);
    }
    choir_status status = run_step(j.r.run, false, 1, body, &j);
    if (!status)
        status = choir_device_sync(j.r.env.device);
    note(p->notes, rank, status);
    return 0;
}

static void dead(void **state)
{
    for (int engine = 0; engine < 1 + have_ucx(); engine++) {
        char who[64];
        plan p = {.backend = engine ? "ucx" : "shm",
            .opts = gathered(true, 0),
            .microbatches = M,
            .notes = new_notes()};
        assert_int_equal(choir_spawn(3, dies, &p), CHOIR_ERR_PEER_LOST);
        snprintf(who, sizeof who, "rank 1 (pid %d) died", (int)p.notes->pid[1]);
        for (int r = 0; r < 3; r += 2) {
            if (!strstr(p.notes->message[r], who))
                fail_msg("%s, rank %d: '%s'", p.backend, r, p.notes->message[r]);
            assert_int_equal(p.notes->status[r], CHOIR_ERR_PEER_LOST);
        }
        munmap(p.notes, sizeof *p.notes);
    }
}

static int starves(int rank, int world, void *arg)
{
    plan *p = arg;
    job j;
    choir_device_stats stats;
    open_job(&j, p);
    CHECK_OK(step(&j, 0));
    choir__pool_trim(j.r.env.device);
    choir_device_get_stats(j.r.env.device, &stats);
    CHECK_OK(choir_group_barrier(j.r.env.group, NULL));
    if (rank == VICTIM) /* activations fit */
        choir_device_set_limit(j.r.env.device, stats.bytes_reserved + 3 * UNIT);
    choir_status status = run_step(j.r.run, false, 1, body, &j);
    if (!status)
        status = choir_device_sync(j.r.env.device);
    note(p->notes, rank, status);
    choir_scope_close(j.r.run);
    return 0;
}

static void too_large(void **state)
{
    plan p = {.opts = gathered(true, 0), .microbatches = M, .notes = new_notes()};
    ok(choir_spawn(2, starves, &p));
    for (int r = 0; r < 2; r++) {
        if (p.notes->status[r] != CHOIR_ERR_MEMORY ||
            !strstr(p.notes->message[r], "for the weights of the unit with '"))
            fail_msg("rank %d: '%s'", r, p.notes->message[r]);
    }
    munmap(p.notes, sizeof *p.notes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bits), cmocka_unit_test(memory),
        cmocka_unit_test(written), cmocka_unit_test(dead), cmocka_unit_test(too_large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
