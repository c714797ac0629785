/* Rows of a Parquet file as lines of JSON, by Apache Arrow.
 *
 *     file -> batches of rows (Arrow decodes columns) -> lines -> read()
 *
 * Rows become text and are parsed again: readers of records (data/records.h) then know one kind
 * of record, with words and messages as nested as JSON allows. */
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/parquet/bounded.h"
#include "data/parquet/plugin.h"

namespace {

/* ENOUGH: bytes of lines that are made at a time; ROWS: that Arrow decodes at a time, fewer if
 * they have more bytes than BATCH */
enum { ENOUGH = 1 << 18, ROWS = 1024, BATCH = 1 << 24 };

using lines = choir__bounded_lines;

struct file {
    choir__bounded_pool pool; /* it outlives what it holds */
    std::unique_ptr<parquet::arrow::FileReader> reader;
    std::shared_ptr<arrow::RecordBatchReader> batches;
    std::shared_ptr<arrow::RecordBatch> batch; /* null: the next one is due */
    int64_t row = 0;                           /* the next one of the batch */
    lines out;                                 /* [sent, size) is not read yet */
    size_t sent = 0;
};

void explain(const char *reason, char *why)
{
    snprintf(why, CHOIR__PARQUET_WHY, "%s", reason);
    for (char *c = why; *c; c++) /* a reason is one line */
        *c = *c == '\n' ? ' ' : *c;
}

/* --- values --- */

void add_text(lines &to, std::string_view text)
{
    to += '"';
    for (size_t at = 0, from = 0; at <= text.size(); at++) {
        unsigned char c = at < text.size() ? (unsigned char)text[at] : '"';
        if (c != '"' && c != '\\' && c >= 0x20)
            continue;
        to += text.substr(from, at - from);
        from = at + 1;
        char code[8];
        snprintf(code, sizeof code, c < 0x20 ? "\\u%04x" : "\\%c", c);
        to += at < text.size() ? code : "\"";
    }
}

void add_number(lines &to, double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", x);
    to += std::isfinite(x) ? text : "null";
}

void add_value(lines &to, const arrow::Array &array, int64_t i);

void add_list(lines &to, const arrow::Array &values, int64_t from, int64_t count)
{
    to += '[';
    for (int64_t i = 0; i < count; i++) {
        to += i ? "," : "";
        add_value(to, values, from + i);
    }
    to += ']';
}

template <typename list> void add_list_of(lines &to, const arrow::Array &array, int64_t i)
{
    const auto &lists = static_cast<const list &>(array);
    add_list(to, *lists.values(), lists.value_offset(i), lists.value_length(i));
}

void add_object(lines &to, const arrow::StructArray &array, int64_t i)
{
    to += '{';
    for (int f = 0; f < array.num_fields(); f++) {
        to += f ? "," : "";
        add_text(to, array.struct_type()->field(f)->name());
        to += ':';
        add_value(to, *array.field(f), i);
    }
    to += '}';
}

/* Numbers and types that are rare: as Arrow writes them. */
void add_other(lines &to, const arrow::Array &array, int64_t i)
{
    auto value = array.GetScalar(i);
    if (!value.ok())
        to += "null";
    else if (arrow::is_integer(array.type_id()))
        to += (*value)->ToString();
    else
        add_text(to, (*value)->ToString());
}

void add_value(lines &to, const arrow::Array &array, int64_t i)
{
    using arrow::Type;
    if (array.IsNull(i)) {
        to += "null";
        return;
    }
    switch (array.type_id()) {
    case Type::STRING:
        add_text(to, static_cast<const arrow::StringArray &>(array).GetView(i));
        break;
    case Type::LARGE_STRING:
        add_text(to, static_cast<const arrow::LargeStringArray &>(array).GetView(i));
        break;
    case Type::STRING_VIEW:
        add_text(to, static_cast<const arrow::StringViewArray &>(array).GetView(i));
        break;
    case Type::BOOL:
        to += static_cast<const arrow::BooleanArray &>(array).Value(i) ? "true" : "false";
        break;
    case Type::FLOAT:
        add_number(to, (double)static_cast<const arrow::FloatArray &>(array).Value(i));
        break;
    case Type::DOUBLE:
        add_number(to, static_cast<const arrow::DoubleArray &>(array).Value(i));
        break;
    case Type::LIST: add_list_of<arrow::ListArray>(to, array, i); break;
    case Type::LARGE_LIST: add_list_of<arrow::LargeListArray>(to, array, i); break;
    case Type::FIXED_SIZE_LIST: add_list_of<arrow::FixedSizeListArray>(to, array, i); break;
    case Type::STRUCT: add_object(to, static_cast<const arrow::StructArray &>(array), i); break;
    case Type::DICTIONARY: {
        const auto &names = static_cast<const arrow::DictionaryArray &>(array);
        add_value(to, *names.dictionary(), names.GetValueIndex(i));
        break;
    }
    case Type::BINARY:
    case Type::LARGE_BINARY:
    case Type::BINARY_VIEW:
    case Type::FIXED_SIZE_BINARY: to += "null"; break;
    default: add_other(to, array, i);
    }
}

/* --- rows --- */

void add_row(lines &to, const arrow::RecordBatch &batch, int64_t row)
{
    to += '{';
    for (int c = 0; c < batch.num_columns(); c++) {
        to += c ? "," : "";
        add_text(to, batch.column_name(c));
        to += ':';
        add_value(to, *batch.column(c), row);
    }
    to += "}\n";
}

/* Makes more lines; none at the end of the file. */
arrow::Status fill(file *f)
{
    f->out.text.clear();
    f->sent = 0;
    while (f->out.text.size() < ENOUGH) {
        if (!f->batch) {
            ARROW_RETURN_NOT_OK(f->batches->ReadNext(&f->batch));
            if (!f->batch)
                break;
            ARROW_RETURN_NOT_OK(f->batch->ValidateFull()); /* offsets of a damaged file */
            f->row = 0;
        }
        while (f->row < f->batch->num_rows() && f->out.text.size() < ENOUGH)
            add_row(f->out, *f->batch, f->row++);
        if (f->row == f->batch->num_rows())
            f->batch.reset();
    }
    return arrow::Status::OK();
}

/* Returns the columns to read: all but raw bytes, such as images, which no reader of records
 * uses. */
std::vector<int> readable(const parquet::SchemaDescriptor &schema)
{
    std::vector<int> columns;
    for (int c = 0; c < schema.num_columns(); c++) {
        parquet::Type::type stored = schema.Column(c)->physical_type();
        bool bytes = stored == parquet::Type::BYTE_ARRAY ||
                     stored == parquet::Type::FIXED_LEN_BYTE_ARRAY;
        auto meaning = schema.Column(c)->logical_type();
        if (!bytes || (meaning && !meaning->is_none()))
            columns.push_back(c);
    }
    return columns;
}

/* Returns how many rows to decode at a time, by the mean of the group with the longest. */
int64_t rows_at_once(const parquet::FileMetaData &about)
{
    int64_t longest = 1;
    for (int g = 0; g < about.num_row_groups(); g++) {
        auto group = about.RowGroup(g);
        longest = std::max(
            longest, group->total_byte_size() / std::max(group->num_rows(), (int64_t)1));
    }
    return std::clamp((int64_t)BATCH / longest, (int64_t)1, (int64_t)ROWS);
}

arrow::Status begin(file *f, const char *path)
{
    ARROW_ASSIGN_OR_RAISE(auto in, arrow::io::ReadableFile::Open(path, &f->pool));
    ARROW_ASSIGN_OR_RAISE(int64_t bytes, in->GetSize());
    int64_t free = (int64_t)CHOIR__PARQUET_FREE_MIB << 20;
    f->pool.limit(free + CHOIR__PARQUET_MEMORY * bytes);
    f->out.limit((size_t)(free + CHOIR__PARQUET_LINES * bytes));
    parquet::arrow::FileReaderBuilder builder;
    ARROW_RETURN_NOT_OK(builder.Open(in, parquet::ReaderProperties(&f->pool)));
    auto about = builder.raw_reader()->metadata();
    parquet::ArrowReaderProperties properties;
    properties.set_batch_size(rows_at_once(*about));
    properties.set_pre_buffer(false); /* it would keep the whole file in memory */
    std::vector<int> wanted = readable(*about->schema()), groups;
    for (int g = 0; g < about->num_row_groups(); g++)
        groups.push_back(g);
    builder.memory_pool(&f->pool);
    ARROW_RETURN_NOT_OK(builder.properties(properties)->Build(&f->reader));
    ARROW_ASSIGN_OR_RAISE(f->batches, f->reader->GetRecordBatchReader(groups, wanted));
    return arrow::Status::OK();
}

void *open_file(const char *path, char *why)
try {
    auto f = std::make_unique<file>();
    arrow::Status status = begin(f.get(), path);
    if (status.ok())
        return f.release();
    explain(status.message().c_str(), why);
    return nullptr;
} catch (const std::exception &e) {
    explain(e.what(), why);
    return nullptr;
}

int64_t read_file(void *opaque, char *to, size_t room, char *why)
try {
    auto *f = static_cast<file *>(opaque);
    if (f->sent == f->out.text.size()) {
        arrow::Status status = fill(f);
        if (!status.ok()) {
            explain(status.message().c_str(), why);
            return -1;
        }
    }
    size_t bytes = std::min(room, f->out.text.size() - f->sent);
    memcpy(to, f->out.text.data() + f->sent, bytes);
    f->sent += bytes;
    return (int64_t)bytes;
} catch (const std::exception &e) {
    explain(e.what(), why);
    return -1;
}

void close_file(void *opaque)
{
    delete static_cast<file *>(opaque);
}

} // namespace

extern "C" __attribute__((visibility("default"))) const choir__parquet_plugin choir_plugin = {
    {CHOIR_VERSION, CHOIR__PARQUET_LAYOUT}, open_file, read_file, close_file};
