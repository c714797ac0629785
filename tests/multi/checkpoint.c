/* Ranks save a checkpoint together: replicas share the work, buffers come from the first rank,
 * and shards become whole tensors. A difference between the ranks is refused on all of them,
 * and an asynchronous save reports its error later. fault/checkpoint_ranks.c tests file
 * errors. */
#include "checkpoint_fixture.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <choir/choir.h>
#include "multi/ranks.h"

enum { WORLD = 3 };

static bool exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

static choir_module *new_net(choir_scope *run, int64_t width)
{
    return choir_nn_sequential(run, choir_nn_linear(run, 6, width),
        choir_nn_batch_norm(run, width), choir_nn_relu(run), choir_nn_linear(run, width, 5));
}

static int fill(choir_module *net, const char *name, float value)
{
    choir_tensor *t = choir_module_find(net, name);
    float values[256];
    for (int64_t i = 0; i < choir_tensor_count(t); i++)
        values[i] = value;
    CHECK_OK(choir_write(t, values, (size_t)choir_tensor_count(t) * sizeof *values));
    return 0;
}

typedef struct ranked {
    choir_env env;
    choir_scope *run;
    choir_module *net;
    choir_checkpoint *c;
} ranked;

static int open_job(ranked *j, int64_t width, bool async)
{
    CHECK_OK(choir_env_init(&j->env));
    j->run = choir_run_open(&j->env, 3);
    j->net = new_net(j->run, width);
    choir_checkpoint_opts opts = choir_checkpoint_defaults();
    opts.group = j->env.group;
    opts.async = async;
    opts.file_bytes = 1;
    CHECK_OK(choir_checkpoint_open(at("run"), opts, &j->c));
    return 0;
}

static int close_job(ranked *j)
{
    CHECK_OK(choir_checkpoint_close(j->c));
    CHECK_OK(choir_scope_close(j->run));
    choir_env_free(&j->env);
    return 0;
}

static int save_replicas(int rank, int world, void *arg)
{
    ranked j;
    int64_t step = 0;
    CHECK(open_job(&j, 16, false) == 0);
    CHECK(fill(j.net, "1.running_mean", (float)rank) == 0);
    choir_optim *opt = choir_adamw(j.run, j.net, choir_adamw_defaults());
    CHECK_OK(choir_checkpoint_save(j.c, j.net, opt, 7));
    for (int k = 1; k <= world; k++) {
        CHECK(exists(at("run/latest/model-%05d-of-%05d.safetensors", k, world)));
        CHECK(exists(at("run/latest/optimizer-%05d-of-%05d.safetensors", k, world)));
    }
    CHECK(fill(j.net, "1.running_mean", -1) == 0);
    CHECK_OK(choir_checkpoint_load(j.c, j.net, opt, &step));
    float mean[16];
    CHECK_OK(choir_read(choir_module_find(j.net, "1.running_mean"), mean, sizeof mean));
    CHECK(step == 7 && mean[0] == 0 && mean[15] == 0);
    return close_job(&j);
}

/* Each rank writes a part of the replicated tensors; if they are small, only the first rank
 * writes. */
static void replicas_share_the_work(void **state)
{
    ok(choir_spawn(WORLD, save_replicas, NULL));
    assert_true(exists(at("run/latest/model.safetensors.index.json")));
    choir_scope *run = choir_scope_open(NULL, 3);
    choir_module *net = new_net(run, 16);
    choir_checkpoint *c;
    int64_t step;
    ok(choir_checkpoint_open(at("run"), choir_checkpoint_defaults(), &c));
    assert_true(choir_checkpoint_exists(c));
    ok(choir_checkpoint_load(c, net, NULL, &step));
    ok(choir_checkpoint_save(c, net, NULL, 8));
    assert_true(exists(at("run/latest/model.safetensors")));
    assert_false(exists(at("run/latest/optimizer.safetensors")));
    ok(choir_checkpoint_close(c));
    ok(choir_scope_close(run));
}

