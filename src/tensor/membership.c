/* Changes of the set of ranks: notifies a run's strategies between two steps. */
#include "tensor/strategy.h"

choir_status choir__strategies_ranks_changed(
    choir_scope *scope, struct choir_group *group, uint64_t undone)
{
    choir_status status = CHOIR_OK;
    for (const choir__strategy *s = scope->run->strategies; s; s = s->next)
        if (!s->ops->ranks_changed)
            return choir__error(CHOIR_ERR_UNSUPPORTED,
                "%s: it cannot go on when ranks leave or join; resume from a checkpoint",
                s->ops->name);
    choir__step_forget(scope);
    for (choir__strategy *s = scope->run->strategies; s && status == CHOIR_OK; s = s->next)
        status = s->ops->ranks_changed(s, group, undone);
    return status;
}
