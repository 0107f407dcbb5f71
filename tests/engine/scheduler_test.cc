// The scheduler and the block manager without a model: random traces, each step checked against what must
// always hold.

#include "engine/scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "core/checked.h"
#include "core/error.h"
#include "core/random.h"
#include "engine/chunk_control.h"
#include "engine/kv/block_manager.h"
#include "testing/testing.h"

namespace millrace::engine {
namespace {

using State = SequenceView::State;

struct Client {
  int id = 0;
  State state = State::kWaiting;
  std::vector<TokenId> tokens;
  int32_t prompt = 0, answer = 0;  ///< wanted lengths
  int32_t computed = 0;
  double arrival = 0, rank = 0;
  bool flood = false;   ///< one of the newcomers that rank high
  int32_t answers = 1;  ///< it will fork into so many when its prompt is computed
  double deadline = 0;  ///< on the clock of `arrival`; 0: none
  BlockTable table, host;
  std::vector<uint64_t> hashes;
};

/// What a trace has beside requests with one answer.
struct Features {
  bool forks = false;      ///< several answers that share their prompt's blocks
  bool deadlines = false;  ///< some of which cannot be met
  bool held = false;       ///< who shares a prefix that is being computed waits for it
  bool flood = false;      ///< newcomers that rank high keep arriving until everyone else is done
  bool jumps = false;      ///< several tokens of an answer become known at once
};

/// One random world: some clients, a small cache, a policy. Time is the number of the step.
class Trace {
 public:
  Trace(uint64_t seed, const Features& features)
      : random_(seed), features_(features), policy_(static_cast<Policy>(random_.below(8))) {
    static const std::vector<std::vector<GroupShape>> kShapes = {
        {{GroupShape::Kind::kGrowing, 0}},
        {{GroupShape::Kind::kGrowing, 0}, {GroupShape::Kind::kWindow, 10}},
        {{GroupShape::Kind::kGrowing, 0}, {GroupShape::Kind::kState, 0}},
        {{GroupShape::Kind::kWindow, 7}},
        {{GroupShape::Kind::kState, 0}},
        {{GroupShape::Kind::kState, 0}, {GroupShape::Kind::kGrowing, 0}, {GroupShape::Kind::kWindow, 12}}};
    shapes_ = kShapes[random_.below(static_cast<uint32_t>(kShapes.size()))];
    budget_ = 4 + static_cast<int32_t>(random_.below(40));
    max_sequences_ = 1 + static_cast<int32_t>(random_.below(static_cast<uint32_t>(budget_ - 3)));
    for (const GroupShape& s : shapes_) {
      // Enough for the longest client alone, and for what a window needs beside one chunk.
      int64_t blocks = ceil_div(kLongest, kBlock) + random_.below(20);
      if (s.kind == GroupShape::Kind::kWindow)
        blocks = ceil_div(s.window + budget_, kBlock) + 2 + random_.below(30);
      if (s.kind == GroupShape::Kind::kState) blocks = 2 + random_.below(8);
      counts_.push_back(blocks);
    }
    blocks_ =
        std::make_unique<BlockManager>(shapes_, counts_, kBlock, SipKey{seed, 1}, random_.below(4) != 0);
    const uint32_t count = 1 + random_.below(14);
    for (uint32_t i = 0; i < count; ++i) {
      auto c = std::make_unique<Client>();
      c->id = static_cast<int>(i);
      c->prompt = 1 + static_cast<int32_t>(random_.below(kLongest / 2));
      c->answer = 1 + static_cast<int32_t>(random_.below(kLongest / 2 - 1));
      c->arrival = random_.below(40);
      const double deadline = random_.below(3) == 0 ? c->arrival + 5 + random_.below(1000) : 0;
      c->rank = rank_of(policy_, c->arrival, c->prompt + c->answer, static_cast<int32_t>(random_.below(3)),
                        deadline);
      // Few different tokens, so that prefixes are shared.
      const uint32_t family = random_.below(3);
      for (int32_t t = 0; t < c->prompt; ++t)
        c->tokens.push_back(t < 24 ? static_cast<TokenId>(family) : static_cast<TokenId>(random_.below(2)));
      if (features_.forks && random_.below(3) == 0) c->answers = 2 + static_cast<int32_t>(random_.below(3));
      if (features_.deadlines) c->deadline = deadline;
      clients_.push_back(std::move(c));
    }
  }

