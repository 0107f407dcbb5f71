// The prefix cache over restarts: the file by itself, cut off everywhere and damaged anywhere, and the engine
// with a cache folder.

#include "engine/kv/cache_file.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <thread>

#include "core/error.h"
#include "core/random.h"
#include "engine/engine.h"
#include "engine/fake_model.h"
#include "testing/testing.h"

namespace millrace::engine {
namespace {

using testing::FakeModel;
using testing::FakeOptions;

constexpr int32_t kBlock = 4, kBytes = 24;

/// A block manager with memory of its own: a block holds its own tokens and those before them, hashed.
struct World {
  explicit World(std::vector<GroupShape> s, SipKey k = {3, 4}, int64_t blocks = 40)
      : shapes(std::move(s)),
        key(k),
        manager(shapes, std::vector<int64_t>(shapes.size(), blocks), kBlock, k, true),
        memory(shapes.size(), std::vector<std::array<std::byte, kBytes>>(static_cast<size_t>(blocks))) {
    identity.model = 77;
    identity.block_size = kBlock;
    identity.shapes = shapes;
    identity.block_bytes.assign(shapes.size(), kBytes);
  }

  ReadBlock reader() {
    return [this](int g, int32_t b, std::byte* out) {
      std::memcpy(out, memory[static_cast<size_t>(g)][static_cast<size_t>(b)].data(), kBytes);
    };
  }
  WriteBlock writer() {
    return [this](int g, int32_t b, const std::byte* in) {
      std::memcpy(memory[static_cast<size_t>(g)][static_cast<size_t>(b)].data(), in, kBytes);
    };
  }

  static std::array<std::byte, kBytes> contents(int group, std::span<const TokenId> tokens, size_t whole) {
    std::array<std::byte, kBytes> bytes{};
    const uint64_t hash =
        siphash({static_cast<uint64_t>(group), 9}, tokens.data(), whole * kBlock * sizeof(TokenId));
    for (int i = 0; i < 3; ++i) std::memcpy(bytes.data() + 8 * i, &hash, 8);
    return bytes;
  }

  /// Computes a text from where the cache leaves off, writes its blocks and lets them go.
  void run(std::string_view salt, const std::vector<TokenId>& tokens) {
    std::vector<uint64_t> hashes;
    manager.extend_hashes(manager.root_hash("", salt), tokens, hashes);
    const auto length = static_cast<int32_t>(tokens.size());
    const Match m = manager.match(tokens, hashes, length - 1);
    BlockTable table;
    std::vector<BlockCopy> copies;
    std::vector<std::pair<int32_t, int32_t>> fresh;
    manager.attach(table, hashes, m.tokens);
    for (int32_t done = m.tokens; done < length; done = std::min(done + kBlock, length)) {
      const int32_t target = std::min(done + kBlock, length);
      copies.clear();
      manager.grow(table, done, target, copies, fresh);
      copy(copies);
      for (size_t g = 0; g < shapes.size(); ++g) {
        const bool state = shapes[g].kind == GroupShape::Kind::kState;
        const int32_t block = table.blocks[g][state ? 0 : static_cast<size_t>(done / kBlock)];
        memory[g][static_cast<size_t>(block)] =
            contents(static_cast<int>(g), tokens, static_cast<size_t>(target / kBlock));
      }
      manager.commit(table, tokens, hashes, target);
      copies.clear();
      manager.checkpoint_states(table, tokens, hashes, target, 0, copies);
      copy(copies);
    }
    manager.release(table);
  }

  void copy(const std::vector<BlockCopy>& copies) {
    for (const BlockCopy& c : copies)
      memory[static_cast<size_t>(c.group)][static_cast<size_t>(c.to)] =
          memory[static_cast<size_t>(c.group)][static_cast<size_t>(c.from)];
  }

  /// Tokens of a text that are found; what is found must be right.
  int32_t found(std::string_view salt, const std::vector<TokenId>& tokens) {
    std::vector<uint64_t> hashes;
    manager.extend_hashes(manager.root_hash("", salt), tokens, hashes);
    const Match m = manager.match(tokens, hashes, static_cast<int32_t>(tokens.size()) - 1);
    BlockTable table;
    manager.attach(table, hashes, m.tokens);
    for (size_t g = 0; g < table.blocks.size(); ++g)
      for (size_t i = 0; i < table.blocks[g].size(); ++i) {
        const int32_t block = table.blocks[g][i];
        if (block < 0) continue;
        const bool state = shapes[g].kind == GroupShape::Kind::kState;
        const size_t whole = state ? static_cast<size_t>(m.tokens / kBlock) : i + 1;
        EXPECT_EQ(memory[g][static_cast<size_t>(block)], contents(static_cast<int>(g), tokens, whole));
      }
    manager.release(table);
    return m.tokens;
  }

  CacheFileSize save(const std::filesystem::path& path, uint64_t most = 1 << 20) {
    return save_prefix_cache(path, identity, key, manager, reader(), most);
  }

  void verify() const { manager.verify({}); }

