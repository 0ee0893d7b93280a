"""A surface and a strength -> its vertices, moved so that bumps are gone and limbs as thick as before. Knows no field.

Taubin's filter (1995, A signal processing approach to fair surface design), as trimesh has it, takes away what is
narrow and keeps what is broad, but thins limbs of a few cells, in the end to threads. So what it takes off a
neighbourhood as a whole, along the normals, is put back: of a bump as much goes as comes, of a limb all goes inwards.
"""

from __future__ import annotations

import numpy as np
import trimesh
from scipy.sparse.linalg import aslinearoperator


def smooth(vertices: np.ndarray, faces: np.ndarray, strength: int) -> np.ndarray:
    """vertices (V, 3), each of a face, and faces (F, 3), edges of about one length -> (V, 3) float64.

    strength: 1 to 10; the width of the bumps that go grows with it. The mean of a vertex's neighbours, taken r times,
    is that of a neighbourhood as wide as the root of r; r is even, or what alternates from vertex to vertex grows.
    """
    body = trimesh.Trimesh(vertices, faces, process=False)
    before, normals = np.array(body.vertices), np.array(body.vertex_normals)
    neighbours = aslinearoperator(trimesh.smoothing.laplacian_calculation(body).tocsr())
    trimesh.smoothing.filter_taubin(body, 1.0, 1.0, 2, neighbours ** (2 + 2 * (strength**2 // 4)))
    after = np.array(body.vertices)
    near = neighbours ** (2 + 2 * (strength**2 // 16))  # narrower, or the ends of posts, which get round, would bulge
    lost = near @ ((before - after) * normals).sum(1)
    return after + normals * lost[:, None]
