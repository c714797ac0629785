/* Failures that tests inject into the soft GPU. A program that loads the library finds these
 * functions in it; SOFTGPU_FAIL=name:n,name:n does the same from outside. */
#ifndef SOFTGPU_FAIL_H
#define SOFTGPU_FAIL_H

typedef enum softgpu_call {
    SOFTGPU_FAIL_MALLOC,  /* "malloc": out of memory */
    SOFTGPU_FAIL_PINNED,  /* "pinned": cudaMallocHost and its like */
    SOFTGPU_FAIL_LAUNCH,  /* "launch": a kernel is refused at once */
    SOFTGPU_FAIL_KERNEL,  /* "kernel": a kernel meets an illegal address as it runs; the error
                             sticks */
    SOFTGPU_FAIL_COPY,    /* "copy": a copy meets an illegal address; the error sticks */
    SOFTGPU_FAIL_CAPTURE, /* "capture": cannot begin */
    SOFTGPU_FAIL_GRAPH,   /* "graph": cannot be instantiated */
    SOFTGPU_FAIL_BLAS,    /* "blas": no heuristic for a product */
    SOFTGPU_FAIL_PRODUCT, /* "product": a product is refused at once */
    SOFTGPU_FAIL_WAIT,    /* "wait": a stream cannot wait for a captured event */
    SOFTGPU_FAIL_STRAY,   /* "stray": a product succeeds and leaves an error of the thread */
    SOFTGPU_FAIL_DNN,     /* "dnn": cuDNN does not start, or refuses a plan that is called */
    SOFTGPU_FAIL_COUNT
} softgpu_call;

#ifdef __cplusplus
extern "C" {
#endif

/* Makes the n-th such call from now on fail; 0: none. */
void softgpu_fail_next(softgpu_call call, int n);
/* Forgets an error that stuck, as only a new process would. */
void softgpu_heal(void);
/* Returns the number of kernels, products, fills and copies that have been run, also in graphs.
 */
long softgpu_launches(void);
/* Returns the number of events made so far whose waiters sleep. */
unsigned softgpu_blocking_events(void);
/* Returns the bits of the GPUs that this process has begun to use. */
unsigned softgpu_contexts(void);

#ifdef __cplusplus
}
#endif
#endif
