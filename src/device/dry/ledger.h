/* A ledger: who holds the bytes of a dry device, now and at its peak.
 *
 * A block of memory is counted in a line, by its use and its owner's name; the pool tells of
 * each change (pool.c). The lines at the peak are kept when the peak is left, so a rise in many
 * small steps is copied once. */
#ifndef CHOIR_DEVICE_DRY_LEDGER_H
#define CHOIR_DEVICE_DRY_LEDGER_H

#include "device/device.h"

/* Zeros: work space that is no one's. */
typedef struct choir__dry_ledger_line {
    int name; /* index in the ledger; 0: none */
    choir__memory_use use;
} choir__dry_ledger_line;

/* The bytes of one name by kind; the kind other is divided by use. */
typedef struct choir__dry_ledger_row {
    char *name; /* NULL: no one's */
    size_t of_kind[CHOIR__MEMORY_KINDS], of_use[CHOIR__MEMORY_USES];
} choir__dry_ledger_row;

typedef struct choir__dry_ledger choir__dry_ledger;

choir__dry_ledger *choir__dry_ledger_new(void);
void choir__dry_ledger_free(choir__dry_ledger *ledger);

/* Returns the line for a use and a name, which may be NULL. */
choir__dry_ledger_line choir__dry_ledger_line_of(
    choir__dry_ledger *ledger, choir__memory_use use, const char *name);
/* Adds bytes to a line; negative ones are subtracted. */
void choir__dry_ledger_add(choir__dry_ledger *ledger, choir__memory_kind kind,
    choir__dry_ledger_line line, ptrdiff_t bytes);
/* Returns the bytes of each use now. */
const size_t *choir__dry_ledger_uses(const choir__dry_ledger *ledger);
/* Keeps the present lines: they are the peak's. */
void choir__dry_ledger_keep(choir__dry_ledger *ledger);
/* Returns the rows of the peak, and their number. */
const choir__dry_ledger_row *choir__dry_ledger_peak(
    const choir__dry_ledger *ledger, int *count);

#endif
