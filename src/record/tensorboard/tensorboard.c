/* TensorBoard: an event file in the folder, in the messages of proto/tensorboard.proto.
 *
 * A continued run begins another file with an event that voids the values of later steps in
 * the files before, so its curve has each step once. Hyper-parameters are two summaries of the
 * plug-in hparams, one at the start and one at the end; a text is a tensor of the plug-in text.
 */
#include <choir/status.h>

#include "record/recorder.h"

#ifdef CHOIR_HAVE_PROTOBUF
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/files/folders.h"
#include "record/tensorboard/events.h"

typedef ChoirTb__Summary__Value summary_value;

typedef struct tensorboard {
    choir__recorder base;
    choir__event_file file;
    summary_value *values; /* (room) values of a row */
    summary_value **list;  /* (room) */
    int room;
    double *limits; /* the ends of all buckets of histograms */
    int limit_count;
    bool has_params;
} tensorboard;

static choir_status add_summary(
    tensorboard *t, int64_t step, double time, summary_value **values, size_t count)
{
    ChoirTb__Summary summary = CHOIR_TB__SUMMARY__INIT;
    ChoirTb__Event event = CHOIR_TB__EVENT__INIT;
    summary.n_value = count;
    summary.value = values;
    event.wall_time = time;
    event.step = step;
    event.what_case = CHOIR_TB__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    return choir__event_file_add(&t->file, &event);
}

/* --- opening --- */

/* Writes the first two events: the version, and from which step on older values are void. */
static choir_status begin_file(tensorboard *t, const choir__record_start *start)
{
    ChoirTb__Event event = CHOIR_TB__EVENT__INIT;
    ChoirTb__SessionLog session = CHOIR_TB__SESSION_LOG__INIT;
    event.wall_time = start->time;
    event.what_case = CHOIR_TB__EVENT__WHAT_FILE_VERSION;
    event.file_version = "brain.Event:2";
    choir_status status = choir__event_file_add(&t->file, &event);
    session.status = CHOIR_TB__SESSION_LOG__STATUS__START;
    event.step = start->resume < 0 ? 0 : start->resume + 1;
    event.what_case = CHOIR_TB__EVENT__WHAT_SESSION_LOG;
    event.session_log = &session;
    return status == CHOIR_OK ? choir__event_file_add(&t->file, &event) : status;
}

static choir_status open_tensorboard(
    const char *place, const choir__record_start *start, choir__recorder **made)
{
    int error = choir__folders_make(place);
    if (error)
        return choir__error(CHOIR_ERR_IO, "cannot write TensorBoard's events to %s: %s", place,
            choir__why(error));
    tensorboard *t = choir__calloc(1, sizeof *t);
    t->base.ops = &choir__recorder_tensorboard;
    choir_status status = choir__event_file_open(&t->file, place, start->time);
    if (status == CHOIR_OK)
        status = begin_file(t, start);
    *made = &t->base;
    return status;
}

/* --- hyper-parameters --- */

/* Adds a summary that the plug-in hparams reads. */
static choir_status add_hparams(
    tensorboard *t, const char *tag, ChoirTb__HParams *params, double time)
{
    size_t bytes = choir_tb__hparams__get_packed_size(params);
    unsigned char *packed = choir__alloc(bytes + 1);
    ChoirTb__Metadata metadata = CHOIR_TB__METADATA__INIT;
    ChoirTb__Metadata__Plugin plugin = CHOIR_TB__METADATA__PLUGIN__INIT;
    summary_value value = CHOIR_TB__SUMMARY__VALUE__INIT, *list = &value;
    choir_tb__hparams__pack(params, packed);
    plugin.plugin_name = "hparams";
    plugin.content = (ProtobufCBinaryData){bytes, packed};
    metadata.plugin_data = &plugin;
    value.tag = (char *)tag;
    value.metadata = &metadata;
    choir_status status = add_summary(t, 0, time, &list, 1);
    free(packed);
    return status;
}

