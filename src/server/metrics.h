// Prometheus text under the names that dashboards made for vLLM know (docs/serving.md lists them).
#pragma once

#include <string>

#include "engine/stats.h"
#include "server/call.h"
#include "server/http.h"

namespace millrace::server {

/// `model`: null while it is loaded.
std::string prometheus_text(const engine::Stats& stats, const HttpCounters& http,
                            const GoodputCounters& goodput, const ServedModel* model);

}  // namespace millrace::server
