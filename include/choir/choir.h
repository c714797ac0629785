/* Choir: train neural networks on many devices. This header includes all public headers.
 *
 * In this order they are a tour: status and scopes, tensors and ops, backward, modules and
 * optimizers, data, groups of ranks, and the strategies that put a model on many devices. */
#ifndef CHOIR_CHOIR_H
#define CHOIR_CHOIR_H

#include <choir/status.h>
#include <choir/dtype.h>
#include <choir/device.h>
#include <choir/dry.h>
#include <choir/scope.h>
#include <choir/select.h>
#include <choir/tensor.h>
#include <choir/ops.h>
#include <choir/make.h>
#include <choir/linalg.h>
#include <choir/volumes.h>
#include <choir/ctc.h>
#include <choir/autograd.h>
#include <choir/nn.h>
#include <choir/attention.h>
#include <choir/lora.h>
#include <choir/hold.h>
#include <choir/optim.h>
#include <choir/amp.h>
#include <choir/pipeline.h>
#include <choir/pipeline_plan.h>
#include <choir/data.h>
#include <choir/parts.h>
#include <choir/augment.h>
#include <choir/beside.h>
#include <choir/chat.h>
#include <choir/checkpoint.h>
#include <choir/context_parallel.h>
#include <choir/model_info.h>
#include <choir/models.h>
#include <choir/data_open.h>
#include <choir/stream.h>
#include <choir/store.h>
#include <choir/space.h>
#include <choir/study.h>
#include <choir/tune.h>
#include <choir/group.h>
#include <choir/mesh.h>
#include <choir/pattern.h>
#include <choir/distributed.h>
#include <choir/distributed_nn.h>
#include <choir/trace.h>
#include <choir/log.h>
#include <choir/env.h>
#include <choir/training.h>
#include <choir/membership.h>
#include <choir/elastic.h>
#include <choir/audit.h>
#include <choir/evaluate.h>
#include <choir/generate.h>
#include <choir/loop.h>
#include <choir/job.h>
#include <choir/ddp.h>
#include <choir/ddp_hook.h>
#include <choir/fsdp.h>
#include <choir/tensor_parallel.h>
#include <choir/data_parallel.h>
#include <choir/diloco.h>
#include <choir/sync_batch_norm.h>
#include <choir/hogwild.h>
#include <choir/tensor_queue.h>

#endif