  std::vector<GroupShape> shapes;
  SipKey key;
  BlockManager manager;
  std::vector<std::vector<std::array<std::byte, kBytes>>> memory;
  CacheIdentity identity;
};

const std::vector<std::vector<GroupShape>> kShapes = {
    {{GroupShape::Kind::kGrowing, 0}},
    {{GroupShape::Kind::kGrowing, 0}, {GroupShape::Kind::kWindow, 10}},
    {{GroupShape::Kind::kGrowing, 0}, {GroupShape::Kind::kState, 0}},
    {{GroupShape::Kind::kState, 0}}};

std::vector<std::vector<TokenId>> texts() {
  std::vector<std::vector<TokenId>> texts(4);
  for (int32_t i = 0; i < 30; ++i)
    for (int32_t t = 0; t < 4; ++t) texts[static_cast<size_t>(t)].push_back(i < 6 * t ? i : 100 * t + i);
  return texts;
}

World restored(const World& old, const std::filesystem::path& path, SipKey key, int64_t blocks = 40) {
  World w(old.shapes, key, blocks);
  auto file = CacheFileReader::open(path, w.identity);
  if (!file) return w;
  while (file->next(w.manager, w.writer())) {
  }
  return w;
}

TEST(CacheFile, BringsBackWhatWasThere) {
  const millrace::testing::TempDir dir;
  for (const auto& shapes : kShapes) {
    World before(shapes);
    for (const auto& t : texts()) before.run("", t);
    before.run("salted", texts()[0]);
    std::vector<int32_t> expected;
    for (const auto& t : texts()) expected.push_back(before.found("", t));
    EXPECT_GT(expected[0], 20);
    const CacheFileSize size = before.save(dir / "f");
    EXPECT_EQ(size.nodes, before.manager.cached_nodes());
    EXPECT_EQ(size.bytes, std::filesystem::file_size(dir / "f"));
    World after = restored(before, dir / "f", before.key);
    after.verify();
    after.save(dir / "g");
    EXPECT_EQ(after.manager.cached_nodes(), size.nodes);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(after.found("", texts()[i]), expected[i]);
    EXPECT_EQ(after.found("salted", texts()[0]), before.found("salted", texts()[0]));
    EXPECT_EQ(after.found("other", texts()[0]), 0);
    // The order of use, too: saved again at once, the file is the same.
    if (shapes.size() == 1) {
      EXPECT_EQ(millrace::testing::read_file(dir / "f"), millrace::testing::read_file(dir / "g"));
    }
  }
}

TEST(CacheFile, KeepsToItsBoundsAndKeepsTheLatelyUsed) {
  const millrace::testing::TempDir dir;
  World before(kShapes[0]);
  const std::vector<TokenId> a(20, 1), b(20, 2), c(20, 3);
  before.run("", a);
  before.run("", b);
  before.run("", c);
  before.run("", a);  // used last
  const CacheFileSize whole = before.save(dir / "f");
  const CacheFileSize half = before.save(dir / "f", whole.bytes / 2);
  EXPECT_LE(half.bytes, whole.bytes / 2);
  World after = restored(before, dir / "f", before.key);
  EXPECT_EQ(after.found("", a), 16);
  EXPECT_EQ(after.found("", b), 0);
  // Few blocks: as many as there is room for, from the front; nothing is pushed out.
  before.save(dir / "f");
  World tight = restored(before, dir / "f", before.key, 5);
  tight.verify();
  EXPECT_EQ(tight.found("", a), 16);
  EXPECT_EQ(tight.manager.cached_nodes(), 5);
}

TEST(CacheFile, CutOffOrDamagedAnywhereItHarmsNothing) {
  const millrace::testing::TempDir dir;
  Random random(millrace::testing::seed());
  for (const auto& shapes : kShapes) {
    World before(shapes);
    std::vector<std::vector<TokenId>> two = {texts()[0], texts()[1]};
    for (auto& t : two) t.resize(9);
    for (const auto& t : two) before.run("", t);
    before.save(dir / "f");
    const std::string bytes = millrace::testing::read_file(dir / "f");
    const auto try_it = [&](const std::string& changed) {
      millrace::testing::write_file(dir / "g", changed);
      try {
        World after = restored(before, dir / "g", before.key);
        after.verify();
        // Whatever is found is right: found() compares the blocks.
        for (const auto& t : two) after.found("", t);
        return after.manager.cached_nodes();
      } catch (const Error& e) {
        EXPECT_NE(e.code(), ErrorCode::kInternal) << e.what();
        return int64_t{-1};
      }
    };
    EXPECT_EQ(try_it(bytes), before.manager.cached_nodes());
    int64_t last = -1;
    for (size_t n = 0; n < bytes.size(); n += shapes.size() == 1 ? 1 : 5) {
      const int64_t nodes = try_it(bytes.substr(0, n));
      EXPECT_GE(nodes, last) << n;
      EXPECT_LT(nodes, before.manager.cached_nodes());
      last = nodes;
    }
    for (int64_t i = millrace::testing::scaled(60); i > 0; --i) {
      std::string changed = bytes;
      for (uint32_t flips = 1 + random.below(3); flips > 0; --flips)
        changed[random.below(static_cast<uint32_t>(changed.size()))] ^=
            static_cast<char>(1u << random.below(8));
      if (changed == bytes) continue;
      EXPECT_LT(try_it(changed), before.manager.cached_nodes());
    }
    EXPECT_LE(try_it(bytes + bytes), before.manager.cached_nodes());
  }
}

TEST(CacheFile, OthersAreRefusedWithASentence) {
  const millrace::testing::TempDir dir;
  World world(kShapes[1]);
  world.run("", texts()[0]);
  world.save(dir / "f");
  EXPECT_FALSE(CacheFileReader::open(dir / "missing", world.identity));
  const auto refused = [&](const CacheIdentity& identity) {
    try {
      CacheFileReader::open(dir / "f", identity);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused(world.identity), "");
  std::vector<CacheIdentity> others(5, world.identity);
  others[0].model ^= 1;
  others[1].kv_type = 3;
  others[2].block_size = 8;
  others[3].shapes[1].window = 11;
  others[4].block_bytes[0] = 48;
  for (const CacheIdentity& other : others)
    EXPECT_NE(refused(other).find("another model, cache type or block size"), std::string::npos);
  const auto permissions = std::filesystem::status(dir / "f").permissions();
  EXPECT_EQ(permissions & std::filesystem::perms::all,
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_THROW(world.save(dir / "no" / "such" / "folder"), Error);
}

struct Outcome {
  std::vector<int32_t> tokens;
  int32_t cached = 0;
};

Outcome run(Engine& engine, const std::vector<int32_t>& prompt, const char* salt = "") {
  Request r;
  r.prompt = prompt;
  r.sampling.temperature = 0;
  r.generation.max_tokens = 30;
  r.cache_salt = salt;
  Outcome out;
  const Event done = generate(engine, std::move(r), [&](const Event& e) {
    if (e.kind == Event::Kind::kToken) out.tokens.push_back(e.token);
    return true;
  });
  out.cached = done.usage.cached_tokens;
  return out;
}

std::unique_ptr<Engine> open_engine(const FakeOptions& model, const millrace::testing::TempDir& dir) {
  EngineOptions o;
  o.threads = 1;
  o.kv_memory_bytes = 1 << 20;
  o.max_sequences = 16;
  o.token_budget = 64;
  o.cache_dir = (dir / "made").string();
  return std::make_unique<Engine>(std::make_unique<FakeModel>(model), o);
}

/// Restoring runs beside serving: waits until it has gone as far as it will.
Outcome run_warm(Engine& engine, const std::vector<int32_t>& prompt) {
  for (int i = 0; i < 200; ++i) {
    if (engine.stats().blocks_cached > 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return run(engine, prompt);
}

TEST(CacheDir, TheNextEngineFindsWhatTheLastOneComputed) {
  for (const int kind : {0, 1, 2}) {
    const millrace::testing::TempDir dir;
    FakeOptions model;
    if (kind == 1) model.window = 40;
    if (kind == 2) model.state = true;
    std::vector<int32_t> prompt;
    for (int32_t i = 0; i < 200; ++i) prompt.push_back((i * 7) % 61);
    auto engine = open_engine(model, dir);
    const Outcome first = run(*engine, prompt), salted = run(*engine, prompt, "s");
    EXPECT_EQ(first.cached, 0);
    EXPECT_EQ(salted.cached, 0);
    engine.reset();
    engine = open_engine(model, dir);
    const Outcome second = run_warm(*engine, prompt);
    EXPECT_EQ(second.cached, 192);
    EXPECT_EQ(second.tokens, first.tokens);
    EXPECT_EQ(run(*engine, prompt, "s").cached, 192);
    EXPECT_EQ(run(*engine, prompt, "t").cached, 0);
    EXPECT_GT(engine->stats().prefix_hit_tokens, 0u);
    engine.reset();

    // Another model does not take it, and leaves its own in its place.
    FakeOptions other = model;
    other.context_length = 2048;
    engine = open_engine(other, dir);
    EXPECT_EQ(run(*engine, prompt).cached, 0);
    engine.reset();
    engine = open_engine(other, dir);
    EXPECT_EQ(run_warm(*engine, prompt).cached, 192);
    engine.reset();

    // A damaged file: served all the same, with the right tokens.
    const auto file = dir.path() / "made" / "prefix.cache";
    std::string bytes = millrace::testing::read_file(file);
    bytes[bytes.size() / 2] ^= 1;
    millrace::testing::write_file(file, bytes);
    engine = open_engine(other, dir);
    EXPECT_EQ(run_warm(*engine, prompt).tokens, first.tokens);
    engine.reset();
  }
}

TEST(CacheDir, AFolderThatCannotBeWrittenIsOnlyLogged) {
  const millrace::testing::TempDir dir;
  millrace::testing::write_file(dir / "made", "a file, no folder");
  auto engine = open_engine(FakeOptions{}, dir);
  EXPECT_EQ(run(*engine, {1, 2, 3}).tokens.size(), 30u);
}

}  // namespace
}  // namespace millrace::engine
