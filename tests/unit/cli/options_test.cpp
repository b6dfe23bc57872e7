// SPDX-License-Identifier: Apache-2.0
#include "cli/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "cli/option_table.hpp"

namespace preload::cli::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Arguments = std::vector<std::string>;

std::string refusal(std::string_view command, const Arguments& arguments) {
  try {
    ParsedOptions(command, arguments);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kUsage);
    return error.what();
  }
  return "nothing was refused";
}

TEST(Options, TakeDashesAndUnderscoresAndEqualsSignsAlike) {
  for (const Arguments& arguments :
       {Arguments{"--weight-cache-socket-dir", "/a_b"}, Arguments{"--weight_cache_socket_dir=/a_b"},
        Arguments{"--weight-cache_socket-dir=/a_b"}}) {
    EXPECT_EQ(ParsedOptions("status", arguments).text("weight-cache-socket-dir"), "/a_b");
  }
}

TEST(Options, TheLastOfARepeatedOptionWinsAndListsKeepAll) {
  const ParsedOptions options("plan", {"-tp", "2", "--tensor-parallel-size", "4", "--ignore-tensor",
                                       "a,b", "--ignore-tensor=c"});
  EXPECT_EQ(options.number("tensor-parallel-size", 1), 4);
  EXPECT_EQ(options.all("ignore-tensor"), (std::vector<std::string>{"a,b", "c"}));
}

TEST(Options, AValueMayBeginWithADashOrBeEmptyOrHaveLines) {
  const ParsedOptions options("wait", {"--job", "-x", "--slot=", "--gpu=a\nb=c"});
  EXPECT_EQ(options.text("gpu"), "a\nb=c");
  EXPECT_EQ(options.text("job"), "-x");
  EXPECT_EQ(options.text("slot"), "");
}

TEST(Options, SwitchesAreThereOrNot) {
  EXPECT_TRUE(ParsedOptions("status", {"--json"}).has("json"));
  EXPECT_FALSE(ParsedOptions("status", {}).has("json"));
  EXPECT_FALSE(ParsedOptions("status", {"--json=false"}).has("json"));
  EXPECT_TRUE(ParsedOptions("stop", {"--job"}).has("job"));
}

TEST(Options, UnknownOnesAreRefusedWithASuggestion) {
  EXPECT_THAT(refusal("status", {"--jsn"}),
              AllOf(HasSubstr("unknown option --jsn of 'preload status'"),
                    HasSubstr("did you mean --json?"), HasSubstr("preload status --help")));
  EXPECT_THAT(refusal("status", {"--all"}), HasSubstr("unknown option --all"));
  EXPECT_THAT(refusal("plan", {"-xx", "1"}), HasSubstr("unknown option -xx"));
  EXPECT_THAT(refusal("status", {"--speculative-config", "{}"}), HasSubstr("unknown option"));
  EXPECT_THAT(refusal("status", {"--nnodes", "2"}), HasSubstr("unknown option --nnodes"));
  EXPECT_THAT(refusal("plan", {"-=2"}), HasSubstr("unknown option -=2"));
  EXPECT_THAT(refusal("serve", {"--model.x", "{}"}), HasSubstr("unknown option --model.x"));
}

TEST(Options, MissingValuesAndStrayArgumentsAreNamed) {
  EXPECT_THAT(refusal("plan", {"--model"}), HasSubstr("--model needs a value"));
  EXPECT_THAT(refusal("status", {"now"}), HasSubstr("unexpected argument 'now'"));
  EXPECT_THAT(refusal("key", {"a", "b"}), HasSubstr("unexpected argument 'b'"));
  EXPECT_EQ(ParsedOptions("key", {"/dir", "-tp", "2"}).positional(), Arguments{"/dir"});
}

TEST(Options, DottedKeysBuildTheObjectAndJoinOneThatIsGiven) {
  EXPECT_EQ(ParsedOptions("plan",
                          {"--hf-overrides.rope_scaling.factor", "8.0", "--hf_overrides.name=text"})
                .text("hf-overrides"),
            R"({"name":"text","rope_scaling":{"factor":8.0}})");
  EXPECT_EQ(ParsedOptions("plan", {"--hf-overrides", R"({"a":1,"b":2})", "--hf-overrides.b", "3"})
                .text("hf-overrides"),
            R"({"a":1,"b":3})");
  EXPECT_EQ(
      ParsedOptions("plan", {"--hf-overrides.quantization_config", "null"}).text("hf-overrides"),
      R"({"quantization_config":null})");
  EXPECT_THAT(refusal("plan", {"--hf-overrides", "[1]", "--hf-overrides.b", "3"}),
              HasSubstr("must be a JSON object"));
}

