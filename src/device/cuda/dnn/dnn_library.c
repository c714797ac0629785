/* cuDNN as a library that is opened when first needed: the plug-in loads where it is missing,
 * and then uses its own kernels. */
#ifdef CHOIR_HAVE_CUDNN
#include <pthread.h>
#include <stdio.h>

#include "base/plugin/library_nvidia.h"
#include "device/cuda/dnn/dnn_graph.h"

choir__cudnn_calls choir__cudnn;

static struct {
    pthread_once_t once;
    choir_status status;
    char why[1024];
} opened = {.once = PTHREAD_ONCE_INIT};

#define TEXT(x)   #x
#define NUMBER(x) TEXT(x)
#ifndef CHOIR_CUDNN_FILE /* the tests' cuDNN has another name */
#define CHOIR_CUDNN_FILE "libcudnn.so." NUMBER(CUDNN_MAJOR)
#endif

static void open_once(void)
{
    static const char *const names[] = {CHOIR__CUDNN_CALLS(CHOIR__LIBRARY_NAME)};
    const choir__nvidia_library library = {.name = "cuDNN",
        .file = CHOIR_CUDNN_FILE,
        .package = "cudnn",
        .variable = "CUDNN_PATH",
        .runtime = (const void *)cudaGetLastError};
    opened.status =
        choir__library_open_nvidia(&library, names, CHOIR_COUNT(names), &choir__cudnn);
    if (opened.status != CHOIR_OK)
        snprintf(opened.why, sizeof opened.why, "%s", choir_error_message());
}

choir_status choir__cudnn_open(void)
{
    pthread_once(&opened.once, open_once);
    return opened.status == CHOIR_OK ? CHOIR_OK : choir__error(opened.status, "%s", opened.why);
}
#endif
