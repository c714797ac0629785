/* The driver's information on a GPU, as nvidia-smi shows it. */
#ifndef CHOIR_CUDA_NVML_H
#define CHOIR_CUDA_NVML_H

#include <stdbool.h>
#include <stddef.h>

/* Writes the memory in use of the GPU at a PCI bus id, and more members of a JSON object, each
 * after a comma: utilisation, temperature, power, driver, as far as available. The call does
 * not start to use the GPU. Returns false if there is no NVML. */
bool choir__nvml_describe(const char *bus_id, size_t *used_bytes, char *json, size_t bytes);

#endif
