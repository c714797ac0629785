/* Files of all tensors of an audited step (--audit=dump), by which elements can be compared. */
#ifndef CHOIR_AUDIT_DUMP_H
#define CHOIR_AUDIT_DUMP_H

#include "checkpoint/items.h"

#define CHOIR__AUDIT_GRAD "grad."

/* Returns FOLDER/audit/step-N.safetensors; the caller frees it. */
char *choir__audit_dump_path(const char *folder, int64_t step);

/* Writes the file: the items, which are freed, and gradients under the names of their
 * parameters, behind "grad."; ran: this process has them. Collective. Errors: I/O, memory,
 * errors of collectives. */
choir_status choir__audit_dump(choir_scope *run, const char *folder, int64_t step,
    choir__items *items, choir_group *group, bool ran);

#endif
