"""Textures and surfaces: how coordinates become texels, and texels values.

Sources: CUDA C++ Programming Guide, "Texture Fetching" (nearest and linear filtering, address modes) and "Surface Functions"; PTX
manual, "Texture Instructions" and "Surface Instructions". What they leave open is decided here:

- the 8 bits of fraction of a filter weight are rounded to nearest even; the weighted sum is made in double precision, first along x,
  and rounded once to f32;
- address modes act on texels, so that filtering at an edge takes the edge texel twice (clamp), the opposite one (wrap), or the border;
- components that a format lacks are 0, the fourth 1;
- what ``sust.p`` stores is limited to the range of the format;
- filtering stays within the face of a cube map, where address modes hold as in any layer;
- the nearest level of detail is the lower one of two that are equally far; between two levels the weight has 8 bits of fraction too,
  and each level's value is rounded to f32 before.

An image is described by a row of 32-bit words (``image.FIELDS``) that its handle leads to; semantics are written on the values of
all lanes, which may have different images.
"""
