/* An offline run of W&B, which `wandb sync DIR/offline-run-...` takes.
 *
 * Its one file, run-ID.wandb, is a log in LevelDB's form: a file header, then blocks of 32 KiB
 * that hold pieces of records, each with a checksum, a length and its place in the record
 * (whole, first, middle, last):
 *
 *     ":W&B" 0xbee1 0   | crc32 (u32) | length (u16) | place (u8) | bytes | ...
 *
 * Records are messages of proto/wandb.proto: header, run (with the parameters as its config),
 * a history item per row, and at the end summary, exit and footer. A continued run writes
 * another folder for the same run id, which begins at its step. */
#include <choir/status.h>

#include "base/files/file.h"
#include "record/lines.h"
#include "record/recorder.h"

#ifdef CHOIR_HAVE_PROTOBUF
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "base/files/folders.h"
#include "base/text.h"
#include "wandb.pb-c.h"

enum { BLOCK = 32768, HEAD = 7 };
enum { WHOLE = 1, FIRST, MIDDLE, LAST };

typedef struct wandb {
    choir__recorder base;
    char *path, *name, id[9];
    int fd;
    size_t at; /* bytes of the current block that are written */
    int64_t records, resume;
    double started;
    unsigned char *packed; /* a record */
    size_t room;
    choir__text_buffer block, values; /* pieces to write; the values of a row as JSON */
    ChoirWandb__Item *items;          /* (item_room) */
    ChoirWandb__Item **item_list;     /* (item_room) */
    int item_room;
    char **last_names, **last_values; /* (last_count): the latest values, for the summary */
    int last_count;
} wandb;

/* --- the file --- */

/* Adds one piece to the bytes that are written together. */
static void put_piece(wandb *w, int place, const unsigned char *bytes, size_t count)
{
    unsigned char head[HEAD] = {0, 0, 0, 0, count & 0xff, count >> 8, (unsigned char)place};
    uLong c = crc32(0, head + 6, 1);
    if (count) /* zlib's crc32 of no bytes at NULL begins again */
        c = crc32(c, bytes, (uInt)count);
    uint32_t masked = (uint32_t)c; /* unlike LevelDB's */
    for (int i = 0; i < 4; i++)
        head[i] = (unsigned char)(masked >> 8 * i);
    choir__text_buffer_add(&w->block, (const char *)head, HEAD);
    choir__text_buffer_add(&w->block, (const char *)bytes, count);
    w->at += HEAD + count;
}

/* Cuts a record into the pieces that the blocks have room for. */
static void put_record(wandb *w, const unsigned char *bytes, size_t count)
{
    static const unsigned char zeros[HEAD];
    for (bool first = true, more = true; more; first = false) {
        size_t room = BLOCK - w->at;
        if (room < HEAD) {
            choir__text_buffer_add(&w->block, (const char *)zeros, room);
            w->at = 0;
            room = BLOCK;
        }
        size_t part = room - HEAD < count ? room - HEAD : count;
        more = part < count;
        put_piece(w, first ? (more ? FIRST : WHOLE) : more ? MIDDLE : LAST, bytes, part);
        w->at %= BLOCK;
        bytes += part;
        count -= part;
    }
}

static choir_status add(wandb *w, ChoirWandb__Record *record)
{
    record->num = ++w->records;
    size_t bytes = choir_wandb__record__get_packed_size(record);
    if (bytes > w->room) {
        w->room = 2 * bytes;
        w->packed = choir__realloc(w->packed, w->room);
    }
    choir_wandb__record__pack(record, w->packed);
    choir__text_buffer_clear(&w->block);
    put_record(w, w->packed, bytes);
    return choir__record_append(w->fd, w->path, w->block.bytes, w->block.used);
}

/* --- opening --- */

/* Makes the folder of a run that began at a time, and returns its path. A part of the same run
 * from the same second has that name already; this one is then of a later second. */
static char *make_folder(const wandb *w, const char *place, time_t seconds, int *error)
{
    *error = choir__folders_make(place);
    for (int later = 0; later < 60 && !*error; later++, seconds++) {
        char stamp[32];
        struct tm local;
        localtime_r(&seconds, &local);
        strftime(stamp, sizeof stamp, "%Y%m%d_%H%M%S", &local);
        char *folder = choir__format("%s/offline-run-%s-%s", place, stamp, w->id);
        if (mkdir(folder, 0777) == 0)
            return folder;
        free(folder);
        *error = errno == EEXIST ? 0 : errno;
    }
    return NULL;
}

