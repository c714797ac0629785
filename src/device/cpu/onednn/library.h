/* The functions of oneDNN and of the OpenMP library on whose threads it computes. Both are
 * opened together when a device first multiplies (base/plugin/library.h). */
#ifndef CHOIR_ONEDNN_LIBRARY_H
#define CHOIR_ONEDNN_LIBRARY_H

#include <oneapi/dnnl/dnnl.h>
#include "base/plugin/library.h"

/* OpenMP's own name. */
void omp_set_num_threads(int threads);

#define CHOIR__DNNL_CALLS(X)                                                                   \
    X(dnnl_, dilated_convolution_backward_data_desc_init)                                      \
    X(dnnl_, dilated_convolution_backward_weights_desc_init)                                   \
    X(dnnl_, dilated_convolution_forward_desc_init)                                            \
    X(dnnl_, engine_create)                                                                    \
    X(dnnl_, engine_destroy)                                                                   \
    X(dnnl_, get_effective_cpu_isa)                                                            \
    X(dnnl_, matmul_desc_init)                                                                 \
    X(dnnl_, memory_create)                                                                    \
    X(dnnl_, memory_desc_equal)                                                                \
    X(dnnl_, memory_desc_get_size)                                                             \
    X(dnnl_, memory_desc_init_by_strides)                                                      \
    X(dnnl_, memory_desc_init_by_tag)                                                          \
    X(dnnl_, memory_destroy)                                                                   \
    X(dnnl_, memory_set_data_handle_v2)                                                        \
    X(dnnl_, post_ops_append_sum)                                                              \
    X(dnnl_, post_ops_create)                                                                  \
    X(dnnl_, post_ops_destroy)                                                                 \
    X(dnnl_, primitive_attr_clone)                                                             \
    X(dnnl_, primitive_attr_create)                                                            \
    X(dnnl_, primitive_attr_destroy)                                                           \
    X(dnnl_, primitive_attr_set_post_ops)                                                      \
    X(dnnl_, primitive_attr_set_scratchpad_mode)                                               \
    X(dnnl_, primitive_create)                                                                 \
    X(dnnl_, primitive_desc_create)                                                            \
    X(dnnl_, primitive_desc_destroy)                                                           \
    X(dnnl_, primitive_desc_query)                                                             \
    X(dnnl_, primitive_desc_query_md)                                                          \
    X(dnnl_, primitive_destroy)                                                                \
    X(dnnl_, primitive_execute)                                                                \
    X(dnnl_, reorder_primitive_desc_create)                                                    \
    X(dnnl_, set_jit_profiling_flags)                                                          \
    X(dnnl_, set_primitive_cache_capacity)                                                     \
    X(dnnl_, stream_create)                                                                    \
    X(dnnl_, stream_destroy)                                                                   \
    X(dnnl_, version)                                                                          \
    X(omp_, set_num_threads)

typedef struct choir__dnnl_calls {
    CHOIR__DNNL_CALLS(CHOIR__LIBRARY_CALL)
} choir__dnnl_calls;

/* The functions, from choir__dnnl_open on. */
extern choir__dnnl_calls choir__dnnl;

/* Opens the library, once. If it is missing, the process ends, like a program that is linked
 * with it. */
void choir__dnnl_open(void);

/* Sets and returns the number of cores among which the primitives that this thread makes and
 * runs next divide their work. */
void choir__dnnl_set_team(int threads);
int choir__dnnl_team(void);

#endif
