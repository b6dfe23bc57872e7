// SPDX-License-Identifier: Apache-2.0
#include "serve/metrics.hpp"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <limits>
#include <utility>
#include <vector>

namespace preload {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using wire::DaemonStatus;
using Labels = std::vector<ClientMetric::Label>;

ClientMetric gauge(Labels labels, double value) {
  ClientMetric metric;
  metric.label = std::move(labels);
  metric.gauge.value = value;
  return metric;
}

ClientMetric counter(Labels labels, double value) {
  ClientMetric metric;
  metric.label = std::move(labels);
  metric.counter.value = value;
  return metric;
}

ClientMetric histogram(Labels labels, const wire::AttachTimes& times) {
  ClientMetric metric;
  metric.label = std::move(labels);
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < times.counts.size(); ++i) {
    below += times.counts[i];
    const bool last = i == wire::AttachTimes::kBounds.size();
    metric.histogram.bucket.push_back(
        {below, last ? std::numeric_limits<double>::infinity() : wire::AttachTimes::kBounds[i]});
  }
  metric.histogram.sample_count = times.count();
  metric.histogram.sample_sum = times.sum_s;
  return metric;
}

Labels labels_of(const DaemonStatus& daemon) {
  return {{"gpu_uuid", daemon.gpu_uuid},
          {"slot", daemon.slot},
          {"role", daemon.role},
          {"rank", std::to_string(daemon.global_rank)},
          {"model", daemon.model}};
}

Labels with(Labels labels, std::string name, std::string value) {
  labels.push_back({std::move(name), std::move(value)});
  return labels;
}

class Families {
 public:
  MetricFamily& add(std::string name, std::string help, MetricType type) {
    families_.push_back({std::move(name), std::move(help), type, {}});
    return families_.back();
  }
  // One gauge of every daemon.
  template <class Value>
  void each(const std::vector<DaemonStatus>& daemons, std::string name, std::string help,
            Value value) {
    MetricFamily& family = add(std::move(name), std::move(help), MetricType::Gauge);
    for (const DaemonStatus& daemon : daemons)
      family.metric.push_back(gauge(labels_of(daemon), static_cast<double>(value(daemon))));
  }
  std::string text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  std::vector<MetricFamily> families_;
};

void add_states(const std::vector<DaemonStatus>& daemons, Families& families) {
  using wire::DaemonState;
  MetricFamily& family =
      families.add("preload_daemon_state",
                   "1 for the state that the daemon is in, 0 for the others.", MetricType::Gauge);
  for (const DaemonStatus& daemon : daemons) {
    for (const DaemonState state :
         {DaemonState::kLoading, DaemonState::kReady, DaemonState::kDraining,
          DaemonState::kReleased, DaemonState::kFailed, DaemonState::kOrphaned}) {
      family.metric.push_back(
          gauge(with(labels_of(daemon), "state", std::string(wire::state_name(state))),
                daemon.state == state ? 1 : 0));
    }
  }
}

void add_counters(const std::vector<DaemonStatus>& daemons, Families& families) {
  MetricFamily& attaches =
      families.add("preload_attach_duration_seconds",
                   "Time from an attach request to its answer, of those that were granted.",
                   MetricType::Histogram);
  for (const DaemonStatus& daemon : daemons)
    attaches.metric.push_back(histogram(labels_of(daemon), daemon.counters.attaches));
  MetricFamily& refusals =
      families.add("preload_refusals_total",
                   "Requests and connections that were refused, by cause.", MetricType::Counter);
  for (const DaemonStatus& daemon : daemons)
    for (const auto& [cause, count] : daemon.counters.refusals)
      refusals.metric.push_back(
          counter(with(labels_of(daemon), "cause", cause), static_cast<double>(count)));
}

