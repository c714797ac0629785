/* What the driver says of a GPU, as nvidia-smi shows it. */
#ifndef CHOIR_CUDA_NVML_H
#define CHOIR_CUDA_NVML_H

#include <stdbool.h>
#include <stddef.h>

/* The memory in use of the GPU at a PCI bus id, and more members of a JSON object on it, each
 * after a comma: utilisation, temperature, power, driver, what can be had of them. The GPU is
 * not begun to be used by it. False: there is no NVML. */
bool choir__nvml_describe(const char *bus_id, size_t *used_bytes, char *json, size_t bytes);

#endif
