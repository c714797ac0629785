/* No model of the registry needs a reference kernel, in f32 or with 16-bit floats, whatever
 * this processor has; and a kernel that is slow is named. Each set of instructions is one
 * process, because libraries look at their environment once. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <choir/choir.h>

#include "check.h"
#include "device/cpu/ways.h"

#define TINY         "layers=1,heads=2,width=16,context=8,vocab=65"
#define SMALL_RESNET "image=16,width=4,classes=4"

/* Each model of the registry in a small size. */
static const char *const models[] = {"toy", "mlp", "cnn:width=2,image=8,channels=3",
    "lenet:l1=7,l2=5,image=20,channels=2,classes=3", "resnet18:small=1," SMALL_RESNET,
    "resnet34:" SMALL_RESNET, "resnet50:" SMALL_RESNET, "resnet101:" SMALL_RESNET,
    "resnet152:" SMALL_RESNET, "alexnet:width=2,hidden=8,image=64", "gpt2:" TINY, "llama:" TINY,
    "mistral:window=4," TINY, "qwen2:" TINY, "qwen3:" TINY, "gemma:" TINY, "gemma2:" TINY,
    "gemma3:" TINY, "phi3:" TINY, "smollm3:" TINY,
    "donut:height=32,image_width=32,window=4,embed=16,depths=2-2,heads=2-4,layers=2,width=16,"
    "hidden=32,decoder_heads=2,context=8,vocab=65",
    "lstm:layers=1,hidden=8,in=8,context=8,vocab=65", "bert:" TINY, "roberta:" TINY,
    "xlm-roberta:" TINY, "camembert:" TINY, "distilbert:" TINY,
    "vit:layers=1,heads=2,width=16,patch=4,image=8,classes=4"};

/* Where a processor lacks a set, the variable changes nothing. */
static const char *const settings[][2] = {{"CHOIR_ISA", ""}, {"CHOIR_ISA", "avx2"},
    {"CHOIR_ISA", "baseline"}, {"DNNL_MAX_CPU_ISA", "AVX2"},
    {"DNNL_MAX_CPU_ISA", "AVX512_CORE"}, {"DNNL_MAX_CPU_ISA", "SSE41"}};

static void all_models_are_here(void **state)
{
    for (int i = 0; choir_model_name(i, NULL); i++) {
        const char *name = choir_model_name(i, NULL);
        assert_true(i < (int)CHOIR_COUNT(models));
        if (strncmp(models[i], name, strlen(name)) != 0)
            fail_msg("give the model '%s' a small size in this test", name);
    }
}

static choir_status step_of(const char *model, choir_dtype dtype)
{
    choir_env env;
    choir_model_info info;
    choir_data data;
    choir_status status = choir_env_init(&env);
    if (status == CHOIR_OK)
        status = choir_model_data(model, "random", choir_data_defaults(), &info, &data);
    if (status != CHOIR_OK)
        return status;
    choir_scope *run = choir_run_open(&env, 42);
    if (dtype != CHOIR_F32)
        choir_autocast(run, dtype);
    choir_module *net = choir_model_build(run, &info);
    choir_optim *optim = choir_adamw(run, net, choir_adamw_defaults());
    choir_loader *loader = choir_env_loader(run, &env, data.train, 2);
    choir_scope *step = choir_step_open(run, 0);
    choir_batch batch;
    status = choir_loader_next(loader, step, &batch);
    if (status == CHOIR_OK)
        status = choir_backward(choir_model_loss(
            &info, choir_model_forward(&info, net, batch.x, batch.y), batch.y));
    if (status == CHOIR_OK)
        status = choir_optim_step(optim);
    choir_status closed = choir_scope_close(step);
    status = status == CHOIR_OK ? closed : status;
    closed = choir_scope_close(run);
    choir_data_free(&data);
    choir_env_free(&env);
    return status == CHOIR_OK ? closed : status;
}

/* Returns the number of models that failed or were slow, in a process of its own. */
static int failures_with(const char *const setting[2])
{
    static const choir_dtype dtypes[] = {CHOIR_F32, CHOIR_BF16, CHOIR_F16};
    int failures = 0;
    char slow[256];
    setenv(setting[0], setting[1], 1);
    for (size_t m = 0; m < CHOIR_COUNT(models); m++)
        for (size_t d = 0; d < CHOIR_COUNT(dtypes); d++) {
            const char *wrong =
                step_of(models[m], dtypes[d]) == CHOIR_OK ? NULL : choir_error_message();
            if (!wrong && choir_slow_kernels(slow, sizeof slow))
                wrong = slow;
            if (wrong)
                print_error("%s=%s, %s, %s: %s\n", setting[0], setting[1], models[m],
                    choir_dtype_name(dtypes[d]), wrong);
            failures += wrong != NULL;
            choir__forget_ways();
        }
    return failures;
}

static void models_need_no_reference(void **state)
{
    for (size_t i = 0; i < CHOIR_COUNT(settings); i++) {
        int status;
        pid_t child = fork();
        if (child == 0)
            _exit(failures_with(settings[i]) > 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

static void slow_ones_are_named(void **state)
{
    char text[64];
    choir__forget_ways();
    choir_scope *run = choir_scope_open(choir_device_find("cpu:0"), 1);
    choir_tensor *x = choir_full(run, CHOIR_F64, choir_dims(2, 2), 2);
    double y[4];
    ok(choir_read(choir_softmax(x), y, sizeof y));
    assert_true(y[3] == 0.5);
    assert_int_equal(choir_slow_kernels(text, sizeof text), 1);
    assert_string_equal(text, "softmax in f64");
    assert_int_equal(choir_slow_kernels(text, 8), 1);
    assert_string_equal(text, "softmax");
    assert_int_equal(choir_slow_kernels(NULL, 0), 1);
    ok(choir_scope_close(run));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_models_are_here),
        cmocka_unit_test(models_need_no_reference),
        cmocka_unit_test(slow_ones_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
