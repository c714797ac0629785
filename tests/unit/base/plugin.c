/* Plug-ins are found, checked and loaded, or refused with a message that says what to do.
 * tests/plugins/ has the plug-ins. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "comm/plugin.h"

static choir_status open_one(const char *name, int world, choir__engine **engine)
{
    choir__meeting meeting = {.rank = 1, .world = world, .timeout_s = 1, .nodes = 1};
    return choir__plugin_engine(name, "libsomething-dev", &meeting, engine);
}

static void assert_refused(const char *name, const char *part, const char *other)
{
    choir__engine *engine = NULL;
    assert_int_equal(open_one(name, 2, &engine), CHOIR_ERR_UNSUPPORTED);
    assert_null(engine);
    assert_says(part);
    assert_says(other);
}

static void test_a_plugin_calls_its_host(void **state)
{
    choir__engine *engine = NULL;
    ok(open_one("echo", 2, &engine));
    assert_string_equal(engine->ops->name, "echo");
    assert_int_equal(engine->failed, CHOIR_ERR_STATE);
    assert_string_equal(engine->message, "rank 1 is an echo");
    engine->ops->close(engine);

    engine = NULL; /* its errors are this thread's */
    assert_fails(open_one("echo", 3, &engine), CHOIR_ERR_ARGUMENT, "echo: 3 ranks");
}

static void on_crash(int number)
{
}

/* Runs first, while the plug-in is not loaded yet. */
static void test_loading_leaves_signals_alone(void **state)
{
    choir__engine *engine = NULL;
    struct sigaction now, mine = {.sa_handler = on_crash}, before;
    sigaction(SIGSEGV, &mine, &before);
    ok(open_one("echo", 2, &engine));
    engine->ops->close(engine);
    sigaction(SIGSEGV, &before, &now);
    assert_ptr_equal(now.sa_handler, on_crash);
}

static void test_an_absent_one(void **state)
{
    assert_refused("nowhere", "choir_nowhere.so", "install libsomething-dev");
    assert_refused(
        "nowhere", CHOIR_TEST_PLUGINS, "CHOIR_PLUGIN_PATH"); /* where it was sought */
}

static void test_another_version(void **state)
{
    assert_refused("older", "0.0.1", "this is " CHOIR_VERSION);
    assert_refused("rebuilt", "another build", "build and install both together");
}

static void test_not_a_plugin(void **state)
{
    char folder[] = "/tmp/choir-test-plugins-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/choir_torn.so", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("not a library", file);
    fclose(file);
    setenv("CHOIR_PLUGIN_PATH", folder, 1);
    assert_refused("torn", path, "is libsomething-dev installed?");
    unlink(path);
    rmdir(folder);
    setenv("CHOIR_PLUGIN_PATH", CHOIR_TEST_PLUGINS, 1);
}

static void test_a_list_of_folders(void **state)
{
    setenv("CHOIR_PLUGIN_PATH", "/nonexistent::" CHOIR_TEST_PLUGINS ":/tmp", 1);
    char *path = choir__plugin_find("echo", NULL);
    assert_string_equal(path, CHOIR_TEST_PLUGINS "/choir_echo.so");
    free(path);
    setenv("CHOIR_PLUGIN_PATH", CHOIR_TEST_PLUGINS, 1);
}

int main(void)
{
    setenv("CHOIR_PLUGIN_PATH", CHOIR_TEST_PLUGINS, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loading_leaves_signals_alone),
        cmocka_unit_test(test_a_plugin_calls_its_host),
        cmocka_unit_test(test_an_absent_one),
        cmocka_unit_test(test_another_version),
        cmocka_unit_test(test_not_a_plugin),
        cmocka_unit_test(test_a_list_of_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
