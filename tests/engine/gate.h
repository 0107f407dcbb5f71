// Lets a test's requests meet in one step.
#pragma once

#include <future>
#include <memory>

#include "engine/request.h"

namespace millrace::engine::testing {

/// Holds the engine's thread at a request's first token until open(): those sent meanwhile meet in one step,
/// however long the test's own thread has to wait for a processor.
class Gate {
 public:
  std::unique_ptr<TokenWatcher> watcher() const { return std::make_unique<Watcher>(opened_); }
  void open() { promise_.set_value(); }

 private:
  struct Watcher : TokenWatcher {
    explicit Watcher(std::shared_future<void> f) : opened(std::move(f)) {}
    bool push(TokenId) override {
      opened.wait();
      return false;
    }
    std::unique_ptr<TokenWatcher> fork() const override { return std::make_unique<Watcher>(opened); }
    std::shared_future<void> opened;
  };
  std::promise<void> promise_;
  std::shared_future<void> opened_ = promise_.get_future().share();
};

}  // namespace millrace::engine::testing
