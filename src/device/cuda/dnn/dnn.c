/* cuDNN by its graph API: descriptors of tensors and operations, an engine that the heuristic
 * names, a plan. cudnn_frontend wraps this API, but it consists of C++ headers that few
 * machines have; this file has the part that is needed. dnn_run.c keeps plans and calls them.
 *
 * Tests without a GPU: tests/dnn/plans.c makes plans for a described H200, since cuDNN checks
 * graphs, names engines and finalizes plans without a device; tests/softgpu/dnn_run.c
 * interprets graphs. On a card, the conformance tests (script/gpu). */
#ifdef CHOIR_HAVE_CUDNN
#include "device/cuda/dnn/dnn_graph.h"

enum { MAX_CONFIGS = 16, MAX_NOTES = CUDNN_NUMERICAL_NOTE_TYPE_COUNT };

/* --- graphs --- */

choir__dnn_thing choir__dnn_new(choir__dnn_graph *g, cudnnBackendDescriptorType_t type)
{
    choir__dnn_thing thing = NULL;
    if (!g->failed &&
        (g->count == CHOIR__DNN_THINGS ||
            choir__cudnn.BackendCreateDescriptor(type, &thing) != CUDNN_STATUS_SUCCESS))
        g->failed = true;
    if (thing)
        g->things[g->count++] = thing;
    return thing;
}

void choir__dnn_set(choir__dnn_graph *g, choir__dnn_thing thing,
    cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
    const void *value)
{
    if (!g->failed && choir__cudnn.BackendSetAttribute(thing, name, type, count, value) !=
                          CUDNN_STATUS_SUCCESS)
        g->failed = true;
}

