/* Devices are queues: work on four of them overlaps, and each keeps count.  ./devices COUNT */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>

int main(int argc, char **argv)
{
    setenv("CHOIR_CPU_DEVICES", argc > 1 ? argv[1] : "4", 1); /* before the first call */
    int count = choir_device_count("cpu");
    choir_scope *run = choir_scope_open(NULL, 42), *s = choir_step_open(run, 0);
    choir_tensor *x = choir_randn(s, choir_dims(256, 256), "x"), *total = choir_sum(choir_zeros(s, CHOIR_F32, choir_dims(1)));
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "cpu:%d", i);
        choir_tensor *y = choir_to(x, choir_device_find(name)); /* a copy, in order with both */
        for (int k = 0; k <= i; k++)
            y = choir_tanh(choir_matmul(y, y)); /* returns at once: the device works behind */
        total = choir_add(total, choir_to(choir_mean(y), choir_device_find("cpu:0")));
    }
    printf("mean of all: %.6f\n", choir_item(total)); /* waits for what it needs */
    printf("device   tasks  busy ms  peak KiB\n");
}
