/* Files of all tensors of an audited step (--audit=dump), so that elements can be compared. */
#ifndef CHOIR_AUDIT_DUMP_H
#define CHOIR_AUDIT_DUMP_H

#include "checkpoint/items.h"
#include "data/dataset.h"

#define CHOIR__AUDIT_GRAD    "grad."
#define CHOIR__AUDIT_BATCHES "batch."

/* Returns FOLDER/audit/step-N.safetensors; the caller frees it. */
char *choir__audit_dump_path(const char *folder, int64_t step);

typedef struct choir__audit_dumped {
    const char *folder;
    int64_t step;
    choir_group *group;           /* NULL: this process alone */
    const choir__seen_step *seen; /* the step's batches; NULL: there is no loader */
    bool gradients;               /* this process has the step's gradients */
    choir_status status;          /* this process's failure so far */
} choir__audit_dumped;

/* Writes the file: the items, which are freed, gradients under the names of their parameters,
 * behind "grad.", and the batch as "batch.x" and "batch.y". Collective. Errors: I/O, memory,
 * errors of collectives. */
choir_status choir__audit_dump(
    choir_scope *run, choir__items *items, const choir__audit_dumped *what);

#endif
