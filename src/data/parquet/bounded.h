/* Bounds on what a Parquet file becomes: a few hundred bytes can stand for gigabytes, by pages
 * that are compressed, and by values that a dictionary holds once for many rows. Both bounds
 * are in proportion to the file, beside an amount that is free. */
#ifndef CHOIR_DATA_PARQUET_BOUNDED_H
#define CHOIR_DATA_PARQUET_BOUNDED_H

#include <arrow/memory_pool.h>
#include <arrow/status.h>

#include <stdexcept>
#include <string>
#include <string_view>

enum {
    CHOIR__PARQUET_FREE_MIB = 64, /* limits of memory and of lines */
    CHOIR__PARQUET_MEMORY = 64,   /* further bytes of memory per byte of the file */
    CHOIR__PARQUET_LINES = 1000,  /* further bytes of lines per byte of the file */
};

/* Gives Arrow memory up to a limit; beyond it reading ends with an error. */
class choir__bounded_pool final : public arrow::MemoryPool
{
  public:
    using arrow::MemoryPool::Allocate;
    using arrow::MemoryPool::Free;
    using arrow::MemoryPool::Reallocate;

    void limit(int64_t bytes)
    {
        most_ = bytes;
    }

    arrow::Status Allocate(int64_t size, int64_t alignment, uint8_t **out) override
    {
        ARROW_RETURN_NOT_OK(check(size));
        return pool_->Allocate(size, alignment, out);
    }
    arrow::Status Reallocate(
        int64_t old_size, int64_t size, int64_t alignment, uint8_t **at) override
    {
        ARROW_RETURN_NOT_OK(check(size - old_size));
        return pool_->Reallocate(old_size, size, alignment, at);
    }
    void Free(uint8_t *buffer, int64_t size, int64_t alignment) override
    {
        pool_->Free(buffer, size, alignment);
    }
    int64_t bytes_allocated() const override
    {
        return pool_->bytes_allocated();
    }
    int64_t max_memory() const override
    {
        return pool_->max_memory();
    }
    int64_t total_bytes_allocated() const override
    {
        return pool_->total_bytes_allocated();
    }
    int64_t num_allocations() const override
    {
        return pool_->num_allocations();
    }
    std::string backend_name() const override
    {
        return pool_->backend_name();
    }

  private:
    arrow::Status check(int64_t more) const
    {
        if (more <= most_ - pool_->bytes_allocated())
            return arrow::Status::OK();
        return arrow::Status::OutOfMemory("a part of it becomes more than ", most_,
            " bytes in memory: expected at most ", CHOIR__PARQUET_FREE_MIB, " MiB and ",
            CHOIR__PARQUET_MEMORY, " bytes per byte of the file; write it with smaller row ",
            "groups, or as JSON lines");
    }

    int64_t most_ = (int64_t)CHOIR__PARQUET_FREE_MIB << 20;
    arrow::ProxyMemoryPool own_{arrow::default_memory_pool()}; /* counts this file's alone */
    arrow::MemoryPool *pool_ = &own_;
};

/* Lines of JSON. Their bytes are limited. */
class choir__bounded_lines
{
  public:
    std::string text;

    void limit(size_t bytes)
    {
        left_ = most_ = bytes;
    }

    choir__bounded_lines &operator+=(std::string_view more)
    {
        if (more.size() > left_)
            throw std::length_error("its rows have more than " + std::to_string(most_) +
                                    " bytes as text: expected at most " +
                                    std::to_string(CHOIR__PARQUET_FREE_MIB) + " MiB and " +
                                    std::to_string(CHOIR__PARQUET_LINES) +
                                    " bytes per byte of the file; write it as JSON lines");
        left_ -= more.size();
        text += more;
        return *this;
    }
    choir__bounded_lines &operator+=(char c)
    {
        return *this += std::string_view(&c, 1);
    }

  private:
    size_t left_ = 0, most_ = 0;
};

#endif
