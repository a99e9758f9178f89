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
    explicit SignalWhen(const std::string &path) {
        if (z3d_world_rank(world) != z3d_world_size(world) - 1) return;
        watcher = std::thread([this, path] {
            std::error_code none;
            while (!over) {
                auto size = std::filesystem::file_size(path, none);
                if (!none && size > 0) {
                    kill(getpid(), SIGUSR1);
                    return;
                }
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
        });
    }
    ~SignalWhen() {
        over = true;
        if (watcher.joinable()) watcher.join();
    }
    SignalWhen(const SignalWhen &) = delete;
    SignalWhen &operator=(const SignalWhen &) = delete;

  private:
    std::atomic<bool> over{false};
    std::thread watcher;
};

#endif
