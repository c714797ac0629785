/* Devices work concurrently, each with its own queue and memory:  ./devices COUNT */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>

static choir_device *device(int i)
{
    char name[16];
    snprintf(name, sizeof name, "cpu:%d", i);
    return choir_device_find(name);
}

int main(int argc, char **argv)
{
    setenv("CHOIR_CPU_DEVICES", argc > 1 ? argv[1] : "4", 1); /* even on fewer cores */
    int count = choir_device_count("cpu");
    choir_scope *run = choir_scope_open(device(0), 42), *s = choir_step_open(run, 0);
    choir_tensor *x = choir_randn(s, choir_dims(256, 256), "x"); /* on the run's device */
    choir_tensor *total = choir_zeros(s, CHOIR_F32, CHOIR_SCALAR);
    for (int i = 0; i < count; i++) {
        choir_tensor *w = choir_to(x, device(i)), *y = w; /* operands meet on one device */
        for (int k = 0; k < 4 * (i + 1); k++)
            y = choir_tanh(choir_matmul(w, y)); /* returns at once; the device computes */
        total = choir_add(total, choir_to(choir_mean(y), device(0)));
    }
    printf("sum of the %d means: %.6f\n", count, choir_item(total)); /* waits for all */

    printf("device   tasks   busy ms   peak KiB\n");
    for (int i = 0; i < count; i++) {
        choir_device_stats d;
        choir_device_get_stats(device(i), &d);
        printf("cpu:%d %9llu %9.3f %10.1f\n", i, (unsigned long long)d.tasks, 1e3 * d.busy_s,
            (double)d.bytes_peak / 1024);
    }
    choir_check(choir_scope_close(s));
    choir_check(choir_scope_close(run));
    return 0;
}
