// Files of checkpoints, written and read in one process for every pair of topologies.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cmath>

#include "folder.h"

extern "C" {
#include "zero/program/layout.h"
}

static z3d_status export_to(z3d_checkpoint *c, z3d_interop_format format, z3d_dtype dtype,
                            const char *to) {
    z3d_export what = {};
    what.format = format, what.dtype = dtype, what.to = to;
    return z3d_checkpoint_export(c, &what);
}

// Of checkpoint/store.h, which is no C++.
extern "C" z3d_status z3d_step_folder_make(const struct z3d_io_hook *hook, const char *folder);

// Catches: a part that is written twice or not at all, a slice mapped to wrong rows, padding that
// is stored.
static void expect_whole(z3d_checkpoint *c) {
    for (int t = 0; t < z3d_checkpoint_num_tensors(c); t++) {
        const z3d_tensor *own = z3d_checkpoint_tensor(c, t);
        z3d_part whole = {1, 1, 1, 0, 1, 0, 0};
        // Any folding that matches the tensor's own will do: take it from the model's parameters.
        Gpt gpt;
        z3d_model *model = gpt.make(1);
        z3d_tensor *tensors;
        int count;
        ASSERT_Z3D(z3d_tensors_of(model, &tensors, &count));
        whole = {tensors[t].outer, tensors[t].global, tensors[t].inner, 0, tensors[t].global, 0, 0};
        int64_t elements = z3d_tensor_elements(&tensors[t]);
        for (int kind = 0; kind < 3; kind++) {
            std::vector<float> values((size_t)elements, -1);
            ASSERT_Z3D(z3d_checkpoint_read(c, (z3d_tensor_kind)kind, t, &whole, 0, elements,
                                           values.data()));
            ASSERT_EQ(wrong_values(t, kind, 0, elements, values.data()), 0)
                << own->group << "/" << own->name;
        }
        free(tensors);
        z3d_model_destroy(model);
    }
}

// Every part that the ranks of tensor x data keep (all_rows: of stage 0) has the right values.
static void expect_parts(z3d_checkpoint *c, int tensor, int data, bool all_rows,
                         int64_t tiling = 1) {
    Gpt gpt;
    gpt.tiling = tiling;
    z3d_model *model = gpt.make(tensor);
    z3d_tensor *tensors;
    z3d_home *homes;
    int count;
    ASSERT_Z3D(z3d_tensors_of(model, &tensors, &count));
    ASSERT_Z3D(z3d_homes_of(model, &homes));
    std::vector<int64_t> covered((size_t)count);
    for (int r = 0; r < tensor * data; r++) {
        z3d_mesh place;
        z3d_layout *layout;
        ASSERT_Z3D(z3d_mesh_make(tensor, data, 1, r, &place));
        ASSERT_Z3D(z3d_layout_create(model, &place, nullptr, &layout));
        for (int g = 0, p = 0; g < model->num_groups; g++)
            for (int i = 0; i < model->group[g].num_parameters; i++, p++) {
                const int t = homes[p].tensor;
                z3d_part part;
                z3d_layout_part(layout, model, g, i, all_rows, &part);
                std::vector<float> values((size_t)part.count + 1, -1);
                ASSERT_Z3D(z3d_checkpoint_read(c, Z3D_TENSOR_MOMENTUM, t, &part, part.first,
                                               part.count, values.data()));
                const int64_t plane = part.valid * part.inner;
                for (int64_t k = 0, run; k < part.count; k += run) { // to the end of a plane
                    int64_t e = part.first + k;
                    run = std::min(part.count - k, plane - e % plane);
                    int64_t logical =
                        (e / plane * part.global + part.offset) * part.inner + e % plane;
                    ASSERT_EQ(wrong_values(t, 1, logical, run, &values[(size_t)k]), 0);
                }
                covered[(size_t)t] += part.count;
            }
        z3d_layout_destroy(layout);
    }
    for (int t = 0; t < count; t++) {
        int copies = (tensors[t].split_dim < 0 ? tensor : 1) * (all_rows ? data : 1);
        EXPECT_EQ(covered[(size_t)t], copies * z3d_tensor_elements(&tensors[t]));
    }
    free(homes);
    free(tensors);
    z3d_model_destroy(model);
}

// What a rank is said to write is what its file holds, but for HDF5's metadata.
static void expect_sizes(const std::string &folder, int tensor, int data) {
    z3d_model *model = Gpt().make(tensor);
    double all = 0;
    for (int r = 0; r < tensor * data; r++) {
        z3d_mesh place;
        z3d_extent *extent;
        int count;
        char name[32];
        double saved, loaded;
        z3d_program_config config = {};
        config.stage = 1;
        ASSERT_Z3D(z3d_mesh_make(tensor, data, 1, r, &place));
        ASSERT_Z3D(z3d_checkpoint_bytes(model, &place, &config, false, &saved, &loaded));
        ASSERT_Z3D(z3d_shard_plan(model, &place, &config, z3d_optimizer_kinds(config.optimizer),
                                  false, &count, &extent));
        free(extent);
        (void)snprintf(name, sizeof name, "/shard-%05d.h5", r);
        double size = (double)std::filesystem::file_size(folder + name);
        EXPECT_GE(size, saved);
        EXPECT_LE(size, saved + 4096.0 * (count + 1));
        EXPECT_GE(loaded, saved);
        all += saved;
    }
    EXPECT_EQ(all, 12.0 * (double)z3d_model_parameter_count(model));
    z3d_model_destroy(model);
}

