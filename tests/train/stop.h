// For tests of signals: one that comes when a run has got somewhere.
#ifndef ZERO3D_TESTS_TRAIN_STOP_H
#define ZERO3D_TESTS_TRAIN_STOP_H

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "run.h"

// On the last rank: SIGUSR1 to this process as soon as `path` is there and not empty.
class SignalWhen {
  public:
    explicit SignalWhen(const std::string &path);
    ~SignalWhen();
    SignalWhen(const SignalWhen &) = delete;
    SignalWhen &operator=(const SignalWhen &) = delete;

  private:
    std::atomic<bool> over{false};
    std::thread watcher;
};

#endif
