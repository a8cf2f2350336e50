"""PTX to LLVM IR: one function for a program, one file for each kind of effect."""