static choir_status make_file(wandb *w, const char *place, const choir__record_start *start)
{
    static const char magic[7] = {':', 'W', '&', 'B', (char)0xe1, (char)0xbe, 0};
    int error;
    char *folder = make_folder(w, place, (time_t)start->time, &error);
    if (!folder)
        return choir__error(CHOIR_ERR_IO, "cannot write a run of W&B to %s: %s", place,
            choir__why(error ? error : EEXIST));
    char *files = choir__format("%s/files", folder); /* wandb keeps its own files there */
    error = choir__folders_make(files);
    w->path = choir__format("%s/run-%s.wandb", folder, w->id);
    free(files);
    free(folder);
    if (error)
        return choir__record_failed(w->path, error);
    w->fd =
        choir__file_try(w->path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, CHOIR__FILE_REGULAR);
    if (w->fd < 0 || write(w->fd, magic, sizeof magic) != sizeof magic)
        return choir__record_failed(w->path, errno);
    w->at = sizeof magic;
    return CHOIR_OK;
}

static choir_status open_wandb(
    const char *place, const choir__record_start *start, choir__recorder **made)
{
    wandb *w = choir__calloc(1, sizeof *w);
    w->base.ops = &choir__recorder_wandb;
    w->fd = -1;
    w->name = choir__strdup(start->name);
    w->resume = start->resume;
    w->started = start->time;
    snprintf(w->id, sizeof w->id, "%.8s", start->id);
    choir_status status = make_file(w, place, start);
    ChoirWandb__Record record = CHOIR_WANDB__RECORD__INIT;
    ChoirWandb__Header header = CHOIR_WANDB__HEADER__INIT;
    ChoirWandb__VersionInfo version = CHOIR_WANDB__VERSION_INFO__INIT;
    version.producer = "0.13.0"; /* version of the form, not of Choir */
    version.min_consumer = "0.13.0";
    header.version_info = &version;
    record.record_type_case = CHOIR_WANDB__RECORD__RECORD_TYPE_HEADER;
    record.header = &header;
    if (status == CHOIR_OK)
        status = add(w, &record);
    *made = &w->base;
    return status;
}

/* Makes room for `count` items. */
static void make_items(wandb *w, int count)
{
    if (count <= w->item_room)
        return;
    w->item_room = 2 * count;
    w->items = choir__realloc(w->items, (size_t)w->item_room * sizeof *w->items);
    w->item_list = choir__realloc(w->item_list, (size_t)w->item_room * sizeof(void *));
}

static void set_item(wandb *w, int i, const char *key, const char *json)
{
    w->items[i] = (ChoirWandb__Item)CHOIR_WANDB__ITEM__INIT;
    w->items[i].key = (char *)key;
    w->items[i].value_json = (char *)json;
    w->item_list[i] = &w->items[i];
}

static choir_status begin(choir__recorder *base, const json_t *params, const char *job)
{
    wandb *w = (wandb *)base;
    char host[65] = "host";
    const char *name;
    json_t *value;
    int count = 0;
    (void)job;
    gethostname(host, sizeof host - 1);
    make_items(w, (int)json_object_size(params));
    json_object_foreach((json_t *)params, name, value)
    {
        set_item(w, count++, name, json_dumps(value, JSON_ENCODE_ANY));
    }
    ChoirWandb__Record record = CHOIR_WANDB__RECORD__INIT;
    ChoirWandb__Run run = CHOIR_WANDB__RUN__INIT;
    ChoirWandb__Config config = CHOIR_WANDB__CONFIG__INIT;
    ChoirWandb__Time start = CHOIR_WANDB__TIME__INIT;
    config.n_update = (size_t)count;
    config.update = w->item_list;
    start.seconds = (int64_t)w->started;
    start.nanos = (int32_t)(1e9 * (w->started - (double)start.seconds));
    run.run_id = w->id;
    run.project = "choir";
    run.display_name = w->name;
    run.host = host;
    run.config = &config;
    run.start_time = &start;
    run.resumed = w->resume >= 0;
    run.starting_step = w->resume >= 0 ? w->resume + 1 : 0;
    record.record_type_case = CHOIR_WANDB__RECORD__RECORD_TYPE_RUN;
    record.run = &run;
    choir_status status = add(w, &record);
    for (int i = 0; i < count; i++)
        free(w->items[i].value_json);
    return status;
}

/* --- rows --- */

/* Keeps the latest value of a name for the summary. */
static void keep(wandb *w, const char *name, const char *json)
{
    for (int i = 0; i < w->last_count; i++)
        if (!strcmp(w->last_names[i], name)) {
            if (strlen(json) > strlen(w->last_values[i]))
                w->last_values[i] = choir__realloc(w->last_values[i], strlen(json) + 1);
            strcpy(w->last_values[i], json);
            return;
        }
    CHOIR__GROW(w->last_names, w->last_count);
    CHOIR__GROW(w->last_values, w->last_count);
    w->last_names[w->last_count] = choir__strdup(name);
    w->last_values[w->last_count++] = choir__strdup(json);
}

