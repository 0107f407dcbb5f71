// Precompiled header of the folders that read and write JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "core/pch.h"
