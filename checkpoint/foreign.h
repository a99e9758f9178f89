/* Inside checkpoint/ only: GPT-2 in other programs' files. Read (foreign.c, huggingface.c, llmc.c)
 * for import.c; written by export.c and llmc.c. */
#ifndef ZERO3D_CHECKPOINT_FOREIGN_H
#define ZERO3D_CHECKPOINT_FOREIGN_H

#include "checkpoint/format.h"
#include "src/model/model.h"

/* A tensor of ours as others see it. */
typedef struct z3d_view {
    char name[2 * Z3D_NAME + 8]; /* Hugging Face's, without "transformer." in front */
    int64_t rows, columns;       /* ours, as a matrix [out, in]; a vector has 0 rows */
    bool conv1d;                 /* Hugging Face has this matrix as [in, out] */
} z3d_view;

/* "block.3" and "attn.c_attn.weight" become "h.3.attn.c_attn.weight". */
void z3d_view_make(const char *group, const char *name, int dims, const int64_t *shape,
                   z3d_view *out);

/* ---- files to import ---- */

typedef struct z3d_place {
    bool found;
    z3d_dtype dtype; /* fp32, bf16 or fp16 */
    int64_t offset;  /* of its first byte in the file */
} z3d_place;

typedef struct z3d_foreign {
    char *path; /* of the file with the tensors */
    int fd;
    int64_t bytes; /* of that file */
    bool conv1d;   /* matrices with view.conv1d are [in, out] in it */
    z3d_gpt_config gpt;
    z3d_model *model;
    int count;
    z3d_tensor *tensor; /* of the model */
    z3d_view *view;
    z3d_place *place;
} z3d_foreign;

/* `from`: a folder of Hugging Face's GPT-2 (config.json, model.safetensors), or llm.c's checkpoint.
 * Only what describes the tensors is read. ERR_IO, ERR_DATA (file and tensor named),
 * ERR_UNSUPPORTED (a GPT-2 that computes something else than ours). Close also after a failure. */
z3d_status z3d_foreign_open(const char *from, z3d_foreign *out);
void z3d_foreign_close(z3d_foreign *foreign);
/* Elements first .. first + count - 1 of a tensor as ours has them (row-major [out, in]), as fp32.
 * Uses a fixed amount of memory. */
z3d_status z3d_foreign_read(const z3d_foreign *foreign, int tensor, int64_t first, int64_t count,
                            float *out);

/* What the two readers share: sets fd and bytes; checks sizes and makes the model and its lists. */
z3d_status z3d_foreign_open_file(z3d_foreign *foreign);
z3d_status z3d_foreign_make_model(z3d_foreign *foreign);
/* Elements that lie one behind the other in the file, as fp32. */
z3d_status z3d_foreign_read_run(const z3d_foreign *foreign, z3d_dtype dtype, int64_t offset,
                                int64_t count, float *out);
/* The two readers: path is set (huggingface: the folder's). */
z3d_status z3d_huggingface_open(const char *folder, z3d_foreign *foreign);
z3d_status z3d_llmc_open(z3d_foreign *foreign);

/* ---- export ---- */

/* Writes one tensor's values, as `view` says, at `offset` of a file; turned: [in, out]. */
z3d_status z3d_export_tensor(z3d_checkpoint *checkpoint, int tensor, const z3d_view *view,
                             bool turned, z3d_dtype dtype, int fd, const char *path,
                             int64_t offset);
z3d_status z3d_llmc_write(z3d_checkpoint *checkpoint, const z3d_gpt_config *gpt, z3d_dtype dtype,
                          int fd, const char *path);

#endif