  /// Runs to the end; throws what is broken.
  void run() {
    int64_t step = 0;
    for (;;) {
      // Someone cancels now and then.
      if (random_.below(60) == 0) end(*clients_[random_.below(static_cast<uint32_t>(clients_.size()))]);
      const bool open = std::any_of(clients_.begin(), clients_.end(),
                                    [](const auto& c) { return c->id >= 0 && !c->flood; });
      // The flood goes on for as long as there is anyone whom it could starve.
      if (features_.flood && open && clients_.size() < 24) newcomer(step);
      one_step(step++);
      std::erase_if(clients_, [](const auto& c) { return c->id < 0; });
      if (clients_.empty()) break;
      check(step < 20000, "not everyone is done after {} steps", step);
    }
    verify();
    for (int g = 0; g < blocks_->num_groups(); ++g)
      check(blocks_->pool(g).available() == blocks_->pool(g).size(), "group {} leaks blocks", g);
  }

 private:
  static constexpr int32_t kBlock = 4, kLongest = 100;

  void verify() const {
    std::vector<const BlockTable*> tables;
    for (const auto& c : clients_) tables.push_back(&c->table);
    blocks_->verify(tables);
  }

  /// Short, of the best priority and with a near deadline: every policy but the first prefers it.
  void newcomer(int64_t step) {
    auto c = std::make_unique<Client>();
    c->id = 1000;
    c->flood = true;
    c->prompt = 1 + static_cast<int32_t>(random_.below(8));
    c->answer = 1 + static_cast<int32_t>(random_.below(4));
    c->arrival = static_cast<double>(step);
    c->rank = rank_of(policy_, c->arrival, c->prompt + c->answer, -1, c->arrival + 10);
    c->tokens.assign(static_cast<size_t>(c->prompt), 9);
    clients_.push_back(std::move(c));
  }

  void end(Client& c) {
    blocks_->release(c.table);
    c.host = {};
    c.id = -1;
    c.state = State::kWaiting;
  }

