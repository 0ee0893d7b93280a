"""The page: what is on it, then what each thing does. Knows no model and no files."""

from __future__ import annotations

import gradio as gr
from starlette.middleware import Middleware

from .. import checks, records
from ..store import Store
from . import examples, form, routes, strings, theme, views
from .fairness import FairQueue, waiting
from .handlers import Endpoint, Pipeline
from .handlers_generate import Generating, data_uri
from .handlers_result import Showing
from .handlers_source import Sources

WAITING = 16  # runs that may queue before visitors are asked to come back
LARGEST_MESH = 20  # MB
CAMERA = (60, 72, None)  # degrees around and from above: a three-quarter view; the distance fits the object
SENTENCES = gr.I18n()  # makes the keys that the browser replaces by sentences; launch_options brings those
CLICKS = """element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (button) trigger(button.dataset.do, { ...button.dataset });
});"""  # a fragment's buttons are events of its component: data-do names the event, the other data come with it


def build_page(pipeline: Pipeline, store: Store) -> gr.Blocks:
    """The page over one pipeline and one store. Launch it with `launch_options`, or use `serve`."""
    generating, endpoint = Generating(pipeline, store), Endpoint(pipeline, store)
    showing, sources = Showing(pipeline, store), Sources(pipeline, store)
    shown = examples.install(store)
    gr.set_static_paths([store.root])  # served from the store itself: gradio's cache would keep a second copy

    with gr.Blocks(title=strings.TITLE, analytics_enabled=False, fill_width=True) as page:
        gr.HTML(SENTENCES("header"), elem_id="header")
        made, source = gr.State(), gr.State()
        with gr.Row(elem_id="desk", equal_height=False):
            with gr.Column(elem_id="controls", scale=0, min_width=360):
                with gr.Column(elem_id="ask"):
                    prompt = gr.Textbox(
                        label=SENTENCES("prompt"),
                        placeholder=SENTENCES("prompt.hint"),
                        lines=3,
                        max_lines=8,
                        autofocus=True,
                        elem_id="prompt",
                    )
                    reading = gr.HTML(elem_id="reading")
                    chips = gr.Dataset(
                        components=[prompt],
                        samples=[[example] for example in strings.EXAMPLES],
                        label=SENTENCES("examples"),
                        elem_id="examples",
                    )
                    restore = gr.UploadButton(
                        SENTENCES("restore"), file_types=[".glb"], size="sm", variant="secondary", elem_id="restore"
                    )
                with gr.Row(elem_id="actions"):
                    generate = gr.Button(SENTENCES("generate"), variant="primary", min_width=0, elem_id="generate")
                    stop = gr.Button(SENTENCES("stop"), visible=False, min_width=0, elem_id="stop")
                note = gr.HTML(SENTENCES("hint"), elem_id="note")
                with gr.Accordion(SENTENCES("remix"), open=False, elem_id="remix") as remix:
                    mesh = gr.File(
                        label=SENTENCES("mesh"), file_types=[".glb", ".obj", ".stl", ".ply"], height=150, elem_id="mesh"
                    )
                    with gr.Column(visible=False, elem_id="source") as source_controls:
                        source_name = gr.HTML(elem_id="source-name")
                        keep = gr.Slider(
                            0, 95, 25, step=5, label=SENTENCES("keep"), info=SENTENCES("keep.hint"), elem_id="keep"
                        )
                        clear = gr.Button(SENTENCES("source.clear"), size="sm", elem_id="source-clear")
                with gr.Column(elem_id="seeds"):
                    variations = gr.Radio(form.VARIATIONS, value=1, label=SENTENCES("variations"), elem_id="variations")
                    seed = gr.Number(
                        label=SENTENCES("seed"),
                        info=SENTENCES("seed.hint"),
                        placeholder=SENTENCES("seed.empty"),
                        elem_id="seed",
                    )
                    with gr.Row(elem_id="seed-row"):
                        lock = gr.Checkbox(False, label=SENTENCES("lock"), min_width=0, elem_id="lock")
                        next_seed = gr.Button(SENTENCES("next"), size="sm", scale=0, min_width=0, elem_id="next")
                with gr.Accordion(SENTENCES("advanced"), open=False, elem_id="advanced"):
                    controls = _advanced()
                    box_picture, box_sides, budget = controls.pop("box"), controls.pop("sides"), controls.pop("budget")
            with gr.Column(elem_id="result", scale=1, min_width=320):
                with gr.Column(elem_id="stage"):
                    viewer = gr.Model3D(
                        str(shown[0][0].glb) if shown else None,
                        label=SENTENCES("viewer"),
                        show_label=False,
                        interactive=False,
                        height="100%",
                        camera_position=CAMERA,
                        elem_id="viewer",
                    )
                    gr.HTML(SENTENCES("empty"), elem_id="empty")
                    caption = gr.HTML(SENTENCES("caption") if shown else "", elem_id="caption")
                    sketches = gr.HTML(elem_id="sketches")
                    overlay = gr.HTML(elem_id="overlay")
                variants = gr.HTML(elem_id="variants", js_on_load=CLICKS)
                card = gr.HTML(elem_id="card", js_on_load=CLICKS)
                history = gr.HTML(SENTENCES("history.shelf"), elem_id="history", js_on_load=CLICKS)
                gallery = gr.HTML(SENTENCES("gallery.shelf"), visible=bool(shown), elem_id="gallery", js_on_load=CLICKS)

        controls |= {"prompt": prompt, "variations": variations, "lock": lock, "seed": seed}
        fields = [controls[name] for name in form.NAMES]
        quiet = {"show_progress": "hidden", "api_visibility": "private"}
        light = {"queue": False, **quiet}
        device = {"concurrency_id": "device", "concurrency_limit": pipeline.slots}
        press_generate = {"fn": None, "js": "() => document.querySelector('#generate').click()"}
        ended = [generate, stop, sketches]

        # A run
        started = generate.click(generating.begin, outputs=[generate, stop, note, overlay], **light)
        running = started.then(
            generating.run, [source, keep, *fields], [seed, note, overlay, sketches, made], **quiet, **device
        )
        running.success(showing.deliver, made, [viewer, caption, card, variants, note, overlay], **light).then(
            generating.idle, outputs=ended, **light
        )
        running.failure(generating.refused, outputs=[*ended, note, overlay], **light)
        stopped = stop.click(generating.stop, outputs=[stop, sketches, note, overlay], **light)
        stopped.then(None, cancels=running)  # for a run that gradio's queue still holds
        page.unload(generating.leave)

        # What the controls do to each other
        page.load(None, js="() => null", outputs=seed, **light)  # an empty gr.Number starts as 0 otherwise
        page.load(showing.arrive, outputs=[note, *fields], **light)
        prompt.change(showing.read, prompt, reading, trigger_mode="always_last", **light)
        chips.click(lambda sample: sample[0], chips, prompt, **light).then(**press_generate)
        next_seed.click(lambda seed: (form.next_seed(seed), True), seed, [seed, lock], **light).then(**press_generate)
        controls["sampling"].change(
            lambda choice: gr.update(visible=choice == form.NUCLEUS), controls["sampling"], controls["top_p"], **light
        )
        use_box, sides = controls["use_box"], [controls[axis] for axis in "xyz"]
        use_box.change(lambda on: gr.update(visible=on), use_box, box_sides, **light)
        gr.on([side.change for side in sides], showing.box, sides, box_picture, trigger_mode="always_last", **light)
        budget.input(lambda name: form.BUDGETS[name], budget, controls["faces"], **light)
        controls["faces"].change(form.budget, controls["faces"], budget, **light)

        # What is finished
        variants.select(showing.pick, outputs=[viewer, card, note, seed], **light)
        gr.on(
            [history.select, gallery.select],
            showing.open,
            outputs=[viewer, caption, card, variants, note, *fields],
            **light,
        )
        card.delete(showing.removed, outputs=[viewer, card, variants, note], **light)

        # What a run starts from
        started_from = [source, source_name, source_controls, mesh, note]
        restore.upload(sources.restore, restore, [note, *fields], **light)
        mesh.upload(sources.take, mesh, started_from, **quiet)
        clear.click(sources.clear, outputs=started_from, **light)
        card.edit(sources.more, outputs=[*started_from, remix, *fields], **light).success(**press_generate)

        gr.api(endpoint.generate, api_name="generate", **device)
        page.queue(max_size=WAITING, api_open=False)  # no run goes past the queue, whoever asks for it
    return page


