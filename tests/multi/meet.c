/* Ranks find each other by every method. When ranks are missing, appear twice, die or disagree,
 * all ranks report the same sentence. */

#include <choir/store.h>

#include "check.h"
#include "launch/meet/file.h"
#include "launch/process/job.h"
#include "launch/store/store.h"
#include "multi/meeters.h"

static char where[128]; /* a method at a port that was free a moment ago */

static int free_port(void)
{
    choir_store_server *server = NULL;
    ok(choir_store_serve(choir_store_defaults(), &server));
    int port = choir_store_port(server);
    choir_store_server_free(server);
    return port;
}

static const char *tcp(const char *host)
{
    snprintf(where, sizeof where, "tcp://%s:%d", host, free_port());
    return where;
}

static const char *file(const char *name)
{
    snprintf(where, sizeof where, "file:///tmp/choir-meet-%d-%s", (int)getpid(), name);
    return where;
}

static const char *path(void)
{
    return where + strlen("file://");
}

/* --- they meet --- */

static void assert_met(meeters *all, bool store)
{
    for (int r = 0; r < all->count; r++) {
        meeter *m = &all->each[r];
        if (m->status)
            fail_msg("rank %d of %d by %s: %s", r, all->count, m->method, m->message);
        assert_int_equal(m->exit, 0);
        assert_int_equal(m->nodes, 1);
        assert_string_equal(m->job, all->each[0].job);
        assert_int_equal(m->has_store, store && all->count > 1);
        for (int k = 0; m->has_store && k < all->count; k++) {
            assert_int_equal(m->members[k].pid, all->each[k].pid);
            assert_int_equal(m->members[k].local_rank, k);
            assert_int_equal(m->members[k].job_rank, k);
            assert_int_equal(m->members[k].node, 0);
        }
    }
}

static void from_environment(const meeter *self)
{
    char text[16];
    snprintf(text, sizeof text, "%d", self->opts.rank);
    setenv("RANK", text, 1);
    snprintf(text, sizeof text, "%d", self->opts.world);
    setenv("WORLD_SIZE", text, 1);
    choir_group_opts *opts = (choir_group_opts *)&self->opts;
    opts->rank = opts->world = -1;
}

static const int worlds[] = {1, 2, 3, 8, 17};

static void each_world(const char *method, void (*prepare)(const meeter *), bool store)
{
    for (size_t i = 0; i < CHOIR_COUNT(worlds); i++) {
        meeters *all = meeters_new(method, worlds[i], 30);
        for (int r = 0; r < all->count; r++) {
            all->each[r].prepare = prepare;
            all->each[r].late_s = r % 3 * 0.02;
        }
        meeters_start(all);
        meeters_wait(all);
        assert_met(all, store);
        meeters_free(all);
    }
}

static void by_tcp(void **state)
{
    each_world(tcp("127.0.0.1"), NULL, true); /* also one after another at one port */
    each_world(tcp("localhost"), NULL, true);
    each_world(tcp("127.0.0.1"), from_environment, true);
}

static void by_tcp_ipv6(void **state)
{
    choir_store_server *server = NULL;
    choir_store_opts opts = choir_store_defaults();
    opts.bind = "::1";
    if (choir_store_serve(opts, &server))
        skip();
    choir_store_server_free(server);
    each_world(tcp("[::1]"), NULL, true);
}

static void by_file(void **state)
{
    each_world(file("a"), NULL, true);
    assert_int_equal(access(path(), F_OK), -1);
}

static void with_copies(const meeter *self)
{
    setenv("CHOIR_COPIES", "an agent's", 1);
}

/* Ranks whose agents go on without a machine find it gone as soon as the agents do, and not
 * half a minute later. */
static void cut_off(void **state)
{
    for (int copies = 0; copies < 2; copies++) {
        meeters *all = meeters_new(tcp("127.0.0.1"), 2, 30);
        for (int r = 0; r < all->count; r++)
            all->each[r].prepare = copies ? with_copies : NULL;
        meeters_start(all);
        meeters_wait(all);
        assert_met(all, true);
        for (int r = 0; r < all->count; r++)
            assert_int_equal(all->each[r].cut_off_ms, copies ? 4000 : 25000);
        meeters_free(all);
    }
}

