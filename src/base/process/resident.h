/* The memory of processes, as Linux counts it. */
#ifndef CHOIR_RESIDENT_H
#define CHOIR_RESIDENT_H

#include <stdint.h>

/* Returns the number after a word that begins a line of a file, such as "Pss:"; 0: no such
 * line. */
int64_t choir__proc_number(const char *path, const char *word);

/* Returns the most resident memory that this process has had, in bytes, with its share of the
 * memory that others have mapped as well; 0: unknown. */
int64_t choir__resident_peak(void);

#endif