/* --- whole --- */

static int save_whole(int rank, int world, void *arg)
{
    ranked j;
    char hex[2][65];
    CHECK(open_job(&j, 16, false) == 0);
    if (rank == 0) {
        CHECK_OK(choir_save(j.net, at("plain.safetensors")));
        CHECK_OK(choir_weights_sha256(j.net, NULL, hex[0]));
    }
    choir_module *net = choir_fsdp(j.run, j.net, j.env.group, choir_fsdp_defaults());
    CHECK(choir_save(net, at("part.safetensors")) == CHOIR_ERR_MISMATCH);
    CHECK_OK(choir_save_whole(net, j.env.group, at("whole.safetensors")));
    CHECK_OK(choir_weights_sha256(net, j.env.group, hex[1]));
    CHECK(rank != 0 || !strcmp(hex[0], hex[1]));
    CHECK(choir_save_whole(net, j.env.group, at("no/such/folder")) == CHOIR_ERR_IO);
    CHECK(strstr(choir_error_message(), "no/such/folder"));
    CHECK_OK(choir_load(net, at("whole.safetensors")));
    CHECK_OK(choir_weights_sha256(net, j.env.group, hex[1]));
    CHECK(rank != 0 || !strcmp(hex[0], hex[1]));
    return close_job(&j);
}

static void shards_become_whole(void **state)
{
    size_t n, m;
    ok(choir_spawn(WORLD, save_whole, NULL));
    unsigned char *plain = slurp(at("plain.safetensors"), &n);
    unsigned char *whole = slurp(at("whole.safetensors"), &m);
    assert_int_equal(n, m);
    assert_memory_equal(plain, whole, n);
    free(plain);
    free(whole);
}

/* --- refused --- */

static int differ(int rank, int world, void *arg)
{
    ranked j;
    CHECK(open_job(&j, rank == 1 ? 8 : 16, false) == 0);
    CHECK(choir_checkpoint_save(j.c, j.net, NULL, 9) == CHOIR_ERR_MISMATCH);
    CHECK(strstr(choir_error_message(), "rank 1 has another model or optimizer than rank 0"));
    return close_job(&j);
}

static int fail_later(int rank, int world, void *arg)
{
    ranked j;
    int64_t step;
    CHECK(open_job(&j, 16, true) == 0);
    choir_module *net = choir_fsdp(j.run, j.net, j.env.group, choir_fsdp_defaults());
    CHECK_OK(choir_checkpoint_save(j.c, net, NULL, 10));
    if (rank == 0)
        CHECK(fill(j.net, "3.weight", INFINITY) == 0);
    CHECK_OK(choir_group_barrier(j.env.group, NULL));
    CHECK_OK(choir_checkpoint_save(j.c, net, NULL, 11)); /* its error is not seen yet */
    CHECK(choir_checkpoint_save(j.c, net, NULL, 12) == CHOIR_ERR_NONFINITE);
    CHECK(strstr(choir_error_message(), "the checkpoint of step 11 was not saved: "));
    CHECK(strstr(choir_error_message(), "'3.weight' (5, 16) holds inf"));
    CHECK_OK(choir_checkpoint_load(j.c, net, NULL, &step));
    CHECK(step == 10);
    CHECK_OK(choir_checkpoint_save(j.c, net, NULL, 13)); /* the job continues */
    return close_job(&j);
}

static void refused_on_all_ranks(void **state)
{
    ok(choir_spawn(WORLD, differ, NULL));
    ok(choir_spawn(WORLD, fail_later, NULL));
    assert_true(exists(at("run/step-00000013")));
    assert_int_equal(entries(at("run")), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_share_the_work),
        cmocka_unit_test(shards_become_whole),
        cmocka_unit_test(refused_on_all_ranks),
    };
    return cmocka_run_group_tests(tests, set_up, remove_all);
}
