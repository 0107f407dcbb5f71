// Names of a program's rules by their content: rules of different programs with the same name match the same
// texts in the same way, so that their token masks can be shared.
#pragma once

#include <vector>

#include "grammar/program.h"

namespace millrace::grammar {

/// By rule. Seeded anew in each process: nobody can prepare two grammars whose names collide.
std::vector<RuleIdentity> rule_identities(const Program& program, Budget& budget);

}  // namespace millrace::grammar
