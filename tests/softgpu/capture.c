/* Captures and graphs.
 *
 * While a stream is captured its operations become nodes of a graph. Each captured stream keeps
 * the nodes on which its next node depends: its last node, and the nodes before each captured
 * event that it waited for. A stream that waits for a captured event joins the capture. At the
 * end, the first stream must depend on all streams that joined.
 *
 * A launched graph runs its nodes in an order that the edges allow, and not always the same
 * one: each time the earliest possible node first, next time the latest, so that a missing edge
 * shows. */
#include "gpu.h"

enum { GRAPH = 0x64a9b001, EXEC = 0xe8ecb001 };

typedef struct node {
    softgpu_op *op;
    int *after;
    int after_count;
} node;

struct CUgraph_st {
    uint32_t magic;
    node *nodes;
    int count;
    struct CUgraph_st *next; /* all there are, those of EXECs among them */
};

struct CUgraphExec_st {
    uint32_t magic;
    struct CUgraph_st graph;
    int launches, on_their_way;
    bool gone;
};

struct softgpu_capture {
    uint64_t id;
    cudaStream_t first;
    enum cudaStreamCaptureMode mode;
    bool spoiled;
    cudaGraph_t graph;
    softgpu_capture *next; /* list of the open captures */
};

static struct CUgraph_st *graphs;
static softgpu_capture *open_captures;
static uint64_t captures;
static __thread int own_captures; /* this thread's that are not relaxed */
static int global_captures;       /* anybody's of the strictest mode */
static __thread enum cudaStreamCaptureMode
    thread_mode; /* cudaThreadExchangeStreamCaptureMode */

/* --- what a capture forbids --- */

bool softgpu_capture_forbids(void)
{
    if (thread_mode == cudaStreamCaptureModeRelaxed)
        return false;
    return own_captures > 0 ||
           (thread_mode == cudaStreamCaptureModeGlobal && global_captures > 0);
}

void softgpu_capture_spoil(softgpu_capture *c)
{
    c->spoiled = true;
}

void softgpu_capture_spoil_all(void)
{
    for (softgpu_capture *c = open_captures; c; c = c->next)
        if (c->mode != cudaStreamCaptureModeRelaxed)
            c->spoiled = true;
}

bool softgpu_capture_of_blocking(int gpu)
{
    for (cudaStream_t s = softgpu_streams(); s; s = s->next)
        if (s->gpu == gpu && s->blocking && s->capture)
            return true;
    return false;
}

bool softgpu_capture_alive(const struct CUevent_st *e)
{
    softgpu_capture *c = open_captures;
    while (c && !(c == e->capture && c->id == e->capture_id))
        c = c->next;
    return c != NULL;
}

/* --- adding --- */

static void set_after(int **list, int *count, const int *from, int n)
{
    int *copy = n ? malloc((size_t)n * sizeof *copy) : NULL;
    if (n)
        memcpy(copy, from, (size_t)n * sizeof *copy);
    free(*list);
    *list = copy;
    *count = n;
}

static void join_after(int **list, int *count, const int *from, int n)
{
    for (int i = 0; i < n; i++) {
        int j = 0;
        while (j < *count && (*list)[j] != from[i])
            j++;
        if (j < *count)
            continue;
        *list = realloc(*list, (size_t)(*count + 1) * sizeof **list);
        (*list)[(*count)++] = from[i];
    }
}

cudaError_t softgpu_capture_add(cudaStream_t s, softgpu_op *op)
{
    cudaGraph_t g = s->capture->graph;
    if (s->capture->spoiled)
        return free(op), cudaErrorStreamCaptureInvalidated;
    g->nodes = realloc(g->nodes, (size_t)(g->count + 1) * sizeof *g->nodes);
    g->nodes[g->count] = (node){.op = op, .after = s->after, .after_count = s->after_count};
    s->after = NULL;
    set_after(&s->after, &s->after_count, &g->count, 1);
    g->count++;
    return cudaSuccess;
}

cudaError_t softgpu_capture_record(cudaStream_t s, cudaEvent_t e)
{
    if (s->capture->spoiled)
        return cudaErrorStreamCaptureInvalidated;
    e->capture = s->capture;
    e->capture_id = s->capture->id;
    set_after(&e->after, &e->after_count, s->after, s->after_count);
    return cudaSuccess;
}

