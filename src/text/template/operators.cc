// Arithmetic and comparison of template values, as Python defines them; integers beyond 64 bits are an error.
#include <cmath>

#include "text/template/runtime.h"
#include "text/template/strings.h"

namespace millrace::text::jinja {

namespace {

constexpr const char* kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

[[noreturn]] void overflow() { limit_error("an integer goes beyond 64 bits"); }

[[noreturn]] void unsupported(Operator op, const Value& left, const Value& right) {
  run_error("unsupported operand type(s) for {}: '{}' and '{}'", kSymbols[static_cast<size_t>(op)],
            type_name(left), type_name(right));
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) run_error("integer division or modulo by zero");
  if (a == INT64_MIN && b == -1) overflow();
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

int64_t modulo(int64_t a, int64_t b) {
  if (b == 0) run_error("integer modulo by zero");
  if (b == -1) return 0;
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

double float_modulo(double a, double b) {
  if (b == 0) run_error("float modulo by zero");
  double r = std::fmod(a, b);
  if (r == 0) return std::copysign(0.0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}

double float_floor_divide(double a, double b) {
  if (b == 0) run_error("float floor division by zero");
  double r = std::fmod(a, b);
  double quotient = (a - r) / b;
  if (r != 0 && (r < 0) != (b < 0)) quotient -= 1.0;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1.0 : floored;
}

Value float_power(double a, double b) {
  if (a == 0 && b < 0) run_error("0.0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
    run_error("a negative number to a fractional power is complex, which is not supported");
  const double r = std::pow(a, b);
  if (std::isinf(r) && std::isfinite(a) && std::isfinite(b)) run_error("numerical result out of range");
  return Value::real(r);
}

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return float_power(static_cast<double>(base), static_cast<double>(exponent));
  int64_t result = 1;
  int64_t square = base;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, square, &result)) overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(square, square, &square)) overflow();
  }
  return Value::integer(result);
}

Value integers(Operator op, int64_t a, int64_t b) {
  int64_t r = 0;
  switch (op) {
    case Operator::kAdd:
      if (__builtin_add_overflow(a, b, &r)) overflow();
      return Value::integer(r);
    case Operator::kSubtract:
      if (__builtin_sub_overflow(a, b, &r)) overflow();
      return Value::integer(r);
    case Operator::kMultiply:
      if (__builtin_mul_overflow(a, b, &r)) overflow();
      return Value::integer(r);
    case Operator::kDivide:
      if (b == 0) run_error("division by zero");
      return Value::real(static_cast<double>(a) / static_cast<double>(b));
    case Operator::kFloorDivide:
      return Value::integer(floor_divide(a, b));
    case Operator::kModulo:
      return Value::integer(modulo(a, b));
    default:
      return integer_power(a, b);
  }
}

Value reals(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::real(a + b);
    case Operator::kSubtract:
      return Value::real(a - b);
    case Operator::kMultiply:
      return Value::real(a * b);
    case Operator::kDivide:
      if (b == 0) run_error("float division by zero");
      return Value::real(a / b);
    case Operator::kFloorDivide:
      return Value::real(float_floor_divide(a, b));
    case Operator::kModulo:
      return Value::real(float_modulo(a, b));
    default:
      return float_power(a, b);
  }
}

bool is_markup(const Value& value) { return value.is_string() && value.as<StringObject>().markup; }

}  // namespace

Value Runtime::repeat(const Value& sequence, int64_t count) {
  const size_t n = count < 0 ? 0 : static_cast<size_t>(count);
  const size_t unit = sequence.is_string() ? sequence.text().size() : sequence.items().size() * sizeof(Value);
  if (unit != 0 && n > budget_.max_live_bytes / unit)
    limit_error("the template needs more than {} bytes of memory", budget_.max_live_bytes);
  charge(unit * n / 256 + (sequence.is_string() ? n / 16 : n));
  if (sequence.is_string()) {
    std::string out;
    reserve(out, unit * n);
    if (unit != 0) {
      out.reserve(unit * n);
      for (size_t i = 0; i < n; ++i) out += sequence.text();
    }
    return string(std::move(out), is_markup(sequence));
  }
  Values items;
  if (unit != 0) {
    check_room(unit * n);
    items.reserve(sequence.items().size() * n);
    for (size_t i = 0; i < n; ++i)
      items.insert(items.end(), sequence.items().begin(), sequence.items().end());
  }
  return sequence.is(Kind::kTuple) ? tuple(std::move(items)) : list(std::move(items));
}

