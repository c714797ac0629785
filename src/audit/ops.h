/* The results of each op of an audited step (--audit=dump), so that the first op that differs
 * can be named: `choir audit`.
 *
 * A rank writes a file of its micro-batches, FOLDER/audit/step-00000050.ops-0.safetensors. Its
 * tensors' names do not depend on the strategy:
 *
 *     MICROBATCH/forward/MODULE/OP#CALL              the op's result
 *     MICROBATCH/backward/MODULE/OP#CALL/INPUT       the gradient that it gives to an input;
 *                                                    INPUT.PART if it gives that in parts
 *     MICROBATCH/output/MODULE#CALL                  the result of a module's forward
 *     MICROBATCH/output_grad/MODULE#CALL             the gradient of that
 *
 * CALL counts from 0 within the micro-batch. The metadata "order" has these names in the order
 * in which they were computed, and the microseconds of the machine's clock:
 * [["0/forward/fc1/linear#0",81234], ...]. */
#ifndef CHOIR_AUDIT_OPS_H
#define CHOIR_AUDIT_OPS_H

#include <choir/group.h>
#include "tensor/scope.h"

#define CHOIR__OPS_FORWARD     "forward"
#define CHOIR__OPS_BACKWARD    "backward"
#define CHOIR__OPS_OUTPUT      "output"
#define CHOIR__OPS_OUTPUT_GRAD "output_grad"
#define CHOIR__OPS_ORDER       "order"

/* Returns FOLDER/audit/step-N.ops-RANK.safetensors; the caller frees it. */
char *choir__ops_path(const char *folder, int64_t step, int rank);

typedef struct choir__ops choir__ops;

/* Begins to watch the run's ops, and keeps their results in FOLDER/audit. choir__ops_end tells
 * the first failure. */
choir__ops *choir__ops_begin(choir_scope *run, const char *folder);
/* Ends the watch, and writes the file to an existing folder; path NULL: writes nothing. Errors:
 * I/O, memory, and the first error of reading a tensor. */
choir_status choir__ops_end(choir__ops *ops, const char *path);

#endif
