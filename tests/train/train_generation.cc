// Answers to many prompts: the same in any batch, on any topology, in their order.
#include <algorithm>

#include "run.h"

namespace {

const int LINES = 1000;

struct Answers {
    z3d_status status = Z3D_OK;
    std::string message, shown;
    z3d_generate_result result = {};
};

z3d_status keep(void *context, const char *text, size_t length) {
    static_cast<std::string *>(context)->append(text, length);
    return Z3D_OK;
}

class Generation : public ::testing::Test {
  protected:
    static inline std::unique_ptr<SharedFolder> folder;

    static void SetUpTestSuite() {
        folder = std::make_unique<SharedFolder>();
        if (z3d_world_rank(world) == 0)
            write_file(*folder / "train.bin", token_bytes(some_tokens(20000)));
        SharedFolder::barrier();
        ASSERT_EQ(train(*folder, "training.steps=20\ncheckpoint.interval=20\n").status, Z3D_OK);
    }
    static void TearDownTestSuite() {
        folder.reset();
    }

    static void write_prompts(const std::string &text) {
        if (z3d_world_rank(world) == 0) write_file(*folder / "prompts.jsonl", text);
        SharedFolder::barrier();
    }

    static Answers generate(const std::string &more, bool prompts = true) {
        std::vector<std::string> lines;
        std::istringstream in("generate.tokens=6\ntraining.threads=1\n" + more);
        for (std::string line; std::getline(in, line);) lines.push_back(line);
        std::vector<char *> assignments;
        for (std::string &line : lines) assignments.push_back(line.data());
        const std::string path = *folder / "run/checkpoints", file = *folder / "prompts.jsonl";
        Answers a;
        const z3d_generate_request request = {.path = path.c_str(),
                                              .assignments = assignments.data(),
                                              .count = static_cast<int>(assignments.size()),
                                              .prompts = prompts ? file.c_str() : nullptr,
                                              .output = nullptr,
                                              .chat = false,
                                              .ema = false,
                                              .chat_template = nullptr,
                                              .system = nullptr,
                                              .show = keep,
                                              .context = &a.shown};
        a.status = z3d_generate_from(world, &request, &a.result);
        if (a.status != Z3D_OK) a.message = z3d_error_message();
        SharedFolder::barrier();
        return a;
    }

