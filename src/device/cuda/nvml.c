/* NVML, the library under nvidia-smi, loaded if present. It comes with the driver, but not
 * every toolkit has its header, so the few functions are declared here. */
#include "device/cuda/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
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

static void add(char *json, size_t bytes, const char *format, unsigned value)
{
    size_t used = strlen(json);
    snprintf(json + used, bytes - used, format, value);
}

bool choir__nvml_describe(const char *bus_id, size_t *used_bytes, char *json, size_t bytes)
{
    void *device;
    memory m;
    utilization u;
    unsigned value;
    char driver[64];
    *json = '\0';
    pthread_once(&nvml.once, load);
    if (!nvml.works || nvml.by_bus(bus_id, &device) != 0 || nvml.memory(device, &m) != 0)
        return false;
    *used_bytes = (size_t)m.used;
    if (nvml.utilization(device, &u) == 0)
        add(json, bytes, ",\"utilization_percent\":%u", u.gpu);
    if (nvml.temperature(device, 0, &value) == 0)
        add(json, bytes, ",\"temperature_c\":%u", value);
    if (nvml.power(device, &value) == 0)
        add(json, bytes, ",\"power_w\":%u", (value + 500) / 1000);
    if (nvml.clock(device, 1 /* SM */, &value) == 0)
        add(json, bytes, ",\"sm_clock_mhz\":%u", value);
    if (nvml.driver(driver, sizeof driver) == 0) {
        size_t used = strlen(json);
        snprintf(json + used, bytes - used, ",\"driver\":\"%s\"", driver);
    }
    return true;
}
