"""Textures and surfaces: the texels at coordinates, and the values of texels.

Sources: CUDA C++ Programming Guide, "Texture Fetching" (nearest and linear filtering, address modes) and "Surface Functions"; PTX
manual, "Texture Instructions" and "Surface Instructions". They leave the following open, which is decided here:

- the 8 bits of fraction of a filter weight are rounded to nearest even; the weighted sum is computed in double precision, first along
  x, and rounded once to f32;
- address modes act on texels, so that filtering at an edge takes the edge texel twice (clamp), the opposite one (wrap), or the
  border;
- components that a format lacks are 0, the fourth 1;
- values stored by ``sust.p`` are clamped to the range of the format;
- filtering stays within the face of a cube map, to which address modes apply as in any layer;
- the nearest level of detail is the lower one of two at equal distance; between two levels the weight has 8 bits of fraction too, and
  the value of each level is first rounded to f32.

The handle of an image is the address of a row of 32-bit words that describes it (``image.FIELDS``); semantics are written on the
values of all lanes, which may have different images.
"""