def _advanced() -> dict[str, gr.components.Component]:
    """The controls under Advanced by the name of their field; box, sides and budget are no fields themselves."""
    controls = {}
    controls["negative_prompt"] = gr.Textbox(
        "",  # left out, it would be None until someone types
        label=SENTENCES("negative"),
        placeholder=SENTENCES("negative.hint"),
        max_lines=3,
        elem_id="negative",
    )
    controls["guidance"] = gr.Slider(
        0, 20, 3.0, step=0.1, label=SENTENCES("guidance"), info=SENTENCES("guidance.hint"), elem_id="guidance"
    )
    controls["sampling"] = gr.Radio(
        [(SENTENCES("nucleus"), form.NUCLEUS), (SENTENCES("greedy"), form.GREEDY)],
        value=form.NUCLEUS,
        label=SENTENCES("sampling"),
        info=SENTENCES("sampling.hint"),
        elem_id="sampling",
    )
    controls["top_p"] = gr.Slider(
        0.01, 1, 0.9, step=0.01, label=SENTENCES("top_p"), info=SENTENCES("top_p.hint"), elem_id="top-p"
    )
    controls["use_box"] = gr.Checkbox(False, label=SENTENCES("box"), elem_id="use-box")
    with gr.Row(visible=False, elem_id="box") as controls["sides"]:
        for axis in "xyz":
            controls[axis] = gr.Number(1, label=SENTENCES(f"box.{axis}"), min_width=60, elem_id=f"box-{axis}")
        controls["box"] = gr.HTML(views.box((1, 1, 1), strings.say()), elem_id="box-picture")
    controls["resolution"] = gr.Slider(
        *checks.RESOLUTIONS,
        128,
        step=16,
        label=SENTENCES("resolution"),
        info=SENTENCES("resolution.hint"),
        elem_id="resolution",
    )
    controls["faces"] = gr.Number(
        10_000,
        label=SENTENCES("faces"),
        info=SENTENCES("faces.hint"),
        placeholder=SENTENCES("faces.empty"),
        elem_id="faces",
    )
    controls["budget"] = gr.Radio(
        [(SENTENCES(f"budget.{name}"), name) for name in form.BUDGETS],
        value="usual",
        label=SENTENCES("budget"),
        show_label=False,
        elem_id="budget",
    )
    controls["smooth"] = gr.Slider(
        *checks.SMOOTH, 0, step=1, label=SENTENCES("smooth"), info=SENTENCES("smooth.hint"), elem_id="smooth"
    )
    return controls


