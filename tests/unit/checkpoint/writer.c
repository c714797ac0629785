/* Streams into files: their bytes and hashes, for sizes around a chunk and a block of the disk;
 * without threads, without direct writes, and with a disk that fills up. */
#include "checkpoint_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <sys/resource.h>

#include "checkpoint/format/file.h"

enum { MB = 1 << 20, MOST = 23 * MB };

static unsigned char *data; /* (MOST) */
static bool no_threads;

int __real_pthread_create(
    pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg);
int __wrap_pthread_create(
    pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg);

int __wrap_pthread_create(
    pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    return no_threads ? EAGAIN : __real_pthread_create(thread, attr, run, arg);
}

/* Checks that from byte `skip` on, the file has the first `bytes` bytes of the data. */
static void check_file(const char *path, size_t skip, size_t bytes)
{
    unsigned char *back = malloc(skip + bytes + 1);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(back, 1, skip + bytes + 1, f), skip + bytes);
    assert_true(!bytes || !memcmp(back + skip, data, bytes));
    fclose(f);
    free(back);
}

/* Streams bytes in pieces into a file that begins with `skip` bytes of something else. */
static void stream(size_t bytes, size_t piece, size_t skip)
{
    char hex[CHOIR__SHA256_HEX];
    choir__digest digest;
    const char *path = at("stream");
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    assert_int_equal(write(fd, "before", skip), skip);
    choir__writer *w = choir__writer_new(fd);
    assert_non_null(w);
    for (size_t i = 0; i < bytes; i += piece)
        assert_int_equal(
            choir__writer_add(w, data + i, bytes - i < piece ? bytes - i : piece), 0);
    assert_int_equal(choir__writer_end(w, &digest), 0);
    close(fd);
    choir__sha256(data, bytes, hex);
    assert_int_equal(digest.bytes, bytes);
    assert_string_equal(digest.sha256, hex);
    check_file(path, skip, bytes);
    if (!skip) {
        ok(choir__sha256_file(path, &digest));
        assert_int_equal(digest.bytes, bytes);
        assert_string_equal(digest.sha256, hex);
    }
}

static void sizes(void **state)
{
    static const size_t all[] = {0, 1, 511, 4096, 4097, 2 * MB - 1, 2 * MB, 2 * MB + 1,
        2 * MB + 4096, 8 * MB, 8 * MB + 3, 10 * MB, MOST};
    for (size_t i = 0; i < CHOIR_COUNT(all); i++) {
        stream(all[i], MOST, 0);
        stream(all[i], 300 * 1000 + 7, 0);
        stream(all[i], MOST, 3); /* direct writes would be misplaced: the writer does without */
    }
}

static void without_threads(void **state)
{
    no_threads = true;
    stream(2 * MB, 4096, 0);
    stream(MOST, MB + 1, 0);
    stream(MOST, MB + 1, 3);
    no_threads = false;
}

/* The limit of a file's size stands for a disk that fills up. */
static void full(void **state)
{
    struct rlimit before, limit;
    glob_t left;
    choir__draft draft;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    for (int threads = 0; threads < 2; threads++)
        for (size_t most = 1; most < MOST; most = most * 5 + MB / 3) {
            no_threads = !threads;
            limit.rlim_cur = most;
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
            ok(choir__draft_open(&draft, at("full")));
            choir_status status = choir__draft_write(&draft, data, MOST);
            status = choir__draft_close(&draft, status, NULL);
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
            assert_fails(status, CHOIR_ERR_IO, "full: File too large");
            assert_int_equal(access(at("full"), F_OK), -1);
            assert_int_equal(glob(at("full.tmp.*"), 0, NULL, &left), GLOB_NOMATCH);
        }
    no_threads = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(without_threads),
        cmocka_unit_test(full),
    };
    data = malloc(MOST);
    for (size_t i = 0; i < MOST; i++)
        data[i] = (unsigned char)(choir__mix(5, i / 8) >> (i % 8 * 8));
    int failed = cmocka_run_group_tests(tests, set_up, remove_all);
    free(data);
    return failed;
}