cudaError_t softgpu_capture_wait(cudaStream_t s, cudaEvent_t e)
{
    bool captured = softgpu_capture_alive(e);
    if (s->capture && s->capture->spoiled)
        return cudaErrorStreamCaptureInvalidated;
    if (!captured && !e->recorded)
        return cudaSuccess;
    if (!captured) { /* an operation outside the capture cannot be waited for inside it */
        s->capture->spoiled = true;
        return cudaErrorStreamCaptureIsolation;
    }
    if (s->capture && s->capture != e->capture) {
        s->capture->spoiled = e->capture->spoiled = true;
        return cudaErrorStreamCaptureMerge;
    }
    if (s == softgpu_legacy(s->gpu))
        return cudaErrorStreamCaptureImplicit;
    s->capture = e->capture;
    join_after(&s->after, &s->after_count, e->after, e->after_count);
    return cudaSuccess;
}

/* --- graphs --- */

static void graph_open(struct CUgraph_st *g)
{
    g->magic = GRAPH;
    g->next = graphs;
    graphs = g;
}

static cudaGraph_t graph_new(void)
{
    cudaGraph_t g = calloc(1, sizeof *g);
    graph_open(g);
    return g;
}

bool softgpu_captured(
    softgpu_task *fn, bool (*is)(const void *args, const void *of), const void *of)
{
    for (struct CUgraph_st *g = graphs; g; g = g->next)
        for (int i = 0; i < g->count; i++)
            if (g->nodes[i].op->fn == fn && is(g->nodes[i].op->args, of))
                return true;
    return false;
}

static void graph_clear(struct CUgraph_st *g)
{
    struct CUgraph_st **link = &graphs;
    while (*link != g)
        link = &(*link)->next;
    *link = g->next;
    for (int i = 0; i < g->count; i++) {
        free(g->nodes[i].op);
        free(g->nodes[i].after);
    }
    free(g->nodes);
    g->nodes = NULL;
    g->count = 0;
    g->magic = 0;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    cudaError_t error = softgpu_enter();
    if (!g || g->magic != GRAPH)
        return softgpu_leave(cudaErrorInvalidValue);
    graph_clear(g);
    free(g);
    return softgpu_leave(error);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *count)
{
    cudaError_t error = softgpu_enter();
    if (nodes)
        error = cudaErrorNotSupported;
    *count = (size_t)g->count;
    return softgpu_leave(error);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long flags)
{
    cudaError_t error = softgpu_enter();
    (void)flags;
    *out = NULL;
    if (!error && (!g || g->magic != GRAPH))
        error = cudaErrorInvalidValue;
    if (!error && !softgpu_failing(SOFTGPU_FAIL_GRAPH, &error)) {
        cudaGraphExec_t e = calloc(1, sizeof *e);
        e->magic = EXEC;
        graph_open(&e->graph);
        e->graph.count = g->count;
        e->graph.nodes = calloc((size_t)g->count + 1, sizeof *e->graph.nodes);
        for (int i = 0; i < g->count; i++) {
            const softgpu_op *op = g->nodes[i].op;
            node *n = &e->graph.nodes[i];
            n->op =
                softgpu_op_new(op->kind, op->fn, op->args, op->bytes, op->touches, op->kernel);
            set_after(&n->after, &n->after_count, g->nodes[i].after, g->nodes[i].after_count);
        }
        *out = e;
    }
    return softgpu_leave(error);
}

static void exec_let_go(cudaGraphExec_t e)
{
    if (!e->gone || e->on_their_way)
        return;
    graph_clear(&e->graph);
    free(e);
}

static bool ready(const struct CUgraph_st *g, const bool *done, int i)
{
    for (int j = 0; j < g->nodes[i].after_count; j++)
        if (!done[g->nodes[i].after[j]])
            return false;
    return !done[i];
}

static void run_graph(const void *args)
{
    cudaGraphExec_t e;
    memcpy(&e, args, sizeof e);
    const struct CUgraph_st *g = &e->graph;
    bool *done = calloc((size_t)g->count + 1, sizeof *done);
    bool late = e->launches++ % 2 == 1;
    for (int left = g->count; left > 0; left--) {
        int i = late ? g->count - 1 : 0;
        while (!ready(g, done, i))
            i += late ? -1 : 1;
        softgpu_run_op(g->nodes[i].op);
        done[i] = true;
    }
    free(done);
    e->on_their_way--;
    exec_let_go(e);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t handle)
{
    cudaError_t error = softgpu_enter();
    cudaStream_t s = error ? NULL : softgpu_stream(handle);
    if (!error && (!e || e->magic != EXEC || e->gone || !s))
        error = cudaErrorInvalidValue;
    if (!error && s->capture) /* a graph in a graph: not here */
        error = cudaErrorNotSupported;
    if (!error) {
        e->on_their_way++;
        error = softgpu_issue(s, SOFTGPU_TASK, run_graph, &e, sizeof e, 0, false);
    }
    return softgpu_leave(error);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t e, cudaStream_t handle)
{
    cudaError_t error = softgpu_enter();
    if (!error && (!e || e->magic != EXEC || !softgpu_stream(handle)))
        error = cudaErrorInvalidValue;
    return softgpu_leave(error);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e)
{
    cudaError_t error = softgpu_enter();
    if (!e || e->magic != EXEC || e->gone)
        return softgpu_leave(cudaErrorInvalidValue);
    e->gone = true;
    exec_let_go(e);
    return softgpu_leave(error);
}

