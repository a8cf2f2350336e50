#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cooperative_groups.h>
namespace cg=cooperative_groups;
extern "C" __global__ void half_ops(__half2* a, __half* b, __nv_bfloat16* c, int n){
 int i=blockIdx.x*blockDim.x+threadIdx.x; if(i<n){ a[i]=__hfma2(a[i],a[i],a[i]); b[i]=hsqrt(b[i])+__float2half(1.5f); c[i]=__hadd(c[i],c[i]); b[i]=__hmax(b[i],__half(2)); } }
extern "C" __global__ void warp(int*o,float*f,unsigned long long*u){
 int i=threadIdx.x; unsigned m=__activemask(); o[i]=__shfl_xor_sync(m,o[i],1)+__ballot_sync(~0u,i&1)+__popc(__match_any_sync(~0u,i/3))+__reduce_add_sync(~0u,i);
 int p; o[i]+=__match_all_sync(~0u,i,&p); o[i]+=__any_sync(~0u,p);
 atomicAdd(f,1.f); atomicCAS(u,1ull,2ull); atomicMax(o,i); atomicExch(o+1,3); atomicAdd((double*)u,1.0); atomicInc((unsigned*)o,4);
 __threadfence(); __threadfence_block(); __threadfence_system(); __syncwarp(); __syncthreads_count(i); __nanosleep(10);
 auto g=cg::this_grid(); g.sync(); auto t=cg::tiled_partition<16>(cg::this_thread_block()); o[i]=t.shfl_down(o[i],2);
 o[2]=clock(); u[3]=clock64(); 
}
extern "C" __global__ void mathk(double*d,float*f,int n,long long*l){
 int i=threadIdx.x; d[i]=sin(d[i])+pow(d[i],2.5)+exp(d[i])+log(d[i])+fma(d[i],2.0,1.0)+d[i]/3.0+sqrt(d[i])+rsqrt(d[i]);
 f[i]=sinf(f[i])+__expf(f[i])+powf(f[i],3)+tanhf(f[i])+f[i]/7+sqrtf(f[i])+__fdividef(f[i],3)+rintf(f[i])+(float)(int)f[i]+fmodf(f[i],2)+erff(f[i])+__sinf(f[i])+__saturatef(f[i]);
 l[i]=l[i]/n+l[i]%7+(l[i]>>n)+__mulhi(n,i)+__mul64hi(l[i],n)+__brevll(l[i])+__ffsll(l[i])+__byte_perm(n,i,0x1234)+__funnelshift_l(n,i,3)+__dp4a(n,i,2)+__sad(n,i,1u)+abs(n)+min(n,i)+__umul24(n,i);
}
