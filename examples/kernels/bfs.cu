// Breadth-first search on a graph in compressed sparse rows: the neighbours of v are
// neighbours[offsets[v]] ... neighbours[offsets[v + 1] - 1]. distance is -1 where not reached. One level per launch.

// Topology driven, two launches per level. The threads of the frontier mark their unvisited neighbours; marks and
// distances are the same whoever writes them, so results and instruction counts do not depend on the order.
extern "C" __global__ void bfs_expand(int vertices, int level, const int* __restrict__ offsets,
                                      const int* __restrict__ neighbours, const int* __restrict__ distance,
                                      unsigned char* __restrict__ marked)
{
    const int v = blockIdx.x * blockDim.x + threadIdx.x;
    if (v >= vertices || distance[v] != level)
        return;
    for (int e = offsets[v]; e < offsets[v + 1]; ++e)
        if (distance[neighbours[e]] < 0)
            marked[neighbours[e]] = 1;
}

// Takes the marked vertices into the next level; *found becomes 1 if there was any.
extern "C" __global__ void bfs_commit(int vertices, int level, int* __restrict__ distance,
                                      unsigned char* __restrict__ marked, int* __restrict__ found)
{
    const int v = blockIdx.x * blockDim.x + threadIdx.x;
    if (v >= vertices || marked[v] == 0)
        return;
    marked[v] = 0;
    distance[v] = level + 1;
    *found = 1;
}

// Work driven, one launch per level. sizes[level] vertices wait in frontier; atomics decide who appends a vertex to
// next, so the order in the queue, and with it the divergence of the next level, follows the schedule.
extern "C" __global__ void bfs_frontier(int level, const int* __restrict__ offsets, const int* __restrict__ neighbours,
                                        int* __restrict__ distance, const int* __restrict__ frontier,
                                        int* __restrict__ next, int* __restrict__ sizes)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= sizes[level])
        return;
    const int v = frontier[i];
    for (int e = offsets[v]; e < offsets[v + 1]; ++e) {
        const int w = neighbours[e];
        if (atomicCAS(&distance[w], -1, level + 1) == -1)
            next[atomicAdd(&sizes[level + 1], 1)] = w;
    }
}
