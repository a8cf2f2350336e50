// Escape times of z -> z^2 + c over a rectangle of the complex plane: neighbouring pixels leave the loop at very
// different times.

struct View {
    float left, top;      // c of pixel (0, 0)
    float dx, dy;         // step per pixel
    int width, height;    // pixels
    int max_iterations;   // given to points that do not escape
};

extern "C" __global__ void mandelbrot(View view, int* __restrict__ iterations)
{
    const int px = blockIdx.x * blockDim.x + threadIdx.x;
    const int py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= view.width || py >= view.height)
        return;

    const float cx = fmaf(static_cast<float>(px), view.dx, view.left);
    const float cy = fmaf(static_cast<float>(py), view.dy, view.top);
    float x = 0.0f;
    float y = 0.0f;
    int i = 0;
    // Escape times are chaotic in the last bit: contraction is spelled out, not left to the compiler.
    while (i < view.max_iterations) {
        const float xx = __fmul_rn(x, x);
        const float yy = __fmul_rn(y, y);
        if (__fadd_rn(xx, yy) > 4.0f)
            break;
        y = fmaf(__fadd_rn(x, x), y, cy);
        x = __fadd_rn(__fsub_rn(xx, yy), cx);
        ++i;
    }
    iterations[py * view.width + px] = i;
}
