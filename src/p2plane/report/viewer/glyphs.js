// Vectors, and the meshes of arrows. A mesh is a flat array: x y z and the normal of every corner of its triangles.

const add = (a, b) => a.map((value, i) => value + b[i]);
const scaled = (a, factor) => a.map((value) => value * factor);
const lerp = (a, b, share) => a.map((value, i) => value + share * (b[i] - value));
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const unit = (a) => scaled(a, 1 / Math.hypot(...a));

// Two directions that complete an axis to a right-handed frame.
function across(axis) {
  const smallest = axis.map(Math.abs).indexOf(Math.min(...axis.map(Math.abs)));
  const first = unit(cross(axis, [0, 1, 2].map((i) => Number(i === smallest))));
  return [first, cross(axis, first)];
}

// A skin over rings of points: each ring has a middle, two directions, a radius, and how much its normals lean forward.
function skin(rings, sides = 14) {
  const corner = (ring, k) => {
    const angle = (2 * Math.PI * k) / sides;
    const out = add(scaled(ring.first, Math.cos(angle)), scaled(ring.second, Math.sin(angle)));
    const lean = scaled(cross(ring.first, ring.second), ring.lean ?? 0);
    return [...add(ring.middle, scaled(out, ring.radius)), ...unit(add(out, lean))];
  };
  const mesh = [];
  for (let i = 0; i + 1 < rings.length; i++) {
    for (let k = 0; k < sides; k++) {
      const [a, b] = [corner(rings[i], k), corner(rings[i], k + 1)];
      const [c, d] = [corner(rings[i + 1], k), corner(rings[i + 1], k + 1)];
      mesh.push(...a, ...b, ...c, ...c, ...b, ...d);
    }
  }
  return mesh;
}

function head(base, direction, thickness) {
  const [first, second] = across(direction);
  const ring = (middle, radius, lean) => ({ middle, first, second, radius, lean });
  const tip = add(base, scaled(direction, 5 * thickness));
  return skin([ring(base, 0, -9), ring(base, 2.4 * thickness, -9), ring(base, 2.4 * thickness, 0.5), ring(tip, 0, 0.5)]);
}

// An arrow with two heads along an axis.
function straightArrow(point, axis, half, thickness) {
  const [first, second] = across(axis);
  const ends = [-1, 1].map((sign) => add(point, scaled(axis, sign * (half - 5 * thickness))));
  const rings = ends.map((middle) => ({ middle, first, second, radius: thickness }));
  return [...skin(rings), ...head(ends[0], scaled(axis, -1), thickness), ...head(ends[1], axis, thickness)];
}

const GAP = Math.PI / 4; // where a ring is open: between the axes, where other arrows lie

// An arrow with two heads most of the way around an axis.
function ringArrow(point, axis, radius, thickness) {
  const [first, second] = across(axis);
  const outward = (angle) => add(scaled(first, Math.cos(angle)), scaled(second, Math.sin(angle)));
  const at = (angle) => add(point, scaled(outward(angle), radius));
  const [begin, end, steps] = [GAP + 0.4, GAP + 2 * Math.PI - 0.4, 72];
  const rings = [];
  for (let i = 0; i <= steps; i++) {
    const angle = begin + ((end - begin) * i) / steps;
    rings.push({ middle: at(angle), first: axis, second: outward(angle), radius: thickness });
  }
  const tip = (angle, sign) => head(at(angle), scaled(cross(axis, outward(angle)), sign), thickness);
  return [...skin(rings), ...tip(begin, -1), ...tip(end, 1)];
}

// Both parts of a screw, and where its name goes.
function screwMesh(screw) {
  const [thickness, ring, reach] = [0.0065, 0.17, 0.34];
  const mesh = [];
  if (screw.turn > 0) mesh.push(...ringArrow(screw.point, screw.axis, ring, thickness));
  const half = Math.max(reach * Math.abs(screw.slide), 0.12);
  if (screw.slide !== 0) mesh.push(...straightArrow(screw.point, screw.axis, half, thickness));
  const [first, second] = across(screw.axis);
  const gap = add(scaled(first, Math.cos(GAP)), scaled(second, Math.sin(GAP)));
  const away = screw.turn > 0 ? scaled(gap, ring) : scaled(screw.axis, half);
  return { mesh, middle: screw.point, tip: add(screw.point, away) };
}
