/* Opening shared libraries: see library.h. */
#include "base/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

choir_status choir__library_open(
    const char *file, const char *const *names, size_t count, void *table)
{
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
        memcpy((char *)table + i * sizeof address, &address, sizeof address);
    }
    return CHOIR_OK;
}
