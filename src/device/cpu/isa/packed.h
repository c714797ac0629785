/* A product whose right-hand matrix is shared by many calls. oneDNN and our own products pack
 * it once for all of them; the small product, which computes where oneDNN does not, copies it
 * in each call. */
#ifndef CHOIR_ISA_PACKED_H
#define CHOIR_ISA_PACKED_H

#include "device/cpu/multiplier.h"
#include "device/cpu/product/product.h"
#ifdef CHOIR_HAVE_ONEDNN
#include "device/cpu/onednn/onednn.h"
#endif

typedef struct packed_product {
    void *extra; /* scratch for the caller */
    float *own;  /* packed for our own products, or NULL */
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
    p->own = NULL;
    p->packed = !choir__cpu_own_products() && choir__onednn_pack(&p->by_onednn, k, extra);
    if (p->packed) {
        p->extra = p->by_onednn.extra;
        return;
    }
#endif
    extra = (extra + 63) & ~(size_t)63;
    const size_t own = choir__cpu_own_products() ? (size_t)KERNEL(product_pack)(NULL, k) : 0;
    p->extra = choir__cpu_scratch(choir__cpu_context_current(), extra + own * sizeof(float));
    p->own = own ? (float *)((char *)p->extra + extra) : NULL;
    if (own)
        KERNEL(product_pack)(p->own, k);
}

INLINE void packed_matmul(const packed_product *p, const choir__k_matmul *k)
{
#ifdef CHOIR_HAVE_ONEDNN
    if (p->packed) {
        choir__onednn_matmul_packed(&p->by_onednn, k);
        return;
    }
#endif
    const choir__operands packed = {.packed = p->own};
    if (p->own)
        KERNEL(product_f32)(k, &packed);
    else
        KERNEL(plain_matmul)(k);
}

#endif
