// Tests training on several ranks, as processes that weft launch starts.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/comm/ranks_program.h"
#include "tests/support/exit_codes.h"
#include "tests/support/program.h"
#include "tests/support/published_model.h"
#include "tests/support/skip.h"
#include "tests/train/runs.h"
#include "weft/train/checkpoint/checkpoint.h"

using namespace weft;
using namespace weft::test;

namespace {
const char* const recipe =
    "name: tiny\nmodel: {name: gpt, config: {hidden_size: 16, num_hidden_layers: 1, "
    "num_attention_heads: 2, dropout: 0.1}}\ndata: {dataset: addition, digits: 1}\n"
    "train: {steps: 30, global_batch_size: 4}\neval: {every: 10, batch_size: 4}\n"
    "checkpoint: {every: 10}\nlog: {every: 1}\n";

struct RanksPlace : Workplace {
  RanksPlace() { write("tiny.yaml", recipe); }

  // The words after weft.
  static std::vector<std::string> command(const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"launch", "-n", "2", "--oversubscribe", "train", "tiny.yaml"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Running start_endless() const {
    return start(std::getenv("WEFT"), command({"--steps", "100000000", "--log.every", "1000",
                                               "--checkpoint.every", "1000"}));
  }
  bool is_under_way() const {
    return std::filesystem::exists(path("runs/tiny/checkpoints/latest"));
  }
};
}  // namespace

TEST_CASE("ranks share out batches, and write a run with the bits of one rank that accumulates") {
  const RanksPlace ranks, alone;
  const Outcome outcome = ranks.weft(RanksPlace::command());
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(!says(outcome.out, "[rank 1]"));
  CHECK(outcome.err.empty());
  CHECK(says(outcome.out, "shared out to 2 ranks"));
  REQUIRE(alone.weft({"train", "tiny.yaml", "--train.micro_batch_size", "2"}).code == 0);
  for (const std::string file : {"model.safetensors", "state-optimizer.safetensors", "rng.json"}) {
    CAPTURE(file);
    const std::string path = "runs/tiny/checkpoints/latest/" + file;
    CHECK(ranks.read(path) == alone.read(path));
  }
}

TEST_CASE("ranks that have parts of the weights show what the whole net says, in planned memory") {
  const std::vector<std::string> wide = {"--model.config.hidden_size", "64", "--steps", "5"};
  std::vector<std::string> more = wide, alone_command = {"train", "tiny.yaml"};
  more.insert(more.end(), {"--parallel.zero", "3"});
  alone_command.insert(alone_command.end(), wide.begin(), wide.end());
  alone_command.insert(alone_command.end(), {"--train.micro_batch_size", "2"});
  const RanksPlace ranks, alone;
  const Outcome split = ranks.weft(RanksPlace::command(more)), whole = alone.weft(alone_command);
  CAPTURE(split.err);
  REQUIRE(split.code == 0);
  const auto sums = [](const std::string& out) {
    const size_t from = out.find("\n\n", out.rfind("eval step"));
    return out.substr(from, out.find("planned", from) - from);
  };
  CHECK(says(sums(split.out), "+"));
  CHECK(sums(split.out) == sums(whole.out));
  if (testing::sanitized)
    return testing::skipped("what ranks take: sanitizers take memory themselves");
  double planned = 0, measured = 0;
  const size_t at = split.out.rfind("process ");
  REQUIRE(std::sscanf(split.out.c_str() + at, "process %lf MiB %lf MiB", &planned, &measured) == 2);
  CHECK(measured <= planned);
}

TEST_CASE("a signal to one rank or to the launcher stops all after one step, and the run goes on") {
  for (const int receiver : {-1, 0, 1}) {
    CAPTURE(receiver);
    const RanksPlace place;
    Running run = place.start_endless();
    REQUIRE(run.until([&] { return place.is_under_way(); }));
    if (receiver < 0)
      run.signal(SIGTERM);
    else
      kill(pid_of_rank(place, receiver), SIGTERM);
    const Outcome outcome = run.wait();
    CAPTURE(outcome.err);
    CHECK(outcome.code == stopped);
    CHECK(says(outcome.out, "by a signal; saved runs/tiny/checkpoints/step-"));
    const int64_t step = train::list_checkpoints(place.path("runs/tiny")).back().step;
    const Outcome resumed =
        place.weft(RanksPlace::command({"--resume", "--steps", std::to_string(step + 3)}));
    CAPTURE(resumed.err);
    CHECK(resumed.code == 0);
    CHECK(says(resumed.out, "resumed from runs/tiny/checkpoints/step-"));
  }
}

TEST_CASE("SIGUSR1 to any rank or to the launcher saves after one step, and the run goes on") {
  const RanksPlace place;
  Running run = place.start(std::getenv("WEFT"),
                            RanksPlace::command({"--steps", "100000000", "--log.every", "100",
                                                 "--checkpoint.every", "100000000"}));
  const auto newest = [&] {
    const auto saved = train::list_checkpoints(place.path("runs/tiny"));
    return saved.empty() ? 0 : saved.back().step;
  };
  REQUIRE(run.until([&] { return !place.read("runs/tiny/log.jsonl").empty(); }));
  for (const int receiver : {-1, 0, 1, 1}) {
    CAPTURE(receiver);
    const int64_t before = newest();
    if (receiver < 0)
      run.signal(SIGUSR1);
    else
      kill(pid_of_rank(place, receiver), SIGUSR1);
    REQUIRE(run.until([&] { return newest() > before; }));
  }
  const int64_t last = newest();
  run.signal(SIGTERM);
  const Outcome outcome = run.wait();
  CAPTURE(outcome.err);
  CHECK(outcome.code == stopped);
  CHECK(outcome.err.empty());
  CHECK(newest() > last);
  for (const auto& checkpoint : train::list_checkpoints(place.path("runs/tiny")))
    train::verify_checkpoint(checkpoint.path);
}

TEST_CASE("a killed rank ends the others, and its run resumes from a whole checkpoint") {
  for (const int rank : {0, 1}) {
    CAPTURE(rank);
    const RanksPlace place;
    Running run = place.start_endless();
    // Once a second save is there, every rank has learnt of the first.
    const std::string second = place.path("runs/tiny/checkpoints/step-00002000");
    REQUIRE(run.until([&] { return std::filesystem::exists(second); }));
    kill(pid_of_rank(place, rank), SIGKILL);
    const Outcome outcome = run.wait();
    CAPTURE(outcome.err);
    CHECK(outcome.code == rank_lost);
    CHECK(says(outcome.err, "rank " + std::to_string(rank) + " (host "));
    CHECK(says(outcome.err, "is dead: its connection closed. At its last beat it had done "));
    CHECK(says(outcome.err, "is whole: --resume continues from there."));
    const std::string fault = "runs/tiny/checkpoints/fault-r" + std::to_string(1 - rank) + ".txt";
    CHECK(says(place.read(fault), "weft::train::train"));
    const auto saved = train::list_checkpoints(place.path("runs/tiny"));
    for (const auto& checkpoint : saved) train::verify_checkpoint(checkpoint.path);
    const std::string steps = std::to_string(saved.back().step + 3);
    CHECK(place.weft(RanksPlace::command({"--resume", "--steps", steps})).code == 0);
    CHECK(!std::filesystem::exists(place.path(fault)));
  }
}

TEST_CASE("where mpirun starts no rank, one line has what it says first") {
  const Workplace place;
  const auto launch = [&](const std::string& script) {
    place.write("mpirun", "#!/bin/sh\n" + script);
    std::filesystem::permissions(place.path("mpirun"), std::filesystem::perms::owner_all);
    return place.weft({"launch", "-n", "1", "--hosts", "a", "--", "./nosuch"},
                      {{"PATH", place.folder() + ":/usr/bin:/bin"}});
  };
  const std::string program =
      "echo '1 total processes failed to start'\n"
      "printf -- '-----\\nmpirun was unable to find\\n  it:\\n\\n"
      "NOTE: more\\n' >&2\nexit 134";
  CHECK(fails_with(launch(program), usage,
                   "cannot start ./nosuch on each host: mpirun was unable to find it.") == "");
  CHECK(fails_with(launch("echo 'ssh: no host a' >&2\necho ----- >&2\nexit 255"), device_code,
                   "mpirun has started no rank: ssh: no host a") == "");
  const Outcome killed = launch("echo 'mpirun noticed a signal' >&2\nexit 134");
  CHECK(killed.code == rank_lost);
  CHECK(killed.err == "mpirun noticed a signal\n");
}

TEST_CASE("what ranks cannot do is refused in one line") {
  const RanksPlace place;
  const auto refused = [&](const std::vector<std::string>& words, const std::string& message) {
    return fails_with(place.weft(words), usage, message);
  };
  CHECK(refused({"launch", "-n", "2", "--oversubscribe", "eval", "runs/tiny"},
                "weft eval does not run on several ranks") == "");
  CHECK(refused({"launch", "-n", "3", "--hosts", "a,b", "train", "tiny.yaml"},
                "3 ranks cannot be shared out to 2 hosts evenly. Hint: -n 2 or -n 4.") == "");
  CHECK(refused({"launch", "-n", "1", "--hosts", "a,b", "train", "tiny.yaml"},
                "--hosts has 2 hosts, and -n is 1. Hint: -n 2.") == "");
  CHECK(refused({"launch", "-n", "2", "--hosts", "a,,b", "train", "tiny.yaml"},
                "--hosts a,,b is no list of hosts.") == "");
  CHECK(fails_with(place.weft({"launch", "-n", "2", "--hosts", "a,b", "train", "tiny.yaml"},
                              {{"PATH", "/nowhere"}}),
                   device_code, "weft launch --hosts needs mpirun") == "");
  CHECK(refused({"launch", "-n", "1000", "train", "tiny.yaml"}, "--oversubscribe") == "");
  CHECK(refused({"launch", "-n", "2"}, "needs what to start") == "");
  CHECK(refused({"launch", "-n", "2", "./tiny.yaml"}, "./tiny.yaml is no verb. Hint: ") == "");
  CHECK(refused({"launch", "-n", "0", "train", "tiny.yaml"}, "1 to 1024") == "");
  CHECK(refused(RanksPlace::command({"--steps", "-1"}), "train.steps") == "");
  CHECK(refused(RanksPlace::command({"--batch", "5"}), "Got 5. Hint: 4 or 6.") == "");
  CHECK(refused(RanksPlace::command({"--batch", "1"}), "Got 1. Hint: 2.") == "");
  CHECK(refused(RanksPlace::command({"--parallel.zero", "4"}), "parallel.zero must be in 0 .. 3") ==
        "");
  for (const auto& [key, value] : {std::pair("pruning.pattern", "2:4"),
                                   {"distillation.teacher", "runs/x"},
                                   {"quantization.activations", "static"},
                                   {"ema.decay", "0.9"}}) {
    const std::string flag = std::string("--") + key;
    const std::string message = std::string(key) + " does not run on several ranks yet.";
    CHECK(refused(RanksPlace::command({flag, value}), message) == "");
    CHECK(refused({"plan", "tiny.yaml", "--parallel.dp", "2", flag, value}, message) == "");
  }
  for (const std::string device : {"cuda", "cuda:1", "opencl"})  // without a driver, too
    CHECK(refused(RanksPlace::command({"--device", device}),
                  "train.device " + device + " does not run on several ranks yet.") == "");
  CHECK(refused(RanksPlace::command({"--resume"}), "no run runs/tiny to resume.") == "");
  CHECK(refused({"launch", "-n", "2", "--oversubscribe", "profile", "tiny.yaml"},
                "weft profile does not run on several ranks") == "");
  CHECK(refused(RanksPlace::command({"--parallel.dp", "3"}),
                "parallel.dp is 3, and the run has 2 ranks. Hint: weft launch -n 3") == "");
  CHECK(refused({"train", "tiny.yaml", "--parallel.dp", "2"},
                "parallel.dp is 2, and the run has one rank.") == "");
  CHECK(refused({"profile", "tiny.yaml", "--parallel.dp", "2"},
                "weft profile runs one rank, and parallel.dp is 2.") == "");
  CHECK(refused({"plan", "tiny.yaml", "--parallel.dp", "100000000000"},
                "parallel.dp must be in 1 .. 65536") == "");
  CHECK(refused({"launch", "-n", "2", "--oversubscribe", "--", "./nosuch"},
                "cannot start ./nosuch: No such file") == "");
  CHECK(refused(RanksPlace::command({"--no.such", "1"}), "no.such") == "");
  CHECK(fails_with(place.weft({"generate", "runs/tiny"}, {{"RANK", "0"}, {"WORLD_SIZE", "4"}}),
                   usage, "does not run on several ranks, and torchrun started 4") == "");
  CHECK(fails_with(place.weft({"train", "tiny.yaml"}, {{"RANK", "3"}}), usage, "RANK=3") == "");
  // Variables that are left over in a shell are named by a rank that is not the first, too.
  for (const char* verb : {"eval", "launch"})
    CHECK(fails_with(
              place.weft(std::string(verb) == "eval" ? std::vector<std::string>{"eval", "runs/tiny"}
                                                     : RanksPlace::command(),
                         {{"RANK", "3"}, {"WORLD_SIZE", "4"}}),
              usage, "RANK=3 and WORLD_SIZE=4") == "");
  CHECK(fails_with(place.weft(RanksPlace::command(), {{"RANK", "3"}}), usage, "RANK=3") == "");
  CHECK(!std::filesystem::exists(place.path("runs")));
}

TEST_CASE("a program of one's own trains on ranks as it does alone") {
  const RanksPlace place;
  const std::string program = std::string(std::getenv("BUILD")) + "/examples/10_ranks";
  const Outcome two = place.weft({"launch", "-n", "2", "--oversubscribe", "--", program});
  const Outcome one = place.weft({"launch", "-n", "1", "--", program});
  CAPTURE(two.err);
  REQUIRE(two.code == 0);
  REQUIRE(one.code == 0);
  CHECK(says(two.out, "on 2 ranks"));
  // The loss that is printed has six digits.
  const auto losses = [](const std::string& text) { return text.substr(0, text.find("step 100")); };
  CHECK(losses(two.out) == losses(one.out));
}

TEST_CASE("state that differs between ranks ends all of them, and names rank, variable and step") {
  const RanksPlace place;
  const std::string program = std::string(std::getenv("BUILD")) + "/tests/replicas_program";
  for (const std::string zero : {"0", "3"}) {
    CAPTURE(zero);
    place.write("alike.yaml", recipe + ("parallel: {check_every: 5, zero: " + zero + "}\n"));
    const auto run = [&](const std::string& what) {
      return place.weft(
          {"launch", "-n", "2", "--oversubscribe", "--", program, "alike.yaml", what});
    };
    const Outcome weight = run("weight"), numbers = run("numbers");
    CHECK(fails_with(weight, replicas_differ, "rank 1 (host ") == "");
    CHECK(says(weight.err, "has another ln_f.bias than rank 0"));
    CHECK(says(weight.err, "after step 7. They were equal after step 6"));
    CHECK(fails_with(numbers, replicas_differ, "has another random_step than rank 0") == "");
    CHECK(says(numbers.err, "after step 5. They were equal after step 0"));
    std::filesystem::remove_all(place.path("runs"));
    CHECK(run("none").code == 0);
    std::filesystem::remove_all(place.path("runs"));
    place.write("alike.yaml", recipe + std::string("parallel: {check_every: 0}\n"));
    CHECK(run("numbers").code == 0);
    std::filesystem::remove_all(place.path("runs"));
  }
}

TEST_CASE("plans of ranks say what they exchange") {
  const RanksPlace place;
  const Outcome planned = place.weft({"plan", "tiny.yaml", "--parallel.dp", "2", "--on", "h100"});
  REQUIRE(planned.code == 0);
  CHECK(says(planned.out, "shared out to 2 ranks"));
  CHECK(says(planned.out, "sent by each rank per update over NVLink 4"));
  CHECK(says(planned.out, "all_reduce"));
}

TEST_CASE("traces of ranks show kernels under exchanges") {
  const RanksPlace place;
  const Outcome outcome = place.weft(RanksPlace::command({"--log.trace", "true"}));
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  const auto plan = nlohmann::json::parse(place.read("runs/tiny/plan.json"));
  size_t collectives = 0;  // of an update
  for (const auto& each : plan["exchanges"]) collectives += each["count"].get<size_t>();
  CHECK(collectives > 0);
  for (const int rank : {0, 1}) {
    const std::string file = "runs/tiny/trace-r" + std::to_string(rank) + ".json";
    const auto trace = nlohmann::json::parse(place.read(file));
    struct Event {
      std::string name;
      double begin = 0, end = 0;  // microseconds
    };
    std::map<std::string, Event> exchanges;              // by id
    std::map<std::string, std::vector<Event>> launches;  // by category
    for (const auto& event : trace["traceEvents"]) {
      CHECK(event["pid"] == rank);
      const std::string phase = event["ph"];
      if (phase == "b") exchanges[event["id"]] = {event["name"], event["ts"]};
      if (phase == "e") exchanges[event["id"]].end = event["ts"];
      if (phase != "X") continue;
      const double begin = event["ts"], took = event["dur"];
      launches[event["cat"]].push_back({event["name"], begin, begin + took});
    }
    CHECK(exchanges.size() == 3 * collectives);
    CHECK(launches["begin"].size() == exchanges.size());
    CHECK(launches["await"].size() == exchanges.size());
    // Each lasts from the launch that begins it to the one that awaits it, with a kernel between.
    constexpr double rounding = 1e-3;
    for (const auto& [id, exchange] : exchanges) {
      CAPTURE(id);
      const auto begin = std::ranges::find_if(launches["begin"], [&](const Event& launch) {
        return launch.name == exchange.name && std::abs(launch.begin - exchange.begin) < rounding;
      });
      const auto await = std::ranges::find_if(launches["await"], [&](const Event& launch) {
        return launch.name == "await " + exchange.name &&
               std::abs(launch.end - exchange.end) < rounding;
      });
      REQUIRE(begin != launches["begin"].end());
      REQUIRE(await != launches["await"].end());
      CHECK(std::ranges::any_of(launches["kernel"], [&](const Event& kernel) {
        return begin->end < kernel.begin + rounding && kernel.end < await->begin + rounding;
      }));
    }
  }
  // Another run may take the place of one with traces.
  CHECK(place.weft(RanksPlace::command({"--overwrite", "--steps", "1"})).code == 0);
}

// A mixture of experts sorts the tokens of the whole batch by expert.
TEST_CASE("what ranks gather for operations that are not computed in parts is said, or refused") {
  const RanksPlace place;
  write_published(place.path("mixtral"), {.width = 32, .experts = 4});
  place.write("text", sixty_lines());
  place.write("experts.yaml",
              "name: experts\nmodel: {pretrained: mixtral}\ndata: {format: text, path: text, "
              "seq_len: 16}\ntrain: {steps: 2, global_batch_size: 8}\n");
  const std::string said = "which is not computed in parts";
  const std::vector<std::string> plan = {"plan", "experts.yaml",    "--parallel.dp",
                                         "2",    "--parallel.link", "Ethernet 10"};
  const Outcome planned = place.weft(plan);
  CAPTURE(planned.out);
  CHECK(planned.code == 0);
  CHECK(says(planned.out, "for argsort"));
  CHECK(says(planned.out, "(model.layers.0.block_sparse_moe)"));
  CHECK(says(planned.out, "computed in parts"));
  std::vector<std::string> strict = plan;
  strict.insert(strict.end(), {"--parallel.strict", "true"});
  CHECK(fails_with(place.weft(strict), usage, "parallel.strict: ") == "");
  CHECK(fails_with(place.weft({"launch", "-n", "2", "--oversubscribe", "train", "experts.yaml",
                               "--parallel.strict", "true"}),
                   usage, said) == "");
  CHECK(!std::filesystem::exists(place.path("runs/experts")));
  const Outcome gpt =
      place.weft({"plan", "tiny.yaml", "--parallel.dp", "2", "--parallel.strict", "true"});
  CHECK(gpt.code == 0);
  CHECK(!says(gpt.out, said));
}

TEST_CASE("ranks with other recipes, data or folders are named before the first step") {
  const RanksPlace place;
  for (const std::string rank : {"0", "1"}) {
    place.write(rank + "/tiny.yaml", recipe);
    place.write(rank + "/text", rank == "0" ? sixty_lines() : "a" + sixty_lines());
    place.write(rank + "/text.yaml",
                "name: text\nmodel: {name: gpt, config: {hidden_size: 16, num_hidden_layers: 1, "
                "num_attention_heads: 2}}\ndata: {format: text, path: text, seq_len: 8}\n"
                "train: {steps: 2, global_batch_size: 4}\n");
  }
  const auto launched = [&](const std::string& train) {
    place.write("ranks.sh", "#!/bin/sh\n" + train + "\n");
    return place.weft({"launch", "-n", "2", "--oversubscribe", "--", "/bin/sh", "ranks.sh"});
  };
  CHECK(fails_with(launched("exec $WEFT train tiny.yaml --seed $WEFT_RANK"), usage,
                   "has seed 1, rank 0 has 0.") == "");
  // Another size of the model changes what ranks exchange, and how often.
  CHECK(fails_with(launched("exec $WEFT train tiny.yaml --model.config.hidden_size "
                            "$((16 + 16 * WEFT_RANK))"),
                   usage, "has model.config {dropout: 0.1, hidden_size: 32") == "");
  CHECK(fails_with(launched("cd $WEFT_RANK && exec $WEFT train text.yaml"), usage,
                   "has data text of hash ") == "");
  CHECK(!std::filesystem::exists(place.path("0/runs")));
  CHECK(fails_with(launched("cd $WEFT_RANK && exec $WEFT train tiny.yaml"), checkpoint,
                   "does not see what rank 0 writes to runs/tiny/checkpoints") == "");
  CHECK(!std::filesystem::exists(place.path("runs")));
}

TEST_SUITE_BEGIN("slow ranks");

// The launcher gives the other rank five seconds to end.
TEST_CASE("a verb that ranks do not share is named by the rank that was given it") {
  const RanksPlace place;
  place.write("ranks.sh",
              "#!/bin/sh\n[ $WEFT_RANK = 1 ] && exec \"$WEFT\" devices\nexec \"$WEFT\" train "
              "tiny.yaml\n");
  const Outcome outcome =
      place.weft({"launch", "-n", "2", "--oversubscribe", "--", "/bin/sh", "ranks.sh"});
  CHECK(outcome.code == usage);
  CHECK(says(outcome.err, "[rank 1] weft: error: weft devices does not run on several ranks"));
}

TEST_SUITE_END();
