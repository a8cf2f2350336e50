// Diffusion of heat on a square plate whose border keeps its temperature.
#pragma once

#include <vector>

struct Result {
    std::vector<float> plate; // size × size temperatures after the last step
    double change;            // sum of the squared changes of the last step
};

// Explicit steps of the five-point stencil on the GPU. Throws std::runtime_error with CUDA's words.
Result diffuse(const std::vector<float> &plate, int size, int steps, float rate);