void add_loads(const std::vector<DaemonStatus>& daemons, Families& families) {
  MetricFamily bytes{"preload_load_bytes",
                     "Bytes that came into memory, by path: a read method, or peers.",
                     MetricType::Gauge,
                     {}};
  MetricFamily seconds{"preload_load_duration_seconds",
                       "Time from the first read to the last byte hashed, by path.",
                       MetricType::Gauge,
                       {}};
  MetricFamily rate{"preload_load_bytes_per_second",
                    "Bytes that came into memory a second while loading, by path.",
                    MetricType::Gauge,
                    {}};
  for (const DaemonStatus& daemon : daemons) {
    for (const wire::LoadPath& load : daemon.counters.loads) {
      const Labels labels = with(labels_of(daemon), "path", load.path);
      const auto count = static_cast<double>(load.bytes);
      bytes.metric.push_back(gauge(labels, count));
      seconds.metric.push_back(gauge(labels, load.seconds));
      if (load.seconds > 0) rate.metric.push_back(gauge(labels, count / load.seconds));
    }
  }
  for (MetricFamily* family : {&bytes, &seconds, &rate})
    families.add(family->name, family->help, family->type).metric = family->metric;
}

void add_memory(const NodeReport& report, Families& families) {
  MetricFamily free{"preload_device_memory_free_bytes",
                    "Memory of the device, or of the host for host:N, that is free.",
                    MetricType::Gauge,
                    {}};
  MetricFamily total{"preload_device_memory_size_bytes",
                     "Memory of the device, or of the host for host:N.",
                     MetricType::Gauge,
                     {}};
  for (const DeviceMemory& device : report.devices) {
    const Labels labels{{"gpu_uuid", device.gpu_uuid}};
    free.metric.push_back(gauge(labels, static_cast<double>(device.free_bytes)));
    total.metric.push_back(gauge(labels, static_cast<double>(device.total_bytes)));
  }
  for (MetricFamily* family : {&free, &total})
    families.add(family->name, family->help, family->type).metric = family->metric;
}

}  // namespace

bool built_with_metrics() noexcept { return true; }

std::string metrics_text(const Health& health, const std::string& job, const NodeReport& report) {
  Families families;
  families.add("preload_build_info", "The version that answers here.", MetricType::Gauge)
      .metric.push_back(gauge({{"version", PRELOAD_VERSION}}, 1));
  families
      .add("preload_healthy", "1 when every daemon of the job on this node serves.",
           MetricType::Gauge)
      .metric.push_back(gauge({{"job", job}}, health.healthy ? 1 : 0));
  families
      .add("preload_daemons_ready", "Daemons of the job on this node that serve.",
           MetricType::Gauge)
      .metric.push_back(gauge({{"job", job}}, health.ready));
  families
      .add("preload_daemons_expected", "Daemons that the job has on this node.", MetricType::Gauge)
      .metric.push_back(gauge({{"job", job}}, health.expected));
  const auto& daemons = report.daemons;
  add_states(daemons, families);
  families.each(daemons, "preload_resident_bytes", "Bytes of weights that the daemon holds.",
                [](const DaemonStatus& d) {
                  const bool holds = d.state != wire::DaemonState::kLoading &&
                                     d.state != wire::DaemonState::kFailed;
                  return holds ? d.bytes : 0;  // of one that is gone these are what it was to load
                });
  families.each(daemons, "preload_overhead_bytes",
                "Device memory of the daemon's process above the weights.",
                [](const DaemonStatus& d) { return d.overhead_bytes; });
  families.each(daemons, "preload_leases", "Open leases.",
                [](const DaemonStatus& d) { return d.leases.size(); });
  families.each(daemons, "preload_generation", "Generation of the weights that are served.",
                [](const DaemonStatus& d) { return d.generation; });
  families.each(daemons, "preload_load_progress_ratio", "Share of the load that is done, 0 to 1.",
                [](const DaemonStatus& d) {
                  return d.state == wire::DaemonState::kLoading ? d.progress.share() : 1.0;
                });
  add_counters(daemons, families);
  add_loads(daemons, families);
  add_memory(report, families);
  return families.text();
}

}  // namespace preload
