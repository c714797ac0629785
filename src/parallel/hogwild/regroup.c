/* Hogwild when ranks leave and join.
 *
 * No rank waits for another in a step, so a loss interrupts no work. Each rank that is left
 * sends its last changes to the old master; the furthest rank copies the old master to memory
 * of the new group; all ranks take the words of that copy. Changes that the lost rank has not
 * sent are lost.
 *
 * If another rank dies as they do that, some ranks may have come to the new master and some
 * not. The next furthest rank is then a rank that has continued from the new master, if any.
 *
 * A new rank has prepared itself alone, with a master of its own. It may become the furthest
 * rank if the others die in that moment: it has received a worker's words by then, and its next
 * exchange writes them to its master. */
#include <string.h>

#include "parallel/hogwild/hogwild.h"

choir_status choir__hogwild_ranks_changed(
    choir__strategy *s, choir_group *group, uint64_t undone)
{
    choir__hogwild *h = CHOIR__STRATEGY_OF(s, choir__hogwild, strategy);
    (void)undone; /* a loss interrupts no step */
    if (!h->elastic && h->group && h->group != group)
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "hogwild over another group than the job's: it cannot continue when ranks leave or "
            "join");
    h->elastic = true;
    h->group = group;
    choir__hogwild_queue_exchange(h, true);
    return choir_device_sync(h->module->run->device);
}

static choir_status move_master(choir__hogwild *h, int source)
{
    choir__shared *shared;
    bool mine = choir_group_rank(h->group) == source;
    choir_status status = choir__shared_new(h->group, mine ? h->bytes : 0, &shared);
    if (status != CHOIR_OK)
        return status;
    if (mine)
        memcpy(choir__shared_at(shared, source), h->master, h->bytes);
    status = choir_group_barrier(h->group, NULL); /* the words are there */
    if (status != CHOIR_OK) {
        choir__shared_free(shared);
        return status;
    }
    choir__shared_free(h->shared);
    h->shared = shared;
    h->master = choir__shared_at(shared, source);
    return CHOIR_OK;
}

choir_status choir__hogwild_ranks_settled(choir__strategy *s, int source)
{
    choir__hogwild *h = CHOIR__STRATEGY_OF(s, choir__hogwild, strategy);
    choir_status status =
        h->mapping ? CHOIR_OK : move_master(h, source); /* all inherit a mapping */
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
