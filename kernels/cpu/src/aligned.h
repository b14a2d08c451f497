// Arrays aligned to cache lines that grow, zero at first, and never shrink.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace octavo {

template <class T>
class AlignedArray {
public:
  AlignedArray() = default;
  explicit AlignedArray(int64_t size) { reserve(size); }

  // Room for `size` elements. What was there is lost if it grows. Throws std::bad_alloc.
  void reserve(int64_t size) {
    if (size <= size_) return;
    const size_t bytes = (static_cast<size_t>(size) * sizeof(T) + 63) / 64 * 64;
    memory_.reset();
    size_ = 0;
    memory_.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
    if (memory_ == nullptr) throw std::bad_alloc();
    memset(static_cast<void*>(memory_.get()), 0, bytes);
    size_ = size;
  }

  T* data() const { return memory_.get(); }
  T* operator+(int64_t i) const { return memory_.get() + i; }
  T& operator[](int64_t i) const { return memory_[i]; }

private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T[], Free> memory_;
  int64_t size_ = 0;
};

}  // namespace octavo
