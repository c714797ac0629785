/* The file of file://: notes that a crash left behind, files of other owners, and
 * permissions. */
#include <dirent.h>
#include <fcntl.h>

#include "check.h"
#include "launch/meet/meet.h"
#include "launch/meet/file.h"
#include "multi/meeters.h"

static const choir__store_key some_key = {{3}};
static char folder[] = "/tmp/choir-file-XXXXXX", path[64], method[80];

static void write_file(const char *text, mode_t mode)
{
    unlink(path);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(path, mode), 0);
}

static choir__meet_note note_of(int pid, unsigned long long began, const char *machine)
{
    choir__meet_note note = {.began = began, .address_count = 1};
    choir__meet_self(&note.holder);
    note.holder.pid = pid;
    if (machine)
        snprintf(note.holder.machine, sizeof note.holder.machine, "%s", machine);
    snprintf(note.addresses[0].host, sizeof note.addresses[0].host, "127.0.0.1");
    note.addresses[0].port = 1; /* a port without a listener */
    return note;
}

static void write_note(choir__meet_note note)
{
    char text[CHOIR__NOTE_TEXT];
    choir__meet_note_write(&note, &some_key, text);
    write_file(text, 0600);
}

static void assert_nothing_left(void)
{
    char left[256] = "";
    DIR *d = opendir(folder);
    struct dirent *e;
    while ((e = readdir(d)))
        if (e->d_name[0] != '.')
            snprintf(left, sizeof left, "%s", e->d_name);
    closedir(d);
    if (*left)
        fail_msg("%s/%s was left behind", folder, left);
}

/* Three ranks meet. Rank 0 comes a little later, so the others see the old file first. */
static void assert_they_meet(void)
{
    meeters *all = meeters_new(method, 3, 20);
    all->each[0].late_s = 0.2;
    meeters_start(all);
    meeters_wait(all);
    for (int r = 0; r < 3; r++)
        if (all->each[r].status)
            fail_msg("rank %d: %s", r, all->each[r].message);
    meeters_free(all);
    assert_nothing_left();
}

/* Of two ranks this one alone comes, and gives up after timeout_s. */
static void assert_lone_rank_says(
    int rank, double timeout_s, choir_status status, const char *words)
{
    meeters *all = meeters_new(method, 2, timeout_s);
    all->each[0] = all->each[rank];
    all->count = 1;
    meeters_start(all);
    meeters_wait(all);
    if (all->each[0].status != (int)status || !strstr(all->each[0].message, words))
        fail_msg("status %d: %s", all->each[0].status, all->each[0].message);
    meeters_free(all);
}

static void assert_rank_0_says(choir_status status, const char *words)
{
    assert_lone_rank_says(0, 20, status, words);
}

static void assert_rank_1_says(choir_status status, const char *words)
{
    assert_lone_rank_says(1, 0.5, status, words);
}

static int dead_process(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    waitpid(pid, NULL, 0);
    return pid;
}

static void left_behind(void **state)
{
    assert_they_meet();
    write_note(note_of(dead_process(), 12345, NULL));
    assert_they_meet();
    write_note(note_of(getpid(), 1, NULL)); /* our pid, another process's start time */
    assert_they_meet();
    write_note(note_of(getpid(), 1, "another-boot/4026531840/4026531836"));
    assert_they_meet();
    write_file("", 0644); /* as mktemp and touch leave them */
    assert_they_meet();
    write_note(note_of(dead_process(), 12345, NULL));
    assert_rank_1_says(CHOIR_ERR_TIMEOUT, "was left by pid ");
    unlink(path);
    assert_rank_1_says(CHOIR_ERR_TIMEOUT, "missing file");
}

/* Whether the process has written its note. The file's inode would not tell: a new file may
 * have the number of the removed one. */
static bool is_noted(int pid)
{
    char text[CHOIR__NOTE_TEXT];
    choir__meet_note note;
    choir__store_key key;
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return choir__meet_note_read(text, &note, &key) && note.holder.pid == pid;
}

