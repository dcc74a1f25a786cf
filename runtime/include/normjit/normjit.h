/* SPDX-License-Identifier: Apache-2.0
 *
 * normjit for C, and for whatever calls C: LayerNorm and RMSNorm and their gradients, by kernels that are compiled for
 * each shape. What the words mean is said in spec.h, engine.h and kernel.h, whose C++ interface this is; only the
 * differences are here.
 *
 * What can fail returns a normjit_status, and normjit_last_error() says in words what was wrong. Nothing throws.
 * Structs start with their size: normjit_arguments a = {.size = sizeof a}. Fields left zero mean what is usual.
 * Handles may be used from several threads at once; to destroy NULL does nothing. */
#ifndef NORMJIT_NORMJIT_H
#define NORMJIT_NORMJIT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NORMJIT_API __attribute__((visibility("default")))
#define NORMJIT_VERSION \
    100 /* 10000 * major + 100 * minor + patch; within a major version, programs run with a newer library */

typedef enum normjit_status {
    NORMJIT_OK = 0,
    NORMJIT_INVALID_ARGUMENT = 1, /* the caller's input is wrong */
    NORMJIT_UNAVAILABLE = 2,      /* this machine or build cannot do it */
    NORMJIT_FAILED = 3,           /* it was tried and did not work */
    NORMJIT_PENDING = 4           /* it is being done; ask again */
} normjit_status;

typedef enum normjit_dtype {
    NORMJIT_F32 = 0,
    NORMJIT_BF16 = 1,
    NORMJIT_F16 = 2,
    NORMJIT_F64 = 3,
    NORMJIT_NONE = -1
} normjit_dtype;
typedef enum normjit_norm { NORMJIT_LAYERNORM = 0, NORMJIT_RMSNORM = 1 } normjit_norm;
typedef enum normjit_pass { NORMJIT_BACKWARD = 0, NORMJIT_FORWARD = 1 } normjit_pass;
typedef enum normjit_source { NORMJIT_SOURCE_X = 0, NORMJIT_SOURCE_XHAT = 1, NORMJIT_SOURCE_Y = 2 } normjit_source;
typedef enum normjit_stats { NORMJIT_STATS_SAVED = 0, NORMJIT_STATS_RECOMPUTE = 1 } normjit_stats;
typedef enum normjit_rounding { NORMJIT_ROUNDING_NONE = 0, NORMJIT_ROUNDING_LLAMA = 1 } normjit_rounding;
typedef enum normjit_on_miss { NORMJIT_SYNC = 0, NORMJIT_BACKGROUND = 1, NORMJIT_ERROR = 2 } normjit_on_miss;
typedef enum normjit_tune { NORMJIT_TUNE_OFF = 0, NORMJIT_TUNE_ON_MISS = 1, NORMJIT_TUNE_BACKGROUND = 2 } normjit_tune;
typedef enum normjit_thread_policy {
    NORMJIT_THREADS_DEFAULT = 0,                                       /* what NORMJIT_THREADS says, else automatic */
    NORMJIT_THREADS_AS_THE_ENVIRONMENT_SAYS = NORMJIT_THREADS_DEFAULT, /* its former name */
    NORMJIT_THREADS_AUTOMATIC = 1,
    NORMJIT_THREADS_OWN = 2,
    NORMJIT_THREADS_OPENMP = 3
} normjit_thread_policy;
typedef enum normjit_log_level { NORMJIT_LOG_INFO = 0, NORMJIT_LOG_WARNING = 1 } normjit_log_level;

typedef enum normjit_tensor {
    NORMJIT_X = 0,             /* [M,N]; with slices [S,M,N], and [S,M] for [M] */
    NORMJIT_DY = 1,            /* [M,N] */
    NORMJIT_DRESIDUAL = 2,     /* [M,N] */
    NORMJIT_GAMMA = 3,         /* [N] */
    NORMJIT_BETA = 4,          /* [N] */
    NORMJIT_MEAN = 5,          /* [M]; a type means that it is written by NORMJIT_FORWARD, NORMJIT_STATS_RECOMPUTE */
    NORMJIT_RSTD = 6,          /* [M]; likewise */
    NORMJIT_DX = 7,            /* [M,N], written */
    NORMJIT_DGAMMA = 8,        /* [N], written */
    NORMJIT_DBETA = 9,         /* [N], written */
    NORMJIT_DRESIDUAL_IN = 10, /* [M,N], written: the gradient of the stream that x was added to */
    NORMJIT_Y = 11,            /* [M,N], written by NORMJIT_FORWARD */
    NORMJIT_H = 12,            /* [M,N], likewise */
    NORMJIT_RESIDUAL = 13,     /* [M,N], read by NORMJIT_FORWARD */
    NORMJIT_ROWSCALE = 14      /* [M] */
} normjit_tensor;
#define NORMJIT_TENSORS 16 /* room for those of later versions */

