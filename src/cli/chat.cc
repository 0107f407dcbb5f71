// millrace chat: a conversation on the terminal, with line editing and history.
#include <histedit.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/generation_options.h"
#include "cli/loaded_model.h"
#include "cli/model_template.h"
#include "cli/subcommand.h"
#include "core/config.h"
#include "core/cpu.h"
#include "core/error.h"
#include "core/utf8.h"
#include "engine/engine.h"
#include "text/stop_strings.h"
#include "text/template/chat_template.h"
#include "text/template/template_source.h"

namespace millrace::cli {
namespace {

volatile std::sig_atomic_t g_stop_answer = 0;

const char* edit_prompt(EditLine*) { return "> "; }

/// Lines from the terminal with editing and a history file, or plain lines when standard input is no
/// terminal.
class LineReader {
 public:
  LineReader() : interactive_(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) {
    if (!interactive_) return;
    edit_ = el_init("millrace", stdin, stdout, stderr);
    history_ = history_init();
    HistEvent event;
    history(history_, &event, H_SETSIZE, 1000);
    history(history_, &event, H_SETUNIQUE, 1);
    el_set(edit_, EL_PROMPT, edit_prompt);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_HIST, history, history_);
    el_set(edit_, EL_SIGNAL, 1);
    std::error_code ignored;
    std::filesystem::create_directories(config::cache_dir(), ignored);
    history(history_, &event, H_LOAD, file().c_str());
  }
  ~LineReader() {
    if (!interactive_) return;
    HistEvent event;
    history(history_, &event, H_SAVE, file().c_str());
    history_end(history_);
    el_end(edit_);
  }
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  bool interactive() const { return interactive_; }

  /// False at the end of the input.
  bool next(std::string& line) {
    if (!interactive_) return static_cast<bool>(std::getline(std::cin, line));
    int count = 0;
    const char* text = el_gets(edit_, &count);
    if (!text || count <= 0) return false;
    line.assign(text, static_cast<size_t>(count));
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
    HistEvent event;
    if (!line.empty()) history(history_, &event, H_ENTER, line.c_str());
    return true;
  }

 private:
  static std::string file() { return (config::cache_dir() / "chat_history").string(); }
  bool interactive_;
  EditLine* edit_ = nullptr;
  History* history_ = nullptr;
};

constexpr const char* kHelp =
    "/help            this text\n"
    "/reset           forget the conversation\n"
    "/system TEXT     start anew with this system prompt\n"
    "/undo            forget the last question and answer\n"
    "/save FILE       write the conversation as JSON\n"
    "/stats           speed of the last answer\n"
    "/exit            leave (also Ctrl-D)\n"
    "Ctrl-C stops an answer. A line that ends with \\ goes on in the next.\n";

class Conversation {
 public:
  Conversation(LoadedModel& loaded, const ModelArguments& arguments, GenerationArguments generation,
               std::string system)
      : tokenizer_(*loaded.tokenizer), generation_(std::move(generation)), system_(std::move(system)) {
    const text::TemplateSource source = template_from_checkpoint(*loaded.checkpoint);
    const std::string* chosen = source.choose(false);
    require(chosen != nullptr, ErrorCode::kUnsupported,
            "{} has no chat template: it is no chat model; `millrace run` continues a text",
            loaded.checkpoint->path.string());
    template_ = text::ChatTemplate::parse(*chosen);
    render_options_.fallbacks = source.special_tokens;
    engine::EngineOptions options;
    options.pool = loaded.pool;
    options.isa = loaded.isa;
    options.kv_type = resolve_kv_type(arguments.kv_type, loaded.model->info());
    options.max_sequences = 1;
    engine_ = std::make_unique<engine::Engine>(std::move(loaded.model), options);
    reset();
  }

  void reset() {
    messages_ = nlohmann::ordered_json::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
  }
  void set_system(const std::string& text) {
    system_ = text;
    reset();
  }
  void undo() {
    while (!messages_.empty() && messages_.back()["role"] != "user" && messages_.back()["role"] != "system")
      messages_.erase(messages_.end() - 1);
    if (!messages_.empty() && messages_.back()["role"] == "user") messages_.erase(messages_.end() - 1);
  }
  const nlohmann::ordered_json& messages() const { return messages_; }
  const std::string& stats() const { return stats_; }

  /// Streams the answer to standard output. The question is forgotten again when the answer fails.
  void ask(const std::string& question) {
    messages_.push_back({{"role", "user"}, {"content", utf8::replace_invalid(question)}});
    try {
      answer();
    } catch (...) {
      messages_.erase(messages_.end() - 1);
      throw;
    }
  }

 private:
  static text::TemplateSource template_from_checkpoint(const loaders::Checkpoint& checkpoint) {
    return checkpoint.format == loaders::Format::kGguf ? template_from_metadata(checkpoint.metadata)
                                                       : open_template_source(checkpoint.path);
  }

