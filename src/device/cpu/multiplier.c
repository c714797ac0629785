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

/* The first one is the default. */
static const char *const engines[] = {
#ifdef CHOIR_HAVE_ONEDNN
    "onednn",
#endif
    "own"};
static const choir__name_table table = CHOIR__NAME_TABLE(engines);

static struct {
    pthread_once_t once;
    const char *wanted; /* by CHOIR_MATH, if no engine has that name */
    bool own;
} choice = {.once = PTHREAD_ONCE_INIT};

static void choose(void)
{
    const char *name = getenv("CHOIR_MATH");
    int at = name && *name ? choir__find_named(&table, name) : 0;
    choice.wanted = at < 0 ? name : NULL;
    choice.own = !strcmp(engines[at < 0 ? 0 : at], "own");
}

bool choir__cpu_own_products(void)
{
    pthread_once(&choice.once, choose);
    return choice.own;
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
    return "own products";
}
