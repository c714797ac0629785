/* The value of --offload: "FOLDER" for the optimizer's state, or "params", "params:FOLDER" for
 * the parameters and gradients of fsdp's shards, too. */
#include <string.h>

#include "job/job.h"

bool choir__job_offload(const choir__job *j, const char **folder)
{
    static const char word[] = "params";
    size_t n = sizeof word - 1;
    bool params = j->optim.offload && !strncmp(j->optim.offload, word, n) &&
                  (j->optim.offload[n] == ':' || !j->optim.offload[n]);
    *folder = !params               ? j->optim.offload
              : j->optim.offload[n] ? j->optim.offload + n + 1
                                    : NULL;
    return params;
}
