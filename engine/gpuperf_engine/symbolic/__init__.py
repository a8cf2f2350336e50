"""Counts without running every warp: warp classes on affine values, and slices of programs."""
