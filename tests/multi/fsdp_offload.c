/* FSDP with off-loaded shards: in host memory or in a file, on any number of ranks, the bits
 * are those of one device, and the pool holds a few units. A file's pages are the process's
 * only while they are used. A folder that is missing or full, or disappears during the run. */
#include <signal.h>
#include <sys/resource.h>

#include "folder_fixture.h"
#include "fsdp_fixture.h"

/* True if ranks compute on (soft) GPUs, which reach no file. */
static bool on_gpus(void)
{
    const char *device = getenv("CHOIR_DEVICE");
    return device && !strncmp(device, "cuda", 4);
}

/* Limits of rank 0's files in bytes: while it makes the module, and while it steps; 0: none. */
static uint64_t first_limit, later_limit;

static void limit_files(const job *j, uint64_t bytes)
{
    struct rlimit limit = {(rlim_t)bytes, (rlim_t)bytes};
    if (bytes && j->r.env.rank == 0)
        setrlimit(RLIMIT_FSIZE, &limit);
}

static void limit_at_first(const job *j)
{
    limit_files(j, first_limit);
}

/* Returns how many KiB of unnamed files in the folder are in this process's memory; -1: none is
 * mapped. */
static long resident(const char *dir)
{
    char line[512];
    long kib = -1, more;
    bool here = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    while (f && fgets(line, sizeof line, f)) {
        unsigned long lo, hi;
        if (sscanf(line, "%lx-%lx ", &lo, &hi) == 2)
            here = strstr(line, dir) != NULL;
        else if (here && sscanf(line, "Rss: %ld", &more) == 1)
            kib = (kib < 0 ? 0 : kib) + more;
    }
    if (f)
        fclose(f);
    return kib;
}

static int pages_are_away(const job *j, int step)
{
    if (step < STEPS - 1)
        return 0;
    CHECK_OK(choir_device_sync(j->r.env.device));
    long kib = resident(j->plan->folder); /* but for the pages between parameters */
    CHECK(kib >= 0 && kib < 200);
    return 0;
}

static int folder_vanishes(const job *j, int step)
{
    if (step == 1 && j->r.env.rank == 0)
        CHECK(rmdir(j->plan->folder) == 0);
    return pages_are_away(j, step);
}

static choir_fsdp_opts offloaded(int shard_ranks)
{
    choir_fsdp_opts opts = choir_fsdp_defaults();
    opts.offload = true;
    opts.shard_ranks = shard_ranks;
    return opts;
}

/* One micro-batch or several per rank, one less on some, in copies, and every optimizer. */
static void bits(void **state)
{
    for (int m = 4; m <= 5; m++)
        for (rule r = ADAM; r <= LAMB; r++) {
            plan single = run(1, (plan){.single = true, .rule = r, .microbatches = m});
            assert_true(single.loss[0] != single.loss[STEPS - 1]);
            for (int ranks = 1; ranks <= 4; ranks++)
                for (int file = 0; file < (on_gpus() ? 1 : 2); file++) {
                    plan p = {.rule = r,
                        .microbatches = m,
                        .opts = offloaded(m == 4 && ranks % 2 == 0 ? ranks / 2 : 0),
                        .recorded = (ranks + file) % 2 == 0};
                    if (file) {
                        strcpy(p.folder, folder);
                        p.look = pages_are_away;
                    }
                    p = run(ranks, p);
                    same(&single, &p);
                    if (ranks == 1)
                        assert_true(p.state == single.state);
                }
        }
}

/* The pool holds weights and gradients of two units each; on one rank, too, and if a rank adds
 * up micro-batches. The model has BLOCKS units, and its state is as much as 4 BLOCKS of them.
 */
static void memory(void **state)
{
    const uint64_t unit = UNIT * sizeof(float), slack = 256 * 1024;
    for (int ranks = 1; ranks <= 2; ranks++) {
        plan p = run(ranks, (plan){.opts = offloaded(0), .microbatches = ranks});
        assert_true(p.peak < 4 * unit + slack);
        p = run(ranks, (plan){.opts = offloaded(0), .microbatches = 4});
        assert_true(p.peak < 4 * unit + slack);
    }
}

/* --- folders --- */

/* Opens the job and steps, and notes what comes of it. */
static int suffers(int rank, int world, void *arg)
{
    plan *p = arg;
    job j;
    signal(SIGXFSZ, SIG_IGN);
    open_job(&j, p);
    limit_files(&j, later_limit);
    choir_status status = choir_scope_status(j.r.run);
    if (status == CHOIR_OK)
        status = step(&j, 0);
    note(p->notes, rank, status);
    choir_scope_close(j.r.run);
    choir_env_free(&j.r.env);
    return 0;
}

/* Expects the sentence on the rank that finds out, and on the other rank, too, if that is still
 * in the same collective work: the optimizer steps alone. */
static void expect(plan p, int ranks, const char *text)
{
    p.notes = new_notes();
    p.microbatches = 2;
    p.prepare = limit_at_first;
    ok(choir_spawn(2, suffers, &p));
    for (int r = 0; r < ranks; r++) {
        assert_int_not_equal(p.notes->status[r], CHOIR_OK);
        if (!strstr(p.notes->message[r], text))
            fail_msg("rank %d: '%s', not '%s'", r, p.notes->message[r], text);
    }
    munmap(p.notes, sizeof *p.notes);
}

static void bad_folders(void **state)
{
    plan p = {.opts = offloaded(0), .folder = "/nowhere/at/all"};
    if (on_gpus()) {
        strcpy(p.folder, folder);
        expect(p, 2, "cannot compute with host memory");
        return;
    }
    expect(p, 2, "off-loaded shards cannot go to a file in '/nowhere/at/all': No such file");
    strcpy(p.folder, folder);
    const uint64_t share = UNIT * sizeof(float) * BLOCKS / 2;
    const char *what[] = {
        "share of the weights", "share of the gradients", "optimizer's state"};
    for (int full = 0; full < 3; full++) { /* room for this number of shares */
        char text[128];
        uint64_t limit = (uint64_t)full * (share + 64 * 1024) + 8 * 1024;
        first_limit = full ? 0 : limit;
        later_limit = full ? limit : 0;
        snprintf(text, sizeof text, "%s in '%s': File too large", what[full], folder);
        expect(p, full == 2 ? 1 : 2, text);
    }
    later_limit = 0;
}

/* The file stays until the last rank ends. */
static void vanishing(void **state)
{
    if (on_gpus())
        return;
    plan p = {.opts = offloaded(0), .microbatches = 2, .look = folder_vanishes};
    strcpy(p.folder, "/tmp/choir-vanish.XXXXXX");
    assert_non_null(mkdtemp(p.folder));
    plan single = run(1, (plan){.single = true, .microbatches = 2});
    p = run(2, p);
    same(&single, &p);
    assert_int_not_equal(access(p.folder, F_OK), 0);
}

static void wrong(void **state)
{
    plan p = {.opts = offloaded(0)};
    p.opts.stage = 2;
    expect(p, 2, "choose stage 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bits), cmocka_unit_test(memory),
        cmocka_unit_test(bad_folders), cmocka_unit_test(vanishing), cmocka_unit_test(wrong)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
