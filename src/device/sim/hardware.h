/* A described machine; plans price a step program's time and memory on it. Z3D_HARDWARE_MAP is the
 * table of the keys of its YAML file (configs/hardware). Every number of a shipped file has its
 * source in a comment. */
#ifndef ZERO3D_DEVICE_SIM_HARDWARE_H
#define ZERO3D_DEVICE_SIM_HARDWARE_H

#include <stdint.h>

#include "src/device/sim/measured.h"

/* X(field, path, lowest, highest, standard, meaning). standard NAN: the file must give the
 * number. */
/* clang-format off */
#define Z3D_HARDWARE_MAP(X) \
  X(memory_gib, "device.memory_gib", 0.01, 1e6, NAN, "GiB of device memory that a process can allocate") \
  X(overhead_gb, "device.overhead_gb", 0, 100, 0, "GB outside the arena: context, libraries' workspaces and buffers, the allocator's waste") \
  X(peak_fp16, "device.peak_tflops.fp16", 0, 1e5, 0, "dense products in fp16; 0: it has none") \
  X(peak_bf16, "device.peak_tflops.bf16", 0, 1e5, 0, "dense products in bf16; 0: it has none") \
  X(peak_fp32, "device.peak_tflops.fp32", 0, 1e5, 0, "dense products in fp32; 0: it has none") \
  X(gemm_efficiency, "device.gemm_efficiency", 0.01, 1, NAN, "share of the peak that a large product reaches") \
  X(gemm_half, "device.gemm_half", 0, 1e5, 0, "a dimension m, n or k of a product this small halves its speed") \
  X(gemm_epilogues, "device.gemm_epilogues", 0, 1, 0, "1: products do GELU and its gradient in the same launch; 0: kernels of their own do") \
  X(memory_bandwidth, "device.memory_gb_per_s", 0.1, 1e6, NAN, "device memory's peak") \
  X(memory_efficiency, "device.memory_efficiency", 0.01, 1, NAN, "share of memory_gb_per_s that kernels reach") \
  X(threads, "device.threads", 1, 65536, 1, "threads of a rank of a cpu machine") \
  X(launch_us, "device.launch_us", 0, 1e5, 0, "from one kernel to the next") \
  X(attention_fused, "device.attention_fused", 0, 1, 1, "1: the scores never leave the chip; 0: they are written to memory and read back, in whole squares") \
  X(attention_efficiency, "device.attention_efficiency", 0.01, 1, NAN, "share of the peak that attention's products reach; fused, forward, with heads of 128") \
  X(attention_head, "device.attention_head", 0, 1e4, 0, "fused attention's exponentials take as long as its products for heads of this size; 0: they take no time") \
  X(attention_tile, "device.attention_tile", 1, 1024, 1, "fused attention computes whole squares of so many queries and keys") \
  X(attention_backward, "device.attention_backward", 0.05, 1, 1, "relative speed of fused attention's backward") \
  X(attention_passes, "device.attention_passes", 1, 64, 8, "how often attention that is not fused reads or writes all scores in forward; backward does it 1.5 times as often") \
  X(device_watts, "device.watts", 0, 1e5, 0, "most that a device draws, by its data sheet; 0: not known") \
  X(price, "device.price_per_hour", 0, 1e6, 0, "what a device costs an hour, in any currency; 0: not known") \
  X(attention_unaligned, "device.attention_unaligned", 0.001, 1, 1, "relative speed of attention products that are not fused, where the head size is not a multiple of 8 (no tensor cores)") \
  X(devices, "node.devices", 1, 65536, NAN, "devices in a node") \
  X(node_watts, "node.watts", 0, 1e7, 0, "most that a whole node draws, by its data sheet; 0: not known") \
  X(cores, "node.cores", 0, 1e6, 0, "cores that the ranks of a cpu node share; 0: nothing is shared") \
  X(link_bandwidth, "node.link_gb_per_s", 0.001, 1e5, NAN, "between devices of a node, one way, each device") \
  X(link_efficiency, "node.link_efficiency", 0.01, 1, 1, "share of link_gb_per_s that collectives reach") \
  X(link_latency_us, "node.link_latency_us", 0, 1e6, 0, "one step of a collective within a node") \
  X(network_bandwidth, "node.network_gb_per_s", 0.0001, 1e5, NAN, "from a node to the others, one way, all its adapters together") \
  X(network_efficiency, "node.network_efficiency", 0.001, 1, 1, "share of network_gb_per_s that collectives reach") \
  X(network_latency_us, "node.network_latency_us", 0, 1e6, 0, "one step of a collective between nodes") \
  X(network_core_ns, "node.network_core_ns_per_byte", 0, 1e4, 0, "a cpu machine: time of a rank's core for each byte that it sends to other nodes, and for one that it receives (TCP); 0: adapters move bytes alone") \
  X(host_bandwidth, "node.host_gb_per_s", 0.001, 1e5, NAN, "between a device and host memory, one way, one link") \
  X(host_sharing, "node.host_sharing", 1, 64, 1, "devices that share one link to host memory") \
  X(host_efficiency, "node.host_efficiency", 0.01, 1, 1, "share of host_gb_per_s that copies reach") \
  X(host_optimizer, "node.host_optimizer_gb_per_s", 0, 1e5, 0, "rate at which all cores of a host together read and write host memory when they step the optimizer; 0: not known") \
  X(host_memory_gib, "node.host_memory_gib", 0.01, 1e6, NAN, "GiB of host memory of a node") \
  X(disk_write, "node.disk_write_gb_per_s", 0, 1e5, 0, "rate at which all ranks of a node together write to the disk of checkpoints; 0: not known") \
  X(disk_read, "node.disk_read_gb_per_s", 0, 1e5, 0, "rate at which all ranks of a node together read from the disk of checkpoints, not from the page cache; 0: not known") \
  X(nvme_read, "node.nvme_read_gb_per_s", 0, 1e5, 0, "rate at which all ranks of a node together read from its local disks (offload to nvme); 0: not known") \
  X(nvme_write, "node.nvme_write_gb_per_s", 0, 1e5, 0, "rate at which all ranks of a node together write to its local disks; 0: not known") \
  X(nvme_duplex, "node.nvme_duplex", 0, 1, 1, "1: reads and writes of the local disks run beside each other, each at its rate; 0: one after the other") \
  X(node_mtbf, "node.mtbf_hours", 0, 1e9, 0, "mean time between failures of one node that stop a run; 0: not known") \
  X(restart, "node.restart_seconds", 0, 1e6, 0, "from a failure until all ranks are started again, before they load the checkpoint: the failure is found, the node is replaced, the ranks are launched; 0: not known") \
  X(nvme_gib, "node.nvme_gib", 0, 1e9, 0, "GiB of a node's local disks; 0: not known") \
  X(host_launch_us, "software.launch_us", 0, 1e5, 0, "time of the host to launch a kernel, a collective, a send or a receive, while the device works") \
  X(transfers_block, "software.transfers_block", 0, 1, 0, "1: the host waits until a send or receive between pipeline stages is over; 0: it goes on") \
  X(gather_pieces, "software.gather_pieces", 1, 1000, 1, "collectives that fetch the parameters of a unit from the data group: 1, or one for each of its parameters") \
  X(reduce_pieces, "software.reduce_pieces", 1, 1000, 1, "collectives that sum the gradients of a unit over the data group to shards: 1, or one for each of its parameters") \
  X(list_us, "software.list_us", 0, 1e4, 0, "where these are more than one: what the host takes in each for each rank's tensor, with the device standing still") \
  X(collective_copies, "software.collective_copies", 0, 10, 0, "how often kernels copy what a gather or a reduce-scatter moves, from or to the parts of its buffer") \
  X(gathers_again, "software.gathers_again", 0, 1e15, 0, "a unit with more parameters on a rank (after tensor parallelism) than this is gathered again for its backward if a recomputation gathered it (ZeRO-3); 0: what was gathered stays") \
  X(overlap, "software.overlap", 0, 1, 1, "speed of a collective or copy while other work runs on the device, relative to its speed alone") \
  X(network_overlap, "software.network_overlap", -1, 1, -1, "the same for collectives between nodes; -1: as overlap") \
  X(copy_overlap, "software.copy_overlap", 0, 1, 1, "1: copies to and from the host run beside kernels; less: kernels wait for them") \
  X(one_lane, "software.one_lane", 0, 1, 0, "1: collectives, sends and receives of a rank run one after the other, as NCCL's do with a driver before CUDA 12.9; 0: different groups run beside each other") \
  X(tree_kib, "software.tree_kib", 0, 1e9, 0, "all-reduces up to this many KiB go up and down a tree instead of around a ring") \
  X(hierarchical, "software.hierarchical", 0, 1, 0, "1: collectives over several nodes go inside each node, between nodes on each member's part, inside each node; 0: around one ring") \
  X(in_network, "software.in_network_reduction", 0, 1, 0, "1: the network's switches add up all-reduces between nodes (SHARP): a node's part crosses the network once; 0: nodes add it up") \
  X(allocator_ms, "software.allocator_ms", 0, 1e4, 0, "a full device (from 88 % on, growing to its end) adds so many milliseconds to each pass of a unit: the allocator frees its cache and tries again") \
  X(node_runs, "compared.node_runs", 0, 1e6, 0, "measured steps of one node that predictions were compared with; 0: none") \
  X(node_low, "compared.node_low", 0.01, 100, 1, "measured over predicted time of a step on one node: one of ten steps is below this number") \
  X(node_high, "compared.node_high", 0.01, 100, 1, "one of ten steps is above this number") \
  X(node_ranks_least, "compared.node_ranks_least", 1, 1e7, 1, "fewest ranks of these steps") \
  X(node_ranks_most, "compared.node_ranks_most", 0, 1e7, 0, "most ranks of these steps") \
  X(node_billions_least, "compared.node_billions_least", 0, 1e6, 0, "billions of parameters of the smallest model in these steps") \
  X(node_billions_most, "compared.node_billions_most", 0, 1e6, 0, "billions of parameters of the largest model in these steps") \
  X(nodes_runs, "compared.nodes_runs", 0, 1e6, 0, "the same numbers for several nodes: measured steps that predictions were compared with; 0: none") \
  X(nodes_low, "compared.nodes_low", 0.01, 100, 1, "one of ten steps is below this number") \
  X(nodes_high, "compared.nodes_high", 0.01, 100, 1, "one of ten steps is above this number") \
  X(nodes_ranks_least, "compared.nodes_ranks_least", 1, 1e7, 1, "fewest ranks of these steps") \
  X(nodes_ranks_most, "compared.nodes_ranks_most", 0, 1e7, 0, "most ranks of these steps") \
  X(nodes_billions_least, "compared.nodes_billions_least", 0, 1e6, 0, "billions of parameters of the smallest model in these steps") \
  X(nodes_billions_most, "compared.nodes_billions_most", 0, 1e6, 0, "billions of parameters of the largest model in these steps") \
  X(compared_stage, "compared.stage", 0, 3, 0, "highest ZeRO stage of the compared steps; with one data rank it counts as 0") \
  X(compared_offload, "compared.offload", 0, 2, 0, "data of the compared steps in host memory or on a disk; 0: none, 1: activation checkpoints, 2: also optimizer states or parameters")