// What h5py and others see: checkpoint.h5 read through HDF5, every tensor whole, wherever the
// folder lies.
static void expect_virtual(const std::string &file) {
    Gpt gpt;
    z3d_model *model = gpt.make(1);
    z3d_tensor *tensors;
    int count;
    ASSERT_Z3D(z3d_tensors_of(model, &tensors, &count));
    hid_t h5 = H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    ASSERT_GE(h5, 0) << file;
    for (int t = 0; t < count; t++)
        for (int kind = 0; kind < 3; kind++) {
            char path[160];
            hsize_t shape[Z3D_MAX_DIMS] = {};
            ASSERT_Z3D(z3d_hdf5_path(&tensors[t], kind, 0, path, sizeof path));
            hid_t dataset = H5Dopen2(h5, path, H5P_DEFAULT);
            ASSERT_GE(dataset, 0) << path;
            hid_t space = H5Dget_space(dataset);
            ASSERT_EQ(H5Sget_simple_extent_dims(space, shape, nullptr), tensors[t].dims);
            for (int d = 0; d < tensors[t].dims; d++)
                EXPECT_EQ((int64_t)shape[d], tensors[t].shape[d]) << path;
            std::vector<float> values((size_t)z3d_tensor_elements(&tensors[t]), -1);
            ASSERT_GE(
                H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
                0);
            ASSERT_EQ(wrong_values(t, kind, 0, (int64_t)values.size(), values.data()), 0) << path;
            H5Sclose(space);
            H5Dclose(dataset);
        }
    H5Fclose(h5);
    free(tensors);
    z3d_model_destroy(model);
}

TEST(Files, EveryTopologyReadsEveryOther) {
    const int sizes[] = {1, 2, 4};
    Folder folder;
    for (int tensor : sizes)
        for (int data : sizes) {
            std::string path = folder / std::to_string(tensor * 10 + data);
            write_checkpoint(path, Gpt(), tensor, data);
            z3d_checkpoint *c;
            ASSERT_Z3D(z3d_checkpoint_open(path.c_str(), &c));
            for (int part = 0; part < 3; part++)
                EXPECT_EQ(Z3D_OK, z3d_checkpoint_check(c, Z3D_VERIFY_FULL, 0, part, 3, nullptr))
                    << z3d_error_message();
            expect_whole(c);
            expect_sizes(path, tensor, data);
            for (int t : sizes)
                for (int d : sizes) expect_parts(c, t, d, (t + d) % 2);
            EXPECT_EQ(z3d_checkpoint_get_info(c)->engine.step, 7);
            EXPECT_STREQ(z3d_checkpoint_get_info(c)->config, "# a \"text\"\n");
            z3d_checkpoint_close(c);
            std::filesystem::rename(path, path + ".moved");
            expect_virtual(path + ".moved/checkpoint.h5");
        }
}

