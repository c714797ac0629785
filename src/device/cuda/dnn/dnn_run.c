/* cuDNN's plans of a context, and their calls.
 *
 * A context has a handle on its stream, and plans by problem (cuda/library_plans.c). A problem
 * that no engine solves deterministically, or that the GPU refuses when it is called, is marked
 * as such and left to the other kernels. CHOIR_CUDA_DNN=0 leaves everything to them. Plans live
 * as long as their context, and are made by the step that runs before a capture, never in it.
 */
#ifdef CHOIR_HAVE_CUDNN
#include "device/cuda/dnn/dnn.h"
#include "device/cuda/dnn/dnn_graph.h"
#include "device/cuda/library_plans.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- plans of a context --- */

typedef struct plan {
    choir__dnn_thing thing; /* NULL: no engine fits */
    bool refused;           /* the engine failed when it was called */
    int64_t workspace;
} plan;

typedef struct library {
    cudnnHandle_t handle; /* NULL: cuDNN does not start here */
    choir__library_plans *plans;
} library;

static void plan_free(void *p)
{
    plan *x = p;
    if (x->thing)
        choir__cudnn.BackendDestroyDescriptor(x->thing);
    free(x);
}

static bool wanted(void)
{
    const char *text = getenv("CHOIR_CUDA_DNN");
    return !text || strcmp(text, "0");
}

/* Prints one line in the process's life. */
static void say_without(const char *why)
{
    static _Atomic bool said;
    if (!atomic_exchange(&said, true))
        fprintf(stderr,
            "choir: convolutions and attention take Choir's own, slower kernels: %s; "
            "CHOIR_CUDA_DNN=0 ends this line\n",
            why);
}

/* Returns cuDNN's handle for a context; NULL, after saying why, if it is missing or does not
 * start. Tests have one of version 0, which says nothing. */
static cudnnHandle_t start(choir__cuda *cuda)
{
    cudnnHandle_t handle = NULL;
    if (choir__cudnn_open() != CHOIR_OK) {
        say_without(choir_error_message());
        return NULL;
    }
    if (choir__cudnn.Create(&handle) == CUDNN_STATUS_SUCCESS &&
        choir__cudnn.SetStream(handle, cuda->stream) == CUDNN_STATUS_SUCCESS)
        return handle;
    if (choir__cudnn.GetVersion()) {
        choir__library_plan_note(cuda, CHOIR__CUDNN, CHOIR__LIBRARY_PLAN_REFUSED, "to start");
        say_without("cuDNN is there and does not start; CUDNN_LOGLEVEL_DBG=2 says more");
    }
    return NULL;
}

static library *library_of(choir__cuda *cuda)
{
    library *dnn = cuda->dnn;
    if (dnn || cuda->capturing)
        return dnn;
    cuda->dnn = dnn = choir__calloc(1, sizeof *dnn);
    if (wanted())
        dnn->handle = start(cuda);
    return dnn;
}

static void note(choir__cuda *cuda, const choir__dnn_problem *p, choir__library_plan_fate fate)
{
    static const char *const names[] = {[CHOIR__DNN_CONV] = "conv",
        [CHOIR__DNN_CONV_INPUT] = "conv_backward_input",
        [CHOIR__DNN_CONV_WEIGHT] = "conv_backward_weight",
        [CHOIR__DNN_ATTENTION] = "attention",
        [CHOIR__DNN_ATTENTION_BACKWARD] = "attention_backward"};
    enum { SHOWN = 15 }; /* numbers of a convolution, or of attention without strides */
    char text[256];
    int used = snprintf(
        text, sizeof text, "%s %s", names[p->kind], choir_dtype_name((choir_dtype)p->dtype));
    for (int i = 0; i < (p->kind < CHOIR__DNN_ATTENTION ? SHOWN : 7); i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%lld", i ? "," : " ",
            (long long)p->n[i]);
    choir__library_plan_note(cuda, CHOIR__CUDNN, fate, text);
}

/* Returns the plan of a problem, or NULL if it has none during a capture: making one loads code
 * and calls the GPU. */