static void with_master(const meeter *self)
{
    from_environment(self);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", strrchr(where, ':') + 1, 1);
}

static void with_job(const meeter *self)
{
    from_environment(self);
    setenv("CHOIR_JOB", "a-name-of-a-job-in-tests", 1);
}

static void with_job_and_engine(const meeter *self)
{
    with_job(self);
    setenv("CHOIR_BACKEND", "ucx", 1);
}

static void by_environment(void **state)
{
    tcp("127.0.0.1");
    each_world("env://", with_master, true);
    each_world(NULL, with_master, true);
    each_world(NULL, with_job, false); /* shared memory's own rendezvous follows */
    each_world(NULL, with_job_and_engine, true);
}

/* A rank may have exited, or be in the job's next group, before others release this one. */
static void again_and_again(void **state)
{
    tcp("127.0.0.1");
    for (int by_path = 0; by_path < 2; by_path++) {
        if (by_path)
            file("again");
        pid_t pids[3];
        for (int r = 0; r < 3; r++) {
            pids[r] = fork();
            for (int i = 0; pids[r] == 0 && i < 20; i++) {
                choir__meeting m;
                choir_group_opts opts = choir_group_defaults();
                opts.rank = r, opts.world = 3, opts.timeout_s = 30;
                alarm(60);
                if (choir__meet(where, &opts, need_of(&opts), &m)) {
                    fprintf(stderr, "%d: %s\n", i, choir_error_message());
                    _exit(1);
                }
                usleep((useconds_t)((i + r) % 3 * 3000));
                choir__meeting_free(&m);
            }
            if (pids[r] == 0)
                _exit(0);
        }
        for (int r = 0; r < 3; r++) {
            int status = 1;
            waitpid(pids[r], &status, 0);
            assert_int_equal(status, 0);
        }
    }
}

/* --- they do not --- */

/* Checks that all ranks but `but` report one sentence that contains these words. */
static void assert_all_say(meeters *all, choir_status status, const char *words, int but)
{
    const char *first = NULL;
    for (int r = 0; r < all->count; r++) {
        meeter *m = &all->each[r];
        if (r == but)
            continue;
        if (m->status != (int)status || !strstr(m->message, words))
            fail_msg("rank %d: status %d, want %d: '%s' of '%s'", r, m->status, status, words,
                m->message);
        if (!first)
            first = m->message;
        assert_string_equal(first, m->message);
        assert_true(m->took_s < 20);
    }
}

static const char *methods[3]; /* tcp, file, this machine's */
static char job[64];           /* for the last */

static void choose_methods(void)
{
    static char text[2][128];
    snprintf(text[0], sizeof text[0], "%s", tcp("127.0.0.1"));
    snprintf(text[1], sizeof text[1], "%s", file("b"));
    methods[0] = text[0];
    methods[1] = text[1];
    methods[2] = "env://";
}

/* Starts the ranks of one job with method i; the last method uses the job's name on this
 * machine. */
static meeters *gather(size_t i, int world, double timeout_s)
{
    meeters *all = meeters_new(methods[i], world, timeout_s);
    snprintf(job, sizeof job, "meet %d", (int)getpid());
    for (int r = 0; r < world && i == 2; r++) {
        all->each[r].opts.job = job;
        all->each[r].opts.backend = "ucx";
    }
    return all;
}

static void missing(void **state)
{
    choose_methods();
    for (size_t i = 0; i < CHOIR_COUNT(methods); i++) {
        meeters *all = gather(i, 6, LATE_S);
        all->count = 4; /* 4 and 5 were not started; the others' clocks differ */
        all->each[0].late_s = 0.2;
        all->each[2].late_s = 0.4;
        meeters_start(all);
        meeters_wait(all);
        assert_all_say(all, CHOIR_ERR_TIMEOUT, "ranks 4, 5 of 6 never came to", -1);
        meeters_free(all);
        assert_int_equal(access(methods[1] + 7, F_OK), -1);

        all = gather(i, 3, 0.5);
        all->each[0].prepare = (void (*)(const meeter *))(void (*)(void))pause;
        meeters_start(all);
        for (int r = 1; r < 3; r++)
            waitpid(all->each[r].pid, NULL, 0);
        kill(all->each[0].pid, SIGKILL);
        waitpid(all->each[0].pid, NULL, 0);
        assert_all_say(all, CHOIR_ERR_TIMEOUT, "rank 0 never came within 0.5 s", 0);
        meeters_free(all);
    }
}

