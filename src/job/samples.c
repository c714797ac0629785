/* Opens a recorded job for a single device without output, and asks the loader's order which
 * samples a step has. Devices, strategy, mixed precision and the like are reset first,
 * because the order depends on none of them and the job may have run on machines that are
 * not here. */
#include "job/samples.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/files/run_files.h"
#include "data/loading/sampler.h"
#include "job/document/document.h"
#include "job/edit.h"
#include "job/run.h"

/* Returns the path of the job's document; the caller frees it. */
static char *document_of(const char *run)
{
    struct stat info;
    bool folder = stat(run, &info) == 0 && S_ISDIR(info.st_mode);
    return folder ? choir__format("%s/" CHOIR__JOB_FILE, run) : choir__strdup(run);
}

static choir_status read_document(const char *run, choir__job *j)
{
    json_t *root;
    char *path = document_of(run);
    choir_status status = choir__job_load_file(path, &root);
    if (status == CHOIR_OK)
        status = choir__job_take_document(j, run, root);
    free(path);
    return status;
}

/* Where and how the work was done is left out: the order of the samples does not depend on it.
 */
static void forget_place(choir__job *j, const choir__job *presets)
{
    j->placement = presets->placement;
    j->placement.strategy_text = "single";
    j->optim.offload = j->optim.amp = NULL;
    j->optim.bits = presets->optim.bits;
    j->optim.recompute = false;
    j->training.on_spike = NULL;
    j->saves.dir = NULL;
    j->saves.every = 0;
    j->records = presets->records;
    j->records.print_job = true; /* nothing is written */
    j->records.silent = true;
}

choir_status choir__samples_open(const char *run, choir__job *j)
{
    bool usage;
    *j = choir__job_new("data");
    for (const choir__line_option *o = choir__job_options; o->name; o++)
        if (o->preset)
            (void)!choir__line_set(o, (char *)j + o->at, o->preset);
    const choir__job presets = *j;
    choir_status status = read_document(run, j);
    if (status != CHOIR_OK)
        return status;
    forget_place(j, &presets);
    if (j->data.path && choir__job_is_stream(&j->data))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: the run has read standard input, which cannot be read again", run);
    return choir__job_make_ready(j, &usage);
}

/* Sets the step and the batch from one of them. */
static choir_status settle(
    const choir__job *j, int64_t step, int64_t batch, choir__samples *samples)
{
    choir__skips skips = choir__job_skips(&j->data);
    int64_t last = choir__skips_batch(&skips, j->training.steps);
    samples->step = step;
    samples->batch = step ? choir__skips_batch(&skips, step) : batch;
    int64_t low = 1, high = j->training.steps;
    while (!step && low < high) { /* the first step that is not before the batch */
        int64_t middle = low + (high - low) / 2;
        if (choir__skips_batch(&skips, middle) < batch)
            low = middle + 1;
        else
            high = middle;
    }
    if (!step && choir__skips_batch(&skips, low) == batch)
        samples->step = low;
    choir__skips_free(&skips);
    return samples->batch <= last
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT,
                     "--%s %lld: the job's last step is %lld, on batch %lld",
                     step ? "step" : "batch", (long long)(step ? step : batch),
                     (long long)j->training.steps, (long long)last);
}

choir_status choir__samples_of(
    const choir__job *j, int64_t step, int64_t batch, choir__samples *samples)
{
    choir__sample_order order = {0};
    *samples = (choir__samples){0};
    choir_status status = settle(j, step, batch, samples);
    if (status == CHOIR_OK)
        status = choir__sample_order_init(&order, choir_dataset_length(j->data.train),
            j->training.microbatches, j->training.batch_size, j->training.seed, true, true);
    if (status == CHOIR_OK && j->data.weights_of_samples)
        status = choir__sample_order_weigh(&order, j->data.weights_of_samples);
    if (status == CHOIR_OK) {
        int64_t k = samples->batch - 1, at = 0;
        samples->each = order.micro;
        samples->batches = order.batches;
        samples->epoch = k / order.batches + 1;
        samples->index = choir__calloc((size_t)j->training.batch_size, sizeof *samples->index);
        for (int64_t m = 0; m < order.replicas; m++)
            for (int64_t i = 0; i < order.micro; i++)
                samples->index[at++] = choir__sample_order_at(&order, k, m, i);
    }
    choir__sample_order_free(&order);
    return status;
}
