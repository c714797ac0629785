/* NVIDIA's optional libraries, cuDNN and NCCL, opened at run time wherever an installer put
 * them.
 *
 * The plug-ins are not linked with them, so that they load without. A toolkit from the system's
 * packages has its libraries where the dynamic linker looks; one of conda, of Python's wheels
 * or of a module has them in folders that only the environment, or the place of the CUDA
 * runtime in use, tells. */
#ifndef CHOIR_LIBRARY_NVIDIA_H
#define CHOIR_LIBRARY_NVIDIA_H

#include <pthread.h>

#include "base/plugin/library.h"

typedef struct choir__nvidia_library {
    const char *name;     /* for messages: "cuDNN" */
    const char *file;     /* "libcudnn.so.9" */
    const char *package;  /* folder in Python's wheels: "cudnn" */
    const char *variable; /* environment variable with the folder: "CUDNN_PATH" */
    const void *runtime;  /* an address in libcudart: the library may be near; NULL: none */
    pthread_mutex_t lock; /* guards the result of the first attempt */
    bool tried;
    choir_status status;
    char why[1024];
} choir__nvidia_library;

/* Opens the library like choir__library_open, from the first folder that has it: of its
 * variable, of the dynamic linker, of the CUDA runtime in use and its neighbours in Python's
 * wheels, of CUDA_HOME, CUDA_PATH, CONDA_PREFIX and VIRTUAL_ENV. Error: unsupported; the
 * sentence names all these folders. Later calls have the result of the first. */
choir_status choir__library_open_nvidia(
    choir__nvidia_library *library, const char *const *names, size_t count, void *table);

#endif