/* clang-format on */

#define X(field, path, low, high, standard, meaning) +1
enum { Z3D_HARDWARE_NUMBERS = Z3D_HARDWARE_MAP(X) };
#undef X

typedef struct z3d_hardware {
    char name[64], device[64], kind[8]; /* kind: gpu or cpu */
    char file[96];                      /* its path, or its name in configs/hardware */
    char software[64];                  /* "": not named */
    bool standard;                      /* `software` was not chosen by the user */
    char compared[64];                  /* the device of the runs that it was compared with */
#define X(field, path, low, high, standard, meaning) double field;
    Z3D_HARDWARE_MAP(X)
#undef X
    z3d_measured measured;                /* kernels and collectives that it knows are priced by
                                             it */
    bool estimates[Z3D_HARDWARE_NUMBERS]; /* by number, in the order of the map: it has the tag
                                             !estimate */
    bool given[Z3D_HARDWARE_NUMBERS];     /* likewise: the machine's own description gives it */
} z3d_hardware;

/* Reads a description: a file, or one of configs/hardware by its name (z3d_machine_read).
 * "measured_us" holds pairs of a sample's name and its microseconds. The tag "!estimate" before a
 * number marks it as an estimate. Unknown, doubled and missing keys and numbers out of range:
 * ERR_CONFIG with "file:line:column: ..." and the values that would be right. */
