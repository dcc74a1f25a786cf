/* SPDX-License-Identifier: Apache-2.0
 *
 * normjit from C: gradients of a LayerNorm, and once more as a serialised kernel. Exit code 3: not on this machine. */
#include <math.h>
#include <normjit/normjit.h>
#include <stdio.h>
#include <stdlib.h>

enum { M = 64, N = 1000 };
static float x[M * N], dy[M * N], gamma_[N], dx[M * N], dgamma[N], dbeta[N];

static void check(normjit_status status) {
    if (status == NORMJIT_OK) return;
    fprintf(stderr, "normjit: %s\n", normjit_last_error());
    exit(status == NORMJIT_UNAVAILABLE ? 3 : 1);
}

static normjit_argument matrix(float* data) {
    normjit_argument argument = {data, N, 0, NORMJIT_F32, 0};
    return argument;
}

static void launch(const normjit_kernel* kernel) {
    normjit_arguments arguments = {.size = sizeof arguments, .rows = M};
    arguments.tensors[NORMJIT_X] = matrix(x);
    arguments.tensors[NORMJIT_DY] = matrix(dy);
    arguments.tensors[NORMJIT_GAMMA] = matrix(gamma_);
    arguments.tensors[NORMJIT_DX] = matrix(dx);
    arguments.tensors[NORMJIT_DGAMMA] = matrix(dgamma);
    arguments.tensors[NORMJIT_DBETA] = matrix(dbeta);
    check(normjit_kernel_workspace_bytes(kernel, M, 0, NULL, &arguments.workspace_bytes));
    arguments.workspace = aligned_alloc(64, (size_t)arguments.workspace_bytes);
    check(normjit_launch(kernel, &arguments));
    free(arguments.workspace);
}

/* The largest distance of dx, dgamma and dbeta from the formula in double precision. */
static double error(void) {
    static double sum_gamma[N], sum_beta[N];
    double worst = 0;
    for (int j = 0; j < N; ++j) sum_gamma[j] = sum_beta[j] = 0;
    for (int i = 0; i < M; ++i) {
        const float *row = x + i * N, *dy_row = dy + i * N;
        double mean = 0, variance = 0, c1 = 0, c2 = 0;
        for (int j = 0; j < N; ++j) mean += row[j] / (double)N;
        for (int j = 0; j < N; ++j) variance += (row[j] - mean) * (row[j] - mean) / N;
        const double rstd = 1 / sqrt(variance + 1e-5);
        for (int j = 0; j < N; ++j) {
            const double xhat = (row[j] - mean) * rstd, g = (double)dy_row[j] * gamma_[j];
            c1 += g * xhat / N, c2 += g / N;
            sum_gamma[j] += dy_row[j] * xhat, sum_beta[j] += dy_row[j];
        }
        for (int j = 0; j < N; ++j) {
            const double xhat = (row[j] - mean) * rstd, g = (double)dy_row[j] * gamma_[j];
            worst = fmax(worst, fabs(dx[i * N + j] - rstd * (g - xhat * c1 - c2)));
        }
    }
    for (int j = 0; j < N; ++j) worst = fmax(worst, fmax(fabs(dgamma[j] - sum_gamma[j]), fabs(dbeta[j] - sum_beta[j])));
    return worst;
}

int main(void) {
    for (int i = 0; i < M * N; ++i) x[i] = (float)(i % 97) / 31, dy[i] = (float)(i % 89) / 47 - 1;
    for (int j = 0; j < N; ++j) gamma_[j] = 1 + (float)j / N;
    normjit_engine* engine = NULL;
    normjit_kernel *kernel = NULL, *copy = NULL;
    normjit_artifact* artifact = NULL;
    normjit_spec spec = {.size = sizeof spec};
    check(normjit_engine_create(NULL, &engine));
    check(normjit_spec_parse("layernorm cols=1000 x=f32 stats=recompute", &spec));
    check(normjit_prepare(engine, &spec, NULL, &kernel));
    launch(kernel);
    const double prepared = error();

    char bytes[1 << 16];
    size_t count = 0;
    check(normjit_compile("x86-64-avx512", &spec, NULL, &artifact));
    check(normjit_artifact_serialise(artifact, bytes, sizeof bytes, &count));
    normjit_artifact_destroy(artifact);
    check(normjit_artifact_deserialise(bytes, count, &artifact));
    const normjit_status loaded = normjit_load(engine, artifact, NULL, &copy);
    double shipped = 0;
    if (loaded != NORMJIT_UNAVAILABLE) { /* without AVX-512 the code is no use here */
        check(loaded);
        for (int i = 0; i < M * N; ++i) dx[i] = 0;
        launch(copy);
        shipped = error();
    }
    printf("largest error: %g prepared, %g shipped\n", prepared, shipped);

    normjit_artifact_destroy(artifact);
    normjit_engine_destroy(engine); /* kernels live on */
    launch(kernel);
    normjit_kernel_destroy(copy);
    normjit_kernel_destroy(kernel);
    return prepared < 1e-4 && shipped < 1e-4 && error() < 1e-4 ? 0 : 1;
}