static void set_parameter(ChoirTb__Parameter *p, const json_t *value)
{
    if (json_is_number(value)) {
        p->kind_case = CHOIR_TB__PARAMETER__KIND_NUMBER_VALUE;
        p->number_value = json_number_value(value);
    } else if (json_is_boolean(value)) {
        p->kind_case = CHOIR_TB__PARAMETER__KIND_BOOL_VALUE;
        p->bool_value = json_is_true(value);
    } else {
        p->kind_case = CHOIR_TB__PARAMETER__KIND_STRING_VALUE;
        p->string_value = (char *)json_string_value(value);
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static choir_status begin(choir__recorder *base, const json_t *params, const char *job)
{
    tensorboard *t = (tensorboard *)base;
    size_t count = json_object_size(params), at = 0;
    (void)job;
    t->has_params = count > 0;
    if (!count)
        return CHOIR_OK;
    ChoirTb__SessionStart__Entry *entries = choir__calloc(count, sizeof *entries),
                                 **list = choir__calloc(count, sizeof(void *));
    ChoirTb__Parameter *values = choir__calloc(count, sizeof *values);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)params, name, value)
    {
        entries[at] = (ChoirTb__SessionStart__Entry)CHOIR_TB__SESSION_START__ENTRY__INIT;
        values[at] = (ChoirTb__Parameter)CHOIR_TB__PARAMETER__INIT;
        set_parameter(&values[at], value);
        entries[at].key = (char *)name;
        entries[at].value = &values[at];
        list[at] = &entries[at];
        at++;
    }
    ChoirTb__SessionStart start = CHOIR_TB__SESSION_START__INIT;
    ChoirTb__HParams message = CHOIR_TB__HPARAMS__INIT;
    start.n_hparams = count;
    start.hparams = list;
    start.start_time_secs = now();
    message.data_case = CHOIR_TB__HPARAMS__DATA_SESSION_START_INFO;
    message.session_start_info = &start;
    choir_status status =
        add_hparams(t, "_hparams_/session_start_info", &message, start.start_time_secs);
    free(entries);
    free(values);
    free(list);
    return status;
}

static choir_status end(choir__recorder *base, bool good)
{
    tensorboard *t = (tensorboard *)base;
    choir_status status = CHOIR_OK;
    if (t->has_params && t->file.fd >= 0) {
        ChoirTb__SessionEnd last = CHOIR_TB__SESSION_END__INIT;
        ChoirTb__HParams message = CHOIR_TB__HPARAMS__INIT;
        last.status = good ? 1 : 2;
        last.end_time_secs = now();
        message.data_case = CHOIR_TB__HPARAMS__DATA_SESSION_END_INFO;
        message.session_end_info = &last;
        status = add_hparams(t, "_hparams_/session_end_info", &message, last.end_time_secs);
    }
    choir_status closed = choir__event_file_close(&t->file);
    free(t->values);
    free(t->list);
    free(t->limits);
    free(t);
    return status == CHOIR_OK ? closed : status;
}

/* --- steps --- */

/* Returns the group of a number's tag. TensorBoard sorts groups by their names, and the tags in
 * each: validations (eval) and the training's loss, norm and rate (train) come first, behind
 * them speed, devices (use), and what the training waited for. */
static const char *group_of(const char *name)
{
    static const char *const speed[] = {CHOIR__KEY(step, items_per_s), CHOIR__KEY(step, step_s),
        CHOIR__KEY(step, items)},
                             *const waits[] = {
                                 CHOIR__KEY(step, data_s), CHOIR__KEY(eval, eval_s)};
    for (size_t i = 0; i < CHOIR_COUNT(speed); i++)
        if (!strcmp(name, speed[i]))
            return "train_speed";
    for (size_t i = 0; i < CHOIR_COUNT(waits); i++)
        if (!strcmp(name, waits[i]))
            return "wait";
    return "train";
}

/* Returns the tag of a number, on the heap. A name with a group keeps it, but for devices and
 * for the time of a validation. */
static char *tag_of(const char *name)
{
    static const char device[] = "device/", eval[] = "eval/";
    if (strncmp(name, device, sizeof device - 1) == 0)
        return choir__format("use/%s", name + sizeof device - 1);
    const bool evaluated = strncmp(name, eval, sizeof eval - 1) == 0;
    const char *key = evaluated ? name + sizeof eval - 1 : name;
    if (evaluated ? strcmp(key, CHOIR__KEY(eval, eval_s)) != 0 : strchr(name, '/') != NULL)
        return choir__strdup(name);
    return choir__format("%s/%s", group_of(key), key);
}

static choir_status step(choir__recorder *base, const choir__row *row)
{
    tensorboard *t = (tensorboard *)base;
    if (row->count > t->room) {
        t->room = 2 * row->count;
        t->values = choir__realloc(t->values, (size_t)t->room * sizeof *t->values);
        t->list = choir__realloc(t->list, (size_t)t->room * sizeof *t->list);
    }
    for (int i = 0; i < row->count; i++) {
        t->values[i] = (summary_value)CHOIR_TB__SUMMARY__VALUE__INIT;
        t->values[i].tag = tag_of(row->numbers[i].name);
        t->values[i].value_case = CHOIR_TB__SUMMARY__VALUE__VALUE_SIMPLE_VALUE;
        t->values[i].simple_value = (float)row->numbers[i].value;
        t->list[i] = &t->values[i];
    }
    choir_status status = add_summary(t, row->step, row->time, t->list, (size_t)row->count);
    for (int i = 0; i < row->count; i++)
        free(t->values[i].tag);
    return status;
}