/* Rank 0 is killed repeatedly while it waits for the others; then all come. */
static void crashes(void **state)
{
    for (int i = 0; i < 5; i++) {
        meeters *all = meeters_new(method, 2, 20);
        struct stat info;
        all->count = 1;
        meeters_start(all);
        for (int k = 0; k < 60000 && !is_noted(all->each[0].pid); k++)
            usleep(1000);
        assert_true(is_noted(all->each[0].pid));
        kill(all->each[0].pid, SIGKILL);
        meeters_wait(all);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 0777, 0600);
        meeters_free(all);
    }
    assert_they_meet();
}

static void of_others(void **state)
{
    char text[CHOIR__NOTE_TEXT];
    write_file("my thesis\n", 0600);
    assert_rank_0_says(CHOIR_ERR_ARGUMENT, "something else in it");
    assert_rank_1_says(CHOIR_ERR_TIMEOUT, "rank 0 never came");
    FILE *f = fopen(path, "re");
    assert_non_null(fgets(text, sizeof text, f));
    assert_string_equal(text, "my thesis\n");
    fclose(f);

    meeters *all = meeters_new(method, 2, 5); /* a live job of another size at the same path */
    unlink(path);
    all->count = 1;
    meeters_start(all);
    while (access(path, F_OK))
        usleep(1000);
    assert_rank_0_says(CHOIR_ERR_STATE, "lives; was rank 0 started twice");
    meeters_wait(all);
    assert_non_null(strstr(all->each[0].message, "rank 1 of 2 never came"));
    meeters_free(all);
    assert_nothing_left();

    choir__meet_note note = note_of(dead_process(), 1, NULL);
    choir__meet_note_write(&note, &some_key, text);
    write_file(text, 0644);
    assert_rank_0_says(CHOIR_ERR_ARGUMENT, "others may read");
    assert_rank_1_says(CHOIR_ERR_ARGUMENT, "others may read");
    if (geteuid() == 0) {
        assert_int_equal(chmod(path, 0600), 0);
        assert_int_equal(chown(path, 65534, 65534), 0);
        assert_rank_0_says(CHOIR_ERR_ARGUMENT, "belongs to user id 65534");
        assert_rank_1_says(CHOIR_ERR_ARGUMENT, "belongs to user id 65534");
    }
    unlink(path);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_rank_0_says(CHOIR_ERR_IO, "cannot meet at");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_rank_0_says(CHOIR_ERR_ARGUMENT, "expected a plain file");
    assert_rank_1_says(CHOIR_ERR_ARGUMENT, "expected a plain file");
    unlink(path);
}

static void no_folder(void **state)
{
    char before[sizeof method];
    snprintf(before, sizeof before, "%s", method);
    snprintf(method, sizeof method, "file://%s/none/at-all", folder);
    assert_rank_0_says(CHOIR_ERR_IO, "No such file");
    snprintf(method, sizeof method, "%s", before);
}

/* Ranks listen on loopback if the file is on this machine's disk: nothing is open to others. */
static void address(void **state)
{
    char text[CHOIR__NOTE_TEXT];
    choir__meet_note note;
    choir__store_key key;
    for (int master = 0; master < 2; master++) {
        if (master)
            setenv("MASTER_ADDR", "0.0.0.0", 1);
        meeters *all = meeters_new(method, 2, 1);
        all->count = 1;
        meeters_start(all);
        while (access(path, F_OK))
            usleep(1000);
        FILE *f = fopen(path, "re");
        text[fread(text, 1, sizeof text - 1, f)] = '\0';
        fclose(f);
        assert_true(choir__meet_note_read(text, &note, &key));
        assert_int_equal(note.address_count, 1);
        assert_string_equal(note.addresses[0].host, master ? "0.0.0.0" : "127.0.0.1");
        assert_int_equal(note.holder.pid, all->each[0].pid);
        meeters_wait(all);
        meeters_free(all);
    }
    unsetenv("MASTER_ADDR");
}

static int start(void **state)
{
    unsetenv("MASTER_ADDR");
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "%s/job", folder);
    snprintf(method, sizeof method, "file://%s", path);
    return 0;
}

static int finish(void **state)
{
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(left_behind),
        cmocka_unit_test(crashes),
        cmocka_unit_test(of_others),
        cmocka_unit_test(no_folder),
        cmocka_unit_test(address),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
