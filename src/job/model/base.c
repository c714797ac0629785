/* Turns --base into types of held weights, for jobs that train, for programs that only run
 * the model, and for saved models. Without --base, weights keep the blocks of the file that
 * they came from, and weights that products alone read take the 16-bit type of mixed
 * precision. */
#include "job/model/base.h"

#include <string.h>

#include "checkpoint/weights/blocks.h"
#include "job/model/amp.h"
#include "nn/hold.h"

#define WHOLE "f32"

static const char *const names[CHOIR_HOLD_COUNT] = {
#define X(name, text) [CHOIR_HOLD_##name] = text,
    CHOIR_HOLD_LIST(X)
#undef X
};

const char *choir__base_names(size_t i)
{
    return i == 0 ? WHOLE : i <= CHOIR_HOLD_COUNT ? names[i - 1] : NULL;
}

static choir_hold named(const char *base)
{
    int i = 0;
    while (i < CHOIR_HOLD_COUNT && strcmp(names[i], base) != 0)
        i++;
    return (choir_hold)i;
}

/* Holds weights as their file has them, and what products alone read in the type of mixed
 * precision. */
static choir_status hold_unnamed(const char *amp, const char *stored, choir_module *net)
{
    const choir__amp_level *level = choir__amp_find(amp);
    choir_status status =
        stored ? choir__hold_as_stored(net, stored, !level->halved) : CHOIR_OK;
    if (status != CHOIR_OK || level->dtype == CHOIR_F32 || level->halved)
        return status;
    return choir__module_hold_rest(
        net, level->dtype == CHOIR_BF16 ? CHOIR_HOLD_BF16 : CHOIR_HOLD_F16, false);
}

choir_status choir__base_hold(
    const char *base, const char *amp, const char *stored, choir_module *net)
{
    if (base && !strcmp(base, WHOLE))
        return CHOIR_OK;
    if (!base)
        return hold_unnamed(amp, stored, net);
    choir_status status = choir_module_hold(net, named(base), true);
    if (status == CHOIR_OK && !choir_module_held_bytes(net))
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "--base %s is for frozen weights of linear layers, and the model has none: --lora "
            "trains adapters beside them, --freeze names parameters",
            base);
    return status;
}

choir_status choir__base_of_running(const char *base, const char *stored, choir_module *net)
{
    if (base ? !strcmp(base, WHOLE) : !stored)
        return CHOIR_OK;
    choir_module_freeze(net, true);
    return base ? choir_module_hold(net, named(base), true)
                : choir__hold_as_stored(net, stored, false);
}

choir_status choir__base_of_saved(const char *base, const char *stored, choir_module *net)
{
    if (!base)
        return choir__hold_as_stored(net, stored, false);
    bool blocks = strcmp(base, WHOLE) != 0 && named(base) > CHOIR_HOLD_BF16;
    return blocks ? choir_module_hold(net, named(base), true) : CHOIR_OK;
}