/* Adds a tensor of one text. */
static choir_status add_text(tensorboard *t, const choir__record_event *e)
{
    const char *name = json_string_value(json_object_get(e->fields, CHOIR__KEY(text, name))),
               *text = json_string_value(json_object_get(e->fields, CHOIR__KEY(text, text)));
    ChoirTb__Metadata metadata = CHOIR_TB__METADATA__INIT;
    ChoirTb__Metadata__Plugin plugin = CHOIR_TB__METADATA__PLUGIN__INIT;
    ChoirTb__Shape__Dim dim = CHOIR_TB__SHAPE__DIM__INIT, *dims = &dim;
    ChoirTb__Shape shape = CHOIR_TB__SHAPE__INIT;
    ChoirTb__Tensor tensor = CHOIR_TB__TENSOR__INIT;
    summary_value value = CHOIR_TB__SUMMARY__VALUE__INIT, *list = &value;
    enum { STRING = 7 };
    if (!name || !text)
        return CHOIR_OK;
    ProtobufCBinaryData bytes = {strlen(text), (unsigned char *)text};
    plugin.plugin_name = "text";
    metadata.plugin_data = &plugin;
    dim.size = 1;
    shape.n_dim = 1;
    shape.dim = &dims;
    tensor.dtype = STRING;
    tensor.tensor_shape = &shape;
    tensor.n_string_val = 1;
    tensor.string_val = &bytes;
    value.tag = (char *)name;
    value.metadata = &metadata;
    value.value_case = CHOIR_TB__SUMMARY__VALUE__VALUE_TENSOR;
    value.tensor = &tensor;
    return add_summary(t, e->step, e->time, &list, 1);
}

static choir_status event(choir__recorder *base, const choir__record_event *e)
{
    choir__event_row made;
    if (!strcmp(e->kind, choir__kind_text.name))
        return add_text((tensorboard *)base, e);
    choir__event_as_row(e, &made);
    return made.row.count ? step(base, &made.row) : CHOIR_OK;
}

/* --- histograms --- */

/* Makes TensorFlow's buckets: their ends are 0 and +-1e-12 * 1.1^n up to 1e20, then the largest
 * number. */
static void make_limits(tensorboard *t)
{
    enum { MOST = 1600 };
    double ends[MOST / 2];
    int count = 0;
    for (double end = 1e-12; end < 1e20; end *= 1.1)
        ends[count++] = end;
    t->limits = choir__calloc(MOST + 2, sizeof *t->limits);
    for (int i = count; i-- > 0;)
        t->limits[t->limit_count++] = -ends[i];
    t->limits[t->limit_count++] = 0;
    for (int i = 0; i < count; i++)
        t->limits[t->limit_count++] = ends[i];
    t->limits[t->limit_count++] = 1.7976931348623157e308;
}

/* Returns the bucket of x: the first whose end is above it. */
static int bucket_of(const tensorboard *t, double x)
{
    int low = 0, high = t->limit_count - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (t->limits[middle] > x)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Values that are not finite are counted nowhere. */
static choir_status histogram(choir__recorder *base, const choir__histogram *h)
{
    tensorboard *t = (tensorboard *)base;
    if (!t->limits)
        make_limits(t);
    double *counts = choir__calloc((size_t)t->limit_count, sizeof *counts);
    ChoirTb__Histogram made = CHOIR_TB__HISTOGRAM__INIT;
    made.min = 1.7976931348623157e308;
    made.max = -made.min;
    for (int64_t i = 0; i < h->count; i++) {
        double x = (double)h->values[i];
        if (!isfinite(x))
            continue;
        made.min = fmin(made.min, x);
        made.max = fmax(made.max, x);
        made.num += 1;
        made.sum += x;
        made.sum_squares += x * x;
        counts[bucket_of(t, x)] += 1;
    }
    int first = 0, last = t->limit_count - 1;
    while (first < last && !counts[first])
        first++;
    while (last > first && !counts[last])
        last--;
    first -= first > 0; /* an empty bucket in front says where the first one begins */
    made.n_bucket = made.n_bucket_limit = (size_t)(last - first + 1);
    made.bucket = counts + first;
    made.bucket_limit = t->limits + first;
    summary_value value = CHOIR_TB__SUMMARY__VALUE__INIT, *list = &value;
    value.tag = (char *)h->name;
    value.value_case = CHOIR_TB__SUMMARY__VALUE__VALUE_HISTO;
    value.histo = &made;
    choir_status status = made.num > 0 ? add_summary(t, h->step, h->time, &list, 1) : CHOIR_OK;
    free(counts);
    return status;
}
#endif

const choir__recorder_ops choir__recorder_tensorboard = {
    .name = "tensorboard",
    .place = "DIR",
    .help = "TensorBoard's event files",
#ifdef CHOIR_HAVE_PROTOBUF
    .open = open_tensorboard,
    .begin = begin,
    .step = step,
    .event = event,
    .histogram = histogram,
    .end = end,
#else
    .needs = "libprotobuf-c-dev and protobuf-c-compiler",
#endif
};
