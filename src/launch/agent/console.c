/* Writes to a terminal that the user may have stopped: text is kept until the descriptor takes
 * it, in whole lines as far as a pipe writes them at once. */
#include "launch/agent/output.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

void choir__console_open(choir__console *c, int fd)
{
    const char *term = getenv("TERM");
    *c = (choir__console){.fd = fd};
    c->colour = isatty(fd) && !getenv("NO_COLOR") && term && strcmp(term, "dumb");
}

void choir__console_put(choir__console *c, const char *text, size_t bytes)
{
    if (!c->lost)
        choir__text_buffer_add(&c->pending, text, bytes);
}

/* Returns how much to write: as much as a pipe accepts atomically (and without blocking, after
 * poll has reported room), in whole lines if one fits. */
static size_t portion(const choir__console *c)
{
    if (c->pending.used <= PIPE_BUF)
        return c->pending.used;
    const char *end = memrchr(c->pending.bytes, '\n', PIPE_BUF);
    return end ? (size_t)(end - c->pending.bytes) + 1 : PIPE_BUF;
}

void choir__console_write(choir__console *c)
{
    ssize_t n = write(c->fd, c->pending.bytes, portion(c));
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        c->lost = errno;
        choir__text_buffer_clear(&c->pending);
    }
    if (n > 0)
        choir__text_buffer_drop(&c->pending, (size_t)n);
}

void choir__console_flush(choir__console *c)
{
    struct pollfd ready = {.fd = c->fd, .events = POLLOUT};
    while (c->pending.used && !c->lost)
        if (poll(&ready, 1, -1) > 0)
            choir__console_write(c);
}
