// heat --size N --steps N: diffuses on the GPU, and checks the result against the same steps on the host.
#include "diffusion.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

namespace {

std::vector<float> hot_corner(int size)
{
    std::vector<float> plate(size * size, 20.0f);
    for (int y = 0; y < size / 2; y++)
        for (int x = 0; x < size / 2; x++)
            plate[y * size + x] = 100.0f;
    return plate;
}

std::vector<double> on_host(const std::vector<float> &plate, int size, int steps, double rate)
{
    std::vector<double> now(plate.begin(), plate.end());
    for (int step = 0; step < steps; step++) {
        std::vector<double> next = now;
        for (int y = 1; y < size - 1; y++)
            for (int x = 1; x < size - 1; x++) {
                const int at = y * size + x;
                next[at] = now[at] + rate * (now[at - 1] + now[at + 1] + now[at - size] + now[at + size] - 4 * now[at]);
            }
        now = next;
    }
    return now;
}

int option(int argc, char **argv, const char *name, int otherwise)
{
    for (int i = 1; i + 1 < argc; i++)
        if (!std::strcmp(argv[i], name))
            return std::atoi(argv[i + 1]);
    return otherwise;
}

} // namespace

int main(int argc, char **argv)
{
    const int size = option(argc, argv, "--size", 64), steps = option(argc, argv, "--steps", 8);
    const float rate = 0.2f;
    if (size < 3 || steps < 1) {
        std::fprintf(stderr, "usage: heat [--size N] [--steps N], at least 3 and 1\n");
        return 2;
    }
    try {
        const std::vector<float> plate = hot_corner(size);
        const Result result = diffuse(plate, size, steps, rate);
        const std::vector<double> wanted = on_host(plate, size, steps, rate), before = on_host(plate, size, steps - 1, rate);
        double error = 0, change = 0;
        for (int i = 0; i < size * size; i++) {
            error = std::max(error, std::abs(result.plate[i] - wanted[i]));
            change += (wanted[i] - before[i]) * (wanted[i] - before[i]);
        }
        const bool right = error < 1e-3 && std::abs(result.change - change) < 1e-3 * change;
        std::printf("%d x %d, %d steps: largest error %.1e, change %.4f: %s\n", size, size, steps, error, result.change,
                    right ? "PASSED" : "FAILED");
        return right ? 0 : 1;
    } catch (const std::exception &problem) {
        std::fprintf(stderr, "heat: %s\n", problem.what());
        return 1;
    }
}
