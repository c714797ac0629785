/* The value of --offload: "FOLDER" for the optimizer's state, or "params", "params:FOLDER" for
 * the parameters and gradients of fsdp's shards, too. */
#include <string.h>

#include "job/job.h"

bool choir__job_offload(const choir__job_optim *o, const char **folder)
{
    static const char word[] = "params";
    size_t n = sizeof word - 1;
    bool params =
        o->offload && !strncmp(o->offload, word, n) && (o->offload[n] == ':' || !o->offload[n]);
    *folder = !params ? o->offload : o->offload[n] ? o->offload + n + 1 : NULL;
    return params;
}
