/* The name of the library that multiplies matrices on CPU devices. */
#include "device/cpu/context.h"

#ifdef CHOIR_HAVE_ONEDNN
#include <stdio.h>
#include "device/cpu/onednn/library.h"

const char *choir__cpu_multiplier(void)
{
    static _Thread_local char text[32];
    choir__dnnl_open();
    const dnnl_version_t *v = choir__dnnl.version();
    snprintf(text, sizeof text, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return text;
}
#else
const char *choir__cpu_multiplier(void)
{
    return "plain products";
}
#endif
