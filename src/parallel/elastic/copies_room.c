/* The memory of a copy: a file of its agent, which is as long as the longest copy in it. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "base/base.h"
#include "parallel/elastic/copies_layout.h"

choir_status choir__copy_make_room(choir__copy_memory *m, int fd, size_t bytes)
{
    if (m->bytes >= bytes)
        return CHOIR_OK;
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
            "no %zu bytes of memory for a copy of a rank's state: %s; --no-copy goes on from "
            "checkpoints alone",
            bytes, choir__why(why ? why : errno));
    m->at = at;
    m->bytes = bytes;
    return CHOIR_OK;
}
