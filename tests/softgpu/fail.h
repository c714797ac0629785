/* What tests may make fail on the soft GPU. The library shows these functions to who loads it;
 * SOFTGPU_FAIL=name:n,name:n does the same from outside. */
#ifndef SOFTGPU_FAIL_H
#define SOFTGPU_FAIL_H

typedef enum softgpu_call {
    SOFTGPU_FAIL_MALLOC,  /* "malloc": out of memory */
    SOFTGPU_FAIL_PINNED,  /* "pinned": cudaMallocHost and its like */
    SOFTGPU_FAIL_LAUNCH,  /* "launch": a kernel is refused at once */
    SOFTGPU_FAIL_KERNEL,  /* "kernel": one meets an illegal address as it runs; it sticks */
    SOFTGPU_FAIL_COPY,    /* "copy": a copy does, likewise */
    SOFTGPU_FAIL_CAPTURE, /* "capture": cannot begin */
    SOFTGPU_FAIL_GRAPH,   /* "graph": cannot be instantiated */
    SOFTGPU_FAIL_BLAS,    /* "blas": no heuristic for a product */
    SOFTGPU_FAIL_PRODUCT, /* "product": one is refused at once */
    SOFTGPU_FAIL_WAIT,    /* "wait": of a stream for what is captured */
    SOFTGPU_FAIL_COUNT
} softgpu_call;

#ifdef __cplusplus
extern "C" {
#endif

/* The n-th such call from now on fails; 0: none does. */
void softgpu_fail_next(softgpu_call call, int n);
/* Forgets an error that stuck, as only a new process would. */
void softgpu_heal(void);
/* Bits of the GPUs that this process has begun to use. */
unsigned softgpu_contexts(void);

#ifdef __cplusplus
}
#endif
#endif