TEST(Options, NumbersOutOfRangeOrMalformedAreErrors) {
  for (const std::string text : {"0", "-1", "2x", "", "1.5", "99999999999"}) {
    const ParsedOptions options("plan", {"--ranks=" + text});
    EXPECT_THROW(options.number("ranks", 1), Error) << text;
  }
  for (const std::string text : {"-1", "nan", "inf", "1s", ""}) {
    const ParsedOptions options("wait", {"--timeout=" + text});
    EXPECT_THROW(options.seconds("timeout"), Error) << text;
  }
  EXPECT_EQ(ParsedOptions("wait", {"--timeout", "0.5"}).seconds("timeout"), 0.5);
}

TEST(Options, ClientOptionsAreReadTogether) {
  const ClientOptions client = client_options(
      ParsedOptions("attach", {"--weight-cache-socket-dir", "/d", "--gpu", "host:1", "--slot", "a",
                               "--role", "draft", "--json", "--timeout", "3"}));
  EXPECT_EQ(client.socket_dir.path, "/d");
  EXPECT_EQ(client.gpu, "host:1");
  EXPECT_EQ(client.slot, "a");
  EXPECT_EQ(client.role, Role::kDraft);
  EXPECT_TRUE(client.json);
  EXPECT_EQ(client.timeout_s, 3);
  EXPECT_EQ(client_options(ParsedOptions("stop", {})).role, std::nullopt);
  EXPECT_THROW(client_options(ParsedOptions("attach", {"--role", "both"})), Error);
}

TEST(Options, FlagsThatTheLauncherReplacesShowTheCommandToUse) {
  EXPECT_THAT(refusal("serve", {"--model", "my dir", "-tp", "8", "-pp=2", "--nnodes", "2",
                                "--node_rank=1", "--master-addr", "10.0.0.1"}),
              AllOf(HasSubstr("--nnodes is not taken"),
                    HasSubstr("srun --nodes=2 --ntasks=16 --mpi=pmix preload serve --model "
                              "'my dir' -tp 8 -pp=2\n"),
                    HasSubstr("mpirun -np 16 preload serve --model 'my dir' -tp 8 -pp=2")));
  for (const std::string flag : {"--node-rank", "--master-addr", "--weight-cache-master-port",
                                 "--weight-cache-draft-master-port", "--data-parallel-size-local",
                                 "--data-parallel-start-rank", "--data-parallel-address"}) {
    EXPECT_THAT(refusal("serve", {flag, "1"}),
                AllOf(HasSubstr(flag + " is not taken"), HasSubstr("srun"), HasSubstr("mpirun")));
  }
}

TEST(Options, HelpListsEveryOptionOfACommandWithin80Columns) {
  for (const CommandSpec& command : command_table()) {
    const std::string text = help_text(command.name);
    for (const OptionSpec& option : option_table()) {
      if (!takes(option, command.name)) continue;
      EXPECT_THAT(text, HasSubstr("--" + std::string(option.name)));
    }
    std::size_t begin = 0;
    while (begin < text.size()) {
      const std::size_t end = text.find('\n', begin);
      EXPECT_LE(end - begin, 80U) << text.substr(begin, end - begin);
      begin = end + 1;
    }
    EXPECT_THAT(help_text(), HasSubstr("  " + std::string(command.name)));
  }
}

TEST(OptionTable, NamesNoOptionTwiceForACommandAndOnlyKnownCommands) {
  for (const CommandSpec& command : command_table()) {
    std::vector<std::string_view> seen;
    for (const OptionSpec& option : option_table()) {
      if (!takes(option, command.name)) continue;
      EXPECT_EQ(std::ranges::count(seen, option.name), 0) << option.name;
      seen.push_back(option.name);
    }
  }
  EXPECT_EQ(find_command("frobnicate"), nullptr);
  ASSERT_NE(find_command("plan"), nullptr);
}

TEST(Nearest, FindsSmallSlipsAndNothingElse) {
  EXPECT_EQ(nearest("statu", {"serve", "status", "stop"}), "status");
  EXPECT_EQ(nearest("xyzzy", {"serve", "status", "stop"}), std::nullopt);
}

}  // namespace
}  // namespace preload::cli::test
