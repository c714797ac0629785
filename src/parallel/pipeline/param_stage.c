/* Placement: after the cuts, every parameter and buffer moves to the stage that uses it.
 *
 * A parameter that several stages use is stored where its gradient is dense (a table's rows are
 * small, a table is not), and has a replica in each other stage: a copy that is updated before
 * its first use in a step, with its own book whose sums count as further uses
 * (autograd/book.h). Each book belongs to one stage, since a leaf is open only while its
 * backward runs. */
#include <stdlib.h>
#include <string.h>

#include "parallel/pipeline/pipeline.h"

static int stage_of(const choir__pipeline *p, int op)
{
    int stage = 0;
    while (op >= p->first[stage + 1])
        stage++;
    return stage;
}

static int home_of(const choir__pipeline *p, const choir_tensor *t)
{
    int use = choir__pipeline_home_use(p, t);
    return use < 0 ? 0 : stage_of(p, p->uses[use].op);
}

/* A module's buffers are not operands of its ops, since kernels update them. They move to the
 * stage of the module's first op. */
static int home_of_buffer(const choir__pipeline *p, const char *name, const choir_tensor *t)
{
    const char *dot = strrchr(name, '.');
    size_t length = dot ? (size_t)(dot - name) : 0;
    for (int u = 0; u < p->use_count; u++)
        if (p->uses[u].tensor == t)
            return stage_of(p, p->uses[u].op);
    for (int op = 0; op < p->ops; op++)
        if (strlen(p->paths[op]) == length && !strncmp(p->paths[op], name, length))
            return stage_of(p, op);
    return 0;
}

choir__param *choir__pipeline_replica(const choir__param *p, int stage)
{
    for (choir__param *q = p->replicas; q; q = q->sibling)
        if (q->stage == stage)
            return q;
    return NULL;
}

static void add_replicas(choir__pipeline *p, choir__param *param)
{
    for (int u = 0; u < p->use_count; u++) {
        int stage = stage_of(p, p->uses[u].op);
        if (p->uses[u].tensor != param->tensor || stage == param->stage ||
            choir__pipeline_replica(param, stage))
            continue;
        choir__param *q = choir__param_replica(param, choir__stage_device(p, stage));
        q->stage = stage;
        q->sibling = param->replicas;
        param->replicas = q;
    }
}

static choir_status adopt(const choir__pipeline *p, choir__book *book, int stage)
{
    return p->data ? choir__data_adopt(p->data, book, stage) : CHOIR_OK;
}

static choir_status make_books(choir__pipeline *p, choir__param **params, int count)
{
    choir_scope *run = p->base.run;
    choir_status status = CHOIR_OK;
    choir__param **of = choir__calloc((size_t)count + 1, sizeof *of);
    for (int s = 0; s < p->stages && status == CHOIR_OK; s++) {
        choir_device *device = choir__stage_device(p, s);
        int n = 0;
        for (int i = 0; i < count; i++)
            if (params[i]->stage == s)
                of[n++] = params[i];
        if (n)
            status = adopt(p, choir__book_new(run, device, of, n), s);
        n = 0;
        for (int i = 0; i < count; i++)
            if (choir__pipeline_replica(params[i], s))
                of[n++] = choir__pipeline_replica(params[i], s);
        if (n && status == CHOIR_OK) {
            choir__book *book = choir__book_new(run, device, of, n);
            book->of_replicas = true;
            status = adopt(p, book, s);
        }
    }
    free(of);
    return status == CHOIR_OK ? choir__scope_status(run) : status;
}

choir_status choir__pipeline_make_books(choir__pipeline *p)
{
    int count;
    choir__param **params = choir__module_named_params(p->module, &count);
    choir_status status = make_books(p, params, count);
    free(params);
    return status;
}

struct mover {
    choir__pipeline *pipeline;
    choir_status status;
};

