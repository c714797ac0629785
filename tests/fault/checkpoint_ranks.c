/* Ranks that save together, with an error at every write, fsync, rename and removal of a save.
 *
 * The linker gives this program's calls to the functions below (--wrap). Before each call, and
 * in the middle of a write, the folder is copied: the copy is what a job killed there leaves.
 * It must have the previous checkpoint or the new one, whole, and the next save must clear it
 * up. In other tests a call fails on one rank: then the save fails on all of them. */
#include "checkpoint_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <choir/choir.h>
#include "checkpoint/items.h"
#include "multi/ranks.h"
#include "tensor/scope.h"

enum { MOST = 3, FAILURES = 200, MOST_FDS = 1024 };

/* In memory that the ranks share. */
typedef struct board {
    pthread_mutex_t lock; /* one call at a time, so that a copy is of one moment */
    int copies, unsynced; /* made; files written to and not on the disk */
    bool early;           /* a folder got its name before its files were on the disk */
    choir_status status[MOST];
    char message[MOST][1024];
} board;

static board *shared;

static struct {
    bool copies;    /* before each call */
    int fail, dies; /* the number of the call that fails, or kills; 0: none */
    bool no_locks;  /* the file system has none */
    const char *dir;
    int calls;
    bool unsynced[MOST_FDS]; /* files written to by this rank and not on the disk */
} faults;

int __real_unlink(const char *path);
int __real_rmdir(const char *path);
int __real_rename(const char *from, const char *to);
int __real_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __real_symlink(const char *target, const char *path);
int __real_mkdir(const char *path, mode_t mode);
int __real_flock(int fd, int operation);
ssize_t __real_write(int fd, const void *data, size_t bytes);
int __wrap_unlink(const char *path);
int __wrap_rmdir(const char *path);
int __wrap_rename(const char *from, const char *to);
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_symlink(const char *target, const char *path);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_fsync(int fd);
int __wrap_flock(int fd, int operation);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);

/* --- copies of a moment --- */

static void copy_file(const char *from, const char *to)
{
    char bytes[4096];
    ssize_t n;
    int in = open(from, O_RDONLY | O_CLOEXEC),
        out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    while ((n = read(in, bytes, sizeof bytes)) > 0)
        if (__real_write(out, bytes, (size_t)n) != n)
            abort();
    close(in);
    close(out);
}

static void copy_tree(const char *from, const char *to)
{
    char a[1024], b[1024], target[256];
    struct stat info;
    struct dirent *entry;
    DIR *stream = opendir(from);
    __real_mkdir(to, 0777);
    while (stream && (entry = readdir(stream))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        snprintf(a, sizeof a, "%s/%s", from, entry->d_name);
        snprintf(b, sizeof b, "%s/%s", to, entry->d_name);
        if (lstat(a, &info) != 0)
            continue;
        ssize_t n = S_ISLNK(info.st_mode) ? readlink(a, target, sizeof target - 1) : -1;
        if (n > 0) {
            target[n] = '\0';
            if (__real_symlink(target, b) != 0)
                abort();
        } else if (S_ISDIR(info.st_mode)) {
            copy_tree(a, b);
        } else {
            copy_file(a, b);
        }
    }
    if (stream)
        closedir(stream);
}

static void take_copy(void)
{
    char to[600];
    if (!faults.copies)
        return;
    snprintf(to, sizeof to, "%s.killed-%d", faults.dir, shared->copies++);
    copy_tree(faults.dir, to);
}

/* --- what the library calls --- */

/* True if this call must fail. The lock is held from here to done(). */
static bool fails(void)
{
    int number = ++faults.calls;
    if (faults.dies == number)
        kill(getpid(), SIGKILL);
    pthread_mutex_lock(&shared->lock);
    take_copy();
    errno = ENOSPC;
    return faults.fail == number;
}

static int done(int result)
{
    int error = errno;
    pthread_mutex_unlock(&shared->lock);
    errno = error;
    return result;
}

static bool concerned(void)
{
    return faults.dir != NULL;
}

int __wrap_unlink(const char *path)
{
    return !concerned() ? __real_unlink(path) : done(fails() ? -1 : __real_unlink(path));
}

int __wrap_rmdir(const char *path)
{
    return !concerned() ? __real_rmdir(path) : done(fails() ? -1 : __real_rmdir(path));
}

/* A finished folder gets its name. */
static void note_name(const char *from)
{
    shared->early |= strstr(from, "/.new-") && !strstr(from, ".tmp.") && shared->unsynced;
}

