/* Damaged checkpoints: a file that is not whole is refused and named. A save that cannot
 * succeed (non-finite weights, another process saving there, a full disk) leaves the previous
 * checkpoint. */
#include "checkpoint_fixture.h"

#include <poll.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* --- damage --- */

/* Loading refuses, naming the file, and the module is as it was. */
static void assert_damaged(const char *dir, const char *name, job *j, const char *before)
{
    assert_int_not_equal(choir__checkpoint_load(dir, j->net, j->opt, NULL), CHOIR_OK);
    assert_says(name);
    assert_string_equal(sha(j->net), before);
}

static void damage(const char *dir, const char *name, job *j)
{
    size_t bytes;
    char path[512], before[65];
    memcpy(before, sha(j->net), sizeof before);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    unsigned char *whole = slurp(path, &bytes);
    for (size_t n = 0; n < bytes; n += bytes / 16) {
        spit(path, whole, n);
        assert_damaged(dir, name, j, before);
        whole[n] ^= 0x55;
        spit(path, whole, bytes);
        assert_damaged(dir, name, j, before);
        whole[n] ^= 0x55;
    }
    whole[bytes] = 'x';
    spit(path, whole, bytes + 1);
    assert_damaged(dir, name, j, before);
    assert_int_equal(unlink(path), 0);
    assert_damaged(dir, name, j, before);
    spit(path, whole, bytes);
    free(whole);
}

static void damaged_files(void **state)
{
    job a = job_open(TOY, ADAMW), b = job_open(TOY, ADAMW);
    char found[PATH_MAX];
    train(&a, 0, 1);
    save(at("damage"), &a, 1, false);
    ok(choir__checkpoint_find(at("damage"), found));
    damage(found, "model.safetensors", &b);
    damage(found, "optimizer.safetensors", &b);
    damage(found, "state.json", &b);
    assert_int_equal(load(at("damage"), &b), 1);
    job_close(&a);
    job_close(&b);
}