static void worlds_differ(void **state)
{
    choose_methods();
    for (size_t i = 0; i < CHOIR_COUNT(methods); i++) {
        meeters *all = gather(i, 3, 20);
        all->each[2].opts.world = 4;
        meeters_start(all);
        meeters_wait(all);
        assert_all_say(all, CHOIR_ERR_MISMATCH, "a rank 2 of 4 came", -1);
        meeters_free(all);
    }
}

/* Waits as a client of rank 0's store until `count` ranks have come. */
static void await_seats(size_t i, int count)
{
    choir_store_opts opts = choir_store_defaults();
    choir_store *store = NULL;
    choir__meet_note note;
    choir__store_key key;
    char text[CHOIR__NOTE_TEXT] = "";
    FILE *f = NULL;
    if (i == 0) {
        int port = atoi(strrchr(methods[0], ':') + 1);
        ok(choir_store_connect("127.0.0.1", port, opts, &store));
    } else if (i == 1) {
        do { /* one of an earlier rank 0 may still be there */
            while (!(f = fopen(methods[1] + 7, "re")))
                usleep(1000);
            text[fread(text, 1, sizeof text - 1, f)] = '\0';
            fclose(f);
            assert_true(choir__meet_note_read(text, &note, &key));
            opts.timeout_s = 0.1;
        } while (choir__store_connect(
            note.addresses[0].host, note.addresses[0].port, opts, &key, &store));
    } else {
        snprintf(text, sizeof text, "unix:choir-store/%016llx",
            (unsigned long long)choir__job_hash(job));
        ok(choir_store_connect(text, 0, opts, &store));
    }
    for (int r = 0; r < count; r++) {
        char seat[32];
        const char *name = seat;
        snprintf(seat, sizeof seat, "meet/rank/%d", r);
        ok(choir_store_wait(store, &name, 1, 20));
    }
    choir_store_free(store);
    usleep(50 * 1000); /* their last wills are next */
}

static void await_the_next(const meeter *self)
{
    while (*(volatile const int *)&self[1].status == 1)
        usleep(1000);
}

static void await_rank_0(const meeter *self)
{
    size_t i = 0;
    while (strcmp(methods[i], self->method) != 0)
        i++;
    await_seats(i, 1);
}

static void twice(void **state)
{
    choose_methods();
    for (size_t i = 0; i < CHOIR_COUNT(methods); i++) {
        meeters *all = gather(i, 4, 20);
        all->each[3].opts.rank = 1; /* and no rank 3 */
        meeters_start(all);
        meeters_wait(all);
        assert_all_say(all, CHOIR_ERR_MISMATCH, "two processes say they are rank 1: pid ", -1);
        meeters_free(all);

        all = gather(i, 2, 20);
        all->count = 3;
        all->each[2] = all->each[0];
        all->each[2].opts.timeout_s = 1;
        all->each[2].prepare = await_rank_0; /* a second one, while the first one is there */
        all->each[1].prepare = await_the_next;
        meeters_start(all);
        meeters_wait(all);
        ok(all->each[0].status);
        ok(all->each[1].status);
        assert_true(all->each[2].status < 0);
        assert_non_null(strstr(
            all->each[2].message, i == 1 ? "lives; was rank 0 started twice" : "in use by"));
        meeters_free(all);
    }
}