// Zeros would be a model, NaN is none: what a shard has that is not there.
TEST(Files, AMissingShardReadsAsNaN) {
    Folder folder;
    const std::string path = folder / "10";
    write_checkpoint(path, Gpt(), 1, 2);
    std::filesystem::rename(path + "/shard-00001.h5", path + "/away.h5");
    Gpt gpt;
    z3d_model *model = gpt.make(1);
    z3d_tensor *tensors;
    int count, missing = 0, there = 0;
    ASSERT_Z3D(z3d_tensors_of(model, &tensors, &count));
    hid_t h5 = H5Fopen((path + "/checkpoint.h5").c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    ASSERT_GE(h5, 0);
    for (int t = 0; t < count; t++) {
        char name[160];
        ASSERT_Z3D(z3d_hdf5_path(&tensors[t], 0, 0, name, sizeof name));
        hid_t dataset = H5Dopen2(h5, name, H5P_DEFAULT);
        ASSERT_GE(dataset, 0) << name;
        std::vector<float> values((size_t)z3d_tensor_elements(&tensors[t]), -1);
        ASSERT_GE(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
                  0);
        for (float value : values) (std::isnan(value) ? missing : there)++;
        H5Dclose(dataset);
    }
    EXPECT_GT(missing, 0);
    EXPECT_EQ(missing + there, (int)z3d_model_parameter_count(model));
    EXPECT_NEAR(missing, there, (missing + there) / 10);
    H5Fclose(h5);
    free(tensors);
    z3d_model_destroy(model);
}

// Tiles are parts of whole tensors: any tiling reads any other, and the file for others shows none.
TEST(Files, EveryTilingReadsEveryOther) {
    Folder folder;
    for (int64_t tiling : {1, 2, 8})
        for (int tensor : {1, 4}) {
            const std::string path = folder / std::to_string(tiling * 10 + tensor);
            Gpt gpt;
            gpt.tiling = tiling;
            write_checkpoint(path, gpt, tensor, 2);
            z3d_checkpoint *c;
            ASSERT_Z3D(z3d_checkpoint_open(path.c_str(), &c));
            expect_whole(c);
            for (int64_t other : {1, 4, 8})
                for (int t : {1, 2}) expect_parts(c, t, 2, t == 1, other);
            z3d_checkpoint_close(c);
            expect_virtual(path + "/checkpoint.h5");
        }
}

// The ranks' copies hold each element of each state once.
TEST(Files, SnapshotsHoldEachElementOnce) {
    for (int tensor : {1, 2, 4})
        for (int data : {1, 4}) {
            z3d_model *model = Gpt().make(tensor), *whole = Gpt().make(1);
            int64_t sum = 0;
            for (int r = 0; r < tensor * data; r++) {
                z3d_mesh place;
                int64_t bytes;
                ASSERT_Z3D(z3d_mesh_make(tensor, data, 1, r, &place));
                const z3d_program_config config{}; // AdamW
                ASSERT_Z3D(z3d_checkpoint_snapshot_bytes(model, &place, &config, false, &bytes));
                sum += bytes;
            }
            EXPECT_EQ(sum, 12 * z3d_model_parameter_count(whole));
            z3d_model_destroy(model);
            z3d_model_destroy(whole);
        }
}

// Catches: metadata with times or addresses in it.
TEST(Files, SameStateGivesSameBytes) {
    Folder folder;
    for (const char *name : {"a", "b"}) write_checkpoint(folder / name, Gpt(), 2, 2);
    for (const auto &entry : std::filesystem::directory_iterator(folder / "a"))
        EXPECT_EQ(read_file(entry.path()),
                  read_file(folder / "b/" + entry.path().filename().string()))
            << entry.path();
}

// Each rank reads the blocks it needs, not the model: a shard of several blocks.
TEST(Files, ReadsOnlyWhatItNeeds) {
    Folder folder;
    Gpt gpt;
    gpt.hidden = 128, gpt.vocabulary = 1000, gpt.layers = 6;
    write_checkpoint(folder / "c", gpt, 1, 4);
    z3d_checkpoint *c;
    ASSERT_Z3D(z3d_checkpoint_open((folder / "c").c_str(), &c));
    z3d_model *model = gpt.make(1);
    z3d_mesh place;
    z3d_layout *layout;
    ASSERT_Z3D(z3d_mesh_make(1, 4, 1, 2, &place));
    ASSERT_Z3D(z3d_layout_create(model, &place, nullptr, &layout));
    int64_t wanted = 0;
    for (int kind = 0; kind < 3; kind++)
        for (int g = 0, t = 0; g < model->num_groups; g++)
            for (int i = 0; i < model->group[g].num_parameters; i++, t++) {
                z3d_part part;
                z3d_layout_part(layout, model, g, i, false, &part);
                std::vector<float> values((size_t)part.count + 1);
                ASSERT_Z3D(z3d_checkpoint_read(c, (z3d_tensor_kind)kind, t, &part, part.first,
                                               part.count, values.data()));
                wanted += part.count * 4;
            }
    EXPECT_GE(z3d_checkpoint_bytes_read(c), wanted);
    EXPECT_LE(z3d_checkpoint_bytes_read(c), wanted + wanted / 10 + (4 << 20));
    EXPECT_GT(wanted, 3 << 20);
    z3d_layout_destroy(layout);
    z3d_model_destroy(model);
    z3d_checkpoint_close(c);
}

// What a load of many ranges was given, against the values by their place.
struct Taken {
    z3d_checkpoint *c;
    std::vector<z3d_wanted> ranges;
    int range = 0, fail_at = -1;
    int64_t next = 0, wrong = 0, elements = 0;
    explicit Taken(z3d_checkpoint *checkpoint) : c(checkpoint) {
        for (int kind = 0; kind < 3; kind++)
            for (int t = 0; t < z3d_checkpoint_num_tensors(c); t++) {
                z3d_wanted r = {(z3d_tensor_kind)kind, t, {}, 0, 0};
                z3d_checkpoint_whole(c, t, &r.slice);
                r.count = r.slice.count;
                ranges.push_back(r);
            }
    }
    static z3d_status take(void *context, int range, int64_t first, int64_t count,
                           const float *values) {
        Taken *t = (Taken *)context;
        if (range == t->fail_at) return Z3D_ERR_MEMORY;
        if (range != t->range) t->range = range, t->next = 0;
        t->wrong += first != t->next;
        const z3d_wanted &r = t->ranges[(size_t)range];
        t->wrong += wrong_values(r.tensor, r.kind, first, count, values);
        t->next = first + count;
        t->elements += count;
        return Z3D_OK;
    }
    z3d_status all(int ranks = 1) {
        return z3d_checkpoint_read_all(c, ranges.data(), (int)ranges.size(), ranks, take, this);
    }
};

// By a thread ahead of the one that takes the values, from more blocks in turn than are kept: rows
// of four tensor ranks' shards. What goes wrong is told as without that thread, in its place.
TEST(Files, ReadsAhead) {
    Folder folder;
    Gpt gpt;
    gpt.hidden = 256, gpt.vocabulary = 4000, gpt.layers = 3;
    write_checkpoint(folder / "c", gpt, 4, 3);
    z3d_checkpoint *c;
    ASSERT_Z3D(z3d_checkpoint_open((folder / "c").c_str(), &c));
    int64_t elements = 0;
    for (const z3d_wanted &r : Taken(c).ranges) elements += r.count;
    ASSERT_GT(elements, 9 << 20); /* 36 blocks */
    for (int again = 0; again < 2; again++) {
        Taken whole(c);
        ASSERT_Z3D(whole.all());
        EXPECT_EQ(whole.wrong, 0);
        EXPECT_EQ(whole.elements, elements);
    }
    Taken stops(c);
    stops.fail_at = 3;
    EXPECT_EQ(Z3D_ERR_MEMORY, stops.all());
    z3d_checkpoint_close(c);

    std::string file = folder / "c/shard-00004.h5", bytes = read_file(file);
    std::string damaged = bytes;
    damaged[bytes.size() / 2] = (char)(damaged[bytes.size() / 2] ^ 4);
    for (const std::string &now : {damaged, bytes.substr(0, bytes.size() - 1)}) {
        write_file(file, now);
        ASSERT_Z3D(z3d_checkpoint_open((folder / "c").c_str(), &c));
        std::vector<float> values((size_t)elements);
        Taken part(c);
        z3d_status status = Z3D_OK;
        for (const z3d_wanted &r : part.ranges)
            if (status == Z3D_OK)
                status =
                    z3d_checkpoint_read(c, r.kind, r.tensor, &r.slice, 0, r.count, values.data());
        EXPECT_EQ(Z3D_ERR_DATA, status);
        std::string wanted = z3d_error_message();
        EXPECT_NE(wanted.find("rank 4's shard"), std::string::npos) << wanted;
        EXPECT_EQ(Z3D_ERR_DATA, part.all());
        EXPECT_EQ(wanted, z3d_error_message());
        EXPECT_EQ(part.wrong, 0);
        z3d_checkpoint_close(c);
    }
}

// Bytes of a file that the page cache has.
static size_t resident(const std::string &path) {
    int fd = open(path.c_str(), O_RDONLY);
    size_t size = std::filesystem::file_size(path), page = (size_t)sysconf(_SC_PAGESIZE), count = 0;
    void *map = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    std::vector<unsigned char> in((size + page - 1) / page);
    EXPECT_EQ(0, mincore(map, size, in.data()));
    for (unsigned char i : in) count += i & 1;
    munmap(map, size);
    close(fd);
    return count * page;
}

// What one rank alone reads leaves the page cache again; what others read too stays for them.
TEST(Files, PagesThatNobodyElseReadsAreLetGo) {
    Folder folder("."); // the build's: TMPDIR is in memory, often
    Gpt gpt;
    gpt.hidden = 256, gpt.vocabulary = 4000, gpt.layers = 3;
    write_checkpoint(folder / "c", gpt, 1, 1);
    std::string shard = folder / "c/shard-00000.h5";
    int fd = open(shard.c_str(), O_RDONLY);
    ASSERT_EQ(0, posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
    close(fd);
    if (resident(shard) > 0) GTEST_SKIP() << "this file system keeps its files in memory";
    size_t size = std::filesystem::file_size(shard);
    z3d_checkpoint *c;
    ASSERT_Z3D(z3d_checkpoint_open((folder / "c").c_str(), &c));
    ASSERT_Z3D(Taken(c).all(2));
    EXPECT_GT(resident(shard), size / 2);
    Taken whole(c);
    ASSERT_Z3D(whole.all(1));
    EXPECT_EQ(whole.wrong, 0);
    EXPECT_LT(resident(shard), size_t{20} << 20);
    EXPECT_GT(size, size_t{36} << 20);
    z3d_checkpoint_close(c);
}

TEST(Files, WhatIsNoCheckpointIsRefused) {
    Folder folder;
    z3d_checkpoint *c;
    EXPECT_EQ(Z3D_ERR_IO, z3d_checkpoint_open((folder / "nothing").c_str(), &c));
    EXPECT_EQ(Z3D_ERR_IO, z3d_checkpoint_open(folder.path.c_str(), &c));
    EXPECT_EQ(z3d_error_message(), folder.path + " has no checkpoints (it is empty)");
    write_file(folder / "notes.txt", "x");
    EXPECT_EQ(Z3D_ERR_IO, z3d_checkpoint_open(folder.path.c_str(), &c));
    EXPECT_EQ(z3d_error_message(), folder.path + " has no checkpoints: it holds other files only");
    EXPECT_EQ(Z3D_ERR_IO, z3d_checkpoint_open((folder / "notes.txt").c_str(), &c));
    EXPECT_EQ(z3d_error_message(),
              folder / "notes.txt" + " is a file: expected a checkpoint's folder");
    std::filesystem::create_directories(folder / "step-00000003");
    EXPECT_EQ(Z3D_ERR_IO, z3d_checkpoint_open(folder.path.c_str(), &c));
    EXPECT_EQ(z3d_error_message(),
              folder.path + " has no complete checkpoint: the save of step 3 did not finish");
    write_file(folder / "step-00000003/shard-00000.h5", "x");
    EXPECT_EQ(Z3D_ERR_IO, z3d_checkpoint_open((folder / "step-00000003").c_str(), &c));
    EXPECT_NE(strstr(z3d_error_message(), "step-00000003 is incomplete"), nullptr)
        << z3d_error_message();
    for (const char *text : {"", "{", "{\"xxh3_128\":\"\"}",
                             "not json at all, but long enough to be one, perhaps, or not"}) {
        write_file(folder / "manifest.json", text);
        EXPECT_EQ(Z3D_ERR_DATA, z3d_checkpoint_open(folder.path.c_str(), &c)) << text;
    }
}

// A folder with another step's name is no checkpoint of that step, whatever is asked of it; one
// with a name of its own is.
TEST(Files, AnotherStepsNameIsRefused) {
    Folder folder;
    z3d_checkpoint *c;
    write_checkpoint(folder / "step-00000007", Gpt(), 1, 1, 7);
    const struct {
        const char *name;
        bool good;
    } names[] = {{"step-00000007/", true}, {"step-00000020", false}, {"step-00000020//", false},
                 {"best", true},           {"step-7", true},         {"step-00000007.old", true}};
    std::string last = folder / "step-00000007";
    for (const auto &k : names) {
        SCOPED_TRACE(k.name);
        std::string path = folder / k.name, bare = path.substr(0, path.find_last_not_of('/') + 1);
        std::filesystem::rename(last, bare);
        last = bare;
        EXPECT_EQ(k.good ? Z3D_OK : Z3D_ERR_IO, z3d_checkpoint_open(path.c_str(), &c))
            << z3d_error_message();
        if (!k.good) {
            EXPECT_NE(strstr(z3d_error_message(), "step-00000020"), nullptr) << z3d_error_message();
            EXPECT_NE(strstr(z3d_error_message(), "holds the checkpoint of step 7"), nullptr)
                << z3d_error_message();
            EXPECT_NE(strstr(z3d_error_message(), "the name step-00000007"), nullptr)
                << z3d_error_message();
        }
        z3d_checkpoint_close(c);
    }
}

// A manifest that cannot be seen (here: a link to itself; a network file system that is away) is
// not one that is not there: its folder is neither left out, nor taken for the remains of a save.
TEST(Files, AManifestThatCannotBeSeenIsNoAbsence) {
    Folder folder;
    std::string step = folder / "step-00000003";
    std::filesystem::create_directories(step);
    std::filesystem::create_symlink("manifest.json", step + "/manifest.json");
    int64_t *steps;
    int count;
    char *resolved;
    z3d_checkpoint *c;
    EXPECT_EQ(Z3D_ERR_IO, z3d_checkpoint_list(folder.path.c_str(), &steps, &count));
    EXPECT_NE(strstr(z3d_error_message(), "manifest.json: cannot check"), nullptr)
        << z3d_error_message();
    EXPECT_EQ(Z3D_ERR_IO, z3d_step_folder_make(nullptr, step.c_str()));
    EXPECT_EQ(Z3D_ERR_IO, z3d_checkpoint_resolve(step.c_str(), &resolved));
    EXPECT_EQ(Z3D_ERR_IO, z3d_checkpoint_resolve(folder.path.c_str(), &resolved));
    EXPECT_NE(strstr(z3d_error_message(), "manifest.json: cannot check"), nullptr)
        << z3d_error_message();
    EXPECT_EQ(Z3D_ERR_IO, z3d_checkpoint_open(step.c_str(), &c));
    EXPECT_TRUE(std::filesystem::is_symlink(step + "/manifest.json"));
}

// What is a file's own fault is damage; what may be over at the next try is not.
TEST(Files, DamageIsToldFromFailuresThatPass) {
    Folder folder;
    int fd;
    int64_t size;
    char byte;
    std::filesystem::create_symlink("loop", folder / "loop");
    EXPECT_EQ(Z3D_ERR_IO, z3d_io_open((folder / "loop").c_str(), &fd, &size));
    EXPECT_EQ(Z3D_ERR_DATA, z3d_io_open((folder / "missing").c_str(), &fd, &size));
    EXPECT_EQ(Z3D_ERR_DATA, z3d_io_open(folder.path.c_str(), &fd, &size));
    ASSERT_EQ(0, mkfifo((folder / "pipe").c_str(), 0600));
    EXPECT_EQ(Z3D_ERR_DATA, z3d_io_open((folder / "pipe").c_str(), &fd, &size));
    // EIO, as of an address that this process does not have: damage where a disk says it, not from
    // a file system that is on none.
    ASSERT_Z3D(z3d_io_open("/proc/self/mem", &fd, &size));
    EXPECT_EQ(Z3D_ERR_IO, z3d_io_read(fd, "mem", &byte, 1, 0));
    EXPECT_NE(strstr(z3d_error_message(), strerror(EIO)), nullptr) << z3d_error_message();
    close(fd);
    EXPECT_EQ(Z3D_ERR_IO, z3d_io_read(fd, "closed", &byte, 1, 0));
    const int64_t ext4 = 0xEF53, btrfs = 0x9123683E, nfs = 0x6969, lustre = 0x0BD00BD0;
    EXPECT_TRUE(z3d_io_is_damage(EIO, ext4));
    EXPECT_TRUE(z3d_io_is_damage(EIO, (int32_t)btrfs)); // f_type is 32 bits in some places
    EXPECT_FALSE(z3d_io_is_damage(ESTALE, ext4));
    EXPECT_FALSE(z3d_io_is_damage(EIO, nfs));
    EXPECT_FALSE(z3d_io_is_damage(EIO, lustre));
}

// An export that fails leaves no part of a file behind.
TEST(Files, AFailedExportLeavesNothing) {
    Folder folder;
    Gpt gpt;
    write_checkpoint(folder / "c", gpt, 1, 1);
    std::string file = folder / "c/shard-00000.h5", bytes = read_file(file);
    bytes[4096] = (char)(bytes[4096] ^ 1);
    write_file(file, bytes);
    z3d_checkpoint *c;
    ASSERT_Z3D(z3d_checkpoint_open((folder / "c").c_str(), &c));
    EXPECT_EQ(Z3D_ERR_DATA, export_to(c, Z3D_INTEROP_LLMC, Z3D_F32, (folder / "x").c_str()));
    EXPECT_FALSE(std::filesystem::exists(folder / "x.part"));
    EXPECT_FALSE(std::filesystem::exists(folder / "x"));
    EXPECT_EQ(Z3D_ERR_DATA,
              export_to(c, Z3D_INTEROP_HUGGINGFACE, Z3D_F32, (folder / "hf").c_str()));
    EXPECT_TRUE(std::filesystem::is_empty(folder / "hf"));
    // What is no file is not replaced by one: /dev/null, say.
    ASSERT_EQ(0, mkfifo((folder / "pipe").c_str(), 0600));
    EXPECT_EQ(Z3D_ERR_IO, export_to(c, Z3D_INTEROP_LLMC, Z3D_F32, (folder / "pipe").c_str()));
    EXPECT_NE(strstr(z3d_error_message(), "pipe: it exists and is not a regular file"), nullptr)
        << z3d_error_message();
    EXPECT_TRUE(std::filesystem::is_fifo(folder / "pipe"));
    z3d_checkpoint_close(c);
}

// More shards than files may be open: few are, at a time.
TEST(Files, ReadsMoreShardsThanFilesMayBeOpen) {
    Folder folder;
    Gpt gpt;
    write_checkpoint(folder / "c", gpt, 1, 64);
    z3d_checkpoint *c;
    ASSERT_Z3D(z3d_checkpoint_open((folder / "c").c_str(), &c));
    int next = open("/dev/null", O_RDONLY);
    ASSERT_GE(next, 0);
    close(next);
    struct rlimit whole, few;
    ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &whole));
    few = whole;
    few.rlim_cur = (rlim_t)next + 40;
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &few));
    expect_whole(c);
    EXPECT_EQ(Z3D_OK, z3d_checkpoint_check(c, Z3D_VERIFY_FULL, 0, 0, 1, nullptr))
        << z3d_error_message();
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &whole));
    z3d_checkpoint_close(c);
}

