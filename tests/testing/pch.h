// Precompiled header of the tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/pch.h"
#include "testing/testing.h"
