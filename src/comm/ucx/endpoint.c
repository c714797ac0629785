/* Closing an endpoint: in order, or by force where the peer is gone, so that nothing waits for
 * it. Progress is made until the request is done, or the time is over. */
#include "comm/ucx/ucx.h"

#include <sched.h>

void choir__ucx_progress_until(choir__ucx_net *net, void *request, double until)
{
    if (!UCS_PTR_IS_PTR(request))
        return;
    while (ucp_request_check_status(request) == UCS_INPROGRESS && choir__now() < until)
        if (!ucp_worker_progress(net->worker))
            sched_yield();
    ucp_request_free(request);
}

ucs_status_ptr_t choir__ucx_close_endpoint(choir__ucx_far *far, bool by_force)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
        .flags = by_force ? UCP_EP_CLOSE_FLAG_FORCE : 0,
    };
    ucp_ep_h ep = far->ep;
    far->ep = NULL;
    return ep ? ucp_ep_close_nbx(ep, &param) : NULL;
}

void choir__ucx_drop(choir__ucx_net *net, int net_rank)
{
    choir__ucx_far *far = &net->far[net_rank];
    if (!far->ep)
        return;
    if (far->lost == UCS_OK) {
        far->lost = UCS_ERR_CANCELED;
        net->losses++;
    }
    choir__ucx_progress_until(net, choir__ucx_close_endpoint(far, true), choir__now() + 1);
}
