/* NVML, the library under nvidia-smi, loaded if present. It comes with the driver, but not
 * every toolkit has its header, so the few functions are declared here. */
#include "base/floats.h"
#include "device/cuda/cuda.h"
#include "device/device.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

typedef struct memory {
    unsigned long long total, free, used; /* bytes */
} memory;

typedef struct utilization {
    unsigned gpu, memory; /* percent */
} utilization;

static struct {
    pthread_once_t once;
    bool works;
    int (*init)(void);
    int (*by_bus)(const char *bus_id, void **device);
    int (*memory)(void *device, memory *m);
    int (*utilization)(void *device, utilization *u);
    int (*temperature)(void *device, int sensor, unsigned *celsius);
    int (*power)(void *device, unsigned *milliwatts);
    int (*clock)(void *device, int domain, unsigned *mhz);
    int (*driver)(char *text, unsigned length);
} nvml = {.once = PTHREAD_ONCE_INIT};

static void load(void)
{
    CHOIR__DEFAULT_FLOATS;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return;
    struct {
        const char *name;
        void *to;
    } functions[] = {{"nvmlInit_v2", &nvml.init},
        {"nvmlDeviceGetHandleByPciBusId_v2", &nvml.by_bus},
        {"nvmlDeviceGetMemoryInfo", &nvml.memory},
        {"nvmlDeviceGetUtilizationRates", &nvml.utilization},
        {"nvmlDeviceGetTemperature", &nvml.temperature},
        {"nvmlDeviceGetPowerUsage", &nvml.power}, {"nvmlDeviceGetClockInfo", &nvml.clock},
        {"nvmlSystemGetDriverVersion", &nvml.driver}};
    nvml.works = true;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *fn = dlsym(library, functions[i].name);
        nvml.works &= fn != NULL;
        memcpy(functions[i].to, &fn, sizeof fn);
    }
    nvml.works = nvml.works && nvml.init() == 0;
}

bool choir__nvml_describe(choir__device_facts *facts)
{
    void *device;
    memory m;
    utilization u;
    unsigned value;
    pthread_once(&nvml.once, load);
    if (!nvml.works || nvml.by_bus(facts->bus, &device) != 0 || nvml.memory(device, &m) != 0)
        return false;
    facts->used_bytes = (size_t)m.used;
    facts->busy_percent = nvml.utilization(device, &u) == 0 ? (int)u.gpu : -1;
    facts->celsius = nvml.temperature(device, 0, &value) == 0 ? (int)value : -1;
    facts->watts = nvml.power(device, &value) == 0 ? (int)(value + 500) / 1000 : -1;
    facts->sm_mhz = nvml.clock(device, 1 /* SM */, &value) == 0 ? (int)value : -1;
    if (nvml.driver(facts->driver, sizeof facts->driver) != 0)
        *facts->driver = '\0';
    return true;
}