  void one_step(int64_t step) {
    SchedulerInput in;
    in.policy = policy_;
    in.token_budget = budget_;
    in.mixed_budget = 1 + static_cast<int32_t>(random_.below(static_cast<uint32_t>(budget_)));
    in.max_sequences = max_sequences_;
    in.static_batch = 3;
    in.batch_wait = 1;
    in.block_size = kBlock;
    in.row_tile = features_.jumps ? 1 << random_.below(4) : 1;
    in.groups = shapes_;
    in.available = blocks_->available();
    in.swap_bytes_left = random_.below(2) ? 1 << 20 : 0;
    std::vector<Client*> viewed;
    std::vector<uint64_t> coming;  // hashes of blocks that somebody inside computes
    for (const auto& c : clients_)
      if (c->id >= 0 && c->state == State::kRunning)
        for (size_t b = static_cast<size_t>(c->computed / kBlock); b < c->hashes.size(); ++b)
          coming.push_back(c->hashes[b]);
    for (const auto& c : clients_) {
      if (c->id < 0 || c->arrival > static_cast<double>(step)) continue;
      SequenceView v;
      v.state = c->state;
      v.rank = c->rank;
      v.waited = static_cast<double>(step) - c->arrival;
      v.tokens = static_cast<int32_t>(c->tokens.size());
      v.computed = c->computed;
      v.answering = c->state == State::kRunning && c->computed >= c->prompt;
      v.runnable = random_.below(30) != 0;
      v.idle = !v.runnable && (step + c->id) % 2 == 0;
      v.sequences = c->answers;
      if (c->deadline != 0) {
        v.deadline = std::max(c->deadline - static_cast<double>(step), 0.001);
        v.least_seconds = random_.below(8) == 0 ? v.deadline + 1 : v.deadline / 2;
      }
      if (c->state == State::kRunning) {
        for (size_t g = 0; g < shapes_.size(); ++g)
          v.table[g] = static_cast<int32_t>(c->table.blocks[g].size());
        v.copy = blocks_->needed(c->table, c->computed, std::min(c->computed + 1, v.tokens));
        for (size_t g = 0; g < shapes_.size(); ++g)
          if (shapes_[g].kind != GroupShape::Kind::kState && c->computed >= v.table[g] * kBlock)
            v.copy[g] = 0;
        v.exclusive = blocks_->exclusive(c->table);
        v.swap_bytes = 100;
        v.swap_seconds = random_.below(2);
        v.recompute_seconds = 0.5;
      } else if (c->state == State::kSwapped) {
        for (size_t g = 0; g < shapes_.size(); ++g) {
          v.table[g] = static_cast<int32_t>(c->host.blocks[g].size());
          v.take[g] = static_cast<int32_t>(std::count_if(c->host.blocks[g].begin(), c->host.blocks[g].end(),
                                                         [](int32_t b) { return b >= 0; }));
        }
      } else {
        blocks_->extend_hashes(7, c->tokens, c->hashes);
        const Match m = blocks_->match(c->tokens, c->hashes, v.tokens - 1);
        v.computed = m.tokens;
        for (size_t g = 0; g < shapes_.size(); ++g) {
          const bool state = shapes_[g].kind == GroupShape::Kind::kState;
          v.take[g] = m.tokens > 0 ? m.idle[g] : (state ? 1 : 0);
          v.table[g] = state ? 0 : m.tokens / kBlock;
        }
        const auto next = static_cast<size_t>(m.tokens / kBlock);
        v.held = features_.held && next < c->hashes.size() &&
                 std::find(coming.begin(), coming.end(), c->hashes[next]) != coming.end();
      }
      in.sequences.push_back(v);
      viewed.push_back(c.get());
    }
    StepPlan plan;
    plan_step(in, plan);
    check_plan(in, plan);
    carry_out(in, plan, viewed);
    verify();
    // Someone always moves when everybody may.
    const bool everyone =
        std::all_of(in.sequences.begin(), in.sequences.end(), [](const auto& v) { return v.runnable; });
    if (!plan.compute.empty() || in.sequences.empty() || !everyone) idle_steps_ = 0;
    check(++idle_steps_ < 60, "nothing was computed for 60 steps though everyone could run");
  }