/* One of three ranks dies, or all but that one. Rank 3 of 4 never comes, so that they wait. */
static void deaths(void **state)
{
    choose_methods();
    for (size_t i = 0; i < CHOIR_COUNT(methods); i++)
        for (int victim = 0; victim < 3; victim++) {
            char words[64];
            meeters *all = gather(i, 4, 15);
            all->count = 3;
            meeters_start(all);
            await_seats(i, 3);
            kill(all->each[victim].pid, SIGKILL);
            meeters_wait(all);
            snprintf(
                words, sizeof words, "rank %d (pid %d on ", victim, (int)all->each[victim].pid);
            assert_all_say(all, CHOIR_ERR_PEER_LOST, words, victim);
            assert_all_say(all, CHOIR_ERR_PEER_LOST,
                "died or gave up while the group was meeting", victim);
            meeters_free(all);
        }
    unlink(methods[1] + 7); /* rank 0's, when it was the one */
}

static void await_stop_of_rank_1(const meeter *self)
{
    while (!(*(volatile const double *)&self[-1].stays_s > 0))
        usleep(1000);
}

/* A rank that has come is stopped before it reads the outcome. */
static void stopped(void **state)
{
    choose_methods();
    meeters *all = gather(0, 3, LATE_S);
    all->each[2].prepare = await_stop_of_rank_1;
    meeters_start(all);
    await_seats(0, 2);
    kill(all->each[1].pid, SIGSTOP);
    all->each[1].stays_s = 1; /* which rank 2 waits for */
    waitpid(all->each[0].pid, NULL, 0);
    assert_int_equal(all->each[0].status, CHOIR_ERR_TIMEOUT);
    assert_non_null(strstr(all->each[0].message, "rank 1 of 3 came to"));
    kill(all->each[1].pid, SIGKILL);
    for (int r = 1; r < 3; r++)
        waitpid(all->each[r].pid, NULL, 0);
    meeters_free(all);
}

static void jobs_differ(void **state)
{
    choose_methods();
    static const char *const jobs[] = {"that", NULL};
    static const char *const why[] = {"its CHOIR_JOB differs", "this rank has none"};
    for (int i = 0; i < 2; i++) {
        meeters *all = gather(0, 2, 2);
        all->each[0].opts.job = "this";
        all->each[1].opts.job = jobs[i];
        meeters_start(all);
        meeters_wait(all);
        assert_int_equal(all->each[1].status, CHOIR_ERR_MISMATCH);
        char want[80];
        snprintf(want, sizeof want, "(pid %d on ", (int)all->each[0].pid);
        assert_non_null(strstr(all->each[1].message, want));
        assert_non_null(strstr(all->each[1].message, "another job"));
        assert_non_null(strstr(all->each[1].message, why[i]));
        assert_int_equal(all->each[0].status, CHOIR_ERR_TIMEOUT);
        assert_non_null(strstr(all->each[0].message, "1 caller belonged to another job"));
        meeters_free(all);
    }
}

/* A stranger's rank is sent away, and the job whose place it took for its own goes on. */
static void stranger(void **state)
{
    choose_methods();
    meeters *all = gather(0, 2, 20);
    all->count = 3;
    all->each[2] = all->each[1];
    all->each[0].opts.job = all->each[1].opts.job = "this";
    all->each[2].opts.job = "that";
    all->each[1].prepare = await_the_next;
    meeters_start(all);
    meeters_wait(all);
    assert_int_equal(all->each[2].status, CHOIR_ERR_MISMATCH);
    ok(all->each[0].status);
    ok(all->each[1].status);
    meeters_free(all);
}

/* A store with forged answers replaces rank 0's. */
static void other_versions(void **state)
{
    const char *heads[] = {"9.9.9 2 - 7 there machine", "nonsense"};
    const char *words[] = {"rank 0 Choir 9.9.9: use the same release", "not a group's"};
    for (size_t i = 0; i < CHOIR_COUNT(heads); i++) {
        choir_store_opts opts = choir_store_defaults();
        choir_store_server *server = NULL;
        choir_store *store = NULL;
        ok(choir_store_serve(opts, &server));
        snprintf(where, sizeof where, "tcp://127.0.0.1:%d", choir_store_port(server));
        meeters *all = meeters_new(where, 2, 20);
        all->each[0] = all->each[1];
        all->count = 1;
        all->each[0].late_s = 0.1;
        meeters_start(all); /* before this process connects */
        ok(choir_store_connect("127.0.0.1", choir_store_port(server), opts, &store));
        choir_store_set(store, "meet/head", heads[i], strlen(heads[i]));
        meeters_wait(all);
        assert_int_equal(all->each[0].status, CHOIR_ERR_MISMATCH);
        assert_non_null(strstr(all->each[0].message, words[i]));
        meeters_free(all);
        choir_store_free(store);
        choir_store_server_free(server);
    }
}

