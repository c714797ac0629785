#include "device/cuda/kernel.cuh"
