/* The job's key: read from a file that belongs to this user and that others cannot read, or
 * from a descriptor, and hashed to its purpose. It is in memory that sodium guards and leaves
 * out of core dumps. */
#include "launch/store/key.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/files/file.h"

choir_status choir__store_key_new(choir__store_key **key)
{
    *key = sodium_init() < 0 ? NULL : sodium_malloc(sizeof **key);
    return *key ? CHOIR_OK
                : choir__error(
                      CHOIR_ERR_MEMORY, "no memory for the job's key: %s", choir__why(errno));
}

void choir__store_key_free(choir__store_key *key)
{
    sodium_free(key);
}

void choir__store_key_of(const void *secret, size_t bytes, choir__store_key *key)
{
    static const uint8_t purpose[] = "choir job key 1";
    crypto_generichash(
        key->bytes, sizeof key->bytes, secret, bytes, purpose, sizeof purpose - 1);
}

/* Reads a key. name: the file's or descriptor's, for messages. */
static choir_status read_key(int fd, const char *name, choir__store_key *key)
{
    choir_status status = CHOIR_OK;
    uint8_t *secret = choir__alloc(CHOIR__KEY_MAX + 1);
    size_t used = 0;
    for (;;) {
        ssize_t n = read(fd, secret + used, CHOIR__KEY_MAX + 1 - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            status = choir__error(
                CHOIR_ERR_IO, "cannot read the key %s: %s", name, choir__why(errno));
        if (n <= 0 || (used += (size_t)n) > CHOIR__KEY_MAX)
            break;
    }
    if (status == CHOIR_OK && (used < CHOIR__KEY_MIN || used > CHOIR__KEY_MAX))
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "the key %s: expected %d to %d random bytes, as 'head -c 32 /dev/urandom' "
            "gives, got %s%zu",
            name, CHOIR__KEY_MIN, CHOIR__KEY_MAX, used > CHOIR__KEY_MAX ? "more than " : "",
            used > CHOIR__KEY_MAX ? (size_t)CHOIR__KEY_MAX : used);
    if (status == CHOIR_OK)
        choir__store_key_of(secret, used, key);
    sodium_memzero(secret, CHOIR__KEY_MAX + 1);
    free(secret);
    return status;
}

choir_status choir__store_key_read_fd(int fd, choir__store_key *key)
{
    char name[40];
    snprintf(name, sizeof name, "from descriptor %d", fd);
    return read_key(fd, name, key);
}

choir_status choir__store_key_read_file(const char *path, choir__store_key *key)
{
    struct stat info;
    choir_status status;
    int fd = choir__file_try(path, O_RDONLY, CHOIR__FILE_REGULAR);
    if (fd < 0)
        return choir__error(
            errno == EISDIR || errno == ENOTSUP ? CHOIR_ERR_ARGUMENT : CHOIR_ERR_IO,
            "cannot open the key file '%s': %s", path, choir__file_why(errno));
    if (fstat(fd, &info))
        status = choir__error(CHOIR_ERR_IO, "cannot look at '%s': %s", path, choir__why(errno));
    else if (info.st_uid != geteuid())
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "the key file '%s' belongs to user id %d, not to us (%d)", path, (int)info.st_uid,
            (int)geteuid());
    else if (info.st_mode & 077)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "others may read or change the key file '%s' (mode %03o): chmod 600 it, and use a "
            "new key if they may have",
            path, (unsigned)info.st_mode & 0777);
    else {
        char *name = choir__format("file '%s'", path);
        status = read_key(fd, name, key);
        free(name);
    }
    close(fd);
    return status;
}
