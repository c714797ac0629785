/* cuDNN: the part of its graph API that Choir calls, with the interface of the library's own
 * headers. A descriptor is a list of attributes and keeps alive those that it names. A plan
 * interprets its graph, operation by operation (dnn_run.c), so what Choir's graphs compute can
 * be compared with its own kernels.
 *
 * The heuristic names two engines, and none for an image of 16 bits with a fused bias and an
 * odd number of channels. The first says that it is not deterministic, and no plan may be made
 * of it. Plans of graphs with many products have the workspace that real ones have, and
 * overwrite it.
 *
 * Environment:
 *   SOFTGPU_DNN=91900       there is a cuDNN, of this version; without it none starts
 *   SOFTGPU_DNN_SPACE=bytes the least workspace of a plan (0) */
#include "dnn.h"

struct cudnnContext {
    cudaStream_t stream;
};

typedef struct attribute {
    struct attribute *next;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    unsigned char values[] __attribute__((aligned(16)));
} attribute;

typedef struct thing {
    cudnnBackendDescriptorType_t kind;
    int users; /* its maker, and descriptors that name it */
    bool final;
    attribute *attributes;
} thing;

/* --- attributes --- */

static size_t size_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    default: return 4;
    }
}

static attribute *find(const thing *x, cudnnBackendAttributeName_t name)
{
    attribute *a = x->attributes;
    while (a && a->name != name)
        a = a->next;
    return a;
}

int64_t softgpu_dnn_get(
    softgpu_thing x, cudnnBackendAttributeName_t name, void *to, int64_t most)
{
    const attribute *a = x ? find(x, name) : NULL;
    int64_t count = a && a->count < most ? a->count : a ? most : 0;
    if (count)
        memcpy(to, a->values, (size_t)count * size_of(a->type));
    return count;
}

softgpu_thing softgpu_dnn_thing(softgpu_thing x, cudnnBackendAttributeName_t name)
{
    softgpu_thing found = NULL;
    (void)softgpu_dnn_get(x, name, &found, 1);
    return found;
}

int64_t softgpu_dnn_whole(softgpu_thing x, cudnnBackendAttributeName_t name)
{
    const attribute *a = x ? find(x, name) : NULL;
    int32_t narrow = 0;
    int64_t wide = 0;
    if (!a || !a->count)
        return 0;
    if (size_of(a->type) == 1)
        return a->values[0];
    if (size_of(a->type) == 4) {
        memcpy(&narrow, a->values, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, a->values, sizeof wide);
    return wide;
}

float softgpu_dnn_float(softgpu_thing x, cudnnBackendAttributeName_t name)
{
    float found = 0;
    (void)softgpu_dnn_get(x, name, &found, 1);
    return found;
}

int64_t softgpu_dnn_named(softgpu_thing x, softgpu_thing *to, int64_t most)
{
    int64_t count = 0;
    for (const attribute *a = ((const thing *)x)->attributes; a; a = a->next)
        if (a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR && count < most)
            count += softgpu_dnn_get(x, a->name, to + count, most - count);
    return count;
}

cudnnBackendDescriptorType_t softgpu_dnn_kind(softgpu_thing x)
{
    return ((const thing *)x)->kind;
}

/* --- descriptors; under lock --- */

static void drop(thing *x);

static void drop_named(attribute *a)
{
    thing *named;
    for (int64_t i = 0; a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < a->count; i++) {
        memcpy(&named, a->values + 8 * i, sizeof named);
        drop(named);
    }
}

static void drop(thing *x)
{
    if (!x || --x->users)
        return;
    for (attribute *a = x->attributes, *next; a; a = next) {
        next = a->next;
        drop_named(a);
        free(a);
    }
    free(x);
}

static void set(thing *x, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
    int64_t count, const void *values)
{
    size_t bytes = (size_t)count * size_of(type);
    attribute *a = calloc(1, sizeof *a + bytes);
    a->name = name, a->type = type, a->count = count;
    a->next = x->attributes;
    memcpy(a->values, values, bytes);
    x->attributes = a; /* it hides an older one of the name, if there is one */
    thing *named;
    for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; i++) {
        memcpy(&named, a->values + 8 * i, sizeof named);
        named->users++;
    }
}

cudnnStatus_t cudnnBackendCreateDescriptor(
    cudnnBackendDescriptorType_t kind, cudnnBackendDescriptor_t *made)
{
    thing *x = calloc(1, sizeof *x);
    x->kind = kind, x->users = 1;
    *made = x;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t x)
{
    softgpu_lock();
    drop(x);
    softgpu_unlock();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t to,
    cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
    const void *values)
{
    thing *x = to;
    if (!x || x->final || count < 0 || (count && !values))
        return CUDNN_STATUS_BAD_PARAM;
    softgpu_lock();
    set(x, name, type, count, values);
    softgpu_unlock();
    return CUDNN_STATUS_SUCCESS;
}

/* --- engines and plans --- */

static softgpu_thing engine_of(softgpu_thing plan)
{
    return softgpu_dnn_thing(softgpu_dnn_thing(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG),
        CUDNN_ATTR_ENGINECFG_ENGINE);
}

static int64_t space_of(softgpu_thing plan)
{
    const char *least = getenv("SOFTGPU_DNN_SPACE");
    int64_t bytes = (int64_t)softgpu_dnn_workspace(
        softgpu_dnn_thing(engine_of(plan), CUDNN_ATTR_ENGINE_OPERATION_GRAPH));
    int64_t wanted = least ? atoll(least) : 0;
    return bytes > wanted ? bytes : wanted;
}

