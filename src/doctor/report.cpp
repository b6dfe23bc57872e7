// SPDX-License-Identifier: Apache-2.0
#include "doctor/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "wire/json_object.hpp"

namespace preload::doctor {
namespace {

std::string_view grade_name(Grade grade) noexcept {
  switch (grade) {
    case Grade::kOk:
      return "ok";
    case Grade::kWarn:
      return "warn";
    case Grade::kFail:
      return "fail";
  }
  return "";
}

}  // namespace

Grade worst(const Checks& checks) noexcept {
  Grade grade = Grade::kOk;
  for (const Check& check : checks) grade = std::max(grade, check.grade);
  return grade;
}

int exit_status(const Checks& checks) noexcept {
  const auto failed = std::ranges::find(checks, Grade::kFail, &Check::grade);
  return failed == checks.end() ? 0 : preload::exit_status(failed->code);
}

std::string table(const Examined& who, const Checks& checks) {
  std::size_t width = 0;
  for (const Check& check : checks) width = std::max(width, check.name.size());
  std::string text = fmt::format("preload doctor on {}, rank {}\n", who.host, who.rank);
  for (const Check& check : checks) {
    if (who.brief && check.grade == Grade::kOk) continue;
    text +=
        fmt::format("{:<4}  {:<{}}  {}\n", grade_name(check.grade), check.name, width, check.text);
    if (!check.remedy.empty()) text += fmt::format("{:<{}}-> {}\n", "", width + 8, check.remedy);
  }
  const auto count = [&](Grade grade) { return std::ranges::count(checks, grade, &Check::grade); };
  return text + fmt::format("{} ok, {} to look at, {} in the way\n", count(Grade::kOk),
                            count(Grade::kWarn), count(Grade::kFail));
}

std::string json(const Examined& who, const Checks& checks) {
  nlohmann::json list = nlohmann::json::array();
  for (const Check& check : checks) {
    list.push_back({{"name", check.name},
                    {"grade", grade_name(check.grade)},
                    {"text", check.text},
                    {"remedy", check.remedy.empty() ? nlohmann::json(nullptr)
                                                    : nlohmann::json(check.remedy)}});
  }
  return wire::dump_json({{"host", who.host},
                          {"rank", who.rank},
                          {"worst", grade_name(worst(checks))},
                          {"checks", list}}) +
         "\n";
}

}  // namespace preload::doctor
