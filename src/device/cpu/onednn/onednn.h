/* The kernels that use oneDNN, and the cache of its primitives that a context keeps.
 *
 * Making a primitive takes oneDNN hundreds of microseconds, running a small one a few. So each
 * problem's primitive is made once, with the memory objects it runs on; a call only sets their
 * data pointers. A problem is a struct of integers, zeroed first because its bytes are the
 * key. */
#ifndef CHOIR_ONEDNN_H
#define CHOIR_ONEDNN_H

#include "device/cpu/context.h"
#include "device/cpu/onednn/library.h"

/* They return false, and have done nothing, if oneDNN has no fast kernel for the operands. */
bool choir__onednn_matmul(const choir__k_matmul *args);
bool choir__onednn_conv(const choir__k_conv *args);
bool choir__onednn_conv_backward_input(const choir__k_conv_backward_input *args);
bool choir__onednn_conv_backward_weight(const choir__k_conv_backward_weight *args);

/* The convolutions by matrix products; they return false if the shape does not benefit. */
bool choir__onednn_conv_product(const choir__k_conv *args);
bool choir__onednn_conv_product_input(const choir__k_conv_backward_input *args);
bool choir__onednn_conv_product_weight(const choir__k_conv_backward_weight *args);

enum { CHOIR__ONEDNN_ARGS = 5 };

/* One primitive with its memory objects, ready to run. All NULL: oneDNN has no fast kernel. */
typedef struct choir__onednn_op {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[CHOIR__ONEDNN_ARGS]; /* the last is the scratchpad, if needed */
    int arg_count;
    int threads;       /* cores that it divides its work among */
    size_t scratchpad; /* bytes */
} choir__onednn_op;

/* The contents of a problem's cache entry: the op itself, and for the operands of convolutions
 * (image, weights, image) the reorders between the plain layout and the layout that the
 * primitive prefers (NULL: it uses the plain one). */
typedef struct choir__onednn_plan {
    choir__onednn_op op, reorder[3];
    size_t bytes[3]; /* size of each reordered operand */
    size_t plain[4]; /* size of each operand as the caller has it */
} choir__onednn_plan;

typedef struct choir__onednn choir__onednn;

choir__onednn *choir__onednn_new(void);
void choir__onednn_free(choir__onednn *cache);
dnnl_engine_t choir__onednn_engine(const choir__onednn *cache);

/* Returns the context's cache. */
choir__onednn *choir__cpu_context_onednn(choir__cpu_context *context);

/* Makes a strided tensor's descriptor. strides NULL: the primitive chooses the layout. */
bool choir__onednn_describe(dnnl_memory_desc_t *md, choir_dtype dtype, int ndims,
    const int64_t *dims, const int64_t *strides);

/* Returns the plan for a key; *fresh is true if it is new and the caller must fill it in. Valid
 * until the next call that makes a fresh one. */
choir__onednn_plan *choir__onednn_lookup(
    choir__onednn *cache, const void *key, size_t bytes, bool *fresh);

/* The functions of a file that makes plans: `build` fills in an empty plan for as many cores as
 * OpenMP's threads, and `run` runs it on the operands (data, in the order of plan->plain). */
typedef struct choir__onednn_kind {
    void (*build)(choir__onednn *cache, choir__onednn_plan *plan, const void *problem);
    bool (*run)(choir__onednn *cache, choir__onednn_plan *plan, const void *problem,
        void *const data[4], char *scratch);
} choir__onednn_kind;

/* Fills in a fresh plan, on the context's cores if that has the bits of one core, else on one
 * (threads.c). */
void choir__onednn_settle(choir__onednn *cache, choir__onednn_plan *plan,
    const choir__onednn_kind *kind, const void *problem);
void choir__onednn_plan_free(choir__onednn_plan *plan);
/* Returns the bytes of scratch memory that the plan's reorders and its primitive need. */
size_t choir__onednn_scratch(const choir__onednn_plan *plan);

/* Makes a primitive's description with the attributes of every primitive here, or others. hint:
 * the forward pass's description, or NULL. Returns NULL if oneDNN has no kernel for it, or only
 * the reference that computes one element at a time. */
dnnl_primitive_desc_t choir__onednn_fast(choir__onednn *cache, const_dnnl_op_desc_t desc,
    const_dnnl_primitive_attr_t attr, const_dnnl_primitive_desc_t hint);

/* Makes the primitive and its memory objects: ids[i] names an argument of the primitive
 * described by pd, with memory descriptor mds[i]. Takes ownership of pd. Returns false if
 * oneDNN refused. */
bool choir__onednn_build(choir__onednn *cache, choir__onednn_op *op, dnnl_primitive_desc_t pd,
    int count, const int *ids, const dnnl_memory_desc_t *const *mds);

/* Runs the op on these data pointers, in the order of ids. */
bool choir__onednn_run(
    choir__onednn *cache, choir__onednn_op *op, void *const *data, void *scratchpad);

/* A product whose B is packed for use by many calls; `extra` is scratch for the caller. Valid
 * until the running kernel's next use of scratch or of oneDNN. */
typedef struct choir__onednn_packed {
    choir__onednn *cache;
    choir__onednn_op *op;
    void *b, *extra, *scratchpad;
} choir__onednn_packed;

/* choir__onednn_pack packs k->b; calls may differ from k in the pointers a, c and bias. It
 * returns false if oneDNN does not support the product. */
bool choir__onednn_pack(choir__onednn_packed *p, const choir__k_matmul *k, size_t extra);
void choir__onednn_matmul_packed(const choir__onednn_packed *p, const choir__k_matmul *k);

/* Returns the attributes of every primitive here: the caller provides scratch memory. */
const_dnnl_primitive_attr_t choir__onednn_attr(const choir__onednn *cache);

#endif
