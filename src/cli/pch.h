// Precompiled header of the program: beside the standard headers, the two that most subcommands include and
// that cost seconds each.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "core/pch.h"
