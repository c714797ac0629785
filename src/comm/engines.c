/* The registry of engines. */
#include <string.h>

#include "base/named.h"
#include "comm/openers.h"
#include "comm/shm/shm.h"

static const struct {
    const char *name;
    choir__engine_opener *open;
} engines[] = {
    {"shm", choir__shm_open},
    {"ucx", choir__open_ucx},
    {"mpi", choir__open_mpi},
    {"nccl", choir__open_nccl},
};

static const choir__name_table table = CHOIR__NAME_TABLE(engines);

const choir__name_table *choir__engine_names(void)
{
    return &table;
}

choir_status choir__engine_open(
    const char *name, choir__meeting *meeting, choir__engine **engine)
{
    int other = 0;
    bool near = choir__on_one_machine(meeting, &other);
    if (!name && meeting->backend)
        name = meeting->backend;
    else if (!name)
        name = near ? "shm" : "ucx";
    else if (strcmp(name, "shm") == 0 && !near)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "backend shm reaches one machine, and rank %d is on %s, rank 0 on %s: use ucx",
            other, meeting->members[other].host, meeting->members[0].host);
    int at = choir__find_named(&table, name);
    if (at < 0)
        return choir__unknown_name(&table, "backend", name);
    return engines[at].open(meeting, engine);
}
