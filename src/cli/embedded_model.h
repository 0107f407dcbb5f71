// The model that is part of the program: a small one of our own (assets/demo), used where -m is left out.
#pragma once

#include "loaders/checkpoint.h"

namespace millrace::cli {

/// Opens it. Its path reads "the embedded model".
loaders::Checkpoint open_embedded_model();

}  // namespace millrace::cli
