/* Whether this process may use AMX's registers. Linux saves them for processes that ask. */
#include "device/cpu/product/amx.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool here;

static void ask(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* since Linux 5.16 */
    enum { HAS_BF16 = 1 << 22, HAS_TILES = 1 << 24 };     /* leaf 7, EDX */
    unsigned a, b, c, d;
    here = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & HAS_BF16) && (d & HAS_TILES) &&
           syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

bool choir__amx_here(void)
{
    pthread_once(&once, ask);
    return here;
}
#else
bool choir__amx_here(void)
{
    return false;
}
#endif
