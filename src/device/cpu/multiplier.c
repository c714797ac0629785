/* The engine that multiplies on CPU devices: oneDNN where it is built in, or Choir's own
 * products (product/). CHOIR_MATH names one of them; it is read once. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
/* The first one is the default. */
static const choir__name_table table = {
    names + FIRST, CHOIR_COUNT(names) - FIRST, sizeof *names, false};

static struct {
    pthread_once_t once;
    const char *wanted; /* CHOIR_MATH, if no engine has that name */
    choir__multiplier engine;
} choice = {.once = PTHREAD_ONCE_INIT};

static void choose(void)
{
    const char *name = getenv("CHOIR_MATH");
    int at = name && *name ? choir__find_named(&table, name) : 0;
    choice.wanted = at < 0 ? name : NULL;
    choice.engine = (choir__multiplier)(FIRST + choir__max(at, 0));
}

choir__multiplier choir__cpu_multiplies(void)
{
    pthread_once(&choice.once, choose);
    return choice.engine;
}

bool choir__cpu_own_products(void)
{
    return choir__cpu_multiplies() != CHOIR__BY_ONEDNN;
}

choir_status choir__cpu_check_multiplier(void)
{
    pthread_once(&choice.once, choose);
    return choice.wanted ? choir__unknown_name(&table, "CHOIR_MATH", choice.wanted) : CHOIR_OK;
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
