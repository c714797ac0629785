/* The engine that multiplies on CPU devices: Choir's own products (product/), or oneDNN where
 * it is built in and asked for. A job names its class of bits, else CHOIR_MATH does, which is
 * read once. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <choir/device.h>
#include "base/named.h"
#include "device/cpu/context.h"
#include "device/cpu/multiplier.h"
#ifdef CHOIR_HAVE_ONEDNN
#include "device/cpu/onednn/library.h"
#endif

static const char *const names[] = {
    [CHOIR__BY_ONEDNN] = "onednn", [CHOIR__BY_CHAIN] = "chain", [CHOIR__BY_AMX] = "amx"};
#ifdef CHOIR_HAVE_ONEDNN
enum { FIRST = CHOIR__BY_ONEDNN };
#else
enum { FIRST = CHOIR__BY_CHAIN };
#endif
/* The classes of this build. */
static const choir__name_table table = {
    names + FIRST, CHOIR_COUNT(names) - FIRST, sizeof *names, false};

static struct {
    pthread_once_t once;
    const char *unknown;      /* CHOIR_MATH, if no engine has that name */
    choir__multiplier wanted; /* CHOIR_MATH's, or CHOIR__MULTIPLIERS */
    int usual;                /* the class while no job runs: CHOIR_MATH's, or the chain */
    _Atomic int class;
    pthread_mutex_t lock; /* guards taken and class */
    int taken;            /* jobs that run in this class */
} choice = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void choose(void)
{
    const char *name = getenv("CHOIR_MATH");
    const bool given = name && *name;
    int at = given ? choir__find_named(&table, name) : -1;
    choice.unknown = given && at < 0 ? name : NULL;
    choice.wanted = at >= 0 ? (choir__multiplier)(FIRST + at) : CHOIR__MULTIPLIERS;
    choice.usual = at >= 0 ? FIRST + at : CHOIR__BY_CHAIN;
    choice.class = choice.usual;
}

choir__multiplier choir__cpu_multiplies(void)
{
    pthread_once(&choice.once, choose);
    return (choir__multiplier)atomic_load_explicit(&choice.class, memory_order_relaxed);
}

choir__multiplier choir__multiplier_wanted(void)
{
    pthread_once(&choice.once, choose);
    return choice.wanted;
}

const char *choir__multiplier_name(choir__multiplier class)
{
    return names[class];
}

choir__multiplier choir__multiplier_named(const char *name)
{
    int i = 0;
    while (i < CHOIR__MULTIPLIERS && strcmp(names[i], name))
        i++;
    return (choir__multiplier)i;
}

bool choir__multiplier_is_here(choir__multiplier class)
{
    return (int)class >= FIRST;
}

choir_status choir__multiplier_take(choir__multiplier class)
{
    choir_status status = CHOIR_OK;
    pthread_once(&choice.once, choose);
    pthread_mutex_lock(&choice.lock);
    if (choice.taken && choice.class != (int)class)
        status = choir__error(CHOIR_ERR_STATE,
            "expected the class of bits %s, in which another job of this process runs, got %s",
            names[choice.class], names[class]);
    else
        choice.taken++, choice.class = (int)class;
    pthread_mutex_unlock(&choice.lock);
    return status;
}

void choir__multiplier_drop(void)
{
    pthread_mutex_lock(&choice.lock);
    if (!--choice.taken)
        choice.class = choice.usual;
    pthread_mutex_unlock(&choice.lock);
}

bool choir__multiplier_is_taken(void)
{
    pthread_mutex_lock(&choice.lock);
    const bool taken = choice.taken > 0;
    pthread_mutex_unlock(&choice.lock);
    return taken;
}

const char *choir_cpu_bits(void)
{
    return names[choir__cpu_multiplies()];
}

bool choir__cpu_own_products(void)
{
    return choir__cpu_multiplies() != CHOIR__BY_ONEDNN;
}

choir_status choir__cpu_check_multiplier(void)
{
    pthread_once(&choice.once, choose);
    return choice.unknown ? choir__unknown_name(&table, "CHOIR_MATH", choice.unknown)
                          : CHOIR_OK;
}

const char *choir__cpu_multiplier(void)
{
#ifdef CHOIR_HAVE_ONEDNN
    if (!choir__cpu_own_products()) {
        static _Thread_local char text[32];
        choir__dnnl_open();
        const dnnl_version_t *v = choir__dnnl.version();
        snprintf(text, sizeof text, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
        return text;
    }
#endif
    return choir__cpu_multiplies() == CHOIR__BY_AMX ? "own products, amx" : "own products";
}
