/* Losses outlive their micro-batch: each has a handle of the run, which every step reuses. */
#include "parallel/pipeline/pipeline.h"

choir_tensor *choir__pipeline_keep(choir__pipeline *p, int64_t micro, choir_tensor *loss)
{
    while (p->kept_count <= micro) {
        CHOIR__GROW(p->kept, p->kept_count);
        p->kept[p->kept_count++] = NULL;
    }
    choir_tensor *kept = p->kept[micro];
    if (!kept)
        return p->kept[micro] = choir_keep(p->base.run, loss);
    choir__storage_unref(kept->storage);
    kept->storage = choir__storage_ref(loss->storage);
    kept->offset = loss->offset;
    kept->shape = loss->shape;
    return kept;
}
