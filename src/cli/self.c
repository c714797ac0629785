/* The process of the command, and the files that are installed with it: see self.h. */
#include "cli/self.h"

#include <limits.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

static double started; /* on choir__now()'s clock */

/* The CPU time so far is close to the time that exec and linking took before main. */
void choir__cli_start(void)
{
    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    started = choir__now() - (double)cpu.tv_sec - 1e-9 * (double)cpu.tv_nsec;
}

double choir__cli_uptime(void)
{
    return choir__now() - started;
}

/* The text lies in bin/../share if the command is installed, and in build/share if it is not.
 */
const char *choir__cli_own_text(void)
{
    static const char *const places[] = {"../share/choir/choir.txt", "share/choir/choir.txt"};
    static char path[PATH_MAX + 32];
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
    while (length > 0 && path[length - 1] != '/')
        length--;
    for (size_t i = 0; i < CHOIR_COUNT(places) && length > 0; i++) {
        strcpy(path + length, places[i]);
        if (access(path, R_OK) == 0)
            return path;
    }
    choir__error(CHOIR_ERR_IO, "the text that comes with Choir is missing; name a text file");
    return NULL;
}
