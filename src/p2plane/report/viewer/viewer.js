// The page: reads the scene, draws it, and listens.

const scene = JSON.parse(document.getElementById("scene").textContent);
const byId = (id) => document.getElementById(id);
const canvas = byId("canvas");
const stage = byId("stage");
const COLORINGS = ["clouds", "distance", "own"];
const MOVE_SECONDS = 0.9;
const SLOW_FRAME = 50; // milliseconds
const MOST_PIXELS = 9e6;
const MARGIN = 130; // pixels that the controls above and below need together
const state = { share: 0, coloring: "clouds", held: 0, slow: false, dirty: true };

function unpack(text, kind) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new kind(bytes.buffer);
}

function load(renderer) {
  const [source, target] = scene.clouds;
  for (const cloud of scene.clouds) {
    cloud.places = unpack(cloud.positions, Int16Array);
    const normals = unpack(cloud.normals, Int8Array);
    const own = cloud.colors && [unpack(cloud.colors, Uint8Array), 3];
    const levels = cloud.distances && [unpack(cloud.distances, Uint8Array), 1];
    cloud.vertices = renderer.vertices([[cloud.places, 3], [normals, 3], own, levels]);
  }
  const map = new Uint8Array(scene.map.flat().map((value) => Math.round(255 * value)));
  const { gl } = renderer;
  const pairs = interleaved();
  const screws = scene.screws.map(screwMesh);
  const mesh = new Float32Array(screws.flatMap((screw) => screw.mesh));
  return {
    source,
    target,
    map: renderer.texture(scene.map.length, 1, gl.RGB8, map, gl.LINEAR),
    pairs: { vertices: renderer.vertices([[pairs.ends, 3], [pairs.weights, 1]]), count: pairs.weights.length },
    arrows: { vertices: renderer.vertices([[halves(mesh, 0), 3], [halves(mesh, 3), 3]]), count: mesh.length / 6 },
    screws,
  };
}

// Ends of the lines between partners, source and target in turn.
function interleaved() {
  const [source, target] = [scene.pairs.source, scene.pairs.target].map((text) => unpack(text, Float32Array));
  const weights = unpack(scene.pairs.weights, Uint8Array);
  const ends = new Float32Array(6 * weights.length);
  for (let i = 0; i < weights.length; i++) {
    ends.set(source.subarray(3 * i, 3 * i + 3), 6 * i);
    ends.set(target.subarray(3 * i, 3 * i + 3), 6 * i + 3);
  }
  return { ends, weights: Uint8Array.from({ length: 2 * weights.length }, (_, i) => weights[i >> 1]) };
}

// Positions (0) or normals (3) of a mesh.
function halves(mesh, offset) {
  return Float32Array.from({ length: mesh.length / 2 }, (_, i) => mesh[6 * Math.floor(i / 3) + offset + (i % 3)]);
}

// Column-major matrix of the source on its way: turned by a share of the angle, its middle on a straight line.
function sourceModel(share) {
  const angle = Math.hypot(...scene.motion.omega);
  const [x, y, z] = angle > 0 ? scaled(scene.motion.omega, 1 / angle) : [0, 0, 1];
  const [c, s] = [Math.cos(share * angle), Math.sin(share * angle)];
  const d = 1 - c;
  const turn = [
    c + d * x * x, d * x * y + s * z, d * x * z - s * y, 0,
    d * x * y - s * z, c + d * y * y, d * y * z + s * x, 0,
    d * x * z + s * y, d * y * z - s * x, c + d * z * z, 0,
  ];
  return [...turn, ...lerp(scene.motion.before, scene.motion.after, share), 1];
}

const IDENTITY = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1];

// Some points of a cloud where a model puts them.
function sample(cloud, model) {
  const points = [];
  for (let i = 0; i < cloud.count; i += Math.ceil(cloud.count / 1500)) {
    const place = [0, 1, 2].map((k) => (cloud.places[3 * i + k] / 32767) * cloud.extent[k]);
    const turned = (k) => model[k] * place[0] + model[4 + k] * place[1] + model[8 + k] * place[2];
    points.push([0, 1, 2].map((k) => turned(k) + model[12 + k]));
  }
  return points;
}

