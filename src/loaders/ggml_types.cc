#include "loaders/ggml_types.h"

namespace millrace::loaders {
namespace {

constexpr int kNone = -1;

struct Row {
  DType type;
  int id;
  int file_type;
};

constexpr Row kRows[] = {
    {DType::kF32, 0, 0},       {DType::kF16, 1, 1},       {DType::kQ4_0, 2, 2},      {DType::kQ4_1, 3, 3},
    {DType::kQ5_0, 6, 8},      {DType::kQ5_1, 7, 9},      {DType::kQ8_0, 8, 7},      {DType::kQ8_1, 9, kNone},
    {DType::kQ2_K, 10, 10},    {DType::kQ3_K, 11, 12},    {DType::kQ4_K, 12, 15},    {DType::kQ5_K, 13, 17},
    {DType::kQ6_K, 14, 18},    {DType::kQ8_K, 15, kNone}, {DType::kIQ2_XXS, 16, 19}, {DType::kIQ2_XS, 17, 20},
    {DType::kIQ3_XXS, 18, 23}, {DType::kIQ1_S, 19, 24},   {DType::kIQ4_NL, 20, 25},  {DType::kIQ3_S, 21, 26},
    {DType::kIQ2_S, 22, 28},   {DType::kIQ4_XS, 23, 30},  {DType::kI8, 24, kNone},   {DType::kI16, 25, kNone},
    {DType::kI32, 26, kNone},  {DType::kI64, 27, kNone},  {DType::kF64, 28, kNone},  {DType::kIQ1_M, 29, 31},
    {DType::kBF16, 30, 32},    {DType::kTQ1_0, 34, 36},   {DType::kTQ2_0, 35, 37},   {DType::kMXFP4, 39, 38},
    {DType::kNVFP4, 40, 39},
};

std::optional<uint32_t> known(int id) {
  return id == kNone ? std::nullopt : std::optional(static_cast<uint32_t>(id));
}

}  // namespace

std::optional<DType> dtype_from_ggml(uint32_t id) {
  for (const Row& row : kRows)
    if (row.id == static_cast<int64_t>(id)) return row.type;
  return std::nullopt;
}

std::optional<uint32_t> ggml_from_dtype(DType type) {
  for (const Row& row : kRows)
    if (row.type == type) return known(row.id);
  return std::nullopt;
}

std::optional<uint32_t> gguf_file_type(DType type) {
  for (const Row& row : kRows)
    if (row.type == type) return known(row.file_type);
  return std::nullopt;
}

}  // namespace millrace::loaders
