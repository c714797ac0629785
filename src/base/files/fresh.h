/* A new file beside the file that it will replace. */
#ifndef CHOIR_FRESH_H
#define CHOIR_FRESH_H

/* Creates PATH.tmp.PID for writing; *temporary is its name, which the caller frees, also after
 * a failure. A file or link that has this name is removed first and never written through:
 * another user may have put it there. Returns a descriptor, or -1 with errno. */
int choir__fresh_open(const char *path, char **temporary);

#endif