class Viewer {
  constructor() {
    this.renderer = new Renderer(canvas);
    this.camera = new Camera(scene.view);
    this.parts = load(this.renderer);
    this.labels = scene.screws.map((screw) => addLabel(screw.label));
    this.fit();
    new ResizeObserver(() => this.fit()).observe(stage);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.theme());
    this.theme();
  }

  theme() {
    const style = getComputedStyle(document.documentElement);
    [this.ink, this.open] = ["--ink", "--open"].map((name) => rgb(style.getPropertyValue(name).trim()));
    state.dirty = true;
  }

  fit() {
    const { source, target } = this.parts;
    const [width, height] = [Math.max(stage.clientWidth, 1), Math.max(stage.clientHeight, 1)];
    const free = Math.max(height - MARGIN, height / 2);
    this.aspect = width / height;
    const first = new Camera(this.camera.first);
    const seen = (share) => [...sample(source, sourceModel(share)), ...sample(target, IDENTITY)];
    this.frames = [0, 1].map((share) => first.fitting(seen(share), width / free));
    for (const frame of this.frames) frame.distance *= height / free;
    this.frame();
  }

  frame() {
    const [before, after] = this.frames;
    const [distance] = lerp([before.distance], [after.distance], state.share);
    this.camera.frame(lerp(before.middle, after.middle, state.share), distance);
    state.dirty = true;
  }

  draw() {
    const { renderer, camera, parts } = this;
    const dense = Math.max(devicePixelRatio, state.slow && isBusy() ? 1 : 2);
    const ratio = Math.min(dense, Math.sqrt(MOST_PIXELS / (stage.clientWidth * stage.clientHeight)));
    renderer.resize(...[stage.clientWidth, stage.clientHeight].map((side) => Math.max(1, Math.round(side * ratio))));
    renderer.begin(camera.matrices(this.aspect));
    const model = sourceModel(state.share);
    if (byId("show-target").checked) this.drawCloud(parts.target, IDENTITY, ratio);
    if (byId("show-source").checked) this.drawCloud(parts.source, model, ratio);
    renderer.finishClouds(1.2 * ratio);
    if (byId("show-pairs").checked) renderer.pairs(parts.pairs, { model, color: this.ink, strength: 0.4 });
    const opacity = byId("show-open").checked ? Math.max(0, 2 * state.share - 1) : 0;
    if (opacity > 0) renderer.arrows(parts.arrows, { color: this.open, opacity });
    this.overlay(opacity);
  }

  drawCloud(cloud, model, ratio) {
    const byDistance = state.coloring === "distance";
    const coloring = byDistance ? (cloud.distances ? 1 : 0) : state.coloring === "own" && cloud.colors ? 2 : 0;
    this.renderer.cloud(cloud, {
      model,
      map: this.parts.map,
      unmatched: scene.unmatched,
      plain: byDistance ? scene.unmatched : cloud.color,
      coloring,
      radius: cloud.radius * 2 ** Number(byId("size").value),
      behind: byDistance && cloud === this.parts.target ? 2 * this.parts.source.radius : 0,
      smallest: 1.6 * ratio * 2 ** (Number(byId("size").value) / 2),
    });
  }

  overlay(opacity) {
    this.labels.forEach((label, i) => {
      const { middle, tip } = this.parts.screws[i];
      placeLabel(label, this.camera.project(middle), this.camera.project(tip), opacity);
    });
    drawAxes(this.camera);
    drawScale((2 * HALF_HEIGHT * this.camera.distance * scene.scale) / stage.clientHeight);
  }
}

// Red, green, blue in 0..1 of "#rrggbb".
const rgb = (color) => [1, 3, 5].map((first) => parseInt(color.slice(first, first + 2), 16) / 255);

function addLabel(text) {
  const label = byId("labels").appendChild(document.createElement("span"));
  label.textContent = text;
  return label;
}

