/* SPDX-License-Identifier: Apache-2.0
 *
 * The C interface of normjit: LayerNorm, RMSNorm and their gradients, from kernels that are compiled for each shape. It
 * mirrors the C++ interface of spec.h, engine.h and kernel.h, which define the terms; this header documents only the
 * differences.
 *
 * Functions that can fail return a normjit_status, and normjit_last_error() gives the reason in words. Nothing throws.
 * A call that fails makes no handle and does not change the caller's pointer. Structs start with their size:
 * normjit_arguments a = {.size = sizeof a}. Fields that are zero take their defaults, except in a normjit_spec. Several
 * threads may use a handle at once. Destroying NULL does nothing. dlclose() does not unload the library, so handles
 * stay valid. */
#ifndef NORMJIT_NORMJIT_H
#define NORMJIT_NORMJIT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NORMJIT_API __attribute__((visibility("default")))
#define NORMJIT_VERSION \
    100 /* 10000 * major + 100 * minor + patch; a program runs with later versions of the library: PROMISES.md */

typedef enum normjit_status {
    NORMJIT_OK = 0,
    NORMJIT_INVALID_ARGUMENT = 1, /* the caller's input is wrong */
    NORMJIT_UNAVAILABLE = 2,      /* this machine or build cannot do it */
    NORMJIT_FAILED = 3,           /* an attempt failed */
    NORMJIT_PENDING = 4,          /* the work is still being done; ask again */
    NORMJIT_CAPTURING = 5         /* a graph is being captured, which forbids the work; ask again afterwards */
} normjit_status;

typedef enum normjit_dtype {
    NORMJIT_F32 = 0,
    NORMJIT_BF16 = 1,
    NORMJIT_F16 = 2,
    NORMJIT_F64 = 3,
    NORMJIT_E4M3 = 4,
    NORMJIT_E5M2 = 5,
    NORMJIT_E8M0 = 6,
    NORMJIT_I8 = 7,
    NORMJIT_NONE = -1
} normjit_dtype;
typedef enum normjit_norm { NORMJIT_LAYERNORM = 0, NORMJIT_RMSNORM = 1 } normjit_norm;
typedef enum normjit_pass { NORMJIT_BACKWARD = 0, NORMJIT_FORWARD = 1 } normjit_pass;
typedef enum normjit_source { NORMJIT_SOURCE_X = 0, NORMJIT_SOURCE_XHAT = 1, NORMJIT_SOURCE_Y = 2 } normjit_source;
typedef enum normjit_stats { NORMJIT_STATS_SAVED = 0, NORMJIT_STATS_RECOMPUTE = 1 } normjit_stats;
typedef enum normjit_rounding { NORMJIT_ROUNDING_NONE = 0, NORMJIT_ROUNDING_LLAMA = 1 } normjit_rounding;
typedef enum normjit_gradient {
    NORMJIT_GRADIENT_DERIVED = 0, /* a backward pass can compute it */
    NORMJIT_GRADIENT_ZERO = 1,    /* no output depends on the input, as in x * w / w */
    NORMJIT_GRADIENT_ABSENT = 2   /* no output is computed from the input */
} normjit_gradient;
typedef enum normjit_on_miss {
    NORMJIT_SYNC = 0,
    NORMJIT_BACKGROUND = 1,
    NORMJIT_ERROR = 2,
    NORMJIT_LOAD = 3 /* from packs or the folder only */
} normjit_on_miss;
typedef enum normjit_tune { NORMJIT_TUNE_OFF = 0, NORMJIT_TUNE_ON_MISS = 1, NORMJIT_TUNE_BACKGROUND = 2 } normjit_tune;
typedef enum normjit_thread_policy {
    NORMJIT_THREADS_DEFAULT = 0,                                       /* what NORMJIT_THREADS says, else automatic */
    NORMJIT_THREADS_AS_THE_ENVIRONMENT_SAYS = NORMJIT_THREADS_DEFAULT, /* its former name */
    NORMJIT_THREADS_AUTOMATIC = 1,
    NORMJIT_THREADS_OWN = 2,
    NORMJIT_THREADS_OPENMP = 3
} normjit_thread_policy;
typedef enum normjit_log_level { NORMJIT_LOG_INFO = 0, NORMJIT_LOG_WARNING = 1 } normjit_log_level;

