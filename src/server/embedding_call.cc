// Vectors of texts: one request of the engine for each.
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "server/call.h"

namespace millrace::server {

using engine::Event;
using nlohmann::json;

namespace {

std::string base64(const std::vector<float>& values) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t word = 0;
    for (size_t j = 0; j < 3; ++j)
      word = word << 8 | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0);
    for (size_t j = 0; j < 4; ++j) out += i + j <= bytes.size() ? kDigits[word >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

class EmbeddingCall : public Call, public std::enable_shared_from_this<EmbeddingCall> {
 public:
  EmbeddingCall(PreparedEmbedding request, CallContext context, std::shared_ptr<HttpResponse> response)
      : r_(std::move(request)), context_(std::move(context)), response_(std::move(response)) {}

  void start() {
    for (const PromptTokens& p : r_.prompts) {
      engine::Request request;
      request.task = engine::Task::kEmbed;
      request.prompt = p.tokens;
      request.pooling = r_.request.pooling;
      request.tenant = context_.tenant;
      parts_.push_back(context_.model->engine->submit(std::move(request)));
    }
    vectors_.resize(parts_.size());
    response_->post([self = shared_from_this()] {
      self->response_->on_close([self] {
        self->cancel();
        self->finish();
      });
      self->pump();
    });
    const std::weak_ptr<EmbeddingCall> weak = weak_from_this();
    for (const auto& p : parts_)
      p->set_listener([weak, response = response_] {
        response->post([weak] {
          if (const auto self = weak.lock()) self->pump();
        });
      });
  }

  void cancel() override {
    for (const auto& p : parts_) p->cancel();
  }

 private:
  void finish() {
    if (finished_) return;
    finished_ = true;
    for (const auto& p : parts_) p->set_listener({});
    response_->on_close({});
    if (context_.on_end) context_.on_end();
  }

  void pump() {
    Event e;
    for (size_t i = 0; i < parts_.size() && !finished_; ++i)
      while (!finished_ && parts_[i]->try_next(e)) {
        if (e.kind == Event::Kind::kEmbedding) vectors_[i] = std::move(e.embedding);
        if (e.kind == Event::Kind::kDone) {
          ++done_;
          tokens_ += e.usage.prompt_tokens;
        }
        if (e.kind == Event::Kind::kError) {
          cancel();
          send_error(*response_, Error(static_cast<ErrorCode>(e.error_code), e.error),
                     api::Endpoint::kCompletion, context_.headers);
          finish();
        }
      }
    if (finished_ || done_ < parts_.size()) return;
    json data = json::array();
    for (size_t i = 0; i < vectors_.size(); ++i) {
      std::vector<float>& v = vectors_[i];
      if (r_.request.dimensions > 0 && r_.request.dimensions < static_cast<int32_t>(v.size())) shorten(v);
      data.push_back({{"object", "embedding"},
                      {"index", i},
                      {"embedding", r_.request.base64 ? json(base64(v)) : json(v)}});
    }
    const json out = {{"object", "list"},
                      {"model", context_.model->id},
                      {"data", std::move(data)},
                      {"usage", {{"prompt_tokens", tokens_}, {"total_tokens", tokens_}}}};
    response_->note("prompt_tokens", std::to_string(tokens_));
    response_->send(200, "application/json", out.dump(), context_.headers);
    finish();
  }

  /// The first components, of unit length again.
  void shorten(std::vector<float>& v) const {
    v.resize(static_cast<size_t>(r_.request.dimensions));
    double square = 0;
    for (const float x : v) square += static_cast<double>(x) * static_cast<double>(x);
    if (square > 0)
      for (float& x : v) x = static_cast<float>(x / std::sqrt(square));
  }

  PreparedEmbedding r_;
  CallContext context_;
  std::shared_ptr<HttpResponse> response_;
  std::vector<std::shared_ptr<engine::Generation>> parts_;
  std::vector<std::vector<float>> vectors_;
  size_t done_ = 0;
  int64_t tokens_ = 0;
  bool finished_ = false;
};

}  // namespace

std::shared_ptr<Call> start_embedding(PreparedEmbedding request, CallContext context,
                                      std::shared_ptr<HttpResponse> response) {
  return started(
      std::make_shared<EmbeddingCall>(std::move(request), std::move(context), std::move(response)));
}

}  // namespace millrace::server
