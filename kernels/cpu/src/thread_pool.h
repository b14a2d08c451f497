// The threads that compute a step. The caller is one of them.
//
// A job is `count` items. Each thread has its own run of neighbouring items, walks it from the
// front (one sequential stream through the weights) and then takes what others have left:
//
//   items    0 1 2 3 4 5 | 6 7 8 9 10 11        thread 0 | thread 1
//            ──▶             ──▶                 thread 1 asleep: thread 0 goes on with 6, 7, …
//
// So a thread that the operating system has taken off its core holds up no more than the item that
// it was at. Which thread computes an item changes no bit of it.
//
// Workers spin for a short time after a job, since a step is hundreds of jobs, then give way to all
// who want the core until the next step may come, and then sleep: what else runs on the machine
// needs the cores.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace octavo {

class ThreadPool {
public:
  explicit ThreadPool(int num_threads);  // including the caller; at least 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // CPU time that the workers have taken so far, waiting included; the caller's is not in it.
  double workers_cpu_seconds() const;

  // Calls work(item, thread) for each item in [0, count), thread in [0, num_threads()). Returns
  // when all are done. One caller at a time; `work` neither throws nor calls run.
  template <class Work>
  void run(int64_t count, const Work& work) {
    if (count <= 0) return;
    if (count == 1 || num_threads_ == 1) {
      for (int64_t i = 0; i < count; i++) work(i, 0);
      return;
    }
    run_job(count, {&work, [](const void* w, int64_t item, int thread) {
                      (*static_cast<const Work*>(w))(item, thread);
                    }});
  }

private:
  struct Job {
    const void* work;
    void (*call)(const void* work, int64_t item, int thread);
  };
  struct alignas(64) Range {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  void run_job(int64_t count, Job job);
  void take_items(int thread);
  void serve(int thread);
  uint64_t next_open_gate(uint64_t seen);

  const int num_threads_;
  std::unique_ptr<Range[]> ranges_;
  Job job_{};
  // [ job number : 32 | 1 while it is open : 1 | workers inside : 31 ]
  alignas(64) std::atomic<uint64_t> gate_{0};
  alignas(64) std::atomic<int32_t> num_sleeping_{0};
  std::atomic<uint32_t> wake_count_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace octavo
