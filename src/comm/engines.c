/* The registry of engines. Each entry says what its ranks need to meet (a name, a store, a
 * launcher's place), and whether it reaches one machine alone. Unless specified, the first
 * engine that fits the meeting is taken. */
#include "base/named.h"
#include "comm/openers.h"
#include "comm/shm/shm.h"

static const struct {
    const char *name;
    choir__engine_opener *open;
    choir__meet_need need;
    bool one_machine; /* reaches the ranks of one machine alone */
} engines[] = {
    {"shm", choir__shm_open, CHOIR__NEEDS_NAME, true},
    {"ucx", choir__open_ucx, CHOIR__NEEDS_STORE, false},
    {"mpi", choir__open_mpi, CHOIR__NEEDS_PLACE, false},
    {"nccl", choir__open_nccl, CHOIR__NEEDS_STORE, false},
};

static const choir__name_table table = CHOIR__NAME_TABLE(engines);

const choir__name_table *choir__engine_names(void)
{
    return &table;
}

choir__meet_need choir__engine_need(const char *name)
{
    int at = name ? choir__find_named(&table, name) : -1;
    return at < 0 ? CHOIR__NEEDS_NAME : engines[at].need; /* unknown ones are refused later */
}

/* Returns the first engine that fits the meeting. */
static int best(const choir__meeting *meeting, bool near)
{
    size_t at = 0;
    while (meeting->by_launcher ? engines[at].need != CHOIR__NEEDS_PLACE
                                : engines[at].one_machine && !near)
        at++;
    return (int)at;
}

choir_status choir__engine_open(
    const char *name, choir__meeting *meeting, choir__engine **engine)
{
    int other = 0;
    bool near = choir__on_one_machine(meeting, &other);
    int at = name ? choir__find_named(&table, name) : best(meeting, near);
    if (at < 0)
        return choir__unknown_name(&table, "backend", name);
    if (engines[at].one_machine && !near)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "backend %s reaches one machine, and rank %d is on %s, rank 0 on %s: use ucx", name,
            other, meeting->members[other].host, meeting->members[0].host);
    return engines[at].open(meeting, engine);
}
