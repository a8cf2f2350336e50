"""Text of LLVM IR: values, constants, and layouts of the records that all of jit shares."""
