// The page of one object: it turns by itself, its links can be copied, and its maker can delete it.

const stage = document.querySelector("#stage");
const viewer = stage.querySelector("model-viewer");
viewer.toggleAttribute("auto-rotate", !matchMedia("(prefers-reduced-motion: reduce)").matches);
if (document.createElement("canvas").getContext("webgl2")) {
  viewer.addEventListener("load", () => (stage.querySelector("img").hidden = true));
  import(`./model-viewer.min.js${new URL(import.meta.url).search}`);
} else {
  viewer.remove();  // the picture stays
}

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = Object.assign(document.createElement("textarea"), { value: text });  // browsers keep it from plain http
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

for (const button of document.querySelectorAll("[data-copy]")) {
  const label = button.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await copy(button.dataset.copy);
    button.textContent = button.dataset.copied;
    setTimeout(() => (button.textContent = label), 2000);
  });
}

// A print gets the size in the field beside its links; a size out of bounds changes nothing.
for (const field of document.querySelectorAll("[data-print]")) {
  field.addEventListener("input", () => {
    if (!field.checkValidity()) return;
    for (const link of document.querySelectorAll("[data-sized]")) link.search = `?mm=${field.value}`;
  });
}

// The main page put the key here when it made the object.
const object = document.querySelector("#object");
const place = object && `cube3d.key.${object.dataset.id}`;
const key = object && localStorage.getItem(place);
if (key) {
  const dialog = document.querySelector("dialog");
  const button = document.querySelector("#delete");
  button.hidden = false;
  button.addEventListener("click", () => dialog.showModal());
  dialog.addEventListener("close", async () => {
    if (dialog.returnValue !== "delete") return;
    const answer = await fetch(`${object.dataset.id}/delete`, { method: "POST", body: JSON.stringify({ key }) });
    if (answer.ok || answer.status === 404) {
      localStorage.removeItem(place);
      location.replace(`${location.pathname}?${object.dataset.recipe}`);
    } else {
      document.querySelector(".error").hidden = false;
    }
  });
}