z3d_status z3d_hardware_read(const char *path, z3d_hardware *out);
z3d_status z3d_hardware_read_text(const char *text, size_t length, const char *name,
                                  z3d_hardware *out);
/* hardware_names.c, for configs/hardware, which is part of the program. Whether `given` is a file's
 * path: it has a slash, or ends in .yaml. */
bool z3d_is_description(const char *given);
/* Reads a machine of configs/hardware: by its name, by its name without "dgx-", or by a part
 * ("h100") of only one name; else the file `name`. ERR_USAGE with a list of the machines that may
 * be meant, or of all. */
z3d_status z3d_machine_read(const char *name, z3d_hardware *out);
/* Writes a table of all machines of configs/hardware. */
z3d_status z3d_machines_list(z3d_string *out);
/* Replaces numbers of a machine by those of a software description. It has the same keys, but none
 * that describes the machine alone. Attention stays unfused if the machine's description says so.
 * software: a name of configs/software, or a file's path. ERR_USAGE: a cpu machine, or an unknown
 * name. */
z3d_status z3d_hardware_adjust(const char *software, z3d_hardware *hardware);
z3d_status z3d_hardware_adjust_text(const char *text, size_t length, const char *name,
                                    z3d_hardware *hardware);
/* The names of configs/software, in order; NULL at the end. */
const char *z3d_software_name(int index);
/* The machine of `path` with software. software NULL: a GPU gets Z3D_SOFTWARE_STANDARD; a cpu
 * machine keeps its numbers, which were measured with zero3d. Z3D_SOFTWARE_STANDARD, named or not,
 * gives only the numbers that the machine's description leaves open. */