def launch_options(pipeline: Pipeline, store: Store) -> dict[str, object]:
    """What gradio takes at launch rather than in Blocks: looks, keys, routes, and nothing from or to the outside."""
    return {
        "theme": theme.theme(),
        "css_paths": theme.CSS,
        "js": theme.script(),
        "i18n": _sentences(pipeline.info, store),
        "favicon_path": theme.ICON,
        "footer_links": ["api"],
        "app_kwargs": {
            "routes": routes.routes(store, pipeline, waiting),
            "middleware": [Middleware(FairQueue, most=(WAITING + 1) // 2)],
        },
        "max_file_size": f"{LARGEST_MESH}mb",
        "run_history": False,
        "enable_monitoring": False,
        "show_error": False,
        "share": False,
        "ssr_mode": False,
    }


def serve(pipeline: Pipeline, store: Store, **options: object) -> tuple[object, str, str]:
    """Build the page and launch it; `options` are those of gr.Blocks.launch: server_name, server_port, root_path ..."""
    return build_page(pipeline, store).launch(**{**launch_options(pipeline, store), **options})


def _sentences(model: records.ModelInfo, store: Store) -> gr.I18n:
    """Every language's sentences, and the fragments made of them that stand on the page from the start."""
    shown = [(stored, data_uri(picture.read_bytes())) for stored, picture in examples.install(store)]

    def fragments(say: strings.Say) -> dict[str, str]:
        return {
            **say.sentences,
            "mesh": say("mesh", limit=LARGEST_MESH),
            "header": views.header(model, say),
            "empty": views.empty(say),
            "hint": views.note(say("keys"), "hint"),
            "caption": views.caption(shown[0][0].info["prompt"], say) if shown else "",
            "history.shelf": views.history(say),
            "gallery.shelf": views.gallery(shown, say),
        }

    return gr.I18n(**{language: fragments(strings.say(language)) for language in strings.LANGUAGES})
