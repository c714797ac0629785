/* Bytes that change on their way to the disk, in each write of a save in turn: the save fails,
 * or the checkpoint does not load. Files beside the tensors are read again by the save itself,
 * or they would have the hashes of the changed bytes. Numbers that a rank's memory has changed
 * before differ from the numbers of other ranks.
 *
 * The linker gives this program's calls of write to the function below (--wrap). */
#include "checkpoint_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

#include <choir/choir.h>
#include "checkpoint/checkpoint.h"
#include "checkpoint/format/file.h"
#include "checkpoint/save.h"
#include "checkpoint/state.h"
#include "multi/ranks.h"

enum { WORLD = 3, MOST_WRITES = 200 };

static const char job_text[] = "{\"options\": {\"steps\": 12}}";

static struct {
    int at;     /* the number of the write with a changed bit; 0: none */
    int writes; /* so far */
} changed;

ssize_t __real_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);

ssize_t __wrap_write(int fd, const void *data, size_t bytes)
{
    struct stat info;
    if (!changed.at || !bytes || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) ||
        ++changed.writes != changed.at)
        return __real_write(fd, data, bytes);
    char *other = malloc(bytes);
    memcpy(other, data, bytes);
    other[bytes / 2] ^= 1;
    ssize_t n = __real_write(fd, other, bytes);
    free(other);
    return n;
}

/* Saves with a bit changed in write number n; *status: the save's. Returns false if there is no
 * such write. */
static bool save_changed(job *j, const char *dir, int n, choir_status *status)
{
    choir_checkpoint *saved;
    choir_training parts = {.module = j->net, .optim = j->opt, .job = job_text};
    choir_train_state state = state_of(j, n);
    ok(choir_checkpoint_open(dir, choir_checkpoint_defaults(), &saved));
    changed.at = n;
    changed.writes = 0;
    *status = choir_training_save(saved, &parts, &state, 0);
    changed.at = 0;
    if (*status == CHOIR_ERR_STATE)
        assert_says("has other bytes than were to be written");
    (void)choir_checkpoint_close(saved);
    return changed.writes >= n;
}

static void no_changed_bit_is_trusted(void **state)
{
    job a = job_open(TOY, ADAMW), b = job_open(TOY, ADAMW);
    choir_status status;
    int refused = 0, damaged = 0;
    train(&a, 0, 1);
    for (int n = 1; n < MOST_WRITES; n++) {
        if (!save_changed(&a, at("changed-%d", n), n, &status))
            break;
        if (status != CHOIR_OK) {
            assert_int_equal(status, CHOIR_ERR_STATE);
            refused++;
            continue;
        }
        assert_int_not_equal(
            choir__checkpoint_load(at("changed-%d/latest", n), b.net, b.opt, NULL), CHOIR_OK);
        damaged++;
    }
    assert_true(refused >= 2); /* job.json, state.json */
    assert_true(damaged >= 2); /* weights, moments */
    job_close(&a);
    job_close(&b);
}

/* --- numbers that change before they are written --- */

static void know(
    void *arg, const choir__item *item, const choir__box_region *region, choir__proof *proof)
{
    *proof = (choir__proof){0};
}

/* arg: the rank whose numbers change before the second save. */
static int save_ranks(int rank, int world, void *arg)
{
    const int *odd = arg;
    choir_env env;
    choir_checkpoint *saved;
    choir_train_state state = choir_train_state_none();
    choir_checkpoint_opts opts = choir_checkpoint_defaults();
    CHECK_OK(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, 3);
    choir_training parts = {.module = choir_nn_linear(run, 3, 2)};
    opts.group = env.group;
    opts.async = true;
    CHECK_OK(choir_checkpoint_open(at("ranks-%d", *odd), opts, &saved));
    choir__saver_proves(saved->saver, know, NULL);
    state.step = 1;
    CHECK_OK(choir_training_save(saved, &parts, &state, 0));
    state.step = 2;
    state.best = rank == *odd ? 1 : NAN;
    CHECK(choir_training_save(saved, &parts, &state, 0) == CHOIR_ERR_STATE);
    CHECK(strstr(choir_error_message(), "rank ") && strstr(choir_error_message(), "has other"));
    if (world > 2) {
        char name[24];
        snprintf(name, sizeof name, "rank %d has other", *odd);
        CHECK(strstr(choir_error_message(), name));
    }
    (void)choir_checkpoint_close(saved);
    CHECK_OK(choir_scope_close(run));
    choir_env_free(&env);
    return 0;
}

