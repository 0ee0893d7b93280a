// What a visitor made, kept in this browser alone: pictures to open again, and the keys that delete.
const KEPT = "cube3d.history";
const MOST = 60;
const KEY = "cube3d.key.";
const key = (id) => KEY + id;

// A browser may forbid a page inside another one, as on Hugging Face, to keep anything, or have no room: then until it is left.
const until = new Map();
let kept;
try {
  kept = localStorage;
} catch {}  // that is how it forbids
const storage = {
  getItem: (name) => until.get(name) ?? kept?.getItem(name),
  setItem: (name, text) => {
    try {
      kept.setItem(name, text);
      until.delete(name);
    } catch {
      until.set(name, text);
    }
  },
  removeItem: (name) => {
    until.delete(name);
    kept?.removeItem(name);
  },
  names: () => [...until.keys(), ...Object.keys(kept ?? {})],
};

// What another program wrote under this name counts for nothing.
const read = () => {
  try {
    return JSON.parse(storage.getItem(KEPT) ?? "[]").filter((entry) => entry?.id);
  } catch {
    return [];
  }
};

const write = (entries) => {
  storage.setItem(KEPT, JSON.stringify(entries.slice(0, MOST)));
  show();
};

const forget = (id) => {
  storage.removeItem(key(id));
  write(read().filter((entry) => entry.id !== id));
};

// A key names an object, and who knows its name may see and delete it: none stays behind for the next at this computer,
// of objects that the history no longer has room for either.
const clear = (button) => {
  if (!confirm(button.dataset.clear)) return;
  for (const name of storage.names()) if (name.startsWith(KEY)) storage.removeItem(name);
  for (const each of document.querySelectorAll("[data-delete]")) each.hidden = true;
  write([]);
};

// Prompts are anyone's text: they go in as text, never as markup.
const show = () => {
  const shelf = document.querySelector("#history .shelf");
  if (!shelf) return;
  shelf.replaceChildren(...read().map(({ id, prompt, seed, link, picture }) => {
    const [item, button, image, label] = ["li", "button", "img", "span"].map((tag) => document.createElement(tag));
    Object.assign(button.dataset, { do: "select", id, link });
    Object.assign(button, { type: "button", title: `${prompt} · ${seed}` });
    Object.assign(image, { src: picture, alt: "" });
    label.textContent = prompt;
    button.append(image, label);
    item.append(button);
    return item;
  }));
};

const keep = (card) => {
  const made = JSON.parse(card.dataset.made);
  card.removeAttribute("data-made");
  for (const { id, key: secret } of made) storage.setItem(key(id), secret);
  write([...made.map(({ key, ...entry }) => entry), ...read()]);
};

new MutationObserver(() => {
  const card = document.querySelector(".card[data-made^='[']");
  if (card) keep(card);
  for (const button of document.querySelectorAll("[data-delete][hidden]")) {
    button.hidden = !storage.getItem(key(button.dataset.delete));
  }
  if (document.querySelector("#history .shelf:empty") && read().length) show();
}).observe(document.body, { childList: true, subtree: true });

addEventListener("storage", ({ key }) => key === KEPT && show());  // another tab made or forgot something

const remove = async (button) => {
  const id = button.dataset.delete;
  if (!confirm(button.dataset.sure)) return;
  const body = JSON.stringify({ key: storage.getItem(key(id)) });
  const answer = await fetch(`s/${id}/delete`, { method: "POST", body });
  if (!answer.ok && answer.status !== 404) return;
  forget(id);
  button.dataset.do = "delete";
  button.removeAttribute("data-delete");
  document.getElementById("generate").focus();  // the card goes, and with it the keyboard's place
  button.click();
};

const copy = async (button) => {
  const text = button.dataset.copy.replace(/s\/[\w-]+\?[^"]*/, (link) => new URL(link, document.baseURI).href);
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // without https there is no clipboard
    prompt(button.textContent, text);
    return;
  }
  const said = button.textContent;
  button.textContent = button.dataset.copied;
  setTimeout(() => { button.textContent = said; }, 1500);
};

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy], [data-delete], [data-clear]");
  if (!button) return;
  if (button.dataset.copy) copy(button);
  else if (button.dataset.delete) remove(button);
  else clear(button);
});

// A GLB dropped anywhere but on the mesh input gives back its recipe.
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  const file = event.dataTransfer?.files[0];
  if (!file || event.target.closest("#mesh")) return;
  event.preventDefault();
  const input = document.querySelector("#restore").parentElement.querySelector("input[type=file][accept*=glb]");
  const files = new DataTransfer();
  files.items.add(file);
  input.files = files.files;
  input.dispatchEvent(new Event("change", { bubbles: true }));
}, true);
