// Timelines read back: the shares of a step whose times are known, clocks of two nodes, files that
// are cut, mixed or no timelines.
#include <gtest/gtest.h>

#include <cstdio>

#include "../files.h"

extern "C" {
#include "src/train/trace/trace.h"
}

namespace {

// A line of a file. Times in milliseconds. args: behind "step" and "entry".
std::string event(int rank, const char *category, int entry, double begin, double end,
                  const std::string &args) {
    char text[512];
    (void)snprintf(text, sizeof text,
                   R"({"name":"x","cat":"%s","ph":"X","ts":%.3f,"dur":%.3f,"pid":%d,"tid":0,)"
                   R"("args":{"step":1,"entry":%d%s}},)"
                   "\n",
                   category, begin * 1e3, (end - begin) * 1e3, rank, entry, args.c_str());
    return text;
}

std::string head(int rank, int node, const std::string &run = "a run") {
    return "[\n{\"name\":\"zero3d\",\"ph\":\"M\",\"pid\":" + std::to_string(rank) +
           R"(,"args":{"run":")" + run + R"(","node":)" + std::to_string(node) +
           R"(,"entries":5,"tensor":1,"data":1,"pipeline":2}},)"
           "\n";
}

const char TRAIN[] = R"(,"program":"train")";
const char START[] = R"(,"program":"train","phase":"start","ticket":0,"peer":)";
const char WAIT[] = R"(,"program":"train","phase":"wait","ticket":0,"peer":)";
const char MICRO[] = R"(,"program":"train","chunk":0,"micro":0)";

// Rank 0 sends to rank 1, which began to wait before; rank 1 comes last to step_control, ends
// first.
std::string first_rank() {
    return head(0, 0) + event(0, "forward", 0, 1000, 1010, MICRO) +
           event(0, "send_input", 1, 1010, 1011, START + std::string("1")) +
           event(0, "wait", 2, 1011, 1021, "") +
           event(0, "send_input", 2, 1011, 1021, WAIT + std::string("1")) +
           event(0, "wait", 3, 1025, 1040, "") + event(0, "step_control", 3, 1021, 1040, TRAIN) +
           event(0, "optimizer_step", 4, 1041, 1045, TRAIN) + "{}]\n";
}

// On a node whose clock is `ahead` ms ahead. It also evaluates; its file has no end yet.
std::string second_rank(double ahead) {
    double t = 1000 + ahead;
    return head(1, 1) +
           "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":0,\"args\":{\"name\":\"a "
           "\\\"<row>\"}},\n" +
           event(1, "recv_input", 0, t + 2, t + 3, START + std::string("0")) +
           event(1, "wait", 1, t + 3, t + 21, "") +
           event(1, "recv_input", 1, t + 3, t + 21, WAIT + std::string("0")) +
           event(1, "forward", 2, t + 21, t + 31, MICRO) + event(1, "wait", 3, t + 35, t + 40, "") +
           event(1, "step_control", 3, t + 31, t + 40, TRAIN) +
           event(1, "optimizer_step", 4, t + 40, t + 43, TRAIN) +
           event(1, "wait", 0, t + 44, t + 50, "") +
           event(1, "forward", 0, t + 43, t + 60, R"(,"program":"evaluate")");
}

class Trace : public ::testing::Test {
  protected:
    ~Trace() override {
        z3d_string_free(&text);
        z3d_string_free(&picture);
        z3d_string_free(&merged);
    }
    z3d_status look(const std::string &first, const std::string &second, int64_t step = 0) {
        write_file(folder / "trace-rank0.json", first);
        write_file(folder / "trace-rank1.json", second);
        z3d_trace_run run;
        z3d_status status = z3d_trace_run_read(folder.path.c_str(), step, &run);
        for (z3d_string *s : {&text, &picture, &merged}) z3d_string_clear(s);
        if (status == Z3D_OK) status = z3d_trace_step_report(&run, &text, &picture);
        if (status == Z3D_OK) status = z3d_trace_merge(&run, &merged);
        z3d_trace_run_release(&run);
        return status;
    }
    void expect_refused(const std::string &first, const std::string &second, const char *why) {
        EXPECT_NE(look(first, second), Z3D_OK) << why;
        std::string message = z3d_error_message();
        EXPECT_NE(message.find(why), std::string::npos) << message;
        EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
    Folder folder;
    z3d_string text{}, picture{}, merged{};
};

std::string replaced(std::string text, const std::string &from, const std::string &to) {
    size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
}

} // namespace

// The receiver waited 7 ms for the sender and 11 ms for the transfer; the last stage to come to
// step_control makes the other wait 10 ms; a stage that ends 2 ms earlier waits for the step's end.
TEST_F(Trace, SharesAreThoseOfTheTimes) {
    ASSERT_EQ(look(first_rank(), second_rank(0)), Z3D_OK) << z3d_error_message();
    EXPECT_STREQ(text.text, "a run\n"
                            "step 1: 0.045 s; % of it on each rank\n"
                            "\n"
                            " rank  stage   compute   exposed    bubble   outside\n"
                            "    0      0     42.22     33.33     22.22      2.22\n"
                            "    1      1     40.00     35.56     20.00      4.44\n"
                            "  all            41.11     34.44     21.11      3.33\n");
    std::string svg = picture.text;
    for (const char *part : {">0, stage 0<", ">1, stage 1<", ">bubble 21.11 %<", ">a run, step 1<",
                             "<title>forward, micro-batch 0, chunk 0: "})
        EXPECT_NE(svg.find(part), std::string::npos) << part;
}

TEST_F(Trace, ClocksOfNodesAreSetByTheEndOfStepControl) {
    ASSERT_EQ(look(first_rank(), second_rank(0)), Z3D_OK) << z3d_error_message();
    std::string same[] = {text.text, picture.text, merged.text};
    for (double ahead : {250.0, -900.0}) {
        ASSERT_EQ(look(first_rank(), second_rank(ahead)), Z3D_OK) << z3d_error_message();
        EXPECT_EQ(text.text, same[0]);
        EXPECT_EQ(picture.text, same[1]);
        EXPECT_EQ(merged.text, same[2]);
    }
    // Ranks of one node have one clock: what differs there is when they ran.
    std::string together = replaced(second_rank(250), "\"node\":1", "\"node\":0");
    ASSERT_EQ(look(first_rank(), together), Z3D_OK) << z3d_error_message();
    EXPECT_NE(merged.text, same[2]);
}

TEST_F(Trace, TheMergedTimelineHasAllEventsFromZeroOn) {
    ASSERT_EQ(look(first_rank(), second_rank(500)), Z3D_OK) << z3d_error_message();
    z3d_json *json;
    ASSERT_EQ(z3d_json_parse(merged.text, merged.length, "merged", &json), Z3D_OK)
        << z3d_error_message();
    int events[2] = {0, 0}, rows = 0;
    double first = 1e9;
    for (const z3d_json *e = json->first; e; e = e->next) {
        int64_t rank;
        double begin;
        const char *name;
        ASSERT_EQ(z3d_json_get_int(e, "pid", &rank), Z3D_OK);
        ASSERT_EQ(z3d_json_get_text(e, "name", &name), Z3D_OK);
        rows += strcmp(name, "thread_name") == 0;
        if (z3d_json_get_float(e, "ts", &begin) != Z3D_OK) continue;
        events[rank]++;
        first = begin < first ? begin : first;
    }
    z3d_json_free(json);
    EXPECT_EQ(events[0], 7 + 1); // and what was under way
    EXPECT_EQ(events[1], 9 + 1);
    EXPECT_EQ(rows, 1 + 2);
    EXPECT_EQ(first, 0);
}

TEST_F(Trace, RefusesWhatIsNoRun) {
    std::string a = first_rank(), b = second_rank(0);
    expect_refused(a, head(1, 1, "another run"), "is of another run than trace-rank0.json");
    expect_refused(a, a, "trace-rank1.json is the timeline of rank 0");
    expect_refused(a, replaced(b, "\"data\":1", "\"data\":2"), "has other parallel sizes");
    expect_refused(replaced(a, "\"data\":1", "\"data\":2"), b, "has other parallel sizes");
    expect_refused(replaced(a, "\"data\":1", "\"data\":2000000000"), b, "trace-rank0.json:2: ");
    expect_refused(replaced(a, "\"pipeline\":2", "\"pipeline\":3"), b, "has other parallel sizes");
    expect_refused(a, head(1, 1), "trace-rank1.json has no whole step");
    expect_refused(a, b.substr(0, b.find("optimizer")), "trace-rank1.json has no whole step");
    expect_refused(replaced(a, "\"run\":\"a run\"", "\"run\":\"a\\u0001run\""), b,
                   "trace-rank0.json:2: the first event does not have the run");
    EXPECT_EQ(look(a, b, 2), Z3D_ERR_DATA);
    EXPECT_NE(std::string(z3d_error_message()).find("does not have step 2: it has steps 1 to 1"),
              std::string::npos);
}

TEST_F(Trace, RefusesWhatIsNoTimeline) {
    std::string a = first_rank(), b = second_rank(0);
    expect_refused("", b, "trace-rank0.json:1: expected '[' alone");
    expect_refused("[\n{}]\n", b, "trace-rank0.json:2: the file has no event");
    expect_refused("[\n{\"name\":\"forward\"},\n", b, "is no timeline of `zero3d train --trace`");
    expect_refused("[\n" + std::string(5000, 'x') + "\n", b, "the line is too long");
    expect_refused(replaced(a, "\"ph\":\"X\"", "\"ph\":X"), b, "trace-rank0.json:3: ");
    for (const char *bad : {"\"ts\":-1.0", "\"ts\":1e300", "\"ts\":\"now\"", "\"tss\":0"})
        expect_refused(replaced(a, "\"ts\":1000000.000", bad), b, "trace-rank0.json:3: this is no");
    expect_refused(replaced(a, "\"cat\":\"forward\"", "\"cat\":\"sideways\""), b, ":3: this is no");
    expect_refused(replaced(a, "\"micro\":0", "\"micro\":-1"), b, ":3: this is no");
    expect_refused(replaced(a, "\"ts\":1010000.000", "\"ts\":10.0"), b,
                   ":4: the event begins before");
    expect_refused(replaced(a, "\"entry\":1", "\"entry\":2"), b,
                   "instruction 2 of step 1 follows instruction 0 of step 1, which has 5");
    expect_refused(replaced(a, "\"step\":1,\"entry\":1", "\"step\":2,\"entry\":1"), b, ":4: ");
    expect_refused(replaced(a, "\"pid\":0,\"tid\"", "\"pid\":1,\"tid\""), b, "of another rank");
}

// A run that was killed, or is not over.
TEST_F(Trace, AStepThatIsCutIsLeftOut) {
    std::string a = first_rank(), b = second_rank(0), second = a.substr(head(0, 0).size());
    for (size_t at = 0; (at = second.find("\"step\":1", at)) != std::string::npos; at++)
        second[at + 7] = '2';
    for (size_t at = 0; (at = second.find("\"ts\":10", at)) != std::string::npos; at++)
        second[at + 6] = '1'; // 100 ms later
    a = a.substr(0, a.size() - 4);
    ASSERT_EQ(look(a + second, b), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(strstr(text.text, "ends within"), nullptr);
    ASSERT_EQ(look(a + second.substr(0, second.size() - 50), b), Z3D_OK) << z3d_error_message();
    EXPECT_NE(strstr(text.text, "\nstep 1: 0.045 s;"), nullptr) << text.text;
    EXPECT_NE(strstr(text.text, "\ntrace-rank0.json ends within step 2: it is cut, or the run is"),
              nullptr)
        << text.text;
}

// Whatever is left of a file: an answer or one line.
TEST_F(Trace, AnyCutIsSafe) {
    std::string a = first_rank(), b = second_rank(0);
    int whole = 0;
    for (size_t size = 0; size < a.size(); size += 3) {
        z3d_status status = look(a.substr(0, size), b);
        whole += status == Z3D_OK;
        EXPECT_TRUE(status == Z3D_OK || !strchr(z3d_error_message(), '\n')) << size;
    }
    EXPECT_LE(whole, 2); // only the end of the list may be missing
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
