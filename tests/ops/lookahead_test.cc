// What threads fetch while they wait: the beginning of the product that came next in the step before.
#include "ops/lookahead.h"

#include <gtest/gtest.h>

#include "core/arena.h"

namespace millrace::ops {
namespace {

using Beginnings = std::vector<Lookahead::Beginning>;

constexpr int64_t kAtATime = 512;  // bytes that a call of poll() asks for

class LookaheadTest : public ::testing::Test {
 protected:
  /// A beginning of so many bytes, for each thread.
  Beginnings of(int64_t first, int64_t second = 0) const {
    const Lookahead::Beginning one = {{{{memory_.data(), first}, {memory_.data() + 4096, second}}}};
    return Beginnings(static_cast<size_t>(pool_.num_threads()), one);
  }
  /// Bytes that thread 0 finds to fetch. (The other polls for itself, while it waits.)
  static int64_t fetched(Lookahead& lookahead) {
    int64_t calls = 0;
    while (lookahead.poll(0)) ++calls;
    return calls * kAtATime;
  }

  ThreadPool pool_{2};
  AlignedBuffer memory_{1 << 16};
};

TEST_F(LookaheadTest, LearnsWhichProductFollowsWhich) {
  Lookahead lookahead(pool_, 1 << 14);
  EXPECT_FALSE(lookahead.poll(0));
  const std::vector<Beginnings> products = {of(1024), of(2048), of(4096, 4096)};
  lookahead.begin_step();
  for (const Beginnings& p : products) lookahead.product(p);
  for (int step = 0; step < 2; ++step) {
    lookahead.begin_step();
    lookahead.product(products[0]);
    EXPECT_EQ(fetched(lookahead), 2048);
    EXPECT_FALSE(lookahead.poll(0)) << "fetched once";
    lookahead.product(products[1]);
    EXPECT_EQ(fetched(lookahead), 8192);
    // Behind the last comes the next step's first.
    lookahead.product(products[2]);
    EXPECT_EQ(fetched(lookahead), 1024);
  }
  // Another order is learned anew, and nobody can say what comes behind a product that says nothing.
  lookahead.begin_step();
  lookahead.product(products[0]);
  lookahead.product({});
  lookahead.begin_step();
  lookahead.product(products[0]);
  EXPECT_EQ(fetched(lookahead), 0);
}

TEST_F(LookaheadTest, FetchesNoMoreThanTheCacheIsTo) {
  Lookahead lookahead(pool_, 1536);
  for (int step = 0; step < 2; ++step) {
    lookahead.begin_step();
    lookahead.product(of(1024, 4096));
  }
  EXPECT_EQ(fetched(lookahead), 1536);
}

TEST_F(LookaheadTest, ThreadsThatWaitPollAndStopWhenItEnds) {
  for (int round = 0; round < 50; ++round) {
    Lookahead lookahead(pool_, 1 << 14);
    lookahead.begin_step();
    for (int p = 0; p < 5; ++p) {
      lookahead.product(of(1024, 512));
      pool_.run([](int) {});
    }
  }
  pool_.run([](int) {});
}

}  // namespace
}  // namespace millrace::ops
