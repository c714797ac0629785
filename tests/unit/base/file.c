/* Opening files of the user: each kind of file, and each kind of opening. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"
#include "base/files/file.h"
#include "base/files/temp_file.h"
#include "helpers.h"

static char folder[] = "/tmp/choir-file-XXXXXX";

static int make(void **state)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "socket"};
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(mkdir("folder", 0700), 0);
    assert_int_equal(mkfifo("fifo", 0600), 0);
    assert_int_equal(symlink("/dev/zero", "device"), 0);
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(s, (struct sockaddr *)(void *)&name, sizeof name), 0);
    close(s);
    FILE *file = fopen("file", "w");
    assert_non_null(file);
    fputs("{\"a\": 1}\n", file);
    return fclose(file);
}

static int clean(void **state)
{
    const char *names[] = {"folder", "fifo", "device", "socket", "file", "new"};
    for (int i = 0; i < 6; i++)
        remove(names[i]);
    return chdir("/") || rmdir(folder);
}

static void opens(const char *path, int flags, choir__file_kinds kinds)
{
    int fd;
    ok(choir__file_open(path, flags, kinds, &fd));
    if (!(flags & O_NONBLOCK))
        assert_false(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
}

static void refused(const char *path, int flags, choir__file_kinds kinds, const char *words)
{
    int fd;
    assert_int_equal(choir__file_open(path, flags, kinds, &fd), CHOIR_ERR_IO);
    assert_int_equal(fd, -1);
    assert_says(words);
}

static void test_reading(void **state)
{
    const char *regular = "expected a regular file, got a FIFO, a socket or a device";
    opens("file", O_RDONLY, CHOIR__FILE_REGULAR);
    opens("file", O_RDONLY, CHOIR__FILE_TEXT);
    refused("none", O_RDONLY, CHOIR__FILE_REGULAR, "none: cannot be opened: No such file");
    refused("folder", O_RDONLY, CHOIR__FILE_REGULAR, "expected a file, got a folder");
    refused("folder", O_RDONLY, CHOIR__FILE_TEXT, "expected a file, got a folder");
    refused("fifo", O_RDONLY, CHOIR__FILE_REGULAR, regular);
    refused("device", O_RDONLY, CHOIR__FILE_REGULAR, regular);
    refused("device", O_RDONLY, CHOIR__FILE_TEXT, regular);
    refused("socket", O_RDONLY, CHOIR__FILE_REGULAR, "a socket");
    int other = open("fifo", O_RDWR);
    opens("fifo", O_RDONLY, CHOIR__FILE_TEXT); /* its writer is there */
    close(other);
}

static void test_writing(void **state)
{
    int flags = O_WRONLY | O_CREAT | O_APPEND;
    opens("new", flags, CHOIR__FILE_REGULAR);
    opens("device", flags, CHOIR__FILE_OUTPUT);
    opens("device", flags | O_NONBLOCK, CHOIR__FILE_OUTPUT);
    refused("fifo", flags, CHOIR__FILE_OUTPUT, "a FIFO without a reader");
    refused("fifo", flags, CHOIR__FILE_REGULAR, "a FIFO without a reader");
    refused("folder", flags, CHOIR__FILE_OUTPUT, "expected a file, got a folder");
    refused("device", flags, CHOIR__FILE_REGULAR, "expected a regular file");
    struct stat info;
    unlink("new");
    opens("new", flags, CHOIR__FILE_PRIVATE);
    assert_int_equal(stat("new", &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    FILE *file = choir__file_try_output("new");
    assert_non_null(file);
    fclose(file);
    assert_null(choir__file_try_output("folder"));
    assert_int_equal(errno, EISDIR);
}

static void test_other_ways(void **state)
{
    json_error_t why;
    json_t *root = choir__file_json("file", 0, &why);
    assert_int_equal(json_integer_value(json_object_get(root, "a")), 1);
    json_decref(root);
    assert_null(choir__file_json("fifo", 0, &why));
    assert_int_equal(why.line, -1);
    assert_non_null(strstr(why.text, "expected a regular file"));
    assert_null(choir__file_json("device", 0, NULL));
    assert_null(choir__file_try_stream("fifo"));
    assert_int_equal(errno, ENOTSUP);
    ok(choir__file_check("none"));
    ok(choir__file_check("file"));
    assert_int_equal(choir__file_check("fifo"), CHOIR_ERR_IO);
}

/* A file is replaced as a whole, and keeps its permissions; if not all is good, it stays. */
static void files_are_replaced_whole(void **state)
{
    struct stat s;
    choir__temp_file fresh;
    assert_int_equal(choir__temp_file_write("whole", "one", 3, true), 0);
    assert_int_equal(chmod("whole", 0600), 0);
    FILE *out = choir__temp_file_begin(&fresh, "whole");
    fputs("half", out);
    assert_int_equal(choir__temp_file_end(&fresh, false, false), 0);
    size_t bytes;
    unsigned char *text = slurp("whole", &bytes);
    assert_int_equal(bytes, 3);
    assert_memory_equal(text, "one", 3);
    free(text);
    assert_int_equal(choir__temp_file_write("whole", "two", 3, false), 0);
    assert_int_equal(stat("whole", &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
    assert_int_equal(choir__temp_file_write("folder", "x", 1, false), EISDIR);
    assert_null(choir__temp_file_begin(&fresh, "nowhere/file"));
    assert_int_equal(choir__temp_file_end(&fresh, true, false), ENOENT);
    assert_int_equal(unlink("whole"), 0);
}

/* Two writers of one path, as threads or ranks on several machines may be, have a file each:
 * the later one's end replaces the whole of the earlier one's. A link that waits at a name
 * which only the PID tells is not met. */
static void writers_have_files_of_their_own(void **state)
{
    choir__temp_file one, two;
    size_t bytes;
    char planted[64];
    snprintf(planted, sizeof planted, "shared.tmp.%ld", (long)getpid());
    assert_int_equal(symlink("file", planted), 0);
    FILE *first = choir__temp_file_begin(&one, "shared"),
         *second = choir__temp_file_begin(&two, "shared");
    assert_non_null(first);
    assert_non_null(second);
    fputs("first", first);
    fputs("second", second);
    assert_int_equal(choir__temp_file_end(&one, true, false), 0);
    unsigned char *text = slurp("shared", &bytes);
    assert_int_equal(bytes, 5);
    assert_memory_equal(text, "first", 5);
    free(text);
    assert_int_equal(choir__temp_file_end(&two, true, false), 0);
    text = slurp("shared", &bytes);
    assert_int_equal(bytes, 6);
    free(text);
    assert_int_equal(access(planted, F_OK), 0);
    assert_int_equal(unlink(planted), 0);
    assert_int_equal(unlink("shared"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reading),
        cmocka_unit_test(test_writing), cmocka_unit_test(test_other_ways),
        cmocka_unit_test(files_are_replaced_whole),
        cmocka_unit_test(writers_have_files_of_their_own)};
    return cmocka_run_group_tests(tests, make, clean);
}
