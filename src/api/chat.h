// A request's messages through a model's chat template.
#pragma once

#include <string>

#include "api/request.h"
#include "text/template/chat_template.h"

namespace millrace::api {

enum class ArgumentsForm { kObject, kText };

/// The template's context: messages, tools, documents, add_generation_prompt, chat_template_kwargs, and what
/// reasoning settings mean to templates (reasoning_effort, enable_thinking). `form`: how tool calls'
/// arguments are given.
std::string template_context(const GenerationRequest& request, ArgumentsForm form = ArgumentsForm::kObject);

/// The prompt. Arguments of earlier tool calls are objects, as most templates want them; where a template
/// fails on that, texts are tried. Tools are left out with tool_choice "none". With continue_final_message
/// the text ends with the last message's content. Errors: those of ChatTemplate::render, as kInvalidArgument
/// about the messages.
std::string render_prompt(const text::ChatTemplate& chat_template, const GenerationRequest& request,
                          const text::RenderOptions& options = {});

}  // namespace millrace::api