static void move_tensor(const char *name, choir_tensor *t, void *arg)
{
    struct mover *m = arg;
    int stage = t->param ? home_of(m->pipeline, t) : home_of_buffer(m->pipeline, name, t);
    choir_device *device = choir__stage_device(m->pipeline, stage);
    if (m->status != CHOIR_OK)
        return;
    if (t->param) {
        if (t->param->book) /* a book of the placement before, which may span several stages */
            choir__book_free(t->param->book);
        t->param->stage = stage;
        m->status = choir__param_move(t->param, device);
        if (m->status == CHOIR_OK) /* no device holds the old stage's state and the new one's */
            m->status = choir__param_move_companions(t->param, device);
    } else {
        m->status = choir__tensor_move(t, device, true);
    }
}

static void drop_replicas(choir__param *p)
{
    for (choir__param *q = p->replicas; q; q = q->sibling) {
        if (q->book)
            choir__book_free(q->book);
        choir__tensor_release(q->tensor);
    }
    p->replicas = NULL;
}

struct homing {
    choir_device *device;
    int stage;
    choir_status status;
};

static void bring_home(const char *name, choir_tensor *t, void *arg)
{
    struct homing *h = arg;
    (void)name;
    if (h->status != CHOIR_OK)
        return;
    if (t->param)
        t->param->stage = h->stage;
    h->status = t->param ? choir__param_move(t->param, h->device)
                         : choir__tensor_move(t, h->device, true);
}

choir_status choir__pipeline_unplace(choir__pipeline *p, int stage)
{
    int count;
    choir_status status = CHOIR_OK;
    choir__param **params = choir__module_params(p->module, &count);
    if (p->data)
        status = choir__data_leave_books(p->data);
    for (int i = 0; i < count && status == CHOIR_OK; i++) {
        choir__param *replicas = params[i]->replicas; /* replicas do not prevent a move */
        params[i]->replicas = NULL;
        status = choir__param_can_move(params[i]);
        params[i]->replicas = replicas;
    }
    for (int i = 0; i < count && status == CHOIR_OK; i++) {
        drop_replicas(params[i]);
        if (params[i]->book) /* the book of a stage */
            choir__book_free(params[i]->book);
    }
    free(params);
    struct homing h = {
        .device = stage < 0 ? p->base.run->device : choir__stage_device(p, stage),
        .stage = stage < 0 ? 0 : stage,
        .status = status,
    };
    choir_module_visit(p->module, true, bring_home, &h);
    p->placed = h.status == CHOIR_OK ? false : p->placed;
    p->spread = h.status == CHOIR_OK ? false : p->spread;
    p->gathered = stage;
    choir__step_forget(p->base.run);
    return h.status;
}

/* Cuts the model; ranks with parts of the same stages cut alike, and plan alike. */
static choir_status cut(choir__pipeline *p, int64_t micros)
{
    const choir_scope *run = p->base.run;
    const size_t stages = (size_t)p->stages;
    choir_status status = choir__pipeline_cut(p, micros);
    if (status == CHOIR_OK)
        status = choir__strategies_take_first(run, p->first, (stages + 1) * sizeof *p->first);
    if (status == CHOIR_OK)
        status =
            choir__strategies_take_first(run, p->stage_costs, stages * sizeof *p->stage_costs);
    return status;
}

choir_status choir__pipeline_place(choir__pipeline *p, int64_t micros)
{
    int count;
    struct mover m = {p, CHOIR_OK};
    choir_status status = cut(p, micros);
    if (status != CHOIR_OK)
        return status;
    if (p->data)
        status = choir__data_leave_books(p->data);
    choir__param **params = choir__module_params(p->module, &count);
    for (int i = 0; i < count && status == CHOIR_OK; i++)
        status = choir__param_can_move(params[i]);
    m.status = status;
    choir_module_visit(p->module, true, move_tensor, &m);
    for (int i = 0; i < count && m.status == CHOIR_OK; i++)
        add_replicas(p, params[i]);
    status = m.status == CHOIR_OK ? make_books(p, params, count) : m.status;
    free(params);
    p->placed = p->fresh = status == CHOIR_OK;
    p->spread = false;
    p->gathered = -1;
    if (p->remote) /* most of its memory belongs to other ranks' stages now */
        choir__pool_trim(p->base.run->device);
    return status;
}
