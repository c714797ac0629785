/* The driver's information on a GPU, as nvidia-smi shows it. */
#ifndef CHOIR_CUDA_NVML_H
#define CHOIR_CUDA_NVML_H

#include "device/device.h"

/* Stores the memory in use of the GPU at facts->bus, and utilisation, temperature, power, clock
 * and driver as far as available. The call does not start to use the GPU. Returns false if
 * there is no NVML. */
bool choir__nvml_describe(choir__device_facts *facts);

#endif
