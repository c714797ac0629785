/* cuDNN as a library that is opened when first needed: the plug-in loads where it is missing,
 * and then uses its own kernels. */
#ifdef CHOIR_HAVE_CUDNN
#include "base/plugin/library_nvidia.h"
#include "device/cuda/dnn/dnn_graph.h"

choir__cudnn_calls choir__cudnn;

#define TEXT(x)   #x
#define NUMBER(x) TEXT(x)
#ifndef CHOIR_CUDNN_FILE /* the tests' cuDNN has another name */
#define CHOIR_CUDNN_FILE "libcudnn.so." NUMBER(CUDNN_MAJOR)
#endif

static choir__nvidia_library library = {.name = "cuDNN",
    .file = CHOIR_CUDNN_FILE,
    .package = "cudnn",
    .variable = "CUDNN_PATH",
    .runtime = (const void *)cudaGetLastError,
    .lock = PTHREAD_MUTEX_INITIALIZER};

choir_status choir__cudnn_open(void)
{
    static const char *const names[] = {CHOIR__CUDNN_CALLS(CHOIR__LIBRARY_NAME)};
    return choir__library_open_nvidia(&library, names, CHOIR_COUNT(names), &choir__cudnn);
}
#endif