Value Runtime::multiply(const Value& left, const Value& right) {
  const bool left_repeats = left.is_string() || left.is_sequence();
  const bool right_repeats = right.is_string() || right.is_sequence();
  if (left_repeats && right.is_integral()) return repeat(left, right.as_int());
  if (right_repeats && left.is_integral()) return repeat(right, left.as_int());
  if (left_repeats || right_repeats)
    run_error("can't multiply sequence by non-int of type '{}'", type_name(left_repeats ? right : left));
  unsupported(Operator::kMultiply, left, right);
}

Value Runtime::add(const Value& left, const Value& right) {
  if (left.is_string() && right.is_string()) {
    if (is_markup(left) != is_markup(right)) {
      Arguments none;
      const Value escaped = call_filter("escape", is_markup(left) ? right : left, none);
      std::string out;
      append_str(out, is_markup(left) ? left : escaped);
      append_str(out, is_markup(left) ? escaped : right);
      return string(std::move(out), true);
    }
    std::string out;
    reserve(out, left.text().size() + right.text().size());
    out.reserve(left.text().size() + right.text().size());
    out += left.text();
    out += right.text();
    return string(std::move(out), is_markup(left));
  }
  if (left.kind() == right.kind() && left.is_sequence()) {
    Values items = to_values(left);
    check_room(right.items().size() * sizeof(Value));
    items.insert(items.end(), right.items().begin(), right.items().end());
    return left.is(Kind::kTuple) ? tuple(std::move(items)) : list(std::move(items));
  }
  if (left.is_string()) run_error("can only concatenate str (not \"{}\") to str", type_name(right));
  unsupported(Operator::kAdd, left, right);
}

Value Runtime::arithmetic(Operator op, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral()) return integers(op, left.as_int(), right.as_int());
    return reals(op, left.as_double(), right.as_double());
  }
  if (op == Operator::kAdd) return add(left, right);
  if (op == Operator::kMultiply) return multiply(left, right);
  unsupported(op, left, right);
}

Value Runtime::binary(Operator op, const Value& left, const Value& right) {
  if (left.is_undefined()) undefined_error(left);
  if (op == Operator::kModulo && left.is_string()) return percent_format(*this, left, right);
  if (right.is_undefined()) undefined_error(right);
  return arithmetic(op, left, right);
}

Value Runtime::negate(const Value& value) {
  if (value.is_undefined()) undefined_error(value);
  if (value.is(Kind::kFloat)) return Value::real(-value.as_double());
  if (!value.is_integral()) run_error("bad operand type for unary -: '{}'", type_name(value));
  if (value.as_int() == INT64_MIN) overflow();
  return Value::integer(-value.as_int());
}

Value Runtime::plus(const Value& value) {
  if (value.is_undefined()) undefined_error(value);
  if (value.is(Kind::kFloat)) return value;
  if (!value.is_integral()) run_error("bad operand type for unary +: '{}'", type_name(value));
  return Value::integer(value.as_int());
}

bool Runtime::compare(Operator op, const Value& left, const Value& right) {
  charge(1);
  switch (op) {
    case Operator::kEqual:
      return equal(left, right);
    case Operator::kNotEqual:
      return !equal(left, right);
    case Operator::kIn:
      return contains(right, left);
    case Operator::kNotIn:
      return !contains(right, left);
    default:
      break;
  }
  const bool nan = (left.is(Kind::kFloat) && std::isnan(left.as_double())) ||
                   (right.is(Kind::kFloat) && std::isnan(right.as_double()));
  if (nan && left.is_number() && right.is_number()) return false;
  switch (op) {
    case Operator::kLess:
      return less(left, right, "<");
    case Operator::kGreater:
      return less(right, left, ">");
    case Operator::kLessEqual:
      return !less(right, left, "<=");
    default:
      return !less(left, right, ">=");
  }
}

Value Runtime::concat(const Values& values) {
  std::string out;
  for (const Value& value : values) append_str(out, value);
  return string(std::move(out));
}

}  // namespace millrace::text::jinja