// Puts `to` in place of `from` in a manifest or an index, with the digests that its writer would
// give it.
static void rewrite(const std::string &folder, const char *name, const std::string &from,
                    const std::string &to) {
    char digest[Z3D_DIGEST_TEXT];
    auto digest_of = [&](const std::string &text) {
        return std::string(
            z3d_digest_text(z3d_digest_of(text.data(), (int64_t)text.size()), digest));
    };
    std::string text = read_file(folder + "/manifest.json"),
                body = text.substr(text.find('\n') + 1);
    std::string index = read_file(folder + "/" + name), changed;
    bool itself = strcmp(name, Z3D_MANIFEST) == 0;
    auto put = [](std::string &in, const std::string &old, const std::string &with) {
        size_t at = in.find(old);
        ASSERT_NE(at, std::string::npos) << old;
        in.replace(at, old.size(), with);
    };
    if (itself) {
        put(body, from, to);
    } else {
        auto entry = [&] {
            return "\"size\":" + std::to_string(index.size()) + ",\"xxh3_128\":\"" +
                   digest_of(index);
        };
        std::string old = entry();
        put(index, from, to);
        put(body, old, entry());
        write_file(folder + "/" + name, index);
    }
    write_file(folder + "/manifest.json", "{\"xxh3_128\":\"" + digest_of(body) + "\",\n" + body);
}