static void keys(void **state)
{
    char names[2][64];
    for (int i = 0; i < 2; i++) {
        snprintf(names[i], sizeof names[i], "/tmp/choir-meet-key-%d-%d", (int)getpid(), i);
        FILE *f = fopen(names[i], "wb");
        assert_non_null(f);
        fprintf(f, "0123456789abcdef0123456789abcdef%d", i);
        fclose(f);
        chmod(names[i], 0600);
    }
    meeters *all = meeters_new(tcp("0.0.0.0"), 3, 20); /* outside loopback: with a key */
    for (int r = 0; r < 3; r++)
        all->each[r].opts.key_file = names[0];
    meeters_start(all);
    meeters_wait(all);
    assert_met(all, true);
    meeters_free(all);

    all = meeters_new(tcp("127.0.0.1"), 2, 3);
    all->each[0].opts.key_file = names[0];
    all->each[1].opts.key_file = names[1];
    meeters_start(all);
    meeters_wait(all);
    assert_int_equal(all->each[1].status, CHOIR_ERR_MISMATCH);
    assert_non_null(strstr(all->each[1].message, "another key"));
    assert_int_equal(all->each[0].status, CHOIR_ERR_TIMEOUT);
    assert_non_null(strstr(all->each[0].message, "rank 1 of 2 never came"));
    assert_non_null(strstr(all->each[0].message, "1 caller was turned away"));
    meeters_free(all);

    for (int r = 0; r < 2; r++) { /* only one of them has a key */
        all = meeters_new(tcp("127.0.0.1"), 2, 3);
        all->each[r].opts.key_file = names[0];
        meeters_start(all);
        meeters_wait(all);
        assert_int_equal(all->each[1].status, CHOIR_ERR_MISMATCH);
        assert_non_null(strstr(all->each[0].message, "1 caller was turned away"));
        meeters_free(all);
    }

    all = meeters_new(tcp("192.0.2.7"), 2, 1);
    all->each[1].opts.key_file = "/nowhere/key";
    meeters_start(all);
    meeters_wait(all);
    assert_int_equal(all->each[0].status, CHOIR_ERR_ARGUMENT);
    assert_non_null(strstr(all->each[0].message, "needs a key"));
    assert_int_equal(all->each[1].status, CHOIR_ERR_IO);
    meeters_free(all);
    for (int i = 0; i < 2; i++)
        unlink(names[i]);
}

/* --- what makes no sense --- */

static void assert_refused(const char *method, const char *words)
{
    choir__meeting m;
    choir_group_opts opts = choir_group_defaults();
    opts.rank = 0, opts.world = 2, opts.timeout_s = 1;
    choir_status status = choir__meet(method, &opts, need_of(&opts), &m);
    if (status != CHOIR_ERR_ARGUMENT || !strstr(choir_error_message(), words))
        fail_msg("%s: %d '%s'", method ? method : "", status, choir_error_message());
}

