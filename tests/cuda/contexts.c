/* GPU contexts that a process creates: one on the GPU that it asked for; none by counting GPUs,
 * and none for threads that never chose one. The soft GPU counts contexts; on real GPUs the
 * same calls are made without a count. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <choir/choir.h>

#include "check.h"
#include "device/device.h"
#include "device/far.h"
#include "sample.h"
#include "tensor/tensor.h"

/* Returns a bit set of the GPUs that have contexts; 0 on a real GPU. */
static unsigned contexts(void)
{
    unsigned (*fn)(void) = NULL;
    void *library = dlopen("libsoftgpu.so", RTLD_NOW | RTLD_NOLOAD);
    if (library)
        *(void **)&fn = dlsym(library, "softgpu_contexts");
    return fn ? fn() : 0;
}

/* Returns the name of the last GPU, which is not the first one where there are several. */
static const char *last_gpu(void)
{
    static char name[32];
    snprintf(name, sizeof name, "cuda:%d", choir_device_count("cuda") - 1);
    return name;
}

/* choir_spawn(choir_device_count("cuda"), ...) is a program's way to take all there are. */
static void counting_leaves_them_to_children(void **state)
{
    int status;
    const char *count = getenv("SOFTGPU_COUNT");
    if (choir_device_count("cuda") == 0)
        skip();
    if (on_soft_gpu() && count)
        assert_int_equal(choir_device_count("cuda"), atoi(count));
    assert_false(choir__device_forbids_fork());
    pid_t child = fork();
    if (child == 0) {
        choir_device *device = choir_device_find(last_gpu());
        choir_scope *run = choir_scope_open(device, 1);
        choir_tensor *x = choir_full(run, CHOIR_F32, choir_dims(3), 2);
        _exit(device && choir_item(choir_sum(x)) == 6 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Uses values of a GPU in a thread that has not chosen a GPU. */
static void *look_around(void *arg)
{
    choir_tensor *x = arg;
    float y[64];
    choir__event made = choir__queue_record(choir_device_find(last_gpu())->queue);
    (void)choir__event_done(made);
    (void)choir__event_wait(made);
    assert_ptr_equal(choir__far_of(choir__data(x)), choir_device_find(last_gpu())->far);
    assert_null(choir__far_of(y));
    ok(choir_read(x, y, sizeof y));
    const choir__far *far = choir_device_find(last_gpu())->far;
    void *p = far->pinned(1 << 20);
    assert_non_null(p);
    far->unpin(p);
    return NULL;
}

static void one_gpu_is_one_gpu(void **state)
{
    choir_device *device = choir_device_find(last_gpu());
    assert_non_null(device);
    choir_scope *run = choir_scope_open(device, 1);
    choir_tensor *x = choir_randn(run, choir_dims(8, 8), "x");
    for (int i = 0; i < 3; i++)
        x = choir_matmul(x, choir_to(choir_to(x, choir_device_find("cpu:0")), device));
    ok(choir_device_sync(device)); /* no task is left that it could run */
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, look_around, x), 0);
    pthread_join(other, NULL);
    ok(choir_scope_close(run));
    if (contexts() == 0)
        skip();
    assert_int_equal(contexts(), 1u << device->index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counting_leaves_them_to_children), /* before there are any */
        cmocka_unit_test(one_gpu_is_one_gpu),
    };
    return cmocka_run_group_tests_name("what a process uses of GPUs", tests, NULL, NULL);
}