/* With slices, [M,N] is [S,M,N], [M] is [S,M], and [N] may be [S,N]. */
typedef enum normjit_tensor {
    NORMJIT_X = 0,             /* [M,N], read */
    NORMJIT_DY = 1,            /* [M,N], read by NORMJIT_BACKWARD */
    NORMJIT_DRESIDUAL = 2,     /* [M,N], read by NORMJIT_BACKWARD */
    NORMJIT_GAMMA = 3,         /* [N], read */
    NORMJIT_BETA = 4,          /* [N], read */
    NORMJIT_MEAN = 5,          /* [M], read with NORMJIT_STATS_SAVED, else written */
    NORMJIT_RSTD = 6,          /* [M], read with NORMJIT_STATS_SAVED, else written */
    NORMJIT_DX = 7,            /* [M,N], written by NORMJIT_BACKWARD */
    NORMJIT_DGAMMA = 8,        /* [N], written by NORMJIT_BACKWARD */
    NORMJIT_DBETA = 9,         /* [N], written by NORMJIT_BACKWARD */
    NORMJIT_DRESIDUAL_IN = 10, /* [M,N], written by NORMJIT_BACKWARD */
    NORMJIT_Y = 11,            /* [M,N], written by NORMJIT_FORWARD */
    NORMJIT_H = 12,            /* [M,N], written by NORMJIT_FORWARD */
    NORMJIT_RESIDUAL = 13,     /* [M,N], read by NORMJIT_FORWARD */
    NORMJIT_ROWSCALE = 14,     /* [M], read */
    NORMJIT_AMAX = 15          /* one element, written by NORMJIT_BACKWARD */
} normjit_tensor;
#define NORMJIT_TENSORS 16 /* places in arrays that are indexed by normjit_tensor */

typedef struct normjit_engine normjit_engine;
typedef struct normjit_kernel normjit_kernel;
typedef struct normjit_artifact normjit_artifact;

/* Returns the version of the library; NORMJIT_VERSION is the version of this header. */
NORMJIT_API int32_t normjit_version(void);
/* Returns why this thread's last failed call failed. The text is valid until its next failed call. */
NORMJIT_API const char* normjit_last_error(void);

/* Returns "dx" for NORMJIT_DX; NULL if the library knows no tensor with this number. */
NORMJIT_API const char* normjit_tensor_name(int32_t tensor);

/* Texts and bytes are written to the caller's buffer. *bytes receives their size, including the zero at the end of a
 * text. If the buffer is null, nothing is written; a buffer that is too small is an error. */

/* ---- the problem: spec.h. In a normjit_spec, zero means zero: eps is 0, and every type is f32. Set the types of
 * tensors that the pass does not have to NORMJIT_NONE, or the spec is refused. normjit_spec_parse() fills a spec with
 * the defaults of a text. */
typedef struct normjit_spec {
    size_t size;
    int32_t norm;   /* normjit_norm */
    int32_t source; /* normjit_source */
    int32_t stats;  /* normjit_stats; ignored by NORMJIT_FORWARD */
    int64_t rows;   /* M; -1: any */
    int64_t cols;   /* N */
    double eps;     /* only used by NORMJIT_FORWARD and with NORMJIT_STATS_RECOMPUTE */
    double gamma_offset;
    int32_t dtypes[NORMJIT_TENSORS]; /* normjit_dtype by normjit_tensor; NORMJIT_NONE: not used */
    uint32_t accumulate;             /* 1 << normjit_tensor for each column output that is added to its old value */
    int32_t pass;                    /* normjit_pass */
    uint32_t invariant;              /* 1: a row's bits are the same in every batch */
    int32_t rounding;                /* normjit_rounding */
    int64_t slices;                  /* S; 0: one; -1: any */
    uint32_t per_slice; /* 1 << normjit_tensor for gamma and beta that have a row for each slice; their gradients then
                           have one as well */
    const char* text;   /* the text of a spec with a formula, which the caller keeps while the spec is used; all other
                         fields are then ignored. NULL: the norm above */
} normjit_spec;

/* Parses "layernorm cols=4096 x=bf16 gamma=f32", with defaults for what is missing. If the text has a formula
 * (compiler/FORMULAS.md), the spec keeps the pointer. */
NORMJIT_API normjit_status normjit_spec_parse(const char* text, normjit_spec* spec);
/* Writes a formula on one line, so that the text of a spec can begin with it. For the name of a norm in the library,
 * writes that norm's formula. */
NORMJIT_API normjit_status normjit_formula_line(const char* formula, char* buffer, size_t capacity, size_t* bytes);
/* Writes the names of the numbers that a formula takes, joined by commas. The lengths of runs of columns, such as R in
 * [N/R], come first. `formula` is as in normjit_formula_line(). */
