#include <cstdio>
#include <cassert>
struct P { float x[5]; char c; double d; };
struct Shape { __device__ virtual float area(float) const = 0; };
struct Sq : Shape { float s; __device__ Sq(float a): s(a) {} __device__ float area(float k) const override { return s*s*k; } };
struct Ci : Shape { float r; __device__ Ci(float a): r(a) {} __device__ float area(float k) const override { return r*r*k*3.f; } };
typedef int (*fn)(int,int);
__device__ __noinline__ int add(int a,int b){return a+b;}
__device__ __noinline__ int mul(int a,int b){return a*b;}
__device__ __noinline__ P mk(P a, int b){ a.x[b&3]=b; a.d+=b; return a;}
__device__ fn table[2] = {add, mul};
__device__ int gv[3][4] = {{1,2},{3,4,5,6}};
__device__ int* gp = &gv[1][2];
__constant__ float coef[8] = {1.5f,-2,3};
__constant__ double dd[2] = {1e300, -0.0};
__managed__ int mg = 5;
__device__ volatile unsigned char ch[6] = "hello";
__device__ const char* strs[3] = {"alpha","beta","c"};
__device__ __noinline__ int fact(int n){ return n<=1?1:n*fact(n-1);}
extern "C" __global__ void __launch_bounds__(256,2) calls(int*o, P p, int n, Shape** sh){
  extern __shared__ float dyn[];
  __shared__ double tile[4][33];
  int i=threadIdx.x; 
  P q = mk(p,i);
  o[i] = table[n&1](i,n) + gp[0] + (int)coef[i&7] + mg + ch[i%5] + fact(n&7) + strs[i%3][0];
  tile[i&3][i&31]=q.d; dyn[i]=q.x[i%5]; __syncthreads();
  if (i==3) { printf("hi %d %f\n", i, q.d); assert(n>0); }
  Sq s(2); o[i]+= sh ? sh[0]->area(n) : s.area(3); o[i]+=dyn[n]+tile[0][n&31]+dd[n&1];
  void* m = malloc(16); free(m);
}
extern "C" __global__ void sw(int*o,int n){
  int i=threadIdx.x,r;
  switch(o[i]){case 0:r=n*3;o[1]=2;break;case 1:r=n^77;o[5]=1;break;case 2:r=o[n];break;case 3:r=n/7;o[4]=n;break;case 4:r=n%11;o[6]=0;break;case 5: r=__popc(n);o[7]=i;break;case 6:r=__clz(n);break;default:r=0;}
  asm volatile("{ .reg .pred p; .reg .b32 t; setp.eq.s32 p, %0, 3; @p add.s32 t, %0, 1; @!p mov.b32 t, 0; mov.b32 %0, t; }" : "+r"(r));
  asm volatile("{\n .reg .u64 t1;\n cvta.to.shared.u64 t1, %0;\n }" :: "l"(o));
  o[i]=r;
}