static void bad_input(void **state)
{
    const char *tcps[] = {"tcp://", "tcp://host", "tcp://host:", "tcp://host:0",
        "tcp://host:65536", "tcp://host:12x", "tcp://:5", "tcp://::1:5", "tcp://[]:5",
        "tcp://host:-1", "tcp://host:99999999999999999999"};
    for (size_t i = 0; i < CHOIR_COUNT(tcps); i++)
        assert_refused(tcps[i], "expected tcp://host:port");
    assert_refused("udp://host:5", "udp://host:5");
    assert_refused("mailto:", "expected env://");
    assert_refused("file://", "expected the path");
    assert_refused("file:///tmp/", "expected the path");
    assert_refused("file:///tmp", "expected a plain file");
    assert_refused(NULL, "MASTER_ADDR");
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    assert_refused(NULL, "missing MASTER_PORT");
    setenv("MASTER_PORT", "0", 1);
    assert_refused(NULL, "MASTER_PORT: expected a port of 1 to 65535, got '0'");
    setenv("MASTER_PORT", "port", 1);
    assert_refused(NULL, "got 'port'");
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
    choir__meeting m;
    choir_group_opts opts = choir_group_defaults();
    assert_fails(choir__meet("tcp://127.0.0.1:5", &opts, need_of(&opts), &m),
        CHOIR_ERR_ARGUMENT, "set RANK and WORLD_SIZE");
    assert_int_equal(
        choir__meet("file:///tmp/none", &opts, need_of(&opts), &m), CHOIR_ERR_ARGUMENT);
    ok(choir__meet("env://", &opts, need_of(&opts), &m)); /* alone */
    choir__meeting_free(&m);
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "4", 1);
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    setenv("CHOIR_JOB", "j", 1);
    assert_fails(choir__meet(NULL, &opts, need_of(&opts), &m), CHOIR_ERR_ARGUMENT,
        "2 of 4 ranks are on this machine");
    choir__set_rank_label(-1);
    opts.rank = 1;
    assert_int_equal(choir__meet(NULL, &opts, need_of(&opts), &m), CHOIR_ERR_ARGUMENT);
    opts.rank = opts.world = 3;
    assert_int_equal(choir__meet(NULL, &opts, need_of(&opts), &m), CHOIR_ERR_ARGUMENT);
    opts.world = 4, opts.timeout_s = 0;
    assert_int_equal(choir__meet(NULL, &opts, need_of(&opts), &m), CHOIR_ERR_ARGUMENT);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    unsetenv("LOCAL_WORLD_SIZE");
    unsetenv("CHOIR_JOB");
}

/* The ranks meet through MPI; choir top then shows mpirun's name for the job. */
static void by_mpi(void **state)
{
    static const char *const set[][2] = {{"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_NAMESPACE", "4711"}};
    choir__meeting m;
    choir_group_opts opts = choir_group_defaults();
    opts.backend = "mpi";
    for (size_t i = 0; i < CHOIR_COUNT(set); i++)
        setenv(set[i][0], set[i][1], 1);
    ok(choir__meet(NULL, &opts, need_of(&opts), &m));
    assert_int_equal(m.rank, 1);
    assert_string_equal(m.job, "");
    assert_non_null(strstr(m.launched, "4711"));
    choir__meeting_free(&m);
    choir__set_rank_label(-1);
    for (size_t i = 0; i < CHOIR_COUNT(set); i++)
        unsetenv(set[i][0]);
}

static void port_in_use(void **state)
{
    choir_store_server *server = NULL;
    char words[32];
    ok(choir_store_serve(choir_store_defaults(), &server));
    snprintf(where, sizeof where, "tcp://127.0.0.1:%d", choir_store_port(server));
    meeters *all = meeters_new(where, 2, 20);
    all->count = 1;
    meeters_start(all);
    meeters_wait(all);
    assert_int_equal(all->each[0].status, CHOIR_ERR_IO);
    snprintf(words, sizeof words, "in use by pid %d (", (int)getpid());
    assert_non_null(strstr(all->each[0].message, words));
    meeters_free(all);
    choir_store_server_free(server);
}

int main(void)
{
    const char *variables[] = {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
        "MASTER_PORT", "CHOIR_JOB", "CHOIR_BACKEND", "CHOIR_KEY_FILE"};
    for (size_t i = 0; i < CHOIR_COUNT(variables); i++)
        unsetenv(variables[i]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_tcp),
        cmocka_unit_test(by_tcp_ipv6),
        cmocka_unit_test(cut_off),
        cmocka_unit_test(by_file),
        cmocka_unit_test(by_environment),
        cmocka_unit_test(again_and_again),
        cmocka_unit_test(missing),
        cmocka_unit_test(worlds_differ),
        cmocka_unit_test(twice),
        cmocka_unit_test(deaths),
        cmocka_unit_test(stopped),
        cmocka_unit_test(jobs_differ),
        cmocka_unit_test(stranger),
        cmocka_unit_test(other_versions),
        cmocka_unit_test(keys),
        cmocka_unit_test(bad_input),
        cmocka_unit_test(by_mpi),
        cmocka_unit_test(port_in_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