    // Of lengths that make samples end at different times.
    static std::string many(int count) {
        std::string text;
        for (int i = 0; i < count; i++)
            text += "{\"prompt\": \"" + std::string(static_cast<size_t>(i * 7 % 15), 'a' + i % 26) +
                    "\", \"id\": " + std::to_string(i) +
                    ", \"tokens\": " + std::to_string(1 + i * 5 % 9) + "}\n";
        return text;
    }
};

TEST_F(Generation, AnswersDoNotDependOnTheBatchOrTheRanks) {
    const int ranks = z3d_world_size(world);
    write_prompts(many(40));
    const Answers one = generate("generate.batch=1\nparallel.tensor_model_parallel_size=1\n");
    ASSERT_EQ(one.status, Z3D_OK) << one.message;
    EXPECT_EQ(one.result.stage, 0); // parameters are read where they lie
    std::vector<std::string> others{"", "generate.batch=3\n", "generate.batch=64\n"};
    for (const char *stage : {"0", "1", "3"})
        others.push_back("generate.batch=2\nparallel.tensor_model_parallel_size=1\n"
                         "zero_optimization.stage=" +
                         std::string(stage) + "\n");
    if (ranks > 1)
        others.push_back("parallel.pipeline_model_parallel_size=2\n"
                         "parallel.tensor_model_parallel_size=1\n");
    if (ranks > 2) others.push_back("parallel.tensor_model_parallel_size=2\n");
    for (const std::string &more : others) {
        const Answers a = generate(more);
        ASSERT_EQ(a.status, Z3D_OK) << a.message;
        EXPECT_EQ(a.shown, one.shown) << more;
        EXPECT_EQ(a.result.prompts, 40);
        EXPECT_EQ(a.result.answers, z3d_world_rank(world) == 0 ? 40 : 0);
    }
}

TEST_F(Generation, AThousandLinesComeInOrder) {
    write_prompts(many(LINES));
    const Answers a = generate("generate.batch=16\n");
    ASSERT_EQ(a.status, Z3D_OK) << a.message;
    if (z3d_world_rank(world) != 0) {
        EXPECT_EQ(a.shown, "");
        return;
    }
    std::istringstream lines(a.shown);
    int i = 0;
    for (std::string line; std::getline(lines, line); i++) {
        ASSERT_EQ(field(line, "id"), " " + std::to_string(i));
        ASSERT_EQ(field(line, "tokens"), " " + std::to_string(1 + i * 5 % 9)) << line;
    }
    EXPECT_EQ(i, LINES);
}

// One prompt's text is that of the same prompt in the first line, and of a line with its own seed.
TEST_F(Generation, ASeedDecidesAnAnswer) {
    write_prompts(
        "{\"prompt\": \"ab\"}\n{\"prompt\": \"ab\"}\n{\"prompt\": \"ab\", \"seed\": 5}\n");
    const std::string greedy = "generate.temperature=2\ngenerate.top_k=0\ngenerate.tokens=14\n"
                               "generate.ignore_eos=true\n";
    const Answers all = generate(greedy + "generate.seed=5\n");
    const Answers one = generate(greedy + "generate.seed=5\ngenerate.prompt=ab\n", false);
    const Answers other = generate(greedy + "generate.seed=6\n");
    ASSERT_EQ(all.status, Z3D_OK) << all.message;
    ASSERT_EQ(one.status, Z3D_OK) << one.message;
    if (z3d_world_rank(world) != 0) return;
    auto texts = [](const std::string &shown) {
        std::vector<std::string> out;
        std::istringstream in(shown);
        for (std::string line; std::getline(in, line);)
            out.push_back(line.substr(line.find("\"text\": ")));
        return out;
    };
    EXPECT_EQ(texts(all.shown)[0], texts(all.shown)[2]);
    EXPECT_NE(texts(all.shown)[0], texts(all.shown)[1]);
    EXPECT_NE(texts(all.shown)[0], texts(other.shown)[0]);
    EXPECT_EQ(texts(all.shown)[2], texts(other.shown)[2]);
    EXPECT_EQ(one.shown.substr(0, 2), "ab");
    EXPECT_EQ(one.result.answers, z3d_world_rank(world) == 0 ? 1 : 0);
}

TEST_F(Generation, StopsAreNoPartOfAnAnswer) {
    write_prompts("{\"prompt\": \"abc\"}\n");
    const std::string sure = "generate.temperature=0\ngenerate.tokens=12\ngenerate.prompt=abc\n";
    const std::string free = generate(sure, false).shown;
    char letter = 0; // of the continuation, for all ranks
    size_t at = 4;
    while (at < free.size() && !isalnum(static_cast<unsigned char>(free[at]))) at++;
    if (at < free.size()) letter = free[at];
    ASSERT_Z3D(z3d_world_broadcast(world, &letter, 1, 0));
    ASSERT_NE(letter, 0);
    at = std::min(free.find(letter, 3), free.size());
    const Answers a = generate(sure + "generate.stop=[\"" + letter + "\", \"no such\"]\n", false);
    ASSERT_EQ(a.status, Z3D_OK) << a.message;
    EXPECT_EQ(a.shown, free.substr(0, at));
}

TEST_F(Generation, BrokenFilesAreRefusedOnEveryRank) {
    write_prompts("{\"prompt\": \"a\"}\n{\n");
    Answers a = generate("");
    EXPECT_EQ(a.status, Z3D_ERR_DATA);
    EXPECT_NE(a.message.find("prompts.jsonl:2: "), std::string::npos) << a.message;
    EXPECT_EQ(a.shown, "");
    write_prompts("");
    a = generate("");
    EXPECT_EQ(a.status, Z3D_ERR_DATA);
    write_prompts("{\"prompt\": \"a\"}\n");
    a = generate("generate.prompt=a\n");
    EXPECT_EQ(a.status, Z3D_ERR_CONFIG);
    EXPECT_NE(a.message.find("give one of them"), std::string::npos) << a.message;
}

} // namespace

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
