// Precompiled header of the tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/pch.h"
#include "testing/testing.h"
