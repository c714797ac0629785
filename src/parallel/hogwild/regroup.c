/* Hogwild when ranks leave and join.
 *
 * No rank waits for another in a step, so a loss interrupts no work. Each rank that is left
 * sends its last changes to the old master; the lowest rank copies the old master to memory of
 * the new group; all ranks take the words of that copy. Changes that the lost rank has not sent
 * are lost.
 *
 * A new rank has prepared itself alone, with a master of its own. It may become the lowest rank
 * if the others die in that moment: it has received a worker's words by then, and its next
 * exchange writes them to its master. */
#include <string.h>

#include "parallel/hogwild/hogwild.h"

choir_status choir__hogwild_ranks_changed(choir__strategy *s, const choir__regrouping *now)
{
    choir__hogwild *h = CHOIR__STRATEGY_OF(s, choir__hogwild, strategy);
    h->group = now->group;
    choir__hogwild_queue_exchange(h, true);
    return choir_device_sync(h->module->run->device);
}

static choir_status move_master(choir__hogwild *h)
{
    choir__shared *shared;
    bool lowest = choir_group_rank(h->group) == 0;
    choir_status status = choir__shared_new(h->group, lowest ? h->bytes : 0, &shared);
    if (status != CHOIR_OK)
        return status;
    if (lowest)
        memcpy(choir__shared_at(shared, 0), h->master, h->bytes);
    status = choir_group_barrier(h->group, NULL); /* the words are there */
    if (status != CHOIR_OK) {
        choir__shared_free(shared);
        return status;
    }
    choir__shared_free(h->shared);
    h->shared = shared;
    h->master = choir__shared_at(shared, 0);
    return CHOIR_OK;
}

choir_status choir__hogwild_ranks_settled(choir__strategy *s)
{
    choir__hogwild *h = CHOIR__STRATEGY_OF(s, choir__hogwild, strategy);
    choir_status status = h->mapping ? CHOIR_OK : move_master(h); /* all inherit a mapping */
    if (status != CHOIR_OK)
        return status;
    choir__hogwild_queue_take(h);
    return choir_device_sync(h->module->run->device);
}

bool choir__hogwild_is_apart(const choir__strategy *s)
{
    (void)s; /* a worker never waits for another */
    return true;
}
