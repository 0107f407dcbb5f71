#include "text/end_names.h"

#include <algorithm>
#include <iterator>

namespace millrace::text {
namespace {

constexpr std::string_view kEndNames[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
    "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[", "</s>",
    // Ends of fill-in-the-middle and repository-level completion.
    "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<reponame>",
    "<|file_sep|>"};

}  // namespace

bool is_end_name(std::string_view token) {
  return std::find(std::begin(kEndNames), std::end(kEndNames), token) != std::end(kEndNames);
}

}  // namespace millrace::text
