// NVIDIA's tensor cores by inline PTX; no other file holds assembly. One instruction multiplies, in
// a warp of 32 work-items, a 16x16 tile A of bf16 by a 16x8 tile B and adds to a 16x8 tile C of
// float32. With g = lane/4 and t = lane%4 a lane holds (PTX ISA, mma.m16n8k16):
//   A: x (g, 2t..2t+1), y (g+8, 2t..), z (g, 2t+8..), w (g+8, 2t+8..), two columns a word
//   B: x rows 2t..2t+1, y rows 2t+8..2t+9 of column g
//   C: x, y (g, 2t..2t+1), z, w (g+8, 2t..)
// so the C tiles of two neighbouring blocks of columns, packed, are the A tile of a next layer.

// c += a*b on one tile.
inline void mma_bf16(float4 *c, const uint4 a, const uint2 b)
{
    float c0 = c->x, c1 = c->y, c2 = c->z, c3 = c->w;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
    *c = (float4)(c0, c1, c2, c3);
}

// Two floats as bf16, rounded to nearest even, `low` in the low half.
inline uint pack_bf16(const float low, const float high)
{
    uint packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// The same of max(x, 0).
inline uint pack_relu_bf16(const float low, const float high)
{
    uint packed;
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// 2^x, two units in the last place off at most; 0 below 2^-126.
inline float exp2_fast(const float x)
{
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

inline float low_bf16(const uint packed) { return as_float(packed << 16); }
inline float high_bf16(const uint packed) { return as_float(packed & 0xffff0000u); }

// The value of another lane of the warp, and of the lane whose number differs in the bits of mask.
inline uint shuffle(const uint value, const uint lane)
{
    uint found;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(found) : "r"(value), "r"(lane));
    return found;
}

inline float butterfly(const float value, const uint mask)
{
    float found;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(found) : "f"(value), "r"(mask));
    return found;
}

// An 8x8 tile of bf16 across the lanes, turned.
inline uint turn_8x8(const uint rows)
{
    uint columns;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(columns) : "r"(rows));
    return columns;
}
