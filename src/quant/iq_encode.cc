#include "quant/codec.h"

namespace millrace::quant {

EncodeFunction iq_encoder(DType) { return nullptr; }

}  // namespace millrace::quant
