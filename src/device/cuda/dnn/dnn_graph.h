/* The interface to cuDNN's graphs: a graph of operations on tensors, built again for each
 * problem, and a plan made from it, which is kept. */
#ifndef CHOIR_CUDA_DNN_GRAPH_H
#define CHOIR_CUDA_DNN_GRAPH_H

#include <cudnn.h>

#include "base/plugin/library.h"
#include "device/cuda/cuda.h"

/* cuDNN's functions, opened when first needed (dnn_library.c). */
#define CHOIR__CUDNN_CALLS(X)                                                                  \
    X(cudnn, BackendCreateDescriptor)                                                          \
    X(cudnn, BackendDestroyDescriptor)                                                         \
    X(cudnn, BackendExecute)                                                                   \
    X(cudnn, BackendFinalize)                                                                  \
    X(cudnn, BackendGetAttribute)                                                              \
    X(cudnn, BackendSetAttribute)                                                              \
    X(cudnn, Create)                                                                           \
    X(cudnn, Destroy)                                                                          \
    X(cudnn, GetLastErrorString)                                                               \
    X(cudnn, GetVersion)                                                                       \
    X(cudnn, SetStream)
typedef struct choir__cudnn_calls {
    CHOIR__CUDNN_CALLS(CHOIR__LIBRARY_CALL)
} choir__cudnn_calls;
extern choir__cudnn_calls choir__cudnn;

/* Opens cuDNN once per process; any thread. Error: unsupported, which says where it was looked
 * for. */
choir_status choir__cudnn_open(void);

typedef cudnnBackendDescriptor_t choir__dnn_thing;

enum { CHOIR__DNN_THINGS = 160, CHOIR__DNN_OPS = 32 };

/* All objects made are `things` of the graph and are freed with it. A failure sticks: later
 * calls do nothing, and the graph has no plan. */
typedef struct choir__dnn_graph {
    choir__dnn_thing things[CHOIR__DNN_THINGS], ops[CHOIR__DNN_OPS];
    int count, op_count;
    int64_t next; /* the unique id of the next internal tensor */
    bool failed;
} choir__dnn_graph;

/* The target of a plan: a handle's GPU, or a GPU that is only described. */
typedef struct choir__dnn_target {
    cudnnHandle_t handle;
    choir__dnn_thing device; /* handle NULL: a finalized DEVICEPROP descriptor */
} choir__dnn_target;

choir__dnn_thing choir__dnn_new(choir__dnn_graph *g, cudnnBackendDescriptorType_t type);
void choir__dnn_set(choir__dnn_graph *g, choir__dnn_thing thing,
    cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
    const void *value);
void choir__dnn_set_thing(choir__dnn_graph *g, choir__dnn_thing thing,
    cudnnBackendAttributeName_t name, choir__dnn_thing value);
void choir__dnn_set_float(
    choir__dnn_graph *g, choir__dnn_thing thing, cudnnBackendAttributeName_t name, float value);
void choir__dnn_done(choir__dnn_graph *g, choir__dnn_thing thing);
/* Finishes op and adds it to the graph's operations. */
void choir__dnn_op(choir__dnn_graph *g, choir__dnn_thing op);
void choir__dnn_graph_free(choir__dnn_graph *g);

cudnnDataType_t choir__dnn_type(choir_dtype dtype);

/* Makes a tensor with 4 dims and strides. id > 0: memory that the call provides; 0: between
 * operations. */
choir__dnn_thing choir__dnn_tensor(choir__dnn_graph *g, int64_t id, cudnnDataType_t type,
    const int64_t dim[4], const int64_t stride[4]);

/* Makes one f32 number, which the call provides by its address in host memory. */
choir__dnn_thing choir__dnn_number(choir__dnn_graph *g, int64_t id);

/* y = mode(x) or mode(x, b); if t is given, t ? x : b. compute 0: in f32. */
typedef struct choir__dnn_each {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t compute;
    int64_t axis; /* for GEN_INDEX */
    choir__dnn_thing x, b, t, y;
} choir__dnn_each;

void choir__dnn_pointwise(choir__dnn_graph *g, choir__dnn_each each);

/* --- plans --- */

/* The key of a plan, apart from the GPU. Zero it before filling it in. */
typedef struct choir__dnn_problem {
    int32_t kind, dtype, tf32, flags;
    int64_t n[32];
} choir__dnn_problem;

typedef void choir__dnn_build(choir__dnn_graph *g, const choir__dnn_problem *p);

/* Makes a plan with the first engine, in the order of the heuristic, that always gives the same
 * bits and sums in f32 (unless tf32 is set); NULL: none. Writes the workspace it needs, and
 * adds the number of such engines that were tried to *engines. */
choir__dnn_thing choir__dnn_plan_new(choir__dnn_target target, choir__dnn_build *build,
    const choir__dnn_problem *p, int64_t *workspace, int *engines);

/* Returns false if there is no plan for the problem, or it was refused. True during a capture
 * without an answer: then choir__dnn_run makes the capture fail. */
bool choir__dnn_knows(choir__dnn_build *build, const choir__dnn_problem *p);

/* Solves the problem with `count` tensors of ids 1, 2, ... at `at`. */
bool choir__dnn_run(
    choir__dnn_build *build, const choir__dnn_problem *p, int count, void *const *at);

/* --- the problems, for the functions of dnn.h and for tests --- */

enum {
    CHOIR__DNN_CONV,
    CHOIR__DNN_CONV_INPUT,
    CHOIR__DNN_CONV_WEIGHT,
    CHOIR__DNN_ATTENTION,
    CHOIR__DNN_ATTENTION_BACKWARD
};
/* choir__dnn_X_problem describes a call, and choir__dnn_build_X makes its graph. Tests call
 * them, too. */
void choir__dnn_build_conv(choir__dnn_graph *g, const choir__dnn_problem *p);
choir__dnn_problem choir__dnn_conv_problem(
    int kind, const choir__conv_shape *s, choir_dtype dtype, bool bias);
void choir__dnn_build_attention(choir__dnn_graph *g, const choir__dnn_problem *p);
choir__dnn_problem choir__dnn_attention_problem(const choir__k_attention *k);
void choir__dnn_build_attention_backward(choir__dnn_graph *g, const choir__dnn_problem *p);
choir__dnn_problem choir__dnn_attention_backward_problem(const choir__k_attention_backward *k);

#endif
