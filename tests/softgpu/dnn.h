/* Descriptors of the imitated cuDNN (dnn.c), and the programs that their graphs are
 * (dnn_run.c). */
#ifndef SOFTGPU_DNN_H
#define SOFTGPU_DNN_H

#include <cudnn.h>

#include "gpu.h"

typedef cudnnBackendDescriptor_t softgpu_thing;

/* Writes an attribute's elements to `to` and returns their number; 0: it is not set. */
int64_t softgpu_dnn_get(
    softgpu_thing thing, cudnnBackendAttributeName_t name, void *to, int64_t most);
/* Return one element: a descriptor (NULL: not set), a whole number or an enumerator (0), a
 * float (0). */
softgpu_thing softgpu_dnn_thing(softgpu_thing thing, cudnnBackendAttributeName_t name);
int64_t softgpu_dnn_whole(softgpu_thing thing, cudnnBackendAttributeName_t name);
float softgpu_dnn_float(softgpu_thing thing, cudnnBackendAttributeName_t name);
/* Writes the descriptors that an attribute of x names; returns their number. */
int64_t softgpu_dnn_named(softgpu_thing x, softgpu_thing *to, int64_t most);
cudnnBackendDescriptorType_t softgpu_dnn_kind(softgpu_thing thing);

enum { SOFTGPU_DNN_OPERANDS = 16, SOFTGPU_DNN_OPS = 40 };

/* A plan that is run: of the operands with ids 1, 2, ... addresses in device memory, or the
 * value of a number that came from the host's. */
typedef struct softgpu_dnn_call {
    softgpu_thing graph;
    void *at[SOFTGPU_DNN_OPERANDS + 1];
    float number[SOFTGPU_DNN_OPERANDS + 1];
    void *space;
    size_t space_bytes;
} softgpu_dnn_call;

bool softgpu_dnn_has_engines(softgpu_thing graph);
/* Returns the bytes that an engine keeps between the operations of a graph. */
size_t softgpu_dnn_workspace(softgpu_thing graph);
/* Ends the process if an operand goes beyond its memory or overlaps the workspace. */
void softgpu_dnn_check(const softgpu_dnn_call *call);
void softgpu_dnn_run(const void *args); /* a softgpu_task, of a softgpu_dnn_call */

#endif