// Where a tensor lies in its shard is a part of it: other offsets are another base.
TEST(Files, ABasesDigestCoversItsIndexes) {
    Folder folder;
    write_checkpoint(folder / "c", Gpt(), 1, 1);
    auto digest = [&] {
        z3d_manifest manifest{};
        char text[Z3D_DIGEST_TEXT] = "";
        EXPECT_EQ(z3d_manifest_read((folder / "c").c_str(), &manifest), Z3D_OK);
        EXPECT_EQ(z3d_manifest_digest(&manifest, text), Z3D_OK);
        z3d_manifest_free(&manifest);
        return std::string(text);
    };
    const std::string before = digest(), index = read_file(folder / "c/shard-00000.json");
    EXPECT_EQ(digest(), before);
    const std::string key = "\"offset\":";
    const size_t at = index.find(key) + key.size();
    const std::string offset = index.substr(at, index.find('}', at) - at);
    rewrite(folder / "c", "shard-00000.json", key + offset,
            key + std::to_string(std::stoll(offset) + 4));
    EXPECT_NE(digest(), before);
}

// A newer version is told apart from damage.
TEST(Files, NewerVersionIsRefusedByName) {
    Folder folder;
    write_checkpoint(folder / "c", Gpt(), 1, 1);
    rewrite(folder / "c", Z3D_MANIFEST, "\"version\":1", "\"version\":9");
    z3d_checkpoint *c;
    EXPECT_EQ(Z3D_ERR_UNSUPPORTED, z3d_checkpoint_open((folder / "c").c_str(), &c));
    EXPECT_NE(strstr(z3d_error_message(), "version 9"), nullptr) << z3d_error_message();
}

