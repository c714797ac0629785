/* NCCL as a library that is opened with the first group, from wherever it was installed. */
#include <pthread.h>
#include <stdio.h>

#include "base/plugin/library_nvidia.h"
#include "comm/nccl/nccl.h"

struct choir__nccl_calls choir__nccl_calls;

#define TEXT(x)   #x
#define NUMBER(x) TEXT(x)
#ifndef CHOIR_NCCL_FILE /* the tests' NCCL has another name */
#define CHOIR_NCCL_FILE "libnccl.so." NUMBER(NCCL_MAJOR)
#endif

static struct {
    pthread_once_t once;
    choir_status status;
    char why[1024];
} opened = {.once = PTHREAD_ONCE_INIT};

static void open_once(void)
{
    static const char *const names[] = {CHOIR__NCCL_CALLS(CHOIR__LIBRARY_NAME)};
    const choir__nvidia_library library = {.name = "NCCL",
        .file = CHOIR_NCCL_FILE,
        .package = "nccl",
        .variable = "NCCL_HOME",
        .runtime = (const void *)cudaGetLastError};
    opened.status =
        choir__library_open_nvidia(&library, names, CHOIR_COUNT(names), &choir__nccl_calls);
    if (opened.status != CHOIR_OK)
        snprintf(opened.why, sizeof opened.why, "%s", choir_error_message());
}

choir_status choir__nccl_library(void)
{
    pthread_once(&opened.once, open_once);
    return opened.status == CHOIR_OK ? CHOIR_OK : choir__error(opened.status, "%s", opened.why);
}
