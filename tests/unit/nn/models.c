/* Models by name in a program: sizes, errors, and a published folder with its weights. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <choir/checkpoint.h>
#include <choir/models.h>

#include "check.h"
#include "nn/models/config.h"

static void by_name(void **state)
{
    choir_scope *run = choir_scope_open(NULL, 5);
    choir_module *net = choir_model(run, "resnet18:image=32,classes=7,width=8", NULL);
    ok(choir_scope_status(run));
    assert_non_null(choir_module_find(net, "layer4.1.bn2.running_var"));
    choir_scope *s = choir_step_open(run, 0);
    choir_tensor *y = choir_forward(net, choir_randn(s, choir_dims(2, 3, 32, 32), "x"));
    assert_int_equal(choir_tensor_size(y, 1), 7);
    ok(choir_scope_close(s));
    ok(choir_scope_close(run));
}

static void wrong(void **state)
{
    static const char *const cases[][2] = {{"resnet5", "unknown model 'resnet5'"},
        {"gpt2:heads=5,width=12", "heads=5"}, {"gpt2:legs=2", "legs"},
        {"./nowhere/config.json", "nowhere"}};
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        choir_scope *run = choir_scope_open(NULL, 5);
        char *notes;
        choir_module *net = choir_model(run, cases[i][0], &notes);
        assert_non_null(net);
        assert_string_equal(notes, "");
        free(notes);
        assert_int_not_equal(choir_scope_status(run), CHOIR_OK);
        if (!strstr(choir_error_message(), cases[i][1]))
            fail_msg("%s: %s", cases[i][0], choir_error_message());
        assert_int_not_equal(choir_scope_close(run), CHOIR_OK);
    }
}

static float first_of(choir_module *net, const char *name)
{
    choir_tensor *t = choir_module_find(net, name);
    float all[24 * 31];
    assert_non_null(t);
    ok(choir_read(t, all, sizeof all));
    return all[0];
}

/* Weights that one run saves are loaded by another from a folder of the published form. */
static void from_a_folder(void **state)
{
    char folder[] = "/tmp/choir-models-XXXXXX", path[64], *notes;
    const char *text = "gpt2:layers=1,heads=2,width=24,context=8,vocab=31,dropout=0";
    assert_non_null(mkdtemp(folder));
    choir_scope *run = choir_scope_open(NULL, 5);
    choir_module *net = choir_model(run, text, NULL);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    ok(choir_save(net, path));
    float wanted = first_of(net, "transformer.wte.weight");
    ok(choir_scope_close(run));
    char *json = choir__config_json(text, NULL, NULL);
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "w");
    fputs(json, f);
    fclose(f);
    free(json);

    run = choir_scope_open(NULL, 6);
    net = choir_model(run, folder, &notes);
    ok(choir_scope_status(run));
    free(notes);
    assert_true(first_of(net, "transformer.wte.weight") == wanted);
    ok(choir_scope_close(run));

    run = choir_scope_open(NULL, 6); /* the configuration alone: new weights */
    net = choir_model(run, path, NULL);
    ok(choir_scope_status(run));
    assert_false(first_of(net, "transformer.wte.weight") == wanted);
    ok(choir_scope_close(run));
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_name), cmocka_unit_test(wrong), cmocka_unit_test(from_a_folder)};
    return cmocka_run_group_tests_name("models by name", tests, NULL, NULL);
}