  void check_plan(const SchedulerInput& in, const StepPlan& plan) const {
    int32_t tokens = 0, chunks = 0, decodes = 0, ahead = 0, sequences = 0, widest = 0, requests = 0;
    int32_t inside_before = 0;
    std::vector<int> role(in.sequences.size(), 0);
    for (const auto& p : plan.preempt) {
      const SequenceView& v = in.sequences[static_cast<size_t>(p.sequence)];
      check(role[static_cast<size_t>(p.sequence)]++ == 0, "preempted twice");
      check(v.state == State::kRunning, "what does not run was preempted");
      check(!p.swap || in.swap_bytes_left > 0, "swapped out without room in the host area");
      // Idle ones give their blocks up to anybody, who can run only to someone that ranks before it.
      if (v.idle) continue;
      const bool somebody = std::any_of(in.sequences.begin(), in.sequences.end(), [&](const SequenceView& w) {
        const bool inside = w.state == State::kRunning;
        const bool may_take = inside || in.policy == Policy::kPriority || in.policy == Policy::kDeadline;
        if (!v.runnable) return w.runnable && may_take;
        return (w.rank < v.rank || (inside && w.rank == v.rank && &w < &v)) && w.runnable && may_take;
      });
      check(somebody, "the best-ranked was preempted");
    }
    for (const int32_t i : plan.too_late) {
      const SequenceView& v = in.sequences[static_cast<size_t>(i)];
      check(role[static_cast<size_t>(i)]++ == 0, "too late, but planned or preempted");
      check(v.state == State::kWaiting && v.deadline != 0 && v.least_seconds > v.deadline,
            "a deadline that can be met was given up");
    }
    for (const auto& c : plan.compute) {
      const SequenceView& v = in.sequences[static_cast<size_t>(c.sequence)];
      check(role[static_cast<size_t>(c.sequence)]++ == 0, "planned twice, or planned and preempted");
      check(c.tokens >= 1 && v.computed + c.tokens <= v.tokens, "more tokens planned than there are");
      check(v.runnable, "what cannot run was planned");
      tokens += c.tokens;
      const bool decode = v.state == State::kRunning && (v.answering || v.tokens - v.computed == 1);
      if (decode) {
        ++decodes;
        ahead += c.tokens - 1;
      } else {
        chunks += c.tokens;
      }
    }
    int32_t running = 0, one_by_one = 0;
    for (const SequenceView& v : in.sequences) {
      const bool last = v.tokens - v.computed == 1;
      if (v.state != State::kRunning || !v.runnable || !(v.answering || last)) continue;
      ++running;
      one_by_one += last;
    }
    const auto cost = [&](int32_t rows) {
      return 16.0 + static_cast<double>(ceil_div(rows, in.row_tile) * in.row_tile);
    };
    if (ahead > 0 && one_by_one > 0)
      check(cost(decodes + ahead) <= 2.5 * cost(std::min(running, in.token_budget)),
            "{} known tokens beside {} decodes hold up who has none", ahead, decodes);
    check(tokens <= in.token_budget, "{} tokens planned, but the budget is {}", tokens, in.token_budget);
    if (decodes > 0) check(chunks <= in.mixed_budget, "{} prefill tokens beside decodes", chunks);
    for (size_t i = 0; i < in.sequences.size(); ++i) {
      const SequenceView& v = in.sequences[i];
      const bool preempted = std::any_of(plan.preempt.begin(), plan.preempt.end(),
                                         [&](auto& p) { return static_cast<size_t>(p.sequence) == i; });
      const bool late = std::any_of(plan.too_late.begin(), plan.too_late.end(),
                                    [&](int32_t l) { return static_cast<size_t>(l) == i; });
      const bool inside = v.state == State::kRunning ? !preempted : role[i] && !late;
      if (inside) {
        sequences += v.sequences;
        widest = std::max(widest, v.sequences);
        ++requests;
      }
      inside_before += v.state == State::kRunning;
      // Order: nobody that waits goes in while a better-ranked one, that could run, waits outside (max-batch
      // may pass over, for so long).
      const bool passed_over = in.policy == Policy::kMaxBatch && v.waited <= 30;
      if (v.state == State::kRunning || role[i] || !v.runnable || v.held || passed_over) continue;
      for (const auto& c : plan.compute) {
        const SequenceView& other = in.sequences[static_cast<size_t>(c.sequence)];
        if (other.state != State::kRunning)
          check(other.rank <= v.rank, "a worse-ranked sequence was admitted before a better one");
      }
    }
    // A request may be wider than the limit; it is alone then.
    check(sequences <= in.max_sequences || requests == 1 || forked_,
          "{} sequences inside, but the limit is {}", sequences, in.max_sequences);
    if (in.policy == Policy::kOneByOne && !forked_)
      check(requests <= 1, "one by one, but {} inside", requests);
    const bool batch = in.policy == Policy::kStatic || in.policy == Policy::kDynamic;
    for (const auto& c : plan.compute)
      check(!batch || inside_before == 0 ||
                in.sequences[static_cast<size_t>(c.sequence)].state == State::kRunning,
            "somebody joined a batch that runs");
  }

  void carry_out(const SchedulerInput& in, const StepPlan& plan, const std::vector<Client*>& viewed) {
    std::vector<BlockCopy> copies;
    std::vector<std::pair<int32_t, int32_t>> fresh;
    for (const int32_t i : plan.too_late) end(*viewed[static_cast<size_t>(i)]);
    for (const auto& p : plan.preempt) {
      Client& c = *viewed[static_cast<size_t>(p.sequence)];
      c.state = p.swap ? State::kSwapped : State::kWaiting;
      if (p.swap)
        c.host = c.table;
      else
        c.computed = 0;
      blocks_->release(c.table);
    }
    for (const auto& e : plan.compute) {
      Client& c = *viewed[static_cast<size_t>(e.sequence)];
      if (c.state == State::kWaiting) {
        c.computed = in.sequences[static_cast<size_t>(e.sequence)].computed;
        blocks_->attach(c.table, c.hashes, c.computed);
      }
    }
    for (const auto& e : plan.compute) {
      Client& c = *viewed[static_cast<size_t>(e.sequence)];
      if (c.state == State::kSwapped) blocks_->reallocate(c.host, c.table);
      c.host = {};
      c.state = State::kRunning;
      blocks_->grow(c.table, c.computed, c.computed + e.tokens, copies, fresh);
    }
    for (const auto& e : plan.compute) {
      Client& c = *viewed[static_cast<size_t>(e.sequence)];
      c.computed += e.tokens;
      blocks_->extend_hashes(7, c.tokens, c.hashes);
      blocks_->commit(c.table, c.tokens, c.hashes, c.computed);
      blocks_->checkpoint_states(c.table, c.tokens, c.hashes, c.computed, 1, copies);
      if (c.computed < static_cast<int32_t>(c.tokens.size())) continue;
      fork(c);
      const int32_t left = c.prompt + c.answer - static_cast<int32_t>(c.tokens.size());
      if (left == 0) {
        end(c);
        continue;
      }
      const bool jump = features_.jumps && random_.below(3) == 0;
      const int32_t known = std::min(left, jump ? 2 + static_cast<int32_t>(random_.below(20)) : 1);
      for (int32_t i = 0; i < known; ++i) c.tokens.push_back(static_cast<TokenId>(random_.below(2)));
    }
  }

