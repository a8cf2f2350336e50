"""What all backends share: SIMT stack, scheduling, barriers, clusters, programs, launches, counters."""