NORMJIT_API normjit_status normjit_formula_numbers(const char* formula, char* buffer, size_t capacity, size_t* bytes);
/* Gives the kind of an input's gradient (normjit_gradient), for the text of a spec of a backward pass with a formula.
 * out= is ignored here, but a spec whose out= names a gradient that cannot be derived is refused. */
NORMJIT_API normjit_status normjit_formula_gradient(const char* text, const char* input, int32_t* gradient);
/* Gives the index in normjit_arguments of the tensor with this name. A name of normjit_tensor has its own number unless
 * another tensor of the formula has that number. */
NORMJIT_API normjit_status normjit_spec_tensor(const normjit_spec* spec, const char* name, int32_t* tensor);

/* A tensor of a problem. */
typedef struct normjit_operand {
    size_t size;
    int32_t tensor;      /* its index in normjit_arguments */
    int32_t dtype;       /* normjit_dtype */
    uint32_t is_output;  /* 1: a launch writes it */
    uint32_t per_slice;  /* 1: each slice has its own part */
    uint32_t per_row;    /* 1: a matrix, or a tensor of [M] */
    uint32_t accumulate; /* 1: a launch adds to its old contents */
    int64_t cols;        /* as in normjit_argument; if it and per_row are 0: one number */
    char name[64];
} normjit_operand;

/* Counts the tensors of a problem. */
NORMJIT_API normjit_status normjit_spec_operands(const normjit_spec* spec, int32_t* count);
/* Describes the tensor at a place. Places count from 0; inputs come first. */
NORMJIT_API normjit_status normjit_spec_operand(const normjit_spec* spec, int32_t place, normjit_operand* operand);
NORMJIT_API normjit_status normjit_spec_text(const normjit_spec* spec, char* buffer, size_t capacity, size_t* bytes);

/* ---- a device: engine.h; parallel_for.h has the contract of a parallel_for. */
typedef struct normjit_parallel_for {
    void (*run)(void* self, int64_t count, void (*task)(void* context, int64_t i), void* context);
    void* self;
} normjit_parallel_for;

/* Provides workspaces to launches that bring none: allocator.h. */
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
    int32_t threads;    /* CPU threads that schedules are chosen for; 0: one per core, or as many as OpenMP has */
    normjit_parallel_for parallel_for;
    normjit_allocator allocator;
    normjit_log log;
    const char* cache_folder; /* NULL: from the environment; "": none */
    int64_t cache_bytes;      /* 0: from the environment */
    const char* const* packs; /* NULL: from the environment */
    size_t pack_count;
    const char* const* record_files; /* files of tuning records; NULL: from the environment */
    size_t record_file_count;
    int32_t no_shipped_records; /* 1: do not use those in the library */
    int32_t tune;               /* normjit_tune: TunePolicy */
    double tune_seconds;        /* for each spec; 0: half a second */
    int32_t cache_trust_others; /* 1: use a cache folder that other users may write to, and run its content; 0: from
                                   the environment */
    int32_t thread_policy;      /* normjit_thread_policy: ThreadPolicy */
    int64_t most_kernels;       /* most kept in memory; the least recently used go first; 0: from the environment */
    int64_t most_kernel_bytes;  /* the most bytes of their code; 0: from the environment */
    void* openmp_user;          /* dlopen() handle of a library whose OpenMP runtime is used; NULL: the process's */
} normjit_engine_options;

/* `options` may be NULL. Destroying an engine leaves its kernels usable. */
NORMJIT_API normjit_status normjit_engine_create(const normjit_engine_options* options, normjit_engine** engine);
NORMJIT_API void normjit_engine_destroy(normjit_engine* engine);
/* Names the code generator: "x64", "llvm 19.1.7", "cuda"; if there is none, "portable", which is many times slower. */
NORMJIT_API normjit_status normjit_engine_backend(const normjit_engine* engine, char* buffer, size_t capacity,
                                                  size_t* bytes);
/* Returns the number of CPU threads of a launch, and a text that says whose they are: "own", "libgomp.so.1's"; 1 and ""
 * for a GPU. `threads` may be NULL. */
NORMJIT_API normjit_status normjit_engine_threads(const normjit_engine* engine, int32_t* threads, char* buffer,
                                                  size_t capacity, size_t* bytes);
/* Returns Engine::plan_digest(). Ranks with equal digests have kernels that give equal bits for equal data. */
NORMJIT_API normjit_status normjit_plan_digest(const normjit_engine* engine, uint64_t* digest);