  /// The prompt is computed: the other answers begin with its blocks.
  void fork(Client& c) {
    for (; c.answers > 1; --c.answers) {
      auto other = std::make_unique<Client>(c);
      other->answers = 1;
      other->table = {};
      other->answer = 1 + static_cast<int32_t>(random_.below(static_cast<uint32_t>(c.answer)));
      blocks_->fork(c.table, other->table);
      other->tokens.push_back(static_cast<TokenId>(random_.below(2)));
      forked_ = true;
      clients_.push_back(std::move(other));
    }
  }

  Random random_;
  Features features_;
  Policy policy_;
  std::vector<GroupShape> shapes_;
  std::vector<int64_t> counts_;
  std::unique_ptr<BlockManager> blocks_;
  std::vector<std::unique_ptr<Client>> clients_;
  int32_t budget_ = 0, max_sequences_ = 0;
  int idle_steps_ = 0;
  bool forked_ = false;  ///< answers of one request exist, which are outside and inside on their own
};

// 100,000 traces are run with MILLRACE_TEST_SCALE=50.
TEST(Scheduler, RandomTracesKeepEveryInvariant) {
  const int64_t count = millrace::testing::scaled(2000);
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t seed = millrace::testing::seed() + static_cast<uint64_t>(i);
    Random which(seed ^ 0x5eed);
    Features features;
    features.forks = which.below(3) == 0;
    features.deadlines = which.below(3) == 0;
    features.held = which.below(2) == 0;
    features.flood = which.below(4) == 0;
    features.jumps = which.below(3) == 0;
    try {
      Trace(seed, features).run();
    } catch (const Error& e) {
      FAIL() << "trace with seed " << seed << ": " << e.what();
    }
  }
}

// One that waits was admitted with blocks that somebody inside held; then that one was preempted for a third,
// and its blocks were counted as made available though they had found a new owner.
TEST(Scheduler, APreemptedSequencesSharedBlocksAreNotPromisedTwice) {
  EXPECT_NO_THROW(Trace(20276341, {}).run());

  SchedulerInput in;
  const GroupShape shape;
  in.groups = {&shape, 1};
  in.available[0] = 8;
  const auto add = [&](double rank, State state, int32_t tokens, int32_t computed) -> SequenceView& {
    SequenceView& v = in.sequences.emplace_back();
    v.rank = rank;
    v.state = state;
    v.tokens = tokens;
    v.computed = computed;
    v.table[0] = computed / 16;
    return v;
  };
  add(0, State::kWaiting, 65, 64);                    // finds four blocks: the victim's
  add(1, State::kRunning, 177, 32).exclusive[0] = 2;  // needs ten more blocks
  add(2, State::kRunning, 65, 64).exclusive[0] = 4;   // the victim
  StepPlan plan;
  plan_step(in, plan);
  // With the victim's four blocks counted, the second would fit; but the first has them.
  EXPECT_TRUE(plan.preempt.empty());
  ASSERT_EQ(plan.compute.size(), 2u);
  EXPECT_EQ(plan.compute[0].sequence, 0);
  EXPECT_EQ(plan.compute[1].sequence, 2);
}

// Answers of one request rank alike. When both lack blocks, one gives way.
TEST(Scheduler, EqualRanksDoNotWaitForEachOther) {
  EXPECT_NO_THROW(Trace(20285856, {.forks = true}).run());

  SchedulerInput in;
  const GroupShape shape;
  in.groups = {&shape, 1};
  for (int i = 0; i < 2; ++i) {
    SequenceView& v = in.sequences.emplace_back();
    v.state = State::kRunning;
    v.rank = 5;
    v.tokens = 33;
    v.computed = 32;
    v.table[0] = 2;
    v.exclusive[0] = 1;
  }
  StepPlan plan;
  plan_step(in, plan);
  ASSERT_EQ(plan.compute.size(), 1u);
  EXPECT_EQ(plan.compute[0].sequence, 0);
  ASSERT_EQ(plan.preempt.size(), 1u);
  EXPECT_EQ(plan.preempt[0].sequence, 1);
}

// A client that reads nothing must not keep others out.
TEST(Scheduler, IdleReadersGiveWayToWhoWaits) {
  SchedulerInput in;
  const GroupShape shape;
  in.groups = {&shape, 1};
  for (int i = 0; i < 3; ++i) {
    SequenceView& v = in.sequences.emplace_back();
    v.state = State::kRunning;
    v.rank = i;
    v.runnable = false;
    v.tokens = 33;
    v.computed = 32;
    v.table[0] = v.exclusive[0] = 2;
  }
  SequenceView& late = in.sequences.emplace_back();
  late.rank = 9;
  late.tokens = 10;
  in.available[0] = 1;  // who comes in leaves one for each that is inside
  StepPlan plan;
  plan_step(in, plan);
  EXPECT_TRUE(plan.preempt.empty() && plan.compute.empty());
  // As many idle ones go as it takes to get in, the worst-ranked first.
  in.sequences[1].idle = in.sequences[2].idle = true;
  plan_step(in, plan);
  ASSERT_EQ(plan.preempt.size(), 1u);
  EXPECT_EQ(plan.preempt[0].sequence, 2);
  ASSERT_EQ(plan.compute.size(), 1u);
  EXPECT_EQ(plan.compute[0].sequence, 3);
  // Blocks, but no place.
  in.available[0] = 100;
  in.max_sequences = 2;
  plan_step(in, plan);
  ASSERT_EQ(plan.preempt.size(), 2u);
  EXPECT_EQ(plan.compute.size(), 1u);
  // Were they not enough, none would go.
  in.max_sequences = 1;
  plan_step(in, plan);
  EXPECT_TRUE(plan.preempt.empty() && plan.compute.empty());
}

// A row beside sixteen decodes begins another tile of rows: forced tokens wait until they fill it, and nobody
// who has none waits long for theirs.
TEST(Scheduler, KnownTokensOfAnswersFillTiles) {
  SchedulerInput in;
  const GroupShape shape;
  in.groups = {&shape, 1};
  in.available[0] = 1000;
  in.row_tile = 16;
  in.mixed_budget = 4;
  const auto add = [&](int count, int32_t known) {
    for (int i = 0; i < count; ++i) {
      SequenceView& v = in.sequences.emplace_back();
      v.state = State::kRunning;
      v.answering = true;
      v.rank = static_cast<double>(in.sequences.size());
      v.computed = 32;
      v.tokens = 32 + known;
      v.table[0] = 2;
    }
  };
  const auto rows = [&] {
    StepPlan plan;
    plan_step(in, plan);
    EXPECT_EQ(plan.compute.size(), in.sequences.size());
    int32_t sum = 0;
    for (const StepPlan::Compute& c : plan.compute) {
      EXPECT_GE(c.tokens, 1);
      sum += c.tokens;
    }
    return sum;
  };
  add(15, 1);
  add(1, 2);
  EXPECT_EQ(rows(), 16);  // one forced token: not for a tile of its own
  in.sequences.back().tokens = 32 + 9;
  EXPECT_EQ(rows(), 16);  // eight: a row would be as cheap as without them
  in.sequences.back().tokens = 32 + 13;
  EXPECT_EQ(rows(), 28);  // twelve: a sixth cheaper
  in.sequences.back().tokens = 32 + 500;
  EXPECT_EQ(rows(), 64);  // whoever has none waits at most 2.5 times as long
  in.row_tile = 1;
  EXPECT_EQ(rows(), 64);
  in.row_tile = 16;
  in.sequences.clear();
  add(3, 1);
  add(1, 15);
  EXPECT_EQ(rows(), 16);  // two wait for the next step, which comes anyway
  in.sequences.erase(in.sequences.begin(), in.sequences.begin() + 3);
  in.sequences.back().tokens = 32 + 18;
  EXPECT_EQ(rows(), 18);  // there it would come for them alone
  in.sequences.clear();
  add(3, 5);
  EXPECT_EQ(rows(), 15);  // the tile is there anyway
  add(2, 30);
  EXPECT_EQ(rows(),
            75);  // who is left behind needs a step more, which costs more than the tile that two fill
  in.token_budget = 20;
  EXPECT_EQ(rows(), 20);
  in.token_budget = 6;
  EXPECT_EQ(rows(), 6);
  // A prompt's chunk has its own budget beside them.
  in.token_budget = 512;
  SequenceView& prompt = in.sequences.emplace_back();
  prompt.state = State::kRunning;
  prompt.rank = 100;
  prompt.tokens = 300;
  EXPECT_EQ(rows(), 75 + 4);
  // Without blocks for all of them nobody is put out: one at a time.
  in.sequences.pop_back();
  in.available[0] = 0;
  for (SequenceView& v : in.sequences) v.exclusive[0] = 2, v.table[0] = 3, v.tokens = 32 + 30;
  EXPECT_EQ(rows(), 5);
}

TEST(Scheduler, RanksFollowThePolicies) {
  EXPECT_LT(rank_of(Policy::kFcfs, 1, 999, 9, 2), rank_of(Policy::kFcfs, 2, 1, 0, 1));
  EXPECT_LT(rank_of(Policy::kSjf, 2, 10, 0, 0), rank_of(Policy::kSjf, 1, 1000, 0, 0));
  EXPECT_LT(rank_of(Policy::kPriority, 2, 10, -1, 0), rank_of(Policy::kPriority, 1, 10, 0, 0));
  EXPECT_LT(rank_of(Policy::kDeadline, 2, 10, 0, 5), rank_of(Policy::kDeadline, 1, 10, 0, 6));
  EXPECT_LT(rank_of(Policy::kDeadline, 2, 10, 0, 5), rank_of(Policy::kDeadline, 1, 10, 0, 0));
  // Ageing: whoever has waited long enough is first.
  EXPECT_LT(rank_of(Policy::kSjf, 0, 100000, 0, 0), rank_of(Policy::kSjf, 3000, 1, 0, 0));
  EXPECT_LT(rank_of(Policy::kPriority, 0, 1, 5, 0), rank_of(Policy::kPriority, 200, 1, 0, 0));
  for (const char* name :
       {"fcfs", "sjf", "priority", "deadline", "max-batch", "static", "dynamic", "one-by-one"})
    EXPECT_STREQ(policy_name(parse_policy(name)), name);
  EXPECT_THROW(parse_policy("lifo"), Error);
}

TEST(Scheduler, DeadlinesThatCannotBeMetAreNamed) {
  SchedulerInput in;
  const GroupShape shape;
  in.groups = {&shape, 1};
  in.available[0] = 100;
  SequenceView v;
  v.tokens = 10;
  v.deadline = 1;
  v.least_seconds = 2;
  in.sequences.push_back(v);
  StepPlan plan;
  plan_step(in, plan);
  EXPECT_EQ(plan.too_late, std::vector<int32_t>{0});
  EXPECT_TRUE(plan.compute.empty());
}

// A machine whose decodes take 30 ms and 1 ms each, and whose prompt rows take 3 ms and more with depth:
// whatever else happens, a step beside decodes takes at most twice as long.
TEST(ChunkControl, KeepsMixedStepsShort) {
  Random random(millrace::testing::seed());
  ChunkControl control;
  EXPECT_EQ(control.rows(8, 2, 4), -1);
  const auto decode = [](int64_t n) { return 0.030 + 0.001 * static_cast<double>(n); };
  const auto noise = [&] { return 1 + 0.1 * (random.uniform_double() - 0.5); };
  control.record(0, 256, 0.9);
  for (int i = 0; i < 50; ++i) control.record(8, 0, decode(8) * noise());
  double depth = 0;
  int steps = 0;
  while (depth < 4000) {
    const int32_t rows = control.rows(8, 2, 4);
    ASSERT_GE(rows, 4);
    const double seconds = (decode(8) + rows * (0.003 + 1e-6 * depth)) * noise();
    EXPECT_LE(seconds, 2.3 * decode(8)) << "at depth " << depth;
    control.record(8, rows, seconds);
    depth += rows;
    ++steps;
  }
  EXPECT_LT(steps, 4000 / 4);
  // One step that something else held up changes little.
  const int32_t before = control.rows(8, 2, 4);
  control.record(8, 0, 5.0);
  EXPECT_LE(control.rows(8, 2, 4), before * 5 / 4 + 1);
  // Numbers of decodes never seen borrow from the nearest.
  EXPECT_GE(control.rows(1, 2, 4), 4);
  EXPECT_GE(control.rows(300, 2, 4), 4);
}

/// Where any rows of prompts cost much, however few, fewer of them are no way out: the control used to take
/// the price of the first row for that of each, asked for still fewer, and found them dearer still.
TEST(ChunkControl, FewRowsAreNoWayOut) {
  Random random(millrace::testing::seed());
  ChunkControl control;
  const auto noise = [&] { return 1 + 0.1 * (random.uniform_double() - 0.5); };
  const auto added = [](int64_t rows) { return 0.040 + 0.0013 * static_cast<double>(rows); };
  const double decode = 0.050;
  control.record(0, 256, added(256));
  control.record(0, 32, added(32));
  for (int i = 0; i < 20; ++i) control.record(16, 0, decode * noise());
  for (int i = 0; i < 300; ++i) {
    // There is no room for what the first row takes, so half as many are taken as would double that.
    const int32_t few = control.rows(16, 1.7, 4);
    EXPECT_GE(few, 8) << "step " << i;
    EXPECT_LE(few, 40) << "step " << i;
    const int32_t many = control.rows(16, 6.6, 4);
    EXPECT_GE(many, 120) << "step " << i;
    EXPECT_LE(many, 260) << "step " << i;
    control.record(16, few, (decode + added(few)) * noise());
  }
}

TEST(BlockManager, SipHashMatchesItsAuthorsVectors) {
  SipKey key;
  uint8_t bytes[16], message[8];
  for (uint8_t i = 0; i < 16; ++i) bytes[i] = i;
  std::memcpy(&key.k0, bytes, 8);
  std::memcpy(&key.k1, bytes + 8, 8);
  for (uint8_t i = 0; i < 8; ++i) message[i] = i;
  EXPECT_EQ(siphash(key, message, 0), 0x726fdb47dd0e0e31u);
  EXPECT_EQ(siphash(key, message, 8), 0x93f5f5799a932462u);
}

TEST(BlockManager, CollidingHashesAreNotBelieved) {
  // The hashes are given, so another text can be given the same ones: its tokens differ, and it is not found.
  BlockManager blocks({GroupShape{}}, {8}, 4, SipKey{}, true);
  const std::vector<TokenId> a = {1, 2, 3, 4, 5, 6, 7, 8, 9}, b = {1, 2, 3, 4, 5, 6, 7, 0, 9};
  std::vector<uint64_t> hashes;
  blocks.extend_hashes(1, a, hashes);
  ASSERT_EQ(hashes.size(), 2u);
  BlockTable table;
  std::vector<BlockCopy> copies;
  std::vector<std::pair<int32_t, int32_t>> fresh;
  blocks.attach(table, hashes, 0);
  blocks.grow(table, 0, 9, copies, fresh);
  blocks.commit(table, a, hashes, 9);
  EXPECT_EQ(blocks.match(a, hashes, 8).tokens, 8);
  EXPECT_EQ(blocks.match(b, hashes, 8).tokens, 4);
  blocks.release(table);
  const std::vector<const BlockTable*> none;
  blocks.verify(none);
  EXPECT_EQ(blocks.match(a, hashes, 8).idle[0], 2);
}

}  // namespace
}  // namespace millrace::engine
