// What an executor writes of its run. Digests blame the instruction that first does something else:
// a difference is injected by changing what one instruction reads just before it, and changing it
// back just after. The timeline is JSON, whatever units are called.
#include "tests/zero/harness.h"

#include <fstream>

#include <yaml.h>

using namespace harness;

namespace {

struct Injection {
    z3d_opcode opcode;
    const char *about; // of what the instruction says of itself: "recompute block.1"
    z3d_slot slot;     // whose buffer is changed; Z3D_SLOT_COUNT: all kept gradients
};

// Changes memory by a factor of four, up or down, in every fp32; twice is not at all.
class Injector {
  public:
    Injector(const Injection &injection, Trainer &trainer) : wanted(injection), t(trainer) {}
    int injected = 0;

    static z3d_status entered(void *context, const z3d_program *program, int index) {
        ((Injector *)context)->enter(program, index);
        return Z3D_OK;
    }

  private:
    const Injection wanted;
    Trainer &t;
    std::vector<int> changed;

    void enter(const z3d_program *program, int index) {
        const z3d_instruction *i = &program->instruction[index];
        char what[96];
        z3d_instruction_describe(program, index, what, sizeof what);
        for (int b : changed) change(program->buffer[b]);
        changed.clear();
        if (i->opcode != wanted.opcode || strncmp(what, wanted.about, strlen(wanted.about)) != 0)
            return;
        injected++;
        if (wanted.slot < Z3D_SLOT_COUNT)
            changed.push_back(i->buffer[wanted.slot]);
        else
            for (int g = 0; g < program->layout->num_groups; g++)
                changed.push_back(z3d_program_group_buffer(program, g, Z3D_STATE_GRADIENT));
        for (int b : changed) change(program->buffer[b]);
    }

    void change(const z3d_buffer &b) {
        int64_t unused;
        char *at = (char *)z3d_engine_arena(t.engine, b.space, &unused) + b.offset;
        for (int64_t k = 3; k < b.bytes; k += 4) at[k] = (char)(at[k] ^ 1); // of the exponent
    }
};

std::vector<std::string> digests(const Options &options, const Injection *injection) {
    Options o = options;
    std::string path = "digest-test-" + std::to_string(z3d_world_rank(world)) + "-of-" +
                       std::to_string(z3d_world_size(world)) + ".txt";
    o.digest = path.c_str();
    {
        Trainer t(o);
        Injection none = {Z3D_OPCODE_COUNT, "", Z3D_SLOT_COUNT};
        Injector injector(injection ? *injection : none, t);
        t.config.enter = Injector::entered;
        t.config.enter_context = &injector;
        EXPECT_Z3D(t.create());
        for (int k = 0; k < 2; k++) {
            z3d_step_result result;
            EXPECT_Z3D(t.step(&result));
        }
        EXPECT_EQ(injector.injected > 0, injection != nullptr);
    }
    std::vector<std::string> lines;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    EXPECT_GT(lines.size(), 20u);
    remove(path.c_str());
    return lines;
}

// The first line that differs.
std::string first_difference(const std::vector<std::string> &a, const std::vector<std::string> &b) {
    EXPECT_EQ(a.size(), b.size());
    for (size_t k = 0; k < a.size() && k < b.size(); k++)
        if (a[k] != b[k]) return b[k];
    return "none";
}

void expect_blame(const Options &o, const Injection &injection, const std::string &blamed) {
    std::vector<std::string> as_ever = digests(o, nullptr), other = digests(o, &injection);
    EXPECT_EQ(as_ever, digests(o, nullptr)) << "two equal runs differ";
    std::string line = first_difference(as_ever, other);
    EXPECT_NE(line.find(" " + blamed), std::string::npos) << line;
}

// The scalars of a JSON text (YAML's flow style has it within); empty if it is none.
std::vector<std::string> json_scalars(const std::string &text) {
    std::vector<std::string> scalars;
    yaml_parser_t parser;
    yaml_event_t event;
    bool more = true;
    yaml_parser_initialize(&parser);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text.data(), text.size());
    while (more) {
        if (!yaml_parser_parse(&parser, &event)) {
            scalars.clear();
            break;
        }
        if (event.type == YAML_SCALAR_EVENT)
            scalars.emplace_back((const char *)event.data.scalar.value);
        more = event.type != YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return scalars;
}

// The timeline's instructions are those of the training program, and each wait for a collective
// comes before the instruction that it is in.
void expect_timeline(const Options &o) {
    std::string path = "trace-test-" + std::to_string(z3d_world_rank(world)) + "-of-" +
                       std::to_string(z3d_world_size(world)) + ".json";
    std::vector<std::string> wanted;
    {
        Trainer t(o);
        t.config.trace_path = path.c_str();
        t.config.trace_steps = 1;
        ASSERT_Z3D(t.create());
        strcpy(t.model->unit[1].name, "a \"block\\\n");
        z3d_step_result result;
        for (int k = 0; k < 2; k++) ASSERT_Z3D(t.step(&result));
        const z3d_program *program = z3d_engine_program(t.engine, Z3D_MODE_TRAIN);
        char what[96];
        for (int n = 0; n < program->num_instructions; n++)
            wanted.push_back(z3d_instruction_describe(program, n, what, sizeof what));
    }
    std::ifstream in(path);
    std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    remove(path.c_str());
    std::vector<std::string> names, scalars = json_scalars(text);
    std::string name, waits_in;
    for (size_t k = 0; k + 1 < scalars.size(); k++) {
        if (scalars[k] == "name") name = scalars[k + 1];
        if (scalars[k] != "entry") continue;
        bool wait = name.find(" group)") != std::string::npos;
        if (!wait) names.push_back(name);
        if (!wait && !waits_in.empty()) {
            EXPECT_EQ(scalars[k + 1], waits_in) << name;
        }
        waits_in = wait ? scalars[k + 1] : "";
    }
    EXPECT_EQ(names, wanted) << text.substr(0, 2000);
    EXPECT_NE(text.find("\"all_reduce (world group): step_control\",\"cat\":\"wait\""),
              std::string::npos);
}

} // namespace