/* ---- kernels, which are compiled and loaded, with the engine's memory and the cache */
typedef struct normjit_prepare_options {
    size_t size;
    int32_t on_miss;       /* normjit_on_miss: OnMiss */
    const char* schedule;  /* NULL: the engine's choice */
    void* stream;          /* a CUstream that must not be capturing */
    int64_t expected_rows; /* M and S of the launches to come, where the spec leaves them open: PrepareOptions */
    int64_t expected_slices;
} normjit_prepare_options;

/* `options` may be NULL. The text of a spec is parsed at each call, even if the kernel is known, so keep the kernel. */
NORMJIT_API normjit_status normjit_prepare(normjit_engine* engine, const normjit_spec* spec,
                                           const normjit_prepare_options* options, normjit_kernel** kernel);

/* Compiles for a target, without a device. `target` is a text such as "sm_90" or "x86-64-avx512 bf16=1 cores=16", or
 * "host", the CPU of this machine. `schedule` may be NULL. */
NORMJIT_API normjit_status normjit_compile(const char* target, const normjit_spec* spec, const char* schedule,
                                           normjit_artifact** artifact);
NORMJIT_API normjit_status normjit_artifact_serialise(const normjit_artifact* artifact, void* buffer, size_t capacity,
                                                      size_t* bytes);
NORMJIT_API normjit_status normjit_artifact_deserialise(const void* data, size_t bytes, normjit_artifact** artifact);
NORMJIT_API void normjit_artifact_destroy(normjit_artifact* artifact);
NORMJIT_API normjit_status normjit_load(normjit_engine* engine, const normjit_artifact* artifact, void* stream,
                                        normjit_kernel** kernel);

/* Returns the bytes of workspace for a launch of these `rows` and `slices`, with the meaning of normjit_arguments:
 * 0 slices are one, NORMJIT_NO_SLICES is none. Either pointer may be NULL. */
NORMJIT_API normjit_status normjit_kernel_workspace_bytes(const normjit_kernel* kernel, int64_t rows, int64_t slices,
                                                          int64_t* minimum, int64_t* preferred);
/* Does the same for one slice that has the rows of all slices. Kept for programs that are older than
 * normjit_kernel_workspace_bytes(). */
NORMJIT_API normjit_status normjit_kernel_workspace(const normjit_kernel* kernel, int64_t rows, int64_t* minimum,
                                                    int64_t* preferred)
    __attribute__((deprecated("use normjit_kernel_workspace_bytes")));
NORMJIT_API void normjit_kernel_destroy(normjit_kernel* kernel);

/* ---- launches: kernel.h */
#define NORMJIT_REPEAT_ROW (-1)
#define NORMJIT_NO_SLICES (-1)
typedef struct normjit_argument {
    void* data;
    int64_t cols;       /* N; N/R for a tensor [N/R] or [M,N/R]; 0 for [M] */
    int64_t row_stride; /* elements; 0: cols; NORMJIT_REPEAT_ROW: repeats the first row (inputs) */
    int32_t dtype;      /* normjit_dtype */
    int32_t reserved;   /* 0 */
} normjit_argument;

typedef struct normjit_arguments {
    size_t size;
    int64_t rows;
    normjit_argument tensors[NORMJIT_TENSORS]; /* indexed by normjit_tensor */
    void* workspace; /* aligned to 64 bytes; NULL: from the engine's allocator, if it has one */
    int64_t workspace_bytes;
    void* stream;                           /* a CUstream; ignored on a CPU */
    uint32_t dlpack_tensors;                /* used by normjit_set_dlpack(); initially 0 */
    int64_t slices;                         /* S; 0: one; NORMJIT_NO_SLICES: none */
    int64_t slice_strides[NORMJIT_TENSORS]; /* elements from one slice to the next, of matrices and tensors per slice;
                                               0: contiguous; NORMJIT_REPEAT_ROW: repeats the first slice
                                               (inputs) */
} normjit_arguments;

/* Takes data, type and shape from a DLTensor (dlpack.h, any version). A matrix may have any number of dimensions: the
 * last is N, and one row stride must describe the others. With slices the first dimension is S, or the product of the
 * first ones if one slice stride describes them. Sets `rows` and `slices`. Refuses tensors that disagree about them,
 * and tensors on another kind of device than the kernel's. */
NORMJIT_API normjit_status normjit_set_dlpack(const normjit_kernel* kernel, normjit_arguments* arguments,
                                              normjit_tensor tensor, const void* dl_tensor);

NORMJIT_API normjit_status normjit_launch(const normjit_kernel* kernel, const normjit_arguments* arguments);

#ifdef __cplusplus
}
#endif

#endif
