// SPDX-License-Identifier: Apache-2.0
#include "client/abi_error.hpp"

#include <new>
#include <nlohmann/json.hpp>
#include <string>

#include "client/connect.hpp"
#include "client/mapped_slabs.hpp"
#include "wire/exchange.hpp"

namespace preload::client {
namespace {

struct LastError {
  std::string text;
  std::string fields = "{}";
};

LastError& last_error() {
  thread_local LastError error;
  return error;
}

preload_status status_of(Errc code) noexcept {
  switch (code) {
    case Errc::kUsage:
    case Errc::kCheckpoint:  // the model that is expected is not there, or damaged
    case Errc::kModel:
      return PRELOAD_E_USAGE;
    case Errc::kDevice:
      return PRELOAD_E_DEVICE;
    case Errc::kMemory:
      return PRELOAD_E_MEMORY;
    case Errc::kUnavailable:
    case Errc::kBusy:
      return PRELOAD_E_UNAVAILABLE;
    case Errc::kMismatch:
      return PRELOAD_E_MISMATCH;
    case Errc::kReleased:
      return PRELOAD_E_RELEASED;
    case Errc::kProtocol:
      return PRELOAD_E_PROTOCOL;
    case Errc::kTimeout:
      return PRELOAD_E_TIMEOUT;
    default:
      return PRELOAD_E_INTERNAL;
  }
}

std::string fields_json(const wire::ErrorReply& reply) {
  nlohmann::json fields = nlohmann::json::object();
  for (const auto& [name, mismatch] : reply.fields) {
    nlohmann::json& field = fields[name];
    field["expected"] = mismatch.expected;
    field["served"] = mismatch.served ? nlohmann::json(*mismatch.served) : nlohmann::json();
  }
  return fields.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Called in a handler: what is in flight decides.
preload_status note_current_exception() {
  LastError& error = last_error();
  try {
    throw;
  } catch (const NotFound& absent) {
    error.text = absent.what();
    return PRELOAD_E_NOT_FOUND;
  } catch (const AddressTaken& taken) {
    error.text = taken.what();
    return PRELOAD_E_ADDRESS;
  } catch (const DaemonFailed& failed) {
    error.text = failed.what();
    return PRELOAD_E_FAILED;
  } catch (const wire::PeerError& refused) {
    error.text = refused.what();
    error.fields = fields_json(refused.reply());
    return status_of(refused.code());
  } catch (const Error& known) {
    error.text = known.what();
    return status_of(known.code());
  } catch (const std::exception& unknown) {
    error.text = unknown.what();
    return PRELOAD_E_INTERNAL;
  }
}

}  // namespace

preload_status guarded(const std::function<void()>& body) noexcept {
  try {
    last_error() = {};
    body();
    return PRELOAD_OK;
  } catch (...) {
    try {
      return note_current_exception();
    } catch (...) {
      return PRELOAD_E_INTERNAL;  // no memory for the text
    }
  }
}

const char* last_error_text() noexcept { return last_error().text.c_str(); }
const char* last_error_fields() noexcept { return last_error().fields.c_str(); }

}  // namespace preload::client
