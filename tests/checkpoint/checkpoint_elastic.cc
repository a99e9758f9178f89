// One half of elastic.sh: FOLDER (in the environment: ZERO3D_ELASTIC) gets the checkpoints of every
// topology of this world, or gives those of every other to every topology of this world.
#include <cmath>

#include "engine.h"

namespace {

enum { BEFORE = 2, AFTER = 4 };

std::string folder() {
    return getenv("ZERO3D_ELASTIC");
}

// Of this world: tensor and data sizes of at most 4.
std::vector<int> tensor_sizes() {
    std::vector<int> out;
    for (int tensor : {1, 2, 4}) {
        int data = z3d_world_size(world) / tensor;
        if (data >= 1 && data <= 4 && data * tensor == z3d_world_size(world)) out.push_back(tensor);
    }
    return out;
}

Options options(int tensor) {
    Options o;
    o.tensor = tensor;
    o.stage = (tensor + z3d_world_size(world)) % 4;
    o.dropout = 0.1;
    return o;
}

std::string name_of(int tensor) {
    return folder() + "/" + std::to_string(tensor) + "x" +
           std::to_string(z3d_world_size(world) / tensor);
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
    for (int tensor : tensor_sizes()) {
        std::string name = name_of(tensor);
        Trainer t(options(tensor));
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
    for (const char *saved : {"1x1", "1x2", "2x1", "1x4", "2x2", "4x1", "2x4", "4x2"}) {
        std::string from = folder() + "/" + saved;
        std::string state = read_file(from + "/state"), losses = read_file(from + "/losses");
        std::vector<double> wanted(AFTER);
        ASSERT_EQ(losses.size(), AFTER * sizeof(double)) << from;
        memcpy(wanted.data(), losses.data(), losses.size());
        for (int tensor : tensor_sizes()) {
            SCOPED_TRACE(from + " to " + name_of(tensor));
            Trainer t(options(tensor));
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