/* Checks a descriptor as far as this file knows its kind. */
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t made)
{
    thing *x = made;
    int64_t stride[4], dim[4];
    if (!x || x->final)
        return CUDNN_STATUS_BAD_PARAM;
    if (x->kind == CUDNN_BACKEND_TENSOR_DESCRIPTOR &&
        (softgpu_dnn_get(x, CUDNN_ATTR_TENSOR_DIMENSIONS, dim, 4) != 4 ||
            softgpu_dnn_get(x, CUDNN_ATTR_TENSOR_STRIDES, stride, 4) != 4 ||
            !softgpu_dnn_whole(x, CUDNN_ATTR_TENSOR_UNIQUE_ID)))
        return CUDNN_STATUS_BAD_PARAM;
    for (int i = 0; x->kind == CUDNN_BACKEND_TENSOR_DESCRIPTOR && i < 4; i++)
        if (dim[i] < 1)
            return CUDNN_STATUS_BAD_PARAM;
    if (x->kind == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        if (softgpu_dnn_whole(engine_of(x), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE))
            softgpu_wrong("a plan of cuDNN is made of an engine that is not deterministic");
        int64_t bytes = space_of(x);
        softgpu_lock();
        set(x, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
        softgpu_unlock();
    }
    x->final = true;
    return CUDNN_STATUS_SUCCESS;
}

/* Names the engines of a heuristic's graph in the caller's configurations. */
static int64_t name_engines(softgpu_thing heuristic, int64_t most, thing *const *config)
{
    static const int32_t notes[2] = {1, 0};
    softgpu_thing graph = softgpu_dnn_thing(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    int64_t i = 0;
    if (!graph || !softgpu_dnn_has_engines(graph))
        return 0;
    for (; i < 2 && i < most; i++) {
        thing *engine = calloc(1, sizeof *engine);
        engine->kind = CUDNN_BACKEND_ENGINE_DESCRIPTOR, engine->final = true;
        set(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
            &graph);
        set(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, notes[i],
            &(int32_t){CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC});
        set(config[i], CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
        config[i]->final = true;
    }
    return i;
}

/* A descriptor that is asked for is written to one that the caller has made. */
static void copy_thing(thing *to, const thing *from)
{
    for (const attribute *a = from->attributes; a; a = a->next)
        if (!find(to, a->name))
            set(to, a->name, a->type, a->count, a->values);
    to->final = true;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const of,
    cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most,
    int64_t *count, void *values)
{
    thing *x = of;
    if (!x || !x->final)
        return CUDNN_STATUS_NOT_INITIALIZED;
    softgpu_lock();
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
        *count = name_engines(x, most, values);
    } else if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        copy_thing(*(thing **)values, softgpu_dnn_thing(x, name));
        *count = 1;
    } else {
        *count = softgpu_dnn_get(x, name, values, most);
    }
    softgpu_unlock();
    return CUDNN_STATUS_SUCCESS;
}

/* --- handles --- */

static size_t version(void)
{
    const char *text = getenv("SOFTGPU_DNN");
    return text ? (size_t)atoll(text) : 0;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    cudaError_t refused;
    softgpu_lock();
    bool starts = version() && !softgpu_failing(SOFTGPU_FAIL_DNN, &refused);
    softgpu_unlock();
    *handle = starts ? calloc(1, sizeof **handle) : NULL;
    return *handle ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_INITIALIZED;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

size_t cudnnGetVersion(void)
{
    return version();
}

void cudnnGetLastErrorString(char *message, size_t bytes)
{
    snprintf(message, bytes, "see tests/softgpu/dnn.c");
}

/* --- calls --- */

/* Takes the operands out of a pack: numbers of the host are read now. */
static void unpack(softgpu_dnn_call *call, softgpu_thing pack)
{
    void *at[SOFTGPU_DNN_OPERANDS];
    int64_t ids[SOFTGPU_DNN_OPERANDS];
    int64_t count =
        softgpu_dnn_get(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids, SOFTGPU_DNN_OPERANDS);
    if (softgpu_dnn_get(
            pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, at, SOFTGPU_DNN_OPERANDS) != count)
        softgpu_wrong("a pack of cuDNN has other numbers of ids and pointers");
    for (int64_t i = 0; i < count; i++) {
        int gpu;
        if (softgpu_kind_of(at[i], &gpu) == SOFTGPU_DEVICE)
            call->at[ids[i]] = at[i];
        else
            memcpy(&call->number[ids[i]], at[i], sizeof(float));
    }
    (void)softgpu_dnn_get(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &call->space, 1);
}

cudnnStatus_t cudnnBackendExecute(
    cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
    softgpu_dnn_call call = {
        .graph = softgpu_dnn_thing(engine_of(plan), CUDNN_ATTR_ENGINE_OPERATION_GRAPH)};
    cudaError_t error = softgpu_enter(), refused;
    cudaStream_t s = error ? NULL : softgpu_stream(handle->stream);
    if (!error && softgpu_failing(SOFTGPU_FAIL_DNN, &refused))
        s = NULL;
    if (s) {
        unpack(&call, pack);
        call.space_bytes =
            (size_t)softgpu_dnn_whole(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
        softgpu_dnn_check(&call);
        error = softgpu_issue(s, SOFTGPU_TASK, softgpu_dnn_run, &call, sizeof call,
            softgpu_reachable(s->gpu), true);
    }
    (void)softgpu_leave(error);
    return s && !error ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}