#define NO_DIGEST "\"xxh3_128\":\"00000000000000000000000000000000\""

// Nothing that a manifest or an index says is believed, whatever its digest: not a step behind
// which there is none, not a scale that is none, not a dataset that is not there, or twice.
TEST(Files, WhatCannotBeIsRefusedWhateverItsDigest) {
    const struct {
        const char *name, *from, *to, *wanted;
    } cases[] = {
        {Z3D_MANIFEST, "\"step\":7", "\"step\":9223372036854775807",
         "\"step\": 9223372036854775807"},
        {Z3D_MANIFEST, "\"step\":7", "\"step\":-7", "\"step\": -7 is not a whole number"},
        {Z3D_MANIFEST, "\"skipped_in_a_row\":0", "\"skipped_in_a_row\":9223372036854775807",
         "large"},
        {Z3D_MANIFEST, "\"good_steps\":0", "\"good_steps\":9223372036854775807", "too large"},
        {Z3D_MANIFEST, "\"samples\":0", "\"samples\":9223372036854775807", "too large"},
        {Z3D_MANIFEST, "\"samples\":0",
         "\"samples\":0,\"evaluations\":{\"best_step\":-1,\"best_loss\":1,\"since\":0}",
         "\"best_step\": -1 is not a whole number"},
        {Z3D_MANIFEST, "\"samples\":0",
         "\"samples\":0,\"base\":{\"xxh3_128\":\"0\",\"folder\":\"x\"}", "its digest is not valid"},
        {Z3D_MANIFEST, "\"samples\":0", "\"samples\":0,\"base\":{" NO_DIGEST "}",
         "\"folder\" is missing"},
        {Z3D_MANIFEST, "\"samples\":0",
         "\"samples\":0,\"base\":{" NO_DIGEST ",\"folder\":\"\\u001b[31m\"}", "control character"},
        {Z3D_MANIFEST, "\"scale\":1", "\"scale\":0", "0 is not a valid loss scale"},
        {Z3D_MANIFEST, "\"scale\":1", "\"scale\":-2", "-2 is not a valid loss scale"},
        {Z3D_MANIFEST, "\"scale\":1", "\"scale\":1e-60", "1e-60 is not a valid loss scale"},
        {Z3D_MANIFEST, "\"scale\":1", "\"scale\":1e300", "1e+300 is not a valid loss scale"},
        {Z3D_MANIFEST, "\"name\":\"shard-00001.h5\"", "\"name\":\"../../shard.h5\"",
         "\"../../shard.h5\" is not a plain file name"},
        {Z3D_MANIFEST, "\"group\":\"wte\"", "\"group\":\"\\u001b[31m\"", "control character"},
        {Z3D_MANIFEST, "\"shape\":[67,32]", "\"shape\":[4294967296,4294967296]",
         "impossible shape"},
        {Z3D_MANIFEST, "\"samples\":0",
         "\"samples\":0,\"pending\":{\"optimizer_step\":1,\"learning_rate\":1,"
         "\"gradient_factor\":1e300}",
         "no step has such an update"},
        {Z3D_MANIFEST, "\"samples\":0",
         "\"samples\":0,\"pending\":{\"optimizer_step\":1,\"learning_rate\":1,"
         "\"gradient_factor\":1}",
         "its shards hold 0 elements of /pending_gradient/wte/weight, expected 2144"},
        {"shard-00001.json", "\"tensor\":0,", "\"tensor\":1,", "dataset lies outside"},
        {"shard-00000.json", "\"count\":", "\"count\":1,\"counted\":",
         "elements of /parameter/wte/weight, expected 2144"},
        {"shard-00000.json", "\"datasets\":[", "\"datasets\":[],\"others\":[",
         "its shards hold 864 elements of /parameter/wte/weight, expected 2144"},
    };
    Folder parts;
    write_checkpoint(parts / "c", Gpt(), 2, 1);
    const std::string manifest = read_file(parts / "c/manifest.json");
    for (const auto &k : cases) {
        SCOPED_TRACE(k.to);
        z3d_checkpoint *c;
        const std::string file = parts / "c/" + k.name, before = read_file(file);
        rewrite(parts / "c", k.name, k.from, k.to);
        EXPECT_EQ(Z3D_ERR_DATA, z3d_checkpoint_open((parts / "c").c_str(), &c));
        EXPECT_NE(strstr(z3d_error_message(), k.wanted), nullptr) << z3d_error_message();
        EXPECT_NE(strstr(z3d_error_message(), ".json: "), nullptr) << z3d_error_message();
        write_file(file, before);
        write_file(parts / "c/manifest.json", manifest);
    }
    // What its base has it does not have itself, and it is not its own base.
    rewrite(parts / "c", Z3D_MANIFEST, "\"samples\":0",
            "\"samples\":0,\"base\":{" NO_DIGEST ",\"folder\":\"" + (parts / "c") + "\"}");
    z3d_checkpoint *based;
    ASSERT_Z3D(z3d_checkpoint_open((parts / "c").c_str(), &based));
    EXPECT_EQ(Z3D_ERR_IO, z3d_checkpoint_open_base(based, nullptr));
    EXPECT_NE(strstr(z3d_error_message(), "so it is no base"), nullptr) << z3d_error_message();
    z3d_checkpoint_close(based);
    rewrite(parts / "c", Z3D_MANIFEST, "\"split\":0}", "\"split\":0,\"frozen\":true}");
    EXPECT_EQ(Z3D_ERR_DATA, z3d_checkpoint_open((parts / "c").c_str(), &based));
    EXPECT_NE(strstr(z3d_error_message(), "elements of /parameter/wte/weight, expected 0"), nullptr)
        << z3d_error_message();
    // A shard that is listed twice.
    Folder folder;
    write_checkpoint(folder / "c", Gpt(), 1, 1);
    std::string text = read_file(folder / "c/manifest.json");
    size_t at = text.find("\"shards\":[") + 10, end = text.find(']', at);
    std::string shard = text.substr(at, end - at);
    rewrite(folder / "c", Z3D_MANIFEST, shard, shard + "," + shard);
    z3d_checkpoint *c;
    EXPECT_EQ(Z3D_ERR_DATA, z3d_checkpoint_open((folder / "c").c_str(), &c));
    EXPECT_NE(strstr(z3d_error_message(), "its shards hold 4288 elements"), nullptr)
        << z3d_error_message();
}

