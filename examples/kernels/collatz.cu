// Steps of the Collatz map until 1 is reached. Trip counts differ from lane to lane: a study in divergence.

// length[i] is the number of steps from i + 1. In 32 bits no start below 159 487 leaves the range.
extern "C" __global__ void collatz(unsigned n, unsigned* __restrict__ length)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;

    unsigned value = i + 1;
    unsigned steps = 0;
    while (value != 1) {
        value = value % 2 == 0 ? value / 2 : 3 * value + 1;
        ++steps;
    }
    length[i] = steps;
}