typedef struct normjit_engine normjit_engine;
typedef struct normjit_kernel normjit_kernel;
typedef struct normjit_artifact normjit_artifact;

/* The version of the library, as NORMJIT_VERSION is that of this header. */
NORMJIT_API int32_t normjit_version(void);
/* Why the last call of this thread that did not return NORMJIT_OK did not; good until the next such call. */
NORMJIT_API const char* normjit_last_error(void);

/* Texts and bytes go into the caller's buffer. *bytes is what they take, the zero at the end of a text included; with a
 * null buffer nothing is written, and a buffer that is too small is an error. */

/* ---- the problem: spec.h */
typedef struct normjit_spec {
    size_t size;
    int32_t norm;   /* normjit_norm */
    int32_t source; /* normjit_source */
    int32_t stats;  /* normjit_stats; NORMJIT_FORWARD does not read it */
    int64_t rows;   /* M; -1: any */
    int64_t cols;   /* N */
    double eps;     /* only NORMJIT_FORWARD and NORMJIT_STATS_RECOMPUTE read it */
    double gamma_offset;
    int32_t dtypes[NORMJIT_TENSORS]; /* normjit_dtype by normjit_tensor; NORMJIT_NONE: plays no part */
    uint32_t accumulate;             /* 1 << normjit_tensor, for each column output that is added to what it holds */
    int32_t pass;                    /* normjit_pass */
    uint32_t invariant;              /* 1: a row's bits are the same in every batch */
    int32_t rounding;                /* normjit_rounding */
    int64_t slices;                  /* S; 0: one; -1: any */
    uint32_t per_slice; /* 1 << normjit_tensor, for each of gamma and beta that has a row for each slice; its gradient
                           then has, too */
} normjit_spec;

/* "layernorm cols=4096 x=bf16 gamma=f32": fills in what the text leaves out. */
NORMJIT_API normjit_status normjit_spec_parse(const char* text, normjit_spec* spec);
NORMJIT_API normjit_status normjit_spec_text(const normjit_spec* spec, char* buffer, size_t capacity, size_t* bytes);

/* ---- a device: engine.h. Of a parallel_for, see parallel_for.h for what it may assume. */
typedef struct normjit_parallel_for {
    void (*run)(void* self, int64_t count, void (*task)(void* context, int64_t i), void* context);
    void* self;
} normjit_parallel_for;

/* Workspace of launches that bring none: allocator.h. */
typedef struct normjit_allocator {
    void* (*allocate)(void* self, int64_t bytes, void* stream);
    void (*release)(void* self, void* memory, int64_t bytes, void* stream);
    void* self;
} normjit_allocator;

typedef struct normjit_log {
    void (*write)(void* self, int32_t level, const char* message); /* normjit_log_level; one line */
    void* self;
} normjit_log;

typedef struct normjit_engine_options {
    size_t size;
    const char* device; /* NULL: "cpu" */
    int32_t threads;    /* 0: one per core, or as many as OpenMP's are */
    normjit_parallel_for parallel_for;
    normjit_allocator allocator;
    normjit_log log;
    const char* cache_folder; /* NULL: as the environment says; "": none */
    int64_t cache_bytes;      /* 0: as the environment says */
    const char* const* packs; /* NULL: as the environment says */
    size_t pack_count;
    const char* const* record_files; /* of tuning records; NULL: as the environment says */
    size_t record_file_count;
    int32_t no_shipped_records; /* 1: without those in the library */
    int32_t tune;               /* normjit_tune: TunePolicy */
    double tune_seconds;        /* for a spec; 0: half a second */
    int32_t cache_trust_others; /* 1: use a cache folder that other users may write to, and run what lies there; 0: as
                                   the environment says */
    int32_t thread_policy;      /* normjit_thread_policy: ThreadPolicy */
    int64_t most_kernels; /* in the engine's memory; the least recently used go first; 0: as the environment says */
    int64_t most_kernel_bytes; /* of their code; 0: as the environment says */
    void* openmp_user;         /* dlopen()'s handle of a library, whose OpenMP runtime is meant; NULL: the process's */
} normjit_engine_options;

/* `options` may be NULL. Destroying an engine leaves its kernels usable. */
NORMJIT_API normjit_status normjit_engine_create(const normjit_engine_options* options, normjit_engine** engine);
NORMJIT_API void normjit_engine_destroy(normjit_engine* engine);
/* What makes its code: "x64", "llvm 19.1.7", "cuda"; or "portable", many times slower, where no code can be made. */
NORMJIT_API normjit_status normjit_engine_backend(const normjit_engine* engine, char* buffer, size_t capacity,
                                                  size_t* bytes);
