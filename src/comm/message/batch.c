/* Messages between two ranks, run concurrently: all are in flight before any is waited for, so
 * two ranks may send to each other. */
#include "comm/message/message.h"

#include <stdlib.h>
#include <string.h>

/* Returns the stamp on which sender and receiver agree: the stamp of the sender's call. */
static choir__stamp stamp_of(const choir__engine *engine, const choir__call *call)
{
    choir__stamp stamp = call->stamp;
    if (stamp.kind == CHOIR__RECEIVE) {
        stamp.kind = CHOIR__SEND;
        stamp.peer = engine->rank;
    }
    stamp.op = 0;
    stamp.algorithm = CHOIR__AUTO;
    stamp.seq = 0;
    return stamp;
}

static choir_status post(choir__engine *engine, const choir__call *call,
    const choir__stamp *stamp, choir__request *request)
{
    size_t bytes = (size_t)call->stamp.count * choir_dtype_size((choir_dtype)call->stamp.dtype);
    int peer = call->stamp.peer;
    memset(request, 0, sizeof *request);
    if (call->stamp.kind == CHOIR__SEND)
        return engine->ops->send(engine, peer, call->in, bytes, stamp, request);
    return engine->ops->receive(engine, peer, call->out, bytes, stamp, request);
}

choir_status choir__message_batch(choir__engine *engine, const choir__call *calls, int count)
{
    choir__executor *x = choir__executor_of(engine);
    choir__request *requests = choir__executor_requests(x, count);
    choir__stamp *stamps = choir__alloc((size_t)count * sizeof *stamps);
    choir_status status = engine->failed;
    int posted = 0;
    for (int sends = 0; sends < 2; sends++)
        for (int i = 0; i < count && status == CHOIR_OK; i++) {
            if ((calls[i].stamp.kind == CHOIR__SEND) != sends)
                continue;
            stamps[posted] = stamp_of(engine, &calls[i]);
            status = post(engine, &calls[i], &stamps[posted], &requests[posted]);
            posted++;
        }
    if (status == CHOIR_OK)
        status = engine->ops->wait(engine, requests, posted);
    free(stamps);
    return status;
}