/* --- begin and end --- */

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    enum cudaStreamCaptureMode was = thread_mode;
    thread_mode = *mode;
    *mode = was;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
    cudaError_t error = softgpu_enter();
    cudaStream_t s = error ? NULL : softgpu_stream(handle);
    if (!error && !s)
        error = cudaErrorInvalidResourceHandle;
    else if (!error && s == softgpu_legacy(s->gpu))
        error = cudaErrorStreamCaptureUnsupported;
    else if (!error && s->capture)
        error = cudaErrorIllegalState;
    if (!error && !softgpu_failing(SOFTGPU_FAIL_CAPTURE, &error)) {
        softgpu_capture *c = calloc(1, sizeof *c);
        *c = (softgpu_capture){.id = ++captures,
            .first = s,
            .mode = mode,
            .graph = graph_new(),
            .next = open_captures};
        open_captures = c;
        s->capture = c;
        own_captures += mode != cudaStreamCaptureModeRelaxed;
        global_captures += mode == cudaStreamCaptureModeGlobal;
    }
    return softgpu_leave(error);
}

/* Marks all nodes on which the nodes `after` depend, and these. */
static void reach(const struct CUgraph_st *g, bool *reached, const int *after, int count)
{
    for (int i = 0; i < count; i++) {
        if (reached[after[i]])
            continue;
        reached[after[i]] = true;
        reach(g, reached, g->nodes[after[i]].after, g->nodes[after[i]].after_count);
    }
}

static bool all_joined(const softgpu_capture *c)
{
    bool *reached = calloc((size_t)c->graph->count + 1, sizeof *reached), all = true;
    reach(c->graph, reached, c->first->after, c->first->after_count);
    for (cudaStream_t s = softgpu_streams(); s; s = s->next)
        for (int i = 0; s->capture == c && i < s->after_count; i++)
            all &= reached[s->after[i]];
    free(reached);
    return all;
}

static void close_capture(softgpu_capture *c)
{
    softgpu_capture **link = &open_captures;
    while (*link != c)
        link = &(*link)->next;
    *link = c->next;
    own_captures -= c->mode != cudaStreamCaptureModeRelaxed;
    global_captures -= c->mode == cudaStreamCaptureModeGlobal;
    for (cudaStream_t s = softgpu_streams(); s; s = s->next) {
        if (s->capture != c)
            continue;
        s->capture = NULL;
        set_after(&s->after, &s->after_count, NULL, 0);
    }
    free(c);
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph)
{
    cudaError_t error = softgpu_enter();
    cudaStream_t s = error ? NULL : softgpu_stream(handle);
    softgpu_capture *c = s ? s->capture : NULL;
    *graph = NULL;
    if (!error && (!c || c->first != s))
        error = c ? cudaErrorStreamCaptureUnmatched : cudaErrorIllegalState;
    if (error)
        return softgpu_leave(error);
    if (c->spoiled)
        error = cudaErrorStreamCaptureInvalidated;
    else if (!all_joined(c))
        error = cudaErrorStreamCaptureUnjoined;
    if (error) {
        graph_clear(c->graph);
        free(c->graph);
    } else {
        *graph = c->graph;
    }
    close_capture(c);
    return softgpu_leave(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status)
{
    cudaError_t error = softgpu_enter();
    cudaStream_t s = error ? NULL : softgpu_stream(handle);
    if (!error && !s)
        error = cudaErrorInvalidResourceHandle;
    *status = !s || !s->capture     ? cudaStreamCaptureStatusNone
              : s->capture->spoiled ? cudaStreamCaptureStatusInvalidated
                                    : cudaStreamCaptureStatusActive;
    return softgpu_leave(error);
}
