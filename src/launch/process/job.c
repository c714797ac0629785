/* The place in the job as environment variables; host names, random names and free ports. */
#include "launch/process/job.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/options.h"

void choir__set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* Roles are torchrun's way to start several kinds of workers; here all workers are of one
 * kind. */
void choir__job_place_export(const choir__job_place *p)
{
    choir__set_number("RANK", p->rank);
    choir__set_number("WORLD_SIZE", p->world);
    choir__set_number("LOCAL_RANK", p->local_rank);
    choir__set_number("LOCAL_WORLD_SIZE", p->local_world);
    choir__set_number("GROUP_RANK", p->node);
    choir__set_number("GROUP_WORLD_SIZE", p->nodes);
    choir__set_number("ROLE_RANK", p->rank);
    choir__set_number("ROLE_WORLD_SIZE", p->world);
    if (*p->master) {
        setenv("MASTER_ADDR", p->master, 1);
        choir__set_number("MASTER_PORT", p->master_port);
    }
}

void choir__job_place_master(choir__job_place *p, const char *method)
{
    int port = 0;
    if (method && !strncmp(method, "tcp://", 6) &&
        choir__host_port(method + 6, p->master, &port) == CHOIR_OK && port)
        p->master_port = port;
    else
        *p->master = '\0';
}

choir_status choir__host_port(const char *text, char host[CHOIR__HOST_TEXT], int *port)
{
    const char *end = *text == '[' ? strchr(text, ']') : NULL, *colon;
    size_t skip = end != NULL, length;
    int64_t number;
    if (*text == '[' && !end)
        return choir__error(CHOIR_ERR_ARGUMENT, "%s: the closing ] is missing", text);
    colon = end ? (end[1] == ':' ? end + 1 : NULL) : strrchr(text, ':');
    if (!end && colon && strchr(text, ':') != colon)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "%s: an IPv6 address goes into brackets, as [::1]:29400", text);
    length = end ? (size_t)(end - text) - 1 : colon ? (size_t)(colon - text) : strlen(text);
    if ((end && end[1] && !colon) || !length || length >= CHOIR__HOST_TEXT)
        return choir__error(CHOIR_ERR_ARGUMENT, "expected HOST or HOST:PORT, got '%s'", text);
    if (colon && !choir__parse_int(colon + 1, 1, 65535, &number))
        return choir__error(
            CHOIR_ERR_ARGUMENT, "%s: the port is a number from 1 to 65535", text);
    if (colon)
        *port = (int)number;
    memcpy(host, text + skip, length);
    host[length] = '\0';
    return CHOIR_OK;
}

choir_status choir__job_random(char text[CHOIR__JOB_TEXT])
{
    unsigned char bytes[(CHOIR__JOB_TEXT - 1) / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return choir__error(CHOIR_ERR_IO, "no random numbers: %s", choir__why(errno));
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return CHOIR_OK;
}

uint64_t choir__job_hash(const char *job)
{
    uint64_t h = choir__hash_text(CHOIR__HASH_SEED, job); /* followed by murmur3's last mix */
    h = (h ^ (h >> 33)) * UINT64_C(0xff51afd7ed558ccd);
    h = (h ^ (h >> 33)) * UINT64_C(0xc4ceb9fe1a85ec53);
    return h ^ (h >> 33);
}

choir_status choir__job_free_port(int *port)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    socklen_t length = sizeof any;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good = fd >= 0 && bind(fd, (struct sockaddr *)&any, sizeof any) == 0 &&
                getsockname(fd, (struct sockaddr *)&any, &length) == 0;
    int why = errno;
    if (fd >= 0)
        close(fd);
    *port = ntohs(any.sin_port);
    return good ? CHOIR_OK : choir__error(CHOIR_ERR_IO, "no free port: %s", choir__why(why));
}
