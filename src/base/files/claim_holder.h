/* The holder of a claimed folder, as the file of a claim (base/files/claim.h) describes it. */
#ifndef CHOIR_BASE_CLAIM_HOLDER_H
#define CHOIR_BASE_CLAIM_HOLDER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <choir/status.h>

#define CHOIR__HOLDER_FILE ".in-use"
enum { CHOIR__HOLDER_TEXT = 1024, CHOIR__HOLDER_WORD = 129, CHOIR__HOLDER_TIME = 32 };

typedef struct choir__holder {
    bool known;                                             /* the file names a holder */
    char host[CHOIR__HOLDER_WORD], job[CHOIR__HOLDER_WORD]; /* job: empty if it has no name */
    char machine[CHOIR__HOLDER_WORD]; /* boot id of the machine, and pid namespace */
    char token[CHOIR__HOLDER_WORD];   /* unique to the claim */
    int pid;
    unsigned long long
        began;     /* start of the process in the kernel's ticks, since pids are reused */
    uint64_t file; /* number of the file, which shows that the holder's folder is no copy */
    bool elsewhere;
    int64_t since, renewed; /* seconds since 1970 */
} choir__holder;

/* Returns the holder that a process of this machine is. */
choir__holder choir__holder_of(int pid, const char *job);

/* Makes the file, or fails if it exists. All users may read it, whatever the umask, as jobs
 * of other users have to see its holder. */
int choir__holder_make(const char *path, int flags);
/* Opens the file, or makes it, as its lock needs it. Returns a file descriptor, or -1. */
int choir__holder_open(const char *path, bool make);

/* Reads the file; a file that is empty or something else has no known holder. */
choir__holder choir__holder_read(int fd);
/* Replaces the file's contents. Returns false if the disk does not take them. */
bool choir__holder_write(int fd, const choir__holder *holder);

/* Returns whether the holder's process is, or was, on the machine of `self`. */
bool choir__holder_is_here(const choir__holder *holder, const choir__holder *self);
/* Returns whether that process is alive. */
bool choir__holder_lives(const choir__holder *holder);

/* Writes a time of a holder as people read it. */
void choir__holder_time(int64_t seconds, char text[CHOIR__HOLDER_TIME]);
/* Reports that the holder has the folder, and what its user can do. Returns the error. */
choir_status choir__holder_refuse(
    const choir__holder *holder, const choir__holder *self, const char *folder, double gone_s);
/* Reports that the file may name a holder, but is denied to this user. Returns the error. */
choir_status choir__holder_refuse_hidden(const char *folder, uid_t owner);

/* Returns whether only this machine can write to the file's file system. Its locks are all
 * that counts there. */
bool choir__holder_is_local(int fd);

#endif