/* CPU threads of a launch, and whose they are, for people: "own", "libgomp.so.1's"; 1 and "" for a GPU. `threads` may
 * be NULL. */
NORMJIT_API normjit_status normjit_engine_threads(const normjit_engine* engine, int32_t* threads, char* buffer,
                                                  size_t capacity, size_t* bytes);
/* Equal on ranks whose kernels give equal bits for equal data: Engine::plan_digest(). */
NORMJIT_API normjit_status normjit_plan_digest(const normjit_engine* engine, uint64_t* digest);

/* ---- kernels: compile and load in one, with the engine's memory and the cache between them */
typedef struct normjit_prepare_options {
    size_t size;
    int32_t on_miss;      /* normjit_on_miss */
    const char* schedule; /* NULL: the engine's choice */
    void* stream;         /* a CUstream that must not be capturing */
} normjit_prepare_options;

/* `options` may be NULL. */
NORMJIT_API normjit_status normjit_prepare(normjit_engine* engine, const normjit_spec* spec,
                                           const normjit_prepare_options* options, normjit_kernel** kernel);

/* For a target text such as "sm_90" or "x86-64-avx512 bf16=1 cores=16", without a device, or for "host", the CPU of
 * this machine; `schedule` may be NULL. */
NORMJIT_API normjit_status normjit_compile(const char* target, const normjit_spec* spec, const char* schedule,
                                           normjit_artifact** artifact);
NORMJIT_API normjit_status normjit_artifact_serialise(const normjit_artifact* artifact, void* buffer, size_t capacity,
                                                      size_t* bytes);
NORMJIT_API normjit_status normjit_artifact_deserialise(const void* data, size_t bytes, normjit_artifact** artifact);
NORMJIT_API void normjit_artifact_destroy(normjit_artifact* artifact);
NORMJIT_API normjit_status normjit_load(normjit_engine* engine, const normjit_artifact* artifact, void* stream,
                                        normjit_kernel** kernel);

/* Bytes of workspace for a launch of these `rows` and `slices`, which count as in normjit_arguments: 0 slices are one,
 * NORMJIT_NO_SLICES none. Either pointer may be NULL. */
NORMJIT_API normjit_status normjit_kernel_workspace_bytes(const normjit_kernel* kernel, int64_t rows, int64_t slices,
                                                          int64_t* minimum, int64_t* preferred);
/* The same of one slice, whose rows are those of all slices. For programs that were built before the one above. */
NORMJIT_API normjit_status normjit_kernel_workspace(const normjit_kernel* kernel, int64_t rows, int64_t* minimum,
                                                    int64_t* preferred)
    __attribute__((deprecated("use normjit_kernel_workspace_bytes")));
NORMJIT_API void normjit_kernel_destroy(normjit_kernel* kernel);

/* ---- launches: kernel.h */
#define NORMJIT_REPEAT_ROW (-1)
#define NORMJIT_NO_SLICES (-1)
typedef struct normjit_argument {
    void* data;
    int64_t cols;       /* N; 0 for a tensor of [M] */
    int64_t row_stride; /* elements; 0: cols; NORMJIT_REPEAT_ROW: every row is the first (inputs) */
    int32_t dtype;      /* normjit_dtype */
    int32_t reserved;   /* 0 */
} normjit_argument;

typedef struct normjit_arguments {
    size_t size;
    int64_t rows;
    normjit_argument tensors[NORMJIT_TENSORS]; /* by normjit_tensor */
    void* workspace; /* at a multiple of 64; NULL: from the engine's allocator, if it has one */
    int64_t workspace_bytes;
    void* stream;                           /* a CUstream; ignored on a CPU */
    uint32_t dlpack_tensors;                /* normjit_set_dlpack()'s own; 0 at first */
    int64_t slices;                         /* S; 0: one; NORMJIT_NO_SLICES: none */
    int64_t slice_strides[NORMJIT_TENSORS]; /* elements from one slice to the next, of matrices and what is per slice;
                                               0: one behind the other; NORMJIT_REPEAT_ROW: every slice is the first */
} normjit_arguments;

/* Takes over data, type and shape of a DLTensor (of dlpack.h, any version). Matrices may have any number of dimensions,
 * of which the last is N, if one row stride describes the rest. With slices the first dimension is S, or the first ones
 * whose sizes make the spec's, if one slice stride describes them. Sets `rows` and `slices`; tensors that disagree
 * about them are refused, as are those of another kind of device than the kernel's. */
NORMJIT_API normjit_status normjit_set_dlpack(const normjit_kernel* kernel, normjit_arguments* arguments,
                                              normjit_tensor tensor, const void* dl_tensor);

NORMJIT_API normjit_status normjit_launch(const normjit_kernel* kernel, const normjit_arguments* arguments);

#ifdef __cplusplus
}
#endif

#endif
