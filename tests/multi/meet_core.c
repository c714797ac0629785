/* Core dumps of ranks that are meeting: the pages that the kernel would write hold neither the
 * bytes of the key file nor the key that is derived from them. */
#include "folder_fixture.h"
#include <inttypes.h>

#include <choir/store.h>

#include "launch/meet/file.h"
#include "launch/store/store.h"
#include "multi/meeters.h"

enum { SECRET = 32, LARGE = 64 << 20 };

/* --- looking into a process --- */

typedef struct found {
    int dumped, spared; /* places in pages that a core dump has, and in those left out */
} found;

/* Counts where the secret begins in [from, to) of a process. */
static int count_in(int memory, uint64_t from, uint64_t to, const void *secret)
{
    static char chunk[1 << 20];
    int count = 0;
    for (uint64_t at = from; at < to; at += sizeof chunk - SECRET) {
        size_t bytes = to - at < sizeof chunk ? (size_t)(to - at) : sizeof chunk;
        ssize_t n = pread(memory, chunk, bytes, (off_t)at);
        for (char *c = chunk; n >= SECRET; c++) {
            c = memmem(c, (size_t)(chunk + n - c), secret, SECRET);
            if (!c)
                break;
            count++;
        }
    }
    return count;
}

/* Searches all of a process's memory; smaps says of each part whether it is left out of dumps
 * ("dd"). */
static found search(pid_t pid, const void *secret)
{
    char path[64], line[512], mode[8] = "";
    uint64_t from = 0, to = 0, begin, end;
    found f = {0};
    snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
    int memory = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof path, "/proc/%d/smaps", (int)pid);
    FILE *parts = fopen(path, "re");
    assert_true(memory >= 0 && parts);
    while (fgets(line, sizeof line, parts)) {
        char name[5];
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &begin, &end, name) == 3) {
            from = begin, to = end;
            memcpy(mode, name, sizeof name);
        } else if (!strncmp(line, "VmFlags:", 8) && mode[0] == 'r') {
            bool spared = strstr(line, " dd");
            if (!spared || to - from < LARGE)
                *(spared ? &f.spared : &f.dumped) += count_in(memory, from, to, secret);
        }
    }
    fclose(parts);
    close(memory);
    return f;
}

/* --- ranks that meet --- */

/* Waits until both ranks have greeted rank 0's store, with a client of its own. */
static void await_both(const char *host, int port, const choir__store_key *key)
{
    choir_store *store = NULL;
    const char *seats[] = {"meet/rank/0", "meet/rank/1"};
    ok(choir__store_connect(host, port, choir_store_defaults(), key, &store));
    ok(choir_store_wait(store, seats, 2, 20));
    choir_store_free(store);
}

static meeters *start_two_of_three(const char *method)
{
    meeters *all = meeters_new(method, 3, 50);
    all->count = 2;
    meeters_start(all);
    return all;
}

static void stop(meeters *all)
{
    for (int r = 0; r < all->count; r++)
        kill(all->each[r].pid, SIGKILL);
    meeters_wait(all);
    meeters_free(all);
}

static void assert_spared(const meeters *all, const void *secret)
{
    for (int r = 0; r < all->count; r++) {
        found f = search(all->each[r].pid, secret);
        if (f.dumped)
            fail_msg("rank %d would dump the secret in %d places", r, f.dumped);
    }
}

static void read_whole(const char *path, void *to, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    memset(to, 0, room);
    assert_true(read(fd, to, room) >= SECRET);
    close(fd);
}

/* This process learns the key after it has forked the ranks, which would else inherit it. */
static void key_of_a_file(void **state)
{
    char path[48], command[160], method[64], secret[SECRET];
    choir_store_server *server = NULL;
    choir__store_key key;
    snprintf(path, sizeof path, "%s/key", folder);
    snprintf(command, sizeof command, "head -c %d /dev/urandom >%s && chmod 600 %s", SECRET,
        path, path);
    assert_int_equal(system(command), 0);
    ok(choir_store_serve(choir_store_defaults(), &server));
    int port = choir_store_port(server);
    choir_store_server_free(server);
    snprintf(method, sizeof method, "tcp://127.0.0.1:%d", port);
    setenv("CHOIR_KEY_FILE", path, 1);
    meeters *all = start_two_of_three(method);
    unsetenv("CHOIR_KEY_FILE");
    read_whole(path, secret, sizeof secret);
    choir__store_key_of(secret, sizeof secret, &key);
    await_both("127.0.0.1", port, &key);
    assert_spared(all, secret);
    assert_spared(all, key.bytes);
    assert_true(search(all->each[0].pid, key.bytes).spared > 0); /* the search can find it */
    stop(all);
    unlink(path);
}

static void key_of_a_meeting(void **state)
{
    char path[64], method[80], text[CHOIR__NOTE_TEXT + 1];
    choir__meet_note note;
    choir__store_key key;
    snprintf(path, sizeof path, "%s/job", folder);
    snprintf(method, sizeof method, "file://%s", path);
    meeters *all = start_two_of_three(method);
    while (access(path, F_OK))
        usleep(1000);
    read_whole(path, text, sizeof text);
    assert_true(choir__meet_note_read(text, &note, &key));
    await_both(note.addresses[0].host, note.addresses[0].port, &key);
    assert_spared(all, key.bytes);
    assert_spared(all, strstr(text, "key ") + 4); /* as hexadecimal digits */
    for (int r = 0; r < 2; r++)
        assert_true(search(all->each[r].pid, key.bytes).spared > 0);
    stop(all);
    unlink(path);
}

int main(void)
{
    if (access("/proc/self/smaps", R_OK)) {
        puts("skipped: there is no /proc/self/smaps");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_of_a_file),
        cmocka_unit_test(key_of_a_meeting),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
