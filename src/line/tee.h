/* A copy of standard error in a run's folder, stderr.log. */
#ifndef CHOIR_LINE_TEE_H
#define CHOIR_LINE_TEE_H

typedef struct choir__tee choir__tee;

/* Copies standard error of this process, and of its child processes, to the end of a file from
 * now on. Returns NULL, and changes nothing, if the file or the copying process cannot be made.
 */
choir__tee *choir__tee_open(const char *path);

/* Ends the copying when all that was written is copied; standard error is of no use afterwards.
 * A signal's handler may call it. */
void choir__tee_drain(const choir__tee *tee);

/* Ends the copying; standard error is as it was, and all of it has been written. NULL is fine.
 */
void choir__tee_close(choir__tee *tee);

#endif