int __wrap_rename(const char *from, const char *to)
{
    if (!concerned())
        return __real_rename(from, to);
    bool failed = fails();
    note_name(from);
    return done(failed ? -1 : __real_rename(from, to));
}

int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    if (!concerned())
        return __real_renameat2(a, from, b, to, flags);
    bool failed = fails();
    note_name(from);
    return done(failed ? -1 : __real_renameat2(a, from, b, to, flags));
}

int __wrap_symlink(const char *target, const char *path)
{
    return !concerned() ? __real_symlink(target, path)
                        : done(fails() ? -1 : __real_symlink(target, path));
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    return !concerned() ? __real_mkdir(path, mode)
                        : done(fails() ? -1 : __real_mkdir(path, mode));
}

/* Does not sync: no power failure happens here, and a disk is slow. */
int __wrap_fsync(int fd)
{
    if (!concerned())
        return 0;
    bool failed = fails();
    if (!failed && faults.unsynced[fd]) {
        faults.unsynced[fd] = false;
        shared->unsynced--;
    }
    return done(failed ? -1 : 0);
}

int __wrap_flock(int fd, int operation)
{
    errno = ENOLCK;
    return faults.no_locks ? -1 : __real_flock(fd, operation);
}

/* A write to a file may end in the middle. */
ssize_t __wrap_write(int fd, const void *data, size_t bytes)
{
    struct stat info;
    if (!concerned() || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        return __real_write(fd, data, bytes);
    if (fails())
        return done(-1);
    shared->unsynced += !faults.unsynced[fd];
    faults.unsynced[fd] = true;
    ssize_t n = __real_write(fd, data, bytes / 2 ? bytes / 2 : bytes);
    done(0);
    return n;
}

/* --- a job: everything in it is as its step --- */

typedef struct work {
    choir_env env;
    choir_scope *run;
    choir_module *net, *sharded;
    choir_optim *opt;
    choir_checkpoint *checkpoint;
} work;

static void build(work *w)
{
    w->net = choir_nn_sequential(w->run, choir_nn_linear(w->run, 3, 7), choir_nn_relu(w->run),
        choir_nn_linear(w->run, 7, 2));
}

static int open_work(work *w, const char *dir, bool async)
{
    CHECK_OK(choir_env_init(&w->env));
    w->run = choir_run_open(&w->env, 7);
    build(w);
    w->sharded = choir_fsdp(w->run, w->net, w->env.group, choir_fsdp_defaults());
    w->opt = choir_adamw(w->run, w->sharded, choir_adamw_defaults());
    choir_checkpoint_opts opts = choir_checkpoint_defaults();
    opts.group = w->env.group;
    opts.async = async;
    CHECK_OK(choir_checkpoint_open(dir, opts, &w->checkpoint));
    return 0;
}

static int close_work(work *w)
{
    choir_checkpoint_close(w->checkpoint);
    choir_scope_close(w->run);
    choir_env_free(&w->env);
    return 0;
}

static int fill_with(choir_module *net, choir_optim *opt, int64_t step)
{
    choir__items items;
    CHECK_OK(choir__items_collect(&items, net, opt));
    for (int i = 0; i < items.count; i++) {
        const choir_tensor *t = items.list[i].tensor;
        float *values = calloc((size_t)t->count + 1, sizeof *values);
        for (int64_t k = 0; k < t->count; k++)
            values[k] = (float)step;
        if (t->count)
            CHECK_OK(
                choir_write(items.list[i].tensor, values, (size_t)t->count * sizeof *values));
        free(values);
    }
    choir__items_free(&items);
    return 0;
}

/* Saves a step, waits for it; the status is on the board, too. */
static choir_status save_step(work *w, int64_t step)
{
    choir_status status = choir_checkpoint_save(w->checkpoint, w->net, w->opt, step);
    if (status == CHOIR_OK)
        status = choir_checkpoint_wait(w->checkpoint);
    shared->status[w->env.rank] = status;
    snprintf(shared->message[w->env.rank], sizeof shared->message[0], "%s",
        status == CHOIR_OK ? "" : choir_error_message());
    return status;
}

/* Loads a folder in one process. Returns its step, which every value must equal. */
static int64_t step_in(const char *dir)
{
    work w = {.run = choir_scope_open(NULL, 1)};
    choir__items items;
    int64_t step = -1;
    build(&w);
    w.opt = choir_adamw(w.run, w.net, choir_adamw_defaults());
    ok(choir_checkpoint_open(dir, choir_checkpoint_defaults(), &w.checkpoint));
    ok(choir_checkpoint_load(w.checkpoint, w.net, w.opt, &step));
    ok(choir__items_collect(&items, w.net, w.opt));
    assert_int_equal(items.count, 12);
    for (int i = 0; i < items.count; i++) {
        const choir_tensor *t = items.list[i].tensor;
        float values[64];
        ok(choir_read(t, values, (size_t)t->count * sizeof *values));
        for (int64_t k = 0; k < t->count; k++)
            assert_true(values[k] == (float)step);
    }
    choir__items_free(&items);
    ok(choir_checkpoint_close(w.checkpoint));
    ok(choir_scope_close(w.run));
    return step;
}

/* Checks that the next save, by one process, removes all remains in the folder. */
static void saves_over(const char *dir, int64_t step)
{
    work w = {.run = choir_scope_open(NULL, 1)};
    build(&w);
    assert_int_equal(fill_with(w.net, NULL, step), 0);
    ok(choir_checkpoint_open(dir, choir_checkpoint_defaults(), &w.checkpoint));
    ok(choir_checkpoint_save(w.checkpoint, w.net, NULL, step));
    ok(choir_checkpoint_close(w.checkpoint));
    ok(choir_scope_close(w.run));
    assert_int_equal(entries(dir), 2); /* the step and `latest` */
}

/* --- killed at every boundary --- */

typedef struct plan {
    const char *dir;
    bool async, again; /* again: the step that is there is saved once more */
    int rank, fail;
} plan;

static int save_copied(int rank, int world, void *arg)
{
    const plan *p = arg;
    work w;
    CHECK(open_work(&w, p->dir, p->async) == 0);
    CHECK(fill_with(w.net, w.opt, 1) == 0);
    CHECK_OK(save_step(&w, 1));
    CHECK(fill_with(w.net, w.opt, 2) == 0);
    if (p->again)
        CHECK_OK(save_step(&w, 2));
    CHECK_OK(choir_group_barrier(w.env.group, NULL));
    faults.dir = p->dir;
    faults.copies = true;
    CHECK_OK(save_step(&w, 2));
    faults.dir = NULL;
    return close_work(&w);
}

static void check_copies(const char *dir, int world, bool again)
{
    int64_t last = 1;
    assert_false(shared->early);
    assert_int_equal(shared->unsynced, 0);
    assert_true(shared->copies > 30 + 8 * world);
    for (int i = 0; i < shared->copies; i++) {
        char copy[600];
        snprintf(copy, sizeof copy, "%s.killed-%d", dir, i);
        int64_t step = step_in(copy);
        assert_true(step >= last && step <= 2 && (step == 2 || !again));
        last = step;
        saves_over(copy, 3);
    }
    assert_int_equal(last, 2);
    assert_int_equal(step_in(dir), 2);
    assert_int_equal(entries(dir), 2);
}

static void killed_at_every_boundary(void **state)
{
    for (int world = 1; world <= MOST; world++)
        for (int way = world % 2; way < 3; way += 2) {
            plan p = {
                .dir = at("killed-%d-%d", world, way), .async = way == 1, .again = way == 2};
            char dir[512];
            snprintf(dir, sizeof dir, "%s", p.dir);
            p.dir = dir;
            shared->copies = shared->unsynced = 0;
            ok(choir_spawn(world, save_copied, &p));
            check_copies(dir, world, p.again);
        }
}

/* --- a call that fails on one rank --- */

/* Fails one rank's first call, then its second, and so on to its last. */
static int fail_each(int rank, int world, void *arg)
{
    const plan *p = arg;
    work w;
    int64_t step = 1;
    CHECK(open_work(&w, p->dir, p->async) == 0);
    CHECK(fill_with(w.net, w.opt, step) == 0);
    CHECK_OK(save_step(&w, step));
    for (int n = 1, over = 0; !over; n++) {
        CHECK(n < FAILURES);
        CHECK(fill_with(w.net, w.opt, step + 1) == 0);
        CHECK_OK(choir_group_barrier(w.env.group, NULL));
        faults.calls = 0;
        memset(faults.unsynced, 0, sizeof faults.unsynced);
        faults.fail = rank == p->rank ? n : 0;
        faults.dir = p->dir;
        choir_status status = save_step(&w, step + 1);
        over = rank == p->rank && faults.calls < n; /* there was no such call */
        faults.dir = NULL;
        CHECK_OK(choir_group_all_reduce(w.env.group, &over, 1, CHOIR_I32, CHOIR_MAX, NULL));
        for (int r = 0; r < world; r++) {
            CHECK(shared->status[r] == status);
            CHECK(!strcmp(shared->message[r], shared->message[0]));
        }
        if (status != CHOIR_OK) {
            CHECK(status == CHOIR_ERR_IO);
            CHECK(strstr(shared->message[rank], "No space left on device"));
            CHECK(strstr(shared->message[rank], "; the checkpoint before is untouched"));
        }
        int64_t found = 0;
        CHECK_OK(choir_checkpoint_load(w.checkpoint, w.net, w.opt, &found));
        CHECK(found == step + 1 || (found == step && status != CHOIR_OK));
        step = found;
    }
    return close_work(&w);
}

static void fails_on_all_ranks(void **state)
{
    for (int rank = 0; rank < 2; rank++)
        for (int async = 0; async < 2; async++) {
            char dir[512];
            snprintf(dir, sizeof dir, "%s", at("fails-%d-%d", rank, async));
            plan p = {.dir = dir, .async = async, .rank = rank};
            ok(choir_spawn(2, fail_each, &p));
            assert_true(step_in(dir) >= 1);
            assert_int_equal(entries(dir), 2);
        }
}

/* --- a rank that dies --- */

enum { TRIES = 5 };
/* what stands for the status of a rank that was killed before its call returned */
static const choir_status killed = (choir_status)-1;

static int die(int rank, int world, void *arg)
{
    const plan *p = arg;
    work w;
    signal(
        SIGTERM, SIG_IGN); /* that the other is to stop; it has something to find out first */
    CHECK(open_work(&w, p->dir, p->async) == 0);
    CHECK(fill_with(w.net, w.opt, 1) == 0);
    CHECK_OK(save_step(&w, 1));
    CHECK(fill_with(w.net, w.opt, 2) == 0);
    CHECK_OK(choir_group_barrier(w.env.group, NULL));
    faults.dies = rank == p->rank ? p->fail : 0;
    faults.dir = p->dir;
    shared->status[rank] = killed;
    CHECK(save_step(&w, 2) != CHOIR_OK);
    return 0;
}

/* The other rank finds out, unless its disk takes longer than the grace of choir_spawn. */
static void find_out(int rank, int call, char dir[512])
{
    for (int tries = 0; tries < TRIES; tries++) {
        snprintf(dir, 512, "%s", at("dies-%d-%d-%d", rank, call, tries));
        plan p = {.dir = dir, .async = call == 3, .rank = rank, .fail = call};
        memset(shared->message, 0, sizeof shared->message);
        assert_int_equal(choir_spawn(2, die, &p), CHOIR_ERR_PEER_LOST);
        if (shared->status[!rank] != killed)
            break;
    }
    assert_int_equal(shared->status[!rank], CHOIR_ERR_PEER_LOST);
}

static void dies_while_saving(void **state)
{
    for (int rank = 0; rank < 2; rank++)
        for (int call = 1; call < 6; call += 2) {
            char dir[512];
            find_out(rank, call, dir);
            assert_int_equal(step_in(dir), 1);
            saves_over(dir, 3);
        }
}

/* --- file systems --- */

static int save_once(int rank, int world, void *arg)
{
    const plan *p = arg;
    work w;
    faults.no_locks = p->again;
    CHECK(open_work(&w, rank && !p->again ? at("another-%d", rank) : p->dir, p->async) == 0);
    CHECK(fill_with(w.net, w.opt, 1) == 0);
    choir_status status = save_step(&w, 1);
    CHECK(p->again ? status == CHOIR_OK : status == CHOIR_ERR_IO);
    return close_work(&w);
}

static void without_locks(void **state)
{
    plan p = {.dir = at("no-locks"), .again = true};
    ok(choir_spawn(2, save_once, &p));
    assert_int_equal(step_in(at("no-locks")), 1);
}

/* Rank 1 has another disk under the same name. */
static void without_a_common_disk(void **state)
{
    plan p = {.dir = at("apart")};
    ok(choir_spawn(2, save_once, &p));
    assert_non_null(strstr(shared->message[0], "rank 1 does not see "));
    assert_string_equal(shared->message[0], shared->message[1]);
    assert_int_equal(entries(at("apart")), 0);
}

static int set_up_board(void **state)
{
    pthread_mutexattr_t how;
    shared = shared_memory(sizeof *shared);
    pthread_mutexattr_init(&how);
    pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->lock, &how);
    return set_up(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_at_every_boundary),
        cmocka_unit_test(fails_on_all_ranks),
        cmocka_unit_test(dies_while_saving),
        cmocka_unit_test(without_locks),
        cmocka_unit_test(without_a_common_disk),
    };
    return cmocka_run_group_tests(tests, set_up_board, remove_all);
}
