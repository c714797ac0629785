/* Far memory, which processors cannot read. A backend whose devices keep their tensors there
 * says how to copy it from and to host memory, and how to pass it between processes. */
#ifndef CHOIR_FAR_H
#define CHOIR_FAR_H

#include "device/device.h"

enum { CHOIR__FAR_HANDLE = 64 };

/* A handle with which another process can open memory of this process. */
typedef struct choir__far_handle {
    unsigned char bytes[CHOIR__FAR_HANDLE];
    /* the device that has the memory, named alike in all processes: a PCI bus id */
    char device[64];
} choir__far_handle;

typedef struct choir__far {
    bool (*owns)(const void *p);
    /* Blocking copies. The caller has already waited for the devices' work on `far`. Errors:
     * the GPU's. */
    choir_status (*get)(void *host, const void *far, size_t bytes);
    choir_status (*put)(void *far, const void *host, size_t bytes);
    choir_status (*move)(
        void *to, const void *from, size_t bytes); /* copies between two far addresses */
    /* Returns host memory that copies fast, or NULL on failure. */
    void *(*pinned)(size_t bytes);
    void (*unpin)(void *p);
    /* Makes foreign host memory (tests' operands), aligned to pages, accessible to devices.
     * Returns its address for them, or NULL. */
    void *(*reach)(void *p, size_t bytes);
    void (*unreach)(void *p);
    /* Shares a device's memory with other processes. p must be in the memory of a
     * choir__pool_block; *offset is p's place in what the other process opens. close releases
     * the result of open. The memory is not given back to the GPU before hide has been called
     * as often as show: the caller knows by then that no process has it open. */
    choir_status (*show)(const void *p, choir__far_handle *handle, size_t *offset);
    void (*hide)(const void *p);
    void *(*open)(choir_device *device, const choir__far_handle *handle);
    void (*close)(void *p);
} choir__far;

/* Returns the far memory that contains p, or NULL for host memory. */
const choir__far *choir__far_of(const void *p);

#endif
