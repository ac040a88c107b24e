// Mouse, touch, keys and buttons.

function listenToPointers(viewer) {
  const { camera } = viewer;
  const pointers = new Map();
  const spread = () => {
    const [a, b] = [...pointers.values()];
    return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, apart: Math.hypot(a.x - b.x, a.y - b.y) };
  };
  const place = (x, y) => {
    const box = stage.getBoundingClientRect();
    return [(x - box.left - box.width / 2) / box.height, (box.top + box.height / 2 - y) / box.height];
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    state.held = pointers.size;
  });
  canvas.addEventListener("pointermove", (event) => {
    const last = pointers.get(event.pointerId);
    if (!last) return;
    const height = stage.clientHeight;
    const old = pointers.size === 2 ? spread() : null;
    const [dx, dy] = [(event.clientX - last.x) / height, (event.clientY - last.y) / height];
    pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    if (old) {
      const now = spread();
      camera.shift((now.x - old.x) / height, (old.y - now.y) / height);
      camera.approach(old.apart / Math.max(now.apart, 1), ...place(now.x, now.y));
    } else if (pointers.size === 1 && (event.buttons & 6 || event.shiftKey)) camera.shift(dx, -dy);
    else if (pointers.size === 1) camera.orbit(4 * dx, 4 * dy);
    viewer.frame();
  });
  const release = (event) => {
    pointers.delete(event.pointerId);
    state.held = pointers.size;
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 30 : 1;
    const turn = Math.max(-300, Math.min(300, lines * event.deltaY));
    camera.approach(Math.exp(0.0012 * turn), ...place(event.clientX, event.clientY));
    viewer.frame();
  }, { passive: false });
}

function listenToKeys(viewer) {
  const { camera } = viewer;
  const actions = {
    ArrowLeft: () => camera.orbit(-0.1, 0),
    ArrowRight: () => camera.orbit(0.1, 0),
    ArrowUp: () => camera.orbit(0, -0.1),
    ArrowDown: () => camera.orbit(0, 0.1),
    "+": () => camera.approach(0.9),
    "-": () => camera.approach(1 / 0.9),
    r: () => byId("reset").click(),
    " ": () => moveTo(viewer, byId("after").getAttribute("aria-pressed") === "true" ? 0 : 1),
  };
  document.addEventListener("keydown", (event) => {
    const elsewhere = event.target !== canvas && event.target !== document.body;
    if (elsewhere || event.ctrlKey || event.metaKey || event.altKey || !actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
    viewer.frame();
  });
}

function listenToControls(viewer) {
  const reset = () => {
    viewer.camera.reset(scene.view);
    viewer.fit();
  };
  byId("reset").addEventListener("click", reset);
  canvas.addEventListener("dblclick", reset);
  byId("axes").addEventListener("pointerdown", (event) => {
    const axis = ["x", "y", "z"].map((name) => Number(event.target.classList.contains(name)));
    if (!axis.includes(1)) return;
    viewer.camera.upright(axis);
    viewer.fit();
  });
  byId("before").addEventListener("click", () => moveTo(viewer, 0));
  byId("after").addEventListener("click", () => moveTo(viewer, 1));
  byId("share").addEventListener("input", (event) => {
    state.move = null;
    setShare(viewer, Number(event.target.value));
    showGoal(state.share);
  });
  for (const id of ["size", "show-source", "show-target", "show-pairs", "show-open"]) {
    byId(id).addEventListener("input", () => (state.dirty = true));
  }
  const buttons = document.querySelectorAll("[data-coloring]");
  for (const button of buttons) {
    button.addEventListener("click", () => {
      state.coloring = button.dataset.coloring;
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      byId("legend").hidden = state.coloring !== "distance";
      state.dirty = true;
    });
  }
}

// Leave out the controls that have nothing to control, and fill in the legend.
function prepareControls() {
  const hide = (element) => (element.hidden = true);
  if (!scene.clouds.some((cloud) => cloud.colors)) hide(document.querySelector('[data-coloring="own"]'));
  if (scene.pairs.total === 0) {
    hide(document.querySelector('[data-coloring="distance"]'));
    hide(byId("show-pairs").parentElement);
  }
  if (scene.screws.length === 0) hide(byId("show-open").parentElement);
  const stops = scene.map.map((color) => `rgb(${color.map((value) => Math.round(255 * value)).join(" ")})`);
  byId("bar").style.background = `linear-gradient(to right, ${stops.join(", ")})`;
  byId("limit").textContent = `≥ ${scene.limit} ${scene.unit}`.trim();
}

function listenToCopy() {
  byId("copy").addEventListener("click", async () => {
    const text = byId("copy").dataset.copy;
    try {
      await navigator.clipboard.writeText(text);
      byId("copy").textContent = "Copied";
    } catch {
      byId("copy").textContent = "Select and copy by hand";
      getSelection().selectAllChildren(document.querySelector(".matrix"));
    }
    setTimeout(() => (byId("copy").textContent = "Copy"), 1500);
  });
}
