/* The memory of a copy: a file of its agent, or of the supervisor, which is as long as the
 * longest copy in it. Copies of some ranks alone would be of no use, so all ranks agree whether
 * they have memory; where they do not, the job continues without copies.
 *
 * The limit of a control group does not make a file fail: the kernel would kill a rank, here or
 * in a later step, and the files would stay. So ranks ask before what the group has left. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/usable.h"
#include "checkpoint/agree.h"
#include "parallel/elastic/copies_layout.h"

choir_status choir__copy_make_room(choir__copy_memory *m, int fd, size_t bytes)
{
    if (m->bytes >= bytes)
        return CHOIR_OK;
    if (fd < 0)
        return choir__error(CHOIR_ERR_MEMORY,
            "the system had no files in memory for copies of the ranks' state");
    if (m->at)
        munmap(m->at, m->bytes);
    m->at = NULL;
    m->bytes = 0;
    int why;
    do
        why = posix_fallocate(fd, 0, (off_t)bytes);
    while (why == EINTR);
    void *at = why ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return choir__error(CHOIR_ERR_MEMORY,
            "out of memory: cannot keep a copy of %zu bytes of a rank's state: %s", bytes,
            choir__why(why ? why : errno));
    m->at = at;
    m->bytes = bytes;
    return CHOIR_OK;
}

choir_status choir__copy_make_slot(choir__copy_memory memory[2], const int fds[2], size_t bytes)
{
    choir_status status = choir__copy_make_room(&memory[0], fds[0], bytes);
    return status == CHOIR_OK ? choir__copy_make_room(&memory[1], fds[1], bytes) : status;
}

/* --- control groups --- */

size_t choir__copy_lack(const int fds[2], size_t bytes)
{
    size_t lack = 0;
    for (int half = 0; half < 2; half++) {
        struct stat file;
        size_t has = 0;
        if (fds[half] >= 0 && fstat(fds[half], &file) == 0)
            has = 512 * (size_t)file.st_blocks;
        lack += bytes > has ? bytes - has : 0;
    }
    return lack;
}

/* The bytes that a rank would take, and its machine. */
typedef struct demand {
    int64_t bytes, node;
} demand;

/* Returns what the steps to come need beside the copies, as an estimate: half as much as all
 * weights and optimizer states for gradients and what hangs on them, which is a quarter of two
 * copies, and a part of the limit for activations. */
static double reserve(double copies)
{
    return copies / 4 + choir__usable_memory("") / 16;
}

choir_status choir__copies_fit(const choir__copies *c, size_t lack, choir_status *mine)
{
    const choir_env *env = c->elastic->env;
    demand own = {(int64_t)lack, c->keeper.node};
    double copies = 0, room = choir__usable_room(""); /* while no rank has taken any yet */
    demand *all = choir__calloc((size_t)env->world, sizeof *all);
    choir_status status =
        choir_group_all_gather(env->group, &own, all, sizeof own, CHOIR_U8, NULL);
    for (int r = 0; r < env->world; r++)
        copies += all[r].node == own.node ? (double)all[r].bytes : 0;
    free(all);
    if (status == CHOIR_OK && *mine == CHOIR_OK && copies > 0 &&
        copies + reserve(copies) > room)
        *mine = choir__error(CHOIR_ERR_MEMORY,
            "the control group has %.0f MB of memory left, and this machine's copies of the "
            "ranks' state take %.0f MB, beside what steps need",
            room / 1e6, copies / 1e6);
    return status;
}

/* --- agreement --- */

choir_status choir__copies_agree(const choir_elastic *e, choir_status mine, bool *all)
{
    uint8_t can = mine == CHOIR_OK;
    char *why = can ? NULL : choir__strdup(choir__message());
    choir_status status =
        choir_group_all_reduce(e->env->group, &can, 1, CHOIR_U8, CHOIR_MIN, NULL);
    *all = can;
    if (why)
        choir__set_message(why);
    free(why);
    if (status != CHOIR_OK || can)
        return status;
    status = choir__agree(e->env->group, mine);
    if (status != CHOIR_ERR_MEMORY && status != CHOIR_ERR_STATE && status != CHOIR_ERR_IO)
        return status;
    if (e->env->rank == 0)
        fprintf(stderr,
            "choir: no copies of the ranks' state are kept: %s; after a loss the job continues "
            "from its last checkpoint, as with --no-copy\n",
            choir_error_message());
    return CHOIR_OK;
}