static plan *plan_of(
    choir__cuda *cuda, library *dnn, choir__dnn_build *build, const choir__dnn_problem *p)
{
    void **place = choir__library_plan_place(&dnn->plans, p, sizeof *p);
    if (*place || cuda->capturing)
        return *place;
    plan *x = choir__calloc(1, sizeof *x);
    int engines = 0;
    x->thing = choir__dnn_plan_new(
        (choir__dnn_target){.handle = dnn->handle}, build, p, &x->workspace, &engines);
    note(cuda, p, x->thing ? CHOIR__LIBRARY_PLAN_MADE : CHOIR__LIBRARY_PLAN_NONE);
    *place = x;
    return x;
}

void choir__cuda_dnn_free(choir__cuda *cuda)
{
    library *dnn = cuda->dnn;
    if (dnn)
        choir__library_plans_free(&dnn->plans, plan_free);
    if (dnn && dnn->handle)
        choir__cudnn.Destroy(dnn->handle);
    free(dnn);
    cuda->dnn = NULL;
}

size_t choir__dnn_version(void)
{
    return wanted() && choir__cudnn_open() == CHOIR_OK ? choir__cudnn.GetVersion() : 0;
}

/* --- calls --- */

static bool execute(library *dnn, const plan *x, void *space, int count, void *const *at)
{
    choir__dnn_graph g = {0};
    int64_t ids[16];
    for (int i = 0; i < count; i++)
        ids[i] = i + 1;
    choir__dnn_thing pack = choir__dnn_new(&g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    choir__dnn_set(
        &g, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, at);
    choir__dnn_set(&g, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
    choir__dnn_set(&g, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &space);
    choir__dnn_done(&g, pack);
    bool done = !g.failed && choir__cudnn.BackendExecute(dnn->handle, x->thing, pack) ==
                                 CUDNN_STATUS_SUCCESS;
    choir__dnn_graph_free(&g);
    return done;
}

/* During a capture: makes it fail, so that the list is issued task by task. */
static bool refuse(choir__cuda *cuda)
{
    cuda->refused = true;
    return true;
}

bool choir__dnn_knows(choir__dnn_build *build, const choir__dnn_problem *p)
{
    choir__cuda *cuda = choir__cuda_here();
    library *dnn = library_of(cuda);
    const plan *x = dnn && dnn->handle ? plan_of(cuda, dnn, build, p) : NULL;
    return !x || (x->thing && !x->refused);
}

/* Counts a call that another kernel computes. */
static bool without(choir__cuda *cuda)
{
    cuda->use[CHOIR__CUDNN].without++;
    return false;
}

bool choir__dnn_run(
    choir__dnn_build *build, const choir__dnn_problem *p, int count, void *const *at)
{
    choir__cuda *cuda = choir__cuda_here();
    library *dnn = library_of(cuda);
    if (!dnn)
        return refuse(cuda);
    if (!dnn->handle)
        return without(cuda);
    for (int i = 0; i < count; i++)
        if ((uintptr_t)at[i] % 16) /* as the tensors' descriptors promise */
            return without(cuda);
    plan *x = plan_of(cuda, dnn, build, p);
    if (!x)
        return refuse(cuda);
    if (!x->thing || x->refused)
        return without(cuda);
    void *space = cuda->workspace;
    bool large = (size_t)x->workspace > cuda->workspace_bytes;
    if (large && !(space = choir__cuda_scratch(CHOIR__SCRATCH_DNN, (size_t)x->workspace)))
        return true; /* the queue has failed */
    bool done = execute(dnn, x, space, count, at);
    if (large)
        choir__cuda_scratch_done(CHOIR__SCRATCH_DNN);
    if (done)
        return true;
    if (cuda->capturing)
        return refuse(cuda);
    cudaGetLastError(); /* the error must not be blamed on the kernel that runs instead */
    x->refused = true;  /* the plan is kept, since an earlier graph may use it */
    note(cuda, p, CHOIR__LIBRARY_PLAN_REFUSED);
    return without(cuda);
}

#endif
