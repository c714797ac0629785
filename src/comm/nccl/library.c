/* NCCL as a library that is opened with the first group, from wherever it was installed. */
#include "base/plugin/library_nvidia.h"
#include "comm/nccl/nccl.h"

struct choir__nccl_calls choir__nccl_calls;

#define TEXT(x)   #x
#define NUMBER(x) TEXT(x)
#ifndef CHOIR_NCCL_FILE /* the tests' NCCL has another name */
#define CHOIR_NCCL_FILE "libnccl.so." NUMBER(NCCL_MAJOR)
#endif

static choir__nvidia_library library = {.name = "NCCL",
    .file = CHOIR_NCCL_FILE,
    .package = "nccl",
    .variable = "NCCL_HOME",
    .runtime = (const void *)cudaGetLastError,
    .lock = PTHREAD_MUTEX_INITIALIZER};

choir_status choir__nccl_library(void)
{
    static const char *const names[] = {CHOIR__NCCL_CALLS(CHOIR__LIBRARY_NAME)};
    return choir__library_open_nvidia(&library, names, CHOIR_COUNT(names), &choir__nccl_calls);
}