static choir_status add_history(wandb *w, int64_t number, int count)
{
    ChoirWandb__Record record = CHOIR_WANDB__RECORD__INIT;
    ChoirWandb__History history = CHOIR_WANDB__HISTORY__INIT;
    ChoirWandb__Step at = CHOIR_WANDB__STEP__INIT;
    at.num = number;
    history.step = &at;
    history.n_item = (size_t)count;
    history.item = w->item_list;
    record.record_type_case = CHOIR_WANDB__RECORD__RECORD_TYPE_HISTORY;
    record.history = &history;
    return add(w, &record);
}

static choir_status step(choir__recorder *base, const choir__row *row)
{
    wandb *w = (wandb *)base;
    enum { OWN = 3 }; /* _step, _timestamp, _runtime */
    int count = row->count + OWN;
    char own[OWN][CHOIR__NUMBER_TEXT],
        (*texts)[CHOIR__NUMBER_TEXT] = choir__alloc((size_t)row->count * sizeof *texts + 1);
    make_items(w, count);
    for (int i = 0; i < row->count; i++) {
        const choir__number *n = &row->numbers[i];
        choir__text_buffer_clear(&w->values);
        choir__text_buffer_number(&w->values, NULL, n->value);
        if (!strcmp(w->values.bytes, "null")) /* W&B's JSON has words for them */
            choir__text_buffer_clear(&w->values),
                choir__text_buffer_put(&w->values, n->value != n->value ? "NaN"
                                                   : n->value > 0       ? "Infinity"
                                                                        : "-Infinity");
        snprintf(texts[i], sizeof texts[i], "%s", w->values.bytes);
        set_item(w, i, n->name, texts[i]);
        keep(w, n->name, texts[i]);
    }
    snprintf(own[0], sizeof own[0], "%lld", (long long)row->step);
    choir__number_print(own[1], sizeof own[1], "%.6f", row->time);
    choir__number_print(own[2], sizeof own[2], "%.6f", row->time - w->started);
    set_item(w, row->count, "_step", own[0]);
    set_item(w, row->count + 1, "_timestamp", own[1]);
    set_item(w, row->count + 2, "_runtime", own[2]);
    choir_status status = add_history(w, row->step, count);
    free(texts);
    return status;
}

/* --- the end --- */

static choir_status finish(wandb *w, bool good)
{
    ChoirWandb__Record record = CHOIR_WANDB__RECORD__INIT;
    ChoirWandb__Summary summary = CHOIR_WANDB__SUMMARY__INIT;
    ChoirWandb__Exit last = CHOIR_WANDB__EXIT__INIT;
    make_items(w, w->last_count);
    for (int i = 0; i < w->last_count; i++)
        set_item(w, i, w->last_names[i], w->last_values[i]);
    summary.n_update = (size_t)w->last_count;
    summary.update = w->item_list;
    record.record_type_case = CHOIR_WANDB__RECORD__RECORD_TYPE_SUMMARY;
    record.summary = &summary;
    choir_status status = w->last_count ? add(w, &record) : CHOIR_OK;
    last.exit_code = good ? 0 : 1;
    last.runtime = (int32_t)(time(NULL) - (time_t)w->started);
    record.record_type_case = CHOIR_WANDB__RECORD__RECORD_TYPE_EXIT;
    record.exit = &last;
    return status == CHOIR_OK ? add(w, &record) : status;
}

static choir_status end(choir__recorder *base, bool good)
{
    wandb *w = (wandb *)base;
    choir_status status = w->fd >= 0 && w->records > 1 ? finish(w, good) : CHOIR_OK;
    if (w->fd >= 0 && close(w->fd) != 0 && status == CHOIR_OK)
        status = choir__record_failed(w->path, errno);
    for (int i = 0; i < w->last_count; i++) {
        free(w->last_names[i]);
        free(w->last_values[i]);
    }
    free(w->last_names);
    free(w->last_values);
    free(w->items);
    free(w->item_list);
    free(w->packed);
    free(w->path);
    free(w->name);
    choir__text_buffer_free(&w->block);
    choir__text_buffer_free(&w->values);
    free(w);
    return status;
}
#endif

const choir__recorder_ops choir__recorder_wandb = {
    .name = "wandb",
    .place = "DIR",
    .help = "an offline run of W&B, for 'wandb sync'",
#ifdef CHOIR_HAVE_PROTOBUF
    .open = open_wandb,
    .begin = begin,
    .step = step,
    .end = end,
#else
    .needs = "libprotobuf-c-dev and protobuf-c-compiler",
#endif
};
