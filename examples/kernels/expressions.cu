// Evaluates a population of expressions in postfix form, one expression per thread, as in genetic programming: every
// lane follows its own code, and keeps its stack in local memory.

struct Instruction {
    int operation;
    float constant;  // of operation 0
};

constexpr int kStack = 8;

// Expression i is code[starts[i]] ... code[starts[i + 1] - 1]. It never needs more than kStack values at once and leaves
// one. An unknown operation leaves the stack as it is.
extern "C" __global__ void evaluate(int expressions, const int* __restrict__ starts,
                                    const Instruction* __restrict__ code, float x, float* __restrict__ values)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= expressions)
        return;

    float stack[kStack];
    int top = -1;
    for (int pc = starts[i]; pc < starts[i + 1]; ++pc) {
        const Instruction instruction = code[pc];
        switch (instruction.operation) {
        case 0:
            stack[++top] = instruction.constant;
            break;
        case 1:
            stack[++top] = x;
            break;
        case 2:
            --top;
            stack[top] = stack[top] + stack[top + 1];
            break;
        case 3:
            --top;
            stack[top] = stack[top] - stack[top + 1];
            break;
        case 4:
            --top;
            stack[top] = stack[top] * stack[top + 1];
            break;
        case 5:
            --top;
            stack[top] = stack[top] / stack[top + 1];
            break;
        case 6:
            stack[top] = -stack[top];
            break;
        case 7:
            stack[top] = fabsf(stack[top]);
            break;
        case 8:
            stack[top] = sqrtf(fabsf(stack[top]));
            break;
        }
    }
    values[i] = stack[top];
}