static void numbers_of_ranks(void **state)
{
    for (int world = 2; world <= WORLD; world++)
        for (int odd = 0; odd < world; odd++) {
            remove_all(state);
            set_up(state);
            ok(choir_spawn(world, save_ranks, &odd));
            assert_int_equal(entries(at("ranks-%d", odd)), 2); /* step 1 and `latest` */
        }
}

/* The state may change until the save's thread has written it. */
static void state_is_read_again(void **state)
{
    char fresh[512];
    snprintf(fresh, sizeof fresh, "%s", at("again"));
    choir__saver s = {.dir = fresh, .fresh = fresh, .state = choir_train_state_none()};
    ok(choir__save_note_state(&s));
    mkdir(s.fresh, 0777);
    for (int step = 0; step < 2; step++) {
        json_t *files = json_object();
        s.state.step = step;
        ok(choir__state_write(s.fresh, &s.state, files));
        json_decref(files);
        if (step)
            assert_fails(
                choir__save_prove_state(&s), CHOIR_ERR_STATE, "state.json is not what");
        else
            ok(choir__save_prove_state(&s));
    }
}

static bool is_there(const char *name)
{
    return access(at("aside/%s/state.json", name), F_OK) == 0;
}

/* A second fault finds the folder that the first one left. */
static void suspects_are_put_aside(void **state)
{
    char dir[512];
    static const char *const names[] = {"step-00000004", "step-00000008"};
    snprintf(dir, sizeof dir, "%s", at("aside"));
    mkdir(dir, 0777);
    for (int fault = 0; fault < 2; fault++) {
        for (size_t i = 0; i < CHOIR_COUNT(names); i++) {
            mkdir(at("aside/%s", names[i]), 0777);
            ok(choir__write_file(at("aside/%s/state.json", names[i]), "{}", 2));
        }
        ok(choir__checkpoint_put_aside(dir, 4));
        assert_true(is_there("step-00000004") && is_there("suspect-step-00000008"));
        assert_false(is_there("step-00000008"));
    }
}

/* A user's file in the folder of an earlier fault is kept, so a name is taken. */
static void suspects_that_stay_are_told(void **state)
{
    char dir[512];
    static const char *const names[] = {"step-00000008", "step-00000012"};
    snprintf(dir, sizeof dir, "%s", at("stays"));
    mkdir(dir, 0777);
    for (size_t i = 0; i < CHOIR_COUNT(names); i++) {
        mkdir(at("stays/%s", names[i]), 0777);
        ok(choir__write_file(at("stays/%s/state.json", names[i]), "{}", 2));
    }
    assert_int_equal(symlink("step-00000012", at("stays/latest")), 0);
    mkdir(at("stays/suspect-step-00000012"), 0777);
    ok(choir__write_file(at("stays/suspect-step-00000012/notes"), "", 0));
    assert_fails(choir__checkpoint_put_aside(dir, 4), CHOIR_ERR_IO,
        "step-00000012 cannot be renamed to suspect-step-00000012: ");
    assert_int_equal(access(at("stays/suspect-step-00000008/state.json"), F_OK), 0);
    assert_int_equal(access(at("stays/step-00000012/state.json"), F_OK), 0);
    assert_int_not_equal(access(at("stays/latest"), F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_changed_bit_is_trusted),
        cmocka_unit_test(numbers_of_ranks),
        cmocka_unit_test(state_is_read_again),
        cmocka_unit_test(suspects_are_put_aside),
        cmocka_unit_test(suspects_that_stay_are_told),
    };
    return cmocka_run_group_tests(tests, set_up, remove_all);
}
