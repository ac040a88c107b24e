// The eye: a rotation (rows right, up, back), what it looks at, and from how far.

const HALF_HEIGHT = Math.tan((15 * Math.PI) / 180); // of the picture at distance one

class Camera {
  constructor(rotation) {
    this.reset(rotation);
  }

  reset(rotation) {
    this.first = rotation;
    this.rotation = rotation.slice();
    this.pan = [0, 0, 0];
    this.zoom = 1;
  }

  row(i) {
    return this.rotation.slice(3 * i, 3 * i + 3);
  }

  // Where a point lies for the eye: right, up, back.
  seen(point) {
    return [0, 1, 2].map((i) => this.row(i).reduce((sum, value, k) => sum + value * point[k], 0));
  }

  // Turn the scene by angles about the directions up and right of the picture.
  orbit(aboutUp, aboutRight) {
    const turned = (c, s, a, b) => [lerpRow(a, b, c, s), lerpRow(b, a, c, -s)];
    let [right, up, back] = [this.row(0), this.row(1), this.row(2)];
    [right, back] = turned(Math.cos(aboutUp), Math.sin(aboutUp), right, back);
    [up, back] = turned(Math.cos(aboutRight), -Math.sin(aboutRight), up, back);
    right = unit(right);
    back = unit(cross(right, up));
    up = cross(back, right);
    this.rotation = [...right, ...up, ...back];
  }

  // Put an axis upright and look down on it a little; turn it over if it is upright already.
  upright(axis) {
    const height = (25 * Math.PI) / 180;
    const along = this.seen(axis);
    const up = along[1] > 0.85 && Math.abs(along[0]) < 0.05 ? scaled(axis, -1) : axis;
    const back = this.row(2);
    const level = add(back, scaled(up, -back.reduce((sum, value, k) => sum + value * up[k], 0)));
    const ahead = Math.hypot(...level) > 0.1 ? unit(level) : across(up)[0];
    const toEye = add(scaled(ahead, Math.cos(height)), scaled(up, Math.sin(height)));
    const right = cross(up, ahead);
    this.reset([...right, ...cross(toEye, right), ...toEye]);
  }

  // Move the scene by parts of the picture's height.
  shift(right, up) {
    const step = 2 * HALF_HEIGHT * this.distance;
    const move = add(scaled(this.row(0), -right * step), scaled(this.row(1), -up * step));
    this.pan = add(this.pan, move);
  }

  // Come closer by a factor, towards a place that is so many picture heights right of and above the middle.
  approach(factor, right = 0, up = 0) {
    const zoom = Math.min(Math.max(this.zoom * factor, 0.01), 20);
    const change = zoom / this.zoom - 1;
    this.shift(right * change, up * change);
    this.zoom = zoom;
  }

  // Look at the middle of what is to be seen, unless the user chose otherwise.
  frame(middle, distance) {
    this.middle = add(middle, this.pan);
    this.distance = distance * this.zoom;
  }

  // Middle and distance from which all points fit into the picture, but for a stray percent.
  fitting(points, aspect) {
    if (points.length === 0) return { middle: [0, 0, 0], distance: 1 };
    const seen = points.map((point) => this.seen(point));
    const sides = [0, 1, 2].map((i) => seen.map((point) => point[i]).sort((a, b) => a - b));
    const stray = Math.floor(0.01 * points.length);
    const half = sides.map((values) => (values[values.length - 1 - stray] + values[stray]) / 2);
    const needed = seen.map(([x, y, z]) => {
      const room = Math.max(Math.abs(x - half[0]) / aspect, Math.abs(y - half[1])) / HALF_HEIGHT;
      return room + z - half[2];
    }).sort((a, b) => a - b);
    const middle = [0, 1, 2].map((k) => half.reduce((sum, value, i) => sum + value * this.rotation[3 * i + k], 0));
    const [all, most] = [needed[needed.length - 1], needed[needed.length - 1 - stray]];
    return { middle, distance: 1.08 * Math.max(all < 1.3 * most ? all : most, 0.05) };
  }

  // Column-major matrices for the shaders.
  matrices(aspect) {
    const r = this.rotation;
    const [x, y, z] = this.seen(this.middle);
    const view = [r[0], r[3], r[6], 0, r[1], r[4], r[7], 0, r[2], r[5], r[8], 0, -x, -y, -z - this.distance, 1];
    const [near, far] = [Math.max(0.02 * this.distance, this.distance - 6), this.distance + 6];
    const focal = 1 / HALF_HEIGHT;
    const [c, d] = [(near + far) / (near - far), (2 * near * far) / (near - far)];
    const projection = [focal / aspect, 0, 0, 0, 0, focal, 0, 0, 0, 0, c, -1, 0, 0, d, 0];
    return { view, projection };
  }

  // Place of a point in the picture, in parts of its height from the middle; null behind the eye.
  project(point) {
    const [x, y, z] = this.seen(add(point, scaled(this.middle, -1)));
    const depth = this.distance - z;
    return depth <= 0 ? null : [x / (2 * HALF_HEIGHT * depth), y / (2 * HALF_HEIGHT * depth)];
  }
}

const lerpRow = (a, b, c, s) => a.map((value, i) => c * value + s * b[i]);