// Beyond the tip of an arrow, seen from its middle.
function placeLabel(label, middle, tip, opacity) {
  label.hidden = !middle || !tip || !label.textContent || opacity === 0;
  if (label.hidden) return;
  const way = [tip[0] - middle[0], tip[1] - middle[1]];
  const [right, up] = scaled(way, 1 / Math.max(Math.hypot(...way), 1e-6));
  const room = 6 + (Math.abs(right) * label.offsetWidth + Math.abs(up) * label.offsetHeight) / 2;
  const edge = 4 + label.offsetWidth / 2;
  const wish = stage.clientWidth / 2 + tip[0] * stage.clientHeight + right * room;
  const x = Math.max(edge, Math.min(stage.clientWidth - edge, wish));
  const y = (0.5 - tip[1]) * stage.clientHeight - up * room;
  label.style.opacity = opacity;
  label.style.transform = `translate(${x}px, ${y}px) translate(-50%, -50%)`;
}

function drawAxes(camera) {
  const axes = ["x", "y", "z"].map((name, k) => ({ name, tip: [0, 1, 2].map((i) => camera.rotation[3 * i + k]) }));
  axes.sort((a, b) => a.tip[2] - b.tip[2]);
  const marks = axes.map(({ name, tip: [x, y] }) => {
    const place = (reach) => [(reach * x).toFixed(1), (-reach * y).toFixed(1)];
    const [end, letter] = [place(30), place(42)];
    const line = `<line class="${name}" x2="${end[0]}" y2="${end[1]}"/>`;
    return `${line}<text class="${name}" x="${letter[0]}" y="${letter[1]}">${name}</text>`;
  });
  byId("axes").innerHTML = marks.join("");
}

// A bar of a round length, about 90 pixels long; it holds at the depth that the eye looks at.
function drawScale(perPixel) {
  const wanted = 90 * perPixel;
  const power = 10 ** Math.floor(Math.log10(wanted));
  const round = [5, 2, 1].find((digit) => digit * power <= wanted) * power;
  const [text, bar] = byId("scale").children;
  text.textContent = `${Number(round.toPrecision(2))} ${scene.unit}`.trim();
  bar.style.width = `${round / perPixel}px`;
}

// Move the source to before (0) or after (1), smoothly unless the reader prefers stillness.
function moveTo(viewer, goal) {
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  state.move = { goal, from: state.share, start: performance.now(), seconds: still ? 0 : MOVE_SECONDS };
  showGoal(goal);
}

function showGoal(goal) {
  byId("before").setAttribute("aria-pressed", String(goal === 0));
  byId("after").setAttribute("aria-pressed", String(goal === 1));
}

function setShare(viewer, share) {
  state.share = share;
  byId("share").value = share;
  viewer.frame();
}

function advance(viewer, now) {
  const { goal, from, start, seconds } = state.move;
  const time = seconds === 0 ? 1 : Math.min((now - start) / (1000 * seconds), 1);
  if (time === 1) state.move = null;
  setShare(viewer, time <= 0 ? from : from + (goal - from) * (time * time * (3 - 2 * time)));
}

const isBusy = () => Boolean(state.move) || state.held > 0;

// Draw when something changed; a slow machine draws coarser while things move.
function loop(viewer) {
  let last = 0;
  const tick = (now) => {
    if (state.move) advance(viewer, now);
    const busy = isBusy();
    if (busy && state.dirty && now - last > SLOW_FRAME && now - last < 1000) state.slow = true;
    if (state.wasBusy && !busy) state.dirty = true; // once more, and sharper
    if (state.dirty) {
      state.dirty = false;
      viewer.draw();
    }
    state.wasBusy = busy;
    last = now;
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
}

function fail(message) {
  byId("failure").textContent = message;
  byId("failure").hidden = false;
  for (const id of ["top", "motion", "axes", "scale"]) byId(id).setAttribute("hidden", "");
}

function start() {
  listenToCopy();
  let viewer;
  try {
    viewer = new Viewer();
  } catch (error) {
    fail(error.message);
    return;
  }
  const stopped = "The 3D view was stopped by the browser. Reload the page to see it again.";
  canvas.addEventListener("webglcontextlost", () => fail(stopped));
  prepareControls();
  listenToPointers(viewer);
  listenToKeys(viewer);
  listenToControls(viewer);
  loop(viewer);
  setTimeout(() => moveTo(viewer, 1), matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 700);
}

start();
