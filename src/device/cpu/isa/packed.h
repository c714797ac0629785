/* A product whose right-hand matrix is shared by many calls. oneDNN packs it once for all of
 * them; the plain product, which computes where oneDNN does not, copies it in each call. */
#ifndef CHOIR_ISA_PACKED_H
#define CHOIR_ISA_PACKED_H

#include "device/cpu/isa/isa.h"
#ifdef CHOIR_HAVE_ONEDNN
#include "device/cpu/onednn/onednn.h"
#endif

typedef struct packed_product {
    void *extra; /* scratch for the caller */
#ifdef CHOIR_HAVE_ONEDNN
    bool packed;
    choir__onednn_packed by_onednn;
#endif
} packed_product;

/* Calls of packed_matmul may differ from k in the pointers a, c and bias. `extra` has as many
 * bytes, and is valid until the running kernel's next use of scratch. */
INLINE void packed_open(packed_product *p, const choir__k_matmul *k, size_t extra)
{
#ifdef CHOIR_HAVE_ONEDNN
    p->packed = choir__onednn_pack(&p->by_onednn, k, extra);
    if (p->packed) {
        p->extra = p->by_onednn.extra;
        return;
    }
#endif
    (void)k;
    p->extra = choir__cpu_scratch(choir__cpu_context_current(), extra);
}

INLINE void packed_matmul(const packed_product *p, const choir__k_matmul *k)
{
#ifdef CHOIR_HAVE_ONEDNN
    if (p->packed) {
        choir__onednn_matmul_packed(&p->by_onednn, k);
        return;
    }
#endif
    (void)p;
    KERNEL(plain_matmul)(k);
}

#endif
