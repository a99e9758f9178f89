// One half of elastic.sh: FOLDER (in the environment: ZERO3D_ELASTIC) gets the checkpoints of every
// topology of this world, or gives those of every other to every topology of this world.
#include <cmath>

#include "engine.h"

namespace {

enum { BEFORE = 2, AFTER = 4 };

std::string folder() {
    return getenv("ZERO3D_ELASTIC");
}

struct Topology {
    int tensor, pipeline, data, chunks;
    z3d_schedule_kind schedule;

    int ranks() const {
        return tensor * pipeline * data;
    }
    std::string name() const {
        return std::to_string(tensor) + "x" + std::to_string(pipeline) + "x" + std::to_string(data);
    }
};

// Without stages: every tensor and data size up to 4 on at most 8 ranks.
const Topology TOPOLOGIES[] = {
    {1, 1, 1, 1, Z3D_SCHEDULE_1F1B},        {1, 1, 2, 1, Z3D_SCHEDULE_1F1B},
    {2, 1, 1, 1, Z3D_SCHEDULE_1F1B},        {1, 1, 4, 1, Z3D_SCHEDULE_1F1B},
    {2, 1, 2, 1, Z3D_SCHEDULE_1F1B},        {4, 1, 1, 1, Z3D_SCHEDULE_1F1B},
    {2, 1, 4, 1, Z3D_SCHEDULE_1F1B},        {4, 1, 2, 1, Z3D_SCHEDULE_1F1B},
    {1, 2, 1, 1, Z3D_SCHEDULE_1F1B},        {1, 4, 1, 1, Z3D_SCHEDULE_GPIPE},
    {1, 2, 2, 1, Z3D_SCHEDULE_ZB_H1},       {2, 2, 1, 2, Z3D_SCHEDULE_ZB_V},
    {2, 2, 2, 2, Z3D_SCHEDULE_INTERLEAVED},
};

std::vector<Topology> here() {
    std::vector<Topology> out;
    for (const Topology &t : TOPOLOGIES)
        if (t.ranks() == z3d_world_size(world)) out.push_back(t);
    return out;
}

Options options(const Topology &t) {
    Options o;
    o.tensor = t.tensor;
    o.pipeline = t.pipeline;
    o.chunks = t.chunks;
    o.schedule = t.schedule;
    o.accumulation = t.pipeline > 1 ? 2 : 1;
    o.stage = (t.tensor + t.ranks()) % 4;
    o.dropout = 0.1;
    return o;
}

std::string name_of(const Topology &t) {
    return folder() + "/" + t.name();
}

template <typename T> std::string bytes_of(const std::vector<T> &values) {
    return std::string((const char *)values.data(), values.size() * sizeof(T));
}

std::string state_of(Trainer &t) {
    std::string all;
    for (const auto &tensor : everything(t)) all += bytes_of(tensor);
    return all;
}

} // namespace

TEST(Elastic, Save) {
    for (const Topology &topology : here()) {
        std::string name = name_of(topology);
        Trainer t(options(topology));
        Trace before, after;
        z3d_store *store;
        ASSERT_Z3D(t.create());
        ASSERT_Z3D(open_store(t, name, false, 0, &store));
        steps(t, BEFORE, before);
        ASSERT_Z3D(save(store, BEFORE * t.o.global_batch));
        z3d_store_close(store);
        std::string state = state_of(t);
        steps(t, AFTER, after);
        if (z3d_world_rank(world) == 0) {
            write_file(name + "/state", state);
            write_file(name + "/losses", bytes_of(after.loss));
        }
    }
}

TEST(Elastic, Load) {
    int pairs = 0;
    for (const Topology &saved : TOPOLOGIES) {
        std::string from = name_of(saved);
        std::string state = read_file(from + "/state"), losses = read_file(from + "/losses");
        std::vector<double> wanted(AFTER);
        ASSERT_EQ(losses.size(), AFTER * sizeof(double)) << from;
        memcpy(wanted.data(), losses.data(), losses.size());
        for (const Topology &topology : here()) {
            SCOPED_TRACE(from + " to " + topology.name());
            Trainer t(options(topology));
            Trace after;
            resume(t, from);
            ASSERT_EQ(t.next_step, BEFORE + 1);
            EXPECT_TRUE(state_of(t) == state);
            steps(t, AFTER, after);
            ASSERT_EQ(after.loss.size(), wanted.size());
            for (int k = 0; k < AFTER; k++) // the bound of the equivalence matrix
                EXPECT_LT(std::abs(after.loss[(size_t)k] / wanted[(size_t)k] - 1), 1e-5);
            pairs++;
        }
    }
    if (z3d_world_rank(world) == 0) printf("%d pairs\n", pairs);
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
