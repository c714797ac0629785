/* Replicating: a pipeline becomes one of several (data.c), and takes replica 0's parameters,
 * which spread.c has placed. */
#include <stdlib.h>

#include "parallel/pipeline/pipeline.h"

struct broadcast {
    choir__pipeline_data *data;
    choir_status status;
};

static void broadcast_tensor(const char *name, choir_tensor *t, void *arg)
{
    struct broadcast *b = arg;
    (void)name;
    if (t->param && choir__data_sharded(b->data)) /* equal seeds draw equal values */
        return;
    if (b->status == CHOIR_OK && !choir__device_of(t)->away)
        b->status = choir__data_share(b->data, choir__data(t), t->storage->bytes);
}

/* Takes replica 0's parameters. Each stage has a book for its share of them; with a single
 * stage they are all on the run's device. */
static choir_status take_params(choir__pipeline *p)
{
    choir_scope *run = p->base.run;
    int count;
    choir__param **params = choir__module_named_params(p->module, &count);
    for (int i = 0; i < count; i++)
        if (params[i]->book)
            choir__book_free(params[i]->book);
    struct broadcast b = {p->data, CHOIR_OK};
    if (p->stages > 1)
        b.status = choir__pipeline_spread(p);
    else
        b.status =
            choir__data_adopt(p->data, choir__book_new(run, run->device, params, count), -1);
    free(params);
    choir__module_ready(p->module); /* draws on the stages' devices, which may take a while */
    for (int i = 0; i < p->device_count && b.status == CHOIR_OK; i++)
        b.status = choir_device_sync(p->devices[i]);
    choir_module_visit(p->module, true, broadcast_tensor, &b);
    return b.status;
}

choir_status choir__pipeline_replicate(choir__pipeline *p, const choir__replication *how)
{
    choir_status status = choir__data_open(p, how);
    if (status != CHOIR_OK)
        return status;
    status = take_params(p);
    if (status != CHOIR_OK) /* the ranks of other stages wait in collectives, too */
        choir__data_abort(p->data, status, choir__message());
    return status;
}
