/* When this process began: at main its CPU time is close to the time that exec and linking
 * took. */
#include "line/self.h"

#include <time.h>

#include "base/base.h"

static double started; /* on choir__now()'s clock */

/* The CPU time so far is close to the time that exec and linking took before main. */
void choir__cli_start(void)
{
    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    started = choir__now() - (double)cpu.tv_sec - 1e-9 * (double)cpu.tv_nsec;
}

void choir__cli_start_again(void)
{
    started = choir__now();
}

double choir__cli_uptime(void)
{
    return choir__now() - started;
}