// model.safetensors as Hugging Face's GPT-2 has it: names, Conv1D weights [in, out], no holes.
TEST(Files, ExportsAsHuggingFacesGpt2) {
    Folder folder;
    Gpt gpt;
    write_checkpoint(folder / "c", gpt, 2, 2);
    z3d_checkpoint *c;
    ASSERT_Z3D(z3d_checkpoint_open((folder / "c").c_str(), &c));
    ASSERT_Z3D(export_to(c, Z3D_INTEROP_HUGGINGFACE, Z3D_F32, (folder / "hf").c_str()));
    std::string bytes = read_file(folder / "hf/model.safetensors");
    uint64_t length = 0;
    memcpy(&length, bytes.data(), 8);
    ASSERT_EQ(length % 8, 0u);
    std::string header = bytes.substr(8, length);
    auto find = [&](const std::string &name, const std::string &shape) {
        std::string wanted =
            "\"" + name + "\":{\"dtype\":\"F32\",\"shape\":" + shape + ",\"data_offsets\":[";
        size_t at = header.find(wanted);
        EXPECT_NE(at, std::string::npos) << wanted << "\n" << header;
        return (const float *)(bytes.data() + 8 + length +
                               atoll(header.c_str() + at + wanted.size()));
    };
    int attention = z3d_checkpoint_find(c, "block.1", "attn.c_attn.weight");
    int table = z3d_checkpoint_find(c, "wte", "weight");
    const float *w = find("h.1.attn.c_attn.weight", "[32,96]"),
                *wte = find("wte.weight", "[67,32]");
    for (int out = 0; out < 96; out++)
        for (int in = 0; in < 32; in++)
            ASSERT_EQ(w[in * 96 + out], value_of(attention, 0, out * 32 + in));
    for (int i = 0; i < 67 * 32; i++) ASSERT_EQ(wte[i], value_of(table, 0, i));
    find("h.0.attn.c_proj.weight", "[32,32]");
    find("h.0.attn.c_attn.bias", "[96]");
    find("h.0.mlp.c_fc.weight", "[32,128]");
    find("h.0.mlp.c_proj.weight", "[128,32]");
    find("ln_f.bias", "[32]");
    int64_t elements = 0;
    for (int t = 0; t < z3d_checkpoint_num_tensors(c); t++) {
        z3d_part whole;
        z3d_checkpoint_whole(c, t, &whole);
        elements += whole.count;
    }
    EXPECT_EQ((int64_t)bytes.size(), 8 + (int64_t)length + 4 * elements);
    std::string config = read_file(folder / "hf/config.json");
    for (const char *wanted : {"\"n_layer\": 2", "\"n_head\": 4", "\"n_embd\": 32",
                               "\"n_positions\": 16", "\"vocab_size\": 67"})
        EXPECT_NE(config.find(wanted), std::string::npos) << config;
    z3d_checkpoint_close(c);
}