#define Z3D_SOFTWARE_STANDARD "megatron-2025"
z3d_status z3d_hardware_read_with(const char *path, const char *software, z3d_hardware *out);
/* The number at a path; NULL if the path is unknown. */
double *z3d_hardware_number(z3d_hardware *hardware, const char *path);
/* Sets the number at `path` to a fitted value, which is no estimate any more. */
void z3d_hardware_set(z3d_hardware *hardware, const char *path, double value);
/* Meaning and bounds of the number at `path`; false if the path is unknown. */
bool z3d_hardware_describe(const char *path, double *low, double *high, const char **meaning);
/* Whether some numbers are estimates. time: of the numbers that decide how long a step takes; else
 * of those that decide whether it fits into memory. out: NULL, or the paths of the estimates are
 * appended. */
bool z3d_hardware_estimates(const z3d_hardware *hardware, bool time, z3d_string *out);
/* Writes the file that describes the machine, or only its software, with the lines of `comment` on
 * top. */
void z3d_hardware_write(const z3d_hardware *hardware, const char *comment, z3d_string *out);
void z3d_software_write(const z3d_hardware *hardware, const char *comment, z3d_string *out);

/* Peak of products in `dtype`, FLOP/s; 0: it has none. */
double z3d_hardware_peak(const z3d_hardware *hardware, z3d_dtype dtype);
/* ERR_CONFIG: the machine has no products in `dtype`, so nothing that trains in it has a price. */
z3d_status z3d_hardware_check_products(const z3d_hardware *hardware, z3d_dtype dtype);

/* Seconds of one kernel of a tape: the measured time if a kernel like it was measured, else a
 * roofline (the products' efficiency by shape, memory traffic); plus the launch. */
double z3d_hardware_kernel(const z3d_hardware *hardware, const z3d_event *kernel);
/* The ranks of a full node, if the run has `ranks` in all. */
double z3d_hardware_node_ranks(const z3d_hardware *hardware, int ranks);
/* Kernels that the described software launches for one kernel of a tape: several for attention that
 * is not fused. */
int z3d_hardware_launches(const z3d_hardware *hardware, const z3d_event *kernel);
/* A cpu machine: the factor by which computing takes longer because the ranks of a node (`ranks` in
 * all) use more threads than the node has cores. 1 if each thread has a core, and on GPUs. */
double z3d_hardware_crowding(const z3d_hardware *hardware, int ranks);
/* Speed of a collective while other work runs on the device, relative to its speed alone. */
double z3d_hardware_overlap(const z3d_hardware *hardware, bool between_nodes);
/* Seconds of a copy between memory spaces while all ranks of a node copy (`ranks` in all). */
double z3d_hardware_copy(const z3d_hardware *hardware, const z3d_event *copy, int ranks);
/* Whether the machine is a cpu machine: a rank's device is cores of its host. */
bool z3d_hardware_is_cpu(const z3d_hardware *hardware);
/* device.kind of the nominal machine of src/plan/choose/machine.c, not of a real one: it computes
 * as a GPU and has the cpu device's buffers. */
#define Z3D_HARDWARE_NOMINAL "nominal"
/* Seconds of a kernel that the host's cores run for a GPU, while all ranks of a node run theirs. */
double z3d_hardware_host_kernel(const z3d_hardware *hardware, const z3d_event *kernel, int ranks);

#endif
