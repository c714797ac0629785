/* What the driver says of a GPU, as nvidia-smi shows it. */
#ifndef CHOIR_CUDA_NVML_H
#define CHOIR_CUDA_NVML_H

#include <stddef.h>

/* Adds members of a JSON object on the GPU at a PCI bus id: utilisation, temperature, power,
 * driver; what cannot be had is left out. Each begins with a comma. */
void choir__nvml_describe(const char *bus_id, char *json, size_t bytes);

#endif