// The rank that wrote it and the datasets of the block, for each block.
TEST(Files, DamageNamesRankAndDatasets) {
    Folder folder;
    Gpt gpt;
    gpt.layers = 1, gpt.hidden = 64, gpt.vocabulary = 20000;
    write_checkpoint(folder / "c", gpt, 1, 2);
    std::string file = folder / "c/shard-00001.h5", bytes = read_file(file);
    ASSERT_GT(bytes.size(), (size_t)7 << 20);
    const struct {
        size_t at;
        const char *wanted;
    } cases[] = {
        {2 << 20, "datasets /parameter/wte/weight to /momentum/wte/weight"},
        {3 << 20, "dataset /momentum/wte/weight"},
        {bytes.size() - 1, "datasets /variance/wte/weight to /variance/"},
    };
    for (const auto &k : cases) {
        z3d_checkpoint *c;
        std::string damaged = bytes;
        damaged[k.at] = (char)(damaged[k.at] ^ 4);
        write_file(file, damaged);
        ASSERT_Z3D(z3d_checkpoint_open((folder / "c").c_str(), &c));
        EXPECT_EQ(Z3D_ERR_DATA, z3d_checkpoint_check(c, Z3D_VERIFY_FULL, 0, 0, 1, nullptr));
        std::string said = z3d_error_message();
        EXPECT_NE(said.find("rank 1's shard: "), std::string::npos) << said;
        EXPECT_NE(said.find(std::string("their digest: ") + k.wanted), std::string::npos) << said;
        z3d_checkpoint_close(c);
    }
}

// Every single-bit flip and every truncation of every file is found and the file named, of a shard
// the rank too; nothing crashes. A sample, evenly spread; ZERO3D_LONG: 10000 flips and 1000 cuts.
TEST(Files, DamageIsFoundAndNamed) {
    size_t flips = is_long() ? 10000 : 240, cuts = flips / 10;
    Folder folder;
    Gpt gpt;
    gpt.layers = 1, gpt.hidden = 8, gpt.heads = 2, gpt.sequence = 4, gpt.vocabulary = 11;
    std::string path = folder / "c";
    write_checkpoint(path, gpt, 2, 2);
    std::vector<std::pair<std::string, std::string>> files;
    size_t total = 0;
    for (const auto &entry : std::filesystem::directory_iterator(path)) {
        files.push_back({entry.path().string(), read_file(entry.path())});
        total += files.back().second.size();
    }
    ASSERT_EQ(files.size(), 10u);
    auto expect_found = [&](const std::string &file) {
        z3d_checkpoint *c;
        z3d_status status = z3d_checkpoint_open(path.c_str(), &c);
        if (status == Z3D_OK) status = z3d_checkpoint_check(c, Z3D_VERIFY_FULL, 0, 0, 1, nullptr);
        ASSERT_EQ(status, Z3D_ERR_DATA) << file;
        std::string name = std::filesystem::path(file).filename().string();
        std::string said = z3d_error_message();
        ASSERT_NE(said.find(name), std::string::npos) << said;
        std::string rank = name.rfind("shard-", 0) == 0 ? "rank " + name.substr(10, 1) + "'s" : "";
        ASSERT_NE(said.find(rank), std::string::npos) << said;
        const char *what = said.find("their digest") == std::string::npos ? "" : "dataset";
        ASSERT_NE(said.find(what), std::string::npos) << said;
        z3d_checkpoint_close(c);
    };
    for (size_t k = 0; k < flips + cuts; k++) {
        bool cut = k >= flips;
        size_t at = cut ? (k - flips) * total / cuts : k * total / flips, f = 0;
        while (at >= files[f].second.size()) at -= files[f++].second.size();
        std::string bytes = files[f].second;
        if (cut)
            bytes.resize(at);
        else
            bytes[at] = (char)(bytes[at] ^ 1 << (k % 8));
        write_file(files[f].first, bytes);
        expect_found(files[f].first);
        write_file(files[f].first, files[f].second);
        if (::testing::Test::HasFatalFailure()) FAIL() << files[f].first << " at " << at;
    }
    z3d_checkpoint *c;
    ASSERT_Z3D(z3d_checkpoint_open(path.c_str(), &c));
    EXPECT_EQ(Z3D_OK, z3d_checkpoint_check(c, Z3D_VERIFY_FULL, 0, 0, 1, nullptr));
    z3d_checkpoint_close(c);
}

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
