/* Opens a shared library and fills in the caller's table of functions. A table that is filled
 * in already is not written again, since other threads may be using it; one lock serves all
 * libraries. */
#include "base/plugin/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/floats.h"

/* A table that is filled in already is not written again: other threads may be using it. */
static choir_status fill_in(
    const char *file, const char *const *names, size_t count, void *table)
{
    CHOIR__DEFAULT_FLOATS;
    void *library = dlopen(file, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        const char *why = dlerror();
        return choir__error(CHOIR_ERR_UNSUPPORTED, "a library can't be opened: %s%s", why,
            strstr(why, strerror(ENOENT)) ? ": install it" : "");
    }
    for (size_t i = 0; i < count; i++) {
        void *address = dlsym(library, names[i]);
        if (!address)
            return choir__error(CHOIR_ERR_UNSUPPORTED,
                "%s has no function %s: expected the version that Choir was built with", file,
                names[i]);
        char *place = (char *)table + i * sizeof address;
        if (memcmp(place, &address, sizeof address) != 0)
            memcpy(place, &address, sizeof address);
    }
    return CHOIR_OK;
}

choir_status choir__library_open(
    const char *file, const char *const *names, size_t count, void *table)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    choir_status status = fill_in(file, names, count, table);
    pthread_mutex_unlock(&lock);
    return status;
}
