// SPDX-License-Identifier: Apache-2.0
// Texts of formulas that are refused. The error gives the place of the mistake and what is allowed.
#include "normjit/spec.h"

#include <string>

#include <doctest/doctest.h>

using namespace normjit;

TEST_CASE("a formula that is wrong gets its place and what is allowed") {
    const struct {
        const char* text;
        const char* error;
    } wrongs[] = {
        {"norm f(x[M,N]) -> y[M,N] { y = x * z } cols=8", "spec: z is missing"},
        {"norm f(x[M,N], r[N,M]) -> y[M,N] { y = x } cols=8", "spec: formula: line 1, column 17: [N,M] is none of"},
        {"norm f(x[M,N]) -> y[M,N] { y = row_mean(x) } cols=8", "spec: formula: line 1, column"},
        {"norm f(x[M,N]) -> y[M,N] { y = min(x, 1, 2) } cols=8",
         "spec: formula: line 1, column 32: min takes 2 operands"},
        {"norm f(x[M,N]) -> y[M] { y = row_sum(x, 1) } cols=8",
         "spec: formula: line 1, column 30: row_sum takes 1 operand"},
        {"norm f(x[M,N]) -> y[M,N] { y = x - max(x) } cols=8",
         "spec: formula: line 1, column 36: max takes 2 operands; row_max(a) is that of a row's elements"},
        {"norm f(x[M,N]) -> y[M,N] { y = x ** 2 } cols=8",
         "spec: formula: line 1, column 35: a value expected, not '*'; a ^ b is a raised to b"},
        {"norm f(x[M,N]) -> y[M,N] { y = sqr(x, 1) } cols=8",
         "spec: formula: line 1, column 32: unknown operation 'sqr'; allowed: abs clamp col_sum compare detach "
         "div_or_zero erf exp exp2 gelu gelu_tanh group_max like log log1p max max_abs min neighbour partner pow relu "
         "rotate_half round round_bf16 "
         "round_e8m0 round_f16 row_max row_mean row_min row_norm row_sum rsqrt sigmoid silu softplus sqrt sqrt_or_zero "
         "square tanh where; did you mean 'sqrt'?"},
        {"norm f(x[M,N], w[N]) -> y[M,N] { y = x / row_norm(w) } cols=8",
         "spec: formula: line 1, column 42: row_norm of [N]; must be of [M,N], such as like(a, x)"},
        {"norm f(x[M,N]) -> out[M,N] { out = x } cols=8",
         "spec: formula: line 1, column 19: 'out' is a key of specs; another name is needed, and none of "},
        {"norm f(x[M,N]) -> y[M,N] { y = ldexp(x, 2) } cols=8",
         "spec: formula: line 1, column 32: unknown operation 'ldexp'; allowed: abs"},
        {"norm f(x[M,N]) -> y[M,N] { y = x % 2 } cols=8",
         "spec: formula: line 1, column 34: + - * / ^ or the end of the statement expected, not '%'"},
        {"norm f(x[M,N]) -> y[M,N] { y = x \u00d7 2 } cols=8",
         "spec: formula: line 1, column 34: + - * / ^ or the end of the statement expected, not '\u00d7'"},
        {"norm f(x[M,N]) -> y[M,N] { y = x *\u00a0"
         "2 } cols=8",
         "spec: formula: line 1, column 35: a value expected, not 'U+00A0'"},
        {"norm f(x[M,N]) -> y[M,N] { y = x\u00a0* 2 } cols=8",
         "spec: formula: line 1, column 33: + - * / ^ or the end of the statement expected, not 'U+00A0'"},
        {"norm f(x[M,N]) -> y[M,N] { y = x * 0x10 } cols=8",
         "spec: formula: line 1, column 36: '0x10' is not a number; numbers are decimal: 16, 0.5, 1e-5"},
        {"norm f(x[M,N]) -> y[M,N] { y = where(x > 0, x, 0) } cols=8",
         "spec: formula: line 1, column 40: + - * / ^ or ',' expected, not '>'; compare(a, b) compares"},
        {"norm f(x[M,N]) -> y[M,N] { y = x <= 1 } cols=8",
         "spec: formula: line 1, column 34: + - * / ^ or the end of the statement expected, not '<'; compare(a, b)"},
        {"norm f(x[M,N]) -> y[M,N] { y = x - mean(x) } cols=8",
         "spec: formula: line 1, column 36: unknown operation 'mean'; allowed: abs clamp col_sum compare detach "
         "div_or_zero erf exp exp2 gelu gelu_tanh group_max like log log1p max max_abs min neighbour partner pow relu "
         "rotate_half round round_bf16 "
         "round_e8m0 round_f16 row_max row_mean row_min row_norm row_sum rsqrt sigmoid silu softplus sqrt sqrt_or_zero "
         "square tanh where; did you mean 'row_mean'?"},
        {"f(x[M,N]) -> y[M,N] { y = x * 2 } cols=8",
         "spec: a formula begins with the word norm and a name, not with 'f(x[M,N])'"},
        {"norm f(x[M,N]) -> y[M,N] { y = 2x } cols=8", "spec: formula: line 1, column 32: '2x' is not a number"},
        {"norm f(x[M,N]) -> y[M,N] { y = x ^ x } cols=8",
         "spec: formula: line 1, column 34: the exponent must be a number; exp(b * log(a)) is a to the power of a "
         "value"},
        {"norm f(x[M,N], k[]) -> y[M,N] { y = x ^ k } cols=8",
         "spec: formula: line 1, column 39: the exponent must be a number"},
        {"norm f(x[M,N]) -> y[M,N] { y = x ^ -2000 } cols=8",
         "spec: formula: line 1, column 34: the exponent is -2000; must be from -1024 to 1024"},
        {"norm f(x[M,N]) -> y[M,N] { y = x ^ (1 / 0) } cols=8",
         "spec: formula: line 1, column 34: the exponent is inf"},
        {"norm f(x[M,N]) -> y[M,N] { y = x ^ 2 ^ 3 } cols=8",
         "spec: formula: line 1, column 38: '^' twice needs parentheses: (a ^ b) ^ c or a ^ (b ^ c)"},
        {"norm f(x[M,N]) -> y[M,N] { y = x * z; z = 2 } cols=8 z=3",
         "spec: formula: line 1, column 39: 'z' is read before it has a value"},
        {"norm f(x[M,N]) -> y[M,N] { y = x + y } cols=8",
         "spec: formula: line 1, column 36: 'y' is read before it has a value"},
        {"norm f(x[M,N]) -> y[M,N] { y = alpha * 2 } cols=8 alpha=3",
         "spec: formula: line 1, column 28: the output 'y' is computed from numbers alone; declared is [M,N]"},
        {"norm f(x[M,N], g[N/0]) -> y[M,N] { y = x * g } cols=8",
         "spec: formula: line 1, column 20: a whole number of columns above 0, or the name of one, expected, not '0'"},
        {"norm f(x[M,N]) -> y[M,N] { y = pow(x, x) } cols=8",
         "spec: formula: line 1, column 32: the exponent must be a number"},
        {"norm f(x[M,N]) -> y[M,N] { y = clamp(x, 0) } cols=8",
         "spec: formula: line 1, column 32: clamp takes 3 operands"},
        {"norm f(x[M,N]) -> y[M,N] { y = x * row_min(row_mean(x)) } cols=8",
         "spec: formula: line 1, column 36: row_min of [M]; must be of [M,N]"},
        {"norm f(x[M,N], g[N]) -> y[M,N] { y = x + g } cols=8 g=none",
         "spec: g=none: only an input that the formula marks with ? may be missing"},
        {"norm f(x[M,N]) -> y[M,N] { y = x + 1 } cols=8 x=none",
         "spec: x=none: only an input that the formula marks with ? may be missing"},
        {"norm f(x[M,N], g[N]) -> y[M,N] { y = x + g } cols=8 x=f64 g=f32",
         "spec: g=f32: must be f64, as the matrices are"},
        {"norm f(x[M,N]) -> y[M,N] { inf = x; y = inf * 2 } cols=8",
         "spec: formula: line 1, column 28: 'inf' has a meaning in formulas"},
        {"norm f(\n x[M,N],\n z[N,M]\n) -> y[M,N] { y = x } cols=8",
         "spec: formula: line 3, column 3: [N,M] is none of"},
        {"norm f(x[M,N]) -> y[M,N] {\n y = (x * # a part\n 2\n  + z) } cols=8", "spec: z is missing"},
        {"norm f(x[M,N]) -> y[M,N] {\n y = min(x,\n  nosuch(2)) } cols=8",
         "spec: formula: line 3, column 3: unknown operation 'nosuch'"},
        {"norm f(x[M,N]) -> y[M,N] {\n y = (x\n u = 2 } cols=8",
         "spec: formula: line 3, column 2: ')', ';' or the end of the line expected, because '=' follows"},
        {"norm f(x[M,N]) -> y[M,N] { y = x * 2 rows=4 cols=8",
         "spec: formula: line 1, column 38: '}' expected, because the key 'rows' follows"},
        {"norm f(x[M,N] z[M,N]) -> y[M,N] { y = x * z } cols=8",
         "spec: formula: line 1, column 15: ',' or ')' expected, not 'z'"},
        {"norm f(x[M,N]) y[M,N] { y = x * 2 } cols=8", "spec: formula: line 1, column 16: '->' expected, not 'y'"},
        {"norm f(x[M,N]) => y[M,N] { y = x * 2 } cols=8", "spec: formula: line 1, column 16: '->' expected, not '='"},
        {"norm f(x[M,N]) -> y[M,N] r[M] { y = x * 2 } cols=8",
         "spec: formula: line 1, column 26: ',', '{' or the end of the line expected, not 'r'"},
        {"norm f(\n x[M,N]\n)\n-> y[M,N] { y = z } cols=8", "spec: z is missing"},
        {"norm f(x[M,N]) -> dx[M,N] { dx = x * 2 } cols=8",
         "spec: formula: 'dx' is a tensor of the formula, and would be a gradient's name as well: rename it, or add "
         "pass=forward"},
        {"norm f(x[M,N]) -> y[M,N] { y = x + 1; y = x } cols=8",
         "spec: formula: line 1, column 39: 'y' is defined twice"},
        {"norm f(x[M,N]) -> y[M,N] { z = x } cols=8", "spec: formula: line 1, column 19: the output 'y' has no value"},
        {"norm f(x[M,N]) -> y[M,N] {\n  r = row_mean(x)\n  y = r\n  z = x * 2\n} cols=8",
         "spec: formula: line 3, column 3: the output 'y' is [M]; declared is [M,N]"},
        {"norm f(x[M,N]) -> y[M,N] { y = row_mean(row_mean(x)) * x } cols=8",
         "spec: formula: line 1, column 32: row_mean of [M]; must be of [M,N]"},
        {"norm f(x[M,N]) -> y[M,N] { y = x * partner(row_mean(x)) } cols=8",
         "spec: formula: line 1, column 36: partner of [M]; must have columns"},
        {"norm f(x[M,N], a[]) -> y[M,N] { y = x * a } cols=8 out=dx,da accumulate=da",
         "spec: accumulate=da: only outputs [N], sums over the rows, can be added to; there are none"},
        {"norm f(x[M,N], g?[N]) -> y[M,N] { y = x * g * 2 } cols=8 out=dx,dg",
         "spec: out=dx,dg: dg needs g: add g=f32"},
        {"norm f(x[M,N], g?[N]) -> y[M,N] { y = x * g * 2 } cols=8 accumulate=dg",
         "spec: accumulate=dg: only outputs [N], sums over the rows, can be added to; there are none"},
        {"norm f(x[M,N], a[]) -> y[M,N] { y = x * a } cols=8 a=bf16",
         "spec: a=bf16: must be f32, the type of all arithmetic"},
        {"norm f(a[]) -> y[M,N] { y = a * 2 } pass=forward cols=8", "spec: formula: it has no input [M,N]"},
        {"norm f(x[M,N], a[]) -> s[N] { s = col_sum(x) * a } pass=forward cols=8",
         "spec: formula: line 1, column 46: col_sum is known after all rows; it goes with [N] and numbers, not with "
         "[M]"},
        {"norm f(x[M,N]) -> s[N], y[M,N] { s = col_sum(x); y = x * s } pass=forward cols=8",
         "spec: formula: line 1, column 56: col_sum is known after all rows; it goes with [N] and numbers, not with "
         "[M,N]"},
        {"norm f(x[M,N], g[N]) -> y[M,N], s[N] { y = x * 2; s = g * 2 } pass=forward cols=8",
         "spec: formula: line 1, column 51: the output 's' has no rows, so it must be computed from a col_sum"},
        {"norm f(x[M,N]) -> y[M,N], m[] { y = x * 2; m = 2 } pass=forward cols=8",
         "spec: formula: line 1, column 44: the output 'm' has no rows, so it must be computed from a max_abs"},
        {"norm f(x[M,N]) -> m[] { m = max_abs(x) * 2 } pass=forward cols=8",
         "spec: formula: line 1, column 40: max_abs is known after all rows; it can only be an output"},
        {"norm f(x[S,M,N], g[S,N]) -> s[N] { s = col_sum(x) * g } pass=forward slices=2 cols=8",
         "spec: formula: line 1, column 36: the output 's' differs among the slices; declare it as [S,N]"},
        {"norm f(x[M,N], r[M]) -> y[M,N] { y = x * neighbour(r) } cols=8",
         "spec: formula: line 1, column 42: neighbour of [M]; must have columns"},
        {"norm f(x[M,N]) -> y[M,N] { y = neighbour(x) * 2 } cols=7", "spec: cols=7: neighbour(), the other element of"},
        {"norm f(x[M,N]) -> y[M,N] { y = neighbour(x) * partner(x) } cols=6",
         "spec: cols=6: neighbour() beside partner() needs a multiple of 4"},
        {"norm f(x[M,N]) -> y[M,N] { y = partner(x) * 2 } cols=7", "spec: cols=7: partner(), the element half a row"},
        {"norm f(r[M], g[N]) -> y[M,N] { y = r * g } pass=forward cols=8",
         "spec: formula: no output depends on a matrix"},
        {"norm f(x[M,N]) -> y[M,N] { y = x * 2 } cols=8 out=none", "spec: out: no output is requested"},
        {"norm f(x[S,M,N], r[M]) -> y[S,M,N] { y = x * r } cols=8 slices=2",
         "spec: formula: line 1, column 18: 'r' has rows, so with slices it needs S as well; only [M,N] does "
         "not"},
        {"norm f(x[S,M,N]) -> y[M,N] { y = x * 2 } cols=8 slices=2",
         "spec: formula: line 1, column 21: 'y' has rows, so with slices it needs S as well"},
        {"norm f(x[S,M,N], z[M,N]) -> y[S,M,N] { y = x * z } cols=8 slices=2 out=dz",
         "spec: out=dz: 'dz' is not one of dx"},
        {"norm f(x[M,N], g[M,N/16]) -> y[M,N] { y = x * g } cols=16",
         "spec: formula: line 1, column 17: [M,N/16]: only inputs [N/16] and [S,N/16], and outputs [M,N/16] and "
         "[S,M,N/16], have an element for each run of columns"},
        {"norm f(x[M,N]) -> y[M,N] { y = x / group_max(x, 24) } pass=forward cols=48",
         "spec: formula: line 1, column 36: group_max: the columns of a group are 24; must be a power of two from 16 "
         "to "
         "256 that divides the columns of a row"},
        {"norm f(x[M,N]) -> y[M,N] { y = x / group_max(x, 32) } pass=forward cols=48",
         "spec: formula: line 1, column 36: group_max: the columns of a group are 32"},
        {"norm f(x[M,N]) -> y[M,N] { y = x / group_max(x, x) } pass=forward cols=48",
         "spec: formula: line 1, column 36: group_max: the columns of a group are not a number"},
        {"norm f(x[M,N]) -> y[M,N] { y = x * group_max(row_mean(x), 16) } pass=forward cols=16",
         "spec: formula: line 1, column 36: group_max of [M]; must be of [M,N]"},
        {"norm f(x[M,N]) -> y[M,N] { y = x / group_max(x, 16) } cols=16",
         "spec: formula: line 1, column 36: group_max has no derivative"},
        {"norm f(x[M,N]) -> y[M,N], g[M,N/16] { g = group_max(x, 16); y = x / g } cols=16",
         "spec: formula: g: an output [M,N/16] has no gradient; only pass=forward is supported"},
        {"norm f(x[M,N]) -> g[M,N/16] { g = x + group_max(x, 16) } pass=forward cols=32",
         "spec: formula: line 1, column 31: the output 'g' is not one for each 16 columns; such a value is computed "
         "from "
         "group_max(a, 16), [M] and numbers alone"},
        {"norm f(x[M,N]) -> g[M,N/32] { g = group_max(x, 16) } pass=forward cols=32",
         "spec: formula: line 1, column 31: the output 'g' is not one for each 32 columns"},
        {"norm f(x[M,N]) -> y[M,N] { g = group_max(x, 16); y = g + group_max(x, 32) } pass=forward cols=32",
         "spec: formula: line 1, column 58: group_max: the groups of a formula must have one size"},
        {"norm f(x[M,N]) -> y[M,N] { g = group_max(x, 16); y = group_max(x / g, 16) } pass=forward cols=32",
         "spec: formula: line 1, column 54: y: a group_max of what depends on a group_max is not supported"},
        {"norm f(x[M,N]) -> y[M,N] { g = group_max(x, 16); s = row_mean(x / g); y = x * s } pass=forward cols=32",
         "spec: formula: line 1, column 54: s: a reduction of what depends on a group_max is not supported"},
        {"norm f(x[M,N]) -> y[M,N], s[N] { y = x / group_max(x, 16); s = col_sum(x) } pass=forward cols=32",
         "spec: formula: line 1, column 64: s: cannot be combined with group_max; a launch computes one or the other"},
        {"norm f(x[M,N]) -> y[M,N] { y = partner(x) / group_max(x, 16) } pass=forward cols=32",
         "spec: formula: line 1, column 32: partner: cannot be combined with group_max"},
        {"norm f(x[M,N]) -> y[M,N] { y = neighbour(x) / group_max(x, 16) } pass=forward cols=32",
         "spec: formula: line 1, column 32: neighbour: cannot be combined with group_max"},
        {"norm f(x[M,N]) -> y[M,N], g[M,N/16] { g = group_max(x, 16); y = x / g } pass=forward cols=32 g=e4m3",
         "spec: g=e4m3: 8-bit types are for matrices"},
        {"norm f(x[M,N]) -> y[M,N] { y = x * 2 } pass=forward cols=32 y=e8m0",
         "spec: y=e8m0: e8m0 is for outputs [M,N/G] or [S,M,N/G]"},
    };
    for (const auto& [text, error] : wrongs) {
        const std::string message = parse_spec(text).status().message();
        INFO(std::string(text));
        CHECK_MESSAGE(message.starts_with(error), message);
    }
}
