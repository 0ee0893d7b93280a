// Ctrl or Cmd + Enter generates, Escape stops. The buttons do the work, so that a disabled one ignores its key.
const press = (id) => document.getElementById(id)?.click();
document.addEventListener("keydown", (event) => {
  if (event.isComposing) return;  // Enter and Escape belong to the input method
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    press("generate");
  } else if (event.key === "Escape") {
    press("stop");
  }
}, true);

// What stands in the prompt box outlives a reload, in this tab alone; a prompt that comes with the link goes first.
const DRAFT = "cube3d.draft";
const box = () => document.querySelector("#prompt textarea");
try {
  const storage = sessionStorage;
  addEventListener("pagehide", () => {
    try {
      storage.setItem(DRAFT, box().value);
    } catch {}  // it may have no room
  });
  const draft = storage.getItem(DRAFT);
  if (draft && box() && !box().value && !new URLSearchParams(location.search).has("prompt")) {
    box().value = draft;
    box().dispatchEvent(new Event("input", { bubbles: true }));
  }
} catch {}  // browsers may forbid a page inside another one to keep anything

// Generate is switched off while it runs, Stop is gone afterwards: a keyboard that stood on one goes to the other.
const OTHER = { generate: "stop", stop: "generate" };
let stood;
document.addEventListener("pointerdown", () => { stood = null; }, true);
document.addEventListener("focusin", ({ target }) => { stood = target.matches(":focus-visible") ? target.id : null; });
new MutationObserver(() => {
  if (document.activeElement === document.body && OTHER[stood]) document.getElementById(OTHER[stood])?.focus();
}).observe(document.body, { childList: true, subtree: true, attributeFilter: ["disabled", "class"] });

// The viewer's canvas comes nameless and first in the tab order.
new MutationObserver(() => {
  const canvas = document.querySelector("#viewer canvas:not([role])");
  if (!canvas) return;
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", document.querySelector("#viewer label").innerText.trim());
  canvas.setAttribute("aria-describedby", "summary");
}).observe(document.body, { childList: true, subtree: true });

// Gradio's viewer (Babylon's) stands 1.1 diagonals away whatever the shape of its canvas, which cuts off what is tall, and
// on a narrow canvas what is wide. Here it goes as far as the upright cylinder around the object fits with a margin:
// so far that the object can be turned, too.
const ELEVATION = (18 * Math.PI) / 180;  // of the camera, as layout.CAMERA has it
const MARGIN = 1.1;
const distance = ([x, y, z], fov, aspect) => {
  const [sin, cos, up] = [Math.sin(ELEVATION), Math.cos(ELEVATION), 1 / Math.tan(fov / 2)];
  const [radius, half] = [Math.hypot(x, z) / 2, y / 2];
  const sides = radius * Math.hypot(cos, up / aspect) + half * sin;
  const top = radius * Math.abs(cos - sin * up) + half * (sin + cos * up);
  const bottom = radius * (cos + sin * up) + half * Math.abs(sin - cos * up);
  return MARGIN * Math.max(sides, top, bottom);
};
const frame = ({ Viewer }) => {
  const configure = Viewer.prototype._getCameraConfig;
  if (!configure) return;  // another gradio's viewer frames as it likes
  Viewer.prototype._getCameraConfig = function (models) {
    const config = configure.call(this, models);
    const bounds = this._getWorldBounds(models);
    const [camera, engine] = [this._camera, this._engine];
    const away = () => distance(bounds.size, camera.fov, engine.getAspectRatio(camera));
    engine.onResizeObservable.remove(this.framed);
    if (!bounds) return config;
    let before = config.radius = away();
    this.framed = engine.onResizeObservable.add(() => {
      camera.radius *= away() / before;
      before = away();
    });
    return config;
  };
};
const viewerCode = () => document.querySelector("link[rel=modulepreload][href*='/lib-']");
const loaded = new MutationObserver(() => {
  if (!viewerCode()) return;
  loaded.disconnect();
  import(viewerCode().href).then(frame);  // before its viewer has fetched anything to frame
});
loaded.observe(document.head, { childList: true });
loaded.observe(document.body, { childList: true, subtree: true });

// The picked one of several variations.
document.addEventListener("click", (event) => {
  const picked = event.target.closest(".pick button");
  if (!picked) return;
  for (const button of picked.closest(".pick").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", button === picked);
  }
});

// A print gets the size in the field beside its links; a size out of bounds changes nothing.
document.addEventListener("input", ({ target }) => {
  if (!target.matches("[data-print]") || !target.checkValidity()) return;
  for (const link of target.closest(".card").querySelectorAll("[data-sized]")) link.search = `?mm=${target.value}`;
});

// Seconds go on between the server's messages, which a long stage does not send.
setInterval(() => {
  for (const clock of document.querySelectorAll(".elapsed")) {
    const now = performance.now();
    if (clock.sent !== clock.dataset.seconds) [clock.sent, clock.since] = [clock.dataset.seconds, now];
    const seconds = (Number(clock.sent) + (now - clock.since) / 1000).toFixed(1);
    const mark = clock.textContent.includes(",") ? "," : ".";
    clock.textContent = clock.textContent.replace(/[\d.,]+/, seconds.replace(".", mark));
  }
}, 100);

// Gradio starts in English for a language that it does not speak itself, though the page's own sentences are there.
const language = navigator.language.split("-")[0];
const core = performance.getEntriesByType("resource").find(({ name }) => /\/core-[\w-]+\.js$/.test(name));
if (core && window.gradio_config?.i18n_translations?.[language] && document.documentElement.lang !== language) {
  import(core.name).then(({ changeLocale }) => changeLocale(language));
}