TEST(Timeline, IsJsonOfTheProgramsInstructions) {
    expect_timeline({});
}

TEST(Timeline, OfPipelineStagesNamesTheOtherOne) {
    if (z3d_world_size(world) == 1) GTEST_SKIP() << "two stages";
    Options o;
    o.pipeline = 2;
    o.accumulation = 2;
    expect_timeline(o);
}

TEST(Digest, BlamesForward) {
    expect_blame({}, {Z3D_OP_FORWARD, "forward block.1", Z3D_SLOT_PARAMETERS}, "forward block.1");
}

// The last unit's result is the loss.
TEST(Digest, BlamesTheHead) {
    expect_blame({}, {Z3D_OP_FORWARD, "forward head", Z3D_SLOT_PARAMETERS}, "forward head");
}

TEST(Digest, BlamesRecompute) {
    expect_blame({}, {Z3D_OP_RECOMPUTE, "recompute block.1", Z3D_SLOT_PARAMETERS},
                 "recompute block.1");
}

// The gradients are right again when AdamW reads them: only the norm was wrong.
TEST(Digest, BlamesStepControl) {
    Options o;
    o.stage = 2;
    expect_blame(o, {Z3D_OP_STEP_CONTROL, "step_control", Z3D_SLOT_COUNT}, "step_control");
}

TEST(Digest, BlamesTheCopyOfACheckpoint) {
    if (z3d_world_size(world) == 1) GTEST_SKIP() << "needs a tensor group";
    Options o;
    o.tensor = 2;
    o.partition = true;
    expect_blame(o, {Z3D_OP_SAVE_INPUT, "save_input block.1", Z3D_SLOT_INPUT},
                 "save_input block.1");
}

// What the one stage sends wrong, the other blames on what it received.
TEST(Digest, BlamesWhatWasReceived) {
    if (z3d_world_size(world) == 1) GTEST_SKIP() << "two stages";
    Options o;
    o.pipeline = 2;
    o.accumulation = 2;
    o.overlap = false;
    Injection wrong = {Z3D_OP_FORWARD, "forward block.0 (micro 1", Z3D_SLOT_PARAMETERS};
    bool first = z3d_world_rank(world) == 0;
    std::string line = first_difference(digests(o, nullptr), digests(o, first ? &wrong : nullptr));
    EXPECT_NE(line.find(first ? " forward block.0 (micro 1"
                              : " wait recv_input block.1 from stage 0 (micro 1"),
              std::string::npos)
        << line;
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
