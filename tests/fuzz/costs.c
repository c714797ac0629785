/* Tables of choir plan --calibrate. A table that is read prices every kernel, and is written
 * and read again. */
#include "fuzz.h"

#include <math.h>
#include <stdlib.h>

#include "device/kernels.h"
#include "forecast/costs.h"

enum {
#define X(name) KERNEL_##name,
    CHOIR__KERNEL_LIST(X)
#undef X
        KERNELS
};

static void price(const choir__costs *costs)
{
    static const double sizes[] = {0, 1, 1000, 1e9, 1e15};
    choir__device_model device;
    if (choir__device_preset("cpu", &device) != CHOIR_OK)
        abort();
    for (int k = 0; k < KERNELS; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            choir__step_entry e = {.kind = CHOIR__ENTRY_KERNEL};
            double spread;
            e.as.kernel.id = k;
            e.as.kernel.flops = e.as.kernel.bytes = sizes[i];
            const double seconds = choir__kernel_seconds(&device, costs, &e, NULL, &spread);
            if (!isfinite(seconds) || seconds < 0 || !isfinite(spread) || spread < 0)
                abort();
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    choir__costs costs, again;
    const char *path = fuzz_write("costs.json", data, size);
    if (choir__costs_read(path, NULL, &costs) != CHOIR_OK)
        return 0;
    price(&costs);
    if (choir__costs_write(path, &costs) != CHOIR_OK ||
        choir__costs_read(path, costs.key, &again) != CHOIR_OK ||
        again.row_count != costs.row_count)
        abort();
    choir__costs_free(&again);
    choir__costs_free(&costs);
    return 0;
}