/* A flipped bit of the state is reported, or changes no stored value. */
static void every_flip_of_state(void **state)
{
    job j = job_open(TOY, SGD_PLAIN);
    size_t bytes;
    char found[PATH_MAX], path[PATH_MAX + 16];
    choir_train_state want = {0};
    save(at("flip"), &j, 1, false);
    ok(choir__checkpoint_find(at("flip"), found));
    ok(choir__checkpoint_state(found, &want));
    snprintf(path, sizeof path, "%s/state.json", found);
    unsigned char *whole = slurp(path, &bytes);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        choir_train_state got = {0};
        whole[bit / 8] ^= (unsigned char)(1u << bit % 8);
        spit(path, whole, bytes);
        if (choir__checkpoint_state(found, &got) == CHOIR_OK) {
            assert_string_equal(got.model, want.model);
            assert_int_equal(got.step, want.step);
            assert_true(got.seed == want.seed && got.best_loss == want.best_loss);
        } else {
            assert_says("state.json");
        }
        whole[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    free(whole);
    job_close(&j);
}

/* --- saves that are refused --- */

/* A diverged model does not replace the last checkpoint that can be loaded. */
static void refuses_nonfinite(void **state)
{
    job j = job_open(TOY, ADAMW);
    save(at("nan"), &j, 1, false);
    float bias[2] = {0, NAN};
    ok(choir_write(choir_module_find(j.net, "2.bias"), bias, sizeof bias));
    choir_train_state s = state_of(&j, 2);
    assert_fails(save_checkpoint(at("nan"), &s, j.net, j.opt, NULL, true), CHOIR_ERR_NONFINITE,
        "'2.bias' (2) holds nan, as f32, at index 1");
    assert_says("the checkpoint before is untouched");
    assert_int_equal(load(at("nan"), &j), 1);
    assert_int_equal(entries(at("nan")), 2);
    job_close(&j);
}

/* A killed process holds its lock until the kernel has finished its writes; the job that
 * continues waits for that. */
static void waits_for_a_dying_save(void **state)
{
    int taken[2];
    char byte;
    job j = job_open(TOY, ADAMW);
    save(at("dying"), &j, 1, false);
    assert_int_equal(pipe(taken), 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = open(at("dying"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        bool told = flock(fd, LOCK_EX) == 0 && write(taken[1], "", 1) == 1;
        poll(NULL, 0, 200);
        _exit(!told);
    }
    assert_int_equal(read(taken[0], &byte, 1), 1);
    save(at("dying"), &j, 2, false);
    assert_int_equal(load(at("dying"), &j), 2);
    int end;
    waitpid(child, &end, 0);
    assert_int_equal(end, 0);
    close(taken[0]);
    close(taken[1]);
    job_close(&j);
}

static void one_at_a_time(void **state)
{
    job j = job_open(TOY, ADAMW);
    save(at("lock"), &j, 1, false);
    int fd = open(at("lock"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    choir_train_state s = state_of(&j, 2);
    assert_fails(save_checkpoint(at("lock"), &s, j.net, j.opt, NULL, false), CHOIR_ERR_IO,
        "another process is saving");
    close(fd);
    save(at("lock"), &j, 2, false);
    touch(at("file"));
    assert_fails(save_checkpoint(at("file"), &s, j.net, j.opt, NULL, false), CHOIR_ERR_IO,
        "Not a directory");
    job_close(&j);
}

/* --- full disks --- */

/* At every limit on the size of files, the save fails cleanly or succeeds. */
static void limited_files(void **state)
{
    struct rlimit old;
    job a = job_open(TOY, ADAMW), b = job_open(TOY, ADAMW);
    int64_t last = 1;
    save(at("limit"), &a, 1, true);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    for (int limit = 0; limit < 3000; limit += 50) {
        choir_train_state s = state_of(&a, 2 + limit);
        struct rlimit low = {(rlim_t)limit, old.rlim_max};
        train(&a, limit, limit + 1);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
        choir_status status = save_checkpoint(at("limit"), &s, a.net, a.opt, NULL, false);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        if (status == CHOIR_OK) {
            last = s.step;
        } else {
            assert_fails(
                status, CHOIR_ERR_IO, "File too large; the checkpoint before is untouched");
        }
        assert_int_equal(load(at("limit"), &b), last);
        assert_int_equal(entries(at("limit")), last == 1 ? 3 : 4);
    }
    assert_int_equal(last, 2 + 2950);
    job_close(&a);
    job_close(&b);
}

/* Runs in a separate process, on a small separate file system that fills up. */
static int fill_disk(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", folder, "tmpfs", 0, "size=96k") != 0)
        return NOT_PERMITTED;
    job a = job_open(TOY, ADAMW);
    int saved = 0, refused = 0;
    for (int k = 1; k <= 16; k++) {
        choir_train_state s = state_of(&a, k);
        char found[PATH_MAX];
        if (save_checkpoint(at("run"), &s, a.net, a.opt, NULL, false) == CHOIR_OK) {
            saved++;
        } else {
            if (!strstr(choir_error_message(),
                    "No space left on device; the checkpoint before is untouched"))
                return 1;
            refused++;
        }
        if (choir__checkpoint_find(at("run"), found) != CHOIR_OK ||
            choir__checkpoint_load(found, a.net, a.opt, NULL) != CHOIR_OK)
            return 2;
        FILE *f = fopen(at("filler-%d", k), "wb");
        for (int i = 0; f && i < 8000; i++)
            fputc('x', f);
        if (f)
            fclose(f);
    }
    job_close(&a);
    return saved && refused ? 0 : 3;
}

static void full_disk(void **state)
{
    int status;
    pid_t child = start("--fill-disk", -1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NOT_PERMITTED) {
        print_message("skipped: no permission to mount a tmpfs\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_files),
        cmocka_unit_test(every_flip_of_state),
        cmocka_unit_test(refuses_nonfinite),
        cmocka_unit_test(waits_for_a_dying_save),
        cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(limited_files),
        cmocka_unit_test(full_disk),
    };
    if (started_for(argc, argv, "--fill-disk"))
        return fill_disk();
    return cmocka_run_group_tests(tests, set_up, remove_all);
}
