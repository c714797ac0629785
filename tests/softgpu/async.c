/* A copy in the background may be done at any time until its thread has waited for it. Here it
 * is done when the thread waits, as late as possible, and the memory that it will fill is NaN
 * until then. So a kernel that does not wait computes NaN, and one that waits without a barrier
 * after it lets other threads race with the copy, which the race checker finds. */
#include "async.h"

#include <stdint.h>
#include <string.h>

#include "block.h"
#include "race.h"

enum { WIDTH = 16, MOST_COPIES = 256, MOST_GROUPS = 8 };

typedef struct copy {
    void *to;
    const void *from; /* NULL: zeros */
    const void *place;
} copy;

/* The copies of a thread that are under way, the oldest first. */
typedef struct queue {
    copy copy[MOST_COPIES];
    int copies;
    int end[MOST_GROUPS]; /* of each closed group: the number of copies in it and before it */
    int groups;
} queue;

static queue queues[SOFTGPU_MAX_THREADS];

void softgpu_async_copy(void *to, const void *from, bool there)
{
    queue *q = &queues[softgpu_number()];
    const void *place = __builtin_return_address(0);
    softgpu_aligned(to, WIDTH);
    softgpu_aligned(from, WIDTH);
    if (q->copies == MOST_COPIES)
        softgpu_wrong("more than %d copies are under way", MOST_COPIES);
    softgpu_race_see(to, WIDTH, true, false, place);
    memset(to, 0xFF, WIDTH);
    q->copy[q->copies++] = (copy){to, there ? from : NULL, place};
}

void softgpu_async_close(void)
{
    queue *q = &queues[softgpu_number()];
    if (q->groups == MOST_GROUPS)
        softgpu_wrong("more than %d groups of copies are under way", MOST_GROUPS);
    q->end[q->groups++] = q->copies;
}

static void perform(const copy *c)
{
    softgpu_race_see(c->to, WIDTH, true, false, c->place);
    if (!c->from) {
        memset(c->to, 0, WIDTH);
        return;
    }
    softgpu_race_see(c->from, WIDTH, false, false, c->place);
    memcpy(c->to, c->from, WIDTH);
}

void softgpu_async_wait(int left)
{
    queue *q = &queues[softgpu_number()];
    int groups = q->groups > left ? q->groups - left : 0;
    int copies = groups ? q->end[groups - 1] : 0;
    for (int i = 0; i < copies; i++)
        perform(&q->copy[i]);
    memmove(q->copy, q->copy + copies, (size_t)(q->copies - copies) * sizeof *q->copy);
    q->copies -= copies;
    q->groups -= groups;
    for (int i = 0; i < q->groups; i++)
        q->end[i] = q->end[i + groups] - copies;
}

void softgpu_async_end(int thread)
{
    queue *q = &queues[thread];
    int copies = q->copies;
    q->copies = q->groups = 0;
    if (copies)
        softgpu_wrong("the thread ended with %d copies under way", copies);
}