void choir__dnn_set_thing(choir__dnn_graph *g, choir__dnn_thing thing,
    cudnnBackendAttributeName_t name, choir__dnn_thing value)
{
    choir__dnn_set(g, thing, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void choir__dnn_set_float(
    choir__dnn_graph *g, choir__dnn_thing thing, cudnnBackendAttributeName_t name, float value)
{
    choir__dnn_set(g, thing, name, CUDNN_TYPE_FLOAT, 1, &value);
}

void choir__dnn_done(choir__dnn_graph *g, choir__dnn_thing thing)
{
    if (!g->failed && choir__cudnn.BackendFinalize(thing) != CUDNN_STATUS_SUCCESS)
        g->failed = true;
}

void choir__dnn_op(choir__dnn_graph *g, choir__dnn_thing op)
{
    choir__dnn_done(g, op);
    if (g->op_count == CHOIR__DNN_OPS)
        g->failed = true;
    if (!g->failed)
        g->ops[g->op_count++] = op;
}

void choir__dnn_graph_free(choir__dnn_graph *g)
{
    while (g->count)
        choir__cudnn.BackendDestroyDescriptor(g->things[--g->count]);
}

cudnnDataType_t choir__dnn_type(choir_dtype dtype)
{
    return dtype == CHOIR_BF16  ? CUDNN_DATA_BFLOAT16
           : dtype == CHOIR_F16 ? CUDNN_DATA_HALF
                                : CUDNN_DATA_FLOAT;
}

/* The location of a tensor: in device memory, in host memory, or nowhere. */
enum place { DEVICE, HOST, NOWHERE };

static choir__dnn_thing tensor(choir__dnn_graph *g, int64_t id, enum place place,
    cudnnDataType_t type, const int64_t dim[4], const int64_t stride[4])
{
    choir__dnn_thing t = choir__dnn_new(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t bytes = 16;
    bool nowhere = place == NOWHERE, host = place == HOST;
    choir__dnn_set(g, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    choir__dnn_set(g, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    choir__dnn_set(g, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    choir__dnn_set(g, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    choir__dnn_set(g, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &bytes);
    choir__dnn_set(g, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &nowhere);
    choir__dnn_set(g, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &host);
    choir__dnn_done(g, t);
    return t;
}

choir__dnn_thing choir__dnn_tensor(choir__dnn_graph *g, int64_t id, cudnnDataType_t type,
    const int64_t dim[4], const int64_t stride[4])
{
    return id ? tensor(g, id, DEVICE, type, dim, stride)
              : tensor(g, 1000 + g->next++, NOWHERE, type, dim, stride);
}

choir__dnn_thing choir__dnn_number(choir__dnn_graph *g, int64_t id)
{
    static const int64_t one[4] = {1, 1, 1, 1};
    return tensor(g, id, HOST, CUDNN_DATA_FLOAT, one, one);
}

void choir__dnn_pointwise(choir__dnn_graph *g, choir__dnn_each each)
{
    choir__dnn_thing how = choir__dnn_new(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    choir__dnn_set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &each.mode);
    choir__dnn_set(
        g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &each.compute);
    if (each.mode == CUDNN_POINTWISE_GEN_INDEX)
        choir__dnn_set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &each.axis);
    choir__dnn_done(g, how);
    choir__dnn_thing op = choir__dnn_new(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    choir__dnn_set_thing(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    choir__dnn_set_thing(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, each.x);
    if (each.b)
        choir__dnn_set_thing(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, each.b);
    if (each.t)
        choir__dnn_set_thing(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, each.t);
    choir__dnn_set_thing(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, each.y);
    choir__dnn_op(g, op);
}

/* --- engines --- */

/* Returns true if an engine with this note may be used: always the same bits, sums in f32, and
 * no transforms that cost digits. */
static bool fits(cudnnBackendNumericalNote_t note, const choir__dnn_problem *p)
{
    switch (note) {
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
    case CUDNN_NUMERICAL_NOTE_FFT:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: return false;
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS: return p->dtype != CHOIR_F32 || p->tf32;
    default: return true;
    }
}

static bool acceptable(choir__dnn_thing config, const choir__dnn_problem *p)
{
    choir__dnn_thing engine = NULL;
    cudnnBackendNumericalNote_t notes[MAX_NOTES];
    int64_t count = 0;
    bool fine = false;
    if (choir__cudnn.BackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) !=
        CUDNN_STATUS_SUCCESS)
        return false;
    if (choir__cudnn.BackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine) == CUDNN_STATUS_SUCCESS &&
        choir__cudnn.BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
            CUDNN_TYPE_NUMERICAL_NOTE, MAX_NOTES, &count, notes) == CUDNN_STATUS_SUCCESS) {
        fine = true;
        for (int64_t i = 0; i < count; i++)
            fine &= fits(notes[i], p);
    }
    choir__cudnn.BackendDestroyDescriptor(engine);
    return fine;
}

/* Makes a plan from a configuration; NULL on failure. */
static choir__dnn_thing plan_by(
    choir__dnn_target target, choir__dnn_thing config, int64_t *workspace)
{
    choir__dnn_graph g = {0};
    choir__dnn_thing plan = choir__dnn_new(&g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    int64_t count = 0;
    if (target.handle)
        choir__dnn_set(
            &g, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
    else
        choir__dnn_set_thing(&g, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target.device);
    choir__dnn_set_thing(&g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    choir__dnn_done(&g, plan);
    if (!g.failed &&
        choir__cudnn.BackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
            CUDNN_TYPE_INT64, 1, &count, workspace) == CUDNN_STATUS_SUCCESS)
        return plan;
    choir__dnn_graph_free(&g);
    return NULL;
}

static choir__dnn_thing first_plan(choir__dnn_target target, choir__dnn_graph *g,
    choir__dnn_thing heuristic, const choir__dnn_problem *p, int64_t *workspace, int *engines)
{
    choir__dnn_thing config[MAX_CONFIGS], plan = NULL;
    int64_t count = 0;
    for (int i = 0; i < MAX_CONFIGS; i++)
        config[i] = choir__dnn_new(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (g->failed ||
        choir__cudnn.BackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
            CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CONFIGS, &count, config) != CUDNN_STATUS_SUCCESS)
        return NULL;
    for (int64_t i = 0; i < count && i < MAX_CONFIGS && !plan; i++)
        if (acceptable(config[i], p)) {
            *engines += 1;
            plan = plan_by(target, config[i], workspace);
        }
    return plan;
}

/* Tries the engines that the heuristic of a mode names for the graph `all`. */
static choir__dnn_thing plan_of_mode(choir__dnn_target target, choir__dnn_graph *g,
    choir__dnn_thing all, cudnnBackendHeurMode_t mode, const choir__dnn_problem *p,
    int64_t *workspace, int *engines)
{
    choir__dnn_thing heuristic = choir__dnn_new(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    choir__dnn_set_thing(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, all);
    choir__dnn_set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (!target.handle)
        choir__dnn_set_thing(g, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target.device);
    choir__dnn_done(g, heuristic);
    return g->failed ? NULL : first_plan(target, g, heuristic, p, workspace, engines);
}

choir__dnn_thing choir__dnn_plan_new(choir__dnn_target target, choir__dnn_build *build,
    const choir__dnn_problem *p, int64_t *workspace, int *engines)
{
    choir__dnn_graph g = {0};
    build(&g, p);
    choir__dnn_thing all = choir__dnn_new(&g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (target.handle)
        choir__dnn_set(
            &g, all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
    choir__dnn_set(&g, all, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        g.op_count, g.ops);
    choir__dnn_done(&g, all);
    bool whole = !g.failed;
    choir__dnn_thing plan =
        plan_of_mode(target, &g, all, CUDNN_HEUR_MODE_A, p, workspace, engines);
    if (!plan && whole) {
        g.failed = false; /* the attempt in mode A may have set `failed` */
        plan = plan_of_mode(target, &g, all, CUDNN_HEUR_MODE_FALLBACK, p, workspace, engines);
    }
    choir__dnn_graph_free(&g);
    return plan;
}
#endif