  void answer() {
    const nlohmann::ordered_json context = {{"messages", messages_}, {"add_generation_prompt", true}};
    const std::string prompt = template_.render(context.dump(), render_options_).text;
    engine::Request request;
    text::EncodeOptions encode;
    // The template writes BOS itself where the model wants it.
    encode.add_special = false;
    request.prompt = tokenizer_.encode(prompt, encode);
    if (tokenizer_.adds_bos() && tokenizer_.bos() &&
        (request.prompt.empty() || request.prompt[0] != *tokenizer_.bos()))
      request.prompt.insert(request.prompt.begin(), *tokenizer_.bos());
    request.sampling = generation_.sampling;
    request.generation = generation_.generation;
    request.generation.end_tokens = tokenizer_.end_of_generation();
    text::StreamDecoder decoder(tokenizer_);
    decoder.set_at_start(false);
    text::StopStrings stops(generation_.stop);
    std::string text;
    auto emit = [&](const std::string& piece) {
      text += piece;
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
    };
    int tokens = 0;
    g_stop_answer = 0;
    const auto before = std::signal(SIGINT, [](int) { g_stop_answer = 1; });
    const engine::Event done = engine::generate(*engine_, std::move(request), [&](const engine::Event& e) {
      if (e.kind == engine::Event::Kind::kToken) {
        ++tokens;
        emit(stops.push(decoder.push(e.token)));
      }
      return !g_stop_answer && stops.matched() < 0;
    });
    std::signal(SIGINT, before);
    emit(stops.push(decoder.finish()));
    emit(stops.finish());
    std::fputs(g_stop_answer ? " [stopped]\n" : "\n", stdout);
    std::fflush(stdout);
    messages_.push_back({{"role", "assistant"}, {"content", text}});
    const double seconds = done.timing.total - done.timing.first_token;
    stats_ = fmt::format(
        "{} prompt tokens ({} cached), first token after {:.0f} ms, {} tokens at {:.1f} tokens/s\n",
        done.usage.prompt_tokens, done.usage.cached_tokens, done.timing.first_token * 1000, tokens,
        seconds > 0 && tokens > 1 ? (tokens - 1) / seconds : 0.0);
  }

  const text::Tokenizer& tokenizer_;
  GenerationArguments generation_;
  std::string system_;
  text::ChatTemplate template_;
  text::RenderOptions render_options_;
  std::unique_ptr<engine::Engine> engine_;
  nlohmann::ordered_json messages_;
  std::string stats_ = "no answer yet\n";
};

/// True when the line was a command; `leave` is set by /exit.
bool obey(const std::string& line, Conversation& conversation, bool& leave) {
  if (line.empty() || line[0] != '/') return false;
  const size_t space = line.find(' ');
  const std::string command = line.substr(0, space),
                    rest = space == std::string::npos ? "" : line.substr(space + 1);
  if (command == "/help")
    fmt::print("{}", kHelp);
  else if (command == "/reset")
    conversation.reset();
  else if (command == "/system")
    conversation.set_system(rest);
  else if (command == "/undo")
    conversation.undo();
  else if (command == "/stats")
    fmt::print("{}", conversation.stats());
  else if (command == "/exit" || command == "/quit")
    leave = true;
  else if (command == "/save") {
    std::FILE* out = std::fopen(rest.c_str(), "w");
    if (!out) {
      fmt::print("cannot write {}: give a file name\n", rest.empty() ? "''" : rest);
    } else {
      fmt::print(out, "{}\n",
                 conversation.messages().dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
      std::fclose(out);
    }
  } else {
    fmt::print("unknown command {}: /help lists them\n", command);
  }
  return true;
}

int run_chat(int argc, char** argv) {
  CLI::App app("Talks with a chat model on the terminal. /help inside lists the commands.", "millrace chat");
  ModelArguments arguments;
  GenerationArguments generation;
  std::string system;
  add_model_options(app, arguments);
  app.add_option("-s,--system", system, "system prompt")->type_name("TEXT");
  add_generation_options(app, generation);
  if (parse_arguments(app, argc, argv)) return 0;
  finish_generation_options(generation);
  LoadedModel loaded = load(arguments);
  Conversation conversation(loaded, arguments, generation, system);
  LineReader reader;
  if (reader.interactive()) fmt::print("/help lists the commands, Ctrl-D leaves.\n");
  std::string line, question;
  bool leave = false;
  while (!leave && reader.next(line)) {
    if (question.empty() && obey(line, conversation, leave)) continue;
    if (!line.empty() && line.back() == '\\') {
      question += line.substr(0, line.size() - 1) + "\n";
      continue;
    }
    question += line;
    if (question.empty()) continue;
    try {
      conversation.ask(question);
    } catch (const Error& e) {
      // The session goes on: the question may have been too long, or the template refused it.
      fmt::print(stderr, "{}\n", e.what());
    }
    question.clear();
  }
  if (reader.interactive() && !leave) std::fputc('\n', stdout);
  return 0;
}

MILLRACE_SUBCOMMAND("chat", 20, "talk with a chat model", run_chat);

}  // namespace
}  // namespace millrace::cli
