/* Divides the machine's devices among trials: a share has cores, GPUs, and names that count
 * from 0 again. A trial's process enters its share by its affinity and CUDA_VISIBLE_DEVICES. */
#include "tune/trials/device_shares.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns core `index` of this process's cores; after the last one they start over, as the
 * devices do. */
static int core_of(int index)
{
    cpu_set_t set;
    int all[CPU_SETSIZE], count = 0;
    if (sched_getaffinity(0, sizeof set, &set))
        CPU_ZERO(&set);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set))
            all[count++] = i;
    return count ? all[index % count] : -1;
}

/* Returns the name of GPU `index` for CUDA_VISIBLE_DEVICES, on the heap: the entry of this
 * process's own list, which may hold numbers or UUIDs. */
static char *gpu_of(int index)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    if (!list || !*list)
        return choir__format("%d", index);
    int count = 1;
    for (const char *c = list; *c; c++)
        count += *c == ',';
    for (index %= count; index > 0; index--)
        list = strchr(list, ',') + 1;
    return choir__format("%.*s", (int)strcspn(list, ","), list);
}

static void append(char **list, char *word)
{
    char *longer = choir__format("%s%s%s", *list, **list ? "," : "", word);
    free(*list);
    free(word);
    *list = longer;
}

static void add(choir__device_share *p, const char *name)
{
    int index = atoi(strchr(name, ':') + 1);
    if (!strncmp(name, "cuda:", 5)) {
        append(&p->gpus, gpu_of(index));
    } else if (core_of(index) >= 0) {
        CPU_SET(core_of(index), &p->cores);
        p->has_cores = true;
    }
    p->count++;
}

/* Counts the devices of a kind that are in `names` from 0 on. */
static void count_again(choir__device_share *p, char (*names)[CHOIR__DEVICE_NAME], int each)
{
    for (int i = 0; i < each; i++) {
        int before = 0, length = (int)strcspn(names[i], ":");
        for (int k = 0; k < i; k++)
            before += !strncmp(names[i], names[k], (size_t)length + 1);
        append(&p->devices, choir__format("%.*s:%d", length, names[i], before));
    }
}

choir__device_share *choir__device_shares_new(
    char (*names)[CHOIR__DEVICE_NAME], int count, int each)
{
    choir__device_share *shares = choir__calloc((size_t)(count / each), sizeof *shares);
    for (int i = 0; i < count / each; i++) {
        shares[i].gpus = choir__strdup("");
        shares[i].devices = choir__strdup("");
        for (int k = 0; k < each; k++)
            add(&shares[i], names[i * each + k]);
        count_again(&shares[i], names + (ptrdiff_t)i * each, each);
    }
    return shares;
}

void choir__device_shares_free(choir__device_share *shares, int count)
{
    for (int i = 0; shares && i < count; i++) {
        free(shares[i].gpus);
        free(shares[i].devices);
    }
    free(shares);
}

void choir__device_share_enter(const choir__device_share *p)
{
    char count[16];
    snprintf(count, sizeof count, "%d", p->count);
    if (p->has_cores)
        sched_setaffinity(0, sizeof p->cores, &p->cores);
    setenv("CUDA_VISIBLE_DEVICES", p->gpus, 1);
    setenv("CHOIR_TRIAL_DEVICES", p->devices, 1);
    if (getenv("CHOIR_CPU_DEVICES") && p->has_cores) /* more devices than cores */
        setenv("CHOIR_CPU_DEVICES", count, 1);
    if (getenv("CHOIR_CUDA_DEVICES") && *p->gpus)
        setenv("CHOIR_CUDA_DEVICES", count, 1);
}
